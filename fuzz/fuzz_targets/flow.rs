//! Flow and congestion control, with a far end that sends anything at any time.
//!
//! Input: a byte that chooses the kind of circuit and stream, one for cc_sendme_inc, then
//! operations: a byte each and what it takes. The clock moves only by the input.
#![no_main]

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use weft_cell::stream_msg::{Seen, Sendme, Xoff, Xon};
use weft_core::flow::{CcParams, CircuitFlow, FlowMsg, MAX_CWND, PathKind, Side, StreamFlow};
use weft_fuzz::Bytes;

/// More operations than this show nothing new.
const MAX_OPERATIONS: usize = 2000;

/// Both ends of one thing, and what the test knows of them.
struct Play {
    now: Instant,
    circuit: CircuitFlow,
    increment: u64,
    sent: u64,
    acknowledged: u64,
    received: u64,
    /// Cells for which a SENDME is due.
    due: VecDeque<u64>,
    stream: StreamFlow,
    windows: bool,
    stream_sent: u64,
    stream_acknowledged: u64,
}

fn digest(cell: u64) -> Seen {
    let mut digest = [7; 20];
    digest[..8].copy_from_slice(&cell.to_be_bytes());
    Seen::Digest(digest)
}

impl Play {
    fn new(kind: u8, increment: u8) -> Self {
        let now = Instant::now();
        let path = [PathKind::Exit, PathKind::Onion, PathKind::Sbws];
        let params = CcParams::default().for_path(path[usize::from(kind) % 3]);
        let windows = kind & 4 == 0;
        let side = match kind & 8 {
            0 => Side::Client,
            _ => Side::Exit,
        };
        Play {
            now,
            circuit: match windows {
                true => CircuitFlow::fixed(),
                false => CircuitFlow::vegas(&params, increment),
            },
            increment: match windows {
                true => 100,
                false => increment.max(1).into(),
            },
            sent: 0,
            acknowledged: 0,
            received: 0,
            due: VecDeque::new(),
            stream: match windows {
                true => StreamFlow::fixed(),
                false => StreamFlow::xon_xoff(&params, side),
            },
            windows,
            stream_sent: 0,
            stream_acknowledged: 0,
        }
    }

    /// One operation; false when the far end broke the rules and the circuit is gone.
    fn operate(&mut self, input: &mut Bytes<'_>) -> bool {
        match input.byte() % 10 {
            0 | 1 => {
                let cells = self.circuit.room().min(u32::from(input.byte()) * 4);
                (0..cells).for_each(|_| self.send());
            }
            // An honest SENDME, if one is due.
            2 | 3 => {
                let blocked = input.byte() & 1 == 1;
                if let Some(cell) = self.due.pop_front() {
                    let sendme = Sendme {
                        version: 1,
                        seen: Some(digest(cell)),
                    };
                    let sendme = sendme.encode();
                    let taken = self.circuit.sendme(&sendme, 1, blocked, self.now);
                    assert_eq!(taken, Ok(()), "an honest SENDME");
                    self.acknowledged += self.increment;
                }
            }
            // Any bytes as one.
            4 => {
                let (accept, data) = (input.byte() % 3, input.data());
                let due = self.due.pop_front();
                let taken = self.circuit.sendme(data, accept, false, self.now);
                let Ok(()) = taken else { return false };
                let due = due.expect("nothing was due");
                let sendme = Sendme::decode(data).expect("it was taken");
                assert!(sendme.version >= accept);
                assert!(sendme.seen.is_none_or(|given| given == digest(due)));
                self.acknowledged += self.increment;
            }
            5 => self.now += Duration::from_micros(u64::from(input.u24()) << (input.byte() % 20)),
            6 => self.circuit.set_blocked(input.byte() & 1 == 1),
            7 => {
                // A SENDME leaves the queue by the operation after it, or never.
                let leaves = input.byte() & 1 == 1;
                let departed = if leaves { self.received } else { 0 };
                match self.circuit.note_received(departed) {
                    Err(_) => {
                        assert!(self.windows && !leaves && self.received >= 1000);
                        return false;
                    }
                    Ok(true) => self.circuit.sendme_queued(self.received + 1),
                    Ok(false) => {}
                }
                self.received += 1;
                let bytes = usize::from(input.byte()) * 2;
                if self.stream.note_received(bytes).is_err() {
                    return false;
                }
            }
            8 => {
                let (queued, mut written) = (input.u24() as usize, input.u24() as usize);
                for _ in 0..20 {
                    match self.stream.note_queue(queued, written, self.now) {
                        None => return true,
                        Some(FlowMsg::Sendme) => assert!(self.windows),
                        Some(FlowMsg::Xoff | FlowMsg::Xon(_)) => assert!(!self.windows),
                    }
                    written = 0;
                }
                panic!("it never stops sending");
            }
            _ => return self.far_end_of_stream(input),
        }
        true
    }

    fn send(&mut self) {
        self.sent += 1;
        let (cell, due) = (self.sent, &mut self.due);
        self.circuit.note_sent(
            || {
                due.push_back(cell);
                digest(cell)
            },
            self.now,
        );
        assert_eq!(
            self.due.back() == Some(&cell),
            cell.is_multiple_of(self.increment)
        );
    }

    fn far_end_of_stream(&mut self, input: &mut Bytes<'_>) -> bool {
        let which = input.byte();
        let taken = match which % 6 {
            0 => {
                let cells = self.stream.room().min(u32::from(input.byte()));
                self.stream.note_sent(cells);
                self.stream_sent += u64::from(cells);
                Ok(())
            }
            1 => {
                let taken = self.stream.sendme();
                if taken.is_ok() {
                    self.stream_acknowledged += 50;
                }
                taken
            }
            2 => self.stream.xoff(&Xoff { version: 0 }.encode()),
            3 => {
                let kbps_ewma = input.u24();
                self.stream.xon(
                    &Xon {
                        version: 0,
                        kbps_ewma,
                    }
                    .encode(),
                )
            }
            4 => self.stream.xoff(input.data()),
            _ => self.stream.xon(input.data()),
        };
        taken.is_ok()
    }

    /// What holds at any time.
    fn audit(&self) {
        let in_flight = u64::from(self.circuit.in_flight());
        assert_eq!(in_flight, self.sent - self.acknowledged);
        let window = self.circuit.window();
        assert!((1..=MAX_CWND).contains(&window));
        assert!(u64::from(window) >= self.increment);
        assert_eq!(
            self.circuit.room(),
            window.saturating_sub(self.circuit.in_flight())
        );
        if self.windows {
            let open = 500 + self.stream_acknowledged - self.stream_sent;
            assert_eq!(u64::from(self.stream.room()), open);
            assert!(open <= 500);
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let mut input = Bytes::new(input);
    let mut play = Play::new(input.byte(), input.byte());
    for _ in 0..MAX_OPERATIONS {
        if input.is_empty() || !play.operate(&mut input) {
            break;
        }
        play.audit();
    }
});
