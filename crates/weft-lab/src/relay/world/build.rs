//! Building circuits: CREATE2 to the target, EXTEND2 to one of our own relays.
//!
//! The target passes the second onionskin on without looking into it, and so is its answer. Both are
//! made up: the onionskin names the circuit, and the answer repeats it, so that the generator needs
//! no cryptography for its own second hop and still sees that the target mixed nothing up.

use std::net::SocketAddr;

use anyhow::{Context, Result, anyhow, bail, ensure};
use weft_cell::circ_msg::{
    CreateReply, CreateRequest, Extend2, Extended2, NTOR_HANDSHAKE_LEN, Truncated, handshake_type,
};
use weft_cell::reason::DestroyReason;
use weft_cell::relay::{self, RelayBody};
use weft_cell::{Cell, CellView, ChanCmd, RelayCmd};
use weft_crypto::circuit::OriginCircuit;
use weft_crypto::handshake::ntor;

use super::circuit::{Build, Circuit, CircuitEnd, Flow, INITIATOR};
use super::state::World;
use crate::relay::aim::Peer;
use crate::relay::options::CIRCUITS;

/// Circuits that are being built at a time, so that the target's bounds on onionskins hold.
pub(super) const BUILDING: usize = 32;

/// The number of a circuit is the lower bits of its id; those above it count how often it was used.
const NUMBERS: u32 = 1 << 17;
const _: () = assert!(CIRCUITS.most() < NUMBERS as usize);

impl World {
    /// Begins further circuits; true when the first `wanted` can carry cells.
    pub(super) fn build(&mut self, wanted: usize) -> Result<bool> {
        while self.begun < wanted && self.begun - self.built < BUILDING {
            self.begin_next()?;
        }
        Ok(self.built >= wanted)
    }

    /// The next circuit of those that are there from the beginning: over all links in turn, and
    /// from each link to all next hops in turn, or as the mix chooses.
    fn begin_next(&mut self) -> Result<()> {
        let number = self.begun;
        let (origins, hops) = (self.origins.len(), self.hops.len());
        ensure!(origins > 0 && hops > 0, "circuits need links and next hops");
        let turn = number / origins;
        let (origin, hop) = match &mut self.live {
            Some(live) => live.mix.place(),
            None => (number % origins, (number + turn) % hops),
        };
        let index = u32::try_from(number).context("too many circuits")?;
        self.begin_circuit(number, INITIATOR | (index + 1), origin, hop)
    }

    /// Circuit `number` again, over other links.
    pub(super) fn begin_again(&mut self, number: usize, origin: usize, hop: usize) -> Result<()> {
        let id = self.circuit(number)?.origin_id;
        let id = INITIATOR | (id & !INITIATOR).wrapping_add(NUMBERS) & !INITIATOR;
        self.begin_circuit(number, id, origin, hop)
    }

    fn begin_circuit(&mut self, number: usize, id: u32, origin: usize, hop: usize) -> Result<()> {
        let origin = self.origins.get(origin).copied();
        let mut circuit = Circuit {
            origin: origin.context("a link that is not there")?,
            next: 0,
            origin_id: id,
            next_id: 0,
            hop,
            build: None,
            end: CircuitEnd::Open,
            up: Flow::default(),
            down: Flow::default(),
        };
        self.end(circuit.origin)?.carried += 1;
        if let Some(hop) = self.hops.get_mut(hop) {
            hop.carried += 1;
        }
        let (build, cell) = match self.plan.peer {
            Peer::Relay(aim) => {
                let state = ntor::ClientState::start(&aim.rsa, &aim.ntor, &mut self.rng);
                let request = CreateRequest::Create2 {
                    handshake_type: handshake_type::NTOR,
                    data: state.onionskin().to_vec(),
                };
                let cell = request.encode(circuit.origin_id)?;
                (Build::Creating(state), cell)
            }
            // Its id is enough: a pipe changes none.
            Peer::Pipe(_) => (
                Build::Announced,
                Cell::new(circuit.origin_id, ChanCmd::CREATE2),
            ),
        };
        circuit.build = Some(Box::new(build));
        let key = circuit.origin;
        match self.circuits.get_mut(number) {
            Some(before) => *before = circuit,
            None => self.circuits.push(circuit),
        }
        self.begun += 1;
        self.send(key, &cell)
    }

