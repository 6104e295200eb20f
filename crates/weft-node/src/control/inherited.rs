//! A connection that the process which started this one has left open for it (`__OwningControllerFD`).

// fcntl has no safe form for a number that comes from torrc.
#![allow(unsafe_code)]

use std::io;
use std::net::TcpStream;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;

use socket2::{Domain, Socket, Type};

use super::server::ControlSocket;

/// The connection behind a number of torrc, non-blocking. The descriptor with that number stays open as well: if the number
/// is wrong, it may be one that this process uses. Programs of transports do not inherit it.
///
/// # Errors
///
/// There is no connection behind the number.
pub(crate) fn connection(fd: i32) -> io::Result<ControlSocket> {
    let socket = Socket::from(duplicate(fd)?);
    if socket.r#type()? != Type::STREAM {
        return Err(io::Error::other("it is not a connection"));
    }
    let is_unix = socket.domain()? == Domain::UNIX;
    socket.set_nonblocking(true)?;
    if is_unix {
        // One that listens has no peer.
        socket.peer_addr()?;
        close_on_exec(fd)?;
        return Ok(ControlSocket::Unix(UnixStream::from(OwnedFd::from(socket))));
    }
    let socket = TcpStream::from(socket);
    let peer = socket.peer_addr()?;
    close_on_exec(fd)?;
    Ok(ControlSocket::Tcp(socket, peer.ip()))
}

/// Another descriptor of the same file.
fn duplicate(fd: i32) -> io::Result<OwnedFd> {
    // SAFETY: F_DUPFD_CLOEXEC takes no pointer, and any number: one that is no open file is an error. The file that has
    // the number stays as it is.
    let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the system has just made this descriptor for us, so it is open and has no other
    // owner.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Has no program inherit the descriptor with this number: it could read what the controller sends, and the controller would
/// not see it closed when this process ends.
fn close_on_exec(fd: i32) -> io::Result<()> {
    // SAFETY: F_SETFD takes no pointer, and any number. Only the flag changes, which all descriptors of this process
    // have by Rust's own making.
    match unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn a_connection_is_found_by_its_number_and_nothing_else_is() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let inherited = || nix::fcntl::fcntl(&theirs, nix::fcntl::FcntlArg::F_GETFD).unwrap();
        nix::fcntl::fcntl(
            &theirs,
            nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty()),
        )
        .unwrap();
        assert_eq!(inherited(), 0);
        let Ok(ControlSocket::Unix(mut found)) = connection(theirs.as_raw_fd()) else {
            panic!("a Unix socket");
        };
        assert_eq!(inherited(), libc::FD_CLOEXEC, "programs would have it");
        // It is another descriptor: the first may be closed.
        drop(theirs);
        found.write_all(b"x").unwrap();
        ours.read_exact(&mut [0]).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(matches!(
            connection(ours.as_raw_fd()),
            Ok(ControlSocket::Tcp(_, peer)) if peer.is_loopback()
        ));
        let file = tempfile::tempfile().unwrap();
        for wrong in [-1, i32::MAX, listener.as_raw_fd(), file.as_raw_fd()] {
            assert!(connection(wrong).is_err(), "{wrong}");
        }
    }
}
