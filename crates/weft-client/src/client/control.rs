//! The commands of controllers (control-spec 3.10 to 3.20).

use rand::Rng;
use weft_cell::reason::{DestroyReason, EndReason};
use weft_core::address::ConnectionId;
use weft_core::origin::{AppOpening, AppProtocol, AppRefusal, AppRequest, OriginCommand, OriginId};
use weft_path::{ExitWanted, PathError, RelayName, TargetPort, Usage};

use crate::addresses::{Host, Virtual};
use crate::chooser::Chooser;
use crate::circuits::{Circuit, Hop, MAX_HOPS};
use crate::events::{CircuitPurpose, EndOfCircuit, StreamEnd};
use weft_config::VirtualNetworks;

use crate::now::Now;
use crate::output::ControlError;
use crate::streams::StreamState;

use super::requests::NotSent;
use super::{Client, MAX_STREAMS};

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
    ) -> Result<OriginId, ControlError> {
        if relays.len() > MAX_HOPS {
            return Err(ControlError::TooLong);
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
            .map_err(ControlError::NoPath)
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
    ) -> Result<(), ControlError> {
        let mut hops = Vec::new();
        for name in relays {
            let unknown = || ControlError::NoPath(PathError::UnknownRelay(name.to_string()));
            hops.push(self.chooser.find(name).ok_or_else(unknown)?);
        }
        let circuit = self
            .circuits
            .get_mut(&id)
            .filter(|circuit| !circuit.is_set())
            .ok_or(ControlError::NoCircuit(id.0))?;
        if circuit.purpose.is_leg() {
            return Err(ControlError::Conflux);
        }
        if circuit.hops.len() + hops.len() > MAX_HOPS {
            return Err(ControlError::TooLong);
        }
        let Some(last) = hops.last().cloned() else {
            return Ok(());
        };
        circuit.hops.extend(hops.iter().map(Hop::from));
        circuit.exit = Some(last);
        if !circuit.is_building() {
            circuit.began = Some(now.mono);
            circuit.relaxed = false;
            self.extend_further(id, now);
        }
        Ok(())
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
    ) -> Result<(), ControlError> {
        let circuit = self.shown_circuit(id)?;
        if circuit.purpose.is_leg() {
            return Err(ControlError::Conflux);
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
    pub fn close(&mut self, id: OriginId, if_unused: bool, now: Now) -> Result<(), ControlError> {
        let circuit = self.shown_circuit(id)?;
        // The streams of a leg are its set's.
        let set = circuit.leg.and_then(|leg| self.circuits.get(&leg.set));
        if !if_unused || set.unwrap_or(circuit).streams.is_empty() {
            let reason = EndOfCircuit::Destroy(DestroyReason::REQUESTED);
            self.close_circuit(id, reason, now);
        }
        Ok(())
    }

    /// ATTACHSTREAM: to a circuit, at a hop (1 is the nearest) or its end; without one, as if no
    /// controller had held the stream. Maps and rules are applied as to any stream.
    ///
    /// # Errors
    ///
    /// There is no such stream or circuit, they do not fit, or the stream breaks a rule and has failed.
    pub fn attach_stream(
        &mut self,
        stream: ConnectionId,
        to: Option<(OriginId, Option<u8>)>,
        now: Now,
    ) -> Result<(), ControlError> {
        let found = self
            .streams
            .get(&stream)
            .ok_or(ControlError::NoStream(stream.0))?;
        let asked = match found.state {
            StreamState::Held | StreamState::Waiting => None,
            StreamState::Asked(circuit) => Some(circuit),
            StreamState::Open(_) => return Err(ControlError::NotWaiting),
        };
        let hop = match to {
            None => None,
            Some((id, hop)) => {
                let circuit = self.shown_circuit(id)?;
                if circuit.purpose.is_leg() {
                    return Err(ControlError::Conflux);
                }
                if !circuit.is_open() {
                    return Err(ControlError::NotOpen);
                }
                if circuit.hops.len() < 2 {
                    return Err(ControlError::OneHop);
                }
                match hop {
                    Some(0 | 1) => return Err(ControlError::NoHop),
                    Some(hop) if usize::from(hop) > circuit.built => {
                        return Err(ControlError::NoHop);
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
        match self.admit(stream, now, |_, _| ()) {
            Ok(()) => {}
            Err(NotSent::Answered) => return Ok(()),
            Err(NotSent::Refused) => return Err(ControlError::Refused),
        }
        match to {
            Some((circuit, _)) => self.attach(stream, circuit, hop, now),
            None => self.release(stream, now),
        }
        Ok(())
    }

    /// REDIRECTSTREAM: another target for a stream that is not open yet. Maps and rules apply to it before it is sent.
    ///
    /// # Errors
    ///
    /// There is no such stream.
    pub fn redirect_stream(
        &mut self,
        id: ConnectionId,
        host: &str,
        port: Option<u16>,
    ) -> Result<(), ControlError> {
        let stream = self
            .streams
            .get_mut(&id)
            .ok_or(ControlError::NoStream(id.0))?;
        if matches!(stream.state, StreamState::Open(_)) {
            return Err(ControlError::NotWaiting);
        }
        stream.requested = (Host::new(host), port.unwrap_or(stream.port()));
        stream.rewritten = None;
        stream.refused_by.clear();
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
    ) -> Result<(), ControlError> {
        let stream = self.streams.get(&id).ok_or(ControlError::NoStream(id.0))?;
        match stream.state {
            StreamState::Open(_) => {
                self.end(id, StreamEnd::Local(reason));
            }
            StreamState::Waiting | StreamState::Held | StreamState::Asked(_) => {
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
    pub fn map_address(&mut self, from: &str, to: &str) -> Result<(), ControlError> {
        match self.addresses.map(from, to) {
            true => Ok(()),
            false => Err(ControlError::TooMany),
        }
    }

    /// MAPADDRESS of a name or address that we choose: returns it. `None`: none is free.
    pub fn map_virtual_address(
        &mut self,
        kind: Virtual,
        to: &str,
        networks: VirtualNetworks,
        rng: &mut impl Rng,
    ) -> Option<Host> {
        self.addresses.map_virtual(kind, to, networks, rng)
    }

    /// RESOLVE: a lookup, answered by [`Output::LookedUp`](crate::Output::LookedUp). Returns the id of its
    /// stream, which [`AdoptResolve`](OriginCommand::AdoptResolve), the first of its commands, creates.
    ///
    /// # Errors
    ///
    /// There are too many streams.
    pub fn look_up(&mut self, what: AppOpening, now: Now) -> Result<ConnectionId, ControlError> {
        if self.streams.len() >= MAX_STREAMS {
            return Err(ControlError::TooMany);
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

    /// NEWNYM: streams from now on share no circuit with those before, and names that are looked up again get other virtual
    /// addresses.
    pub fn new_identity(&mut self, now: Now) {
        self.nym_epoch += 1;
        for circuit in self.circuits.values_mut() {
            if circuit.purpose == CircuitPurpose::General {
                circuit.unusable = true;
            }
        }
        self.abandon_sets(|_| true);
        self.launches.forgive();
        self.addresses.forget_look_ups();
        self.tracked.clear();
        self.refusing.clear();
        self.serve(now);
        self.predict(now);
    }

    /// The guards have changed, or torrc excludes other relays than before: existing circuits take no more
    /// streams (C tor's `options_act` and `update_guard_selection_choice`). Their streams continue.
    pub fn abandon_circuits(&mut self) {
        for circuit in self.circuits.values_mut() {
            circuit.unusable |= match circuit.purpose {
                CircuitPurpose::General => true,
                // Requests that wait for one that is being built would wait for ever.
                CircuitPurpose::Directory => circuit.guard.is_some() && circuit.is_open(),
                _ => false,
            };
        }
        self.abandon_sets(|_| true);
    }

    /// A circuit that controllers know.
    fn shown_circuit(&self, id: OriginId) -> Result<&Circuit<C::Guard>, ControlError> {
        let circuit = self.circuits.get(&id).filter(|circuit| !circuit.is_set());
        circuit.ok_or(ControlError::NoCircuit(id.0))
    }
}
