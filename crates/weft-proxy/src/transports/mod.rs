//! Pluggable transports (pt-spec, ext-orport-spec): the managed-proxy protocol of both sides, and the protocol of the
//! extended ORPort.
//!
//! A transport is a program that makes Tor's traffic look like something else. Tor starts it, configures it by
//! environment variables ([`environment`]), and reads on its standard output where its transports listen.
//!
//! ```text
//! Managed::new(program)
//! tick(now)                     at the start, and once a second
//! launched(now), failed_to_launch(error), output(now, stream, bytes), exited(now, status)
//!                               what happened to the process
//! read_lines(now)               after output, and again while has_more()
//! poll() -> Action              Launch, Stop, Log, Ready, Lost
//! transports()                  what it offers, while it runs
//! ```
//!
//! [`ExtOr`] is the server's side of a connection to the extended ORPort, by which a transport of a bridge sends the
//! address of a client before the client's bytes.
//!
//! It starts no process, opens no socket and reads no clock.

mod environment;
mod ext_or;
mod key_values;
mod line;
mod managed;
mod text;

pub use environment::{Environment, Role};
pub use ext_or::{COOKIE_HEADER, Client, ExtOr, ExtOrMessage, Progress, Refused, cookie_file};
pub use line::{BadLine, LineKind, Lines, Message, Offer, TooLong, Transport};
pub use managed::{Action, Managed, Program, Side, State, Stream};
pub use text::{escape, is_identifier, is_key_value};
