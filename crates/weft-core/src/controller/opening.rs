//! Connections that are being opened, and the extensions that wait for them.
//!
//! There is one for each relay and address, or one for each circuit ([`Sharing`](super::Sharing)). One to an address that the consensus lists for the relay
//! is always admitted: there are only so many of these, and they lead somewhere. Any client can name
//! any other address: such attempts share a bound by the hop that asked, and so do the extensions that
//! wait, for whatever they wait.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use weft_share::{PreviousHop, Shares, Ticket};

use crate::address::ConnectionId;
use crate::message::ExtendRequest;
use weft_cell::identity::{Ed25519Identity, RsaIdentity};

/// Extensions that may wait for connections to come up: what 10,000 a second need when a connection
/// takes a second.
const MAX_WAITING: usize = 1 << 14;

/// A relay's RSA identity, and where it is looked for.
type Target = (RsaIdentity, SocketAddr);

/// A connection that is being opened.
#[derive(Debug)]
struct Attempt {
    target: Target,
    /// The hop whose share it is part of; `None`: the address is listed.
    share: Option<(PreviousHop, Ticket)>,
    /// The requests that wait, oldest first.
    waiting: BTreeSet<Ticket>,
}

/// An extension that waits.
#[derive(Debug)]
struct Waiting {
    connection: ConnectionId,
    hop: PreviousHop,
    request: ExtendRequest,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Opening {
    attempts: BTreeMap<ConnectionId, Attempt>,
    by_target: BTreeSet<(Target, ConnectionId)>,
    /// Attempts that lead to addresses that are not listed.
    unlisted: Shares<PreviousHop, (), ConnectionId>,
    waiting: Shares<PreviousHop, (), Waiting>,
}

/// What gave way.
#[derive(Debug, Default)]
pub(super) struct Displaced {
    /// Connections that are to be closed.
    pub(super) connections: Vec<ConnectionId>,
    /// Extensions that fail.
    pub(super) extensions: Vec<ExtendRequest>,
}

/// The extensions that waited for a relay that is there now.
#[derive(Debug, Default)]
pub(super) struct Served {
    /// Those that it can serve.
    pub(super) join: Vec<ExtendRequest>,
    /// Those that wait for the connection that opened, and for another identity.
    pub(super) mistaken: Vec<ExtendRequest>,
}

impl Opening {
    /// Attempts whose addresses are not listed.
    pub(super) fn unlisted(&self) -> usize {
        self.unlisted.len()
    }

    /// The connection to this relay, at one of these addresses, that is being opened; of several that
    /// for which the fewest wait, and how many these are.
    pub(super) fn find(
        &self,
        rsa: RsaIdentity,
        addrs: &[SocketAddr],
    ) -> Option<(ConnectionId, usize)> {
        let found = addrs.iter().flat_map(|addr| self.attempts_at((rsa, *addr)));
        let waiting = |id| self.attempts.get(&id).map_or(0, |one| one.waiting.len());
        let found = found.map(|id| (id, waiting(id)));
        found.min_by_key(|(_, waiting)| *waiting)
    }

    /// How many connections to this relay are being opened.
    pub(super) fn count_to(&self, rsa: RsaIdentity) -> usize {
        self.attempts_to(rsa).count()
    }

    fn attempts_at(&self, target: Target) -> impl Iterator<Item = ConnectionId> {
        let range = (target, ConnectionId(0))..=(target, ConnectionId(u64::MAX));
        self.by_target.range(range).map(|(_, id)| *id)
    }

    fn attempts_to(&self, rsa: RsaIdentity) -> impl Iterator<Item = ConnectionId> {
        let all = self.by_target.range(((rsa, FIRST), ConnectionId(0))..);
        all.take_while(move |((of, _), _)| *of == rsa)
            .map(|(_, id)| *id)
    }

    /// A connection to a listed address is being opened.
    pub(super) fn start_listed(&mut self, id: ConnectionId, target: Target) {
        self.attempts.insert(id, Attempt::new(target));
        self.by_target.insert((target, id));
    }

