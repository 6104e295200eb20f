//! Bandwidth limits of a connection: the relay's common limit, exemptions from it, and the separate
//! limit of each connection whose peer is no known relay.
//!
//! As in C tor (connection.c), connections to private addresses are free unless
//! `CountPrivateBandwidth` is set. Connections that transport programs hand over are not free:
//! their clients are elsewhere. All others share the relay's rate, of which this thread has a
//! [`Lease`]. Connections of clients and unknown relays also have a separate bucket, if
//! `PerConnBWRate` and `PerConnBWBurst` or the consensus set them. Bytes that a TLS session moved
//! past its grant are owed, and paid before anything more is granted.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use weft_cell::identity::RsaIdentity;
use weft_core::limits::bucket::TokenBucket;
use weft_core::message::Totals;
use weft_core::routable;
use weft_sync::lease::Lease;

use super::params::ThreadParams;

/// An empty bucket of a connection's own is asked again when it holds this many bytes.
const WORTH_IT: u64 = 4096;

/// Shortest time until a connection asks again.
const SHORTEST_WAIT: Duration = Duration::from_millis(2);

/// Direction of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// From the socket.
    Read,
    /// To the socket.
    Write,
}

/// Nothing may be moved now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    /// Time to wait before the next call.
    pub(super) wait: Duration,
    /// The bandwidth that all connections share is used up, not this connection's own: no other
    /// gets anything, either.
    pub(super) common: bool,
}

/// One of each direction.
#[derive(Debug, Default)]
struct Pair<T> {
    read: T,
    write: T,
}

impl<T> Pair<T> {
    fn of(&mut self, direction: Direction) -> &mut T {
        match direction {
            Direction::Read => &mut self.read,
            Direction::Write => &mut self.write,
        }
    }
}

/// This thread's share of what all connections may move together.
#[derive(Debug)]
pub(super) struct CommonLimit {
    lease: Lease,
    owed: Pair<usize>,
    /// Number of refusals.
    refused: Pair<u64>,
    /// It was so since that was asked last.
    was_refused: bool,
}

impl CommonLimit {
    /// Nothing taken yet.
    pub(super) fn new(lease: Lease) -> Self {
        CommonLimit {
            lease,
            owed: Pair::default(),
            refused: Pair::default(),
            was_refused: false,
        }
    }

    /// Puts how often there was nothing to give into a report.
    pub(super) fn add_to(&self, totals: &mut Totals) {
        totals.reads_limited = self.refused.read;
        totals.writes_limited = self.refused.write;
    }

    /// True if some call was refused since the last call of this function.
    pub(super) fn take_refused(&mut self) -> bool {
        std::mem::take(&mut self.was_refused)
    }

    /// See [`Lease::release`].
    pub(super) fn release(&mut self) {
        self.lease.release();
    }

    /// See [`Lease::expire`].
    pub(super) fn expire(&mut self, now: Instant) {
        self.lease.expire(now);
    }

    /// Up to `wanted` bytes, or how long to wait for some.
    fn take(
        &mut self,
        direction: Direction,
        wanted: usize,
        now: Instant,
    ) -> Result<usize, Refused> {
        let mut ask = |bytes| match direction {
            Direction::Read => self.lease.take_read(bytes, now),
            Direction::Write => self.lease.take_write(bytes, now),
        };
        let owed = self.owed.of(direction);
        if *owed > 0 {
            *owed = owed.saturating_sub(ask(*owed));
        }
        let granted = if *owed > 0 { 0 } else { ask(wanted) };
        if granted == 0 {
            *self.refused.of(direction) += 1;
            self.was_refused = true;
            // A debt that is paid in part does not show when the rest can be.
            let wait = self.lease.retry_after().max(SHORTEST_WAIT);
            return Err(Refused { wait, common: true });
        }
        Ok(granted)
    }

    /// Returns the unused part of a grant.
    fn settle(&mut self, direction: Direction, granted: usize, used: usize) {
        let unused = granted.saturating_sub(used);
        match direction {
            Direction::Read => self.lease.give_back_read(unused),
            Direction::Write => self.lease.give_back_write(unused),
        }
        let owed = self.owed.of(direction);
        *owed = owed.saturating_add(used.saturating_sub(granted));
    }
}

/// A connection's own bucket, one direction.
#[derive(Debug)]
struct OwnBucket {
    bucket: TokenBucket,
    owed: u64,
}

/// Limits on the bytes that one connection may move.
#[derive(Debug)]
pub(super) struct Allowance {
    /// Where the peer is.
    peer: IpAddr,
    /// A program of transports handed it over: the address is what it states, or its own.
    handed_over: bool,
    /// The relay that the peer proved to be.
    relay: Option<RsaIdentity>,
    /// Free of all limits, and not counted.
    exempt: bool,
    /// Buckets of its own. Boxed: few relays limit single connections.
    own: Option<Box<Pair<OwnBucket>>>,
}

