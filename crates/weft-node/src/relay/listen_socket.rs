//! A socket that listens: TCP, UDP or Unix (C tor: connection.c, `connection_listener_new`,
//! `check_location_for_unix_socket`).

use std::fmt;
use std::fs::{OpenOptions, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{
    FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use mio::event::Source;
use nix::fcntl::AtFlags;
use nix::unistd::{Gid, Uid, User, fchownat, getegid, geteuid};
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};
use weft_config::options::{ListenAt, UnixPath};

use super::redirected::accept_any_destination;

/// Connections that the kernel may hold ready.
const BACKLOG: i32 = 1024;

/// A port that could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address is in use, or is none of this machine's.
    #[error("could not listen on {at}: {source}; is another Tor running, or the port below 1024?")]
    Listen {
        /// The port, as written in torrc.
        at: String,
        /// The system's error.
        source: io::Error,
    },
    /// Other users could use or replace a Unix socket at this place.
    #[error(
        "{} is no place for a socket: {} {why}. Others could connect to it, or put their own \
         there", .path.display(), .path.parent().unwrap_or(.path).display()
    )]
    Place {
        /// The socket.
        path: PathBuf,
        /// The defect of the directory.
        why: &'static str,
    },
}

impl ListenError {
    /// True if another socket has the address.
    pub(super) fn is_in_use(&self) -> bool {
        matches!(self, Self::Listen { source, .. } if source.kind() == io::ErrorKind::AddrInUse)
    }
}

/// Where a socket listens, with the port that the system chose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    /// TCP or UDP.
    Addr(SocketAddr),
    /// A Unix socket.
    Path(PathBuf),
}

