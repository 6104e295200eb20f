//! Nothing that a peer does lowers the age of bytes that stay.
//!
//! Each test plays any actions of a peer on one of the places where bytes wait. It notes when each piece arrived, and
//! compares: a place never weighs less than its pieces would, each by its own age.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use weft_cell::relay::RelayBody;
use weft_cell::{Cell, ChanCmd, RelayCmd, relay};

use crate::address::{ConnectionId, EdgeAddr, HalfAddr, HopIndex, StreamAddr, ThreadId};
use crate::flow::{CcParams, CircuitFlow, StreamFlow, Terms};
use crate::handshake::{LinkRole, PeerIdentity};
use crate::link::Link;
use crate::link::padding::{Ends, LinkPadding};
use crate::memory::buffer::Spares;
use crate::memory::cells::{CellPool, CellQueue};
use crate::memory::ledger::Held;
use crate::slots::{EdgeKey, HalfKey};
use crate::stream::edge::{Edge, StreamAt};
use crate::stream::table::{Place, Streams};
use crate::tunnel::{Arrival, LegLink, Legs, Policy, Reorder, Room, Sequence};

const CELL: usize = size_of::<Cell>();

/// Time, and a number that each piece has of its own.
struct Clock {
    now: Instant,
    pieces: u32,
}

impl Clock {
    fn new() -> Self {
        let now = Instant::now();
        Clock { now, pieces: 0 }
    }

    /// Time passes before each action.
    fn pass(&mut self, millis: u16) {
        self.now += Duration::from_millis(u64::from(millis));
    }

    /// A cell of its own.
    fn cell(&mut self) -> Box<Cell> {
        self.pieces += 1;
        Box::new(Cell::new(self.pieces, ChanCmd::RELAY))
    }

    /// A place that holds pieces of one size, which arrived then.
    fn check(
        &self,
        held: Held,
        size: usize,
        pieces: impl IntoIterator<Item = Instant>,
        late: Duration,
    ) -> Result<(), TestCaseError> {
        let mut least = 0;
        for at in pieces {
            let age = (self.now - at).saturating_sub(late);
            least += Held::waiting(size, age).weight();
        }
        prop_assert!(held.weight() >= least, "{held:?} weighs less than {least}");
        Ok(())
    }
}

/// Actions of a peer: kind of action, a number for it, and the milliseconds that pass before.
fn actions() -> impl Strategy<Value = Vec<(u8, u8, u16)>> {
    let pause = prop_oneof![3 => Just(0), 2 => 1..300_u16, 1 => 1_000..20_000_u16];
    proptest::collection::vec((any::<u8>(), any::<u8>(), pause), 0..150)
}

