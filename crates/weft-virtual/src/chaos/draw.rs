//! Rounds, drawn.

use std::collections::BTreeMap;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::round::{Client, Fault, FaultKind, Relay, Role, Round, Sharing, Traffic};
use crate::world::{Attack, DiskFault, Messages};

/// No stream of a calm round stands still for so long, in milliseconds: what circuits may have on their way passes the
/// slowest line in some seconds.
const PATIENT: u64 = 120_000;
/// Seed of [`Round::draw_odd`], beside the round's: what is drawn there changes nothing else.
const ODD: u64 = 0x6f64_6420_7573_6572;
/// Seed of [`Round::draw_hostile`], beside the round's.
const HOSTILE: u64 = 0x666f_7267_6572_7320;

/// Seed of [`Round::draw_files`], beside the round's. It leaves the rounds of seed 1 in which
/// docs/chaos.md found other faults without files.
const FILES: u64 = 0x6669_6c65_7320_83df;

/// A number whose logarithm is uniform, so that small ones are as likely as large ones.
fn spread(rng: &mut ChaCha8Rng, least: u64, most: u64) -> u64 {
    let (low, high) = ((least.max(1) as f64).ln(), (most.max(1) as f64).ln());
    let drawn = rng.random_range(low..=high).exp();
    // It is between the two, so it fits.
    (drawn as u64).clamp(least, most)
}

fn one_of<T: Clone>(rng: &mut ChaCha8Rng, first: T, others: &[T]) -> T {
    match rng.random_range(0..=others.len()) {
        0 => first,
        place => others.get(place - 1).cloned().unwrap_or(first),
    }
}

impl Round {
    /// The round of a seed with this number.
    #[must_use]
    pub fn draw(seed: u64, number: u64) -> Round {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(number);
        let rng = &mut rng;
        let lasts = spread(rng, 8_000, 60_000);
        let relays = rng.random_range(3..=12);
        let relays: Vec<Relay> = (0..relays).map(|place| relay(rng, place)).collect();
        let clients = rng.random_range(1..=8);
        let clients: Vec<Client> = (0..clients).map(|_| client(rng, lasts)).collect();
        let servers = rng.random_range(1..=3);
        let losses = [0, 0, 0, 1_000, 10_000];
        let costs = match rng.random_bool(0.3) {
            true => [50_000, 20_000, 500_000].map(|most| rng.random_range(0..=most)),
            false => [0; 3],
        };
        let nodes = relays.len() + clients.len();
        let mut paths = BTreeMap::new();
        for _ in 0..rng.random_range(0..5) {
            let (one, other) = (rng.random_range(0..nodes), rng.random_range(0..nodes));
            let path = (spread(rng, 1, 400), one_of(rng, 30_000, &losses));
            if one != other {
                paths.insert((one.min(other), one.max(other)), path);
            }
        }
        let paths = paths.into_iter();
        let paths = paths.map(|((one, other), (delay, loss))| (one, other, delay, loss));
        let paths = paths.collect();
        let mut round = Round {
            seed: rng.random(),
            lasts,
            congestion_control: rng.random_bool(0.6),
            sharing: one_of(rng, Sharing::All, &[Sharing::PerCircuit, Sharing::Auto]),
            conflux: false,
            legs: 0,
            common_entry: false,
            abra: false,
            any_previous: false,
            unlisted: Vec::new(),
            reno: rng.random_bool(0.2),
            costs,
            delay: spread(rng, 1, 100),
            loss: one_of(rng, 0, &losses),
            paths,
            relays,
            clients,
            servers,
            faults: Vec::new(),
        };
        round.draw_tunnels(seed, number);
        let is_calm = rng.random_bool(0.2);
        round.draw_odd(seed, number, is_calm);
        if is_calm {
            round.calm();
            round.draw_files(seed, number);
            return round;
        }
        let count = spread(rng, 1, 60);
        round.faults = (0..count).map(|_| fault(rng, &round)).collect();
        round.draw_hostile(seed, number);
        round.faults.sort_by_key(|fault| fault.at);
        round.draw_files(seed, number);
        round
    }

