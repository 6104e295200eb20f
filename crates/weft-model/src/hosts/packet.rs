//! Packets between hosts.

use crate::hosts::connection::End;
use crate::hosts::socket::ConnId;
use crate::hosts::tcp::{Ack, Segment};

/// IP and TCP headers with the timestamp option.
const HEADERS: u32 = 52;

/// Type and content of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Syn(u16),
    SynAck,
    Data(Segment),
    Ack(Ack),
    Reset,
}

/// A packet of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub(crate) conn: ConnId,
    pub(crate) to: End,
    pub(crate) kind: Kind,
}

impl Packet {
    /// Bytes on the line.
    pub(crate) fn length(&self) -> u32 {
        match self.kind {
            Kind::Data(segment) => segment.length + HEADERS,
            Kind::Syn(_) | Kind::SynAck | Kind::Ack(_) | Kind::Reset => HEADERS,
        }
    }
}
