//! The results of Pahl et al. (2023), for comparison with our own.

/// A value or an interval of the paper.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reported {
    /// The quantity that was measured.
    pub what: &'static str,
    /// Where it stands in the paper.
    pub place: &'static str,
    /// From, in the unit of `what`.
    pub low: f64,
    /// To; the same for a single value.
    pub high: f64,
}

const fn reported(what: &'static str, place: &'static str, low: f64, high: f64) -> Reported {
    Reported {
        what,
        place,
        low,
        high,
    }
}

/// Active circuits each second of the whole network (4.2).
pub const PRESENT_CIRCUITS: u64 = 96_000;
/// Circuits that the network could carry with its bandwidth of 2021 (4.2).
pub const CAPACITY_CIRCUITS: u64 = 290_000;
/// Scales of Figures 4 and 6.
pub const SCALES: [f64; 7] = [0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0];
/// Circuits of each client in Figure 6.
pub const CIRCUITS_PER_CLIENT: [u32; 4] = [1, 16, 32, 64];

/// Figure 4, Shadow's points and how far SALSA's were from them (4.4): external and directed, per cent.
pub const FIGURE4: [Reported; 3] = [
    reported("shared links at 1 % scale", "4.4", 54.82, 54.82),
    reported("shared links at 10 % scale", "4.4", 20.56, 20.56),
    reported("shared links at 25 % scale", "4.4", 12.51, 12.51),
];
/// By how much SALSA was above Shadow at those scales (4.4), points.
pub const FIGURE4_DIFFERENCES: [f64; 3] = [0.97, -0.63, 0.48];

/// Figure 5 (4.1.3): external and directed, per cent.
pub const FIGURE5: [Reported; 6] = [
    reported("web", "4.1.3", 4.3, 4.3),
    reported("mixture", "4.1.3", 6.7, 6.7),
    reported("BitTorrent base", "4.1.3", 11.3, 11.3),
    reported("BitTorrent extended", "4.1.3", 11.2, 11.2),
    reported("other file-sharing", "4.1.3", 11.2, 11.2),
    reported("various", "4.1.3", 16.2, 16.2),
];
/// Exits that Figure 5's classes had (4.1.3), in the same order. "The remaining classes around 200".
pub const FIGURE5_EXITS: [u32; 6] = [1348, 1348, 200, 200, 200, 45];

/// Figure 6 (4.1.6), the whole network, per cent.
pub const FIGURE6: [Reported; 2] = [
    reported("1 circuit for each client", "4.1.6", 4.0, 4.0),
    reported("64 circuits for each client", "4.1.6", 5.0, 5.0),
];

/// Figure 7 (4.1.7): links by their circuits, per cent of all links.
pub const FIGURE7: [Reported; 2] = [
    reported("links of two circuits", "4.1.7", 3.5, 3.5),
    reported("links of more", "4.1.7", 0.3, 0.3),
];

/// Figure 8 (4.2): from the least to the most of the four kinds and directions, per cent.
pub const FIGURE8: [Reported; 2] = [
    reported("shared links, 96,000 circuits", "4.2", 3.7, 6.9),
    reported("shared links, 290,000 circuits", "4.2", 8.0, 16.0),
];

/// 4.1.7, of November 2021, per cent.
pub const POSITIONS: [Reported; 2] = [
    reported("shared links between guards and middles", "4.1.7", 2.9, 3.7),
    reported("shared links between middles and exits", "4.1.7", 2.5, 5.0),
];
/// 4.1.7: internal and external, exit classes and guards as measured; directed to undirected.
pub const LIVE: Reported = reported("shared links, mixture as measured", "4.1.7", 3.70, 6.05);
/// 4.1.7: circuits with shared links, per cent of all circuits, ten repetitions.
pub const SHARED_CIRCUITS: [Reported; 3] = [
    reported("circuits with a shared link", "4.1.7", 15.0, 15.0),
    reported("circuits with one", "4.1.7", 14.0, 14.0),
    reported("circuits with two", "4.1.7", 1.0, 1.0),
];

/// A row of Table 2: a million circuits (Shadow: a network of 25 %).
pub struct Simulator {
    /// Its name.
    pub name: &'static str,
    /// Seconds.
    pub seconds: f64,
    /// Bytes.
    pub bytes: f64,
}

/// Table 2 (4.4).
pub const TABLE2: [Simulator; 4] = [
    Simulator {
        name: "Shadow 1.13",
        seconds: 3.0 * 86_400.0,
        bytes: 600e9,
    },
    Simulator {
        name: "TorPS",
        seconds: 40.0 * 60.0,
        bytes: 6e9,
    },
    Simulator {
        name: "modified Tor client",
        seconds: 2.0 * 3600.0,
        bytes: 50e6,
    },
    Simulator {
        name: "SALSA",
        seconds: 5.0,
        bytes: 1e9,
    },
];
