//! A link with a real socket moves from thread to thread.

use std::collections::BTreeMap;

use weft_core::message::Report;

use super::*;

/// Cells that the client sends, each answered by one.
const CELLS: u32 = 4000;

/// The main thread's part in moving links.
struct Moves {
    /// The thread that the link is on.
    at: u16,
    number: u64,
    moving: bool,
    done: u64,
    /// Bytes of the link, read and written, that each thread reported.
    bytes: BTreeMap<u16, (u64, u64)>,
}

impl Moves {
    fn new() -> Self {
        Moves {
            at: 0,
            number: 0,
            moving: false,
            done: 0,
            bytes: BTreeMap::new(),
        }
    }

    /// Has the link move to the next thread.
    fn begin(&mut self, bench: &mut Bench) {
        if self.moving {
            return;
        }
        self.moving = true;
        self.number += 1;
        let to = (self.at + 1) % (1 + u16::try_from(bench.others.len()).unwrap());
        let message = FromController::Move {
            connection: FIRST,
            to: ThreadId(to),
            number: self.number,
        };
        bench.send_to(self.at, message);
    }

    /// A turn of every thread, and what the main thread answers.
    fn turn(&mut self, bench: &mut Bench) {
        bench.turn();
        for (thread, _) in &mut bench.others {
            thread.turn(Duration::from_millis(1)).unwrap();
            thread.audit().unwrap();
        }
        let mains =
            std::iter::once(&mut bench.main).chain(bench.others.iter_mut().map(|(_, main)| main));
        let messages: Vec<ToController> = mains
            .flat_map(|main| std::iter::from_fn(|| main.from.pop()).collect::<Vec<_>>())
            .collect();
        for message in messages {
            match message {
                ToController::LinkLeft { number, to } => {
                    assert_eq!(number, self.number);
                    bench.send_to(to.0, FromController::MovePassed { number });
                }
                ToController::LinkMoved { connection, thread } => {
                    assert_eq!(connection, FIRST);
                    bench.send_to(self.at, FromController::MoveOver { connection });
                    self.at = thread.0;
                    self.moving = false;
                    self.done += 1;
                }
                ToController::NotMoved { .. } => self.moving = false,
                ToController::ConnectionClosed { .. } => panic!("the link closed"),
                ToController::Report(report) => self.note_bytes(&report),
                _ => {}
            }
        }
    }
}

impl Moves {
    fn note_bytes(&mut self, report: &Report) {
        for bytes in &report.activity.connections {
            assert!(bytes.connection == FIRST && !bytes.exit);
            let sum = self.bytes.entry(report.thread.0).or_default();
            sum.0 += bytes.read;
            sum.1 += bytes.written;
        }
    }

    /// Takes the report of every thread, as if a second had passed.
    fn take_reports(&mut self, bench: &mut Bench) {
        let later = Instant::now() + Duration::from_secs(2);
        let others = bench.others.iter_mut().map(|(thread, _)| thread);
        for thread in std::iter::once(&mut bench.thread).chain(others) {
            let report = thread.report(later);
            self.note_bytes(&report);
            thread.reports.connections_at = Instant::now();
        }
    }
}

impl Bench {
    fn send_to(&mut self, thread: u16, message: FromController) {
        let main = match thread.checked_sub(1) {
            None => &mut self.main,
            Some(other) => &mut self.others[usize::from(other)].1,
        };
        main.send(ToThread::Message(message));
        main.flush();
    }

    fn links(&self) -> Vec<usize> {
        let others = self.others.iter().map(|(thread, _)| thread);
        let threads = std::iter::once(&self.thread).chain(others);
        threads.map(|thread| thread.manager.links().len()).collect()
    }
}