impl fmt::Display for Bound {
    /// Formats it like C tor's `net/listeners/`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Addr(addr) => addr.fmt(f),
            Self::Path(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// An accepted connection.
#[derive(Debug)]
pub(super) enum Accepted {
    /// A TCP connection, with the peer's address.
    Tcp(std::net::TcpStream, SocketAddr),
    /// A connection to a Unix socket.
    Unix(std::os::unix::net::UnixStream),
}

/// An open socket, non-blocking.
#[derive(Debug)]
pub(super) enum ListenSocket {
    Tcp(mio::net::TcpListener),
    /// With its file, which is removed with it.
    Unix(mio::net::UnixListener, OwnFile),
    Udp(mio::net::UdpSocket),
}

/// A file for other programs that this node made: a Unix socket's, or one that lets controllers in. It is removed with this,
/// unless another process has put its own there meanwhile (C tor removes such files when it ends).
#[derive(Debug)]
pub(super) struct OwnFile {
    path: PathBuf,
    /// Device and inode of the file; `None`: a pipe or device, which another program made and to
    /// which Weft only writes.
    file: Option<(u64, u64)>,
}

impl OwnFile {
    /// The file that was just made.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let meta = std::fs::symlink_metadata(path)?;
        let is_made = meta.is_file() || meta.file_type().is_socket();
        Ok(Self {
            path: path.to_owned(),
            file: is_made.then(|| (meta.dev(), meta.ino())),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        let now = std::fs::symlink_metadata(&self.path);
        if now.is_ok_and(|meta| Some((meta.dev(), meta.ino())) == self.file) {
            // A process that has lost the right to remove it (`User`) leaves it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl ListenSocket {
    /// Opens a socket that accepts connections. `user` gets the file of a Unix socket.
    ///
    /// # Errors
    ///
    /// See [`ListenError`].
    pub(super) fn listen(at: &ListenAt, user: Option<&str>) -> Result<(Self, Bound), ListenError> {
        let failed = |source| ListenError::Listen {
            at: at.to_string(),
            source,
        };
        match at {
            ListenAt::Unix(unix) => {
                let user = user.filter(|_| geteuid().is_root());
                let user = user.and_then(|name| User::from_name(name).ok().flatten());
                check_place(unix, user.as_ref())?;
                let (socket, file) = unix_listener(unix, user.as_ref()).map_err(failed)?;
                let socket = mio::net::UnixListener::from_std(socket);
                Ok((Self::Unix(socket, file), Bound::Path(unix.path.clone())))
            }
            ListenAt::Tcp { address, port } => {
                Self::listen_tcp(SocketAddr::new(*address, port.to_bind())).map_err(failed)
            }
        }
    }

    /// Opens a TCP socket; one for IPv6 takes no IPv4.
    ///
    /// # Errors
    ///
    /// The system's.
    pub(super) fn listen_tcp(addr: SocketAddr) -> io::Result<(Self, Bound)> {
        let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        if addr.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.set_nonblocking(true)?;
        socket.bind(&addr.into())?;
        socket.listen(BACKLOG)?;
        let socket = mio::net::TcpListener::from_std(socket.into());
        let bound = Bound::Addr(socket.local_addr().unwrap_or(addr));
        Ok((Self::Tcp(socket), bound))
    }

    /// Opens a socket that takes datagrams.
    ///
    /// # Errors
    ///
    /// See [`ListenError`].
    pub(super) fn datagrams(at: &ListenAt) -> Result<(Self, Bound), ListenError> {
        let bind = || {
            let addr = at.to_bind().ok_or(io::ErrorKind::Unsupported)?;
            let socket = mio::net::UdpSocket::bind(addr)?;
            let bound = Bound::Addr(socket.local_addr().unwrap_or(addr));
            Ok((Self::Udp(socket), bound))
        };
        bind().map_err(|source| ListenError::Listen {
            at: at.to_string(),
            source,
        })
    }

    /// Has a TCP socket take connections to any address.
    pub(super) fn accept_any_destination(&self) {
        if let Self::Tcp(socket) = self {
            accept_any_destination(SockRef::from(socket));
        }
    }

    /// The socket for the event loop.
    pub(super) fn source(&mut self) -> &mut dyn Source {
        match self {
            Self::Tcp(socket) => socket,
            Self::Unix(socket, _) => socket,
            Self::Udp(socket) => socket,
        }
    }

    /// True if the socket is a Unix socket whose file no longer exists, so that no program can
    /// connect.
    pub(super) fn has_lost_its_file(&self) -> bool {
        match self {
            Self::Unix(_, file) => std::fs::symlink_metadata(&file.path)
                .is_err_and(|error| error.kind() == io::ErrorKind::NotFound),
            Self::Tcp(_) | Self::Udp(_) => false,
        }
    }

    /// Accepts a connection; `None`: the socket takes datagrams.
    pub(super) fn accept(&self) -> Option<io::Result<Accepted>> {
        match self {
            Self::Tcp(socket) => Some(
                socket
                    .accept()
                    .map(|(socket, peer)| Accepted::Tcp(socket.into(), peer)),
            ),
            Self::Unix(socket, _) => Some(
                socket
                    .accept()
                    .map(|(socket, _)| Accepted::Unix(socket.into())),
            ),
            Self::Udp(_) => None,
        }
    }
}

/// A Unix socket with the mode that torrc asks for, and of `user`. One that is left from before is
/// replaced, as C tor does; nothing else is.
fn unix_listener(
    unix: &UnixPath,
    user: Option<&User>,
) -> io::Result<(std::os::unix::net::UnixListener, OwnFile)> {
    let is_socket =
        std::fs::symlink_metadata(&unix.path).is_ok_and(|meta| meta.file_type().is_socket());
    if is_socket {
        std::fs::remove_file(&unix.path)?;
    }
    let mode = match (unix.world_writable, unix.group_writable) {
        (true, _) => 0o666,
        (false, true) => 0o660,
        (false, false) => 0o600,
    };
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // Linux gives the file the mode of the socket, less the umask: it is never wider than wanted.
    nix::sys::stat::fchmod(&socket, nix::sys::stat::Mode::from_bits_truncate(mode))?;
    socket.bind(&SockAddr::unix(&unix.path)?)?;
    let file = OwnFile::of(&unix.path)?;
    set_access(&unix.path, mode, user)?;
    // Nobody connects before.
    socket.set_nonblocking(true)?;
    socket.listen(BACKLOG)?;
    Ok((std::os::fd::OwnedFd::from(socket).into(), file))
}

/// Sets owner and mode of a socket's file. By a descriptor: who may write to the folder could put a
/// link to another file in its place, and root would give that one away.
fn set_access(path: &Path, mode: u32, user: Option<&User>) -> io::Result<()> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_NOFOLLOW)
        .open(path)?;
    let meta = file.metadata()?;
    let is_own = meta.file_type().is_socket() && meta.uid() == geteuid().as_raw();
    if !is_own || meta.nlink() != 1 {
        return Err(io::Error::other("another file took the socket's place"));
    }
    if meta.mode() & 0o777 != mode {
        // A file opened like this has no fchmod.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        std::fs::set_permissions(path, Permissions::from_mode(mode))?;
    }
    if let Some(user) = user {
        let owner = (Some(user.uid), Some(user.gid));
        fchownat(&file, c"", owner.0, owner.1, AtFlags::AT_EMPTY_PATH)?;
    }
    Ok(())
}

/// Checks that a socket may be put here: in a directory that belongs to the user that runs Weft or
/// to root, and that only this user (or group) can reach, unless everybody may connect anyway (C
/// tor: `check_private_dir`, which does not accept root's).
fn check_place(unix: &UnixPath, user: Option<&User>) -> Result<(), ListenError> {
    let wrong = |why| {
        Err(ListenError::Place {
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
    let (uid, gid) = user.map_or((geteuid(), getegid()), |user| (user.uid, user.gid));
    if ![uid, Uid::from_raw(0)].contains(&Uid::from_raw(meta.uid())) {
        return wrong("belongs to another user than the one that runs Weft");
    }
    let unwanted = match (unix.relax_dir_mode_check, unix.group_writable) {
        (true, _) => 0o022,
        (false, true) => 0o027,
        (false, false) => 0o077,
    };
    if meta.mode() & unwanted != 0 {
        return wrong("can be used by others than the user that runs Weft");
    }
    let group = [gid, Gid::from_raw(0)].contains(&Gid::from_raw(meta.gid()));
    if unix.group_writable && !group {
        return wrong("belongs to another group than the one that runs Weft");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_removed_with_its_owner_unless_another_has_put_its_own_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "ours").unwrap();
        drop(OwnFile::of(&path).unwrap());
        assert!(!path.exists());
        std::fs::write(&path, "ours").unwrap();
        let ours = OwnFile::of(&path).unwrap();
        let other = folder.path().join("other");
        std::fs::write(&other, "another's").unwrap();
        std::fs::rename(&other, &path).unwrap();
        drop(ours);
        assert_eq!(std::fs::read(&path).unwrap(), b"another's");
        // A launcher's pipe, into which the node has only written.
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        drop(OwnFile::of(&pipe).unwrap());
        assert!(pipe.exists());
    }

    #[test]
    fn unix_sockets_are_as_open_as_torrc_allows_and_in_a_place_of_their_own() {
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
            let (_socket, bound) = ListenSocket::listen(at, None).unwrap();
            assert!(bound.to_string().ends_with("/socket"));
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
            assert_eq!(ListenSocket::listen(&at, None).is_ok(), may, "{at:?}");
        }
        assert!(
            !folder.path().join("socket").exists(),
            "each took its file along"
        );
        // But not that of another.
        let first = ListenSocket::listen(&place(false, true, false), None).unwrap();
        let second = ListenSocket::listen(&place(false, true, false), None).unwrap();
        drop(first);
        assert!(folder.path().join("socket").exists());
        drop(second);
        std::fs::write(folder.path().join("socket"), "a file").unwrap();
        assert!(ListenSocket::listen(&place(false, true, false), None).is_err());
        assert!(
            folder.path().join("socket").is_file(),
            "it is not ours to remove"
        );
    }
    #[test]
    fn the_folder_of_a_unix_socket_belongs_to_its_user_or_to_root() {
        if !geteuid().is_root() {
            weft_testing::not_run!("only root can give a folder away");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let chown = |uid, gid| std::os::unix::fs::chown(folder.path(), Some(uid), Some(gid));
        let user = User {
            uid: Uid::from_raw(12345),
            gid: Gid::from_raw(54321),
            ..User::from_uid(geteuid()).unwrap().unwrap()
        };
        let place = |group_writable, world_writable| UnixPath {
            path: folder.path().join("socket"),
            group_writable,
            world_writable,
            relax_dir_mode_check: true,
        };
        let check = |at: &UnixPath, user: Option<&User>| check_place(at, user).is_ok();
        chown(0, 0).unwrap();
        assert!(check(&place(false, false), Some(&user)) && check(&place(true, false), None));
        chown(12345, 54321).unwrap();
        assert!(check(&place(true, false), Some(&user)));
        assert!(!check(&place(false, false), None));
        assert!(check(&place(false, true), None), "everybody may connect");
        chown(12345, 11111).unwrap();
        assert!(
            !check(&place(true, false), Some(&user)) && check(&place(false, false), Some(&user))
        );
        // The socket is the user's.
        chown(0, 0).unwrap();
        let (_socket, _file) = unix_listener(&place(true, false), Some(&user)).unwrap();
        let meta = std::fs::metadata(folder.path().join("socket")).unwrap();
        assert_eq!(
            (meta.uid(), meta.gid(), meta.mode() & 0o777),
            (12345, 54321, 0o660)
        );
    }

    #[test]
    fn a_file_that_takes_the_place_of_a_socket_is_not_given_away() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("other"), "").unwrap();
        let before = std::fs::metadata(at("other")).unwrap();
        std::os::unix::fs::symlink("other", at("link")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        std::fs::hard_link(at("socket"), at("again")).unwrap();
        let nobody = User {
            uid: Uid::from_raw(12345),
            ..User::from_uid(geteuid()).unwrap().unwrap()
        };
        for name in ["link", "other", "again"] {
            assert!(
                set_access(&at(name), 0o666, Some(&nobody)).is_err(),
                "{name}"
            );
        }
        let after = std::fs::metadata(at("other")).unwrap();
        assert_eq!((after.uid(), after.mode()), (before.uid(), before.mode()));
    }
}
