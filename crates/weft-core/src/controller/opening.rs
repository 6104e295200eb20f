//! Connections that are being opened, and the extensions that wait for them.
//!
//! There is one for each relay and address, or one for each circuit ([`Sharing`](super::Sharing)).
//! A connection to an address that the consensus lists for the relay is always admitted: there are
//! few of these, and relays answer there. Any client can name any other address, and own it: such
//! connections share a bound by the hop that asked, from the attempt until they are closed.
//! Extensions that wait share a bound by the same rule, whatever they wait for.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use weft_share::{PreviousHop, Shares, Ticket};

use super::displaceable::Displaceable;
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
    hop: Option<PreviousHop>,
    /// The requests that wait, oldest first.
    waiting: BTreeSet<Ticket>,
}

/// An extension that waits.
#[derive(Debug)]
struct Waiting {
    connection: ConnectionId,
    request: ExtendRequest,
}

/// Identities that an extension must lead to. No ed25519 identity: any.
type Wanted = (RsaIdentity, Option<Ed25519Identity>);

impl Waiting {
    fn wanted(&self) -> Wanted {
        (self.request.rsa, self.request.ed25519)
    }
}

/// Connections that are being opened, and the extensions that wait for them.
#[derive(Debug, Default)]
pub(super) struct Opening {
    attempts: BTreeMap<ConnectionId, Attempt>,
    by_target: BTreeSet<(Target, ConnectionId)>,
    /// Attempts by the relay that they are to lead to.
    to: BTreeMap<RsaIdentity, usize>,
    /// Connections to addresses that are not listed, being opened or open.
    pub(super) unlisted: Displaceable,
    waiting: Shares<PreviousHop, (), Waiting>,
    wanted: BTreeMap<Wanted, BTreeSet<Ticket>>,
}

/// Connections and requests that were displaced.
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
    /// Extensions that the connection can serve.
    pub(super) join: Vec<ExtendRequest>,
    /// Extensions that wait for the connection that opened, but for another identity.
    pub(super) mistaken: Vec<ExtendRequest>,
}

impl Opening {
    /// The connection that is being opened to this relay at one of these addresses, and the number
    /// of extensions that wait for it; of several, the one with the fewest.
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

    /// Compares the tables with each other.
    pub(super) fn audit(&self) -> Result<(), String> {
        self.unlisted.audit()?;
        self.waiting.audit()?;
        let waiting: usize = self.attempts.values().map(|one| one.waiting.len()).sum();
        match waiting == self.waiting.len() && self.by_target.len() == self.attempts.len() {
            true => Ok(()),
            false => Err("extensions that wait do so for a connection".to_owned()),
        }
    }

    /// Connections to this relay that are being opened.
    pub(super) fn count_to(&self, rsa: RsaIdentity) -> usize {
        self.to.get(&rsa).copied().unwrap_or_default()
    }

    fn attempts_at(&self, target: Target) -> impl Iterator<Item = ConnectionId> {
        let range = (target, ConnectionId(0))..=(target, ConnectionId(u64::MAX));
        self.by_target.range(range).map(|(_, id)| *id)
    }

    /// A connection to a listed address is being opened.
    pub(super) fn start_listed(&mut self, id: ConnectionId, target: Target) {
        let attempt = Attempt {
            target,
            hop: None,
            waiting: BTreeSet::new(),
        };
        self.attempts.insert(id, attempt);
        self.by_target.insert((target, id));
        *self.to.entry(target.0).or_default() += 1;
    }

