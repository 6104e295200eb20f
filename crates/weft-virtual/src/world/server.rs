//! Destinations: the other ends of users' streams.

use std::collections::BTreeSet;

use slab::Slab;
use weft_model::hosts::{ConnId, End, HostId};
use weft_model::traffic::ServerStream;

use super::ground::{Ground, News, Owner, Wake};

/// A stream's end.
#[derive(Debug)]
struct Stream {
    conn: ConnId,
    host: Option<HostId>,
    traffic: ServerStream,
    /// When more of it is due, in nanoseconds.
    timer: Option<u64>,
}

/// All streams of all destinations.
#[derive(Debug, Default)]
pub(super) struct Servers {
    streams: Slab<Stream>,
    /// Hosts whose destinations read nothing.
    deaf: BTreeSet<HostId>,
    buffer: Vec<u8>,
}

impl Servers {
    /// A connection came.
    pub(super) fn accept(&mut self, conn: ConnId, ground: &mut Ground) {
        let place = self.streams.insert(Stream {
            conn,
            host: ground.net.host_of(conn, End::Accepter),
            traffic: ServerStream::default(),
            timer: None,
        });
        let place = u32::try_from(place).unwrap_or(u32::MAX);
        ground.own(conn, End::Accepter, Owner::Server { place });
    }

    /// Something has happened to a stream's connection.
    pub(super) fn note(&mut self, place: u32, news: News, ground: &mut Ground) {
        match news {
            News::Readable => self.read(place, ground),
            News::Writable | News::Connected => self.write(place, ground),
            News::Broken => {
                self.streams.try_remove(place as usize);
            }
        }
    }

    /// Open streams.
    pub(super) fn count(&self) -> usize {
        self.streams.len()
    }

    /// The connection of an open stream.
    pub(super) fn conn(&self, place: u32) -> Option<ConnId> {
        Some(self.streams.get(place as usize)?.conn)
    }

    /// Stops the destinations of a host from reading, or lets them read again.
    pub(super) fn set_deaf(&mut self, host: HostId, is_deaf: bool, ground: &mut Ground) {
        if is_deaf {
            self.deaf.insert(host);
        } else if self.deaf.remove(&host) {
            let streams = self.streams.iter().zip(std::iter::repeat(host));
            let here = streams.filter(|((_, stream), host)| stream.host == Some(*host));
            let places: Vec<usize> = here.map(|((place, _), _)| place).collect();
            for place in places {
                self.read(u32::try_from(place).unwrap_or(u32::MAX), ground);
            }
        }
    }

    /// More of a stream may be due.
    pub(super) fn on_timer(&mut self, place: u32, ground: &mut Ground) {
        if let Some(stream) = self.streams.get_mut(place as usize)
            && stream.timer.is_some_and(|at| at <= ground.nanos())
        {
            stream.timer = None;
            self.write(place, ground);
        }
    }

    fn read(&mut self, place: u32, ground: &mut Ground) {
        let Some(stream) = self.streams.get_mut(place as usize) else {
            return;
        };
        if !self.deaf.is_empty() && stream.host.is_some_and(|host| self.deaf.contains(&host)) {
            return;
        }
        self.buffer.clear();
        let (conn, buffer) = (stream.conn, &mut self.buffer);
        let is_over = ground.net.read(conn, End::Accepter, usize::MAX, |piece| {
            buffer.extend_from_slice(piece)
        });
        let result = stream.traffic.receive(buffer, ground.elapsed());
        if is_over || result.is_err() {
            ground.net.close(conn, End::Accepter);
            self.streams.remove(place as usize);
            return;
        }
        self.write(place, ground);
    }

    fn write(&mut self, place: u32, ground: &mut Ground) {
        let elapsed = ground.elapsed();
        let Some(stream) = self.streams.get_mut(place as usize) else {
            return;
        };
        loop {
            let out = stream.traffic.output(elapsed);
            if out.is_empty() {
                break;
            }
            let count = out.len();
            let taken = ground.net.write(stream.conn, End::Accepter, out);
            stream.traffic.sent(taken);
            if taken < count {
                // The network says when there is room.
                return;
            }
        }
        let next = stream.traffic.next_time();
        let next = next.map(|at| u64::try_from(at.as_nanos()).unwrap_or(u64::MAX));
        if let Some(at) = next
            && stream.timer.is_none_or(|armed| at < armed)
        {
            stream.timer = Some(at);
            ground.wake(at, Wake::Server { place });
        }
    }
}