impl Allowance {
    /// For a connection whose peer has not proved anything yet.
    pub(super) fn new(peer: IpAddr, params: &ThreadParams, now: Instant) -> Self {
        Allowance::of(peer, false, params, now)
    }

    /// Limits of a connection that a transport program handed over: they hold wherever its client
    /// is.
    pub(super) fn handed_over(peer: IpAddr, params: &ThreadParams, now: Instant) -> Self {
        Allowance::of(peer, true, params, now)
    }

    fn of(peer: IpAddr, handed_over: bool, params: &ThreadParams, now: Instant) -> Self {
        let mut allowance = Allowance {
            peer,
            handed_over,
            relay: None,
            exempt: false,
            own: None,
        };
        allowance.follow(params, now);
        allowance
    }

    /// The link is open, and its peer this relay, if any.
    pub(super) fn opened(
        &mut self,
        relay: Option<RsaIdentity>,
        params: &ThreadParams,
        now: Instant,
    ) {
        self.relay = relay;
        self.follow(params, now);
    }

    /// torrc or consensus have changed.
    pub(super) fn follow(&mut self, params: &ThreadParams, now: Instant) {
        self.exempt = !self.handed_over && !params.count_private && !routable::is_public(self.peer);
        let known = self
            .relay
            .is_some_and(|relay| params.known_relays.contains(&relay));
        match (params.per_connection.filter(|_| !known), &mut self.own) {
            (None, own) => *own = None,
            (Some((rate, burst)), Some(own)) => {
                own.read.bucket.set_limit(rate, burst);
                own.write.bucket.set_limit(rate, burst);
            }
            (Some((rate, burst)), own) => {
                let full = || OwnBucket {
                    bucket: TokenBucket::new(rate, burst, now),
                    owed: 0,
                };
                *own = Some(Box::new(Pair {
                    read: full(),
                    write: full(),
                }));
            }
        }
    }

    /// True if the bytes of this connection count for limits and statistics.
    pub(super) fn is_counted(&self) -> bool {
        !self.exempt
    }

    /// True if the peer has an IPv6 address: statistics count these bytes separately.
    pub(super) fn is_ipv6(&self) -> bool {
        self.peer.is_ipv6()
    }

    /// Up to `wanted` bytes may be moved now; what is then really moved goes to
    /// [`settle`](Self::settle).
    pub(super) fn take(
        &mut self,
        common: &mut CommonLimit,
        direction: Direction,
        wanted: usize,
        now: Instant,
    ) -> Result<usize, Refused> {
        if self.exempt {
            return Ok(wanted);
        }
        let own = self.own.as_mut().map(|own| own.of(direction));
        let Some(own) = own else {
            return common.take(direction, wanted, now);
        };
        let size = wanted;
        let wanted = u64::try_from(wanted).unwrap_or(u64::MAX);
        let paid = own.bucket.take(own.owed, now);
        own.owed = own.owed.saturating_sub(paid);
        let taken = match own.owed {
            0 => own.bucket.take(wanted, now),
            _ => 0,
        };
        if taken == 0 {
            let enough = own.owed.saturating_add(WORTH_IT.min(wanted));
            // A rate is at least one byte per second.
            let wait = own.bucket.ready_in(enough, now).unwrap_or(Duration::MAX);
            return Err(Refused {
                wait,
                common: false,
            });
        }
        // No more than `wanted`, so it fits.
        let bytes = usize::try_from(taken).unwrap_or(size);
        let granted = common.take(direction, bytes, now);
        let got = granted.as_ref().map_or(0, |granted| *granted);
        own.bucket
            .give_back(taken.saturating_sub(u64::try_from(got).unwrap_or(u64::MAX)));
        granted
    }

