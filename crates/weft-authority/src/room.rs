//! Which relay gives way to a newcomer where an authority knows as many as it can.
//!
//! Anyone can make up relays, so those that were never reached give way first, and those of the network that sent most of
//! them.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::SystemTime;

use tor_llcrypto::pk::rsa::RsaIdentity;

/// A relay that has a place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub(super) id: RsaIdentity,
    /// The network that sent its descriptor.
    pub(super) from: Option<IpAddr>,
    /// Whether it was never reached.
    pub(super) is_new: bool,
    /// When its descriptor was made.
    pub(super) published: SystemTime,
}

/// The relay that gives way to one whose descriptor comes `from` this network. `None`: the newcomer is refused.
///
/// - Of those that were never reached, the oldest of the network that has most of them, among equals of that which has
///   most relays; not one of a network that has fewer than the newcomer's would have.
/// - Where there is none: the oldest of the network that has most relays, if it then still has as many as the newcomer's.
pub(super) fn gives_way(placed: &[Placed], from: IpAddr) -> Option<RsaIdentity> {
    // Of a network: relays that were never reached, and all.
    let mut held: BTreeMap<Option<IpAddr>, (usize, usize)> = BTreeMap::new();
    for one in placed {
        let (new, all) = held.entry(one.from).or_default();
        *new += usize::from(one.is_new);
        *all += 1;
    }
    let of = |network| held.get(&network).copied().unwrap_or_default();
    let (new, all) = of(Some(from));
    let with_newcomer = (new + 1, all + 1);
    let never_reached = placed
        .iter()
        .filter(|one| one.is_new)
        .filter(|one| one.from == Some(from) || of(one.from) >= with_newcomer)
        .max_by_key(|one| (of(one.from), Reverse((one.published, one.id))));
    let of_the_most = || {
        placed
            .iter()
            .filter(|one| of(one.from).1 > all + 1)
            .max_by_key(|one| (of(one.from).1, Reverse((one.published, one.id))))
    };
    Some(never_reached.or_else(of_the_most)?.id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{now, secs};

    fn network(number: u8) -> IpAddr {
        [10, 0, 0, number].into()
    }

    /// Relays of these numbers, the first being the oldest.
    fn placed(ids: std::ops::Range<u8>, from: u8, is_new: bool) -> Vec<Placed> {
        let one = |id: u8| Placed {
            id: [id; 20].into(),
            from: Some(network(from)),
            is_new,
            published: now() + secs(id.into()),
        };
        ids.map(one).collect()
    }

    fn displaced(placed: &[Vec<Placed>], from: u8) -> Option<u8> {
        gives_way(&placed.concat(), network(from)).map(|id| id.as_bytes()[0])
    }

    #[test]
    fn relays_that_somebody_made_up_give_way_and_those_that_run_do_not() {
        let running = placed(0..30, 1, false);
        let made_up = placed(50..60, 2, true);
        let all = [running.clone(), made_up];
        assert_eq!(
            displaced(&all, 1),
            Some(50),
            "the oldest of a network's ten"
        );
        assert_eq!(displaced(&all, 3), Some(50));
        assert_eq!(displaced(&all, 2), Some(50), "its own");
        // One newcomer that is not reached yet does not give way to a network that has more.
        let all = [running, placed(50..51, 3, true)];
        assert_eq!(displaced(&all, 1), None);
        assert_eq!(displaced(&all, 3), Some(50));
    }

    #[test]
    fn of_networks_with_as_many_newcomers_the_one_with_more_relays_gives_way() {
        let all = [
            placed(0..9, 1, false),
            placed(20..22, 1, true),
            placed(10..12, 2, true),
        ];
        assert_eq!(displaced(&all, 3), Some(20));
        assert_eq!(displaced(&all, 2), Some(10), "it would have three");
    }

    #[test]
    fn a_network_that_has_most_of_the_relays_that_run_leaves_places_to_others() {
        let all = [placed(0..30, 1, false), placed(40..45, 2, false)];
        assert_eq!(displaced(&all, 2), Some(0));
        assert_eq!(displaced(&all, 3), Some(0));
        assert_eq!(displaced(&all, 1), None);
        let equal = [placed(0..3, 1, false), placed(40..42, 2, false)];
        assert_eq!(displaced(&equal, 2), None, "they would only change places");
    }
}
