//! A far end that does anything, by bytes: for a fuzzer and for seeded tests.
//!
//! Input: a byte for the side to play and the protocol that joins the legs, then operations, each a
//! byte and its arguments, as [`Play::operate`] reads them. Missing bytes at the end are zero.
//!
//! After each operation the node's tables fit together. In the end the circuits of others are open and work; when all circuits have
//! closed nothing is left of them, no memory either.

use std::time::Duration;

use weft_cell::RelayCmd;
use weft_cell::conflux_msg::{DesiredUx, Link, Switch};
use weft_cell::mtor_msg::{
    Join, Joined, MtorAck, MtorDrop, MtorStopped, Multipath, MultipathAck, SequenceNumber, TunnelId,
};
use weft_cell::reason::{DestroyReason, EndReason};
use weft_cell::relay_command::RelayCommand;
use weft_cell::stream_msg::Sendme;
use weft_core::message::Totals;
use weft_core::origin::{OriginCommand, OriginId};

use super::{FarEnd, Kind, NONCE, SECRET, Side, TUNNEL, TUNNEL_ID};

/// Operations of one input at most, so that none takes long.
const MAX_OPERATIONS: usize = 400;
/// Circuits that the input may make.
const MAX_LEGS: usize = 18;
/// Streams that the input may open at an origin.
const MAX_STREAMS: usize = 8;

/// Bytes that are read one by one; behind the last they are zero.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound.max(1)
    }

    fn data(&mut self) -> Vec<u8> {
        let length = usize::from(self.byte()).min(self.0.len());
        let (data, rest) = self.0.split_at(length);
        self.0 = rest;
        data.to_vec()
    }
}

/// Plays an input: what the node counted.
pub fn play(input: &[u8]) -> Totals {
    let mut input = Input(input);
    let mut play = Play::new(input.byte());
    for _ in 0..MAX_OPERATIONS {
        if input.0.is_empty() {
            break;
        }
        play.operate(&mut input);
        play.far.collect();
        play.far.world.audit();
    }
    let totals = play.far.world.totals();
    play.end();
    totals
}

/// A far end, and a circuit of another client through the same node.
struct Play {
    far: FarEnd,
    /// The number of the other circuit, and its stream's.
    other: (usize, u16),
}

impl Play {
    fn new(how: u8) -> Self {
        let side = match how & 1 {
            0 => Side::Client,
            _ => Side::Exit,
        };
        let kind = match how & 2 {
            0 => Kind::Mtor,
            _ => Kind::Conflux,
        };
        let vegas = how & 4 == 0 || kind == Kind::Conflux;
        let threads = u16::from(how >> 3 & 3).clamp(1, 3);
        let mut far = FarEnd::new(side, kind, threads, 1, vegas);
        let other = far.add_circuit();
        let stream = match side {
            Side::Client => {
                far.send(other, RelayCmd::BEGIN, 7, b"example.com:80\0\0\0\0\0");
                7
            }
            Side::Exit => {
                far.attach(far.legs[other].circuit);
                let stream = far.opened.pop().expect("BEGIN");
                far.send(other, RelayCmd::CONNECTED, stream, &[]);
                stream
            }
        };
        far.collect();
        // The first leg is on the other circuit's link, where several may be.
        let leg = match side {
            Side::Client => far.add_circuit_on(far.legs[other].connection),
            Side::Exit => far.add_circuit(),
        };
        far.link(leg);
        far.opened.clear();
        // A tunnel in use, or one that still has to begin.
        if how & 0x20 == 0 {
            for _ in 0..how >> 6 {
                let leg = far.add_circuit();
                far.link(leg);
            }
            far.open_stream(leg);
        }
        Play {
            far,
            other: (other, stream),
        }
    }

    /// A leg, perhaps one that has closed.
    fn leg(&self, input: &mut Input<'_>) -> usize {
        1 + input.below(self.far.legs.len() - 1)
    }

