//! An exit's decisions, with a clock and name servers of the test's own.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::*;
use crate::torrc::policy::PolicySettings;
use weft_core::address::{HalfAddr, ThreadId};
use weft_core::flow::Terms;

const SEC: Duration = Duration::from_secs(1);
/// The relay that streams come by, where it does not matter.
const HOP: PreviousHop = PreviousHop::Relay([1; 20]);

fn settings(lines: &[&str], ipv6: bool, reject_private: bool) -> ExitSettings {
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

fn exits(lines: &[&str]) -> (Exits, Instant) {
    let exits = Exits::new(settings(lines, true, true), [7; 32]);
    (exits, Instant::now())
}

fn stream(number: u16) -> StreamAt {
    let half = HalfAddr {
        thread: ThreadId(0),
        slot: 1,
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

fn begin(host: &str, port: u16, flags: u32) -> Begin {
    Begin {
        target: host.into(),
        port,
        flags: flags.into(),
    }
}

const V6_OK: u32 = 1;
const V4_NOT_OK: u32 = 2;
const V6_PREFERRED: u32 = 4;

/// What is to be done, in few words.
fn actions(exits: &mut Exits) -> Vec<String> {
    exits.audit().unwrap();
    done(exits)
}

/// The same, without a look at all tables: for floods.
fn done(exits: &mut Exits) -> Vec<String> {
    let mut said = Vec::new();
    while let Some(action) = exits.poll_action() {
        said.push(match action {
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
                let told: Vec<_> = resolved
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
                format!("{} resolved {}", stream.addr.id, told.join(" "))
            }
            ExitAction::PolicyChanged(why) => format!("changed: {why}"),
        });
    }
    said
}

fn open(
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
        Previous::Relay,
        &begin(host, port, flags),
        now,
    );
    actions(exits)
}

fn resolve(exits: &mut Exits, number: u16, name: &str, now: Instant) -> Vec<String> {
    exits.resolve(stream(number), HOP, &Resolve { name: name.into() }, now);
    actions(exits)
}

fn answer(name: &str, kind: Kind, found: Result<&str, DnsError>) -> DnsAnswer {
    let found = found.map(|text| match kind {
        Kind::Reverse => Found::Host(text.as_bytes().into()),
        _ => Found::Addresses(text.split(' ').map(|addr| addr.parse().unwrap()).collect()),
    });
    DnsAnswer {
        query: Query {
            name: name.as_bytes().into(),
            kind,
            asked: Asked::Stream,
        },
        result: found.map(|found| (found, 1000 * SEC)),
    }
}

/// Both answers for a name come.
fn told(
    exits: &mut Exits,
    name: &str,
    v4: Result<&str, DnsError>,
    v6: Result<&str, DnsError>,
    now: Instant,
) -> Vec<String> {
    exits.answered(answer(name, Kind::V4, v4), now);
    exits.answered(answer(name, Kind::V6, v6), now);
    actions(exits)
}

#[test]
fn addresses_are_judged_at_once() {
    let (mut exits, now) = exits(&["reject *:25", "accept *:*"]);
    assert_eq!(
        open(&mut exits, 1, "8.8.8.8", 80, 0, now),
        ["1 connect 8.8.8.8:80"]
    );
    assert_eq!(
        open(&mut exits, 2, "8.8.8.8", 25, 0, now),
        ["2 end EXITPOLICY 8.8.8.8"]
    );
    assert_eq!(
        open(&mut exits, 3, "10.0.0.1", 80, 0, now),
        ["3 end EXITPOLICY 10.0.0.1"]
    );
    assert_eq!(
        open(&mut exits, 4, "127.0.0.1", 80, 0, now),
        ["4 end EXITPOLICY 127.0.0.1"]
    );
    assert_eq!(
        open(&mut exits, 5, "2620::1", 80, 0, now),
        ["5 connect [2620::1]:80"]
    );
    assert_eq!(
        open(&mut exits, 6, "::1", 80, 0, now),
        ["6 end EXITPOLICY ::1"]
    );
    let disguised = "::ffff:8.8.8.8";
    assert_eq!(
        open(&mut exits, 7, disguised, 80, 0, now),
        ["7 end EXITPOLICY ::ffff:8.8.8.8"]
    );
    let counts = exits.counts();
    assert_eq!((counts.begins, counts.rejected_by_policy), (2, 5));

    exits.begin(
        stream(9),
        HOP,
        Previous::Relay,
        &begin("8.8.8.8", 25, 0),
        now,
    );
    let Some(ExitAction::End { end, .. }) = exits.poll_action() else {
        panic!("no END");
    };
    assert_eq!(end.ttl, LITERAL_TTL);
}

#[test]
fn without_ipv6_exit_there_is_no_ipv6() {
    let mut exits = Exits::new(settings(&["accept *:*"], false, true), [7; 32]);
    let now = Instant::now();
    assert_eq!(
        open(&mut exits, 1, "2620::1", 80, V6_OK, now),
        ["1 end EXITPOLICY 2620::1"]
    );
    let flags = V6_OK | V4_NOT_OK;
    assert_eq!(
        open(&mut exits, 2, "8.8.8.8", 80, flags, now),
        ["2 end EXITPOLICY"]
    );
    let flags = V6_OK | V6_PREFERRED;
    assert_eq!(
        open(&mut exits, 3, "a.example", 80, flags, now),
        ["ask V4 a.example"]
    );
    exits.answered(answer("a.example", Kind::V4, Ok("8.8.8.8")), now);
    assert_eq!(actions(&mut exits), ["3 connect 8.8.8.8:80"]);
    // With it, what was known is not enough.
    exits.set(settings(&["accept *:*"], true, true));
    assert_eq!(open(&mut exits, 4, "a.example", 80, 0, now).len(), 2);
}

#[test]
fn one_question_serves_everybody_who_waits() {
    let (mut exits, now) = exits(&["accept *:*"]);
    let asked = open(&mut exits, 1, "WWW.Example", 80, 0, now);
    assert_eq!(asked, ["ask V4 www.example", "ask V6 www.example"]);
    assert!(open(&mut exits, 2, "www.example", 25, V6_OK | V6_PREFERRED, now).is_empty());
    assert!(resolve(&mut exits, 3, "www.example.", now).is_empty());
    assert_eq!(exits.counts().waiting, 3);
    exits.answered(answer("www.example", Kind::V6, Ok("2620::1")), now);
    assert!(
        actions(&mut exits).is_empty(),
        "the other answer is still to come"
    );
    exits.answered(answer("www.example", Kind::V4, Ok("8.8.8.8 9.9.9.9")), now);
    let done = actions(&mut exits);
    assert_eq!(
        done,
        [
            "1 connect 8.8.8.8:80",
            "2 connect [2620::1]:25",
            "3 resolved 8.8.8.8 2620::1"
        ]
    );
    assert_eq!(exits.counts().waiting, 0);
    // Now it is known, for a while.
    assert_eq!(
        resolve(&mut exits, 4, "www.example", now),
        ["4 resolved 8.8.8.8 2620::1"]
    );
    let later = now + 3300 * SEC;
    assert_eq!(
        open(&mut exits, 5, "www.example", 80, 0, later),
        ["5 connect 8.8.8.8:80"]
    );
    let late = now + 3900 * SEC;
    assert_eq!(open(&mut exits, 6, "www.example", 80, 0, late).len(), 2);
    // An answer that nobody asked for, or that comes twice, is no answer.
    assert!(
        told(
            &mut exits,
            "other.example",
            Ok("8.8.8.8"),
            Ok("2620::1"),
            late
        )
        .is_empty()
    );
    assert_eq!(exits.counts().dns_queries(), 4);
}

#[test]
fn the_client_and_the_policy_choose_the_family() {
    let (mut exits, now) = exits(&["reject 8.8.8.0/24:81", "reject6 *6:82", "accept *:*"]);
    open(&mut exits, 1, "a.example", 80, 0, now);
    told(&mut exits, "a.example", Ok("8.8.8.8"), Ok("2620::1"), now);
    let mut chosen = |port, flags| open(&mut exits, 2, "a.example", port, flags, now).remove(0);
    assert_eq!(chosen(80, 0), "2 connect 8.8.8.8:80");
    assert_eq!(chosen(80, V6_OK), "2 connect 8.8.8.8:80");
    assert_eq!(chosen(80, V6_PREFERRED), "2 connect 8.8.8.8:80");
    assert_eq!(chosen(80, V6_OK | V6_PREFERRED), "2 connect [2620::1]:80");
    assert_eq!(chosen(80, V6_OK | V4_NOT_OK), "2 connect [2620::1]:80");
    assert_eq!(chosen(81, V6_OK), "2 connect [2620::1]:81");
    assert_eq!(chosen(81, 0), "2 end EXITPOLICY 8.8.8.8");
    assert_eq!(chosen(82, V6_OK | V6_PREFERRED), "2 connect 8.8.8.8:82");
    assert_eq!(chosen(80, V4_NOT_OK), "2 end RESOLVEFAILED");
}

#[test]
fn names_that_lead_inside_do_not() {
    let (mut exits, now) = exits(&["accept *:*"]);
    for (number, inside) in ["127.0.0.1", "10.1.2.3", "169.254.169.254", "0.0.0.0"]
        .iter()
        .enumerate()
    {
        let name = format!("n{number}.example");
        open(&mut exits, 1, &name, 80, 0, now);
        let done = told(&mut exits, &name, Ok(inside), Err(DnsError::NoData), now);
        assert_eq!(done, [format!("1 end EXITPOLICY {inside}")]);
    }
    open(&mut exits, 1, "six.example", 80, V6_OK, now);
    let six = "::ffff:127.0.0.1";
    let done = told(
        &mut exits,
        "six.example",
        Err(DnsError::NoData),
        Ok(six),
        now,
    );
    assert_eq!(done, [format!("1 end EXITPOLICY {six}")]);
}

#[test]
fn names_without_an_address_are_told_by_kind_of_failure() {
    let (mut exits, now) = exits(&["accept *:*"]);
    use DnsError::{NoData, NotExist, ServerFailed, Timeout};
    for (number, (v4, v6, said)) in [
        (NotExist, NotExist, "error"),
        (NoData, NoData, "error"),
        (Timeout, Timeout, "transient"),
        (ServerFailed, NoData, "transient"),
        (NoData, ServerFailed, "error"),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("n{number}.example");
        open(&mut exits, 1, &name, 80, 0, now);
        resolve(&mut exits, 2, &name, now);
        let done = told(&mut exits, &name, Err(v4), Err(v6), now);
        assert_eq!(
            done,
            [
                "1 end RESOLVEFAILED".to_owned(),
                format!("2 resolved {said}")
            ]
        );
    }
    let counts = exits.counts();
    assert_eq!(counts.dns_errors(NotExist), 2);
    assert_eq!(counts.dns_errors(Timeout), 2);
    let results: Vec<_> = counts
        .dns_results()
        .filter(|(_, count)| *count > 0)
        .collect();
    assert_eq!(
        results,
        [
            ("serverfailed", 2),
            ("notexist", 2),
            ("tor_timeout", 2),
            ("nodata", 4)
        ]
    );
}

#[test]
fn what_is_no_name_is_told_at_once() {
    let (mut exits, now) = exits(&["accept *:*"]);
    for bad in ["a b", "a..b", "1.2.3.4.in-addr.arpa", &"a".repeat(300)] {
        assert_eq!(
            open(&mut exits, 1, bad, 80, 0, now),
            ["1 end RESOLVEFAILED"],
            "{bad}"
        );
    }
    for bad in ["", "a b", "1.0.0.127.in-addr.arpa", "x.ip6.arpa"] {
        assert_eq!(
            resolve(&mut exits, 1, bad, now),
            ["1 resolved error"],
            "{bad}"
        );
    }
    assert_eq!(
        resolve(&mut exits, 1, "10.0.0.1", now),
        ["1 resolved 10.0.0.1"]
    );
    assert_eq!(resolve(&mut exits, 1, "::1", now), ["1 resolved ::1"]);
}

#[test]
fn addresses_are_looked_up_by_their_names() {
    let (mut exits, now) = exits(&["accept *:*"]);
    let name = "8.8.8.8.in-addr.arpa";
    assert_eq!(
        resolve(&mut exits, 1, name, now),
        [format!("ask Reverse {name}")]
    );
    exits.answered(answer(name, Kind::Reverse, Ok("dns.example")), now);
    assert_eq!(actions(&mut exits), ["1 resolved dns.example"]);
    let other = "9.9.9.9.in-addr.arpa";
    resolve(&mut exits, 2, other, now);
    exits.answered(answer(other, Kind::Reverse, Err(DnsError::Timeout)), now);
    // C tor knows no transient error here.
    assert_eq!(actions(&mut exits), ["2 resolved error"]);
}

#[test]
fn clients_must_not_come_directly_nor_from_nowhere() {
    let (mut exits, now) = exits(&["accept *:*"]);
    let wanted = begin("8.8.8.8", 80, 0);
    exits.begin(stream(1), HOP, Previous::Client, &wanted, now);
    exits.begin(stream(2), HOP, Previous::UnknownRelay, &wanted, now);
    assert_eq!(actions(&mut exits), ["1 end TORPROTOCOL", "2 end MISC"]);
    exits.settings.refuse_unknown = false;
    exits.begin(stream(3), HOP, Previous::UnknownRelay, &wanted, now);
    assert_eq!(actions(&mut exits), ["3 connect 8.8.8.8:80"]);
    exits.set_hibernating(true);
    assert_eq!(
        open(&mut exits, 4, "8.8.8.8", 80, 0, now),
        ["4 end HIBERNATING"]
    );
}

#[test]
fn relays_are_not_reached_through_relays() {
    let (mut exits, now) = exits(&["accept *:*"]);
    exits.set_relays(["8.8.8.8:9001".parse().unwrap()].into());
    assert_eq!(
        open(&mut exits, 1, "8.8.8.8", 9001, 0, now),
        ["1 end CONNECTREFUSED"]
    );
    assert_eq!(
        open(&mut exits, 1, "8.8.8.8", 9002, 0, now),
        ["1 connect 8.8.8.8:9002"]
    );
    exits.settings.reentry = true;
    assert_eq!(
        open(&mut exits, 1, "8.8.8.8", 9001, 0, now),
        ["1 connect 8.8.8.8:9001"]
    );
}

#[test]
fn a_relay_that_is_no_exit_asks_nobody() {
    let mut closed = settings(&[], false, true);
    closed.policy = ExitPolicy::reject_all();
    let mut exits = Exits::new(closed, [7; 32]);
    let now = Instant::now();
    assert!(exits.is_closed());
    assert_eq!(
        open(&mut exits, 1, "8.8.8.8", 80, 0, now),
        ["1 end EXITPOLICY 8.8.8.8"]
    );
    assert_eq!(
        open(&mut exits, 1, "a.example", 80, 0, now),
        ["1 end RESOLVEFAILED"]
    );
    assert_eq!(
        resolve(&mut exits, 1, "a.example", now),
        ["1 resolved error"]
    );
    exits.tick(now + 1000 * SEC);
    assert!(actions(&mut exits).is_empty());
}

#[test]
fn a_policy_that_changes_while_a_stream_waits_is_the_one_that_counts() {
    let (mut exits, now) = exits(&["accept *:*"]);
    open(&mut exits, 1, "a.example", 80, 0, now);
    exits.set(settings(&["reject *:80", "accept *:*"], true, true));
    let done = told(
        &mut exits,
        "a.example",
        Ok("8.8.8.8"),
        Err(DnsError::NoData),
        now,
    );
    assert_eq!(done, ["1 end EXITPOLICY 8.8.8.8"]);
}

/// A stream of one of a hop's circuits.
fn stream_of(circuit: u32, number: u32) -> StreamAt {
    let mut at = stream(1);
    at.addr.half.slot = circuit;
    at.addr.generation = number;
    at
}

/// A BEGIN by one of some relays, on one of its circuits.
fn begin_by(exits: &mut Exits, relay: u8, at: StreamAt, name: &str, now: Instant) -> Vec<String> {
    let hop = PreviousHop::Relay([relay; 20]);
    exits.begin(at, hop, Previous::Relay, &begin(name, 80, 0), now);
    done(exits)
}

#[test]
fn a_silent_name_server_does_not_keep_others_from_names() {
    let (mut exits, now) = exits(&["accept *:*"]);
    exits.set_at_once(16);
    // A thousand BEGINs a second on one circuit, for names that nobody answers, until all places to
    // wait are taken.
    let mut ended = 0;
    for number in 0..10_000 {
        let name = format!("n{number}.silent.example");
        let done = begin_by(&mut exits, 1, stream_of(1, number), &name, now);
        ended += done
            .iter()
            .filter(|said| said.contains("end RESOLVEFAILED"))
            .count();
    }
    assert_eq!(exits.names.len(), (names::MAX_QUEUED + 16, 16));
    assert_eq!(ended, 10_000 - names::MAX_QUEUED - 16);
    assert_eq!(exits.counts().look_ups_refused, ended as u64);
    exits.audit().unwrap();
    // Another relay's streams are asked about at once, and answered.
    for number in 0..5 {
        let name = format!("n{number}.example");
        let done = begin_by(&mut exits, 2, stream_of(2, number), &name, now);
        let asked = [format!("ask V4 {name}"), format!("ask V6 {name}")];
        assert_eq!(done[..2], asked);
        assert!(done[2].starts_with("cancel V4 n") && done[3].starts_with("cancel V6 n"));
        let done = told(&mut exits, &name, Ok("8.8.8.8"), Err(DnsError::NoData), now);
        assert!(
            done.contains(&"1 connect 8.8.8.8:80".to_owned()),
            "{done:?}"
        );
    }
    // So are those of other circuits of the same relay.
    let done = begin_by(&mut exits, 1, stream_of(3, 0), "own.example", now);
    assert_eq!(done[..2], ["ask V4 own.example", "ask V6 own.example"]);
}

#[test]
fn names_wait_for_their_turn_before_they_are_refused() {
    let (mut exits, now) = exits(&["accept *:*"]);
    exits.set(settings(&["accept *:*"], false, true));
    exits.set_at_once(2);
    for number in 0..4 {
        let name = format!("n{number}.example");
        begin_by(&mut exits, 1, stream_of(number % 2, number), &name, now);
    }
    begin_by(&mut exits, 2, stream_of(9, 0), "other.example", now);
    assert_eq!(exits.names.len(), (5, 2));
    let mut asked = Vec::new();
    for name in ["n1.example", "other.example"] {
        exits.answered(answer(name, Kind::V4, Ok("8.8.8.8")), now);
        asked.extend(actions(&mut exits));
    }
    assert_eq!(
        asked,
        [
            "1 connect 8.8.8.8:80",
            "ask V4 n2.example",
            "1 connect 8.8.8.8:80",
            "ask V4 n3.example"
        ]
    );
    assert_eq!(exits.counts().look_ups_refused, 0);
}

#[test]
fn a_name_that_others_wait_for_does_not_go_with_its_first_asker() {
    let (mut exits, now) = exits(&["accept *:*"]);
    exits.set_at_once(1);
    begin_by(&mut exits, 1, stream_of(1, 0), "first.example", now);
    begin_by(&mut exits, 1, stream_of(1, 1), "wanted.example", now);
    begin_by(&mut exits, 2, stream_of(2, 0), "wanted.example", now);
    for number in 2..9_000 {
        let name = format!("n{number}.example");
        begin_by(&mut exits, 1, stream_of(1, number), &name, now);
    }
    exits.audit().unwrap();
    assert!(exits.names.get_mut(b"wanted.example").is_some());
    let done = told(
        &mut exits,
        "wanted.example",
        Ok("8.8.8.8"),
        Err(DnsError::NoData),
        now,
    );
    assert_eq!(done, ["1 connect 8.8.8.8:80"]);
}

#[test]
fn streams_that_wait_for_one_name_do_not_keep_out_others() {
    let (mut exits, now) = exits(&["accept *:*"]);
    for number in 0..70_000 {
        begin_by(&mut exits, 1, stream_of(1, number), "silent.example", now);
    }
    assert_eq!(exits.counts().waiting, names::MAX_WAITING);
    let mut other = stream_of(2, 0);
    other.addr.id = 7;
    let done = begin_by(&mut exits, 2, other, "silent.example", now);
    assert_eq!(done, ["1 end RESOLVEFAILED"], "the attacker's");
    assert_eq!(
        exits.counts().look_ups_refused,
        70_001 - names::MAX_WAITING as u64
    );
    // Silence ends.
    exits.tick(now + 299 * SEC);
    assert!(actions(&mut exits).is_empty());
    exits.tick(now + 300 * SEC);
    let mut ended = actions(&mut exits);
    assert_eq!(ended.len(), names::MAX_WAITING);
    assert_eq!(ended.pop().as_deref(), Some("7 end TIMEOUT"));
    assert!(ended.iter().all(|said| said == "1 end TIMEOUT"));
    assert_eq!((exits.counts().waiting, exits.names.len()), (0, (0, 0)));
}

#[test]
fn name_servers_that_lie_are_found_out() {
    let mut lied_to = settings(&["accept *:*"], true, true);
    lied_to.detect_hijacking = true;
    lied_to.test_addresses = vec![b"www.example"[..].into()];
    let mut exits = Exits::new(lied_to, [7; 32]);
    let start = Instant::now();
    exits.tick(start);
    exits.tick(start + 180 * SEC);
    let mut bogus = Vec::new();
    while let Some(ExitAction::LookUp(query)) = exits.poll_action() {
        bogus.push(query);
    }
    assert_eq!(bogus.len(), 24);
    for query in bogus {
        let junk: IpAddr = match query.kind {
            Kind::V6 => "2620::80".parse().unwrap(),
            _ => "9.9.9.80".parse().unwrap(),
        };
        let result = Ok((Found::Addresses(vec![junk]), SEC));
        exits.answered(DnsAnswer { query, result }, start);
    }
    assert_eq!(exits.counts().dns_queries(), 0);
    // What leads there is not found.
    open(&mut exits, 1, "typo.example", 80, 0, start);
    let done = told(
        &mut exits,
        "typo.example",
        Ok("9.9.9.80"),
        Err(DnsError::NoData),
        start,
    );
    assert_eq!(done, ["1 end RESOLVEFAILED"]);
    // Nor are names that everybody knows: then the relay is no exit any more.
    exits.tick(start + 211 * SEC);
    assert_eq!(
        actions(&mut exits),
        ["ask V4 www.example", "ask V6 www.example"]
    );
    let mut known = answer("www.example", Kind::V4, Ok("9.9.9.80"));
    known.query.asked = Asked::Test;
    exits.answered(known, start);
    assert_eq!(actions(&mut exits), ["changed: dns hijacking confirmed"]);
    assert!(exits.is_closed());
    assert_eq!(
        open(&mut exits, 1, "8.8.8.8", 80, 0, start),
        ["1 end EXITPOLICY 8.8.8.8"]
    );
    // Other name servers have another chance.
    exits.set_configured(true, true);
    assert!(!exits.is_closed());
}

#[test]
fn without_name_servers_there_is_no_exit() {
    let (mut exits, _) = exits(&["accept *:*"]);
    exits.set_configured(true, false);
    assert!(actions(&mut exits).is_empty());
    exits.set_configured(false, false);
    assert_eq!(actions(&mut exits), ["changed: dns resolvers failed"]);
    assert!(exits.is_closed());
    assert_eq!(exits.effective_policy(), &ExitPolicy::reject_all());
    exits.set_configured(true, true);
    assert_eq!(actions(&mut exits), ["changed: dns resolvers back"]);
    assert!(!exits.is_closed());
}

#[test]
fn a_stream_that_ends_while_it_waits_gives_its_place_back_at_once() {
    let (mut exits, now) = exits(&["accept *:*"]);
    // Its client may end and begin a stream as often as it likes: one place at most is taken.
    for number in 1..=1024 {
        let asked = open(&mut exits, number, "example.com", 80, 0, now);
        assert!(
            asked.iter().all(|said| said.starts_with("ask")),
            "{asked:?}"
        );
        assert_eq!(exits.counts().waiting, 1);
        exits.forget(stream(number).addr);
        exits.forget(stream(number).addr);
        assert_eq!(exits.counts().waiting, 0);
    }
    // The others that wait for the name stay, and are answered.
    open(&mut exits, 5000, "example.com", 80, 0, now);
    open(&mut exits, 5001, "example.com", 80, 0, now);
    exits.forget(stream(5000).addr);
    for kind in [Kind::V4, Kind::V6] {
        let query = Query {
            name: (*b"example.com").into(),
            kind,
            asked: Asked::Stream,
        };
        let addr = "192.0.2.1".parse().unwrap();
        let result = match kind {
            Kind::V4 => Ok((Found::Addresses(vec![addr]), 60 * SEC)),
            _ => Err(DnsError::NoData),
        };
        exits.answered(DnsAnswer { query, result }, now);
    }
    assert_eq!(actions(&mut exits), ["5001 connect 192.0.2.1:80"]);
    assert_eq!(exits.counts().waiting, 0);
}
