//! The log: `tracing` events written as C tor writes them, to where torrc says.

pub mod severity;

pub use severity::{Destination, Domains, LogLine, SafeLogging, Severity, SeverityMask};
