//! Counters of sockets of one kind, opened and open: written by the thread that owns them, read by
//! another.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The counters of one kind of sockets, by what they are connected to: IPv4, IPv6, a process of this machine.
#[derive(Debug, Default)]
pub struct Sockets {
    opened: [AtomicU64; 3],
    open: [AtomicU64; 3],
}

/// The numbers of a family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketCounts {
    /// Since the start.
    pub opened: u64,
    /// Now.
    pub open: u64,
}

impl Sockets {
    /// Counts a socket until the result is dropped. `peer`: the other end; `None`: of a Unix socket.
    pub fn count(self: &Arc<Self>, peer: Option<IpAddr>) -> OpenSocket {
        let family = match peer.map(|peer| peer.to_canonical()) {
            Some(IpAddr::V4(_)) => 0,
            Some(IpAddr::V6(_)) => 1,
            None => 2,
        };
        if let (Some(opened), Some(open)) = (self.opened.get(family), self.open.get(family)) {
            opened.fetch_add(1, Ordering::Relaxed);
            open.fetch_add(1, Ordering::Relaxed);
        }
        OpenSocket {
            counters: self.clone(),
            family,
        }
    }

    fn of(&self, family: usize) -> SocketCounts {
        let number =
            |all: &[AtomicU64; 3]| all.get(family).map_or(0, |n| n.load(Ordering::Relaxed));
        SocketCounts {
            opened: number(&self.opened),
            open: number(&self.open),
        }
    }

    /// Counters of sockets to IPv4 addresses.
    pub fn ipv4(&self) -> SocketCounts {
        self.of(0)
    }

    /// Counters of sockets to IPv6 addresses.
    pub fn ipv6(&self) -> SocketCounts {
        self.of(1)
    }

    /// All that are open, Unix sockets too.
    pub fn open(&self) -> u64 {
        (0..3).map(|family| self.of(family).open).sum()
    }
}

/// A socket that counts as open.
#[derive(Debug)]
pub struct OpenSocket {
    counters: Arc<Sockets>,
    family: usize,
}

impl Drop for OpenSocket {
    fn drop(&mut self) {
        if let Some(open) = self.counters.open.get(self.family) {
            open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_counts_as_open_until_it_is_dropped() {
        let sockets = Arc::new(Sockets::default());
        let first = sockets.count(Some([127, 0, 0, 1].into()));
        let mapped = sockets.count(Some("::ffff:192.0.2.1".parse().unwrap()));
        let unix = sockets.count(None);
        let both = SocketCounts { opened: 2, open: 2 };
        assert_eq!(
            (sockets.ipv4(), sockets.ipv6()),
            (both, SocketCounts::default())
        );
        assert_eq!(sockets.open(), 3);
        drop((first, unix));
        assert_eq!(sockets.ipv4(), SocketCounts { opened: 2, open: 1 });
        drop(mapped);
        assert_eq!(sockets.open(), 0);
    }
}