    fn operate(&mut self, input: &mut Input<'_>) {
        match input.byte() % 24 {
            0 | 1 if self.far.legs.len() < MAX_LEGS => {
                let leg = self.far.add_circuit();
                self.far.link(leg);
            }
            2 if self.far.legs.len() < MAX_LEGS => {
                let leg = self.far.add_circuit();
                if self.far.side == Side::Exit {
                    self.far.ask_link(leg);
                }
            }
            3 => self.join(input),
            4..=6 => self.honest(input),
            7..=9 => self.message(input),
            10 => self.switch(input),
            11 => self.acknowledge(input),
            12 => self.drop_leg(input),
            13 | 14 => self.sendme(input),
            15 => {
                let (leg, stream) = (self.leg(input), input.byte() % 3);
                let command = RelayCmd::from(input.byte());
                let data = input.data();
                self.far.send(leg, command, stream.into(), &data);
            }
            16..=18 => self.socket(input),
            19 => (self.far).pass(Duration::from_millis(250) * u32::from(input.byte() % 64)),
            20 => {
                let leg = self.leg(input);
                self.far.destroy(leg);
            }
            21 => self.node(input),
            22 => match input.byte() % 4 {
                // A leg that sends nothing, one whose link takes nothing, and everything at once.
                0 => {
                    let leg = self.leg(input);
                    let connection = self.far.legs[leg].connection;
                    self.far.world.not_reading.push(connection);
                }
                1 => self.far.world.not_reading.clear(),
                2 => self.far.world.room = u32::from(input.byte()),
                _ => self.far.world.room = u32::MAX,
            },
            _ => {
                // Messages arrive, in an order that the input chooses.
                for _ in 0..input.byte() % 8 {
                    self.far.world.step(input.byte().into());
                }
            }
        }
    }

    /// Any message that joins circuits, or answers one.
    fn join(&mut self, input: &mut Input<'_>) {
        let (leg, how, what) = (self.leg(input), input.byte(), input.byte());
        let link = || {
            let mut nonce = NONCE;
            nonce[0] ^= what & 1;
            let desired_ux = DesiredUx::of(what >> 1 & 7).unwrap_or(DesiredUx::NoOpinion);
            Link {
                nonce,
                last_seqno_sent: u64::from(what >> 4 & 3),
                last_seqno_recv: u64::from(what >> 6),
                desired_ux,
            }
            .encode()
            .to_vec()
        };
        let mut secret = SECRET;
        secret[0] ^= what & 1;
        let known = match self.far.side {
            Side::Client => self.far.id.unwrap_or(TUNNEL_ID),
            Side::Exit => TUNNEL_ID,
        };
        let tunnel = TunnelId(known.0 ^ u32::from(what >> 1 & 1));
        let (command, data) = match how % 8 {
            0 => (RelayCommand::ConfluxLink, link()),
            1 => (RelayCommand::ConfluxLinked, link()),
            2 => (RelayCommand::ConfluxLinkedAck, Vec::new()),
            3 => (
                RelayCommand::Multipath,
                Multipath { secret }.encode().to_vec(),
            ),
            4 => (
                RelayCommand::MultipathAck,
                MultipathAck { tunnel }.encode().to_vec(),
            ),
            5 => (
                RelayCommand::Join,
                Join { tunnel, secret }.encode().to_vec(),
            ),
            _ => (RelayCommand::Joined, Joined { tunnel }.encode().to_vec()),
        };
        self.far.send(leg, command.wire(), 0, &data);
    }

    /// Messages of a stream as an honest far end sends them, all on one leg or by turns.
    fn honest(&mut self, input: &mut Input<'_>) {
        let (first, how) = (self.leg(input), input.byte());
        let stream = match self.far.side {
            Side::Client => u16::from(how & 1) + 1,
            Side::Exit => self.far.opened.last().copied().unwrap_or(1),
        };
        let opening = match self.far.side {
            Side::Client => (RelayCmd::BEGIN, &b"example.com:80\0\0\0\0\0"[..]),
            Side::Exit => (RelayCmd::CONNECTED, &b""[..]),
        };
        if how & 2 != 0 {
            self.far.say(first, opening.0, stream, opening.1);
        }
        let legs = self.far.legs.len() - 1;
        for n in 0..usize::from(how >> 3) * 4 {
            let leg = match how & 4 {
                0 => first,
                _ => 1 + (first + n) % legs,
            };
            self.far.say(leg, RelayCmd::DATA, stream, &[1; 100]);
        }
    }

