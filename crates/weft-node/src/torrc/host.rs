//! What reading a configuration asks of the machine: home directories, names, standard places.

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]

use std::net::{IpAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};

/// The machine that a configuration is for.
#[derive(Clone, Debug)]
pub struct Host {
    /// The home directory of the user who runs the node.
    pub home: Option<PathBuf>,
    /// The home directory of a user, by name.
    pub home_of: fn(&str) -> Option<PathBuf>,
    /// An address of a host, by name.
    pub resolve: fn(&str) -> Option<IpAddr>,
    /// torrc, where none is named.
    pub torrc: PathBuf,
    /// The defaults torrc, where none is named.
    pub defaults_torrc: PathBuf,
}

impl Host {
    /// This machine, with C tor's standard places.
    #[must_use]
    pub fn system() -> Self {
        let home_of_id = || {
            let user = nix::unistd::User::from_uid(nix::unistd::Uid::current());
            user.ok().flatten().map(|user| user.dir)
        };
        Self {
            home: std::env::var_os("HOME")
                .map(PathBuf::from)
                .or_else(home_of_id),
            home_of: |name| {
                nix::unistd::User::from_name(name)
                    .ok()
                    .flatten()
                    .map(|user| user.dir)
            },
            resolve: |name| {
                (name, 0)
                    .to_socket_addrs()
                    .ok()?
                    .next()
                    .map(|found| found.ip())
            },
            torrc: PathBuf::from("/etc/tor/torrc"),
            defaults_torrc: PathBuf::from("/etc/tor/torrc-defaults"),
        }
    }

    /// A machine that knows nobody and nothing: for tests and for fuzzing.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            home: Some(PathBuf::from("/home/nobody")),
            home_of: |_| None,
            resolve: |_| None,
            torrc: PathBuf::from("/nonexistent/torrc"),
            defaults_torrc: PathBuf::from("/nonexistent/torrc-defaults"),
        }
    }

    /// Turns `~/…` and `~user/…` into paths (C tor's `expand_filename`); `None` where the home is
    /// not known.
    #[must_use]
    pub fn expand(&self, path: &str) -> Option<PathBuf> {
        let Some(rest) = path.strip_prefix('~') else {
            return Some(PathBuf::from(path));
        };
        let (user, rest) = rest.split_once('/').unwrap_or((rest, ""));
        let home = if user.is_empty() {
            self.home.clone()
        } else {
            (self.home_of)(user)
        }?;
        Some(if rest.is_empty() {
            home
        } else {
            home.join(rest)
        })
    }

    /// Where data is kept unless torrc says otherwise: `~/.tor`, or `/var/lib/tor` for a user whose
    /// home is `/`.
    #[must_use]
    pub fn default_data_directory(&self) -> Option<PathBuf> {
        let home = self.home.as_deref()?;
        Some(if home == Path::new("/") {
            PathBuf::from("/var/lib/tor")
        } else {
            home.join(".tor")
        })
    }
}
