//! Relay messages of a hostile node's own making, for tests of what honest nodes do about them: it has the keys of circuits that
//! begin or end at it, or pass through it, and sends on them what it likes.

use std::time::Instant;

use weft_cell::relay::{self, field};
use weft_cell::{ChanCmd, RelayCmd};

use super::LocalConnectionManager;
use super::audit::Inspection;
use crate::address::{ConnectionId, HalfAddr, HopIndex};
use crate::circuit::half::Role;

/// A circuit of which this node has keys.
#[derive(Clone, Debug)]
pub struct Keyed {
    /// The half that has them.
    pub half: HalfAddr,
    /// Its link.
    pub connection: ConnectionId,
    /// Its circuit id there.
    pub circ_id: u32,
    /// Nodes that it can send to: the hops of a circuit that begins here, otherwise the origin alone.
    pub hops: usize,
    /// The circuit begins here.
    pub is_origin: bool,
    /// Its streams.
    pub streams: Vec<u16>,
    /// Cells that its queue still takes.
    pub room: usize,
}

/// A relay message that no state machine has asked for.
#[derive(Clone, Debug)]
pub struct Injected {
    /// Its command.
    pub command: RelayCmd,
    /// Its stream.
    pub stream: u16,
    /// Its data.
    pub data: Vec<u8>,
    /// The length that it claims to have, if that is not its own.
    pub length: Option<u16>,
    /// It is in a RELAY_EARLY cell.
    pub early: bool,
    /// The circuit's window counts it, so that the far end's SENDMEs for it are expected.
    pub counted: bool,
}

impl<'a> Inspection<'a> {
    /// The circuits of which this node has keys.
    pub fn keyed(self) -> impl Iterator<Item = Keyed> + 'a {
        let path = &self.manager.path;
        path.halves.iter().filter_map(move |(slot, half)| {
            let (hops, is_origin, bound) = match &half.role {
                Role::Origin(origin) => (origin.crypt.len(), true, path.params.max_queue_forward),
                Role::Backward(backward) => {
                    backward.crypt.as_ref()?;
                    (1, false, path.params.max_queue_backward)
                }
                Role::Forward(_) | Role::Tunnel(_) => return None,
            };
            let addr = path.halves.addr(slot)?;
            let connection = path.links.get(half.link)?.connection;
            let streams = half.streams().into_iter();
            (hops > 0).then(|| Keyed {
                half: addr,
                connection,
                circ_id: half.circ_id,
                hops,
                is_origin,
                streams: streams.flat_map(|s| s.iter()).map(|(id, _)| id).collect(),
                room: bound.saturating_sub(half.queue.len()),
            })
        })
    }
}

impl LocalConnectionManager {
    /// Seals a message for a hop, and puts it in the circuit's queue behind what is there. False: the circuit has closed, is full, or has
    /// no such hop, or its encryption cannot encode the message.
    pub fn inject(
        &mut self,
        half: HalfAddr,
        hop: HopIndex,
        message: &Injected,
        now: Instant,
    ) -> bool {
        let command = match message.early {
            true => ChanCmd::RELAY_EARLY,
            false => ChanCmd::RELAY,
        };
        let mut cell = self.path.pool.blank(0, command);
        let stream = message.stream;
        let body = cell.body_mut();
        let encoded = relay::encode(
            body,
            message.command,
            stream,
            &message.data,
            &mut self.path.rng,
        );
        if let (Some(length), Some(field)) = (message.length, body.get_mut(field::LENGTH)) {
            field.copy_from_slice(&length.to_be_bytes());
        }
        let slot = self.path.halves.slot(half);
        let (forward, backward) = (
            self.path.params.max_queue_forward,
            self.path.params.max_queue_backward,
        );
        let sealed = match self.path.halves.get_mut(slot) {
            Some(half) => match &mut half.role {
                Role::Origin(origin) if half.queue.len() < forward => {
                    (origin.crypt.encrypt_forward(hop.index(), command, body)).is_ok()
                }
                Role::Backward(keys) if half.queue.len() < backward => (keys.crypt.as_mut())
                    .is_some_and(|crypt| crypt.originate_backward(body).is_ok()),
                Role::Origin(_) | Role::Backward(_) | Role::Forward(_) | Role::Tunnel(_) => false,
            },
            None => false,
        };
        if encoded.is_err() || !sealed {
            self.path.pool.put(cell);
            return false;
        }
        self.path.enqueue(slot, cell, now);
        if message.counted {
            self.path.note_counted(slot, hop, now);
        }
        self.settle(now);
        true
    }
}