/// Both sockets are full most of the time, so that records and cells are cut anywhere.
#[test]
fn bytes_of_a_link_arrive_once_and_in_order_while_it_moves() {
    for threads in [2, 3] {
        let mut bench = Bench::of(threads);
        let mut client = Client::open(&mut bench);
        let mut moves = Moves::new();
        let sent: Vec<u32> = (1..=CELLS).collect();
        for id in &sent {
            // The circuit id is not the client's to choose: a DESTROY is the answer.
            client.send(Cell::new(*id, ChanCmd::CREATE_FAST).as_bytes());
        }
        let mut answered = Vec::new();
        for turn in 0..MANY_TURNS {
            client.write();
            moves.begin(&mut bench);
            moves.turn(&mut bench);
            // The client reads seldom, so that sealed bytes wait when the link moves.
            if turn % 8 == 0 {
                client.read();
                answered.extend(client.cells(ChanCmd::DESTROY));
            }
            if answered.len() == sent.len() {
                break;
            }
        }
        assert_eq!(answered, sent);
        assert!(moves.done >= 10, "{} moves", moves.done);
        while moves.moving {
            moves.turn(&mut bench);
        }
        let mut expected = vec![0; usize::from(threads)];
        expected[usize::from(moves.at)] = 1;
        assert_eq!(bench.links(), expected);
    }
}

#[test]
fn each_byte_of_a_link_is_reported_once_by_the_thread_that_moved_it() {
    let mut bench = Bench::of(3);
    let others = bench.others.iter_mut().map(|(thread, _)| thread);
    for thread in std::iter::once(&mut bench.thread).chain(others) {
        thread.params.count_connections = true;
    }
    let mut client = Client::open(&mut bench);
    let mut moves = Moves::new();
    let (mut answered, mut at) = (0, 0);
    for id in 1..=60 {
        client.send(Cell::new(id, ChanCmd::CREATE_FAST).as_bytes());
        while answered < id {
            client.write();
            moves.turn(&mut bench);
            client.read();
            answered += u32::try_from(client.cells(ChanCmd::DESTROY).len()).unwrap();
        }
        if id % 20 == 0 {
            let before = moves.bytes.get(&at).copied();
            moves.take_reports(&mut bench);
            assert_ne!(
                moves.bytes.get(&at).copied(),
                before,
                "thread {at} had the link"
            );
            at = (at + 1) % 3;
            moves.begin(&mut bench);
            while moves.moving {
                moves.turn(&mut bench);
            }
            assert_eq!(moves.at, at);
        }
    }
    moves.take_reports(&mut bench);
    client.read();
    let all = moves.bytes.values();
    let sum = all.fold((0, 0), |sum, bytes| (sum.0 + bytes.0, sum.1 + bytes.1));
    let (read, written) = client.moved;
    assert_eq!(sum, (written, read));
    assert_eq!(moves.bytes.len(), 3);
}

#[test]
fn a_link_that_shall_close_while_it_moves_is_closed_where_it_is() {
    for turns in 0..8 {
        let mut bench = Bench::of(3);
        let _client = Client::open(&mut bench);
        let mut moves = Moves::new();
        moves.begin(&mut bench);
        for _ in 0..turns {
            moves.turn(&mut bench);
        }
        // The main thread may know already where it is.
        let message = FromController::CloseConnection { connection: FIRST };
        bench.send_to(moves.at, message);
        let mut mains_turns = 0;
        while bench.links().iter().sum::<usize>() > 0 || bench.files() > 0 {
            bench.turn();
            for (thread, _) in &mut bench.others {
                thread.turn(Duration::from_millis(1)).unwrap();
                thread.audit().unwrap();
            }
            let left = (bench.main.from.pop().into_iter())
                .chain(
                    bench
                        .others
                        .iter_mut()
                        .filter_map(|(_, main)| main.from.pop()),
                )
                .find_map(|message| match message {
                    ToController::LinkLeft { number, to } => Some((number, to)),
                    _ => None,
                });
            if let Some((number, to)) = left {
                bench.send_to(to.0, FromController::MovePassed { number });
            }
            mains_turns += 1;
            assert!(
                mains_turns < MANY_TURNS,
                "after {turns} turns it is never closed"
            );
        }
    }
}

impl Bench {
    /// Sockets of links.
    fn files(&self) -> usize {
        let others = self.others.iter().map(|(thread, _)| thread);
        let threads = std::iter::once(&self.thread).chain(others);
        threads.map(|thread| thread.sockets.all.len()).sum()
    }
}
