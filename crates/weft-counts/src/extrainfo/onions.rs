//! Onion services (`hidserv-v3-*`; C tor `rep_hist_format_hs_stats`): cells at rendezvous points, and services
//! whose descriptors were stored, both with noise.

use rand::Rng;

use crate::extrainfo::obscure::Noise;

/// Of cells (`REND_CELLS_*`).
const CELLS: Noise = Noise {
    bin: 1024,
    delta_f: 2048,
    epsilon: 0.3,
};
/// Of services (`ONIONS_SEEN_*`).
const SERVICES: Noise = Noise {
    bin: 8,
    delta_f: 8,
    epsilon: 0.3,
};

/// Counters of onion services in a day.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Onions {
    pub(crate) cells: u64,
    pub(crate) services: u64,
}

impl Onions {
    /// The lines of a day that ended so.
    pub(crate) fn lines(self, end: &str, rng: &mut impl Rng) -> String {
        format!(
            "hidserv-v3-stats-end {end}\n{}{}",
            CELLS.line("hidserv-rend-v3-relayed-cells", self.cells, rng),
            SERVICES.line("hidserv-dir-v3-onions-seen", self.services, rng),
        )
    }
}
