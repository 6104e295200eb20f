//! The typed name of every option: `keys::Nickname` is a [`Key<String>`](crate::key::Key).

pub use super::applications::keys::*;
pub use super::authority::keys::*;
pub use super::bandwidth::keys::*;
pub use super::bridges::keys::*;
pub use super::circuits::keys::*;
pub use super::control::keys::*;
pub use super::directory::keys::*;
pub use super::dos::keys::*;
pub use super::exit::keys::*;
pub use super::files::keys::*;
pub use super::identity::keys::*;
pub use super::lifetimes::keys::*;
pub use super::logs::keys::*;
pub use super::network::keys::*;
pub use super::obsolete::keys::*;
pub use super::onion::keys::*;
pub use super::paths::keys::*;
pub use super::process::keys::*;
pub use super::resources::keys::*;
pub use super::scheduling::keys::*;
pub use super::testing::keys::*;
