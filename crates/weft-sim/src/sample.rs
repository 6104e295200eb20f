//! Smaller networks that look like a large one, as tornettools samples them (Pahl et al. 2023, 4.1.2).

use weft_stats::bounds::{Bounds, OutOfBounds};

use crate::network::{Flags, Network, Relay};

/// Parts that can be kept: a millionth is one relay of each class.
pub const SCALE: Bounds<f64> = Bounds::new(1e-6, 1.0);

/// Keeps this part of the relays.
///
/// Relays of one class (neither, guard, exit, both) are put in order of their bandwidth and divided into
/// as many groups, as even as can be, as the class may keep relays; of each group the median stays. So
/// classes keep their share and their distribution of bandwidth. At least one relay of each class that
/// there is stays. The weights of positions are those of the whole network.
///
/// # Errors
///
/// A scale out of [`SCALE`].
pub fn scaled(network: &Network, scale: f64) -> Result<Network, OutOfBounds> {
    SCALE.check("scale", scale)?;
    let classes = classes(network);
    let part = |class: &Vec<usize>| ((class.len() as f64 * scale).round() as usize).max(1);
    let groups = [0, 1, 2, 3].map(|class| classes.get(class).map_or(0, part));
    Ok(kept(network, classes, groups))
}

/// More relays than there are, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{asked} {what}: there must be 1 to {there}")]
pub struct BadCount {
    asked: usize,
    what: &'static str,
    there: usize,
}

/// Keeps the given number of relays, as [`scaled`] does: each class in proportion to its size, by
/// largest remainder. If `exits` is given, that many of them have the flag Exit.
///
/// # Errors
///
/// [`BadCount`].
pub fn sampled(
    network: &Network,
    relays: usize,
    exits: Option<usize>,
) -> Result<Network, BadCount> {
    let check = |asked: usize, what, there: usize| match (1..=there).contains(&asked) {
        true => Ok(()),
        false => Err(BadCount { asked, what, there }),
    };
    check(relays, "relays", network.relays.len())?;
    let classes = classes(network);
    let [neither, guard, exit, both] =
        [0, 1, 2, 3].map(|class: usize| classes.get(class).map_or(0, Vec::len));
    let groups = match exits {
        None => apportioned([neither, guard, exit, both], relays),
        Some(exits) => {
            check(exits, "exits", relays.min(exit + both))?;
            let others = relays - exits;
            if others > neither + guard {
                let what = "relays without the flag Exit";
                check(others, what, neither + guard)?;
            }
            let [neither, guard] = apportioned([neither, guard], others);
            let [exit, both] = apportioned([exit, both], exits);
            [neither, guard, exit, both]
        }
    };
    Ok(kept(network, classes, groups))
}

/// `count` items, in proportion to these sizes; `count` is at most their sum.
fn apportioned<const N: usize>(sizes: [usize; N], count: usize) -> [usize; N] {
    let all = sizes.iter().sum::<usize>().max(1);
    let mut parts = sizes.map(|size| size * count / all);
    let mut left = count.saturating_sub(parts.iter().sum());
    let mut order: Vec<usize> = (0..N).collect();
    order.sort_by_key(|class| {
        let size = sizes.get(*class).copied().unwrap_or(0);
        std::cmp::Reverse(size * count % all)
    });
    for class in order {
        if let Some(part) = parts.get_mut(class)
            && left > 0
        {
            *part += 1;
            left -= 1;
        }
    }
    parts
}

/// The places of the relays of each class.
fn classes(network: &Network) -> [Vec<usize>; 4] {
    let mut classes: [Vec<usize>; 4] = Default::default();
    for (place, relay) in network.relays.iter().enumerate() {
        if let Some(class) = classes.get_mut(class(relay)) {
            class.push(place);
        }
    }
    classes
}

/// Keeps the given number of relays of each class.
fn kept(network: &Network, mut classes: [Vec<usize>; 4], groups: [usize; 4]) -> Network {
    let bandwidth = |place: &usize| network.relays.get(*place).map(|relay| relay.bandwidth);
    let mut kept: Vec<usize> = Vec::new();
    for (class, groups) in classes.iter_mut().zip(groups) {
        if class.is_empty() || groups == 0 {
            continue;
        }
        // Stable: relays of one bandwidth stay in the order of the document.
        class.sort_by_key(bandwidth);
        let (size, longer) = (class.len() / groups, class.len() % groups);
        let mut rest = class.as_slice();
        for group in 0..groups {
            let (members, behind) = rest.split_at(size + usize::from(group < longer));
            kept.extend(members.get(members.len() / 2));
            rest = behind;
        }
    }
    kept.sort_unstable();
    Network {
        relays: kept
            .into_iter()
            .filter_map(|place| network.relays.get(place).cloned())
            .collect(),
        valid_after: network.valid_after.clone(),
        weights: network.weights,
    }
}

fn class(relay: &Relay) -> usize {
    let exit = relay.flags.has(Flags::EXIT) && !relay.flags.has(Flags::BAD_EXIT);
    usize::from(relay.flags.has(Flags::GUARD)) + 2 * usize::from(exit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synth;

    fn exits(network: &Network) -> usize {
        network
            .relays
            .iter()
            .filter(|relay| class(relay) >= 2)
            .count()
    }

    #[test]
    fn a_sample_has_as_many_relays_as_asked_for() {
        let network = synth::network(1_000, 1).unwrap();
        for count in [1, 2, 3, 10, 77, 999, 1_000] {
            assert_eq!(sampled(&network, count, None).unwrap().relays.len(), count);
        }
        // Classes keep their shares: 19.4 % are exits.
        assert_eq!(exits(&sampled(&network, 100, None).unwrap()), 19);
        let one = sampled(&network, 20, Some(1)).unwrap();
        assert_eq!((one.relays.len(), exits(&one)), (20, 1));
        let all = sampled(&network, 5, Some(5)).unwrap();
        assert_eq!((all.relays.len(), exits(&all)), (5, 5));
    }

    #[test]
    fn a_sample_by_count_is_that_by_scale() {
        let network = synth::network(1_000, 1).unwrap();
        let scaled = scaled(&network, 0.1).unwrap();
        assert_eq!(sampled(&network, scaled.relays.len(), None), Ok(scaled));
    }

    #[test]
    fn counts_that_cannot_be_are_refused() {
        let network = synth::network(100, 1).unwrap();
        let error = |count, exits| sampled(&network, count, exits).unwrap_err().to_string();
        assert_eq!(error(0, None), "0 relays: there must be 1 to 100");
        assert_eq!(error(101, None), "101 relays: there must be 1 to 100");
        assert_eq!(error(10, Some(11)), "11 exits: there must be 1 to 10");
        assert_eq!(error(10, Some(0)), "0 exits: there must be 1 to 10");
        let others = 100 - exits(&network);
        assert_eq!(
            error(100, Some(1)),
            format!("99 relays without the flag Exit: there must be 1 to {others}")
        );
    }
}
