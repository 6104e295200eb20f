//! Circuits and streams that begin here, and edges of every kind: where they are.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;

use weft_cell::identity::RsaIdentity;
use weft_cell::reason::{DestroyReason, EndReason};
use weft_cell::stream_msg::{End, Resolved};
use weft_planted::{Fault, planted};
use weft_share::PreviousHop;

use super::connections::State;
use super::{Action, EdgeCounts, EdgePeer, RelayController};
use crate::address::{ConnectionId, HalfAddr, OriginId, StreamAddr, ThreadId};
use crate::message::{
    ExtendRequest, FromController, LegRequest, Requester, StreamRequest, TunnelOrder,
};
use crate::origin::{EndedBy, LinkState, LinkStep, OriginCommand, OriginEvent};
use crate::tunnel::TunnelName;

/// Progress of a circuit of our own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// Its link is being looked for.
    Launching,
    /// Its link is being looked for, but the client thread has closed it.
    Unwanted,
    /// It has its half.
    At(HalfAddr),
}

/// Circuits and streams that end here.
#[derive(Debug, Default)]
pub(super) struct Origins {
    /// Circuits of our own.
    circuits: BTreeMap<OriginId, Origin>,
    /// Threads of edges, by connection.
    edges: BTreeMap<ConnectionId, ThreadId>,
    /// Peers of the sockets of some edges.
    peers: BTreeMap<ConnectionId, EdgePeer>,
    /// Number of edges with a known peer.
    open: EdgeCounts,
    /// There is a client thread.
    client: bool,
}

impl Origins {
    /// Edges.
    pub(super) fn edges(&self) -> usize {
        self.edges.len()
    }

    /// True if the connection belongs to an edge.
    pub(super) fn has_edge(&self, id: ConnectionId) -> bool {
        self.edges.contains_key(&id)
    }
}

impl RelayController {
    /// There is a client thread: it is sent events about links.
    pub fn serve_client(&mut self) {
        self.origins.client = true;
    }

    // ---- edges ----

    /// A place for the edge of a stream that a circuit asked for: its identifier, and the thread
    /// that shall own its socket. `hop` is the circuit's previous one. At the bound of connections
    /// another of a hop that has more gives way. `None`: there is none.
    ///
    /// The half's own thread, unless another is much less busy: a stream whose edge is elsewhere
    /// costs a wake-up for what otherwise is a function call.
    pub fn place_edge(
        &mut self,
        half: HalfAddr,
        hop: PreviousHop,
    ) -> Option<(ConnectionId, ThreadId)> {
        let id = self.connections.fresh_id();
        if !self.admit(id, hop, Some(half)) {
            return None;
        }
        let thread = self.placement.place_near(half.thread);
        self.origins.edges.insert(id, thread);
        Some((id, thread))
    }

    /// A place for a connection of an application, as [`place_edge`](Self::place_edge): where most
    /// of our own circuits are.
    pub fn place_application(&mut self) -> Option<(ConnectionId, ThreadId)> {
        if self.open_files() >= self.params.max_connections {
            self.counts.refused_full += 1;
            return None;
        }
        let id = self.connections.fresh_id();
        let thread = self.circuits_thread();
        self.origins.edges.insert(id, thread);
        Some((id, thread))
    }

    /// The place of a stream that the client thread adopts for itself.
    pub fn place_internal(&mut self, id: ConnectionId) -> ThreadId {
        let thread = self.circuits_thread();
        self.origins.edges.insert(id, thread);
        thread
    }

    /// Circuits that begin here, as far as the client thread wants them.
    pub fn origin_circuits(&self) -> impl Iterator<Item = OriginId> {
        let wanted = self.origins.circuits.iter();
        wanted.filter_map(|(id, origin)| (*origin != Origin::Unwanted).then_some(*id))
    }

    /// Notes what the socket of an edge is connected to, so that it is counted.
    pub fn note_edge_peer(&mut self, id: ConnectionId, peer: EdgePeer) {
        if self.origins.peers.insert(id, peer).is_none() {
            *self.counts.edges.of(peer) += 1;
            *self.origins.open.of(peer) += 1;
        }
    }

    /// Ends the streams to destinations that an exit policy forbids. Returns how many.
    pub fn end_forbidden(&mut self, is_allowed: impl Fn(SocketAddr) -> bool) -> usize {
        let peers = self.origins.peers.iter();
        let forbidden: Vec<_> = peers
            .filter_map(|(id, peer)| match peer {
                EdgePeer::Destination(addr) if !is_allowed(*addr) => {
                    Some((*id, *self.origins.edges.get(id)?))
                }
                _ => None,
            })
            .collect();
        for (connection, thread) in &forbidden {
            let connection = *connection;
            self.send(*thread, FromController::ForbidEdge { connection });
        }
        forbidden.len()
    }

