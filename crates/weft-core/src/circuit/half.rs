//! A circuit half: the state of one circuit on one link (Engler and Goldberg 2021, 4.2, Figure 5).
//!
//! A circuit crossing this relay is two halves, one per link. They hold no reference to each other,
//! only an address to send messages to. The backward half, whose link leads to the circuit's origin,
//! holds the keys; the forward half's link leads to the next hop. At a rendezvous point two backward
//! halves are each other's peers, and both hold keys. A circuit that begins here is one half, which
//! holds the keys of all hops.

use std::time::Instant;

use crate::address::{ConnectionId, HalfAddr, HopIndex, OriginId};
use crate::flow::{CcParams, CircuitFlow, Terms};
use crate::memory::cells::CellQueue;
use crate::memory::ledger::Held;
use crate::origin::traffic::CircuitTraffic;
use crate::slots::{HalfKey, LinkKey, Slots};
use crate::stream::table::Streams;
use crate::tunnel::{LegSide, Tunnel};
use weft_crypto::circuit::{OriginCircuit, RelayCircuit};

/// RELAY_EARLY cells that one circuit may carry (tor-spec 5.6).
pub(crate) const MAX_RELAY_EARLY: u8 = 8;

/// One side of a circuit.
#[derive(Debug)]
pub(crate) struct CircuitHalf {
    /// The link that the half sends to.
    pub link: LinkKey,
    /// Its circuit id there.
    pub circ_id: u32,
    /// Cells waiting for the scheduler.
    pub queue: CellQueue,
    /// The queue is full, and edges with more to send wait.
    pub blocked: bool,
    /// It was made elsewhere, or its link has moved and come back: its slot is not that of its address.
    pub is_guest: bool,
    /// Where cells are sent that arrive here and are not for this node.
    pub peer: Peer,
    /// The direction in which it sends, and what that side holds.
    pub role: Role,
    /// The tunnel that it is a leg of.
    pub leg: Option<Box<LegSide>>,
}

/// Memory of a half without cells and keys: its places in the tables of its thread, its link and the
/// scheduler, the last three nearly.
const HALF_COST: usize = Slots::<HalfKey, CircuitHalf>::COST + size_of::<Wait>() + 80;

/// The direction in which a half sends on its link (tor-spec 5.5).
#[derive(Debug)]
pub(crate) enum Role {
    /// Backward: the link leads to the circuit's origin. This half holds this relay's keys.
    Backward(Backward),
    /// Forward: the link leads to the next hop. The keys are with the peer.
    Forward(Forward),
    /// The circuit begins here; the link leads to its first hop.
    Origin(Box<Origin>),
    /// Several circuits between the same two nodes, as if they were one: there is no link, the half sends on their halves.
    Tunnel(Box<Tunnel>),
}

/// State of the half at a circuit's origin.
#[derive(Debug)]
pub(crate) struct Origin {
    /// The circuit's name, given by the client thread.
    pub id: OriginId,
    /// The keys of all hops.
    pub crypt: OriginCircuit,
    /// Its streams.
    pub streams: Streams,
    /// RELAY_EARLY cells still allowed.
    pub(crate) relay_early_left: u8,
    /// The event that the client thread waits for.
    pub waiting: Waiting,
    /// Traffic of the circuit since the last report.
    pub traffic: CircuitTraffic,
    /// Hops that were asked for their weights.
    pub weights: Vec<WeightsOf>,
}

/// A hop that was asked for its weight, and how many it has sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WeightsOf {
    /// The hop.
    pub hop: HopIndex,
    /// Start of the current second, and the number counted since then.
    pub second: (Instant, u32),
    /// Start of the current interval, and the number counted since then.
    pub interval: (Instant, u32),
}

/// The event that an origin's circuit waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// CREATED2 or CREATED_FAST.
    Created,
    /// EXTENDED2.
    Extended,
    /// Nothing, or the client thread.
    Nothing,
}

/// State of a backward half.
#[derive(Debug)]
pub(crate) struct Backward {
    /// Present once the onionskin was answered.
    pub crypt: Option<RelayCircuit>,
    /// RELAY_EARLY cells still allowed.
    pub(crate) relay_early_left: u8,
    /// Streams that end here. Most circuits have none.
    pub streams: Option<Box<Streams>>,
    /// Cells that one SENDME acknowledges, if the handshake negotiated congestion control.
    pub sendme_inc: Option<u8>,
    /// Counts EXTEND2s, so that an answer to one that was truncated is not taken for the current one's.
    pub extension: u32,
    /// Use of the circuit, if it ends here.
    pub purpose: Purpose,
    /// Once it moved something while that was counted, or asked for this relay's weight.
    pub measured: Option<Box<Moved>>,
}