    /// A connection to any other address is being opened for this hop, where there may be `bound`.
    /// `None`: there is no room for it.
    pub(super) fn start(
        &mut self,
        id: ConnectionId,
        target: Target,
        hop: PreviousHop,
        bound: usize,
    ) -> Option<Displaced> {
        if bound == 0 {
            return None;
        }
        self.start_listed(id, target);
        let mut displaced = Displaced::default();
        let (mut id, mut hop) = (id, hop);
        while let Ok(admitted) = self.unlisted.admit(hop, (), bound, id) {
            if let Some(attempt) = self.attempts.get_mut(&id) {
                attempt.share = Some((hop, admitted.ticket));
            }
            let Some((_, other)) = admitted.displaced else {
                return Some(displaced);
            };
            // It was asked for by the hop that gives way. If others wait for it, too, it is theirs.
            let Some(next) = self.leave(other, &mut displaced.extensions) else {
                self.remove(other);
                displaced.connections.push(other);
                return Some(displaced);
            };
            (id, hop) = (other, next);
        }
        // One that another hop waited for, and that found no place.
        displaced.extensions.extend(self.remove(id));
        displaced.connections.push(id);
        Some(displaced)
    }

    /// Has an extension wait for a connection that is being opened. What gives way fails.
    pub(super) fn wait(
        &mut self,
        connection: ConnectionId,
        hop: PreviousHop,
        request: ExtendRequest,
    ) -> Option<ExtendRequest> {
        let waiting = Waiting {
            connection,
            hop,
            request,
        };
        match self.waiting.admit(hop, (), MAX_WAITING, waiting) {
            Err(refused) => Some(refused.request),
            Ok(admitted) => {
                if let Some(attempt) = self.attempts.get_mut(&connection) {
                    attempt.waiting.insert(admitted.ticket);
                }
                let (ticket, other) = admitted.displaced?;
                if let Some(attempt) = self.attempts.get_mut(&other.connection) {
                    attempt.waiting.remove(&ticket);
                }
                Some(other.request)
            }
        }
    }

    /// A connection opened, and its peer proved to be this relay; `serves_others`: those that wait for
    /// another connection to it shall have this one.
    pub(super) fn opened(
        &mut self,
        id: ConnectionId,
        rsa: RsaIdentity,
        ed25519: Ed25519Identity,
        serves_others: bool,
    ) -> Served {
        let mut served = Served::default();
        for request in self.remove(id) {
            match request.ed25519.is_none_or(|wanted| wanted == ed25519) {
                true => served.join.push(request),
                false => served.mistaken.push(request),
            }
        }
        if !serves_others {
            return served;
        }
        let others: Vec<ConnectionId> = self.attempts_to(rsa).collect();
        for other in others {
            let Some(attempt) = self.attempts.get_mut(&other) else {
                continue;
            };
            let shares = &mut self.waiting;
            attempt.waiting.retain(|ticket| {
                let wanted = shares.get(*ticket).map(|one| one.request.ed25519);
                let fits = wanted.is_some_and(|ed| ed.is_none_or(|wanted| wanted == ed25519));
                if fits && let Some(one) = shares.release(*ticket) {
                    served.join.push(one.request);
                }
                !fits
            });
        }
        served
    }

    /// A connection is no longer being opened: those that waited for it.
    pub(super) fn remove(&mut self, id: ConnectionId) -> Vec<ExtendRequest> {
        let Some(attempt) = self.attempts.remove(&id) else {
            return Vec::new();
        };
        self.by_target.remove(&(attempt.target, id));
        if let Some((_, ticket)) = attempt.share {
            self.unlisted.release(ticket);
        }
        let waiting = attempt.waiting.into_iter();
        let waiting = waiting.filter_map(|ticket| self.waiting.release(ticket));
        waiting.map(|one| one.request).collect()
    }

    /// The hop that an attempt belongs to loses it, and its extensions fail. The hop that has waited
    /// for it longest of the others.
    fn leave(&mut self, id: ConnectionId, failed: &mut Vec<ExtendRequest>) -> Option<PreviousHop> {
        let attempt = self.attempts.get_mut(&id)?;
        let (hop, _) = attempt.share.take()?;
        let mut next = None;
        let shares = &mut self.waiting;
        attempt.waiting.retain(|ticket| {
            let Some(one) = shares.get(*ticket) else {
                return false;
            };
            if one.hop != hop {
                next.get_or_insert(one.hop);
                return true;
            }
            failed.extend(shares.release(*ticket).map(|one| one.request));
            false
        });
        next
    }
}

/// The address before all others.
const FIRST: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

impl Attempt {
    fn new(target: Target) -> Self {
        Self {
            target,
            share: None,
            waiting: BTreeSet::new(),
        }
    }
}
