//! A relay without sockets, and the peers and the controller around it.

use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use weft_cell::circ_msg::{CreateReply, CreateRequest, Extend2};
use weft_cell::{CELL_LEN, Cell, ChanCmd, RelayCmd, relay};
use weft_core::address::{ConnectionId, ThreadId};
use weft_core::handshake::{Established, LinkRole, PeerIdentity};
use weft_core::manager::{ControllerLoad, LocalConnectionManager};
use weft_core::memory::cells::Empties;
use weft_core::message::{FromController, LaneMsg, ToController};
use weft_core::params::RelayParams;
use weft_core::slots::LinkKey;
use weft_crypto::Tor1Keys;
use weft_crypto::circuit::OriginCircuit;
use weft_sync::ring::{Receiver, Sender, ring};

/// The bit of a circuit id that the opener of a link sets (tor-spec 5.1.1).
const OPENED: u32 = 1 << 31;
/// Cells in one batch between threads at most, as in weft-node's mesh.
const BATCH: usize = 512;
/// Cells that one TLS record takes.
const CELLS_PER_RECORD: usize = 31;
/// Cells that a link may take in one run of the scheduler.
const ROOM: u32 = 1000;
/// From one turn to the next.
const TURN: Duration = Duration::from_millis(1);

/// Direction of the cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the circuits' origin.
    Forward,
    /// Toward it.
    Backward,
}

/// Number of circuits, and the order of their cells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Links on each side.
    links: usize,
    /// Circuits on each link.
    circuits: usize,
    /// Cells of one circuit that come in a row.
    run: usize,
    /// Runs of each circuit of a link in one turn.
    rounds: usize,
    /// In place of these: this number of cells in a turn, each of any circuit of any link and alone
    /// in its record. After each the thread checks for work, as it does when each is a separate
    /// event.
    single: Option<usize>,
    /// A client has asked for the relay's weight: what circuits move is measured.
    asked: bool,
    /// From one turn to the next.
    turn: Duration,
}

impl Load {
    /// 20 circuits, cells in runs, about 64 KiB a turn from each link: a few bulk transfers.
    pub(crate) const FEW: Load = Load {
        links: 2,
        circuits: 10,
        run: 6,
        rounds: 2,
        single: None,
        asked: false,
        turn: TURN,
    };
    /// 1,500 circuits over 150 links, one cell of each at a time: nothing can be remembered from one
    /// cell to the next.
    pub(crate) const MANY: Load = Load {
        links: 75,
        circuits: 20,
        run: 1,
        rounds: 1,
        single: None,
        asked: false,
        turn: TURN,
    };
    /// 4,000 circuits over 2,000 links with 40 cells a millisecond in all: what most of a relay's links are like.
    pub(crate) const THIN: Load = Load {
        links: 1000,
        circuits: 4,
        run: 1,
        rounds: 1,
        single: Some(20),
        asked: false,
        turn: Duration::from_micros(500),
    };
    /// Like [`THIN`](Self::THIN), measured (docs/extensions/abra.md): each circuit moves five cells
    /// in each bin of 100 ms.
    pub(crate) const ASKED: Load = Load {
        asked: true,
        turn: Duration::from_millis(20),
        ..Load::MANY
    };
}

/// A link to the relay, and the peer at its other end.
struct Link {
    connection: ConnectionId,
    key: LinkKey,
    /// Its circuits' ids.
    circuits: Vec<u32>,
    /// Bytes that the peer sends in each turn.
    bytes: Vec<u8>,
}

/// The cells of a load of single ones.
struct Singles {
    /// Number of cells in a turn.
    cells: usize,
    /// Each circuit of each link once, in the order of their cells.
    order: Vec<(usize, usize)>,
    /// The next.
    next: usize,
}

/// Cells on their way to another thread, and memory on its way home.
struct Batch {
    cells: Vec<LaneMsg>,
    empties: Empties,
}

/// The relay under measurement. The links toward the clients are on the first thread, the others on
/// the last.
pub(crate) struct Relay {
    now: Instant,
    managers: Vec<LocalConnectionManager>,
    lanes: (Sender<Batch>, Receiver<Batch>),
    clients: Vec<Link>,
    nexts: Vec<Link>,
    /// Cells that the peers have sent since.
    sent: u64,
    /// Cells that were written, before they are recycled.
    spent: Empties,
    single: Option<Singles>,
    /// From one turn to the next.
    turn: Duration,
}

