//! Decisions about BEGIN and RESOLVE: by policy, name and answer.

use weft_log::SafeLogging;

use super::super::*;
use super::fixtures::*;

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
        PreviousKind::Relay,
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
    exits.answered(answer("a.example", QueryKind::V4, Ok("8.8.8.8")), now);
    assert_eq!(actions(&mut exits), ["3 connect 8.8.8.8:80"]);
    // With IPv6 the cached answer is incomplete.
    exits.set(settings(&["accept *:*"], true, true));
    assert_eq!(open(&mut exits, 4, "a.example", 80, 0, now).len(), 2);
}

#[test]
fn one_query_serves_all_streams_that_wait() {
    let (mut exits, now) = exits(&["accept *:*"]);
    let asked = open(&mut exits, 1, "WWW.Example", 80, 0, now);
    assert_eq!(asked, ["ask V4 www.example", "ask V6 www.example"]);
    assert!(open(&mut exits, 2, "www.example", 25, V6_OK | V6_PREFERRED, now).is_empty());
    assert!(resolve(&mut exits, 3, "www.example.", now).is_empty());
    assert_eq!(exits.counts().waiting, 3);
    exits.answered(answer("www.example", QueryKind::V6, Ok("2620::1")), now);
    assert!(
        actions(&mut exits).is_empty(),
        "the other answer is still to come"
    );
    exits.answered(
        answer("www.example", QueryKind::V4, Ok("8.8.8.8 9.9.9.9")),
        now,
    );
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
    // The answer is cached for a while.
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
    // An answer without a query, or a second one, is ignored.
    assert!(
        answer_both(
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
    answer_both(&mut exits, "a.example", Ok("8.8.8.8"), Ok("2620::1"), now);
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
fn names_of_internal_addresses_are_refused() {
    let (mut exits, now) = exits(&["accept *:*"]);
    for (number, inside) in ["127.0.0.1", "10.1.2.3", "169.254.169.254", "0.0.0.0"]
        .iter()
        .enumerate()
    {
        let name = format!("n{number}.example");
        open(&mut exits, 1, &name, 80, 0, now);
        let done = answer_both(&mut exits, &name, Ok(inside), Err(DnsError::NoData), now);
        assert_eq!(done, [format!("1 end EXITPOLICY {inside}")]);
    }
    open(&mut exits, 1, "six.example", 80, V6_OK, now);
    let six = "::ffff:127.0.0.1";
    let done = answer_both(
        &mut exits,
        "six.example",
        Err(DnsError::NoData),
        Ok(six),
        now,
    );
    assert_eq!(done, [format!("1 end EXITPOLICY {six}")]);
}

#[test]
fn failures_of_names_have_their_error_kinds() {
    let (mut exits, now) = exits(&["accept *:*"]);
    use DnsError::{NoData, NotExist, ServerFailed, Timeout};
    for (number, (v4, v6, shown)) in [
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
        let done = answer_both(&mut exits, &name, Err(v4), Err(v6), now);
        assert_eq!(
            done,
            [
                "1 end RESOLVEFAILED".to_owned(),
                format!("2 resolved {shown}")
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
fn invalid_names_are_refused_at_once() {
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
    exits.answered(answer(name, QueryKind::Reverse, Ok("dns.example")), now);
    assert_eq!(actions(&mut exits), ["1 resolved dns.example"]);
    let other = "9.9.9.9.in-addr.arpa";
    resolve(&mut exits, 2, other, now);
    exits.answered(
        answer(other, QueryKind::Reverse, Err(DnsError::Timeout)),
        now,
    );
    // C tor sends no transient error here.
    assert_eq!(actions(&mut exits), ["2 resolved error"]);
}

#[test]
fn circuits_of_one_hop_and_of_unknown_relays_are_refused() {
    let (mut exits, now) = exits(&["accept *:*"]);
    let wanted = begin("8.8.8.8", 80, 0);
    exits.begin(stream(1), HOP, PreviousKind::Client, &wanted, now);
    exits.begin(stream(2), HOP, PreviousKind::UnknownRelay, &wanted, now);
    assert_eq!(actions(&mut exits), ["1 end TORPROTOCOL", "2 end MISC"]);
    exits.set(ExitSettings {
        refuse_unknown: false,
        ..settings(&["accept *:*"], true, true)
    });
    exits.begin(stream(3), HOP, PreviousKind::UnknownRelay, &wanted, now);
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
fn a_relay_that_is_no_exit_sends_no_queries() {
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
    let done = answer_both(
        &mut exits,
        "a.example",
        Ok("8.8.8.8"),
        Err(DnsError::NoData),
        now,
    );
    assert_eq!(done, ["1 end EXITPOLICY 8.8.8.8"]);
}

#[test]
fn name_servers_that_lie_are_detected() {
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
            QueryKind::V6 => "2620::80".parse().unwrap(),
            _ => "9.9.9.80".parse().unwrap(),
        };
        let result = Ok((Found::Addresses(vec![junk]), SEC));
        exits.answered(DnsAnswer { query, result }, start);
    }
    assert_eq!(exits.counts().dns_queries(), 0);
    // A name with that address is not found.
    open(&mut exits, 1, "typo.example", 80, 0, start);
    let done = answer_both(
        &mut exits,
        "typo.example",
        Ok("9.9.9.80"),
        Err(DnsError::NoData),
        start,
    );
    assert_eq!(done, ["1 end RESOLVEFAILED"]);
    // Nor are well-known names: then the relay is no longer an exit.
    exits.tick(start + 211 * SEC);
    assert_eq!(
        actions(&mut exits),
        ["ask V4 www.example", "ask V6 www.example"]
    );
    let mut known = answer("www.example", QueryKind::V4, Ok("9.9.9.80"));
    known.query.purpose = QueryPurpose::Test;
    exits.answered(known, start);
    assert_eq!(actions(&mut exits), ["changed: dns hijacking confirmed"]);
    assert!(exits.is_closed());
    assert_eq!(
        open(&mut exits, 1, "8.8.8.8", 80, 0, start),
        ["1 end EXITPOLICY 8.8.8.8"]
    );
    // Other name servers are tested again.
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
fn a_waiting_stream_that_ends_frees_its_place() {
    let (mut exits, now) = exits(&["accept *:*"]);
    // However often the client ends and opens a stream, it takes one place at most.
    for number in 1..=1024 {
        let asked = open(&mut exits, number, "example.com", 80, 0, now);
        assert!(
            asked.iter().all(|shown| shown.starts_with("ask")),
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
    for kind in [QueryKind::V4, QueryKind::V6] {
        let query = Query {
            name: (*b"example.com").into(),
            kind,
            purpose: QueryPurpose::Stream,
        };
        let addr = "192.0.2.1".parse().unwrap();
        let result = match kind {
            QueryKind::V4 => Ok((Found::Addresses(vec![addr]), 60 * SEC)),
            _ => Err(DnsError::NoData),
        };
        exits.answered(DnsAnswer { query, result }, now);
    }
    assert_eq!(actions(&mut exits), ["5001 connect 192.0.2.1:80"]);
    assert_eq!(exits.counts().waiting, 0);
}

/// The log lines of an exit; other actions are dropped.
fn lines(exits: &mut Exits) -> Vec<String> {
    let actions = std::iter::from_fn(|| exits.poll_action());
    let lines = actions.filter_map(|action| match action {
        ExitAction::Log(line) => Some(line.render(SafeLogging::Off)),
        _ => None,
    });
    lines.collect()
}

#[test]
fn whoever_asks_is_counted_by_what_became_of_it() {
    let (mut exits, now) = exits(&["reject *:25", "accept *:*"]);
    exits.set_relays(["9.9.9.9:443".parse().unwrap()].into());
    for number in [1, 2] {
        open(&mut exits, number, "8.8.8.8", 80, 0, now);
        open(&mut exits, number, "8.8.8.8", 25, 0, now);
        open(&mut exits, number, "9.9.9.9", 443, 0, now);
        resolve(&mut exits, number, "8.8.8.8", now);
    }
    open(&mut exits, 3, "a.example", 80, 0, now);
    answer_both(
        &mut exits,
        "a.example",
        Ok("8.8.8.8"),
        Err(DnsError::NoData),
        now,
    );
    for number in [4, 5] {
        open(&mut exits, number, "a.example", 80, 0, now);
    }
    exits.counts_mut().begin_dirs += 7;
    let counts = exits.counts();
    assert_eq!((counts.begins, counts.rejected_by_policy), (5, 2));
    assert_eq!((counts.rejected_as_relay, counts.resolves), (2, 2));
    assert_eq!((counts.cache_hits, counts.begin_dirs), (2, 7));
    let queries = QueryKind::ALL.map(|kind| counts.dns_queries_of(kind));
    assert_eq!(queries, [1, 1, 0]);
}

#[test]
fn names_are_kept_when_torrc_changes_unless_ipv6_is_new() {
    for (before, after, kept) in [
        (false, false, true),
        (false, true, false),
        (true, false, true),
        (true, true, true),
    ] {
        let now = Instant::now();
        let of = |ipv6| settings(&["accept *:*"], ipv6, true);
        let mut exits = Exits::new(of(before), [7; 32]);
        open(&mut exits, 1, "a.example", 80, 0, now);
        answer_both(
            &mut exits,
            "a.example",
            Ok("8.8.8.8"),
            Err(DnsError::NoData),
            now,
        );
        exits.set(of(after));
        let cached = usize::from(kept);
        assert_eq!(exits.counts().cached, cached, "{before}, {after}");
    }
}

#[test]
fn a_relay_is_shut_by_torrc_alone() {
    let (mut exits, _) = exits(&["accept *:*"]);
    exits.set_configured(false, false);
    assert!(exits.is_closed() && !exits.is_shut());
    exits.set(settings(&["reject *:*"], true, true));
    assert!(exits.is_closed() && exits.is_shut());
}

#[test]
fn name_servers_are_tested_by_exits_whose_torrc_wants_it() {
    for (policy, detect, tested) in [
        ("accept *:*", true, true),
        ("accept *:*", false, false),
        ("reject *:*", true, false),
    ] {
        let mut settings = settings(&[policy], true, true);
        settings.detect_hijacking = detect;
        let mut exits = Exits::new(settings, [7; 32]);
        let start = Instant::now();
        exits.tick(start);
        exits.tick(start + 180 * SEC);
        assert_eq!(
            !actions(&mut exits).is_empty(),
            tested,
            "{policy}, {detect}"
        );
    }
}

#[test]
fn an_operator_reads_of_name_servers_that_lie() {
    let mut settings = settings(&["accept *:*"], true, true);
    settings.detect_hijacking = true;
    let mut exits = Exits::new(settings, [7; 32]);
    let query = Query {
        name: b"nothing.test"[..].into(),
        kind: QueryKind::V4,
        purpose: QueryPurpose::Bogus,
    };
    let result = Ok((Found::Addresses(vec!["9.9.9.80".parse().unwrap()]), SEC));
    exits.answered(DnsAnswer { query, result }, Instant::now());
    let lines = lines(&mut exits);
    assert_eq!(lines.len(), 1);
    assert!(lines[0].contains("hijacking") && lines[0].contains("nothing.test"));
}

#[test]
fn that_most_queries_for_ipv6_addresses_time_out_is_logged_once() {
    let (mut exits, now) = exits(&["accept *:*"]);
    let query = |exits: &mut Exits, number: u16, error: DnsError| {
        let name = format!("n{number}.example");
        open(exits, number, &name, 80, 0, now);
        exits.answered(answer(&name, QueryKind::V4, Err(error)), now);
        exits.answered(answer(&name, QueryKind::V6, Err(error)), now);
        lines(exits).len()
    };
    let mut logged = Vec::new();
    for number in 0..24 {
        // Every second one times out: half of them, which is not more than half.
        let error = [DnsError::NoData, DnsError::Timeout][usize::from(number % 2)];
        logged.push(query(&mut exits, number, error));
    }
    assert_eq!(logged, [0; 24]);
    let logged: Vec<_> = (24..28)
        .map(|n| query(&mut exits, n, DnsError::Timeout))
        .collect();
    assert_eq!(logged, [1, 0, 0, 0]);
    // Few are no reason, and neither are those for IPv4 addresses.
    let (mut exits, now) = self::exits(&["accept *:*"]);
    for number in 0..40 {
        let name = format!("n{number}.example");
        open(&mut exits, number, &name, 80, 0, now);
        exits.answered(answer(&name, QueryKind::V4, Err(DnsError::Timeout)), now);
        if number < 10 {
            exits.answered(answer(&name, QueryKind::V6, Err(DnsError::Timeout)), now);
        }
        assert_eq!(lines(&mut exits).len(), 0, "{number}");
    }
}

#[test]
fn few_timeouts_of_ipv6_are_not_logged_and_the_eleventh_is() {
    let (mut exits, now) = exits(&["accept *:*"]);
    let logged: Vec<usize> = (0..12)
        .map(|number| {
            let name = format!("n{number}.example");
            open(&mut exits, number, &name, 80, 0, now);
            exits.answered(answer(&name, QueryKind::V6, Err(DnsError::Timeout)), now);
            lines(&mut exits).len()
        })
        .collect();
    assert_eq!(logged, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
}
