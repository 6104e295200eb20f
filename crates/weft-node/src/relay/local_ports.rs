//! The sockets of ports for this machine's own programs: TCP, UDP and Unix sockets (C tor:
//! connection.c, `connection_listener_new`, `check_location_for_unix_socket`).

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use nix::unistd::{User, geteuid};
use socket2::{Domain, Protocol, Socket, Type};

use crate::torrc::client_ports::{ListenAt, UnixPath};

/// Connections that the kernel may hold ready.
const BACKLOG: i32 = 1024;

/// A port that could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum LocalPortError {
    /// The address is taken, or is none of ours.
    #[error("could not listen on {at}: {source}; is another Tor running?")]
    Listen {
        /// The port, as torrc has it.
        at: String,
        /// What the system says.
        source: io::Error,
    },
    /// A Unix socket's place is not one of ours alone.
    #[error(
        "{} is no place for a socket: {} {why}. Others could connect to it, or put their own \
         there", .path.display(), .path.parent().unwrap_or(.path).display()
    )]
    Place {
        /// The socket.
        path: PathBuf,
        /// What is wrong with the directory.
        why: &'static str,
    },
}

/// One open socket, non-blocking.
#[derive(Debug)]
pub(super) enum LocalSocket {
    Tcp(std::net::TcpListener),
    Udp(UdpSocket),
    Unix(UnixListener, SocketFile),
}

/// The file of a Unix socket that we made. It is removed with this, unless another process has put
/// its own there meanwhile (C tor removes it as it closes the listener).
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    /// Which file it is: device and inode.
    file: (u64, u64),
}

