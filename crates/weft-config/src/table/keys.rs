//! The typed name of every option: `keys::Nickname` is a [`Key<String>`](crate::table::key::Key).

pub use super::rows::applications::keys::*;
pub use super::rows::authority::keys::*;
pub use super::rows::bandwidth::keys::*;
pub use super::rows::bridges::keys::*;
pub use super::rows::circuits::keys::*;
pub use super::rows::control::keys::*;
pub use super::rows::directory::keys::*;
pub use super::rows::dos::keys::*;
pub use super::rows::exit::keys::*;
pub use super::rows::files::keys::*;
pub use super::rows::identity::keys::*;
pub use super::rows::lifetimes::keys::*;
pub use super::rows::logs::keys::*;
pub use super::rows::network::keys::*;
pub use super::rows::obsolete::keys::*;
pub use super::rows::onion_services::keys::*;
pub use super::rows::paths::keys::*;
pub use super::rows::private_network::keys::*;
pub use super::rows::process::keys::*;
pub use super::rows::resources::keys::*;
pub use super::rows::scheduling::keys::*;