impl Relay {
    /// A relay with open circuits, at rest.
    pub(crate) fn with_circuits(threads: u16, load: Load) -> Result<Self> {
        let mut params = RelayParams::new([0xaa; 20].into(), [0xab; 32].into());
        params.extend_to_private = true;
        let params = Arc::new(params);
        let managers = (0..threads)
            .map(|id| LocalConnectionManager::new(ThreadId(id), threads, params.clone(), [7; 32]))
            .collect();
        let mut this = Relay {
            now: Instant::now(),
            managers,
            lanes: ring(64),
            clients: Vec::new(),
            nexts: Vec::new(),
            sent: 0,
            spent: Vec::new(),
            single: None,
            turn: load.turn,
        };
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for number in 0..load.links {
            let client = this.open(0, 2 * number, 1, false);
            this.clients.push(client);
            let next = this.open(this.managers.len() - 1, 2 * number + 1, 2, true);
            this.nexts.push(next);
            for _ in 0..load.circuits {
                this.make_circuit(number, &mut rng)?;
            }
        }
        for link in this.clients.iter_mut().chain(&mut this.nexts) {
            link.bytes = one_turn(&link.circuits, load, &mut rng);
        }
        this.single = load.single.map(|cells| {
            let links = 0..load.links;
            let mut order: Vec<_> = links
                .flat_map(|link| (0..load.circuits).map(move |circuit| (link, circuit)))
                .collect();
            order.shuffle(&mut rng);
            Singles {
                cells,
                order,
                next: 0,
            }
        });
        // Whatever making the circuits left to be written.
        this.carry(Direction::Forward);
        this.carry(Direction::Backward);
        for thread in 0..this.managers.len() {
            this.write(thread);
        }
        if load.asked {
            for manager in &mut this.managers {
                manager.handle_controller(FromController::MeasureAbra(true), this.now);
            }
        }
        Ok(this)
    }

    /// Opens a link with relay number `peer`.
    fn open(&mut self, thread: usize, connection: usize, peer: u8, initiated: bool) -> Link {
        let connection = ConnectionId(connection as u64);
        let established = Established {
            link_protocol: 5,
            role: match initiated {
                true => LinkRole::OpenedAsRelay,
                false => LinkRole::Accepted,
            },
            peer: PeerIdentity::Relay {
                rsa: [peer; 20].into(),
                ed25519: [peer; 32].into(),
            },
            clock_skew: None,
            my_addr: None,
            peer_addrs: Vec::new(),
            canonical: true,
        };
        Link {
            connection,
            key: self.managers[thread].open_link(
                connection,
                Ipv4Addr::from([127, 0, 0, peer]).into(),
                &established,
                self.now,
            ),
            circuits: Vec::new(),
            bytes: Vec::new(),
        }
    }

    /// Makes a circuit over client link and next link `number`: CREATE_FAST, EXTEND2 and their
    /// answers, with keys that no handshake made.
    fn make_circuit(&mut self, number: usize, rng: &mut ChaCha8Rng) -> Result<()> {
        let last = self.managers.len() - 1;
        let (client, next) = (self.clients[number].key, self.nexts[number].key);
        let connection = self.nexts[number].connection;

        let circ_id = OPENED | (self.clients[number].circuits.len() as u32 + 1);
        let create = CreateRequest::Fast { x: [0; 20] }.encode(circ_id)?;
        self.managers[0].receive(client, create.as_bytes(), self.now)?;
        let half = loop {
            match self.managers[0]
                .poll_controller(ControllerLoad::Ready)
                .context("no CREATE")?
            {
                ToController::Create { half, .. } => break half,
                ToController::LinkOpened { .. } => {}
                other => bail!("{other:?}"),
            }
        };
        let mut material = [0; Tor1Keys::LEN];
        rng.fill_bytes(&mut material);
        let keys = Tor1Keys::from_key_material(&material);
        let mut crypt = OriginCircuit::new();
        crypt.add_hop(&keys.clone().into());
        let reply = CreateReply::Fast {
            y: [0; 20],
            kh: keys.kh,
        };
        let created = FromController::Created {
            half,
            reply,
            keys: Box::new(keys.into()),
            sendme_inc: None,
        };
        self.managers[0].handle_controller(created, self.now);

        let message = Extend2 {
            ipv4: Some(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9001)),
            rsa: Some([2; 20].into()),
            ed25519: Some([2; 32].into()),
            handshake_type: 2,
            handshake: vec![0; 84],
            ..Extend2::default()
        };
        let mut cell = Cell::new(circ_id, ChanCmd::RELAY_EARLY);
        relay::encode(
            cell.body_mut(),
            RelayCmd::EXTEND2,
            0,
            &message.encode()?,
            rng,
        )?;
        crypt.encrypt_forward(0, cell.command(), cell.body_mut())?;
        self.managers[0].receive(client, cell.as_bytes(), self.now)?;
        let Some(ToController::Extend(request)) =
            self.managers[0].poll_controller(ControllerLoad::Ready)
        else {
            bail!("the relay does not ask to extend");
        };
        let join = FromController::Join {
            connection,
            request,
        };
        self.managers[last].handle_controller(join, self.now);
        self.carry(Direction::Backward);