    /// A message of a stream with any number, on any leg.
    fn message(&mut self, input: &mut Input<'_>) {
        let (leg, how, far) = (self.leg(input), input.byte(), input.byte());
        let near = u64::from(far);
        let number = match how % 8 {
            0 | 1 => self.far.number,
            // Ahead, which waits.
            2 => self.far.number + near,
            // As far as may be, or further.
            3 => self.far.number + 16_000 + 2 * near,
            4 => self.far.number.saturating_sub(near),
            // Before the first, which is before a wrap.
            5 => 0u64.wrapping_sub(near),
            6 => self.far.number + (1 << 31) - 128 + near,
            _ => self.far.number + (1 << 32) - 128 + near,
        };
        let stream = u16::from(how >> 3 & 3);
        let (command, data) = match how >> 5 {
            0 | 1 => (RelayCmd::DATA, vec![2; 200]),
            2 => (RelayCmd::END, vec![6]),
            3 => (RelayCmd::CONNECTED, Vec::new()),
            4 => (RelayCmd::XON, vec![0, 0, 0, 0, 9]),
            5 => (RelayCmd::XOFF, vec![0]),
            6 => (RelayCmd::BEGIN, b"a:80\0".to_vec()),
            _ => (RelayCmd::from(input.byte()), input.data()),
        };
        match self.far.kind {
            Kind::Conflux => self.far.send(leg, command, stream, &data),
            Kind::Mtor => (self.far).subdata(leg, number, command.into(), stream, &data),
        }
        if how % 8 < 2 {
            self.far.number += 1;
        }
    }

    fn switch(&mut self, input: &mut Input<'_>) {
        let (leg, how) = (self.leg(input), input.byte());
        let relative = match how & 3 {
            0 => 1,
            1 => u32::from(how),
            2 => u32::from(how) << 8,
            _ => u32::MAX - u32::from(how),
        };
        let data = Switch { relative }.encode();
        (self.far).send(leg, RelayCmd::CONFLUX_SWITCH, 0, &data);
    }

    /// MTOR_ACK with any number, perhaps many times.
    fn acknowledge(&mut self, input: &mut Input<'_>) {
        let (leg, how) = (self.leg(input), input.byte());
        let honest = self.far.next_missing();
        let next = match how & 7 {
            0..=2 => honest,
            3 => honest.wrapping_sub(u32::from(how >> 3)),
            4 => honest.wrapping_add(u32::from(how >> 3)),
            5 => honest.wrapping_sub(1 << 14),
            6 => honest.wrapping_add(1 << 31),
            _ => 1,
        };
        let next = SequenceNumber(next);
        let times = if how & 0x40 == 0 { 1 } else { 50 };
        for _ in 0..times {
            let command = RelayCommand::MtorAck.wire();
            self.far.send(leg, command, 0, &MtorAck { next }.encode());
        }
    }

    /// Anything about a leg that is given up, with counts that are right or are not.
    fn drop_leg(&mut self, input: &mut Input<'_>) {
        let (leg, how) = (self.leg(input), input.byte());
        let right = self.far.legs[leg].received;
        let received = match how >> 2 & 3 {
            0 | 1 => right,
            2 => right.saturating_sub(u64::from(how >> 4)),
            _ => right + u64::from(how >> 4),
        };
        let (command, data) = match how & 3 {
            0 => (
                RelayCommand::MtorDrop,
                MtorDrop { received }.encode().to_vec(),
            ),
            1 => (RelayCommand::MtorDropped, Vec::new()),
            2 => (
                RelayCommand::MtorStopped,
                MtorStopped { sent: received }.encode().to_vec(),
            ),
            _ => (RelayCommand::MtorStopped, input.data()),
        };
        self.far.send(leg, command.wire(), 0, &data);
    }

