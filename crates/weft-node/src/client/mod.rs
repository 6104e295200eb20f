//! The client thread: runs [`weft_client`], which decides about circuits and streams that begin here.
//!
//! Everything here is rare and runs on one thread, `client`, with a tokio runtime. The client's
//! decisions are sent as commands to the main thread; events come back.
//!
//! ```text
//! main thread   <--- OriginCommand, state ---   Task::run   <-- Access::with --   control port
//!   Relay        ---- OriginEvent, settings -->  Client<Paths>  -- ClientNews -->
//!                                                   |   ^
//!                                        DirStreams |   | Network
//!                                              ClientDirectory (weft-dir)
//! ```
//!
//! [`task`] gives it events, the time and the network, and carries out its outputs.

mod access;
mod bridges;
pub(crate) mod countries;
mod handle;
mod messages;
mod network;
mod settings;
mod task;
mod tunnels;

pub(crate) use access::Access;
pub(crate) use handle::ClientThread;
pub(crate) use messages::{ClientCounts, ClientNews, FromClient, Inside, ToClient};
pub(crate) use settings::ClientSettings;