    /// A connection to any other address is being opened for this hop, where there may be `bound`,
    /// open ones included. `None`: there is no room for it.
    pub(super) fn start(
        &mut self,
        id: ConnectionId,
        target: Target,
        hop: PreviousHop,
        bound: usize,
    ) -> Option<Displaced> {
        let mut admitted = self.unlisted.admit(hop, None, id, bound).ok()?;
        self.start_listed(id, target);
        let mut displaced = Displaced::default();
        let (mut id, mut hop) = (id, hop);
        loop {
            if let Some(attempt) = self.attempts.get_mut(&id) {
                attempt.hop = Some(hop);
            }
            let Some(other) = admitted else {
                return Some(displaced);
            };
            // It was asked for by the hop that gives way. If others wait for it, too, it is theirs.
            let next = self.leave(other, &mut displaced.extensions);
            let next = next.and_then(|hop| {
                let admitted = self.unlisted.admit(hop, None, other, bound);
                admitted.ok().map(|admitted| (hop, admitted))
            });
            let Some(next) = next else {
                displaced.extensions.extend(self.remove(other));
                displaced.connections.push(other);
                return Some(displaced);
            };
            (id, (hop, admitted)) = (other, next);
        }
    }

    /// Queues an extension for a connection that is being opened. Extensions that it displaces
    /// fail.
    pub(super) fn wait(
        &mut self,
        connection: ConnectionId,
        hop: PreviousHop,
        request: ExtendRequest,
    ) -> Option<ExtendRequest> {
        let waiting = Waiting {
            connection,
            request,
        };
        let wanted = waiting.wanted();
        match self.waiting.admit(hop, (), MAX_WAITING, waiting) {
            Err(refused) => Some(refused.request),
            Ok(admitted) => {
                let wanted = self.wanted.entry(wanted).or_default();
                wanted.insert(admitted.ticket);
                if let Some(attempt) = self.attempts.get_mut(&connection) {
                    attempt.waiting.insert(admitted.ticket);
                }
                let (ticket, other) = admitted.displaced?;
                Some(self.waits_no_more(ticket, other))
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
        for ed25519 in [None, Some(ed25519)] {
            for ticket in self.wanted.remove(&(rsa, ed25519)).into_iter().flatten() {
                served.join.extend(self.take_waiting(ticket));
            }
        }
        served
    }

    /// A connection is no longer being opened: those that waited for it.
    pub(super) fn remove(&mut self, id: ConnectionId) -> Vec<ExtendRequest> {
        let Some(attempt) = self.attempts.remove(&id) else {
            return Vec::new();
        };
        self.by_target.remove(&(attempt.target, id));
        if let Entry::Occupied(mut count) = self.to.entry(attempt.target.0) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        let waiting = attempt.waiting.into_iter();
        let waiting = waiting.filter_map(|ticket| self.take_waiting(ticket));
        waiting.collect()
    }

    /// An extension waits no more.
    fn take_waiting(&mut self, ticket: Ticket) -> Option<ExtendRequest> {
        let waiting = self.waiting.release(ticket)?;
        Some(self.waits_no_more(ticket, waiting))
    }

    /// Forgets an extension that has left the shares.
    fn waits_no_more(&mut self, ticket: Ticket, waiting: Waiting) -> ExtendRequest {
        if let Entry::Occupied(mut wanted) = self.wanted.entry(waiting.wanted()) {
            wanted.get_mut().remove(&ticket);
            if wanted.get().is_empty() {
                wanted.remove();
            }
        }
        if let Some(attempt) = self.attempts.get_mut(&waiting.connection) {
            attempt.waiting.remove(&ticket);
        }
        waiting.request
    }

    /// The hop that an attempt belongs to loses it, and its extensions fail. The hop that has waited
    /// for it longest of the others.
    fn leave(&mut self, id: ConnectionId, failed: &mut Vec<ExtendRequest>) -> Option<PreviousHop> {
        let attempt = self.attempts.get_mut(&id)?;
        let hop = attempt.hop.take()?;
        let (of_hop, others): (BTreeSet<_>, BTreeSet<_>) = std::mem::take(&mut attempt.waiting)
            .into_iter()
            .partition(|ticket| {
                self.waiting
                    .owner(*ticket)
                    .is_some_and(|(of, ())| of == hop)
            });
        let next = others
            .first()
            .and_then(|ticket| self.waiting.owner(*ticket));
        attempt.waiting = others;
        for ticket in of_hop {
            failed.extend(self.take_waiting(ticket));
        }
        next.map(|(hop, ())| hop)
    }
}
