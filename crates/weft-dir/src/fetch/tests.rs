//! Tests of the order of requests, and of the effects of answers.

use super::answers::MAX_CERT_FETCHES;
use super::*;
use crate::consdiff::{ConsensusDigest, full_digest};
use crate::http::{HttpError, Response};
use crate::testing::{TestAuthority, TestConsensus, now, secs};
use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;

/// A fetcher of a network with one authority, and what surrounds it.
struct Setup {
    fetcher: Fetcher,
    options: DirectoryOptions,
    authority: TestAuthority,
    rng: ChaCha12Rng,
    /// The consensus in the cache file.
    cached: Option<String>,
}

impl Setup {
    fn new() -> Self {
        let authority = TestAuthority::new(1);
        let configured = authority.configured("127.0.0.1:1".parse().unwrap());
        let options = DirectoryOptions::new(vec![configured], "/nonexistent".into(), true);
        let mut rng = ChaCha12Rng::seed_from_u64(5);
        let fetcher = Fetcher::new(&options, Duration::ZERO, &mut rng);
        Self {
            fetcher,
            options,
            authority,
            rng,
            cached: None,
        }
    }

    fn ask(&mut self, wall: SystemTime, monotonic: Duration) -> Option<String> {
        match self
            .fetcher
            .next(|| self.cached.clone(), &self.options, wall, monotonic)?
            .1
        {
            Request::Get { path, .. } => Some(path),
            post => panic!("{post:?}"),
        }
    }

    fn answer(
        &mut self,
        status: u16,
        body: &str,
        wall: SystemTime,
        monotonic: Duration,
    ) -> Vec<News> {
        let response = Response {
            status,
            reason: "reason".into(),
            date: None,
            your_address: None,
            not_new: false,
            body: body.as_bytes().to_vec(),
        };
        let base = self.cached.clone();
        self.fetcher.answered(
            Ok(response),
            || base,
            "auth",
            &self.options,
            wall,
            monotonic,
            &mut self.rng,
        )
    }

    fn consensus(&self, valid_after: SystemTime) -> String {
        TestConsensus {
            valid_after,
            ..TestConsensus::default()
        }
        .signed_by(&[&self.authority])
    }
}

fn severities(news: &[News]) -> Vec<Severity> {
    news.iter()
        .filter_map(|news| match news {
            News::Message(severity, _) => Some(*severity),
            _ => None,
        })
        .collect()
}

#[test]
fn consensus_then_certificates_then_nothing_until_it_is_stale() {
    let mut setup = Setup::new();
    let path = setup.ask(now(), Duration::ZERO).unwrap();
    assert!(path.starts_with("/tor/status-vote/current/consensus-microdesc/"));
    assert_eq!(
        setup.ask(now(), Duration::ZERO),
        None,
        "one request at a time"
    );
    let text = setup.consensus(now() - secs(60));
    let news = setup.answer(200, &text, now(), Duration::ZERO);
    assert!(matches!(*news, [News::WaitingForCerts]), "{news:?}");
    let path = setup.ask(now(), Duration::ZERO).unwrap();
    assert!(path.starts_with("/tor/keys/fp-sk/"));
    let cert = setup.authority.cert.clone();
    let news = setup.answer(200, &cert, now(), Duration::ZERO);
    assert!(
        matches!(&*news, [News::Certs(text), News::Consensus(adopted)] if *text == cert && adopted.fetched),
        "{news:?}"
    );
    assert_eq!(setup.ask(now(), Duration::ZERO), None);
    let wait = setup.fetcher.wait(now(), Duration::ZERO).unwrap();
    assert!(
        (secs(3540)..secs(3540 + 120 + 1800)).contains(&wait),
        "{wait:?}"
    );
    assert!(setup.ask(now() + wait, wait).is_some());
}

#[test]
fn no_consensus_yet_is_everyday_and_asked_for_again_with_delays() {
    let mut setup = Setup::new();
    let mut monotonic = Duration::ZERO;
    for _ in 0..10 {
        assert!(setup.ask(now(), monotonic).is_some());
        assert_eq!(
            severities(&setup.answer(404, "", now(), monotonic)),
            [Severity::Info]
        );
        assert_eq!(setup.ask(now(), monotonic), None);
        let wait = setup.fetcher.wait(now(), monotonic).unwrap();
        assert!((secs(1)..=RETRY_CAP_TESTING).contains(&wait));
        monotonic += wait;
    }
}

