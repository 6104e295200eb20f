//! The DNSPort: queries for A, AAAA and PTR are looked up by exits (C tor: dnsserv.c; RFC 1035).
//!
//! Datagrams in, datagrams out; the caller owns the socket. As in C tor, the first question that can be
//! answered is answered, and the others are not.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_cell::stream_msg::{AnswerKind, Resolved, ReverseName};
use weft_core::origin::{AppOpening, AppProtocol, AppRefusal, AppRequest};
use weft_core::routable::remove_internal;

use crate::destination;
use crate::notice::Notice;
use crate::rules::AppRules;

/// Queries that may wait for their answers.
const MAX_WAITING: usize = 1024;
/// Bytes of a datagram without EDNS, at most (RFC 1035 2.3.4).
const MAX_DATAGRAM: usize = 512;
/// Questions of a query that are read, at most.
const MAX_QUESTIONS: usize = 8;
/// Bytes of a name, with its dots.
const MAX_NAME: usize = 255;
/// The least TTL of answers, in seconds.
const MIN_TTL: u32 = 60;
/// Bytes before the questions.
const HEADER: usize = 12;

const IN: u16 = 1;
const A: u16 = 1;
const PTR: u16 = 12;
const AAAA: u16 = 28;

/// The response code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Code {
    NoError = 0,
    FormatError = 1,
    ServerFailure = 2,
    NoSuchName = 3,
    NotImplemented = 4,
    Refused = 5,
}

/// The caller's next step for a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnsStep {
    /// Send this reply.
    Answer(Vec<u8>),
    /// Look this up, then call [`DnsPort::answer`] or [`DnsPort::refuse`].
    Ask {
        /// The query's number.
        id: u64,
        /// The name or address to resolve.
        request: AppRequest,
    },
    /// Nothing: the datagram is no query.
    Ignore,
}

/// A query that waits for its answer.
#[derive(Debug)]
struct Waiting {
    from: SocketAddr,
    question: Question,
    since: Instant,
}

/// The parts of a query that the answer repeats.
#[derive(Clone, Debug)]
struct Question {
    id: [u8; 2],
    /// Opcode and "recursion desired".
    flags: u8,
    /// The questions as they were received, and their number.
    raw: Vec<u8>,
    count: u16,
    /// The offset in the datagram of the name that is answered.
    name_at: u16,
    kind: u16,
}

/// The DNSPort of one listener: the queries that wait for their answers.
#[derive(Debug)]
pub struct DnsPort {
    rules: Arc<AppRules>,
    waiting: BTreeMap<u64, Waiting>,
    next: u64,
    timeout: Duration,
    notices: Vec<Notice>,
}

impl DnsPort {
    /// A DNSPort without queries. They wait for `timeout` at most (`SocksTimeout`).
    #[must_use]
    pub fn new(rules: Arc<AppRules>, timeout: Duration) -> Self {
        Self {
            rules,
            waiting: BTreeMap::new(),
            next: 0,
            timeout,
            notices: Vec::new(),
        }
    }

    /// Replaces the settings. Queries that wait keep the old rules.
    pub fn set_rules(&mut self, rules: Arc<AppRules>, timeout: Duration) {
        self.rules = rules;
        self.timeout = timeout;
    }

    /// The log lines since the last call; rate-limit them.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// Number of queries waiting for an answer.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// True while a query waits for its answer.
    #[must_use]
    pub fn is_waiting(&self, id: u64) -> bool {
        self.waiting.contains_key(&id)
    }

    /// Handles a datagram. `allowed`: `SocksPolicy` accepts its sender.
    pub fn query(
        &mut self,
        datagram: &[u8],
        from: SocketAddr,
        allowed: bool,
        now: Instant,
    ) -> DnsStep {
        let Some((&[id0, id1, flags, _, q0, q1, _, _, _, _, _, _], rest)) =
            datagram.split_first_chunk::<HEADER>()
        else {
            return DnsStep::Ignore;
        };
        // A datagram with the response bit gets no answer: two servers would answer each other forever.
        if flags & 0x80 != 0 {
            return DnsStep::Ignore;
        }
        let mut question = Question {
            id: [id0, id1],
            flags: flags & 0x79,
            raw: Vec::new(),
            count: 0,
            name_at: 0,
            kind: 0,
        };
        if !allowed {
            return DnsStep::Answer(question.answer(Code::Refused, &[]));
        }
        if flags & 0x78 != 0 {
            return DnsStep::Answer(question.answer(Code::NotImplemented, &[]));
        }
        let count = usize::from(u16::from_be_bytes([q0, q1]));
        let Some(asked) = read_questions(rest, count.min(MAX_QUESTIONS)) else {
            return DnsStep::Answer(question.answer(Code::FormatError, &[]));
        };
        if count == 0 {
            return DnsStep::Answer(question.answer(Code::NoError, &[]));
        }
        question.raw = asked.raw.to_vec();
        question.count = asked.count;
        let Some((name, kind, at)) = asked.chosen else {
            return DnsStep::Answer(question.answer(Code::NotImplemented, &[]));
        };
        question.kind = kind;
        question.name_at = u16::try_from(HEADER + at).unwrap_or_default();
        match self.request(&name, kind, from) {
            Ok(request) if self.waiting.len() < MAX_WAITING => {
                let id = self.next;
                self.next += 1;
                let since = now;
                let waiting = Waiting {
                    from,
                    question,
                    since,
                };
                self.waiting.insert(id, waiting);
                DnsStep::Ask { id, request }
            }
            Ok(_) => DnsStep::Answer(question.answer(Code::ServerFailure, &[])),
            Err(why) => DnsStep::Answer(question.answer(code_of(why), &[])),
        }
    }

