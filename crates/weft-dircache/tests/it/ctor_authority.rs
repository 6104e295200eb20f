//! Our documents before a real C tor directory authority, and its documents before us.
//!
//! Starts Debian's `tor` as the only authority of a private network on loopback; fails without it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use crate::ctor::{CTor, Node, can_do_without_tap, free_port};
use crate::testing;
use weft_testing::not_run;

use tor_llcrypto::pk::rsa::RsaIdentity;
use tor_netdoc::types::relay_flags::RelayFlag;
use weft_dir::authority::Authority;
use weft_dir::bandwidth::Totals;
use weft_dir::cache;
use weft_dir::certs::Certs;
use weft_dir::command::{Command, DirectoryOptions, Event, UploadOutcome};
use weft_dir::consensus::{self, ConsensusError, REASONABLY_LIVE};
use weft_dir::descriptor::{Moment, OwnDescriptor};
use weft_dir::http::Request;

/// A relay with keys and certificates of today.
fn relay_today() -> OwnDescriptor {
    testing::relay_at(21, SystemTime::now())
}

#[test]
fn an_authority_takes_our_descriptor_and_we_take_its_consensus() {
    let tor = CTor::start();
    let node_directory = tempfile::tempdir().unwrap();
    let cache_directory: PathBuf = node_directory.path().join("cache");
    let mut descriptor = relay_today();
    descriptor.contact = Some("Tester <tester at example.org>".into());
    let id = hex::encode_upper(descriptor.rsa_id().as_bytes());

    // Published, accepted, listed, and its parameters followed.
    let mut node = Node::start(tor.options(&cache_directory));
    let began = SystemTime::now();
    for second in 0..20 {
        let bytes = 50_000 * second;
        let totals = Totals {
            read: bytes,
            written: bytes,
            ..Totals::default()
        };
        node.handle.send(Command::Bandwidth(totals)).unwrap();
    }
    node.handle
        .send(Command::Descriptor(Box::new(descriptor.clone())))
        .unwrap();
    let outcome = node.wait("the upload", |event| match event {
        Event::Uploaded { outcome, .. } if !matches!(outcome, UploadOutcome::Failed(_)) => {
            Some(outcome.clone())
        }
        _ => None,
    });
    assert_eq!(outcome, UploadOutcome::Accepted, "{}", tor.log());
    let consensus = node.wait("a consensus", |event| match event {
        Event::Consensus(consensus) => Some(consensus.clone()),
        _ => None,
    });
    assert_eq!(
        consensus.params.kist_sched_run_interval,
        Duration::from_millis(9)
    );
    assert_eq!(consensus.params.circwindow, 777);
    assert!(consensus.valid_until > began);
    let flags = node.wait("being listed", |event| match event {
        Event::Listed(flags) => *flags,
        _ => None,
    });
    assert!(
        flags.contains(RelayFlag::Running) && flags.contains(RelayFlag::Valid),
        "{flags:?}"
    );
    node.wait("the end of the start", |event| match event {
        Event::Bootstrap { percent: 100, .. } => Some(()),
        _ => None,
    });

    // It serves the descriptor that we sent, extra-info document included.
    let router = tor.get(&format!("/tor/server/fp/{id}"));
    assert!(
        router.starts_with("router weft1 127.0.0.1 9001 0 0\n"),
        "{router}"
    );
    assert!(router.contains("\ncontact Tester <tester at example.org>\n"));
    assert!(router.contains(&format!(
        "\nplatform {}\n",
        OwnDescriptor::default_platform()
    )));
    assert_eq!(router.matches("-----BEGIN SIGNATURE-----").count(), 1);
    let extra_info = tor.get(&format!("/tor/extra/fp/{id}"));
    assert!(
        extra_info.starts_with(&format!("extra-info weft1 {id}\n")),
        "{extra_info}"
    );

    // A later consensus follows by itself.
    let before = consensus.valid_after;
    node.wait("the next consensus", |event| match event {
        Event::Consensus(consensus) => (consensus.valid_after > before).then_some(()),
        _ => None,
    });
    node.handle.shutdown();

    // The cache files start the next node without asking anybody.
    let now = SystemTime::now();
    let signers = [tor.authority.v3_ident.unwrap()];
    let read = |name| cache::read(&cache_directory, name).unwrap().unwrap();
    let (text, certs_text) = (read(cache::CONSENSUS), read(cache::CERTS));
    let mut certs = Certs::default();
    assert_eq!(certs.add(&certs_text, &signers, now).added, 1);
    let check = |text: &str, now| consensus::verify(text, &signers, &certs, now, REASONABLY_LIVE);
    let cached = check(&text, now).unwrap();
    assert!(cached.consensus.relay(&descriptor.rsa_id()).is_some());
    let mut again = Node::start(DirectoryOptions {
        authorities: vec![Authority {
            dir_addr: SocketAddr::from((Ipv4Addr::LOCALHOST, free_port())),
            ..tor.authority.clone()
        }],
        ..tor.options(&cache_directory)
    });
    again.wait("the cached consensus", |event| match event {
        Event::Consensus(consensus) => (consensus.digest == cached.consensus.digest).then_some(()),
        _ => None,
    });
    again.handle.shutdown();

    // Forged, stale and cut off, its consensus is refused for what it is.
    let forged = text.replace("circwindow=777", "circwindow=778");
    assert!(matches!(
        check(&forged, now),
        Err(ConsensusError::BadSignature(_))
    ));
    let later = now + Duration::from_secs(2 * 86_400);
    assert!(matches!(
        check(&text, later),
        Err(ConsensusError::Expired { .. })
    ));
    let half = &text[..text.len() / 2];
    assert!(matches!(
        check(half, now),
        Err(ConsensusError::Malformed(_) | ConsensusError::TooFewSignatures { .. })
    ));
    let strangers: Vec<RsaIdentity> = vec![[1; 20].into()];
    let error = consensus::verify(&text, &strangers, &certs, now, REASONABLY_LIVE);
    assert!(matches!(
        error,
        Err(ConsensusError::TooFewSignatures { .. })
    ));

    // Our documents satisfied it: no warning in its log.
    let warnings: Vec<String> = tor
        .log()
        .lines()
        .filter(|line| line.contains("[warn]") || line.contains("[err]"))
        .filter(|line| !is_expected(line))
        .map(String::from)
        .collect();
    assert!(warnings.is_empty(), "{warnings:#?}");
}

