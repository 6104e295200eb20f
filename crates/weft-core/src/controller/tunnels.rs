//! Where tunnels are, by the names that their legs know ([`crate::tunnel`]).

use std::collections::BTreeMap;

use rand::RngExt as _;
use weft_cell::mtor_msg::{SECRET_LEN, TunnelId};
use weft_cell::reason::DestroyReason;
use weft_share::{PreviousHop, Shares, Ticket};

use super::RelayController;
use super::connections::State;
use crate::address::{ConnectionId, HalfAddr, OriginId};
use crate::message::{LegRequest, TunnelAsk, TunnelNews, TunnelOrder};
use crate::tunnel::{MAX_LEGS, TunnelName};

/// Tunnels of other nodes kept at most, shared by the hops that their first legs come by.
const MAX_TUNNELS: usize = 65536;

/// A tunnel.
#[derive(Debug)]
struct Entry {
    at: Place,
    /// The nodes that its legs come from, if another node's circuits make it.
    from: Option<LegSource>,
    /// Its share, likewise.
    ticket: Option<Ticket>,
}

/// The kind of node that a leg comes from. The legs of a tunnel are alike in this: its streams are decided about by
/// one of them, and a client must not use this relay as its only hop by the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LegSource {
    /// A client: the leg's circuit has one hop.
    Client,
    /// A relay that the consensus does not list, which may be the client itself.
    Stranger,
    /// A relay.
    Relay,
}

/// Where a tunnel is.
#[derive(Debug)]
enum Place {
    /// A thread makes it.
    Making {
        /// Beside this half.
        by: HalfAddr,
        /// Halves that wait for it.
        waiting: Vec<LegRequest>,
    },
    /// There.
    At(HalfAddr),
}

/// Request of a half that wants to become a leg.
#[derive(Debug)]
enum Asked {
    /// It makes the tunnel.
    Make(LegRequest),
    /// It joins it.
    Join(LegRequest, HalfAddr),
    /// It waits.
    Waits,
    /// There is no room.
    Refuse(LegRequest),
    /// It comes from another kind of node than the others.
    Unlike(LegRequest),
}

/// Outcome of making a tunnel.
#[derive(Debug)]
enum Made {
    /// These halves join it.
    Joined(Vec<LegRequest>),
    /// Its first leg has closed: the next one makes it.
    Again(LegRequest),
    /// Its first leg has closed, and no other waits.
    Unwanted,
    /// It gave way to another one meanwhile.
    GaveWay,
}

/// Tunnels by name, and the share of each previous hop.
#[derive(Debug, Default)]
pub(super) struct Tunnels {
    by_name: BTreeMap<TunnelName, Entry>,
    shares: Shares<PreviousHop, (), TunnelName>,
}

impl Tunnels {
    /// Asks for a half to become a leg. `hop`: the previous hop, if another node's circuit ends
    /// here and this was not checked yet. Returns the halves of a displaced tunnel, which must be
    /// closed.
    fn ask(
        &mut self,
        leg: LegRequest,
        name: TunnelName,
        hop: Option<(LegSource, PreviousHop)>,
        most: usize,
    ) -> (Asked, Vec<HalfAddr>) {
        let from = hop.map(|(source, _)| source);
        let known = self.by_name.get(&name);
        if known.is_some_and(|entry| from.is_some() && entry.from != from) {
            return (Asked::Unlike(leg), Vec::new());
        }
        match self.by_name.get_mut(&name).map(|entry| &mut entry.at) {
            Some(Place::At(tunnel)) => return (Asked::Join(leg, *tunnel), Vec::new()),
            Some(Place::Making { waiting, .. }) if waiting.len() >= MAX_LEGS => {
                return (Asked::Refuse(leg), Vec::new());
            }
            Some(Place::Making { waiting, .. }) => {
                waiting.push(leg);
                return (Asked::Waits, Vec::new());
            }
            None => {}
        }
        let mut displaced = Vec::new();
        let ticket = match hop.map(|(_, hop)| self.shares.admit(hop, (), most, name)) {
            Some(Err(_)) => return (Asked::Refuse(leg), Vec::new()),
            Some(Ok(admitted)) => {
                let other = admitted.displaced.map(|(_, other)| other);
                match other.and_then(|other| self.by_name.remove(&other)) {
                    Some(Entry {
                        at: Place::At(tunnel),
                        ..
                    }) => displaced.push(tunnel),
                    // The one that is made is closed when its thread answers.
                    Some(Entry {
                        at: Place::Making { waiting, .. },
                        ..
                    }) => displaced.extend(waiting.iter().map(|leg| leg.half)),
                    None => {}
                }
                Some(admitted.ticket)
            }
            None => None,
        };
        let at = Place::Making {
            by: leg.half,
            waiting: Vec::new(),
        };
        self.by_name.insert(name, Entry { at, from, ticket });
        (Asked::Make(leg), displaced)
    }