    /// The lookup for a question, unless the rules forbid it.
    fn request(
        &mut self,
        name: &str,
        kind: u16,
        from: SocketAddr,
    ) -> Result<AppRequest, AppRefusal> {
        let opening = match kind {
            PTR => AppOpening::ResolvePtr {
                addr: ReverseName::parse(name.as_bytes())
                    .address()
                    .ok_or(AppRefusal::General)?,
            },
            _ => AppOpening::Resolve {
                name: destination::clean_host(name).ok_or(AppRefusal::General)?,
            },
        };
        if let Some(rules) = &self.rules.destination {
            let flags = &self.rules.flags;
            match destination::check(&opening, AppProtocol::Dns, flags, rules) {
                Ok(notice) => self.notices.extend(notice),
                Err(refused) => {
                    self.notices.push(refused.notice);
                    // The caller may not have taken the notices for long.
                    self.notices.truncate(MAX_QUESTIONS);
                    return Err(refused.why);
                }
            }
        }
        Ok(AppRequest {
            opening,
            from: Some(from.ip()),
            from_port: from.port(),
            listener: self.rules.listener,
            protocol: AppProtocol::Dns,
            credentials: None,
        })
    }

    /// The datagram that answers a query, and its destination; `None`: the query no longer waits.
    pub fn answer(&mut self, id: u64, resolved: &Resolved) -> Option<(SocketAddr, Vec<u8>)> {
        let waiting = self.waiting.remove(&id)?;
        let mut found = resolved.clone();
        if self.rules.reject_internal_answers {
            remove_internal(&mut found);
            if found.answers.is_empty() && !resolved.answers.is_empty() {
                let answer = waiting.question.answer(Code::ServerFailure, &[]);
                return Some((waiting.from, answer));
            }
        }
        Some((waiting.from, waiting.question.found(&found)))
    }

    /// Like [`answer`](Self::answer), for an answer that no exit has given. It is not filtered: a
    /// virtual address is a private one.
    pub fn answer_own(&mut self, id: u64, resolved: &Resolved) -> Option<(SocketAddr, Vec<u8>)> {
        let waiting = self.waiting.remove(&id)?;
        Some((waiting.from, waiting.question.found(resolved)))
    }

    /// The datagram that answers a failed query with an error, and its destination.
    pub fn refuse(&mut self, id: u64, why: AppRefusal) -> Option<(SocketAddr, Vec<u8>)> {
        let waiting = self.waiting.remove(&id)?;
        Some((waiting.from, waiting.question.answer(code_of(why), &[])))
    }

    /// The error answers for queries that have waited too long. Later answers to their numbers are dropped.
    pub fn expire(&mut self, now: Instant) -> Vec<(u64, SocketAddr, Vec<u8>)> {
        let late: Vec<u64> = self
            .waiting
            .iter()
            .filter(|(_, waiting)| now.saturating_duration_since(waiting.since) >= self.timeout)
            .map(|(id, _)| *id)
            .collect();
        late.into_iter()
            .filter_map(|id| {
                let (to, answer) = self.refuse(id, AppRefusal::TtlExpired)?;
                Some((id, to, answer))
            })
            .collect()
    }
}

/// C tor's response code: SERVFAIL, except for names that do not exist.
fn code_of(why: AppRefusal) -> Code {
    match why {
        AppRefusal::HostUnreachable | AppRefusal::OnionService(_) => Code::NoSuchName,
        _ => Code::ServerFailure,
    }
}