/// Warnings of an authority that is alone, young and on loopback; none is about our documents.
const EXPECTED_WARNINGS: &[&str] = &[
    "You are running Tor as root",
    "TestingTorNetwork is set",
    "You have used DirAuthority",
    "V3AuthVotingInterval is very low",
    "approved-routers",
    "sr-state",
    "We just marked ourself as down",
    "is using the same address",
    "We don't have enough votes",
    "Not enough info to publish pending detached signatures",
    "Received http status code 404",
    // It wants circuits of its own, and its network has no other relay that answers.
    "No available nodes when trying to choose node",
];

/// True if a warning is not about our documents.
fn is_expected(line: &str) -> bool {
    let mut expected = EXPECTED_WARNINGS.iter();
    expected.any(|expected| line.contains(expected))
}

#[test]
fn an_authority_refuses_what_is_wrong_with_a_reason_and_takes_every_variant_that_is_right() {
    let tor = CTor::start();
    let moment = |published| Moment {
        published,
        history: Vec::new(),
        ..testing::moment()
    };
    let now = SystemTime::now();
    let full = OwnDescriptor {
        ipv6: Some("[2001:db8::1]:9001".parse().unwrap()),
        contact: Some("Tëster".into()),
        family: vec![format!("${}", "A".repeat(40))],
        exit_policy: vec!["accept *:80".into(), "reject *:*".into()],
        ipv6_policy: Some("accept 80".into()),
        hidden_service_dir: true,
        ..testing::with_family(testing::relay_at(31, now), 32)
    };
    let overloaded = Moment {
        overload_general: Some(now - Duration::from_secs(7200)),
        history: vec![
            "write-history 2026-11-20 01:00:00 (86400 s) 1024,2048".into(),
            "read-history 2026-11-20 01:00:00 (86400 s) 1024,2048".into(),
        ],
        statistics: testing::statistics(now),
        ..moment(now)
    };
    let signed = full.sign(&overloaded).unwrap();
    let response = tor.post(&(signed.router.clone() + &signed.extra_info));
    assert_eq!(
        (response.status, response.not_new),
        (200, false),
        "{}\n{}",
        response.reason,
        signed.router
    );
    assert!(response.date.is_some());
    let id = hex::encode_upper(full.rsa_id().as_bytes());
    assert!(
        tor.get(&format!("/tor/server/fp/{id}"))
            .contains("\noverload-general 1 ")
    );
    assert!(
        tor.get(&format!("/tor/server/fp/{id}"))
            .contains("\nfamily-cert\n")
    );
    let extra_info = tor.get(&format!("/tor/extra/fp/{id}"));
    for keyword in ["read-history", "dirreq-v3-resp", "overload-fd-exhausted"] {
        assert!(
            extra_info.contains(&format!("\n{keyword} ")),
            "{extra_info}"
        );
    }
    let about_us = |line: &&str| line.contains("[warn]") && !is_expected(line);
    let log = tor.log();
    let warnings: Vec<&str> = log.lines().filter(about_us).collect();
    assert!(warnings.is_empty(), "{warnings:#?}");

    // An unchanged descriptor is not new.
    let again = full.sign(&moment(now + Duration::from_secs(5))).unwrap();
    let response = tor.post(&again.router);
    assert_eq!(
        (response.status, response.not_new),
        (200, true),
        "{}",
        response.reason
    );

    // Both signs of the ntor cross-certificate are understood.
    for seed in 40..44 {
        let signed = testing::relay_at(seed, now).sign(&moment(now)).unwrap();
        let response = tor.post(&(signed.router.clone() + &signed.extra_info));
        assert_eq!(
            response.status, 200,
            "{}\n{}",
            response.reason, signed.router
        );
    }

    // Without a TAP key it is refused today; the reason arrives.
    let without = testing::relay_at(50, now)
        .sign(&Moment {
            with_tap: false,
            ..moment(now)
        })
        .unwrap();
    let response = tor.post(&without.router);
    assert_eq!(
        (response.status, response.reason.as_str()),
        (400, "Missing TAP key in descriptor.")
    );

    // A changed byte breaks the signatures. C tor answers as if it had taken the descriptor, which
    // is why being listed, not being accepted, is what counts; but it does not serve it.
    let relay = testing::relay_at(51, now);
    let forged = relay
        .sign(&moment(now))
        .unwrap()
        .router
        .replace("uptime 77", "uptime 78");
    assert_eq!(tor.post(&forged).status, 200);
    let path = format!(
        "/tor/server/fp/{}",
        hex::encode_upper(relay.rsa_id().as_bytes())
    );
    let response = tor.ask(Request::get(path));
    assert_eq!(response.status, 404);
    assert!(
        tor.log().contains("Incorrect ed25519 signature"),
        "and logs it: {}",
        tor.log()
    );
}