    /// Settles a grant with the bytes that were used; they may be more.
    pub(super) fn settle(
        &mut self,
        common: &mut CommonLimit,
        direction: Direction,
        granted: usize,
        used: usize,
    ) {
        if self.exempt {
            return;
        }
        if let Some(own) = self.own.as_mut().map(|own| own.of(direction)) {
            let bytes = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
            own.bucket.give_back(bytes(granted.saturating_sub(used)));
            own.owed = own.owed.saturating_add(bytes(used.saturating_sub(granted)));
        }
        common.settle(direction, granted, used);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use weft_sync::lease::LeasePool;

    use super::*;

    const PUBLIC: &str = "198.51.100.7";
    const PRIVATE: &str = "192.168.0.7";
    const SEC: Duration = Duration::from_secs(1);

    /// A common limit of 1 MB with 100 kB per second, and the moment at which it is full.
    fn common() -> (CommonLimit, Instant) {
        let now = Instant::now();
        let pool = Arc::new(LeasePool::new(100_000, 1_000_000, now));
        (CommonLimit::new(Lease::new(pool)), now)
    }

    fn params() -> ThreadParams {
        ThreadParams::default()
    }

    fn allowance(peer: &str, params: &ThreadParams, now: Instant) -> Allowance {
        Allowance::new(peer.parse().unwrap(), params, now)
    }

    /// Everything that can be moved now, in pieces.
    fn everything(allowance: &mut Allowance, common: &mut CommonLimit, now: Instant) -> usize {
        let mut sum = 0;
        while let Ok(granted) = allowance.take(common, Direction::Read, 10_000, now) {
            sum += granted;
            if sum > 10_000_000 {
                break;
            }
        }
        sum
    }

    #[test]
    fn private_addresses_are_free_unless_they_count() {
        let (mut common, now) = common();
        let mut free = allowance(PRIVATE, &params(), now);
        assert!(!free.is_counted());
        assert!(everything(&mut free, &mut common, now) > 10_000_000);
        let counting = ThreadParams {
            count_private: true,
            ..params()
        };
        free.follow(&counting, now);
        assert!(free.is_counted());
        assert_eq!(everything(&mut free, &mut common, now), 1_000_000);
        // The pool is empty for all counted connections, and for no others.
        let mut other = allowance(PUBLIC, &params(), now);
        let refused = other
            .take(&mut common, Direction::Read, 100, now)
            .unwrap_err();
        assert!(refused.common && !refused.wait.is_zero() && refused.wait < SEC);
        free.follow(&params(), now);
        assert_eq!(free.take(&mut common, Direction::Read, 100, now), Ok(100));
    }

    #[test]
    fn what_a_transport_hands_over_is_limited_wherever_it_comes_from() {
        let (mut common, now) = common();
        let mut client = Allowance::handed_over(PRIVATE.parse().unwrap(), &params(), now);
        assert!(client.is_counted());
        assert_eq!(everything(&mut client, &mut common, now), 1_000_000);
        client.opened(None, &params(), now);
        assert!(client.take(&mut common, Direction::Read, 100, now).is_err());
    }

    #[test]
    fn clients_and_unknown_relays_have_a_bucket_each() {
        let (mut common, now) = common();
        let limited = ThreadParams {
            per_connection: Some((1000, 20_000)),
            known_relays: Arc::new([RsaIdentity([5; 20])].into()),
            ..params()
        };
        let mut client = allowance(PUBLIC, &limited, now);
        let mut unknown = allowance(PUBLIC, &limited, now);
        unknown.opened(Some([6; 20].into()), &limited, now);
        let mut relay = allowance(PUBLIC, &limited, now);
        relay.opened(Some([5; 20].into()), &limited, now);
        assert_eq!(everything(&mut client, &mut common, now), 20_000);
        assert_eq!(everything(&mut unknown, &mut common, now), 20_000);
        assert_eq!(everything(&mut relay, &mut common, now), 960_000);
        // The own bucket returns the time until it has 4096 bytes, at 1000 a second.
        let refused = client.take(&mut common, Direction::Read, 10_000, now);
        let own = Refused {
            wait: Duration::from_millis(4096),
            common: false,
        };
        assert_eq!(refused, Err(own));
        let later = now + 5 * SEC;
        assert_eq!(everything(&mut client, &mut common, later), 5000);
        // Without the limit, it has what the others have.
        client.follow(&params(), later);
        assert!(everything(&mut client, &mut common, later) > 100_000);
    }

    #[test]
    fn what_the_common_limit_does_not_give_stays_in_the_own_bucket() {
        let (mut common, now) = common();
        let limited = ThreadParams {
            per_connection: Some((1000, 20_000)),
            ..params()
        };
        let mut other = allowance(PUBLIC, &params(), now);
        everything(&mut other, &mut common, now);
        let mut client = allowance(PUBLIC, &limited, now);
        assert!(
            client
                .take(&mut common, Direction::Read, 10_000, now)
                .is_err()
        );
        let later = now + SEC;
        assert_eq!(everything(&mut client, &mut common, later), 20_000);
    }

    #[test]
    fn what_is_moved_past_a_grant_is_paid_later() {
        let (mut common, now) = common();
        let limited = ThreadParams {
            per_connection: Some((1000, 2000)),
            ..params()
        };
        let mut client = allowance(PUBLIC, &limited, now);
        let granted = client
            .take(&mut common, Direction::Write, 2000, now)
            .unwrap();
        assert_eq!(granted, 2000);
        client.settle(&mut common, Direction::Write, granted, 5000);
        // Three seconds' worth are owed.
        for seconds in 1..=3 {
            let at = now + seconds * SEC;
            assert!(client.take(&mut common, Direction::Write, 500, at).is_err());
        }
        let at = now + 4 * SEC;
        let granted = client.take(&mut common, Direction::Write, 5000, at);
        assert_eq!(granted, Ok(1000));
        // Bytes that were granted and not used are returned.
        client.settle(&mut common, Direction::Write, 1000, 0);
        let granted = client.take(&mut common, Direction::Write, 5000, at);
        assert_eq!(granted, Ok(1000));
    }
}
