//! AccountingMax: how much a relay may carry in a month, a week or a day, and when it sleeps to keep to it (C tor:
//! `hibernate.c`).
//!
//! An interval begins at the time that [`Start`] sets, by the local clock. The relay sleeps until a moment of it that
//! follows from its identity and from how much it expects to carry, so that not all relays with a limit are there on
//! the first of the month and none on the 30th. It then carries traffic, accepts nothing new once little is left
//! ([`Phase::Soft`]), and closes everything when nothing is ([`Phase::Hard`]), until the next interval.
//!
//! ```text
//! Accounting::new(saved)
//! set(config, now)      at the start, and when torrc changes
//! moved(read, written)  once a second
//! tick(now)             once a second
//! poll() -> Action      Enter(Phase), Log, Save
//! saved()               C tor's `Accounting…` lines of the state file
//! ```
//!
//! It opens no file and reads no clock. A [`Calendar`] knows local time.

mod calendar;
mod config;
mod phase;
mod saved;

pub use calendar::{Calendar, Civil, FixedOffset, iso_time};
pub use config::{Config, Rule, Start, StartError};
pub use phase::{Accounting, Action, Phase, View};
pub use saved::Saved;
