//! A node that puts cells of its own making on its links, while it goes on as an honest one besides.

use rand::{Rng as _, RngExt as _};
use rand_chacha::ChaCha8Rng;
use weft_cell::{Cell, ChanCmd};

use super::link::Phase;
use super::record;
use super::state::World;

/// Attack of a hostile node on one of its links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attack {
    /// Random bytes in records.
    Noise,
    /// Cells of known commands with random bodies, on random circuits.
    Cells,
    /// Cells of known commands with random bodies, on existing circuits.
    OnCircuits,
    /// RELAY_EARLY cells on one circuit.
    Early,
    /// CREATE cells of all kinds.
    Creates,
    /// RELAY cells on one circuit, without regard to windows.
    Relays,
    /// DESTROY on every circuit of the link, also on those of others.
    Destroys,
    /// Half a record, then silence.
    HalfRecord,
}

impl Attack {
    /// All of them.
    pub const ALL: [Attack; 8] = [
        Attack::Noise,
        Attack::Cells,
        Attack::OnCircuits,
        Attack::Early,
        Attack::Creates,
        Attack::Relays,
        Attack::Destroys,
        Attack::HalfRecord,
    ];
}

const COMMANDS: [ChanCmd; 12] = [
    ChanCmd::PADDING,
    ChanCmd::CREATE,
    ChanCmd::CREATED,
    ChanCmd::RELAY,
    ChanCmd::DESTROY,
    ChanCmd::CREATE_FAST,
    ChanCmd::CREATED_FAST,
    ChanCmd::NETINFO,
    ChanCmd::RELAY_EARLY,
    ChanCmd::CREATE2,
    ChanCmd::CREATED2,
    ChanCmd::PADDING_NEGOTIATE,
];

impl World {
    /// A node does this on one of its links, with so many cells or records.
    pub(crate) fn attack(
        &mut self,
        number: usize,
        attack: Attack,
        count: u32,
        rng: &mut ChaCha8Rng,
    ) {
        let Some((thread, place)) = self.pick_link(number, rng.random_range(0..1 << 16)) else {
            return;
        };
        let circuits = self.circuits_on(number, (thread, place));
        let mut out = Vec::new();
        let one = pick(&circuits, rng);
        for number in 0..count {
            match attack {
                Attack::Noise => {
                    let mut bytes = vec![0; rng.random_range(0..2_000)];
                    rng.fill_bytes(&mut bytes);
                    record::put_bytes(&mut out, &bytes);
                }
                Attack::Cells => {
                    let circuit = rng.random();
                    let command = pick(&COMMANDS, rng).unwrap_or(ChanCmd::RELAY);
                    put(&mut out, circuit, command, rng);
                }
                Attack::OnCircuits => {
                    let circuit = pick(&circuits, rng).unwrap_or(1);
                    let command = pick(&COMMANDS, rng).unwrap_or(ChanCmd::RELAY);
                    put(&mut out, circuit, command, rng);
                }
                Attack::Early => put(&mut out, one.unwrap_or(1), ChanCmd::RELAY_EARLY, rng),
                Attack::Relays => put(&mut out, one.unwrap_or(1), ChanCmd::RELAY, rng),
                Attack::Creates => {
                    let commands = [ChanCmd::CREATE2, ChanCmd::CREATE_FAST, ChanCmd::CREATE];
                    let command = pick(&commands, rng).unwrap_or(ChanCmd::CREATE2);
                    // CREATE_FAST of any bytes is a good one; CREATE2 needs a type and a length.
                    let mut cell = Cell::new(rng.random(), command);
                    rng.fill_bytes(cell.body_mut());
                    if command == ChanCmd::CREATE2 {
                        let body = cell.body_mut();
                        if let Some(header) = body.first_chunk_mut() {
                            *header = [0, 2 + u8::from(rng.random_bool(0.3)), 0, 84];
                        }
                    }
                    record::put_bytes(&mut out, cell.as_bytes());
                }
                Attack::Destroys => {
                    if let Some(circuit) = circuits.get(number as usize) {
                        put(&mut out, *circuit, ChanCmd::DESTROY, rng);
                    }
                }
                Attack::HalfRecord => {
                    let mut whole = Vec::new();
                    put(&mut whole, one.unwrap_or(1), ChanCmd::RELAY, rng);
                    let half = rng.random_range(1..whole.len().max(2));
                    out.extend_from_slice(whole.get(..half).unwrap_or_default());
                    break;
                }
            }
        }
        let muted = attack == Attack::HalfRecord;
        self.put_on_link(number, (thread, place), &out, muted);
    }

    fn circuits_on(&self, number: usize, (thread, place): (usize, usize)) -> Vec<u32> {
        let node = self.nodes.get(number);
        let thread = node.and_then(|node| node.threads.get(thread));
        let Some(thread) = thread else {
            return Vec::new();
        };
        match thread.links.get(place).map(|link| link.phase) {
            Some(Phase::Open(key)) => thread.manager.inspect().circuit_ids(key).collect(),
            _ => Vec::new(),
        }
    }
}

pub(super) fn pick<T: Copy>(all: &[T], rng: &mut ChaCha8Rng) -> Option<T> {
    all.get(rng.random_range(0..all.len().max(1))).copied()
}

/// A cell with a random body, in a record of its own.
fn put(out: &mut Vec<u8>, circuit: u32, command: ChanCmd, rng: &mut ChaCha8Rng) {
    let mut cell = Cell::new(circuit, command);
    rng.fill_bytes(cell.body_mut());
    record::put_bytes(out, cell.as_bytes());
}