/// Bytes that a circuit moved ([`crate::circuit::activity`]).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moved {
    /// Bytes in the current bin, in both directions.
    pub bin: u32,
    /// The most in a bin of the current second that has ended.
    pub most: u32,
}

/// Use of a circuit that ends here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// An ordinary circuit.
    General,
    /// Asked the controller to keep a rendezvous cookie, or has one kept (rend-spec-v3 4.1).
    RendezvousWaiting,
    /// Spliced to another circuit, or about to be.
    Rendezvous,
    /// Asked the controller to be an onion service's introduction circuit, or is one (rend-spec-v3 3.1).
    Introduction,
    /// An ordinary circuit that has brought an INTRODUCE1: it brings no other, but may be extended to where the client is
    /// introduced instead.
    Introduced,
    /// A leg of a tunnel, or about to be.
    Leg,
}

impl Purpose {
    /// True if the circuit has no special use yet.
    pub(crate) fn is_general(self) -> bool {
        matches!(self, Purpose::General | Purpose::Introduced)
    }
}

/// The state of a forward half.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forward {
    /// Progress of the extension.
    pub stage: ForwardStage,
    /// The link of the circuit's backward half: what this half holds is charged to it.
    pub cause: ConnectionId,
}

/// The event that a forward half waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForwardStage {
    /// CREATE2 was sent.
    AwaitingCreated,
    /// CREATED2 arrived.
    Open,
}

/// The other half of a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// The circuit ends here.
    None,
    /// An EXTEND2 is with the controller.
    Extending,
    /// The other half.
    Joined(HalfAddr),
}

impl Backward {
    /// Its streams, which there may not have been before.
    pub(crate) fn streams_or_new(&mut self, cc: &CcParams) -> &mut Streams {
        let sendme_inc = self.sendme_inc;
        self.streams.get_or_insert_with(|| {
            Box::new(Streams::one(Some(match sendme_inc {
                Some(inc) => CircuitFlow::vegas(cc, inc),
                None => CircuitFlow::fixed(),
            })))
        })
    }
}

impl CircuitHalf {
    /// The backward half of a CREATE that just arrived; its onionskin is still to be answered.
    pub(crate) fn backward(link: LinkKey, circ_id: u32) -> Self {
        CircuitHalf {
            link,
            circ_id,
            queue: CellQueue::default(),
            blocked: false,
            is_guest: false,
            peer: Peer::None,
            role: Role::Backward(Backward {
                crypt: None,
                relay_early_left: MAX_RELAY_EARLY,
                streams: None,
                sendme_inc: None,
                extension: 0,
                purpose: Purpose::General,
                measured: None,
            }),
            leg: None,
        }
    }

    /// The forward half of a circuit that is being extended over `link` on behalf of `peer`, whose link's connection is
    /// `cause`.
    pub(crate) fn forward(
        link: LinkKey,
        circ_id: u32,
        peer: HalfAddr,
        cause: ConnectionId,
    ) -> Self {
        CircuitHalf {
            link,
            circ_id,
            queue: CellQueue::default(),
            blocked: false,
            is_guest: false,
            peer: Peer::Joined(peer),
            role: Role::Forward(Forward {
                stage: ForwardStage::AwaitingCreated,
                cause,
            }),
            leg: None,
        }
    }

    /// A tunnel, which has no link.
    pub(crate) fn tunnel(tunnel: Tunnel) -> Self {
        CircuitHalf {
            link: LinkKey::NONE,
            circ_id: 0,
            queue: CellQueue::default(),
            blocked: false,
            is_guest: false,
            peer: Peer::None,
            role: Role::Tunnel(Box::new(tunnel)),
            leg: None,
        }
    }

    /// A half for a circuit that begins here, over `link` to its first hop.
    pub(crate) fn origin(link: LinkKey, circ_id: u32, id: OriginId) -> Self {
        CircuitHalf {
            link,
            circ_id,
            queue: CellQueue::default(),
            blocked: false,
            is_guest: false,
            peer: Peer::None,
            role: Role::Origin(Box::new(Origin {
                id,
                crypt: OriginCircuit::new(),
                streams: Streams::default(),
                relay_early_left: MAX_RELAY_EARLY,
                waiting: Waiting::Created,
                traffic: CircuitTraffic::default(),
                weights: Vec::new(),
            })),
            leg: None,
        }
    }

    /// True if the half holds this node's keys of its circuit. Exactly one half of a circuit does;
    /// a rendezvous point, whose circuits are two, has two. A tunnel is no circuit, but its legs
    /// are.
    pub(crate) fn has_keys(&self) -> bool {
        !matches!(self.role, Role::Forward(_) | Role::Tunnel(_))
    }

