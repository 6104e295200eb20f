//! Scarcity of a relay's bandwidth: the relay's part of ABRA, the algorithm that avoids bottleneck
//! relays (Schrock 2017, 3.1; Geddes, Schliep and Hopper 2016). docs/extensions/abra.md has the
//! protocol.
//!
//! - [`Rates`]: bytes that circuits moved (`circuit/activity.rs`) in a bin of [`BIN`], the maximum
//!   over the bins of a [`SECOND`], in bounded memory, as threads report them; [`head_tail`]:
//!   Head/Tail clustering;
//! - [`Capacity`]: tests whether the relay is at its capacity, and names the cause;
//! - [`verify`]: checks that a statement comes from the relay that it names.
//!
//! `manager/circuits/abra.rs` has the connection thread's part, `controller/abra.rs` the relay's.

mod bins;
mod capacity;
mod head_tail;
mod rates;
mod statement;

pub(crate) use bins::PHASES;
pub use bins::{BIN, INTERVAL, SECOND, mbit_per_second};
pub use capacity::Capacity;
pub(crate) use capacity::{CapacityMeter, LinkFill, Metering};
pub use head_tail::{THRESHOLD, head_tail, weight_of};
pub use rates::Rates;
pub use statement::{AbraError, MAX_AGE, Memo, check_times, verify};