impl Question {
    /// An answer with these records.
    fn answer(&self, code: Code, records: &[Vec<u8>]) -> Vec<u8> {
        let count = u16::try_from(records.len()).unwrap_or_default();
        let mut datagram = Vec::with_capacity(HEADER + self.raw.len() + 64);
        datagram.extend(self.id);
        // An answer; recursion is available.
        datagram.extend([0x80 | self.flags, 0x80 | code as u8]);
        datagram.extend(self.count.to_be_bytes());
        datagram.extend(count.to_be_bytes());
        datagram.extend([0; 4]);
        datagram.extend(&self.raw);
        datagram.extend(records.iter().flatten());
        datagram
    }

    /// The answer made of an exit's RESOLVED.
    fn found(&self, resolved: &Resolved) -> Vec<u8> {
        let mut room = MAX_DATAGRAM.saturating_sub(HEADER + self.raw.len());
        let mut records = Vec::new();
        let mut code = Code::NoError;
        for answer in &resolved.answers {
            let data = match &answer.kind {
                AnswerKind::Ipv4(address) if self.kind == A => address.octets().to_vec(),
                AnswerKind::Ipv6(address) if self.kind == AAAA => address.octets().to_vec(),
                AnswerKind::Hostname(name) if self.kind == PTR => match labels(name) {
                    Some(labels) => labels,
                    None => continue,
                },
                AnswerKind::Error => {
                    code = Code::NoSuchName;
                    continue;
                }
                AnswerKind::TransientError => {
                    code = Code::ServerFailure;
                    continue;
                }
                _ => continue,
            };
            let record = self.record(answer.ttl, &data);
            if record.len() > room {
                break;
            }
            room -= record.len();
            records.push(record);
        }
        if !records.is_empty() {
            code = Code::NoError;
        }
        self.answer(code, &records)
    }

    /// One resource record; its name is the question's.
    fn record(&self, ttl: u32, data: &[u8]) -> Vec<u8> {
        let mut record = Vec::with_capacity(12 + data.len());
        record.extend((0xc000 | self.name_at).to_be_bytes());
        record.extend(self.kind.to_be_bytes());
        record.extend(IN.to_be_bytes());
        record.extend(ttl.max(MIN_TTL).to_be_bytes());
        record.extend(u16::try_from(data.len()).unwrap_or_default().to_be_bytes());
        record.extend(data);
        record
    }
}

/// The questions of a datagram.
struct Asked<'a> {
    raw: &'a [u8],
    count: u16,
    /// The first question that can be answered: its name, its type, and where it begins.
    chosen: Option<(String, u16, usize)>,
}

/// Reads this number of questions; `None`: they are malformed.
fn read_questions(bytes: &[u8], count: usize) -> Option<Asked<'_>> {
    let mut rest = bytes;
    let mut chosen = None;
    for _ in 0..count {
        let at = bytes.len() - rest.len();
        let name;
        (name, rest) = read_name(rest)?;
        let (&[k0, k1, c0, c1], after) = rest.split_first_chunk()?;
        rest = after;
        let kind = u16::from_be_bytes([k0, k1]);
        let internet = u16::from_be_bytes([c0, c1]) == IN;
        if chosen.is_none() && internet && [A, AAAA, PTR].contains(&kind) {
            chosen = Some((name, kind, at));
        }
    }
    Some(Asked {
        raw: bytes.get(..bytes.len() - rest.len())?,
        count: u16::try_from(count).ok()?,
        chosen,
    })
}

/// Reads a name without compression, as in questions. Bytes that are not ASCII become characters that a
/// host name cannot have, either.
fn read_name(mut bytes: &[u8]) -> Option<(String, &[u8])> {
    let mut name = String::new();
    loop {
        let (&len, after) = bytes.split_first()?;
        if len == 0 {
            return Some((name, after));
        }
        // The two high bits mark a compression pointer.
        if len > 63 {
            return None;
        }
        let (label, after) = after.split_at_checked(usize::from(len))?;
        bytes = after;
        if !name.is_empty() {
            name.push('.');
        }
        name.extend(label.iter().map(|byte| match byte {
            // A dot in a label would split it.
            b'.' | b'[' | b']' | b':' | 0x80.. => ' ',
            byte => char::from(*byte),
        }));
        if name.len() > MAX_NAME {
            return None;
        }
    }
}

/// A name as labels; `None`: it is no valid name.
fn labels(name: &[u8]) -> Option<Vec<u8>> {
    let name = name.strip_suffix(b".").unwrap_or(name);
    let mut labels = Vec::with_capacity(name.len() + 2);
    for label in name.split(|byte| *byte == b'.') {
        let len = u8::try_from(label.len()).ok()?;
        if !(1..=63).contains(&len) {
            return None;
        }
        labels.push(len);
        labels.extend(label);
    }
    labels.push(0);
    (labels.len() <= MAX_NAME).then_some(labels)
}
