//! Calls on sockets: write, read, close, reset, and the kernel's information about them.

use std::time::Duration;

use crate::hosts::connection::{End, HostId, MSS};
use crate::hosts::net::Net;
use crate::hosts::packet::{Kind, Packet};
use crate::hosts::socket::{ConnId, Socket};

impl Net {
    /// Gives an end bytes to be sent; how many it took. After less than all, [`Happening::Writable`](crate::hosts::Happening::Writable) follows.
    pub fn write(&mut self, conn: ConnId, end: End, bytes: &[u8]) -> usize {
        self.write_some(conn, end, bytes.len(), |count| {
            bytes.get(..count).unwrap_or_default().to_vec()
        })
    }

    /// Writes like [`Net::write`], and drains the written bytes from `bytes`: without a copy if
    /// that is all of them.
    pub fn write_from(&mut self, conn: ConnId, end: End, bytes: &mut Vec<u8>) -> usize {
        let length = bytes.len();
        self.write_some(conn, end, length, |count| match count == length {
            true => std::mem::take(bytes),
            false => bytes.drain(..count).collect(),
        })
    }

    /// Of `length` bytes, as many as an end takes, which `give` gives.
    fn write_some(
        &mut self,
        conn: ConnId,
        end: End,
        length: usize,
        give: impl FnOnce(usize) -> Vec<u8>,
    ) -> usize {
        let now = self.now().nanos();
        let Some(direction) = self.direction(conn, end) else {
            return 0;
        };
        if direction.ended {
            return 0;
        }
        let room = usize::try_from(direction.room()).unwrap_or(usize::MAX);
        let count = room.min(length);
        direction.refused |= count < length;
        direction.bytes.push(give(count));
        direction.written += count as u64;
        direction.sender.write(now, count as u64);
        self.pump(conn, end);
        count
    }

    /// Bytes that an end accepts now.
    pub fn room(&mut self, conn: ConnId, end: End) -> usize {
        let direction = self.direction(conn, end);
        direction.map_or(0, |one| usize::try_from(one.room()).unwrap_or(usize::MAX))
    }

    /// Takes up to `most` bytes that have come to an end, and hands them to `take`, in pieces. True: the other end
    /// sends no more. None of the end's bytes may be held.
    pub fn read(&mut self, conn: ConnId, end: End, most: usize, take: impl FnMut(&[u8])) -> bool {
        let (count, is_over) = self.hold(conn, end, most);
        if let Some(direction) = self.direction(conn, end.other()) {
            direction.bytes.take(count, take);
        }
        is_over
    }

    /// Reads up to `most` bytes that have come to an end, which are held in place until [`release`](Self::release): how many,
    /// and whether the other end sends no more.
    pub fn hold(&mut self, conn: ConnId, end: End, most: usize) -> (usize, bool) {
        let now = self.now().nanos();
        let Some(direction) = self.direction(conn, end.other()) else {
            return (0, true);
        };
        let count = direction.readable().min(most);
        direction.bytes.hold(count);
        let trip = direction.sender.round_trip();
        let ack = direction.receiver.consume(now, count as u64, trip);
        let is_over = direction.is_over();
        direction.told = direction.readable() > 0;
        if let Some(ack) = ack {
            self.send(Packet {
                conn,
                to: end.other(),
                kind: Kind::Ack(ack),
            });
        }
        (count, is_over)
    }

    /// The first `wanted` bytes that an end holds; none if it holds fewer.
    pub fn held(&mut self, conn: ConnId, end: End, wanted: usize) -> &[u8] {
        match self.direction(conn, end.other()) {
            Some(direction) => direction.bytes.first(wanted),
            None => &[],
        }
    }

    /// An end releases the first `count` bytes that it holds.
    pub fn release(&mut self, conn: ConnId, end: End, count: usize) {
        if let Some(direction) = self.direction(conn, end.other()) {
            direction.bytes.release(count);
        }
    }

    /// An end closes: it writes and reads no more, but bytes that it wrote are still sent. The
    /// connection is freed when both have closed.
    pub fn close(&mut self, conn: ConnId, end: End) {
        let now = self.now().nanos();
        let Some(connection) = self.connection(conn) else {
            return;
        };
        *connection.is_closed.of_mut(end) = true;
        let direction = connection.directions.of_mut(end);
        if !direction.ended {
            direction.ended = true;
            direction.sender.write(now, 1);
        }
        self.pump(conn, end);
        self.forget_if_done(conn);
    }

    /// An end drops the connection and all bytes under way; the other end gets a reset.
    pub fn reset(&mut self, conn: ConnId, end: End) {
        if self.connection(conn).is_some() {
            self.send_reset(conn, end);
            if let Some(connection) = self.connection(conn) {
                *connection.is_closed.of_mut(end) = true;
                *connection.is_gone.of_mut(end) = true;
            }
            self.forget_if_done(conn);
        }
    }

    /// The kernel's information about an end's socket.
    pub fn socket(&mut self, conn: ConnId, end: End) -> Option<Socket> {
        let connection = self.connection(conn)?;
        let sender = &connection.directions.of(end).sender;
        let receiver = &connection.directions.of(end.other()).receiver;
        Some(Socket {
            window: sender.window(),
            mss: MSS,
            unacknowledged: sender.unacknowledged(),
            unsent: sender.unsent(),
            round_trip: Duration::from_nanos(sender.round_trip()),
            sent: sender.sent(),
            out_of_order: receiver.out_of_order(),
        })
    }

    /// The host of an end.
    pub fn host_of(&mut self, conn: ConnId, end: End) -> Option<HostId> {
        Some(*self.connection(conn)?.hosts.of(end))
    }

    /// Every connection with the ends that have not closed: the opener's, the accepter's.
    pub fn connections(&self) -> impl Iterator<Item = (ConnId, [bool; 2])> + '_ {
        (0..)
            .zip(&self.connections)
            .filter_map(|(index, connection)| {
                let connection = connection.as_ref()?;
                let generation = connection.generation;
                let lives = [
                    !connection.is_closed.opener,
                    connection.is_open.accepter && !connection.is_closed.accepter,
                ];
                Some((ConnId { index, generation }, lives))
            })
    }

    /// Something has happened that [`Net::next`] has not returned yet.
    pub fn has_happened(&self) -> bool {
        !self.happened.is_empty()
    }

    /// Returns true if the connection exists, as far as one end knows.
    pub fn knows(&self, conn: ConnId) -> bool {
        self.hosts_of(conn).is_some()
    }

    /// The hosts of a connection: the opener's, the accepter's.
    pub fn hosts_of(&self, conn: ConnId) -> Option<[HostId; 2]> {
        let connection = self.connections.get(conn.index())?.as_ref()?;
        let hosts = connection.hosts;
        (connection.generation == conn.generation).then_some([hosts.opener, hosts.accepter])
    }
}
