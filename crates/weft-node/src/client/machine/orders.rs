//! What controllers may ask for (control-spec 3.10 to 3.20).

use rand::Rng;
use weft_cell::reason::{DestroyReason, EndReason};
use weft_core::address::ConnectionId;
use weft_core::origin::{AppOpening, AppProtocol, AppRefusal, AppRequest, OriginCommand, OriginId};
use weft_path::{ExitWanted, PathError, RelayName, TargetPort, Usage};

use crate::client::building::Hop;
use crate::client::chooser::Chooser;
use crate::client::events::{CircuitPurpose, EndOfCircuit, StreamEnd, StreamNews};
use crate::client::virtual_addresses::Virtual;
use crate::torrc::VirtualNetworks;

use super::building::{MAX_HOPS, Plan};
use super::streams::State;
use super::{Client, MAX_STREAMS, Now};

/// Why an order was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// There is no such circuit.
    #[error("Unknown circuit \"{0}\"")]
    NoCircuit(u64),
    /// There is no such stream.
    #[error("Unknown stream \"{0}\"")]
    NoStream(u64),
    /// The circuit is not open.
    #[error("Can't attach stream to non-open origin circuit")]
    NotOpen,
    /// Streams are not put on circuits of one hop.
    #[error("Can't attach stream to this one-hop circuit.")]
    OneHop,
    /// The circuit has no such hop, or it is the first.
    #[error("Can't attach stream at that hop.")]
    NoHop,
    /// The stream does not wait.
    #[error("Connection is not managed by controller.")]
    NotWaiting,
    /// There is no path.
    #[error("Couldn't start circuit: {0}")]
    NoPath(PathError),
    /// The circuit would be too long.
    #[error("No path could be made: too many hops")]
    TooLong,
    /// There is too much already.
    #[error("Too many streams or maps")]
    TooMany,
}

impl<C: Chooser> Client<C> {
    /// EXTENDCIRCUIT 0: a new circuit, over these relays or, without any, over relays of our
    /// choice.
    ///
    /// # Errors
    ///
    /// There is no path.
    pub fn new_circuit(
        &mut self,
        relays: &[RelayName],
        purpose: CircuitPurpose,
        now: Now,
    ) -> Result<OriginId, OrderError> {
        if relays.len() > MAX_HOPS {
            return Err(OrderError::TooLong);
        }
        let usage = match relays {
            [] => Usage::Exit(ExitWanted {
                ports: vec![TargetPort {
                    ipv6: false,
                    port: 443,
                }],
                ..ExitWanted::default()
            }),
            some => Usage::Exact(some.to_vec()),
        };
        self.launch(&usage, purpose, now)
            .map_err(OrderError::NoPath)
    }

    /// EXTENDCIRCUIT: more relays at the end of a circuit.
    ///
    /// # Errors
    ///
    /// There is no such circuit, no such relay, or the circuit is too long.
    pub fn extend_circuit(
        &mut self,
        id: OriginId,
        relays: &[RelayName],
        now: Now,
    ) -> Result<(), OrderError> {
        let mut hops = Vec::new();
        for name in relays {
            let unknown = || OrderError::NoPath(PathError::UnknownRelay(name.to_string()));
            hops.push(self.chooser.find(name).ok_or_else(unknown)?);
        }
        let circuit = self
            .circuits
            .get_mut(&id)
            .ok_or(OrderError::NoCircuit(id.0))?;
        if circuit.hops.len() + hops.len() > MAX_HOPS {
            return Err(OrderError::TooLong);
        }
        let Some(last) = hops.last().cloned() else {
            return Ok(());
        };
        circuit.hops.extend(hops.iter().map(Hop::from));
        circuit.exit = Some(last);
        if !circuit.is_building() {
            self.extend_further(id, now);
        }
        Ok(())
    }

    /// A circuit over relays that are known from elsewhere; for tests of a network, and probes.
    ///
    /// # Errors
    ///
    /// It cannot be begun.
    pub fn circuit_over(&mut self, hops: Vec<Hop>, now: Now) -> Result<OriginId, OrderError> {
        if hops.len() > MAX_HOPS {
            return Err(OrderError::TooLong);
        }
        let plan = Plan {
            hops,
            exit: None,
            guard: None,
            stable: false,
        };
        self.launch_plan(plan, CircuitPurpose::Controller, now)
            .map_err(|_| OrderError::NoPath(PathError::BadPath))
    }

    /// SETCIRCUITPURPOSE.
    ///
    /// # Errors
    ///
    /// There is no such circuit.
    pub fn set_purpose(
        &mut self,
        id: OriginId,
        purpose: CircuitPurpose,
        now: Now,
    ) -> Result<(), OrderError> {
        if !self.circuits.contains_key(&id) {
            return Err(OrderError::NoCircuit(id.0));
        }
        self.change_purpose(id, purpose);
        self.serve(now);
        Ok(())
    }

    /// CLOSECIRCUIT; with `if_unused` only if no stream is on it.
    ///
    /// # Errors
    ///
    /// There is no such circuit.
    pub fn close(&mut self, id: OriginId, if_unused: bool, now: Now) -> Result<(), OrderError> {
        let circuit = self.circuits.get(&id).ok_or(OrderError::NoCircuit(id.0))?;
        if !if_unused || circuit.streams.is_empty() {
            let reason = EndOfCircuit::Destroy(DestroyReason::REQUESTED);
            self.close_circuit(id, reason, now);
        }
        Ok(())
    }

