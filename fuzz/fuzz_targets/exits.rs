//! An exit's decisions, with clients that name anything and name servers that answer anything.
//!
//! Input: operations, each a byte and its arguments, as [`Test::operate`] reads them. Missing bytes at the
//! end are zero. The clock moves only as the input states.
//!
//! Whatever happens: the tables agree (`Exits::audit`); a BEGIN gets exactly one Connect or End, a RESOLVE
//! exactly one Resolved, and a stream that was forgotten gets nothing more; queries have names that a name
//! server can be asked about; nothing connects against the policy or, without reentry, to a relay; and
//! without any answer no stream waits for longer than five minutes.
#![no_main]

use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use weft_cell::stream_msg::{AnswerKind, Begin, Resolve};
use weft_core::address::{HalfAddr, StreamAddr, ThreadId};
use weft_core::flow::Terms;
use weft_core::slots::HalfKey;
use weft_core::stream::edge::StreamAt;
use weft_exit::{
    DnsAnswer, DnsError, ExitAction, ExitSettings, Exits, Found, PreviousKind, Query, QueryKind,
    QueryPurpose,
};
use weft_fuzz::Bytes;
use weft_policy::{ExitPolicy, PolicySettings};
use weft_share::PreviousHop;

/// Operations of one input at most, so that none takes long.
const MAX_OPERATIONS: usize = 600;
/// The longest time that a stream may wait.
const MAX_WAIT: Duration = Duration::from_secs(300);
/// The longest name of a query, in bytes.
const MAX_NAME: usize = 253;
/// Circuits, of half as many previous hops.
const CIRCUITS: u8 = 8;

/// Names and addresses that an input can choose by one byte.
const HOSTS: [&str; 16] = [
    "a.example",
    "b.example",
    "c.example",
    "A.Example.",
    "localhost",
    "192.0.2.1",
    "8.8.8.8",
    "127.0.0.1",
    "10.0.0.1",
    "[2001:db8::1]",
    "2620::1",
    "::ffff:8.8.8.8",
    "8.8.8.8.in-addr.arpa",
    "1.0.0.127.in-addr.arpa",
    "www.example.com",
    "x.onion",
];

fn host(input: &mut Bytes<'_>) -> Vec<u8> {
    match input.byte() {
        number if number < 128 => HOSTS[usize::from(number % 16)].as_bytes().to_vec(),
        number if number < 224 => format!("n{}.example", number % 64).into_bytes(),
        _ => input.data().to_vec(),
    }
}

fn addr(input: &mut Bytes<'_>) -> IpAddr {
    let number = input.byte();
    match number % 4 {
        0 => Ipv4Addr::new(8, 8, 8, number).into(),
        1 => Ipv4Addr::new(127, 0, 0, number).into(),
        2 => Ipv6Addr::new(0x2620, 0, 0, 0, 0, 0, 0, number.into()).into(),
        _ => Ipv4Addr::new(8, 8, 4, 4).to_ipv6_mapped().into(),
    }
}

/// A stream without a decision.
#[derive(Debug)]
struct Waiting {
    resolve: bool,
    port: u16,
    since: Instant,
}

struct Test {
    exits: Exits,
    settings: ExitSettings,
    relays: HashSet<SocketAddr>,
    now: Instant,
    waiting: BTreeMap<StreamAddr, Waiting>,
    /// Queries that name servers have not answered; cancelled ones among them.
    queries: Vec<Query>,
    next_stream: u32,
}