    /// The streams that end at this half, if there ever were some.
    pub(crate) fn streams_mut(&mut self) -> Option<&mut Streams> {
        match &mut self.role {
            Role::Backward(backward) => backward.streams.as_deref_mut(),
            Role::Origin(origin) => Some(&mut origin.streams),
            Role::Tunnel(tunnel) => Some(&mut tunnel.streams),
            Role::Forward(_) => None,
        }
    }

    /// Shared access to the half's streams.
    pub(crate) fn streams(&self) -> Option<&Streams> {
        match &self.role {
            Role::Backward(backward) => backward.streams.as_deref(),
            Role::Origin(origin) => Some(&origin.streams),
            Role::Tunnel(tunnel) => Some(&tunnel.streams),
            Role::Forward(_) => None,
        }
    }

    /// Memory of the half, its queue and its streams.
    pub(crate) fn held(&self, now: Instant) -> Held {
        let mut held = self.queue.held(now);
        held += Held::kept(HALF_COST + self.leg.as_ref().map_or(0, |_| size_of::<LegSide>()));
        match &self.role {
            Role::Backward(backward) => {
                let measured = backward.measured.as_ref();
                held += Held::kept(
                    backward.crypt.as_ref().map_or(0, RelayCircuit::memory)
                        + measured.map_or(0, |_| size_of::<Moved>()),
                );
                if let Some(streams) = &backward.streams {
                    held += Held::kept(size_of::<Streams>());
                    held += streams.held(now);
                }
            }
            Role::Forward(_) => {}
            Role::Origin(origin) => {
                held += Held::kept(size_of::<Origin>() + origin.crypt.memory());
                held += origin.streams.held(now);
            }
            Role::Tunnel(tunnel) => held += tunnel.held(now),
        }
        held
    }

    /// The streams, with what the circuit has carried, if it begins here.
    #[inline]
    pub(crate) fn streams_and_traffic(
        &mut self,
    ) -> Option<(&mut Streams, Option<&mut CircuitTraffic>)> {
        match &mut self.role {
            Role::Backward(backward) => Some((backward.streams.as_deref_mut()?, None)),
            Role::Origin(origin) => Some((&mut origin.streams, Some(&mut origin.traffic))),
            Role::Tunnel(tunnel) => Some((&mut tunnel.streams, tunnel.traffic.as_mut())),
            Role::Forward(_) => None,
        }
    }

    /// The half as a tunnel.
    pub(crate) fn as_tunnel(&mut self) -> Option<&mut Tunnel> {
        match &mut self.role {
            Role::Tunnel(tunnel) => Some(tunnel),
            Role::Backward(_) | Role::Forward(_) | Role::Origin(_) => None,
        }
    }

    /// Rules for streams to this hop. `None`: the half has no such hop.
    pub(crate) fn terms(&self, hop: HopIndex) -> Option<Terms> {
        match &self.role {
            Role::Backward(backward) => {
                let cgo = backward.crypt.as_ref()?.is_cgo();
                Some(Terms::new(backward.sendme_inc.is_some(), cgo))
            }
            Role::Origin(origin) => {
                let vegas = origin.streams.ends.get(hop.index())?.is_vegas();
                Some(Terms::new(vegas, origin.crypt.is_cgo(hop.index())))
            }
            Role::Tunnel(tunnel) => Some(tunnel.terms),
            Role::Forward(_) => None,
        }
    }

    /// True if the half still waits for the event of a [`Wait`] with this extension number.
    pub(crate) fn still_waits(&self, extension: u32) -> bool {
        match &self.role {
            Role::Backward(backward) if extension == 0 => backward.crypt.is_none(),
            Role::Backward(backward) => {
                self.peer == Peer::Extending && backward.extension == extension
            }
            Role::Forward(forward) => forward.stage == ForwardStage::AwaitingCreated,
            // The client thread has its own, better founded patience (circuit build timeouts).
            Role::Origin(_) | Role::Tunnel(_) => false,
        }
    }
}

/// When a half that waits gives up, in the order in which the waits began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    /// When it gives up.
    pub deadline: Instant,
    /// The half.
    pub half: HalfAddr,
    /// Number of the extension that it waits for; 0 while a new half waits for its handshake.
    pub extension: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A relay has tens of thousands, and a cell needs two of them that nothing has come on for long: each line of
    /// the processor's cache that they span is a wait for memory.
    #[test]
    #[cfg(target_pointer_width = "64")]
    fn a_half_is_in_two_lines_of_the_cache() {
        assert_eq!(Slots::<HalfKey, CircuitHalf>::COST, 2 * 64);
    }
}
