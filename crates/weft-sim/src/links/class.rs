//! Classes of traffic, each with the ports that its exits allow (Pahl et al. 2023, Table 1).

use std::fmt;

use crate::network::PortPolicy;

/// Applications that circuits carry.
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

    /// Returns true if an exit serves the class, which means that it allows all of its ports. (With
    /// "any of them" 832 exits of August 2021 would serve `Various`; with "all" they are 44, and
    /// Pahl et al. (2023, 4.1.3) count 45.)
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