/// From C tor 0.4.9.12 on.
#[test]
fn a_new_authority_takes_descriptors_without_tap_keys() {
    if !can_do_without_tap() {
        not_run!("this C tor's authorities want TAP keys");
        return;
    }
    let tor = CTor::with("", "");
    let now = SystemTime::now();
    let moment = Moment {
        published: now,
        history: Vec::new(),
        with_tap: false,
        ..testing::moment()
    };
    let signed = testing::relay_at(50, now).sign(&moment).unwrap();
    let response = tor.post(&signed.router);
    assert_eq!(response.status, 200, "{}", response.reason);
}

#[test]
fn an_authority_that_wants_a_tap_key_gets_one_although_its_consensus_does_not() {
    let tor = CTor::with_params("publish-dummy-tap-key=0");
    let folder = tempfile::tempdir().unwrap();
    let descriptor = testing::relay_at(71, SystemTime::now());
    let id = hex::encode_upper(descriptor.rsa_id().as_bytes());
    let mut node = Node::start(tor.options(folder.path()));
    let without = node.wait("a consensus", |event| match event {
        Event::Consensus(consensus) => Some(!consensus.params.publish_dummy_tap_key),
        _ => None,
    });
    assert!(without);
    let descriptor = Command::Descriptor(Box::new(descriptor));
    node.handle.send(descriptor).unwrap();
    let mut outcome = |what| {
        node.wait(what, |event| match event {
            Event::Uploaded { outcome, .. } => Some(outcome.clone()),
            _ => None,
        })
    };
    let refused = UploadOutcome::Refused("Missing TAP key in descriptor.".into());
    assert_eq!(outcome("the refusal"), refused);
    assert_eq!(outcome("the other form"), UploadOutcome::Accepted);
    let router = tor.get(&format!("/tor/server/fp/{id}"));
    assert!(router.contains("\nonion-key\n"), "{router}");
    node.handle.shutdown();
}