    /// A thread has made the tunnel that was to be made beside the half `by`, or not.
    fn made(&mut self, name: TunnelName, by: HalfAddr, tunnel: Option<HalfAddr>) -> Made {
        let Some(Entry { at, .. }) = self.by_name.get_mut(&name) else {
            return Made::GaveWay;
        };
        let (maker, waiting) = match at {
            Place::Making { by: maker, waiting } if *maker == by => (maker, waiting),
            Place::Making { .. } | Place::At(_) => return Made::GaveWay,
        };
        if let Some(tunnel) = tunnel {
            let waiting = std::mem::take(waiting);
            *at = Place::At(tunnel);
            return Made::Joined(waiting);
        }
        if waiting.is_empty() {
            self.remove(name);
            return Made::Unwanted;
        }
        let leg = waiting.remove(0);
        *maker = leg.half;
        Made::Again(leg)
    }

    /// A tunnel has closed. Another one may have its name by now.
    fn closed(&mut self, name: TunnelName, tunnel: HalfAddr) {
        let entry = self.by_name.get(&name);
        if entry.is_some_and(|entry| matches!(entry.at, Place::At(at) if at == tunnel)) {
            self.remove(name);
        }
    }

    fn remove(&mut self, name: TunnelName) {
        if let Some(ticket) = self.by_name.remove(&name).and_then(|entry| entry.ticket) {
            self.shares.release(ticket);
        }
    }
}

impl RelayController {
    /// Handles a connection thread's report about tunnels.
    pub(super) fn on_tunnel_news(&mut self, news: TunnelNews) {
        match news {
            TunnelNews::Asked {
                half,
                connection,
                ask,
            } => self.on_link(half, connection, ask),
            TunnelNews::Made { name, by, tunnel } => self.on_tunnel_made(name, by, tunnel),
            TunnelNews::Closed { name, tunnel } => self.tunnels.closed(name, tunnel),
        }
    }

    /// Handles a request that a circuit of another node become a leg.
    fn on_link(&mut self, half: HalfAddr, connection: ConnectionId, ask: TunnelAsk) {
        let hop = (self.leg_source(connection), self.previous_hop(connection));
        let leg = LegRequest { half, ours: None };
        let name = match ask {
            TunnelAsk::Named(name) => name,
            TunnelAsk::New(secret) => self.draw_name(secret),
            TunnelAsk::Existing(name) if self.tunnels.by_name.contains_key(&name) => name,
            // The answer does not reveal that there is a tunnel of this id.
            TunnelAsk::Existing(_) => {
                return self.close_half(half, DestroyReason::PROTOCOL);
            }
        };
        self.ask_tunnel(leg, name, Some(hop));
    }

    /// The kind of node at the other end of a connection.
    fn leg_source(&self, connection: ConnectionId) -> LegSource {
        match self.connections.get(connection).map(|found| &found.state) {
            Some(State::Relay { rsa, .. }) if self.network.is_relay(rsa) => LegSource::Relay,
            Some(State::Relay { .. }) => LegSource::Stranger,
            // Of the others that are no clients, none has circuits (any more).
            Some(
                State::Client
                | State::Accepted
                | State::Connecting { .. }
                | State::Displaced { .. },
            )
            | None => LegSource::Client,
        }
    }

    /// A name that no tunnel has: an id drawn at random.
    fn draw_name(&mut self, secret: [u8; SECRET_LEN]) -> TunnelName {
        loop {
            let name = TunnelName::Given(TunnelId(self.rng.random()), secret);
            // There are far fewer tunnels than ids.
            if !self.tunnels.by_name.contains_key(&name) {
                return name;
            }
        }
    }