    /// Queues a cell that does not belong to the load.
    pub(super) fn send(&mut self, key: usize, cell: &Cell) -> Result<()> {
        self.end(key)?.out.extend_from_slice(cell.as_bytes());
        self.mark(key);
        Ok(())
    }

    pub(super) fn circuit(&mut self, number: usize) -> Result<&mut Circuit> {
        let circuit = self.circuits.get_mut(number);
        circuit.with_context(|| {
            format!("the target sent a cell of circuit {number}, which there is not")
        })
    }

    /// CREATED2 from the target: now EXTEND2.
    pub(super) fn on_created(&mut self, number: usize, cell: CellView<'_>) -> Result<()> {
        let circuit = self.circuit(number)?;
        let (hop, origin, id) = (circuit.hop, circuit.origin, circuit.origin_id);
        let Some(Build::Creating(state)) = circuit.build.take().map(|build| *build) else {
            bail!("the target sent {} where it has no place", cell.command());
        };
        let CreateReply::Created2 { data } = CreateReply::decode(cell.command(), cell.body())?
        else {
            bail!("the target answered CREATE2 with {}", cell.command());
        };
        let keys = state.finish(&data).context(
            "the target's answer to CREATE2 does not prove that it has the ntor onion key",
        )?;
        let mut crypt = OriginCircuit::new();
        crypt.add_hop(&keys.into());
        let hop = self.hops.get(hop).context("a next hop that is not there")?;
        let (ipv4, ipv6) = match hop.address {
            SocketAddr::V4(address) => (Some(address), None),
            SocketAddr::V6(address) => (None, Some(address)),
        };
        let extend = Extend2 {
            ipv4,
            ipv6,
            rsa: Some(hop.rsa),
            ed25519: Some(hop.ed25519),
            link_specifiers: Vec::new(),
            handshake_type: handshake_type::NTOR,
            handshake: onionskin(number).to_vec(),
        };
        let mut extend_cell = Cell::new(id, ChanCmd::RELAY_EARLY);
        let data = extend.encode()?;
        relay::encode(
            extend_cell.body_mut(),
            RelayCmd::EXTEND2,
            0,
            &data,
            &mut self.rng,
        )?;
        crypt.encrypt_forward(0, extend_cell.command(), extend_cell.body_mut())?;
        self.circuit(number)?.build = Some(Box::new(Build::Extending(crypt)));
        self.send(origin, &extend_cell)
    }

    /// CREATE2 from the target, or the opening cell of a circuit through a pipe.
    pub(super) fn on_create(&mut self, key: usize, cell: CellView<'_>) -> Result<()> {
        let id = cell.circ_id();
        let (number, answer) = match self.plan.peer {
            Peer::Pipe(_) => (number_of(id)?, Cell::new(id, ChanCmd::CREATED2)),
            Peer::Relay(_) => {
                let request = CreateRequest::decode(cell.command(), cell.body())?;
                let CreateRequest::Create2 { data, .. } = request else {
                    bail!("the target extended a circuit by {}", cell.command());
                };
                let number = circuit_of(&data)
                    .ok_or_else(|| anyhow!("the target changed the onionskin of an EXTEND2"))?;
                let reply = CreateReply::Created2 {
                    data: answer(number).to_vec(),
                };
                (number, reply.encode(id)?)
            }
        };
        let circuit = self.circuit(number)?;
        ensure!(
            circuit.next_id == 0,
            "the target extended one circuit twice"
        );
        (circuit.next, circuit.next_id) = (key, id);
        let index = u32::try_from(number)?;
        self.end(key)?.by_id.insert(id, index);
        self.send(key, &answer)
    }

