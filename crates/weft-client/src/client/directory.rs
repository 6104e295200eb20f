//! Streams to directories: circuits of one hop, and BEGIN_DIR (dir-spec, proposal 104).

use std::net::SocketAddr;

use weft_cell::identity::RsaIdentity;
use weft_cell::reason::EndReason;
use weft_core::address::ConnectionId;
use weft_core::origin::AppProtocol;
use weft_log::Line;
use weft_path::{RelayName, Usage};

use crate::addresses::Host;
use crate::chooser::Chooser;
use crate::circuits::{Circuit, Hop, Plan};
use crate::config::ListenerConfig;
use crate::events::{CircuitEnd, CircuitPurpose, StreamEnd, StreamNews};
use crate::isolation::{Fields, Isolation};

use crate::now::Now;
use crate::output::DirectoryTarget;
use crate::streams::{Stream, StreamKind, StreamState};

use super::{Client, MAX_STREAMS};

impl<C: Chooser> Client<C> {
    /// Opens a stream to a directory. Returns the id for the socket, which the caller must send as
    /// [`AdoptInternal`](weft_core::origin::OriginCommand::AdoptInternal) before it polls outputs.
    ///
    /// # Errors
    ///
    /// No directory can be reached now.
    pub fn open_directory(
        &mut self,
        target: &DirectoryTarget,
        now: Now,
    ) -> Result<ConnectionId, String> {
        if self.config.disable_network {
            return Err("the network is disabled".to_owned());
        }
        if self.streams.len() >= MAX_STREAMS {
            return Err("there are too many streams".to_owned());
        }
        let relay = match target {
            DirectoryTarget::Relay(hop) => self.reach_relay(hop, now)?,
            DirectoryTarget::Guard => self.reach_guard(now)?,
        };
        let id = self.new_own_stream();
        let kind = StreamKind::Directory(relay);
        let listener = ListenerConfig {
            isolation: Isolation::NONE,
            ..ListenerConfig::default()
        };
        let fields = Fields {
            stream: id,
            port: 0,
            host: "".into(),
            credentials: None,
            protocol: AppProtocol::Internal,
            client: None,
            session_group: 0,
            nym_epoch: 0,
        };
        let stream = Stream::new(
            kind,
            Host::new(&relay.to_string()),
            0,
            listener,
            fields,
            now.mono,
        );
        self.streams.insert(id, stream);
        self.emit_stream(id, StreamNews::New);
        Ok(id)
    }

    /// Finds circuits for new streams; to be called once their sockets are handed over.
    pub fn serve_now(&mut self, now: Now) {
        self.serve(now);
    }

    /// The number of the next stream of our own.
    pub(super) fn new_own_stream(&mut self) -> ConnectionId {
        let id = ConnectionId(self.last_stream);
        self.last_stream -= 1;
        id
    }

    /// A circuit to a given relay is there or begun.
    fn reach_relay(&mut self, hop: &Hop, now: Now) -> Result<RsaIdentity, String> {
        if self.has_directory_circuit(&hop.rsa) {
            return Ok(hop.rsa);
        }
        // A relay that the consensus lists is asked by ntor, as its onion key is known.
        let known = self.chooser.find(&RelayName::Rsa(hop.rsa));
        let hop = known.as_ref().map_or_else(|| hop.clone(), Hop::from);
        let rsa = hop.rsa;
        let guard = self.chooser.bridge(&rsa, now);
        self.launch_to(hop, guard, now)?;
        Ok(rsa)
    }

    /// Begins a circuit of one hop for requests.
    fn launch_to(&mut self, hop: Hop, guard: Option<C::Guard>, now: Now) -> Result<(), String> {
        let plan = Plan {
            hops: vec![hop],
            exit: None,
            guard,
            stable: false,
        };
        let launched = self.launch_plan(plan, CircuitPurpose::Directory, now);
        launched.map(|_| ()).map_err(|error| error.to_string())
    }