#[test]
fn an_older_or_forged_consensus_does_not_replace_the_one_in_use() {
    let mut setup = Setup::new();
    let (text, cert) = (
        setup.consensus(now() - secs(60)),
        setup.authority.cert.clone(),
    );
    let Setup {
        fetcher,
        options,
        rng,
        ..
    } = &mut setup;
    let news = fetcher.load(Some(&cert), Some(&text), options, now(), rng);
    assert!(
        matches!(&*news, [News::Consensus(adopted)] if !adopted.fetched),
        "{news:?}"
    );
    let later = now() + secs(7200);
    for (text, severity) in [
        (setup.consensus(now() - secs(120)), Severity::Info),
        (
            setup
                .consensus(now())
                .replace("circwindow=500", "circwindow=501"),
            Severity::Warn,
        ),
        (text[..text.len() / 2].to_string(), Severity::Warn),
    ] {
        let monotonic = setup.fetcher.not_before;
        assert!(setup.ask(later, monotonic).is_some());
        assert_eq!(
            severities(&setup.answer(200, &text, later, monotonic)),
            [severity]
        );
        assert_eq!(
            setup.fetcher.consensus().unwrap().valid_after,
            now() - secs(60)
        );
    }
}

#[test]
fn a_consensus_signed_with_keys_that_nobody_has_does_not_block_the_next() {
    let mut setup = Setup::new();
    // Claims a signing key of the real authority that does not exist.
    let text = setup.consensus(now());
    let sk = hex::encode_upper(
        setup
            .authority
            .signing
            .to_public_key()
            .to_rsa_identity()
            .as_bytes(),
    );
    let forged = text.replace(&sk, &"0".repeat(40));
    let mut monotonic = Duration::ZERO;
    setup.ask(now(), monotonic).unwrap();
    setup.answer(200, &forged, now(), monotonic);
    for _ in 0..MAX_CERT_FETCHES {
        assert!(setup.ask(now(), monotonic).unwrap().contains("/tor/keys/"));
        setup.answer(404, "", now(), monotonic);
        monotonic += setup.fetcher.wait(now(), monotonic).unwrap();
    }
    assert!(
        setup
            .ask(now(), monotonic)
            .unwrap()
            .contains("/consensus-microdesc/")
    );
}

#[test]
fn only_authorities_that_sign_are_asked_each_in_its_turn() {
    let mut setup = Setup::new();
    let signing = setup.options.authorities[0].clone();
    let bridges = crate::authority::Authority {
        v3_ident: None,
        bridge: true,
        ..signing.clone()
    };
    setup.options.authorities = vec![bridges, signing.clone(), signing];
    let mut asked = Vec::new();
    let mut monotonic = Duration::ZERO;
    for _ in 0..4 {
        asked.push(
            setup
                .fetcher
                .next(|| None, &setup.options, now(), monotonic)
                .unwrap()
                .0,
        );
        setup.answer(404, "", now(), monotonic);
        monotonic += RETRY_CAP_TESTING;
    }
    assert!(asked == [1, 2, 1, 2] || asked == [2, 1, 2, 1], "{asked:?}");
    setup.options.authorities.clear();
    assert_eq!(setup.ask(now(), monotonic), None);
}

#[test]
fn damaged_cache_files_are_worth_one_warning_each() {
    let mut setup = Setup::new();
    let (text, cert) = (setup.consensus(now()), setup.authority.cert.clone());
    let Setup {
        fetcher,
        options,
        rng,
        ..
    } = &mut setup;
    let news = fetcher.load(Some(&cert[40..]), Some(&text[40..]), options, now(), rng);
    assert_eq!(
        severities(&news),
        [Severity::Warn, Severity::Warn],
        "{news:?}"
    );
    assert!(fetcher.consensus().is_none());
}

#[test]
fn a_clock_that_jumps_past_the_end_makes_it_fetch_at_once() {
    let mut setup = Setup::new();
    let (text, cert) = (setup.consensus(now()), setup.authority.cert.clone());
    let Setup {
        fetcher,
        options,
        rng,
        ..
    } = &mut setup;
    fetcher.load(Some(&cert), Some(&text), options, now(), rng);
    assert_eq!(setup.ask(now() + secs(10), Duration::ZERO), None);
    assert!(setup.ask(now() + secs(86_400), Duration::ZERO).is_some());
}

