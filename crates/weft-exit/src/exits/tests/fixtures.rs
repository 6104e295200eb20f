//! An exit, streams, and answers of name servers.

use weft_cell::identity::RsaIdentity;
use weft_core::address::{HalfAddr, ThreadId};
use weft_core::flow::Terms;
use weft_policy::PolicySettings;

use super::super::*;

pub(super) const SEC: Duration = Duration::from_secs(1);

/// The previous hop of streams for which it does not matter.
pub(super) const HOP: PreviousHop = PreviousHop::Relay(RsaIdentity([1; 20]));

pub(super) fn settings(lines: &[&str], ipv6: bool, reject_private: bool) -> ExitSettings {
    let policy = PolicySettings {
        ipv6,
        reject_private,
        reduced: false,
    };
    ExitSettings {
        policy: ExitPolicy::parse(lines, policy, &mut Vec::new()).unwrap(),
        ipv6,
        any_names: false,
        refuse_unknown: true,
        reentry: false,
        detect_hijacking: false,
        test_addresses: Vec::new(),
    }
}

pub(super) fn exits(lines: &[&str]) -> (Exits, Instant) {
    let exits = Exits::new(settings(lines, true, true), [7; 32]);
    (exits, Instant::now())
}

pub(super) fn stream(number: u16) -> StreamAt {
    let half = HalfAddr {
        thread: ThreadId(0),
        slot: weft_core::slots::HalfKey(1),
        generation: 0,
    };
    StreamAt {
        addr: StreamAddr {
            half,
            id: number,
            generation: u32::from(number),
        },
        terms: Terms::Windows,
    }
}

pub(super) fn begin(host: &str, port: u16, flags: u32) -> Begin {
    Begin {
        target: host.into(),
        port,
        flags: flags.into(),
    }
}

pub(super) const V6_OK: u32 = 1;

pub(super) const V4_NOT_OK: u32 = 2;

pub(super) const V6_PREFERRED: u32 = 4;

/// The actions as short texts; checks all tables.
pub(super) fn actions(exits: &mut Exits) -> Vec<String> {
    exits.audit().unwrap();
    done(exits)
}

/// The actions as short texts, without the check, for floods.
pub(super) fn done(exits: &mut Exits) -> Vec<String> {
    let mut shown = Vec::new();
    while let Some(action) = exits.poll_action() {
        shown.push(match action {
            ExitAction::LookUp(query) => {
                format!(
                    "ask {:?} {}",
                    query.kind,
                    String::from_utf8_lossy(&query.name)
                )
            }
            ExitAction::Cancel(query) => {
                format!(
                    "cancel {:?} {}",
                    query.kind,
                    String::from_utf8_lossy(&query.name)
                )
            }
            ExitAction::Connect { stream, to, .. } => format!("{} connect {to}", stream.addr.id),
            ExitAction::End { stream, end } => match end.addr {
                Some(addr) => format!(
                    "{} end {} {addr}",
                    stream.addr.id,
                    end.reason.name().unwrap()
                ),
                None => format!("{} end {}", stream.addr.id, end.reason.name().unwrap()),
            },
            ExitAction::Resolved { stream, resolved } => {
                let answers: Vec<_> = resolved
                    .answers
                    .iter()
                    .map(|answer| {
                        assert_eq!(answer.ttl, 60);
                        match &answer.kind {
                            AnswerKind::Hostname(name) => {
                                String::from_utf8_lossy(name).into_owned()
                            }
                            AnswerKind::Ipv4(addr) => addr.to_string(),
                            AnswerKind::Ipv6(addr) => addr.to_string(),
                            AnswerKind::TransientError => "transient".into(),
                            AnswerKind::Error => "error".into(),
                        }
                    })
                    .collect();
                format!("{} resolved {}", stream.addr.id, answers.join(" "))
            }
            ExitAction::PolicyChanged(why) => format!("changed: {why}"),
            ExitAction::Log(_) => continue,
        });
    }
    shown
}

pub(super) fn open(
    exits: &mut Exits,
    number: u16,
    host: &str,
    port: u16,
    flags: u32,
    now: Instant,
) -> Vec<String> {
    exits.begin(
        stream(number),
        HOP,
        PreviousKind::Relay,
        &begin(host, port, flags),
        now,
    );
    actions(exits)
}

pub(super) fn resolve(exits: &mut Exits, number: u16, name: &str, now: Instant) -> Vec<String> {
    exits.resolve(stream(number), HOP, &Resolve { name: name.into() }, now);
    actions(exits)
}

pub(super) fn answer(name: &str, kind: QueryKind, found: Result<&str, DnsError>) -> DnsAnswer {
    let found = found.map(|text| match kind {
        QueryKind::Reverse => Found::Host(text.as_bytes().into()),
        _ => Found::Addresses(text.split(' ').map(|addr| addr.parse().unwrap()).collect()),
    });
    DnsAnswer {
        query: Query {
            name: name.as_bytes().into(),
            kind,
            purpose: QueryPurpose::Stream,
        },
        result: found.map(|found| (found, 1000 * SEC)),
    }
}

/// Passes both answers for a name.
pub(super) fn answer_both(
    exits: &mut Exits,
    name: &str,
    v4: Result<&str, DnsError>,
    v6: Result<&str, DnsError>,
    now: Instant,
) -> Vec<String> {
    exits.answered(answer(name, QueryKind::V4, v4), now);
    exits.answered(answer(name, QueryKind::V6, v6), now);
    actions(exits)
}