impl SocketFile {
    fn of(path: &Path) -> io::Result<Self> {
        let meta = std::fs::symlink_metadata(path)?;
        Ok(Self {
            path: path.to_owned(),
            file: (meta.dev(), meta.ino()),
        })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let now = std::fs::symlink_metadata(&self.path);
        if now.is_ok_and(|meta| (meta.dev(), meta.ino()) == self.file) {
            // Who has lost the right to remove it (`User`) leaves it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl LocalSocket {
    /// Opens a TCP or Unix socket that listens.
    ///
    /// # Errors
    ///
    /// See [`LocalPortError`].
    pub(super) fn listen(at: &ListenAt, user: Option<&str>) -> Result<Self, LocalPortError> {
        let failed = |source| LocalPortError::Listen {
            at: at.to_string(),
            source,
        };
        match at {
            ListenAt::Unix(unix) => {
                check_place(unix)?;
                unix_listener(unix, user)
                    .map(|(socket, file)| Self::Unix(socket, file))
                    .map_err(failed)
            }
            ListenAt::Tcp { address, port } => {
                let addr = SocketAddr::new(*address, port.to_bind());
                tcp_listener(addr).map(Self::Tcp).map_err(failed)
            }
        }
    }

    /// Opens a UDP socket.
    ///
    /// # Errors
    ///
    /// See [`LocalPortError`].
    pub(super) fn datagrams(at: &ListenAt) -> Result<Self, LocalPortError> {
        let bind = || {
            let addr = at.to_bind().ok_or(io::ErrorKind::Unsupported)?;
            let socket = UdpSocket::bind(addr)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        bind()
            .map(Self::Udp)
            .map_err(|source| LocalPortError::Listen {
                at: at.to_string(),
                source,
            })
    }

    /// Where it listens, with the port that the system chose; as C tor's `net/listeners/` has it.
    pub(super) fn bound(&self) -> String {
        let addr = match self {
            Self::Tcp(socket) => socket.local_addr(),
            Self::Udp(socket) => socket.local_addr(),
            Self::Unix(socket, _) => {
                let path = socket.local_addr().ok();
                let path = path.as_ref().and_then(|addr| addr.as_pathname());
                return format!("unix:{}", path.unwrap_or(Path::new("")).display());
            }
        };
        addr.map_or_else(|_| "unknown".to_owned(), |addr| addr.to_string())
    }
}

fn tcp_listener(addr: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if addr.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// A Unix socket with the mode that torrc asks for. One that is left from before is replaced, as C
/// tor does; nothing else is.
fn unix_listener(unix: &UnixPath, user: Option<&str>) -> io::Result<(UnixListener, SocketFile)> {
    let is_socket =
        std::fs::symlink_metadata(&unix.path).is_ok_and(|meta| meta.file_type().is_socket());
    if is_socket {
        std::fs::remove_file(&unix.path)?;
    }
    let listener = UnixListener::bind(&unix.path)?;
    let file = SocketFile::of(&unix.path)?;
    listener.set_nonblocking(true)?;
    if let Some(name) = user.filter(|_| geteuid().is_root())
        && let Ok(Some(user)) = User::from_name(name)
    {
        std::os::unix::fs::chown(&unix.path, Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
    }
    let mode = match (unix.world_writable, unix.group_writable) {
        (true, _) => 0o666,
        (false, true) => 0o660,
        (false, false) => 0o600,
    };
    std::fs::set_permissions(&unix.path, std::fs::Permissions::from_mode(mode))?;
    Ok((listener, file))
}

/// Whether a socket may be put here: a directory that only this user (or group) reaches, unless
/// everybody may connect anyway.
fn check_place(unix: &UnixPath) -> Result<(), LocalPortError> {
    let wrong = |why| {
        Err(LocalPortError::Place {
            path: unix.path.clone(),
            why,
        })
    };
    let Some(folder) = unix.path.parent().filter(|_| unix.path.is_absolute()) else {
        return wrong("is not a whole path");
    };
    if unix.world_writable {
        return Ok(());
    }
    let Ok(meta) = std::fs::metadata(folder) else {
        return wrong("cannot be looked into");
    };
    if !meta.is_dir() {
        return wrong("is not a directory");
    }
    let unwanted = match (unix.relax_dir_mode_check, unix.group_writable) {
        (true, _) => 0o022,
        (false, true) => 0o027,
        (false, false) => 0o077,
    };
    if meta.mode() & unwanted != 0 {
        return wrong("can be used by others than the user who runs Weft");
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn unix_sockets_are_as_open_as_torrc_says_and_in_a_place_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let set = |mode| {
            std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let place = |group_writable, world_writable, relax_dir_mode_check| {
            ListenAt::Unix(UnixPath {
                path: folder.path().join("socket"),
                group_writable,
                world_writable,
                relax_dir_mode_check,
            })
        };
        let mode = |at: &ListenAt| {
            let socket = LocalSocket::listen(at, None).unwrap();
            assert!(socket.bound().ends_with("/socket"));
            let meta = std::fs::metadata(folder.path().join("socket")).unwrap();
            meta.mode() & 0o777
        };
        set(0o700);
        // Each replaces the one before.
        assert_eq!(mode(&place(false, false, false)), 0o600);
        assert_eq!(mode(&place(true, false, false)), 0o660);
        assert_eq!(mode(&place(false, true, false)), 0o666);
        set(0o755);
        for (at, may) in [
            (place(false, false, false), false),
            (place(true, false, false), false),
            (place(false, true, false), true),
            (place(false, false, true), true),
        ] {
            assert_eq!(LocalSocket::listen(&at, None).is_ok(), may, "{at:?}");
        }
        assert!(
            !folder.path().join("socket").exists(),
            "each took its file along"
        );
        // But not that of another.
        let first = LocalSocket::listen(&place(false, true, false), None).unwrap();
        let second = LocalSocket::listen(&place(false, true, false), None).unwrap();
        drop(first);
        assert!(folder.path().join("socket").exists());
        drop(second);
        std::fs::write(folder.path().join("socket"), "a file").unwrap();
        assert!(LocalSocket::listen(&place(false, true, false), None).is_err());
        assert!(
            folder.path().join("socket").is_file(),
            "it is not ours to remove"
        );
    }
}