    /// Sockets of edges whose peers were noted and that are open.
    pub fn open_edges(&self) -> EdgeCounts {
        self.origins.open
    }

    /// Where all edges are.
    pub fn edge_places(&self) -> impl Iterator<Item = (ConnectionId, ThreadId)> {
        self.origins.edges.iter().map(|(id, thread)| (*id, *thread))
    }

    /// Notes that an edge is on this thread.
    pub fn place_at(&mut self, id: ConnectionId, thread: ThreadId) {
        self.origins.edges.insert(id, thread);
    }

    /// The thread of the circuit of our own that was made last.
    fn circuits_thread(&mut self) -> ThreadId {
        let last = self
            .origins
            .circuits
            .values()
            .rev()
            .find_map(|at| match at {
                Origin::At(half) => Some(half.thread),
                Origin::Launching | Origin::Unwanted => None,
            });
        match last {
            Some(thread) => self.placement.place_near(thread),
            None => ThreadId(0),
        }
    }

    /// An edge was removed.
    pub(super) fn on_edge_closed(&mut self, id: ConnectionId) {
        if planted(Fault::EdgeStaysBooked) {
            return;
        }
        self.displaceable.release(id);
        self.origins.edges.remove(&id);
        if let Some(peer) = self.origins.peers.remove(&id) {
            *self.origins.open.of(peer) -= 1;
        }
    }

    /// A stream that a circuit asked for will not be opened.
    pub fn refuse_stream(&mut self, stream: StreamAddr, end: &End) {
        let end = end.encode();
        self.send(
            stream.half.thread,
            FromController::RefuseStream { stream, end },
        );
    }

    /// A RESOLVE of a circuit's is answered.
    pub fn resolved(&mut self, stream: StreamAddr, resolved: Resolved) {
        self.send(
            stream.half.thread,
            FromController::Resolved { stream, resolved },
        );
    }

    /// A circuit asks for a stream.
    pub(super) fn on_stream(&mut self, request: StreamRequest) {
        self.actions.push_back(Action::Stream(request));
    }

    /// A stream that a circuit asked for ended before it was decided about.
    pub(super) fn on_stream_gone(&mut self, stream: StreamAddr) {
        self.actions.push_back(Action::StreamGone(stream));
    }

    // ---- the client thread ----

    /// Handles a command of the client thread. The caller must carry out those about sockets,
    /// [`OriginCommand::AdoptInternal`] and [`OriginCommand::AdoptResolve`], with
    /// [`place_internal`](Self::place_internal); they have no effect here.
    pub fn origin(&mut self, command: OriginCommand, now: Instant) {
        match command {
            OriginCommand::Launch {
                circuit,
                first,
                create,
            } => {
                self.origins.circuits.insert(circuit, Origin::Launching);
                self.on_extend(
                    ExtendRequest {
                        from: Requester::Origin(circuit),
                        addrs: first.addrs,
                        rsa: first.rsa,
                        ed25519: first.ed25519,
                        create: std::sync::Arc::new(create),
                    },
                    now,
                );
            }
            OriginCommand::AddHop {
                circuit,
                keys,
                flow,
            } => {
                if let Some(half) = self.half_of(circuit) {
                    self.send(half.thread, FromController::AddHop { half, keys, flow });
                }
            }
            OriginCommand::Extend { circuit, extend2 } => {
                if let Some(half) = self.half_of(circuit) {
                    self.send(half.thread, FromController::SendExtend { half, extend2 });
                }
            }
            OriginCommand::AskWeight { circuit, hop } => {
                if let Some(half) = self.half_of(circuit) {
                    self.send(half.thread, FromController::AskWeight { half, hop });
                }
            }
            OriginCommand::Link {
                circuit,
                hop,
                tunnel,
                kind,
            } => {
                if let Some(half) = self.half_of(circuit) {
                    let known = self.origins.circuits.entry(tunnel);
                    known.or_insert(Origin::Launching);
                    let ours = Some((hop, kind));
                    let leg = LegRequest { half, ours };
                    self.ask_own_tunnel(leg, TunnelName::Origin(tunnel));
                }
            }
            OriginCommand::DropLeg { circuit } => {
                if let Some(half) = self.half_of(circuit) {
                    self.send(half.thread, TunnelOrder::DropLeg { half }.into());
                }
            }
            OriginCommand::Probe { circuit, nonce } => {
                if let Some(half) = self.half_of(circuit) {
                    self.send(half.thread, FromController::Probe { half, nonce });
                }
            }
            OriginCommand::CloseCircuit { circuit, reason } => {
                match self.origins.circuits.get_mut(&circuit) {
                    Some(Origin::At(half)) => {
                        let half = *half;
                        self.close_half(half, reason);
                    }
                    Some(other) => *other = Origin::Unwanted,
                    None => {}
                }
            }
            OriginCommand::RetireLink { connection } => self.connections.retire(connection),
            OriginCommand::Attach {
                stream,
                circuit,
                hop,
                opening,
            } => match (self.thread_of(stream), self.half_of(circuit)) {
                (Some(thread), Some(half)) => self.send(
                    thread,
                    FromController::Attach {
                        stream,
                        circuit,
                        half,
                        hop,
                        opening,
                    },
                ),
                // The circuit was closed while the command was on its way.
                (Some(_), None) => self.send_to_client(OriginEvent::Ended {
                    stream,
                    circuit: Some(circuit),
                    reason: EndReason::DESTROY,
                    addr: None,
                    by: EndedBy::Circuit,
                    waiting: true,
                    bytes: (0, 0),
                }),
                // The application has closed; the client thread has been notified.
                (None, _) => {}
            },
            OriginCommand::Refuse { stream, why } => {
                self.send_to_edge(stream, FromController::RefuseApp { stream, why });
            }
            OriginCommand::AnswerResolve { stream, resolved } => {
                self.send_to_edge(stream, FromController::AnswerApp { stream, resolved });
            }
            OriginCommand::CloseStream { stream, reason } => {
                self.send_to_edge(stream, FromController::CloseStream { stream, reason });
            }
            OriginCommand::Detach { stream, reason } => {
                self.send_to_edge(stream, FromController::Detach { stream, reason });
            }
            OriginCommand::AdoptInternal { .. } | OriginCommand::AdoptResolve { .. } => {}
        }
    }