    /// Files of clients, in half of the rounds, and disks that fail. Where other things go wrong, too, processes are killed. These faults
    /// stand behind all others: what else a round has does not depend on them.
    fn draw_files(&mut self, seed: u64, number: u64) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ FILES);
        rng.set_stream(number);
        let rng = &mut rng;
        if rng.random() {
            return;
        }
        let kills = !self.is_calm() && !self.is_siege();
        for place in 0..self.clients.len() {
            if rng.random_bool(0.3) {
                continue;
            }
            if let Some(client) = self.clients.get_mut(place) {
                client.files = spread(rng, 500, 4_000);
            }
            for _ in 0..rng.random_range(2..=12) {
                let fault = file_fault(rng, place, self.lasts, kills);
                self.faults.push(fault);
            }
        }
    }

    /// Nodes that forge messages: in a quarter of the rounds with faults they are all that is wrong, in others they are beside
    /// nodes that are hostile in other ways. And links of relays that move while messages between threads are late. What else a
    /// round has does not depend on it.
    fn draw_hostile(&mut self, seed: u64, number: u64) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ HOSTILE);
        rng.set_stream(number);
        let rng = &mut rng;
        if rng.random_bool(0.25) {
            return self.besiege(rng);
        }
        let is_hostile = |fault: &Fault| matches!(fault.kind, FaultKind::Hostile { .. });
        if self.faults.iter().any(is_hostile) && rng.random_bool(0.5) {
            for _ in 0..spread(rng, 1, 10) {
                let node = rng.random_range(0..self.nodes());
                self.faults.push(forges(rng, node, self.lasts));
            }
        }
        if rng.random_bool(0.3) {
            for _ in 0..rng.random_range(1..=3) {
                let node = rng.random_range(0..self.nodes());
                self.faults.push(hangs(rng, node, self.lasts));
            }
        }
        if rng.random_bool(0.4) {
            for relay in 0..self.relays.len() {
                if rng.random() {
                    self.move_late(rng, relay);
                }
            }
        }
    }

    /// Links of a relay move, while messages between its threads are late.
    fn move_late(&mut self, rng: &mut ChaCha8Rng, node: usize) {
        if let Some(relay) = self.relays.get_mut(node) {
            relay.threads = relay.threads.max(2);
        }
        for _ in 0..rng.random_range(1..=3) {
            let (at, lasts) = (rng.random_range(0..=self.lasts), spread(rng, 1_000, 10_000));
            let most = spread(rng, 5_000, 300_000);
            let late = FaultKind::Late { node, most };
            let moves = FaultKind::Moves { relay: node };
            (self.faults).extend([late, moves].map(|kind| Fault { at, lasts, kind }));
        }
    }

    /// Leaves out everything that goes wrong, and has another client, perhaps a relay as well, forge messages.
    fn besiege(&mut self, rng: &mut ChaCha8Rng) {
        self.calm();
        self.faults.clear();
        for client in &mut self.clients {
            client.one_hop = false;
        }
        let mut hostile = client(rng, self.lasts);
        hostile.rate = spread(rng, 10_000, 100_000);
        (hostile.start, hostile.traffic.stall) = (0, PATIENT);
        (hostile.tunnels, hostile.one_hop) = (self.legs > 0, rng.random_bool(0.3));
        hostile.traffic.pause = hostile.traffic.pause.max(100);
        self.clients.push(hostile);
        let hostile = self.nodes() - 1;
        if rng.random_bool(0.4) {
            for _ in 0..rng.random_range(1..=3) {
                self.faults.push(hangs(rng, hostile, self.lasts));
            }
        }
        let mut nodes = vec![hostile];
        if rng.random_bool(0.4) {
            nodes.push(rng.random_range(0..self.relays.len()));
        }
        for node in nodes {
            for _ in 0..rng.random_range(3..=12) {
                self.faults.push(forges(rng, node, self.lasts));
            }
        }
    }

    /// Several circuits for a stream, in half of the rounds. What else a round has does not depend on it.
    fn draw_tunnels(&mut self, seed: u64, number: u64) {
        let mut rng = ChaCha8Rng::seed_from_u64(!seed);
        rng.set_stream(number);
        self.conflux = rng.random_bool(0.3);
        self.common_entry = rng.random();
        if rng.random_bool(0.3) {
            self.legs = one_of(&mut rng, 3, &[1, 2, 5, 8]);
            for client in &mut self.clients {
                client.tunnels = rng.random_bool(0.7);
            }
        }
    }

    /// Draws the behaviour of users and controllers beyond plain streams. The rest of the round
    /// does not depend on it. In a calm round all of it completes.
    fn draw_odd(&mut self, seed: u64, number: u64, is_calm: bool) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ ODD);
        rng.set_stream(number);
        self.abra = rng.random_bool(0.2);
        for client in &mut self.clients {
            client.names = rng.random_bool(0.4);
            client.refused = rng.random_bool(0.3) && !is_calm;
            client.held = rng.random_bool(0.2) && !is_calm;
            client.one_hop = rng.random_bool(0.1) && !is_calm;
            if client.refused || client.one_hop {
                // What is refused at once is asked for again at once.
                client.traffic.pause = client.traffic.pause.max(100);
            }
        }
        let relays = self.relays.len();
        if rng.random_bool(0.3) && !is_calm {
            for _ in 0..rng.random_range(1..=relays) {
                let (relay, other) = (rng.random_range(0..relays), rng.random_range(0..relays));
                if relay != other {
                    self.unlisted.push((relay, other));
                }
            }
        }
        self.any_previous = rng.random();
        for client in &mut self.clients {
            if rng.random_bool(0.4) {
                client.rests = rng.random_range(1..=3);
            }
            if rng.random_bool(0.3) && !is_calm {
                client.traffic.timeout = Some(spread(&mut rng, 500, 20_000));
            }
        }
    }

    /// Takes everything out for which a stream may stand still.
    fn calm(&mut self) {
        (self.loss, self.costs) = (0, [0; 3]);
        for (_, _, _, loss) in &mut self.paths {
            *loss = 0;
        }
        for relay in &mut self.relays {
            relay.limit = None;
        }
        for client in &mut self.clients {
            (client.traffic.stall, client.traffic.timeout) = (PATIENT, None);
            (client.refused, client.held) = (false, false);
        }
        self.unlisted.clear();
    }

    /// Nothing goes wrong but disks, and nothing but the lines holds anything up: each stream must come to its end.
    pub(super) fn is_calm(&self) -> bool {
        self.faults.iter().all(Fault::is_of_disk) && self.is_quiet()
    }

    /// Nothing goes wrong but that nodes forge messages: each stream that goes through none of these must come to its end. They may
    /// read nothing as well.
    pub(super) fn is_siege(&self) -> bool {
        let forgers = self.forgers();
        let of_these = |fault: &Fault| match fault.kind {
            FaultKind::Forges { .. } => true,
            FaultKind::Hangs { node } => forgers.contains(&node),
            _ => fault.is_of_disk(),
        };
        !forgers.is_empty() && self.faults.iter().all(of_these) && self.is_quiet()
    }

    /// Nothing but the lines, and what faults there are, holds anything up.
    fn is_quiet(&self) -> bool {
        let losses = self.paths.iter().map(|(_, _, _, loss)| *loss);
        self.loss == 0
            && self.costs == [0; 3]
            && losses.max().unwrap_or(0) == 0
            && self.relays.iter().all(|relay| relay.limit.is_none())
            && self
                .clients
                .iter()
                .all(|client| client.traffic.stall >= PATIENT && client.traffic.timeout.is_none())
    }
}