#[test]
fn attempts_are_counted_until_the_document_is_there() {
    let mut setup = Setup::new();
    let start = now();
    assert!(setup.fetcher.new_downloads(start).is_none());
    let mut at = secs(3);
    for failures in 1..=2 {
        assert!(setup.ask(start, at).is_some());
        let underway = setup.fetcher.new_downloads(start).unwrap().first;
        assert_eq!(
            (underway.attempts, underway.failures),
            (failures, failures - 1)
        );
        setup.answer(404, "", start, at);
        let failed = setup.fetcher.new_downloads(start).unwrap().first;
        assert_eq!((failed.attempts, failed.failures), (failures, failures));
        assert!(failed.delay >= secs(1));
        assert_eq!(failed.next, start + failed.delay);
        at += failed.delay;
    }
    // The consensus comes, and waits for certificates.
    setup.ask(start, at);
    let consensus = setup.consensus(start);
    setup.answer(200, &consensus, start, at);
    assert!(setup.ask(start, at).unwrap().contains("/keys/"));
    let waiting = setup.fetcher.new_downloads(start).unwrap();
    assert_eq!((waiting.first.attempts, waiting.certs.attempts), (3, 1));
    assert!(!waiting.has_consensus && waiting.keys.is_empty());
    let cert = setup.authority.cert.clone();
    setup.answer(200, &cert, start, at);
    let done = setup.fetcher.new_downloads(start).unwrap();
    assert_eq!((done.first.attempts, done.certs.attempts), (0, 0));
    assert!(done.has_consensus);
    assert!(done.following.next > start, "when the next is fetched");
    assert_eq!(done.keys.values().map(|keys| keys.len()).sum::<usize>(), 1);
    // The next one is another matter.
    let later = done.following.next;
    assert!(setup.ask(later, at).is_some());
    setup.answer(503, "", later, at);
    let failed = setup.fetcher.new_downloads(later).unwrap();
    assert_eq!((failed.first.failures, failed.following.failures), (0, 1));
}

#[test]
fn a_relay_that_reaches_no_authority_warns_after_a_while_once_an_hour() {
    let mut setup = Setup::new();
    let mut severities_at = |seconds, audience| {
        setup.fetcher.audience = audience;
        setup.fetcher.underway = Some(Underway::Consensus);
        let news = setup.fetcher.answered(
            Err(HttpError::Unreachable),
            || None,
            "auth",
            &setup.options,
            now(),
            secs(seconds),
            &mut setup.rng,
        );
        severities(&news)
    };
    let relay = Audience::Relay;
    assert_eq!(severities_at(0, relay), [Severity::Info]);
    assert_eq!(severities_at(29, relay), [Severity::Info]);
    assert_eq!(severities_at(30, Audience::Client), [Severity::Info]);
    assert_eq!(severities_at(31, relay), [Severity::Warn]);
    assert_eq!(severities_at(60, relay), [Severity::Info]);
    assert_eq!(severities_at(3631, relay), [Severity::Warn]);
}

/// A fetcher that uses a consensus, whose text is in the cache file, a fetch after which is due.
fn with_consensus() -> (Setup, String, SystemTime) {
    let mut setup = Setup::new();
    let text = setup.consensus(now() - secs(60));
    let cert = setup.authority.cert.clone();
    setup.ask(now(), Duration::ZERO).unwrap();
    setup.answer(200, &text, now(), Duration::ZERO);
    setup.ask(now(), Duration::ZERO).unwrap();
    setup.answer(200, &cert, now(), Duration::ZERO);
    setup.cached = Some(text.clone());
    let due = now() + setup.fetcher.wait(now(), Duration::ZERO).unwrap();
    (setup, text, due)
}

/// The digest that a diff may begin at, and the time, of the request that is made now.
fn request(
    setup: &mut Setup,
    wall: SystemTime,
    monotonic: Duration,
) -> (Option<String>, Option<SystemTime>) {
    match setup
        .fetcher
        .next(|| setup.cached.clone(), &setup.options, wall, monotonic)
    {
        Some((
            _,
            Request::Get {
                diff_from,
                if_modified_since,
                ..
            },
        )) => (diff_from.map(|digest| digest.hex()), if_modified_since),
        other => panic!("{other:?}"),
    }
}

/// A diff that replaces all of `base`.
fn whole_diff(base: &str, target: &str) -> String {
    format!(
        "network-status-diff-version 1\nhash {} {}\n2,$d\n1c\n{target}.\n",
        ConsensusDigest::of(base).hex(),
        full_digest(target.as_bytes()),
    )
}

