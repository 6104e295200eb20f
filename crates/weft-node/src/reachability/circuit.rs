//! A circuit that begins here, on a separate link, and is built hop by hop: CREATE_FAST to the
//! first relay, EXTEND2 with ntor to each other (tor-spec 5.1, 5.3).

use std::net::SocketAddr;

use rand::CryptoRng;
use weft_cell::circ_msg::{
    CircMsgError, CreateReply, CreateRequest, Extend2, Extended2, Truncated, handshake_type,
};
use weft_cell::identity::{Ed25519Identity, RsaIdentity};
use weft_cell::reason::DestroyReason;
use weft_cell::relay::{self, RelayBody};
use weft_cell::stream_msg::Seen;
use weft_cell::{Cell, ChanCmd, RelayCmd};
use weft_crypto::circuit::OriginCircuit;
use weft_crypto::handshake::{HandshakeError, fast, ntor};
use weft_dir::circuits::Hop;

use super::error::LinkFault;
use super::link::Link;

/// A relay that a circuit is extended to.
#[derive(Clone, Copy, Debug)]
pub(super) struct NextHop {
    pub(super) addr: SocketAddr,
    /// SHA-1 of its RSA identity key.
    pub(super) rsa: RsaIdentity,
    pub(super) ed25519: Option<Ed25519Identity>,
    pub(super) ntor: [u8; 32],
}

impl From<&Hop> for NextHop {
    fn from(hop: &Hop) -> Self {
        NextHop {
            addr: hop.addr,
            rsa: hop.rsa.into(),
            ed25519: hop.ed25519.map(Ed25519Identity::from),
            ntor: hop.ntor,
        }
    }
}

/// An EXTEND2 that was not sent yet.
pub(super) struct Extension {
    onionskin: ntor::ClientState,
    data: Vec<u8>,
}

impl Extension {
    /// One to this relay.
    pub(super) fn to(hop: &NextHop, rng: &mut impl CryptoRng) -> Result<Self, CircMsgError> {
        let onionskin = ntor::ClientState::start(&hop.rsa, &hop.ntor, rng);
        let (ipv4, ipv6) = match hop.addr {
            SocketAddr::V4(addr) => (Some(addr), None),
            SocketAddr::V6(addr) => (None, Some(addr)),
        };
        let extend2 = Extend2 {
            ipv4,
            ipv6,
            rsa: Some(hop.rsa),
            ed25519: hop.ed25519,
            link_specifiers: Vec::new(),
            handshake_type: handshake_type::NTOR,
            handshake: onionskin.onionskin().to_vec(),
        };
        let data = extend2.encode()?;
        Ok(Self { onionskin, data })
    }
}

/// Why a circuit has not become longer.
pub(super) enum NotExtended {
    /// DESTROY from a relay of the circuit, or TRUNCATED with the reason that the next hop sent.
    Refused {
        reason: DestroyReason,
        truncated: bool,
    },
    /// Who answered does not have the onion key.
    Handshake(HandshakeError),
    /// The link or the circuit failed.
    Fault(LinkFault),
}

impl<E: Into<LinkFault>> From<E> for NotExtended {
    fn from(error: E) -> Self {
        Self::Fault(error.into())
    }
}

/// A circuit.
pub(super) struct Circuit {
    link: Link,
    id: u32,
    crypt: OriginCircuit,
    /// The number of the last hop; the first is 0.
    last: usize,
}

impl Circuit {
    /// A circuit with one hop, which is the other end of this link.
    pub(super) fn create(mut link: Link, rng: &mut impl CryptoRng) -> Result<Self, LinkFault> {
        let handshake = fast::ClientState::start(rng);
        let request = CreateRequest::Fast { x: *handshake.x() };
        let id = circuit_id(rng);
        link.send_cell(&request.encode(id)?)?;
        let cell = next_cell(&mut link, id)?;
        if let Some(reason) = destroyed(&cell) {
            return Err(LinkFault::Destroyed(reason));
        }
        let keys = match CreateReply::decode(cell.command(), cell.body())? {
            CreateReply::Fast { y, kh } => handshake.finish(&y, &kh)?,
            CreateReply::Created2 { .. } => return Err(unexpected(cell.command())),
        };
        let mut crypt = OriginCircuit::new();
        crypt.add_hop(&keys.into());
        Ok(Self {
            link,
            id,
            crypt,
            last: 0,
        })
    }