    /// A relay cell on a circuit that is being built: EXTENDED2, unless something is wrong.
    pub(super) fn on_extended(&mut self, number: usize, cell: CellView<'_>) -> Result<()> {
        let circuit = self.circuit(number)?;
        let hop = circuit.hop;
        let Some(Build::Extending(crypt)) = circuit.build.as_deref_mut() else {
            bail!("the target sent {} where it has no place", cell.command());
        };
        let mut cell = Cell::from(cell);
        ensure!(
            crypt.decrypt_backward(cell.body_mut()).is_some(),
            "the target sent a relay cell that nobody encrypted for this circuit"
        );
        let message = RelayBody::new(cell.body());
        match message.command() {
            RelayCmd::EXTENDED2 => {
                let reply = Extended2::decode(message.data()?)?;
                ensure!(
                    reply.data == answer(number),
                    "the target mixed up the answers of next hops"
                );
                self.circuit(number)?.build = None;
                self.on_built(number)
            }
            RelayCmd::TRUNCATED => {
                let reason = Truncated::decode(message.data()?)?.reason;
                Err(self.refused_extension(hop, reason))
            }
            RelayCmd::DROP => Ok(()),
            other => bail!("the target sent {other} instead of EXTENDED2"),
        }
    }

    /// A pipe has brought back the cell that opens a circuit.
    pub(super) fn on_announced(&mut self, number: usize) -> Result<()> {
        self.circuit(number)?.build = None;
        self.on_built(number)
    }

    fn on_built(&mut self, number: usize) -> Result<()> {
        self.built += 1;
        self.events += 1;
        self.enter_mix(number)
    }

    /// The target destroyed a circuit.
    pub(super) fn on_destroy(&mut self, number: Option<usize>, cell: CellView<'_>) -> Result<()> {
        let [reason, ..] = *cell.body();
        let reason = DestroyReason(reason);
        let Some(circuit) = number.and_then(|number| self.circuits.get(number)) else {
            // Of a circuit that has ended here already.
            return Ok(());
        };
        match circuit.build.as_deref() {
            Some(Build::Creating(_)) => bail!(
                "the target refused CREATE2 (reason {reason}): the ntor onion key may not be its current one"
            ),
            Some(_) => Err(self.refused_extension(circuit.hop, reason)),
            None => bail!(
                "the target ended a circuit after {} cells up and {} down (reason {reason})",
                circuit.up.arrived,
                circuit.down.arrived
            ),
        }
    }

    fn refused_extension(&self, hop: usize, reason: DestroyReason) -> anyhow::Error {
        let address = self.hops.get(hop).map(|hop| hop.address.to_string());
        anyhow!(
            "the target refused to extend a circuit to {} (reason {reason}): a relay extends to such \
             an address only with ExtendAllowPrivateAddresses 1; Arti's has no such option, and \
             needs another --own-address (docs/measuring.md)",
            address.unwrap_or_default()
        )
    }
}

/// The circuit that an id on a link of ours means.
pub(super) fn number_of(id: u32) -> Result<usize> {
    let number = (id & (NUMBERS - 1)).checked_sub(1);
    let number = number.with_context(|| format!("circuit id {id:#x} is none of ours"))?;
    Ok(usize::try_from(number)?)
}

const MARK: [u8; 8] = *b"weft lab";

/// The onionskin of circuit `number` for our own relay.
fn onionskin(number: usize) -> [u8; NTOR_HANDSHAKE_LEN] {
    let mut bytes = [0; NTOR_HANDSHAKE_LEN];
    bytes[..8].copy_from_slice(&MARK);
    bytes[8..16].copy_from_slice(&(number as u64).to_be_bytes());
    bytes
}

/// Number of the circuit of such an onionskin.
fn circuit_of(onionskin: &[u8]) -> Option<usize> {
    let (mark, rest) = onionskin.split_first_chunk::<8>()?;
    let (number, _) = rest.split_first_chunk::<8>()?;
    (*mark == MARK)
        .then(|| u64::from_be_bytes(*number))?
        .try_into()
        .ok()
}

/// Our relay's answer to it.
fn answer(number: usize) -> [u8; ntor::REPLY_LEN] {
    let mut bytes = [0; ntor::REPLY_LEN];
    bytes[..8].copy_from_slice(&(number as u64).to_be_bytes());
    bytes
}
