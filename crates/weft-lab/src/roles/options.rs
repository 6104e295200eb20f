//! Settings of the experiment.

use std::path::PathBuf;

/// The settings.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `weft` that is measured.
    pub weft: PathBuf,
    /// Its connection threads.
    pub threads: u32,
    /// Arti's client, if it is there.
    pub arti: Option<PathBuf>,
    /// The checkout that it was built from, to note the commit; `None`: it is not known.
    pub checkout: Option<PathBuf>,
    /// Streams at once.
    pub streams: usize,
    /// Payload bytes of each.
    pub bytes: u64,
    /// Small downloads on a client that has circuits.
    pub small: usize,
    /// Number of repetitions.
    pub repetitions: u32,
    /// Payloads are functions of this.
    pub seed: u64,
}