fn settings(input: &mut Bytes<'_>) -> ExitSettings {
    let flags = input.byte();
    let lines: &[&str] = match input.byte() % 4 {
        0 => &["accept *:*"],
        1 => &["reject *:*"],
        2 => &[
            "reject *:25",
            "accept 8.8.8.0/24:*",
            "accept6 *6:80",
            "reject *:*",
        ],
        _ => &["accept *:80", "accept *:443"],
    };
    let policy = PolicySettings {
        ipv6: flags & 1 != 0,
        reject_private: flags & 2 != 0,
        reduced: false,
    };
    ExitSettings {
        policy: ExitPolicy::parse(lines, policy, &mut Vec::new()).expect("a policy"),
        ipv6: flags & 1 != 0,
        any_names: flags & 4 != 0,
        refuse_unknown: flags & 8 != 0,
        reentry: flags & 16 != 0,
        detect_hijacking: flags & 32 != 0,
        test_addresses: vec![b"www.example.com"[..].into()],
    }
}

impl Test {
    fn new(input: &mut Bytes<'_>) -> Self {
        let settings = settings(input);
        Self {
            exits: Exits::new(settings.clone(), [7; 32]),
            settings,
            relays: HashSet::new(),
            now: Instant::now(),
            waiting: BTreeMap::new(),
            queries: Vec::new(),
            next_stream: 0,
        }
    }

    /// Reads and runs one operation.
    fn operate(&mut self, input: &mut Bytes<'_>) {
        match input.byte() % 16 {
            0..=3 => self.begin(input),
            4 | 5 => self.resolve(input),
            6..=9 => self.answer(input),
            10 => {
                if let Some(stream) = input.pick(self.waiting.keys().copied()) {
                    self.waiting.remove(&stream);
                    self.exits.forget(stream);
                }
            }
            11 => self.pass(Duration::from_secs(input.byte().into())),
            12 => self.exits.set_at_once(usize::from(input.byte() % 8)),
            13 => {
                let flags = input.byte();
                self.exits.set_configured(flags & 1 != 0, flags & 2 != 0);
                self.exits.set_hibernating(flags & 4 != 0);
            }
            14 => {
                self.settings = settings(input);
                self.exits.set(self.settings.clone());
            }
            _ => {
                let relay = SocketAddr::new(addr(input), 80);
                self.relays = HashSet::from([relay]);
                self.exits.set_relays(self.relays.clone());
            }
        }
        self.run();
    }

    /// A new stream of a circuit, and the circuit's previous hop.
    fn stream(&mut self, input: &mut Bytes<'_>) -> (StreamAt, PreviousHop) {
        let circuit = input.byte() % CIRCUITS;
        self.next_stream += 1;
        let half = HalfAddr {
            thread: ThreadId(0),
            slot: HalfKey(circuit.into()),
            generation: 0,
        };
        let addr = StreamAddr {
            half,
            id: u16::try_from(self.next_stream % 1000).unwrap_or(0),
            generation: self.next_stream,
        };
        let hop = match circuit / 2 {
            0 => PreviousHop::at(Ipv4Addr::LOCALHOST.into()),
            relay => PreviousHop::Relay([relay; 20].into()),
        };
        let terms = Terms::Windows;
        (StreamAt { addr, terms }, hop)
    }

    fn begin(&mut self, input: &mut Bytes<'_>) {
        let (stream, hop) = self.stream(input);
        let kinds = [
            PreviousKind::Relay,
            PreviousKind::UnknownRelay,
            PreviousKind::Client,
        ];
        let choice = input.byte();
        let from = kinds[usize::from(choice % 8).saturating_sub(5)];
        let begin = Begin {
            target: host(input),
            port: [80, 443, 25, 6667][usize::from(choice >> 6)],
            flags: u32::from(input.byte()).into(),
        };
        self.waiting.insert(
            stream.addr,
            Waiting {
                resolve: false,
                port: begin.port,
                since: self.now,
            },
        );
        self.exits.begin(stream, hop, from, &begin, self.now);
    }

    fn resolve(&mut self, input: &mut Bytes<'_>) {
        let (stream, hop) = self.stream(input);
        self.waiting.insert(
            stream.addr,
            Waiting {
                resolve: true,
                port: 0,
                since: self.now,
            },
        );
        let name = host(input);
        self.exits.resolve(stream, hop, &Resolve { name }, self.now);
    }

