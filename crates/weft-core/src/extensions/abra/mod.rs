//! How scarce a relay's bandwidth is: the relay's part of ABRA, the algorithm that avoids bottleneck relays
//! (Schrock 2017, 3.1; Geddes, Schliep and Hopper 2016). docs/extensions/abra.md has the protocol.
//!
//! - [`Rates`]: what circuits moved (`circuit/activity.rs`) in a bin of [`BIN`], the most in one of the bins of
//!   [`SECOND`], bounded, as threads report them; [`head_tail`]: Head/Tail clustering;
//! - [`Capacity`]: whether the relay is at its capacity, and what holds it back;
//! - [`verify`]: whether a statement is the relay's that it claims to be.
//!
//! `manager/circuits/abra.rs` has what a connection thread does with them, `controller/abra.rs` what the relay does.

mod bins;
mod capacity;
mod head_tail;
mod rates;
mod statement;

pub(crate) use bins::PHASES;
pub use bins::{BIN, INTERVAL, SECOND, mbit_per_second};
pub use capacity::Capacity;
pub(crate) use capacity::{CapacityMeter, LinkFill};
pub use head_tail::{THRESHOLD, head_tail, weight_of};
pub use rates::Rates;
pub use statement::{AbraError, MAX_AGE, Memo, check_times, verify};
