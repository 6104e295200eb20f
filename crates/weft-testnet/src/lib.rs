//! Private Tor networks: the one place that starts nodes.
//!
//! [`network::Network`] starts a Tor network out of real C tor processes with one or more *target* relays in it: any
//! program that takes C tor's `-f torrc`, so `tor` or `weft`. [`up`] starts a network to play with, on loopback, and
//! [`overlay`] one on the hosts of a testbed: [`net`] makes hosts of network namespaces, and [`shadow`] has Shadow
//! simulate them; both run the nodes of [`nodes`]. [`control`] and [`metrics_port`] ask a node, [`logs`] says what its log
//! should not have, and [`process`] what it costs. [`traffic`] moves seeded, hashed bytes through SOCKS, to show that a
//! network carries data.
//!
//! Nothing here is for the live network, and nothing listens elsewhere than on loopback. Every process is in the care of a
//! [`guardian::Guardian`], so that a panic, Ctrl-C ([`stop::Stop`]) or SIGKILL of the owner leaves nothing running and no
//! file behind.

pub mod control;
pub mod guardian;
pub mod logs;
pub mod metrics_port;
pub mod net;
pub mod network;
pub mod nodes;
pub mod overlay;
pub mod ports;
pub mod process;
pub mod programs;
pub mod shadow;
pub mod stop;
pub mod traffic;
pub mod up;
