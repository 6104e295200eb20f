//! The settings of `weft lab hops`.

use std::path::PathBuf;

/// The settings.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `weft` that is measured.
    pub weft: PathBuf,
    /// Numbers of relays between sink and seeder, in order.
    pub hops: Vec<usize>,
    /// Numbers of circuits at once, in order.
    pub circuits: Vec<usize>,
    /// Without congestion control of circuits, with it, or both, in order.
    pub congestion_control: Vec<bool>,
    /// 10⁶ bytes of one transfer, over all its circuits together.
    pub megabytes: u64,
    /// Number of repetitions.
    pub repetitions: u32,
    /// Connection threads of each node.
    pub threads: u32,
    /// Data and the order of measurements are functions of this.
    pub seed: u64,
    /// True if py-ipv8's tunnels are measured, if they are installed.
    pub ipv8: bool,
    /// The Python that has them, if not the one on PATH.
    pub python: Option<PathBuf>,
}