#[test]
fn a_diff_is_asked_for_and_applied() {
    let (mut setup, text, due) = with_consensus();
    let from = ConsensusDigest::of(&text).hex();
    let asked = request(&mut setup, due, secs(9));
    // Three minutes after it became valid (C tor `DEFAULT_IF_MODIFIED_SINCE_DELAY`).
    assert_eq!(asked, (Some(from), Some(now() + secs(120))));
    let next = setup.consensus(now() + secs(3540));
    let diff = whole_diff(&text, &next);
    let news = setup.answer(200, &diff, due, secs(9));
    assert!(
        matches!(&*news, [News::Message(Severity::Info, text), News::Consensus(adopted)]
            if text.starts_with("Applied consensus diff (size ") && adopted.text == next && adopted.fetched),
        "{news:?}"
    );
}

#[test]
fn a_diff_that_does_not_apply_is_one_warning_and_the_whole_is_asked_for() {
    let (setup, text, _) = with_consensus();
    let next = setup.consensus(now() + secs(3540));
    let diff = whole_diff(&text, &next);
    let other = setup.consensus(now() + secs(7200));
    let header = diff
        .lines()
        .take(2)
        .map(|line| format!("{line}\n"))
        .collect::<String>();
    let explodes = format!("{header}8a\n{}.\n", "x\n".repeat(1 << 20));
    for (cached, answer) in [
        // It was changed, begins at another consensus, grows, or what it begins at is not there any more.
        (
            Some(&text),
            diff.replace("microdesc", "microdexx")
                .replace("500", "900")
                .replace("valid-after 2026", "valid-after 2025"),
        ),
        (Some(&text), whole_diff(&other, &next)),
        (Some(&text), explodes),
        (Some(&other), diff.clone()),
        (None, diff.clone()),
    ] {
        let (mut setup, _, due) = with_consensus();
        assert!(request(&mut setup, due, secs(9)).0.is_some());
        setup.cached = cached.cloned();
        let news = setup.answer(200, &answer, due, secs(9));
        let [News::Message(Severity::Warn, warning)] = &*news else {
            panic!("{news:?}");
        };
        assert!(
            warning.starts_with("Could not apply consensus diff received from server auth: "),
            "{warning}"
        );
        // Not at once, and without a word about diffs.
        assert!(
            setup
                .fetcher
                .next(|| None, &setup.options, due, secs(9))
                .is_none()
        );
        let (diff_from, since) = request(&mut setup, due, secs(9) + RETRY_CAP_TESTING);
        assert_eq!(diff_from, None);
        assert!(since.is_some());
        setup.cached = Some(next.clone());
        let news = setup.answer(200, &next, due, secs(20));
        assert!(
            matches!(&*news, [News::Consensus(adopted)] if adopted.text == next),
            "{news:?}"
        );
        // The next time a diff will do again.
        let due = due + setup.fetcher.wait(due, secs(20)).unwrap();
        assert!(request(&mut setup, due, secs(20)).0.is_some());
    }
}

#[test]
fn no_diff_is_asked_for_that_nobody_has_or_that_cannot_be_applied() {
    let (mut setup, ..) = with_consensus();
    let days = |days: u64| now() + secs(days * 86_400);
    assert!(request(&mut setup, days(2), secs(9)).0.is_some());
    let (mut setup, ..) = with_consensus();
    // C tor `try-diff-for-consensus-newer-than`: 72 hours.
    assert_eq!(request(&mut setup, days(3), secs(9)).0, None);
    // A client that keeps no files, and one whose files a relay keeps, which has the next consensus already.
    for cached in [None, Some(setup.consensus(now() + secs(3540)))] {
        let (mut setup, _, due) = with_consensus();
        setup.cached = cached;
        assert_eq!(request(&mut setup, due, secs(9)).0, None);
    }
}

#[test]
fn the_flavour_ns_is_fetched_by_its_path_and_another_is_refused() {
    let mut setup = Setup::new();
    setup.fetcher = Fetcher::of_descriptors(&setup.options, Duration::ZERO, &mut setup.rng);
    let path = setup.ask(now(), Duration::ZERO).unwrap();
    assert!(
        path.starts_with("/tor/status-vote/current/consensus/"),
        "{path}"
    );
    assert_eq!(setup.fetcher.cache_file(), "cached-consensus");
    let text = setup.consensus(now() - secs(60));
    let news = setup.answer(200, &text, now(), Duration::ZERO);
    let [News::Message(Severity::Warn, warning)] = &*news else {
        panic!("{news:?}");
    };
    assert!(warning.contains("another flavour than ns"), "{warning}");
}