    fn sendme(&mut self, input: &mut Input<'_>) {
        match input.byte() % 8 {
            0..=3 => self.far.sendmes(),
            4..=6 => {
                let leg = self.leg(input);
                self.far.sendme(leg);
            }
            _ => {
                let leg = self.leg(input);
                let data = Sendme {
                    version: 1,
                    seen: None,
                }
                .encode();
                self.far.send(leg, RelayCmd::SENDME, 0, &data);
            }
        }
    }

    /// The node's end of a stream.
    fn socket(&mut self, input: &mut Input<'_>) {
        let streams = self.far.edges().len();
        if streams == 0 {
            return;
        }
        let stream = input.below(streams);
        match input.byte() % 6 {
            0..=2 => {
                self.far.write(stream, usize::from(input.byte()) * 256);
            }
            3 | 4 => {
                self.far.read(stream);
            }
            // That of the other circuit stays.
            _ if stream > 0 => {
                let (thread, edge) = self.far.edges()[stream];
                let (now, reason) = (self.far.world.now, EndReason::from(input.byte()));
                (self.far.world.managers[thread]).end_edge(edge, reason, now);
            }
            _ => {}
        }
    }

    /// Sends an order of the input's choice from an origin's client thread.
    fn node(&mut self, input: &mut Input<'_>) {
        if self.far.side == Side::Client {
            return;
        }
        let leg = self.leg(input);
        let circuit = self.far.legs[leg].circuit;
        let close = |circuit| OriginCommand::CloseCircuit {
            circuit,
            reason: DestroyReason::FINISHED,
        };
        match input.byte() % 8 {
            0 | 1 => self.far.command(OriginCommand::DropLeg { circuit }),
            2 => self.far.command(close(circuit)),
            3 => self.far.command(close(TUNNEL)),
            4 => self.far.ask_link(leg),
            _ if self.far.applications.len() < MAX_STREAMS => self.far.attach(TUNNEL),
            _ => {}
        }
    }

    /// Others were not harmed, and nothing is left.
    fn end(mut self) {
        let (other, stream) = self.other;
        self.far.world.room = u32::MAX;
        self.far.world.not_reading.clear();
        self.far.collect();
        self.far.world.audit_at_rest();
        assert!(self.far.legs[other].open, "the circuit of another is open");
        self.far.read(0);
        self.far.send(other, RelayCmd::DATA, stream, b"still here");
        self.far.collect();
        assert_eq!(self.far.read(0), b"still here");
        for leg in 0..self.far.legs.len() {
            self.far.destroy(leg);
        }
        self.far.collect();
        if self.far.side == Side::Exit {
            // A tunnel whose only leg has not been asked for yet.
            self.far.command(OriginCommand::CloseCircuit {
                circuit: TUNNEL,
                reason: DestroyReason::FINISHED,
            });
            for leg in 0..self.far.legs.len() {
                let circuit = OriginId(100 + leg as u64);
                self.far.command(OriginCommand::CloseCircuit {
                    circuit,
                    reason: DestroyReason::FINISHED,
                });
            }
        }
        self.far.collect();
        assert_eq!(self.far.world.halves(), 0, "every half has closed");
        assert_eq!(self.far.world.controller.tunnels(), 0);
        // Sockets outlive their streams until they have taken their bytes.
        for (thread, edge) in self.far.edges().to_vec() {
            let now = self.far.world.now;
            self.far.world.managers[thread].end_edge(edge, EndReason::DONE, now);
        }
        self.far.collect();
        self.far.world.audit_at_rest();
        let now = self.far.world.now;
        for manager in &self.far.world.managers {
            assert_eq!(manager.edges().len(), 0);
            assert_eq!(
                manager.ledger(now).owned(),
                0,
                "memory is accounted, and none is left"
            );
        }
    }
}
