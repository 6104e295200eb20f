//! torrc and the command line: what an operator may say, in C tor's own words.

mod address;
pub mod authority;
mod number;
pub mod options;
pub mod policy;
pub mod ports;
pub mod report;
pub mod settings;

pub use authority::DirAuthority;
pub use options::Options;
pub use policy::ExitPolicy;
pub use ports::{OrPort, PortNumber};
pub use report::{Message, Origin, Report};
