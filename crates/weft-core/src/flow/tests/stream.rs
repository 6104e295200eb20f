//! Streams: windows, and XON and XOFF with a slow reader.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use weft_cell::stream_msg::{Xoff, Xon};

use super::super::*;

const CELL: usize = 498;
const XOFF_LIMIT: usize = 500 * 488;

fn xoff() -> [u8; 1] {
    Xoff { version: 0 }.encode()
}

fn xon(kbps_ewma: u32) -> [u8; 5] {
    Xon {
        version: 0,
        kbps_ewma,
    }
    .encode()
}

fn stream(side: Side) -> StreamFlow {
    StreamFlow::xon_xoff(&CcParams::default(), side)
}

#[test]
fn a_fixed_window_is_five_hundred_cells_and_opens_by_fifty() {
    let mut flow = StreamFlow::fixed();
    assert_eq!((flow.room(), flow.rate()), (500, None));
    assert_eq!(flow.sendme(), Err(FlowError::UnexpectedStreamSendme));
    flow.note_sent(49);
    assert_eq!(flow.sendme(), Err(FlowError::UnexpectedStreamSendme));
    flow.note_sent(451);
    assert_eq!(flow.room(), 0);
    for fifty in 1..=10 {
        flow.sendme().unwrap();
        assert_eq!(flow.room(), fifty * 50);
    }
    assert!(flow.sendme().is_err());
}

#[test]
fn stream_sendmes_go_out_when_little_waits_for_the_socket() {
    let now = Instant::now();
    let mut flow = StreamFlow::fixed();
    for _ in 0..49 {
        flow.note_received(CELL).unwrap();
    }
    assert_eq!(flow.note_queue(0, 49 * CELL, now), None);
    for _ in 0..52 {
        flow.note_received(CELL).unwrap();
    }
    assert_eq!(flow.note_queue(10 * CELL, 0, now), None);
    assert_eq!(
        flow.note_queue(10 * CELL - 1, 1, now),
        Some(FlowMsg::Sendme)
    );
    assert_eq!(
        flow.note_queue(10 * CELL - 1, 0, now),
        Some(FlowMsg::Sendme)
    );
    assert_eq!(flow.note_queue(0, 0, now), None);
}

#[test]
fn data_past_the_window_ends_the_circuit() {
    let mut flow = StreamFlow::fixed();
    for _ in 0..500 {
        flow.note_received(CELL).unwrap();
    }
    assert_eq!(flow.note_received(1), Err(FlowError::TooMuchData("stream")));
}

#[test]
fn each_kind_refuses_the_other_s_messages() {
    let mut fixed = StreamFlow::fixed();
    assert_eq!(fixed.xoff(&xoff()), Err(FlowError::WrongKind("XOFF")));
    assert_eq!(fixed.xon(&xon(0)), Err(FlowError::WrongKind("XON")));
    for side in [Side::Client, Side::Exit] {
        let mut flow = stream(side);
        flow.note_sent(10_000);
        assert_eq!(flow.sendme(), Err(FlowError::WrongKind("SENDME")));
        let mut bad = xon(0);
        bad[0] = 1;
        assert!(matches!(flow.xon(&bad), Err(FlowError::Malformed(_))));
        assert!(matches!(
            flow.xon(&xon(0)[..4]),
            Err(FlowError::Malformed(_))
        ));
        assert!(matches!(flow.xoff(&[]), Err(FlowError::Malformed(_))));
    }
}

#[test]
fn xoff_stops_and_xon_goes_on_at_its_rate() {
    let mut flow = stream(Side::Client);
    assert_eq!((flow.room(), flow.rate()), (u32::MAX, None));
    flow.note_sent(600);
    flow.xoff(&xoff()).unwrap();
    assert_eq!(flow.room(), 0);
    flow.xon(&xon(70)).unwrap();
    assert_eq!((flow.room(), flow.rate()), (u32::MAX, Some(70_000)));
    flow.xon(&xon(0)).unwrap();
    assert_eq!(flow.rate(), None);
}

#[test]
fn what_is_read_keeps_to_the_rate_of_the_last_xon() {
    let start = Instant::now();
    let msec = Duration::from_millis;
    let mut flow = stream(Side::Exit);
    assert_eq!(flow.pace(1 << 20, start), Ok(1 << 20));
    flow.xon(&xon(100)).unwrap();
    // A tenth of a second's worth at once, then as it comes, but whole cells.
    assert_eq!(flow.pace(1 << 20, start), Ok(10_000));
    flow.note_read(10_000, start);
    assert_eq!(flow.pace(1 << 20, start), Err(Duration::from_micros(4980)));
    assert_eq!(flow.pace(100, start), Err(msec(1)));
    assert_eq!(flow.pace(1 << 20, start + msec(10)), Ok(1000));
    flow.xon(&xon(200)).unwrap();
    assert_eq!(flow.pace(1 << 20, start + msec(110)), Ok(20_000));
    flow.xon(&xon(0)).unwrap();
    assert_eq!(flow.pace(1 << 20, start + msec(110)), Ok(1 << 20));
    assert_eq!(StreamFlow::fixed().pace(7, start), Ok(7));
}

