//! The statistics of a relay's extra-info document (dir-spec 2.1.2): counters of a day, and their
//! rounding and noise before they are published, as in C tor (rephist.c, geoip_stats.c,
//! connstats.c).
//!
//! - [`Statistics`]: all that the main thread counts; the lines of the document, in C tor's order
//! - [`DirRequests`]: requests for a consensus, which the directory counts where it answers them
//! - [`StatsFile`]: the files of `DataDirectory/stats`, by which a day's result survives a restart
//!
//! Counters only are kept, with one exception: whether an address or an onion service was counted already
//! today is known by [`Distinct`], which keeps hashes under a key of that day and nothing else. Everything is
//! bounded. Time, randomness and countries of addresses are arguments, files are returned as text.

mod bridge;
mod cells;
mod clients;
mod directions;
mod dirreq;
mod distinct;
mod exits;
mod file;
mod moment;
mod obscure;
mod onions;
mod overload;
mod padding;
mod statistics;

pub use bridge::nobody_seen;
pub use cells::{CircuitName, QueuePart};
pub use clients::{Clients, Country};
pub use directions::{DirectionCounts, Directions};
pub use dirreq::{DirRequests, Download, Response, Way};
pub use distinct::Distinct;
pub use exits::{PortTraffic, PortUse};
pub use file::StatsFile;
pub use moment::PERIOD;
pub use padding::PaddingTotals;
pub use statistics::{GeoipDigests, OverloadSeen, Statistics, Switches};
