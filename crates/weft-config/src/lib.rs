//! torrc and the command line: text in, options out, by C tor's grammar and names.
//!
//! Rooms, each of which uses those before it:
//!
//! | room | what is in it |
//! |---|---|
//! | `text/` | torrc's text: [`lexer`], `include`, numbers, addresses, lines that several subjects share |
//! | [`table`] | every option, as a row: name, kind, default, range, help; keys and lookup by name |
//! | [`settings`] | the value of every option: lines assigned over the defaults; [`dump`](dump()) writes them back |
//! | [`options`] | a file for each subject: its typed options, how they are read and checked; all are [`Options`], which is what the node sees |
//! | `load/` | command line and torrcs, for each identity; [`reload`](reload()) and [`change`](change()) return what a new configuration changed |
//!
//! Text comes from a [`Host`], which is the caller's: this crate opens no file, looks up no name and
//! reads no clock. All messages about a configuration, errors above all, are gathered in one [`Report`],
//! with files and lines, so that an operator sees everything that is wrong at once; the caller logs its
//! [lines](Report::lines).
//!
//! The grammar is C tor's, with these differences: values must be UTF-8 and hold no zero bytes; a
//! `"` quoted value may be followed by a carriage return; dumps quote some values that C tor would
//! lose. Options that C tor knows and Weft does not support are checked by type. The consequence
//! depends on the harm of ignoring them ([`Harm`](table::known::Harm)): they are refused, warned
//! of, or named in a notice.
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::disallowed_types,
        clippy::disallowed_methods,
        clippy::disallowed_macros
    )
)]

mod dump;
mod host;
mod load;
pub mod options;
mod report;
pub mod settings;
pub mod table;
#[cfg(test)]
mod tests;
mod text;

pub use dump::{DumpKind, dump};
pub use host::{FileKind, Host, MemoryHost};
pub use load::change::{Change, ChangeError};
pub use load::command_line::{
    Action, CommandLine, ExpirationFormat, FingerprintKind, KeygenArgs, PassphraseFrom, Quiet,
    TorrcSource,
};
pub use load::flags;
pub use load::identities::load_all;
pub use load::reload::{change, reload, reload_text};
pub use load::torrc::{Loaded, defaults_torrc_path, load, load_text, read_defaults, torrc_path};
pub use options::Options;
pub use options::authority::{AuthorityOptions, GrantedFlag};
pub use options::directory::default_directory_lines;
pub use report::{Message, Origin, Report};
pub use settings::Settings;
pub use table::find::option_of;
pub use table::key::Key;
pub use table::keys;
pub use text::access::AccessPolicy;
pub use text::dir_authority::DirAuthority;
pub use text::include::TORRC;
pub use text::ports::{OrPort, PortNumber};
pub use text::virtual_networks::{Automap, VirtualNetworks};
pub use text::{lexer, log_options};