#[test]
fn a_client_refuses_what_nothing_that_it_sent_can_have_caused() {
    let early = |message| Err(FlowError::TooEarly(message));
    let often = |message| Err(FlowError::TooOften(message));
    assert_eq!(stream(Side::Client).xoff(&xoff()), early("XOFF"));
    assert_eq!(stream(Side::Client).xon(&xon(1)), early("XON"));

    // Half of the consensus' 500 cells of 488 bytes: 122,000 bytes, 245 cells of 498.
    let mut flow = stream(Side::Client);
    flow.note_sent(244);
    assert_eq!(flow.xoff(&xoff()), early("XOFF"));
    let mut flow = stream(Side::Client);
    flow.note_sent(245);
    flow.xoff(&xoff()).unwrap();
    assert_eq!(flow.xoff(&xoff()), often("XOFF"));
    let mut flow = stream(Side::Client);
    flow.note_sent(245);
    flow.xoff(&xoff()).unwrap();
    flow.xon(&xon(1)).unwrap();
    assert_eq!(flow.xoff(&xoff()), often("XOFF"));
    let mut flow = stream(Side::Client);
    flow.note_sent(490);
    flow.xon(&xon(1)).unwrap();
    flow.xon(&xon(1)).unwrap();
    assert_eq!(flow.xon(&xon(1)), often("XON"));

    // An exit has no reason to check.
    let mut flow = stream(Side::Exit);
    for _ in 0..10 {
        flow.xoff(&xoff()).unwrap();
        flow.xoff(&xoff()).unwrap();
        assert_eq!(flow.room(), 0);
        flow.xon(&xon(1)).unwrap();
        flow.xon(&xon(1)).unwrap();
    }
}

#[test]
fn xoff_waits_for_a_turn_that_writes() {
    let now = Instant::now();
    let msec = Duration::from_millis;
    let mut flow = stream(Side::Exit);
    assert_eq!(flow.note_queue(XOFF_LIMIT, 0, now), None);
    assert_eq!(flow.note_queue(XOFF_LIMIT + 1, 0, now), None);
    assert_eq!(flow.note_queue(XOFF_LIMIT + 1, 0, now + msec(5)), None);
    // It came below in time.
    assert_eq!(flow.note_queue(0, XOFF_LIMIT + 1, now + msec(5)), None);
    assert_eq!(flow.note_queue(XOFF_LIMIT + 1, 0, now + msec(6)), None);
    assert_eq!(
        flow.note_queue(XOFF_LIMIT + 1, 0, now + msec(12)),
        Some(FlowMsg::Xoff)
    );
    assert_eq!(flow.note_queue(XOFF_LIMIT * 2, 0, now + msec(50)), None);
    // XON when all is written; the rate is not known yet.
    assert_eq!(flow.note_queue(1, 1000, now + msec(60)), None);
    assert_eq!(flow.note_queue(0, 1, now + msec(61)), Some(FlowMsg::Xon(0)));
    assert_eq!(flow.note_queue(0, 0, now + msec(61)), None);
}

/// A stream from a fast sender to a slow reader, in steps of a millisecond.
struct Stream {
    sender: StreamFlow,
    receiver: StreamFlow,
    now: Instant,
    /// Steps that a message takes one way.
    delay: usize,
    /// Bytes that the sender has per step, and that the reader takes.
    speed: usize,
    reader: usize,
    /// The sender obeys the rate of the last XON.
    obeys: bool,
    /// On the way to the receiver, and back.
    cells: VecDeque<u32>,
    messages: VecDeque<Vec<FlowMsg>>,
    credit: usize,
    queue: usize,
    longest: usize,
    read: usize,
    sent_msgs: Vec<FlowMsg>,
}

impl Stream {
    fn new(delay: usize, speed: usize, reader: usize, obeys: bool) -> Self {
        Stream {
            sender: stream(Side::Client),
            receiver: stream(Side::Exit),
            now: Instant::now(),
            delay,
            speed,
            reader,
            obeys,
            cells: VecDeque::from(vec![0; delay]),
            messages: VecDeque::from(vec![Vec::new(); delay]),
            credit: 0,
            queue: 0,
            longest: 0,
            read: 0,
            sent_msgs: Vec::new(),
        }
    }

    fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            self.now += Duration::from_millis(1);
            for message in self.messages.pop_front().unwrap() {
                match message {
                    FlowMsg::Xoff => self.sender.xoff(&xoff()),
                    FlowMsg::Xon(rate) => self.sender.xon(&xon(rate)),
                    FlowMsg::Sendme => self.sender.sendme(),
                }
                .expect("an honest message");
            }
            self.credit = (self.credit + self.speed).min(self.speed + CELL);
            let paced = match self.obeys {
                true => self.sender.pace(self.credit, self.now).unwrap_or(0),
                false => self.credit,
            };
            let wanted = u32::try_from(paced / CELL).unwrap();
            let cells = wanted.min(self.sender.room());
            let bytes = usize::try_from(cells).unwrap() * CELL;
            self.credit -= bytes;
            self.sender.note_read(bytes, self.now);
            self.sender.note_sent(cells);
            self.cells.push_back(cells);

            let mut answers = Vec::new();
            for _ in 0..self.cells.pop_front().unwrap() {
                self.receiver.note_received(CELL).unwrap();
                self.queue += CELL;
            }
            self.update(0, &mut answers);
            let written = self.queue.min(self.reader);
            self.queue -= written;
            self.read += written;
            self.update(written, &mut answers);
            self.longest = self.longest.max(self.queue);
            self.sent_msgs.extend(&answers);
            self.messages.push_back(answers);
        }
    }

    fn update(&mut self, mut written: usize, answers: &mut Vec<FlowMsg>) {
        while let Some(message) = self.receiver.note_queue(self.queue, written, self.now) {
            answers.push(message);
            written = 0;
        }
    }

    /// The most that can wait: what the limit allows, and what comes until XOFF has arrived.
    fn bound(&self) -> usize {
        XOFF_LIMIT + self.speed * (2 * self.delay + 8) + CELL
    }
}

#[test]
fn a_slow_reader_s_queue_is_bounded_and_the_reader_is_kept_busy() {
    for obeys in [false, true] {
        // 10 MB/s in, 1 MB/s out, 40 ms one way.
        let mut stream = Stream::new(40, 10_000, 1000, obeys);
        stream.run(20_000);
        assert!(stream.longest <= stream.bound(), "{} bytes", stream.longest);
        assert!(stream.read > 18_000_000, "{} bytes read", stream.read);
        let xoffs = stream
            .sent_msgs
            .iter()
            .filter(|sent_msgs| **sent_msgs == FlowMsg::Xoff);
        let xoffs = xoffs.count();
        assert!(xoffs >= 1);
        if obeys {
            // The rate in the first XON keeps the queue short from then on.
            assert!(xoffs <= 3, "{xoffs} XOFFs");
        }
    }
}

#[test]
fn xon_has_the_rate_of_the_reader() {
    let mut stream = Stream::new(20, 10_000, 2000, false);
    stream.run(5000);
    let rates: Vec<u32> = stream
        .sent_msgs
        .iter()
        .filter_map(|sent_msgs| match sent_msgs {
            FlowMsg::Xon(rate) => Some(*rate),
            _ => None,
        })
        .collect();
    assert!(!rates.is_empty());
    assert!(
        rates.iter().all(|rate| (1500..2600).contains(rate)),
        "{rates:?}"
    );
}

#[test]
fn a_reader_that_reads_in_lumps_is_not_held_to_what_came_while_it_paused() {
    // 20 MB/s can come; the reader pauses for 30 ms, then reads all that comes for 70 ms.
    let mut stream = Stream::new(5, 20_000, 0, true);
    let mut read = Vec::new();
    for _ in 0..200 {
        stream.reader = 0;
        stream.run(30);
        stream.reader = 1_000_000;
        let before = stream.read;
        stream.run(70);
        read.push(stream.read - before);
    }
    // Of 1.4 MB that could come in these 70 ms.
    let late: usize = read[100..].iter().sum();
    assert!(late > 100 * 1_000_000, "{read:?}");
    // And no more messages are sent than the data can have caused (the sender checks).
    assert!(stream.longest <= stream.bound());
}

#[test]
fn a_reader_that_became_faster_is_reported() {
    let mut stream = Stream::new(20, 10_000, 500, true);
    stream.run(5000);
    let slow = stream.sender.rate().unwrap();
    assert!((300_000..700_000).contains(&slow), "{slow}");
    stream.reader = 20_000;
    let read = stream.read;
    stream.run(20_000);
    assert!(stream.sender.rate().unwrap() > 4 * slow);
    assert!(stream.read - read > 100_000_000, "{}", stream.read - read);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever the speeds, the queue is bounded, and a strict client finds nothing to object to.
    #[test]
    fn queues_are_bounded_and_messages_are_never_too_many(
        delay in 1..150usize,
        speed in 1..40_000usize,
        readers in proptest::collection::vec(0..40_000usize, 1..8),
        obeys in any::<bool>(),
    ) {
        let mut stream = Stream::new(delay, speed, 0, obeys);
        for reader in readers {
            stream.reader = reader;
            stream.run(1500);
        }
        prop_assert!(stream.longest <= stream.bound(), "{} bytes", stream.longest);
    }
}