    /// A circuit of our own has its half.
    pub(super) fn on_origin_made(
        &mut self,
        circuit: OriginId,
        half: HalfAddr,
        connection: ConnectionId,
    ) {
        match self.origins.circuits.get_mut(&circuit) {
            Some(at @ Origin::Launching) => {
                *at = Origin::At(half);
                self.send_to_client(OriginEvent::Launched {
                    circuit,
                    connection,
                });
            }
            Some(at) => {
                *at = Origin::At(half);
                self.close_half(half, DestroyReason::REQUESTED);
            }
            None => self.close_half(half, DestroyReason::REQUESTED),
        }
    }

    /// A tunnel of our own exists.
    pub(super) fn on_origin_tunnel_made(&mut self, tunnel: OriginId, half: HalfAddr) {
        match self.origins.circuits.insert(tunnel, Origin::At(half)) {
            Some(Origin::Launching) => {}
            Some(Origin::Unwanted | Origin::At(_)) | None => {
                self.close_half(half, DestroyReason::REQUESTED);
            }
        }
    }

    /// A circuit of our own has no link.
    pub(super) fn origin_failed(&mut self, circuit: OriginId, reason: DestroyReason) {
        if self.origins.circuits.remove(&circuit).is_some() {
            self.send_to_client(OriginEvent::Closed {
                circuit,
                reason,
                remote: false,
            });
        }
    }

    /// Something for the client thread, from a connection thread.
    pub(super) fn on_origin_event(&mut self, event: OriginEvent) {
        if let OriginEvent::Closed { circuit, .. } = &event {
            self.origins.circuits.remove(circuit);
        }
        self.send_to_client(event);
    }

    /// A link to a relay that we opened changed.
    pub(super) fn link_changed(
        &mut self,
        connection: ConnectionId,
        rsa: RsaIdentity,
        addr: std::net::SocketAddr,
        state: LinkState,
    ) {
        if self.origins.client {
            self.send_to_client(OriginEvent::Link {
                connection,
                rsa,
                addr,
                state,
            });
        }
    }

    /// A link to a relay that we open has come further.
    pub(super) fn on_link_step(&mut self, connection: ConnectionId, step: LinkStep) {
        let opening = self.connections.get(connection).map(|one| &one.state);
        if self.origins.client
            && let Some(State::Connecting { rsa }) = opening
        {
            let rsa = *rsa;
            self.send_to_client(OriginEvent::LinkStep { rsa, step });
        }
    }

    /// Sends an event to the client thread.
    fn send_to_client(&mut self, event: OriginEvent) {
        self.actions.push_back(Action::Origin(event));
    }

    /// The half of a circuit of our own.
    fn half_of(&self, circuit: OriginId) -> Option<HalfAddr> {
        match self.origins.circuits.get(&circuit)? {
            Origin::At(half) => Some(*half),
            Origin::Launching | Origin::Unwanted => None,
        }
    }

    /// The thread of an edge.
    pub fn thread_of(&self, edge: ConnectionId) -> Option<ThreadId> {
        self.origins.edges.get(&edge).copied()
    }

    /// Sends a message to an edge's thread.
    fn send_to_edge(&mut self, edge: ConnectionId, message: FromController) {
        if let Some(thread) = self.thread_of(edge) {
            self.send(thread, message);
        }
    }
}
