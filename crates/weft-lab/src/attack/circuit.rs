//! Circuits as their client knows them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rand_chacha::ChaCha12Rng;
use weft_cell::circ_msg::{CreateReply, CreateRequest, Extend2, handshake_type};
use weft_cell::identity::{Ed25519Identity, RsaIdentity};
use weft_cell::reason::DestroyReason;
use weft_cell::relay::{self, RelayBody};
use weft_cell::stream_msg::Sendme;
use weft_cell::{Cell, ChanCmd, RelayCmd};
use weft_crypto::circuit::{HopKeys, OriginCircuit};
use weft_crypto::handshake::{fast, ntor};

use super::peer::{PATIENCE, Peer};
use crate::relay::aim::Aim;

/// The bit of circuit ids that a link's initiator chooses (tor-spec 5.1.1).
pub(super) const INITIATOR: u32 = 1 << 31;
/// DATA cells that may be on their way without a circuit SENDME, under fixed windows (tor-spec 7.3).
const CIRCUIT_WINDOW: i32 = 1000;
/// DATA cells that one circuit SENDME acknowledges.
const CIRCUIT_INCREMENT: i32 = 100;

/// A relay message that came to us.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) command: RelayCmd,
    pub(super) stream: u16,
    pub(super) data: Vec<u8>,
}

/// A circuit of one hop or two, under fixed windows.
pub(super) struct Circuit {
    pub(super) id: u32,
    pub(super) crypt: OriginCircuit,
    /// DATA cells that may still be sent.
    pub(super) window: i32,
    /// DATA cells received since the last circuit SENDME was sent.
    unacknowledged: i32,
    /// True if it sends circuit SENDMEs.
    pub(super) acknowledges: bool,
}

impl Circuit {
    fn new(id: u32, crypt: OriginCircuit) -> Circuit {
        Circuit {
            id,
            crypt,
            window: CIRCUIT_WINDOW,
            unacknowledged: 0,
            acknowledges: true,
        }
    }

    /// A circuit of one hop whose handshake left these keys.
    pub(super) fn made(id: u32, keys: &HopKeys) -> Circuit {
        let mut crypt = OriginCircuit::new();
        crypt.add_hop(keys);
        Circuit::new(id, crypt)
    }

    /// CREATE_FAST and its answer: costs neither side public-key cryptography.
    pub(super) fn create_fast(peer: &mut Peer, id: u32) -> Result<Circuit> {
        Circuit::create_fast_as(peer, id | INITIATOR)
    }

    /// Makes one with exactly this circuit id. The side that did not open the link leaves the upper bit unset (tor-spec 5.1.1).
    pub(super) fn create_fast_as(peer: &mut Peer, id: u32) -> Result<Circuit> {
        let state = fast::ClientState::start(&mut peer.rng);
        peer.queue(CreateRequest::Fast { x: *state.x() }.encode(id)?.as_bytes())?;
        let cell = answer(peer, id)?;
        let CreateReply::Fast { y, kh } = CreateReply::decode(cell.command(), cell.body())? else {
            bail!("the target answered CREATE_FAST with {}", cell.command());
        };
        Ok(Circuit::made(id, &state.finish(&y, &kh)?.into()))
    }

    /// CREATE2 by ntor and its answer.
    pub(super) fn create_ntor(peer: &mut Peer, id: u32, aim: &Aim) -> Result<Circuit> {
        let id = id | INITIATOR;
        let state = ntor::ClientState::start(&aim.rsa, &aim.ntor, &mut peer.rng);
        peer.queue(create2(id, &state.onionskin())?.as_bytes())?;
        let cell = answer(peer, id)?;
        let CreateReply::Created2 { data } = CreateReply::decode(cell.command(), cell.body())?
        else {
            bail!("the target answered CREATE2 with {}", cell.command());
        };
        Ok(Circuit::made(id, &state.finish(&data)?.into()))
    }

    /// A relay cell for the target, which is the first hop.
    pub(super) fn cell(
        &mut self,
        command: RelayCmd,
        stream: u16,
        data: &[u8],
        rng: &mut ChaCha12Rng,
    ) -> Result<Cell> {
        let outer = match command {
            RelayCmd::EXTEND2 => ChanCmd::RELAY_EARLY,
            _ => ChanCmd::RELAY,
        };
        let mut cell = Cell::new(self.id, outer);
        relay::encode(cell.body_mut(), command, stream, data, rng)?;
        self.crypt.encrypt_forward(0, outer, cell.body_mut())?;
        if command == RelayCmd::DATA {
            self.window -= 1;
        }
        Ok(cell)
    }

