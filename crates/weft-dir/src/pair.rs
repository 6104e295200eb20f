//! One end of a Unix socket pair: what a stream to or from a directory is inside of a node.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;

/// A Unix socket that finds the end of its stream without EPOLLRDHUP.
///
/// After a read that leaves room in the buffer, tokio's own socket waits for an event before it reads again. That is
/// safe on Linux, which reports the peer's close by a flag of its own beside the last bytes. Shadow has no such flag for
/// Unix sockets: where bytes and close come in one instant there is one event, and the end would be waited for in vain.
/// This one reads until the kernel answers that there is nothing (EAGAIN).
#[derive(Debug)]
pub struct PairSocket(UnixStream);

impl PairSocket {
    /// Of the standard library's socket. To be called inside of a runtime.
    ///
    /// # Errors
    /// The system refuses.
    pub fn from_std(socket: std::os::unix::net::UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        UnixStream::from_std(socket).map(Self)
    }
}

impl AsyncRead for PairSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let socket = &self.get_mut().0;
        loop {
            ready!(socket.poll_read_ready(context))?;
            // Notes that there is nothing only where the kernel answers so.
            match socket.try_read(buffer.initialize_unfilled()) {
                Ok(count) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for PairSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::task::Waker;

    use super::*;

    #[tokio::test]
    async fn the_end_is_read_without_an_event_of_its_own() {
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut ours = PairSocket::from_std(ours).unwrap();
        theirs.write_all(b"last").unwrap();
        ours.0.readable().await.unwrap();
        // From here on the runtime has no turn in which it could see an event.
        drop(theirs);
        let mut context = Context::from_waker(Waker::noop());
        let mut read = || {
            let mut space = [0; 64];
            let mut buffer = ReadBuf::new(&mut space);
            match Pin::new(&mut ours).poll_read(&mut context, &mut buffer) {
                Poll::Ready(result) => {
                    result.unwrap();
                    Some(buffer.filled().len())
                }
                Poll::Pending => None,
            }
        };
        assert_eq!(read(), Some(4));
        assert_eq!(read(), Some(0));
    }

    #[tokio::test]
    async fn an_empty_socket_waits() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut ours = PairSocket::from_std(ours).unwrap();
        let mut space = [0; 64];
        let mut buffer = ReadBuf::new(&mut space);
        let mut context = Context::from_waker(Waker::noop());
        let polled = Pin::new(&mut ours).poll_read(&mut context, &mut buffer);
        assert!(polled.is_pending());
        drop(theirs);
    }
}