    /// Makes it one hop longer.
    pub(super) fn extend(
        &mut self,
        extension: Extension,
        rng: &mut impl CryptoRng,
    ) -> Result<(), NotExtended> {
        let Extension { onionskin, data } = extension;
        self.send((ChanCmd::RELAY_EARLY, RelayCmd::EXTEND2), 0, &data, rng)?;
        let reply = loop {
            let mut cell = next_cell(&mut self.link, self.id)?;
            if let Some(reason) = destroyed(&cell) {
                let truncated = false;
                return Err(NotExtended::Refused { reason, truncated });
            }
            if cell.command() != ChanCmd::RELAY {
                return Err(unexpected(cell.command()).into());
            }
            if self.crypt.decrypt_backward(cell.body_mut()).is_none() {
                return Err(LinkFault::Unrecognized.into());
            }
            let message = RelayBody::new(cell.body());
            match message.command() {
                RelayCmd::EXTENDED2 => break Extended2::decode(message.data()?)?.data,
                RelayCmd::TRUNCATED => {
                    let reason = Truncated::decode(message.data()?)?.reason;
                    let truncated = true;
                    return Err(NotExtended::Refused { reason, truncated });
                }
                // Padding.
                RelayCmd::DROP => {}
                other => return Err(LinkFault::Unexpected(format!("relay message {other}")).into()),
            }
        };
        let keys = onionskin.finish(&reply).map_err(NotExtended::Handshake)?;
        self.crypt.add_hop(&keys.into());
        self.last += 1;
        Ok(())
    }

    /// Sends a message to the last hop.
    pub(super) fn send(
        &mut self,
        (cell, message): (ChanCmd, RelayCmd),
        stream: u16,
        data: &[u8],
        rng: &mut impl CryptoRng,
    ) -> Result<(), LinkFault> {
        let mut cell = Cell::new(self.id, cell);
        relay::encode(cell.body_mut(), message, stream, data, rng)?;
        self.crypt
            .encrypt_forward(self.last, cell.command(), cell.body_mut())?;
        self.link.send_cell(&cell)
    }

    /// The next message of the last hop.
    pub(super) fn next_message(&mut self) -> Result<Cell, LinkFault> {
        loop {
            let mut cell = next_cell(&mut self.link, self.id)?;
            if let Some(reason) = destroyed(&cell) {
                return Err(LinkFault::Destroyed(reason));
            }
            if cell.command() != ChanCmd::RELAY {
                continue;
            }
            if self.crypt.decrypt_backward(cell.body_mut()) != Some(self.last) {
                return Err(LinkFault::Unrecognized);
            }
            return Ok(cell);
        }
    }

    /// Digest that a SENDME for the last message must carry.
    pub(super) fn seen(&self) -> Option<Seen> {
        self.crypt.received(self.last)
    }

    /// The number of the last hop; the first is 1.
    pub(super) fn hops(&self) -> usize {
        self.last + 1
    }

    /// Closes it and its link. With a DESTROY all relays forget it at once. An origin sends no reason but NONE.
    pub(super) fn close(mut self) {
        let _ = self.link.send_cell(&Cell::new(self.id, ChanCmd::DESTROY));
        self.link.close();
    }
}

/// A random circuit id with the bit of the link's initiator set (tor-spec 5.1.1).
fn circuit_id(rng: &mut impl CryptoRng) -> u32 {
    let mut bytes = [0; 4];
    rng.fill_bytes(&mut bytes);
    u32::from_be_bytes(bytes) | 1 << 31
}

/// The next cell of the circuit. Padding and cells of circuits that do not exist are skipped.
fn next_cell(link: &mut Link, circ_id: u32) -> Result<Cell, LinkFault> {
    loop {
        let cell = link.next_cell()?;
        if cell.circ_id() == circ_id {
            return Ok(cell);
        }
    }
}

/// The reason of a DESTROY cell; `None` for other cells.
fn destroyed(cell: &Cell) -> Option<DestroyReason> {
    let [reason, ..] = *cell.body();
    (cell.command() == ChanCmd::DESTROY).then_some(DestroyReason(reason))
}

fn unexpected(command: ChanCmd) -> LinkFault {
    LinkFault::Unexpected(format!("cell {command}"))
}
