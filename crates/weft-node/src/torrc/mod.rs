//! torrc and the command line: what an operator may say, in C tor's own words.
//!
//! A configuration takes this road: [`command_line`] says which files; [`lexer`] splits their text
//! into lines and [`include`] brings in others; [`settings`] assigns the lines, by the table of
//! [`known`] options, over the defaults; `validate` holds them against the rules between options;
//! `build` makes typed [`Options`] of them, which is all that the node sees. [`dump`] writes
//! settings back as a torrc, [`reload`](mod@reload) tells what a new reading changed.
//!
//! Everything that is said on the way, errors above all, is gathered in one [`Report`] with files
//! and lines, so that an operator sees everything that is wrong at once.
//!
//! The grammar is C tor's, with these differences: values must be UTF-8 and hold no zero bytes; a
//! `"` quoted value may be followed by a carriage return; dumps quote some values that C tor would
//! lose. Options that C tor knows and Weft does not support are checked by type. What follows depends
//! on what ignoring them would do ([`known::Harm`]): they are refused, warned of, or named in a notice.

pub mod access;
mod address;
mod applications;
pub mod authority;
mod build;
mod change;
pub mod circuits;
pub mod client_ports;
pub mod command_line;
pub mod dump;
pub mod fallback;
pub mod host;
pub mod include;
pub mod known;
pub mod lexer;
pub mod load;
mod log_line;
mod number;
pub mod options;
mod paths;
pub mod policy;
pub mod ports;
mod private_authority;
mod proxies;
mod reachable;
pub mod reload;
pub mod report;
pub mod settings;
#[cfg(test)]
mod tests;
mod validate;
pub mod value;
mod virtual_networks;

pub use access::AccessPolicy;
pub use authority::DirAuthority;
pub use change::{ChangeError, change};
pub use command_line::{Action, CommandLine, FingerprintKind, Quiet};
pub use dump::{DumpKind, dump};
pub use host::Host;
pub use load::{Loaded, load, load_text, reload_text, torrc_path};
pub use options::Options;
pub use policy::ExitPolicy;
pub use ports::{OrPort, PortNumber};
pub use private_authority::AuthorityOptions;
pub use reload::{Change, reload};
pub use report::{Message, Origin, Report};
pub use virtual_networks::VirtualNetworks;