fn relay(rng: &mut ChaCha8Rng, place: usize) -> Relay {
    let role = match place {
        0 => Role::Guard,
        1 => Role::Exit,
        _ => one_of(rng, Role::Middle, &[Role::Guard, Role::Exit]),
    };
    Relay {
        role,
        threads: rng.random_range(1..=4),
        rate: spread(rng, 3_000, 300_000),
        queue: u32::try_from(spread(rng, 10, 1_000)).unwrap_or(1_000),
        limit: rng.random_bool(0.2).then(|| spread(rng, 30_000, 3_000_000)),
    }
}

fn client(rng: &mut ChaCha8Rng, lasts: u64) -> Client {
    let (down, up) = match rng.random_range(0..6) {
        0 => (0, spread(rng, 1, 5_000_000)),
        1 => (spread(rng, 1, 5_000_000), spread(rng, 1, 2_000_000)),
        2 => (spread(rng, 1, 2_000), 0),
        _ => (spread(rng, 10_000, 10_000_000), 0),
    };
    let periodic = rng.random_bool(0.25);
    Client {
        rate: spread(rng, 1_000, 100_000),
        queue: u32::try_from(spread(rng, 10, 500)).unwrap_or(500),
        start: rng.random_range(0..=lasts / 2),
        tunnels: false,
        names: false,
        refused: false,
        held: false,
        one_hop: false,
        files: 0,
        rests: 0,
        traffic: Traffic {
            down,
            up,
            parts: one_of(rng, 1, &[1, 2, 10, 50]),
            pause: match periodic {
                true => spread(rng, 200, 5_000),
                false => spread(rng, 1, 1_000) - 1,
            },
            periodic,
            stall: spread(rng, 5_000, 60_000),
            timeout: None,
        },
    }
}

