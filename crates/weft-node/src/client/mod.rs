//! The client: circuits that begin here, and the streams of applications on them.
//!
//! Everything here is rare and runs on one thread, `client`, with a tokio runtime. Cells never
//! come here: a circuit of ours is a half on a connection thread, its streams are edges there
//! ([`weft_core::origin`]). What the client decides goes as commands to the main thread, and what
//! happens comes back as events.
//!
//! ```text
//! main thread   <--- OriginCommand, state ---   Task::run   <-- Access::with --   control port
//!   Relay        ---- OriginEvent, settings -->  Client<Paths>  -- ClientEvent -->
//!                                                   |   ^
//!                                        DirStreams |   | Network
//!                                              ClientDirectory (weft-dir)
//! ```
//!
//! [`machine`] decides; it is pure. [`paths`] chooses relays and guards for it (weft-path).
//! [`task`] gives it events and time.

pub mod address_map;
pub mod bootstrap;
pub mod building;
pub mod chooser;
pub mod config;
pub(crate) mod countries;
pub mod events;
mod handle;
pub mod isolation;
pub mod machine;
pub mod paths;
mod settings;
mod task;
mod tunnels;
pub mod virtual_addresses;

pub use handle::{Access, ClientThread, FromClient, Inside, ToClient};
pub use settings::ClientSettings;