    /// Asks that a half of a circuit of our own become a leg of the tunnel of this name.
    pub(super) fn ask_own_tunnel(&mut self, leg: LegRequest, name: TunnelName) {
        self.ask_tunnel(leg, name, None);
    }

    /// Asks that a half become a leg of the tunnel of this name.
    fn ask_tunnel(
        &mut self,
        leg: LegRequest,
        name: TunnelName,
        hop: Option<(LegSource, PreviousHop)>,
    ) {
        let (asked, displaced) = self.tunnels.ask(leg, name, hop, MAX_TUNNELS);
        for half in displaced {
            self.close_half(half, DestroyReason::RESOURCELIMIT);
        }
        match asked {
            Asked::Make(leg) => {
                self.send(leg.half.thread, TunnelOrder::Make { leg, name }.into());
            }
            Asked::Join(leg, tunnel) => {
                self.send(leg.half.thread, TunnelOrder::Join { leg, tunnel }.into());
            }
            Asked::Waits => {}
            Asked::Refuse(leg) => self.close_half(leg.half, DestroyReason::RESOURCELIMIT),
            Asked::Unlike(leg) => self.close_half(leg.half, DestroyReason::PROTOCOL),
        }
    }

    /// A thread has made a tunnel, or its first leg has closed before.
    fn on_tunnel_made(&mut self, name: TunnelName, by: HalfAddr, tunnel: Option<HalfAddr>) {
        match (self.tunnels.made(name, by, tunnel), tunnel) {
            (Made::Joined(waiting), Some(tunnel)) => {
                if let TunnelName::Origin(circuit) = name {
                    self.on_origin_tunnel_made(circuit, tunnel);
                }
                for leg in waiting {
                    self.send(leg.half.thread, TunnelOrder::Join { leg, tunnel }.into());
                }
            }
            (Made::Again(leg), _) => {
                self.send(leg.half.thread, TunnelOrder::Make { leg, name }.into());
            }
            (_, Some(tunnel)) => self.close_half(tunnel, DestroyReason::RESOURCELIMIT),
            (_, None) => {
                if let TunnelName::Origin(circuit) = name {
                    self.origin_failed(circuit, DestroyReason::DESTROYED);
                }
            }
        }
    }

    /// The tunnels that have names, for tests.
    pub fn tunnels(&self) -> usize {
        self.tunnels.by_name.len()
    }

