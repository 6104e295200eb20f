//! Streams over one path, against what theory and the kernel say of them.

use std::time::Duration;

use crate::links::{Fate, Link, LinkSettings, Loss, Moment, QueueLimit, Rate, Wheel};
use rand::SeedableRng as _;
use rand_chacha::ChaCha12Rng;

use super::*;

const MSS: u32 = 1448;
const HEADER: u32 = 52;

enum Event {
    Segment(Segment),
    Ack(Ack),
    SenderTimer(u64),
    ReceiverTimer(u64),
}

/// One direction of a connection over a link, and its acknowledgements over another one.
struct Path {
    now: u64,
    events: Wheel<Event>,
    sender: Sender,
    receiver: Receiver,
    there: Link,
    back: Link,
    rng: ChaCha12Rng,
    armed: [Option<u64>; 2],
    received: u64,
    lost: u64,
}

/// Rate in Mbit/s, delay in milliseconds, loss in millionths, queue in packets.
fn link(rate: Option<u64>, delay: u64, loss: u32, queue: u32) -> Link {
    Link::new(&LinkSettings {
        rate: rate.and_then(|rate| Rate::from_bits(rate * 1_000_000)),
        delay: Duration::from_millis(delay),
        loss: Loss::from_per_billion(loss * 1_000).expect("a part"),
        queue: QueueLimit::Packets(queue),
        ..LinkSettings::default()
    })
}

impl Path {
    fn new(algorithm: Algorithm, there: Link, back: Link, seed: u64) -> Path {
        Path {
            now: 0,
            events: Wheel::new(1 << 20),
            sender: Sender::new(algorithm, MSS, FIRST_WINDOW),
            receiver: Receiver::new(MSS),
            there,
            back,
            rng: ChaCha12Rng::seed_from_u64(seed),
            armed: [None, None],
            received: 0,
            lost: 0,
        }
    }

    fn at(&mut self, at: u64, event: Event) {
        assert!(self.events.insert(Moment::from_nanos(at), event).is_ok());
    }

    /// Sends what may be sent, and arms timers.
    fn pump(&mut self) {
        while let Some(segment) = self.sender.poll(self.now) {
            let now = Moment::from_nanos(self.now);
            match self
                .there
                .offer(now, segment.length + HEADER, &mut self.rng)
            {
                Fate::Arrives(at) => self.at(at.nanos(), Event::Segment(segment)),
                _ => self.lost += 1,
            }
        }
        let deadlines = [self.sender.deadline(), self.receiver.deadline()];
        for (number, deadline) in deadlines.into_iter().enumerate() {
            if let Some(at) = deadline
                && self.armed[number] != deadline
            {
                self.armed[number] = deadline;
                self.at(at, [Event::SenderTimer, Event::ReceiverTimer][number](at));
            }
        }
    }

    fn send_ack(&mut self, ack: Option<Ack>) {
        if let Some(ack) = ack
            && let Fate::Arrives(at) =
                self.back
                    .offer(Moment::from_nanos(self.now), HEADER, &mut self.rng)
        {
            self.at(at.nanos(), Event::Ack(ack));
        }
    }

    /// Until everything has been read or time is over; when that was.
    fn run(&mut self, bytes: u64, until: u64) -> u64 {
        self.sender.write(self.now, bytes);
        let goal = self.received + bytes;
        self.pump();
        while self.received < goal && self.now < until {
            let Some((at, event)) = self.events.pop(Moment::from_nanos(until)) else {
                self.now = until;
                break;
            };
            self.now = at.nanos();
            match event {
                Event::Segment(segment) => {
                    let ack = self.receiver.segment(self.now, segment);
                    self.send_ack(ack);
                    let readable = self.receiver.readable();
                    self.received += readable;
                    let trip = self.sender.round_trip();
                    let ack = self.receiver.consume(self.now, readable, trip);
                    self.send_ack(ack);
                }
                Event::Ack(ack) => self.sender.acknowledge(self.now, &ack),
                Event::SenderTimer(at) if self.sender.deadline() == Some(at) => {
                    self.sender.timeout(self.now);
                }
                Event::ReceiverTimer(at) if self.receiver.deadline() == Some(at) => {
                    let ack = self.receiver.timeout(self.now);
                    self.send_ack(ack);
                }
                Event::SenderTimer(_) | Event::ReceiverTimer(_) => {}
            }
            self.pump();
        }
        self.now
    }
}

const SECOND: u64 = 1_000_000_000;

fn mbit(bytes: u64, nanos: u64) -> f64 {
    bytes as f64 * 8e3 / nanos as f64
}

#[test]
fn a_stream_without_loss_fills_its_link() {
    for algorithm in [Algorithm::Cubic, Algorithm::Reno] {
        let there = link(Some(10), 50, 0, 1000);
        let mut path = Path::new(algorithm, there, link(None, 50, 0, 1000), 1);
        let took = path.run(12_500_000, 60 * SECOND);
        let rate = mbit(12_500_000, took);
        assert!(rate > 9.0 && rate < 9.7, "{algorithm:?}: {rate}");
        assert_eq!(path.sender.sent().timeouts, 0);
    }
}

#[test]
fn every_byte_arrives_whatever_is_lost() {
    for seed in 0..20 {
        let there = link(Some(20), 20, 50000, 30);
        let back = link(None, 20, 50000, 1000);
        let mut path = Path::new(Algorithm::Cubic, there, back, seed);
        for _ in 0..5 {
            path.run(300_000, 600 * SECOND);
        }
        assert_eq!(path.received, 1_500_000, "seed {seed} at {}", path.now);
    }
}

#[test]
fn goodput_under_loss_follows_the_square_root() {
    // RFC 9438, 5.2, in the region where CUBIC is as friendly as Reno: the mean window is
    // √(α(1+β) / (2(1-β)p)) segments, 38.7 for both at a loss of 0.1 %.
    for algorithm in [Algorithm::Cubic, Algorithm::Reno] {
        let there = link(Some(300), 12, 1000, 1000);
        let mut path = Path::new(algorithm, there, link(None, 13, 0, 1000), 7);
        let until = 300 * SECOND;
        path.run(10_000_000_000, until);
        let rate = mbit(path.received, until);
        let expected = 38.7 * f64::from(MSS) * 8.0 / 25e3;
        let ratio = rate / expected;
        assert!(
            ratio > 0.8 && ratio < 1.3,
            "{algorithm:?}: {rate} Mbit/s, {expected} expected"
        );
        assert!(path.sender.sent().timeouts <= 1, "{:?}", path.sender.sent());
    }
}