fn half() -> HalfAddr {
    HalfAddr {
        thread: ThreadId(0),
        slot: HalfKey(0),
        generation: 0,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn of_cells_in_a_queue(actions in actions()) {
        let (mut clock, mut queue) = (Clock::new(), CellQueue::default());
        let mut arrived = VecDeque::new();
        for (what, number, pause) in actions {
            clock.pass(pause);
            match what % 4 {
                0 | 1 => {
                    queue.push(clock.cell(), clock.now);
                    arrived.push_back(clock.now);
                }
                2 => {
                    let moved = queue.move_to(&mut VecDeque::new(), u32::from(number % 4));
                    arrived.drain(..moved as usize);
                }
                _ => queue.trim(),
            }
            prop_assert_eq!(queue.len(), arrived.len());
            clock.check(queue.held(clock.now), CELL, arrived.iter().copied(), Duration::ZERO)?;
        }
    }

    #[test]
    fn of_messages_that_arrived_before_others(actions in actions()) {
        let (mut clock, mut reorder) = (Clock::new(), Reorder::default());
        let mut arrived = BTreeMap::new();
        for (what, number, pause) in actions {
            clock.pass(pause);
            let number = match what % 4 {
                0 => reorder.delivered() + 1,
                _ => reorder.delivered() + u64::from(number % 40),
            };
            match reorder.arrived(number, clock.cell(), clock.now) {
                Arrival::Kept => {
                    arrived.insert(number, clock.now);
                }
                Arrival::Next(_) => while reorder.next(clock.now).is_some() {
                    arrived.remove(&reorder.delivered());
                },
                Arrival::Repeated(_) | Arrival::TooMany(_) => {}
            }
            prop_assert_eq!(reorder.len(), arrived.len());
            clock.check(reorder.held(clock.now), CELL, arrived.values().copied(), Duration::ZERO)?;
        }
    }

    #[test]
    fn of_copies_that_legs_may_have_to_send_again(actions in actions()) {
        let (mut clock, mut pool) = (Clock::new(), CellPool::default());
        let mut legs = Legs::new(Policy::Mtor);
        let leg = |number: u8| HalfAddr { slot: HalfKey(u32::from(number % 2)), ..half() };
        for number in 0..2 {
            let link = LegLink {
                connection: ConnectionId(0),
                network: IpAddr::V4(Ipv4Addr::LOCALHOST),
                from_client: true,
            };
            legs.add(leg(number), link, None, clock.now);
            legs.linked(leg(number), Sequence::default(), None);
        }
        let mut sent = BTreeMap::new();
        for (what, number, pause) in actions {
            clock.pass(pause);
            let now = clock.now;
            let room = |cells, acknowledged| Room { cells, rtt: None, acknowledged };
            match what % 4 {
                0 => for _ in 0..number % 40 {
                    legs.note_room(leg(number), room(1, 0), now);
                    if let Some(choice) = legs.choose(true) {
                        legs.keep(choice, &clock.cell(), now);
                        sent.insert(choice.number, now);
                    }
                },
                1 => legs.note_room(leg(number), room(0, u32::from(number / 2 % 16)), now),
                2 => {
                    let first = sent.first_key_value().map_or(1, |(number, _)| *number);
                    legs.acknowledged(first + u64::from(number % 8), now);
                }
                _ => {
                    legs.send_tail_again(now);
                    legs.note_room(leg(number), room(8, 0), now);
                    while legs.next_again(&mut pool, now).is_some() {}
                }
            }
            sent.retain(|number, _| legs.keeps(*number));
            clock.check(legs.held(now), CELL, sent.values().copied(), Duration::ZERO)?;
        }
    }

    #[test]
    fn of_cells_that_wait_for_a_window_whichever_streams_end(actions in actions()) {
        let (mut clock, mut pool) = (Clock::new(), CellPool::default());
        let mut streams = Streams::one(Some(CircuitFlow::fixed()));
        let edge = |id: u16| EdgeAddr {
            thread: ThreadId(0),
            slot: EdgeKey(u32::from(id)),
            generation: 0,
        };
        let mut arrived = BTreeMap::new();
        let mut rng = StdRng::seed_from_u64(1);
        for (what, number, pause) in actions {
            clock.pass(pause);
            let id = 1 + u16::from(number % 4);
            match what % 6 {
                0..3 => {
                    streams.add(id, HopIndex::ORIGIN, Place::At(edge(id)));
                    let mut cell = clock.cell();
                    relay::encode(cell.body_mut(), RelayCmd::DATA, id, &[1], &mut rng).unwrap();
                    arrived.insert(cell.circ_id(), clock.now);
                    let (_, end) = streams.accept(&cell, edge(id)).unwrap();
                    end.pending.push_back((edge(id), cell));
                    end.note(clock.now);
                }
                3 | 4 => {
                    let (ends, mut table) = streams.split();
                    for _ in 0..number % 3 {
                        if let Some((edge, cell)) = ends[0].take() {
                            let id = RelayBody::new(cell.body()).stream_id();
                            table.leaving(id, edge, &mut ends[0]);
                        }
                    }
                    ends[0].note(clock.now);
                }
                _ => {
                    streams.remove(id, &mut pool);
                }
            }
            let waiting = streams.ends[0].pending.iter().map(|(_, cell)| arrived[&cell.circ_id()]);
            clock.check(streams.held(clock.now), CELL, waiting, Duration::ZERO)?;
        }
    }

    #[test]
    fn of_data_that_came_before_its_stream_was_decided(actions in actions()) {
        let mut clock = Clock::new();
        let cc = CcParams::default();
        let mut streams = Streams::one(Some(CircuitFlow::fixed()));
        let mut deciding = BTreeMap::<u16, (StreamAddr, Vec<Instant>)>::new();
        for (what, number, pause) in actions {
            clock.pass(pause);
            let id = 1 + u16::from(number % 4);
            match what % 4 {
                0 => if let Some(generation) =
                    streams.add(id, HopIndex::ORIGIN, Place::Deciding(Default::default()))
                {
                    let addr = StreamAddr { half: half(), id, generation };
                    deciding.insert(id, (addr, Vec::new()));
                },
                1 | 2 => if let Some((_, arrived)) = deciding.get_mut(&id) {
                    streams.keep_early(id, clock.cell(), &cc, clock.now);
                    arrived.push(clock.now);
                },
                _ => if let Some((addr, _)) = deciding.remove(&id) {
                    streams.refuse(addr);
                },
            }
            let waiting = deciding.values().flat_map(|(_, arrived)| arrived.iter().copied());
            clock.check(streams.held(clock.now), CELL, waiting, Duration::ZERO)?;
        }
    }

    #[test]
    fn of_bytes_for_a_socket_that_takes_few(actions in actions()) {
        const PIECE: usize = 100;
        let mut clock = Clock::new();
        let addr = StreamAddr { half: half(), id: 1, generation: 0 };
        let at = StreamAt { addr, terms: Terms::Windows };
        let mut edge = Edge::exit(ConnectionId(1), at, StreamFlow::fixed());
        let mut spares = Spares::default();
        let mut arrived = VecDeque::new();
        for (what, number, pause) in actions {
            clock.pass(pause);
            let pieces = usize::from(number % 8);
            match what % 2 {
                0 => {
                    let bytes = vec![1; pieces * PIECE];
                    edge.got += bytes.len() as u64;
                    edge.out.push(&bytes, &mut spares);
                    arrived.extend(std::iter::repeat_n(clock.now, pieces));
                }
                _ => {
                    let pieces = pieces.min(arrived.len());
                    edge.out.take(pieces * PIECE, &mut spares);
                    arrived.drain(..pieces);
                }
            }
            edge.note_out(clock.now);
            clock.check(edge.held(clock.now), PIECE, arrived.iter().copied(), Duration::ZERO)?;
        }
    }

    #[test]
    fn of_what_a_link_s_peer_reads_bit_by_bit(actions in actions()) {
        const TICK: Duration = Duration::from_millis(250);
        let mut clock = Clock::new();
        let padding = LinkPadding::new(Ends::PeerIsClient, true, clock.now);
        let (peer, addr) = (PeerIdentity::Unauthenticated, IpAddr::V4(Ipv4Addr::LOCALHOST));
        let mut link = Link::new(ConnectionId(1), peer, addr, LinkRole::Accepted, 1, padding, clock.now);
        let mut arrived = VecDeque::new();
        let mut ticked = clock.now;
        for (what, number, pause) in actions {
            // The timer runs four times a second.
            clock.pass(pause);
            while clock.now - ticked >= TICK {
                ticked += TICK;
                link.note_waits(ticked);
            }
            match what % 2 {
                0 => {
                    link.out.push_back(clock.cell());
                    arrived.push_back(clock.now);
                }
                _ => {
                    let count = usize::from(number % 4).min(arrived.len());
                    link.out.drain(..count);
                    arrived.drain(..count);
                    link.written += count as u64;
                    link.held = number >= 128;
                }
            }
            clock.check(link.held(clock.now), CELL, arrived.iter().copied(), TICK)?;
        }
    }
}