/// Something goes wrong with a client's files. With `kills`, its process may be killed.
fn file_fault(rng: &mut ChaCha8Rng, client: usize, lasts: u64, kills: bool) -> Fault {
    // A save of the state has five steps, SAVECONF eleven.
    let steps = one_of(rng, 5, &[11]);
    let disk = FaultKind::Disk {
        client,
        step: rng.random_range(0..steps),
        how: match rng.random_range(0..4) {
            0 => DiskFault::Full,
            1 | 2 if kills => DiskFault::Killed(rng.random()),
            _ => DiskFault::Short(rng.random()),
        },
    };
    let damaged = rng.random();
    let kind = match kills && rng.random_bool(0.4) {
        true => FaultKind::Restarts { client, damaged },
        false => disk,
    };
    Fault {
        at: match rng.random_bool(0.3) {
            true => 0,
            false => rng.random_range(0..=lasts),
        },
        lasts: spread(rng, 1_000, 10_000),
        kind,
    }
}

/// A node reads nothing.
fn hangs(rng: &mut ChaCha8Rng, node: usize, lasts: u64) -> Fault {
    Fault {
        at: rng.random_range(0..=lasts),
        lasts: spread(rng, 500, 20_000),
        kind: FaultKind::Hangs { node },
    }
}

/// A node forges messages.
fn forges(rng: &mut ChaCha8Rng, node: usize, lasts: u64) -> Fault {
    let kind = FaultKind::Forges {
        node,
        messages: one_of(rng, Messages::Mixed, &Messages::ALL),
        count: u32::try_from(spread(rng, 1, 1_000)).unwrap_or(1),
    };
    Fault {
        at: rng.random_range(0..=lasts),
        lasts: spread(rng, 1, 20_000),
        kind,
    }
}

fn fault(rng: &mut ChaCha8Rng, round: &Round) -> Fault {
    let node = rng.random_range(0..round.nodes());
    let relay = rng.random_range(0..round.relays.len());
    let kind = match rng.random_range(0..13) {
        0 => FaultKind::Dies {
            relay,
            silent: rng.random(),
        },
        1 | 2 => FaultKind::Breaks {
            pick: rng.random_range(0..1 << 16),
        },
        3 => FaultKind::Cut {
            one: node,
            other: relay,
        },
        4 => FaultKind::DeafServer {
            server: rng.random_range(0..round.servers),
        },
        5 => FaultKind::DeafUser {
            client: rng.random_range(0..round.clients.len()),
        },
        6 => FaultKind::Memory {
            node,
            percent: rng.random_range(0..100),
        },
        7 | 8 => FaultKind::Hostile {
            node,
            attack: one_of(rng, Attack::Noise, &Attack::ALL),
            count: u32::try_from(spread(rng, 1, 400)).unwrap_or(1),
        },
        9 => FaultKind::Late {
            node: relay,
            most: spread(rng, 10, 2_000_000),
        },
        10 | 11 => FaultKind::Moves { relay },
        _ => FaultKind::Jump {
            node,
            mono: match rng.random_bool(0.5) {
                true => spread(rng, 1, 600_000),
                false => 0,
            },
            wall: rng.random_range(-90_000..90_000),
        },
    };
    Fault {
        at: rng.random_range(0..=round.lasts),
        lasts: spread(rng, 1, 20_000),
        kind,
    }
}