        self.managers[last].schedule(self.now, |_| ROOM);
        let create = self.managers[last]
            .links_mut()
            .outgoing(next)
            .and_then(|out| out.pop_back())
            .context("no CREATE2")?;
        ensure!(create.command() == ChanCmd::CREATE2, "{create:?}");
        let created = CreateReply::Created2 { data: vec![0; 64] }.encode(create.circ_id())?;
        self.managers[last].receive(next, created.as_bytes(), self.now)?;
        self.carry(Direction::Backward);
        self.clients[number].circuits.push(circ_id);
        self.nexts[number].circuits.push(create.circ_id());
        Ok(())
    }

    /// Every peer on one side sends its bytes, and all that follows is written.
    pub(crate) fn turn(&mut self, direction: Direction) {
        self.now += self.turn;
        let last = self.managers.len() - 1;
        let (from, to, links) = match direction {
            Direction::Forward => (0, last, &self.clients),
            Direction::Backward => (last, 0, &self.nexts),
        };
        let reader = &mut self.managers[from];
        let mut receive = |link: &Link, bytes: &[u8]| {
            if let Err(error) = reader.receive(link.key, bytes, self.now) {
                panic!("{error}");
            }
            self.sent += (bytes.len() / CELL_LEN) as u64;
            black_box((reader.links().any_unwritten(), reader.has_backlog()));
        };
        match &mut self.single {
            None => {
                for link in links {
                    receive(link, &link.bytes);
                }
            }
            Some(Singles { cells, order, next }) => {
                for _ in 0..*cells {
                    let (link, circuit) = order[*next];
                    let link = &links[link];
                    receive(link, &link.bytes[circuit * CELL_LEN..][..CELL_LEN]);
                    *next = (*next + 1) % order.len();
                }
            }
        }
        self.carry(direction);
        self.write(to);
        // Memory goes home.
        self.carry(match direction {
            Direction::Forward => Direction::Backward,
            Direction::Backward => Direction::Forward,
        });
    }

    /// Takes the messages of one thread to the other, as weft-node's mesh does.
    fn carry(&mut self, direction: Direction) {
        let (from, to) = match (self.managers.as_mut_slice(), direction) {
            ([first, second], Direction::Forward) => ((ThreadId(0), first), (ThreadId(1), second)),
            ([first, second], Direction::Backward) => ((ThreadId(1), second), (ThreadId(0), first)),
            _ => return,
        };
        let Some(outbox) = from.1.outbox(to.0) else {
            return;
        };
        to.1.handle_controls(outbox.control.drain(..), self.now);
        let mut empties = std::mem::take(&mut outbox.empties);
        let mut cells = outbox.cells.drain(..);
        let (sender, receiver) = &mut self.lanes;
        loop {
            let batch = Batch {
                cells: cells.by_ref().take(BATCH).collect(),
                empties: std::mem::take(&mut empties),
            };
            if batch.cells.is_empty() && batch.empties.is_empty() {
                break;
            }
            assert!(sender.try_push(batch).is_ok(), "the ring is full");
        }
        while let Some(batch) = receiver.pop() {
            to.1.handle_cells(from.0, batch.cells, batch.empties, self.now);
        }
    }

    /// Schedules and writes, as a connection thread does, but to nowhere.
    fn write(&mut self, thread: usize) {
        let manager = &mut self.managers[thread];
        manager.schedule(self.now, |_| ROOM);
        for key in manager.links().listed().to_vec() {
            let Some(out) = manager.links_mut().outgoing(key) else {
                continue;
            };
            while !out.is_empty() {
                let record = out.len().min(CELLS_PER_RECORD);
                self.spent.extend(out.drain(..record));
            }
            manager.links_mut().wrote(key, self.now);
            for cell in self.spent.drain(..) {
                manager.links_mut().recycle(cell);
            }
        }
        manager.links_mut().prune_written();
    }

    /// Cells relayed so far: all that the peers have sent.
    ///
    /// # Errors
    ///
    /// Some were not, so what was counted is not what it takes to relay them.
    pub(crate) fn relayed(&self) -> Result<u64> {
        let relayed: u64 = self
            .managers
            .iter()
            .map(|manager| manager.totals().cells_relayed)
            .sum();
        ensure!(
            relayed == self.sent,
            "of {} cells {relayed} were relayed",
            self.sent
        );
        Ok(relayed)
    }
}

/// Bytes that a peer with these circuits sends in a turn.
fn one_turn(circuits: &[u32], load: Load, rng: &mut ChaCha8Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..load.rounds {
        for circ_id in circuits {
            let mut cell = Cell::new(*circ_id, ChanCmd::RELAY);
            rng.fill_bytes(cell.body_mut());
            for _ in 0..load.run {
                bytes.extend_from_slice(cell.as_bytes());
            }
        }
    }
    bytes
}