    /// True if a circuit of our own is a tunnel.
    pub fn is_tunnel(&self, circuit: OriginId) -> bool {
        self.tunnels
            .by_name
            .contains_key(&TunnelName::Origin(circuit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::ThreadId;
    use crate::slots::HalfKey;

    fn leg(slot: u32) -> LegRequest {
        let half = HalfAddr {
            thread: ThreadId(0),
            slot: HalfKey(slot),
            generation: 0,
        };
        LegRequest { half, ours: None }
    }

    fn name(n: u8) -> TunnelName {
        TunnelName::Nonce([n; 32])
    }

    fn hop(n: u8) -> Option<(LegSource, PreviousHop)> {
        Some((LegSource::Relay, PreviousHop::Relay([n; 20].into())))
    }

    #[test]
    fn the_legs_of_a_tunnel_come_from_one_kind_of_node() {
        use LegSource::{Client, Relay, Stranger};
        for first in [Client, Stranger, Relay] {
            for made in [false, true] {
                let mut tunnels = Tunnels::default();
                let mut ask = |slot, source, made| {
                    let hop = Some((source, PreviousHop::Relay([2; 20].into())));
                    let asked = tunnels.ask(leg(slot), name(1), hop, 10).0;
                    if made {
                        tunnels.made(name(1), leg(slot).half, Some(leg(9).half));
                    }
                    asked
                };
                assert!(matches!(ask(0, first, made), Asked::Make(_)));
                for second in [Client, Stranger, Relay] {
                    let refused = matches!(ask(1, second, false), Asked::Unlike(_));
                    assert_eq!(refused, second != first, "{second:?} beside {first:?}");
                }
            }
        }
    }

    /// The tunnel of a name is made beside the half in slot `by`.
    fn made(tunnels: &mut Tunnels, n: u8, by: u32, tunnel: u32) -> Made {
        tunnels.made(name(n), leg(by).half, Some(leg(tunnel).half))
    }

    #[test]
    fn legs_wait_for_the_first_that_makes_the_tunnel() {
        let mut tunnels = Tunnels::default();
        let ask = |tunnels: &mut Tunnels, slot| tunnels.ask(leg(slot), name(1), hop(1), 10).0;
        assert!(matches!(ask(&mut tunnels, 0), Asked::Make(_)));
        assert!(matches!(ask(&mut tunnels, 1), Asked::Waits));
        let tunnel = leg(7).half;
        let joined = made(&mut tunnels, 1, 0, 7);
        assert!(matches!(joined, Made::Joined(waiting) if waiting.len() == 1));
        assert!(matches!(ask(&mut tunnels, 2), Asked::Join(_, at) if at == tunnel));
        tunnels.closed(name(1), tunnel);
        assert!(tunnels.by_name.is_empty() && tunnels.shares.is_empty());
    }

    #[test]
    fn a_first_leg_that_closed_leaves_the_name_to_the_next_one() {
        let mut tunnels = Tunnels::default();
        for slot in 0..3 {
            tunnels.ask(leg(slot), name(1), hop(1), 10);
        }
        let again = tunnels.made(name(1), leg(0).half, None);
        assert!(matches!(again, Made::Again(next) if next.half == leg(1).half));
        let again = tunnels.made(name(1), leg(1).half, None);
        assert!(matches!(again, Made::Again(next) if next.half == leg(2).half));
        // Nobody waits any more.
        let unwanted = tunnels.made(name(1), leg(2).half, None);
        assert!(matches!(unwanted, Made::Unwanted) && tunnels.by_name.is_empty());
        assert!(tunnels.shares.is_empty());
        assert!(matches!(made(&mut tunnels, 1, 2, 3), Made::GaveWay));
    }

    /// Names are what clients choose: another tunnel can have the one of a tunnel that gave way.
    #[test]
    fn news_of_a_tunnel_that_gave_way_are_not_taken_for_another_s_of_its_name() {
        let mut tunnels = Tunnels::default();
        tunnels.ask(leg(0), name(1), hop(1), 1);
        made(&mut tunnels, 1, 0, 100);
        let (_, displaced) = tunnels.ask(leg(1), name(2), hop(1), 1);
        assert_eq!(displaced, [leg(100).half]);
        // The second gives way while it is made, to a new one of the first's name.
        let (asked, _) = tunnels.ask(leg(2), name(1), hop(1), 1);
        assert!(matches!(asked, Asked::Make(_)));
        tunnels.closed(name(1), leg(100).half);
        assert!(matches!(made(&mut tunnels, 1, 0, 100), Made::GaveWay));
        assert!(matches!(made(&mut tunnels, 2, 1, 101), Made::GaveWay));
        assert!(matches!(made(&mut tunnels, 1, 2, 102), Made::Joined(_)));
        tunnels.closed(name(1), leg(100).half);
        assert_eq!((tunnels.by_name.len(), tunnels.shares.len()), (1, 1));
        tunnels.closed(name(1), leg(102).half);
        assert!(tunnels.by_name.is_empty() && tunnels.shares.is_empty());
    }

    #[test]
    fn names_without_end_take_the_place_of_their_own_only() {
        let mut tunnels = Tunnels::default();
        tunnels.ask(leg(0), name(0), hop(2), 10);
        made(&mut tunnels, 0, 0, 100);
        for n in 1..100 {
            let (asked, displaced) = tunnels.ask(leg(n.into()), name(n), hop(1), 10);
            assert!(matches!(asked, Asked::Make(_)));
            made(&mut tunnels, n, n.into(), 100 + u32::from(n));
            let expected = n.checked_sub(9).filter(|n| *n > 0);
            let expected: Vec<_> = expected
                .map(|n| leg(100 + u32::from(n)).half)
                .into_iter()
                .collect();
            assert_eq!(displaced, expected);
        }
        assert_eq!((tunnels.by_name.len(), tunnels.shares.len()), (10, 10));
        assert!(tunnels.by_name.contains_key(&name(0)));
    }
}