    /// A name server answers a query, or something else.
    fn answer(&mut self, input: &mut Bytes<'_>) {
        let choice = input.byte();
        let mut query = Query {
            name: host(input).into(),
            kind: QueryKind::V4,
            purpose: QueryPurpose::Stream,
        };
        if choice & 15 != 0 {
            let place = usize::from(input.byte());
            let Some(place) = place.checked_rem(self.queries.len()) else {
                return;
            };
            query = self.queries.swap_remove(place);
        }
        let ttl = Duration::from_secs(u64::from(input.byte()) << (choice >> 4));
        let result = match input.byte() % 12 {
            0 => Err(DnsError::NotExist),
            1 => Err(DnsError::Timeout),
            2 => Err(DnsError::ServerFailed),
            3 => Ok((Found::Host(Arc::from(input.data())), ttl)),
            4 => Ok((Found::Addresses(Vec::new()), ttl)),
            count => {
                let addrs = (4..count).map(|_| addr(input)).collect();
                Ok((Found::Addresses(addrs), ttl))
            }
        };
        self.exits.answered(DnsAnswer { query, result }, self.now);
    }

    /// Lets time pass, with a tick at its end.
    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.exits.tick(self.now);
        self.run();
        for (stream, waiting) in &self.waiting {
            let waited = self.now.saturating_duration_since(waiting.since);
            assert!(waited < MAX_WAIT, "{stream:?} waits for {waited:?}");
        }
    }

    /// Carries out the actions and checks them.
    fn run(&mut self) {
        while let Some(action) = self.exits.poll_action() {
            match action {
                ExitAction::LookUp(query) => {
                    let name = &query.name;
                    assert!((1..=MAX_NAME).contains(&name.len()) && !name.contains(&0));
                    assert!(!name.iter().any(u8::is_ascii_uppercase), "{query:?}");
                    self.queries.push(query);
                }
                ExitAction::Cancel(query) => {
                    // It may be answered all the same, but only if it was sent.
                    assert_eq!(query.purpose, QueryPurpose::Stream);
                }
                ExitAction::Connect { stream, to, .. } => {
                    let waiting = self.waiting.remove(&stream.addr).expect("a stream");
                    assert!(!waiting.resolve && waiting.port == to.port(), "{waiting:?}");
                    let policy = &self.settings.policy;
                    assert!(!policy.rejects_all(), "{to}");
                    assert!(self.settings.reentry || !self.relays.contains(&to), "{to}");
                }
                ExitAction::End { stream, .. } => {
                    let waiting = self.waiting.remove(&stream.addr).expect("a stream");
                    assert!(!waiting.resolve, "{waiting:?}");
                }
                ExitAction::Resolved { stream, resolved } => {
                    let waiting = self.waiting.remove(&stream.addr).expect("a stream");
                    assert!(
                        waiting.resolve && !resolved.answers.is_empty(),
                        "{waiting:?}"
                    );
                    let errors = resolved.answers.iter().filter(|answer| {
                        matches!(answer.kind, AnswerKind::Error | AnswerKind::TransientError)
                    });
                    assert!(errors.count() <= 1, "{resolved:?}");
                }
                ExitAction::PolicyChanged(_) | ExitAction::Log(_) => {}
            }
        }
        self.exits.audit().expect("the tables agree");
        assert_eq!(self.exits.counts().waiting, self.waiting.len());
    }

    /// Name servers fall silent: every stream is decided in time.
    fn finish(&mut self) {
        self.pass(MAX_WAIT);
        assert!(self.waiting.is_empty());
    }
}

fuzz_target!(|input: &[u8]| {
    let mut input = Bytes::new(input);
    let mut test = Test::new(&mut input);
    for _ in 0..MAX_OPERATIONS {
        if input.is_empty() {
            break;
        }
        test.operate(&mut input);
    }
    test.finish();
});