    /// Connects to a bridge known only by its address. The event of the link has its identity, and
    /// the circuit is to that relay from then on.
    ///
    /// # Errors
    ///
    /// The network is disabled.
    pub fn meet(&mut self, addr: SocketAddr, now: Now) -> Result<(), String> {
        if self.config.disable_network {
            return Err("the network is disabled".to_owned());
        }
        let is_under_way = self.circuits.values().any(|circuit| {
            circuit
                .hops
                .first()
                .is_some_and(|hop| hop.rsa.is_zero() && hop.addrs == [addr])
        });
        if is_under_way {
            return Ok(());
        }
        self.launch_to(Hop::unknown(addr), None, now)
    }

    /// A link to this address proved to be to this relay: circuits to the address alone are to it.
    pub(super) fn name_unknown(&mut self, rsa: RsaIdentity, addr: SocketAddr) {
        for circuit in self.circuits.values_mut() {
            if let Some(first) = circuit.hops.first_mut()
                && first.rsa.is_zero()
                && first.addrs.contains(&addr)
            {
                first.rsa = rsa;
            }
        }
    }

    /// A circuit to a guard is there or begun.
    fn reach_guard(&mut self, now: Now) -> Result<RsaIdentity, String> {
        let open = self.circuits.values().find(|circuit| {
            circuit.purpose == CircuitPurpose::Directory
                && circuit.guard.is_some()
                && !circuit.unusable
        });
        if let Some(hop) = open.and_then(|circuit| circuit.hops.first()) {
            return Ok(hop.rsa);
        }
        let id = self
            .launch(&Usage::Directory, CircuitPurpose::Directory, now)
            .map_err(|error| error.to_string())?;
        let circuit = self.circuits.get(&id);
        let first = circuit.and_then(|circuit| circuit.hops.first());
        first
            .map(|hop| hop.rsa)
            .ok_or_else(|| "there is no guard".to_owned())
    }

    /// Returns true if a circuit to this relay exists, built or not.
    fn has_directory_circuit(&self, rsa: &RsaIdentity) -> bool {
        self.circuits.values().any(|circuit| {
            circuit.purpose == CircuitPurpose::Directory
                && !circuit.unusable
                && circuit.hops.first().is_some_and(|hop| hop.rsa == *rsa)
        })
    }

    /// A directory's answer was invalid or missing: its circuit is not used again.
    pub fn directory_failed(&mut self, rsa: &RsaIdentity) {
        for circuit in self.circuits.values_mut() {
            let there = circuit.hops.first().is_some_and(|hop| hop.rsa == *rsa);
            if there && circuit.purpose == CircuitPurpose::Directory {
                circuit.unusable = true;
            }
        }
    }

    /// The relay that a directory stream leads to.
    pub fn directory_of(&self, stream: ConnectionId) -> Option<RsaIdentity> {
        match self.streams.get(&stream)?.kind {
            StreamKind::Directory(rsa) => Some(rsa),
            _ => None,
        }
    }

    /// Closes a directory stream.
    pub fn close_directory(&mut self, stream: ConnectionId) {
        if self.directory_of(stream).is_some() {
            self.end(stream, StreamEnd::Local(EndReason::DONE));
        }
    }

    /// A circuit to a directory could not be built: the streams that waited for it fail.
    pub(super) fn fail_directory_streams(&mut self, circuit: &Circuit<C::Guard>, end: CircuitEnd) {
        let Some(relay) = circuit.hops.first().map(|hop| hop.rsa) else {
            return;
        };
        if self.has_directory_circuit(&relay) {
            return;
        }
        let waiting: Vec<ConnectionId> = self
            .streams
            .values()
            .filter(|stream| stream.kind == StreamKind::Directory(relay))
            .filter(|stream| stream.state == StreamState::Waiting)
            .map(|stream| stream.id)
            .collect();
        let reason = end
            .remote
            .map_or(end.reason.name(), |remote| remote.name().unwrap_or("NONE"));
        self.log(Line::info(format!("Could not reach a directory: {reason}")));
        for id in waiting {
            self.end(id, StreamEnd::Local(EndReason::DESTROY));
        }
    }
}