    /// ATTACHSTREAM: to a circuit, at a hop (1 is the nearest) or its end; without one, as if no
    /// controller had held the stream.
    ///
    /// # Errors
    ///
    /// There is no such stream or circuit, or they do not fit.
    pub fn attach_stream(
        &mut self,
        stream: ConnectionId,
        to: Option<(OriginId, Option<u8>)>,
        now: Now,
    ) -> Result<(), OrderError> {
        let found = self
            .streams
            .get(&stream)
            .ok_or(OrderError::NoStream(stream.0))?;
        let asked = match found.state {
            State::Held | State::Waiting => None,
            State::Asked(circuit) => Some(circuit),
            State::Open(_) => return Err(OrderError::NotWaiting),
        };
        let hop = match to {
            None => None,
            Some((id, hop)) => {
                let circuit = self.circuits.get(&id).ok_or(OrderError::NoCircuit(id.0))?;
                if !circuit.is_open() {
                    return Err(OrderError::NotOpen);
                }
                if circuit.hops.len() < 2 {
                    return Err(OrderError::OneHop);
                }
                match hop {
                    Some(0 | 1) => return Err(OrderError::NoHop),
                    Some(hop) if usize::from(hop) > circuit.built => {
                        return Err(OrderError::NoHop);
                    }
                    Some(hop) => Some(hop - 1),
                    None => None,
                }
            }
        };
        if let Some(circuit) = asked {
            let reason = EndReason::TIMEOUT;
            self.command(OriginCommand::Detach { stream, reason });
            if let Some(circuit) = self.circuits.get_mut(&circuit) {
                circuit.streams.remove(&stream);
            }
        }
        match to {
            Some((circuit, _)) => self.attach(stream, circuit, hop, now),
            None => self.release(stream, now),
        }
        Ok(())
    }

    /// REDIRECTSTREAM: another target for a stream that is not open yet.
    ///
    /// # Errors
    ///
    /// There is no such stream.
    pub fn redirect_stream(
        &mut self,
        id: ConnectionId,
        host: &str,
        port: Option<u16>,
    ) -> Result<(), OrderError> {
        let stream = self
            .streams
            .get_mut(&id)
            .ok_or(OrderError::NoStream(id.0))?;
        if matches!(stream.state, State::Open(_)) {
            return Err(OrderError::NotWaiting);
        }
        host.clone_into(&mut stream.host);
        if let Some(port) = port {
            stream.port = port;
        }
        self.tell_stream(id, StreamNews::Remap { by_exit: false });
        Ok(())
    }

    /// CLOSESTREAM.
    ///
    /// # Errors
    ///
    /// There is no such stream.
    pub fn close_stream(
        &mut self,
        id: ConnectionId,
        reason: EndReason,
        now: Now,
    ) -> Result<(), OrderError> {
        let stream = self.streams.get(&id).ok_or(OrderError::NoStream(id.0))?;
        match stream.state {
            State::Open(_) => {
                let end = StreamEnd::Local(reason);
                self.tell_stream(id, StreamNews::Closed(end));
                self.end(id, reason);
            }
            State::Waiting | State::Held | State::Asked(_) => {
                self.refuse(id, StreamEnd::Local(reason), AppRefusal::General, now);
            }
        }
        Ok(())
    }

    /// MAPADDRESS.
    ///
    /// # Errors
    ///
    /// There are too many.
    pub fn map_address(&mut self, from: &str, to: &str) -> Result<(), OrderError> {
        match self.addresses.map(from, to) {
            true => Ok(()),
            false => Err(OrderError::TooMany),
        }
    }

    /// MAPADDRESS of a name or address that we choose: which. `None`: there is none.
    pub fn map_virtual_address(
        &mut self,
        kind: Virtual,
        to: &str,
        networks: VirtualNetworks,
        rng: &mut impl Rng,
    ) -> Option<String> {
        self.addresses.map_virtual(kind, to, networks, rng)
    }

    /// RESOLVE: a lookup; answered by [`Output::Looked`](super::Output::Looked). Its name is for
    /// [`AdoptResolve`](OriginCommand::AdoptResolve), which comes first of all.
    ///
    /// # Errors
    ///
    /// There are too many streams.
    pub fn look_up(&mut self, what: AppOpening, now: Now) -> Result<ConnectionId, OrderError> {
        if self.streams.len() >= MAX_STREAMS {
            return Err(OrderError::TooMany);
        }
        let id = self.new_own_stream();
        let request = AppRequest {
            opening: what,
            from: None,
            from_port: 0,
            listener: u32::MAX,
            protocol: AppProtocol::Internal,
            credentials: None,
        };
        self.command(OriginCommand::AdoptResolve { stream: id });
        let mut stream = self.new_stream(id, &request, now);
        stream.for_controller = true;
        self.begin(stream, now);
        Ok(id)
    }

    /// NEWNYM: streams from now on share no circuit with those before.
    pub fn new_identity(&mut self, now: Now) {
        self.nym_epoch += 1;
        for circuit in self.circuits.values_mut() {
            if circuit.purpose == CircuitPurpose::General {
                circuit.unusable = true;
            }
        }
        self.failures = 0;
        self.tracked.clear();
        self.refusing.clear();
        self.serve(now);
        self.predict(now);
    }

    /// The guards are others, or torrc says otherwise who may be where: circuits so far take no
    /// more streams (C tor's `options_act` and `update_guard_selection_choice`). Streams on them
    /// go on.
    pub fn abandon_circuits(&mut self) {
        for circuit in self.circuits.values_mut() {
            circuit.unusable |= match circuit.purpose {
                CircuitPurpose::General => true,
                // Requests that wait for one that is being built would wait for ever.
                CircuitPurpose::Directory => circuit.guard.is_some() && circuit.is_open(),
                _ => false,
            };
        }
    }
}
