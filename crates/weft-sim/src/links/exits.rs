//! Classes of exits, by what traffic they let out (seeds/004, Table 1), and their measured mixture.

use std::fmt;

use super::LinksError;
use crate::network::{Flags, Network, PortPolicy, Position, Relay};

/// What circuits are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// Any: whatever has the flag Exit, as Algorithm 1.
    #[default]
    All,
    /// 80 and 443.
    Web,
    /// 6881–6889. Table 1 has "6881-6880"; BitTorrent's own range is meant.
    BitTorrentBase,
    /// 6890–6999.
    BitTorrentExtended,
    /// 1214, 4661–4666, 6346–6429, 6699.
    FileSharing,
    /// 25, 119, 135–139, 445, 563.
    Various,
}

impl Class {
    /// The classes of Table 1, in its order.
    pub const TABLE: [Class; 5] = [
        Class::Web,
        Class::BitTorrentBase,
        Class::BitTorrentExtended,
        Class::FileSharing,
        Class::Various,
    ];

    /// First and last ports.
    pub fn ports(self) -> &'static [(u16, u16)] {
        match self {
            Class::All => &[],
            Class::Web => &[(80, 80), (443, 443)],
            Class::BitTorrentBase => &[(6881, 6889)],
            Class::BitTorrentExtended => &[(6890, 6999)],
            Class::FileSharing => &[(1214, 1214), (4661, 4666), (6346, 6429), (6699, 6699)],
            Class::Various => &[(25, 25), (119, 119), (135, 139), (445, 445), (563, 563)],
        }
    }

    /// Whether an exit serves the class: it allows all of its ports. (With "any of them" 832 exits of
    /// August 2021 would serve `Various`; with "all" they are 44, and seeds/004 4.1.3 counts 45.)
    pub fn is_served_by(self, policy: &PortPolicy) -> bool {
        self.ports()
            .iter()
            .all(|(first, last)| policy.allows_all(*first, *last))
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::All => "any traffic",
            Class::Web => "web",
            Class::BitTorrentBase => "BitTorrent base",
            Class::BitTorrentExtended => "BitTorrent extended",
            Class::FileSharing => "other file-sharing",
            Class::Various => "various",
        })
    }
}

/// Which exits external circuits end at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Exits {
    /// All circuits are of one class.
    One(Class),
    /// Shares of the classes of Table 1, in its order.
    Mixture([f64; 5]),
}

impl Default for Exits {
    fn default() -> Exits {
        Exits::One(Class::All)
    }
}

impl Exits {
    /// 1.7 other circuits for each web circuit (seeds/004, 4.1.7). How the others are divided the paper
    /// does not say; here each of the four classes has as many.
    pub const MEASURED: Exits = Exits::Mixture([1.0, 0.425, 0.425, 0.425, 0.425]);
}

/// Weights of all relays as exits of a class: 0 for what is none. A `BadExit` is none.
pub(super) fn weights(network: &Network, class: Class) -> Result<Vec<f64>, LinksError> {
    let is_exit = |relay: &Relay| relay.flags.has(Flags::EXIT) && !relay.flags.has(Flags::BAD_EXIT);
    if class != Class::All
        && network.relays.iter().any(is_exit)
        && network.relays.iter().all(|relay| relay.policy.is_none())
    {
        return Err(LinksError::NoPolicies(class));
    }
    let weight = |relay: &Relay| {
        let serves = class == Class::All
            || relay
                .policy
                .as_ref()
                .is_some_and(|policy| class.is_served_by(policy));
        match is_exit(relay) && serves {
            true => relay.bandwidth as f64 * network.weights.of(Position::Exit, relay.flags),
            false => 0.0,
        }
    };
    Ok(network.relays.iter().map(weight).collect())
}
