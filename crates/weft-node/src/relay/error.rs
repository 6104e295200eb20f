//! Why a node does not start, or ends.

use std::io;

use weft_datadir::dir::DirError;
use weft_datadir::file;
use weft_datadir::keys::KeyError;
use weft_datadir::keys::family::FamilyError;
use weft_datadir::lock::LockError;
use weft_datadir::state;
use weft_tls::LinkTlsError;

use super::authority::AuthorityError;
use super::listen_socket::ListenError;
use crate::logging::LogError;
use crate::process::daemon::DaemonError;
use crate::process::limits::LimitError;
use crate::process::restrict::SwapError;
use crate::process::sandbox::SandboxError;
use crate::process::user::UserError;

/// Why a node does not start, or ends.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Neither others nor this machine's applications could use it.
    #[error(
        "there is neither an ORPort nor a SocksPort in the configuration: add for example \
         \"ORPort 9001\" for a relay or \"SocksPort 9050\" for a client"
    )]
    NothingToDo,
    /// The process may not open enough files.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// A port is taken.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Two options ask for one port.
    #[error("{one} and {other} are the same port: change one of them")]
    SamePort {
        /// The first, with its address.
        one: String,
        /// The other.
        other: String,
    },
    /// Two identities of the process want what only one can have.
    #[error("two identities cannot have the same {what}: {one} and {other}")]
    Shared {
        /// The resource that both want.
        what: &'static str,
        /// The option of one, and its line.
        one: String,
        /// The option of the other, and its line.
        other: String,
    },
    /// One of several identities.
    #[error("{torrc}: {why}")]
    Of {
        /// Its torrc.
        torrc: String,
        /// The error of this identity.
        why: Box<StartError>,
    },
    /// `User` cannot be become.
    #[error(transparent)]
    User(#[from] UserError),
    /// Memory cannot be kept out of swap space.
    #[error(transparent)]
    Swap(#[from] SwapError),
    /// System calls cannot be restricted.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// Keys or their directories.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// The keys of the families that torrc names.
    #[error(transparent)]
    Families(#[from] FamilyError),
    /// Another process has the DataDirectory.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A file cannot be written.
    #[error(transparent)]
    File(#[from] file::FileError),
    /// The file that lets controllers in.
    #[error(
        "{0}: no controller could come in. Change CookieAuthFile, or set CookieAuthentication 0"
    )]
    Cookie(#[source] file::FileError),
    /// The state file.
    #[error("state file: {0}")]
    State(#[from] state::StateError),
    /// Link TLS.
    #[error(transparent)]
    Tls(#[from] LinkTlsError),
    /// The authority of a private network.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// The cache directory.
    #[error("CacheDirectory: {0}")]
    Cache(#[from] DirError),
    /// A directory that is there and cannot be used.
    #[error(transparent)]
    Directory(DirError),
    /// ServerDNSResolvConfFile cannot be read.
    #[error(
        "{0}; set ServerDNSAllowBrokenConfig 1 to start all the same, without being an exit until \
         it can be read"
    )]
    Dns(String),
    /// The log.
    #[error("cannot set up the log: {0}")]
    Log(#[from] LogError),
    /// The background.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    /// The network has gone on without this version.
    #[error(
        "the network requires protocols of {of} that this version of Weft does not speak: \
         {protocols}. It is too old to be used there: install a newer one"
    )]
    TooOld {
        /// `clients` or `relays`.
        of: &'static str,
        /// The missing subprotocols.
        protocols: String,
    },
    /// The system: threads, event loops.
    #[error("the operating system refused what the relay needs: {0}")]
    System(#[from] io::Error),
}

/// The failure of a node that lost a thread: its links, or what it decided, are gone, and others wait
/// for it.
pub(super) fn thread_ended(which: &str) -> StartError {
    StartError::System(io::Error::other(format!("{which} ended before its time")))
}

impl StartError {
    /// Wraps the error as that of one of several identities, which has this torrc.
    pub(super) fn of(self, torrc: &str) -> Self {
        Self::Of {
            torrc: torrc.to_owned(),
            why: Box::new(self),
        }
    }

    /// C tor's message, where programs that start a Tor look for it.
    #[must_use]
    pub fn c_tor_message(&self) -> Option<&'static str> {
        match self {
            Self::User(UserError::NotFound(_)) => Some(
                "Failed to parse/validate config: Problem with User value. See logs for details.",
            ),
            Self::Of { why, .. } => why.c_tor_message(),
            Self::Listen(_) | Self::SamePort { .. } | Self::Shared { what: "port", .. } => {
                Some("Failed to parse/validate config: Failed to bind one of the listener ports.")
            }
            _ => None,
        }
    }
}