    /// Queues a relay message for the target.
    pub(super) fn send(
        &mut self,
        peer: &mut Peer,
        command: RelayCmd,
        stream: u16,
        data: &[u8],
    ) -> Result<()> {
        let cell = self.cell(command, stream, data, &mut peer.rng)?;
        peer.queue(cell.as_bytes())
    }

    /// Reads a cell of this circuit. Acknowledges DATA if the circuit does so.
    ///
    /// # Errors
    ///
    /// The target has destroyed the circuit, or sent what no hop has encrypted.
    pub(super) fn receive(&mut self, peer: &mut Peer, mut cell: Cell) -> Result<Message> {
        match cell.command() {
            ChanCmd::RELAY => {}
            ChanCmd::DESTROY => {
                let [reason, ..] = *cell.body();
                bail!("the target closed the circuit: {}", DestroyReason(reason));
            }
            other => bail!("the target sent {other} on a circuit"),
        }
        let hop = self.crypt.decrypt_backward(cell.body_mut());
        let hop = hop.context("the target sent a relay cell that no hop encrypted")?;
        let body = RelayBody::new(cell.body());
        let message = Message {
            command: body.command(),
            stream: body.stream_id(),
            data: body.data()?.to_vec(),
        };
        match (message.command, message.stream) {
            (RelayCmd::SENDME, 0) => self.window += CIRCUIT_INCREMENT,
            (RelayCmd::DATA, _) => {
                self.unacknowledged += 1;
                if self.unacknowledged == CIRCUIT_INCREMENT {
                    self.unacknowledged = 0;
                    if self.acknowledges {
                        let sendme = Sendme {
                            version: 1,
                            seen: self.crypt.received(hop),
                        };
                        self.send(peer, RelayCmd::SENDME, 0, &sendme.encode())?;
                    }
                }
            }
            _ => {}
        }
        Ok(message)
    }

    /// The next message on this circuit, the only one on its link that is of interest.
    pub(super) fn next(&mut self, peer: &mut Peer, deadline: Instant) -> Result<Message> {
        loop {
            let cell = peer.wait_cell(deadline)?;
            if cell.circ_id() == self.id {
                return self.receive(peer, cell);
            }
        }
    }

    /// Reads all that has come, without waiting; each message on this circuit is given to `each`.
    pub(super) fn drain(&mut self, peer: &mut Peer, each: &mut dyn FnMut(Message)) -> Result<()> {
        peer.pump(Duration::ZERO)?;
        while let Some(cell) = peer.next_cell()? {
            if cell.circ_id() == self.id {
                each(self.receive(peer, cell)?);
            }
        }
        Ok(())
    }
}

/// The answer to the cell that creates circuit `id`.
fn answer(peer: &mut Peer, id: u32) -> Result<Cell> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let cell = peer.wait_cell(deadline)?;
        if cell.circ_id() == id {
            ensure!(
                cell.command() != ChanCmd::DESTROY,
                "the target refused a circuit: {}",
                DestroyReason(cell.body()[0])
            );
            return Ok(cell);
        }
    }
}

/// A CREATE2 cell for ntor.
pub(super) fn create2(id: u32, onionskin: &[u8]) -> Result<Cell> {
    let request = CreateRequest::Create2 {
        handshake_type: handshake_type::NTOR,
        data: onionskin.to_vec(),
    };
    Ok(request.encode(id)?)
}

/// EXTEND2's data: to the relay of these identities at this address.
pub(super) fn extend2(
    rsa: RsaIdentity,
    ed25519: Ed25519Identity,
    at: SocketAddr,
    onionskin: &[u8],
) -> Result<Vec<u8>> {
    let SocketAddr::V4(at) = at else {
        bail!("{at} is no IPv4 address");
    };
    let message = Extend2 {
        ipv4: Some(at),
        rsa: Some(rsa),
        ed25519: Some(ed25519),
        handshake_type: handshake_type::NTOR,
        handshake: onionskin.to_vec(),
        ..Extend2::default()
    };
    Ok(message.encode()?)
}

/// BEGIN's data for an address.
pub(super) fn begin(to: SocketAddr) -> Vec<u8> {
    format!("{to}\0\0\0\0\0").into_bytes()
}
