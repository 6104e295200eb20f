//! An authority without sockets: what it takes, what it signs, what it serves.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use base64ct::{Base64Unpadded, Encoding as _};
use digest::Digest as _;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tor_checkable::{ExternallySigned as _, TimeBound as _};
use tor_llcrypto::d::Sha256;
use tor_llcrypto::pk::rsa::{KeyPair, RsaIdentity};
use tor_netdoc::doc::authcert::AuthCert;
use tor_netdoc::doc::microdesc::MicrodescAndHash;
use tor_netdoc::doc::netstatus::NsConsensus;
use tor_netdoc::types::relay_flags::RelayFlag;
use weft_config::GrantedFlag;
use weft_dir::certs::Certs;
use weft_dir::clock::ManualClock;
use weft_dir::consensus::{REASONABLY_LIVE, verify};
use weft_dir::descriptor::{Moment, OwnDescriptor, SignedDescriptor};
use weft_dir::documents::CachedDocuments;
use weft_dircache::Posted;
use weft_dircache::answer::Found;
use weft_dircache::pieces::Part;
use weft_dircache::server::{Asker, CacheServer};

use crate::testing::{TestAuthority, authority_config, moment, now, relay, secs};
use crate::{AuthorityConfig, AuthorityKeys, PrivateAuthority, SharedAuthority, parse_bandwidths};

/// Making RSA keys takes a moment.
static KEYS: LazyLock<TestAuthority> = LazyLock::new(|| TestAuthority::new(3));

fn keys() -> AuthorityKeys {
    let signing = KeyPair::from(KEYS.signing.as_key().clone());
    AuthorityKeys::new(signing, KEYS.cert.clone(), now()).unwrap()
}

fn config() -> AuthorityConfig {
    let mut config = authority_config(relay(1).rsa_id());
    config.options.params = BTreeMap::from([("circwindow".into(), 500), ("cc_alg".into(), 2)]);
    config
}

fn authority_with(change: impl FnOnce(&mut AuthorityConfig)) -> PrivateAuthority {
    let mut config = config();
    change(&mut config);
    PrivateAuthority::new(config, keys())
}

fn authority() -> PrivateAuthority {
    authority_with(|_| {})
}

/// A relay that may be an exit and a directory.
fn described(seed: u64) -> OwnDescriptor {
    OwnDescriptor {
        nickname: format!("relay{seed}"),
        ipv4: std::net::SocketAddrV4::new(
            Ipv4Addr::LOCALHOST,
            9000 + u16::try_from(seed % 1000).unwrap(),
        ),
        exit_policy: vec!["reject *:25".into(), "accept *:*".into()],
        tunnelled_dir_server: true,
        hidden_service_dir: true,
        family: vec![
            "$aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa=x".into(),
            "Friend".into(),
        ],
        ..relay(seed)
    }
}

fn signed(seed: u64, published: SystemTime) -> SignedDescriptor {
    described(seed).sign(&at(published)).unwrap()
}

/// The moment of a descriptor.
fn at(published: SystemTime) -> Moment {
    Moment {
        published,
        ..moment()
    }
}

fn post_at(authority: &mut PrivateAuthority, relay: &OwnDescriptor, moment: &Moment) -> Posted {
    let body = relay.sign(moment).unwrap().upload_body();
    authority.post(&body, moment.published)
}

fn post(authority: &mut PrivateAuthority, relay: &OwnDescriptor) -> Posted {
    post_at(authority, relay, &moment())
}

/// Of the consensus that is made `after` this time: nicknames with all their lines.
fn entries_after(authority: &mut PrivateAuthority, after: Duration) -> BTreeMap<String, String> {
    authority.configure(authority.config.clone());
    let text = body_at(authority, MICRODESC, now() + after);
    let text = text.split("\ndirectory-footer").next().unwrap();
    let entries = text.split("\nr ").skip(1);
    entries
        .map(|entry| {
            let name = entry.split(' ').next().unwrap();
            (name.to_owned(), format!("{entry}\n"))
        })
        .collect()
}

fn names_after(authority: &mut PrivateAuthority, seconds: u64) -> Vec<String> {
    let entries = entries_after(authority, secs(seconds));
    entries.into_keys().collect()
}

fn upload(authority: &mut PrivateAuthority, seed: u64) -> Posted {
    authority.post(&signed(seed, now()).upload_body(), now())
}

/// The texts that are found for a path, or the status.
fn found(
    authority: &mut PrivateAuthority,
    path: &str,
    now: SystemTime,
) -> Result<Vec<Arc<str>>, u16> {
    match authority.get(path, None, now) {
        Found::Documents(parts, _) => {
            let text = |part| match part {
                Part::Text(text) => text,
                other => panic!("{other:?}"),
            };
            Ok(parts.into_iter().map(text).collect())
        }
        Found::Short(status, _) => Err(status),
        other => panic!("{other:?}"),
    }
}

fn body_at(authority: &mut PrivateAuthority, path: &str, now: SystemTime) -> String {
    found(authority, path, now).unwrap().concat()
}

fn body(authority: &mut PrivateAuthority, path: &str) -> String {
    body_at(authority, path, now() + secs(4))
}

fn status(authority: &mut PrivateAuthority, path: &str) -> u16 {
    found(authority, path, now() + secs(4)).map_or_else(|status| status, |_| 200)
}

/// Makes the first consensus of these relays.
fn voted(seeds: &[u64]) -> PrivateAuthority {
    let mut authority = authority();
    for seed in seeds {
        let answer = upload(&mut authority, *seed);
        assert_eq!(
            (answer.status, answer.not_new),
            (200, false),
            "{}",
            answer.reason
        );
    }
    authority.tick(now()).unwrap();
    assert_eq!(authority.valid_after(), None, "others may come");
    authority.tick(now() + secs(4)).unwrap();
    authority
}

const MICRODESC: &str = "/tor/status-vote/current/consensus-microdesc";

#[test]
fn a_consensus_of_either_flavour_verifies_and_lists_the_relays_that_published() {
    let mut authority = voted(&[1, 2]);
    let text = body(&mut authority, MICRODESC);
    let mut certs = Certs::default();
    let certificate = body(&mut authority, "/tor/keys/authority");
    assert_eq!(certs.add(&certificate, &[KEYS.id()], now()).added, 1);
    let consensus = verify(&text, &[KEYS.id()], &certs, now(), REASONABLY_LIVE)
        .unwrap()
        .consensus;
    let one = consensus.relay(&relay(1).rsa_id()).unwrap();
    for flag in [
        RelayFlag::Authority,
        RelayFlag::Exit,
        RelayFlag::HSDir,
        RelayFlag::V2Dir,
    ] {
        assert!(one.has(flag), "{flag:?} {text}");
    }
    let two = consensus.relay(&relay(2).rsa_id()).unwrap();
    assert!(!two.has(RelayFlag::Authority) && two.has(RelayFlag::Guard));
    assert_eq!(consensus.relays().count(), 2);
    assert!(
        text.contains("\nparams cc_alg=2 circwindow=500\n"),
        "{text}"
    );
    assert!(text.contains("\nbandwidth-weights Wbd="), "{text}");

    let ns = body(&mut authority, "/tor/status-vote/current/consensus");
    let (_, _, unchecked) = NsConsensus::parse(&ns).unwrap();
    let certs: Vec<AuthCert> = AuthCert::parse_multiple(&certificate)
        .unwrap()
        .map(|cert| {
            use tor_checkable::SelfSigned as _;
            let cert = cert.unwrap().check_signature().unwrap();
            cert.if_valid_at(&now()).unwrap()
        })
        .collect();
    let unvalidated = unchecked
        .if_valid_at(&(now() + secs(4)))
        .unwrap()
        .set_n_authorities(1);
    assert_eq!(
        unvalidated.check_signature(&certs).unwrap().relays().len(),
        2
    );
    assert!(ns.contains("\np reject 25\n"), "{ns}");
}

#[test]
fn every_microdescriptor_that_the_consensus_names_is_served_and_has_its_digest() {
    let mut authority = voted(&[1, 2]);
    let text = body(&mut authority, MICRODESC);
    let named: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("m "))
        .collect();
    assert_eq!(named.len(), 2);
    let path = format!("/tor/micro/d/{}", named.join("-"));
    let served = body(&mut authority, &path);
    let parts: Vec<&str> = served.split_inclusive("\nid ed25519 ").collect();
    assert_eq!(parts.len(), 3, "two microdescriptors: {served}");
    for name in named {
        let one = body(&mut authority, &format!("/tor/micro/d/{name}"));
        assert_eq!(Base64Unpadded::encode_string(&Sha256::digest(&one)), name);
        let parsed = MicrodescAndHash::parse(&one).unwrap();
        assert!(parsed.ipv4_policy().allows_port(443) && !parsed.ipv4_policy().allows_port(25));
        assert!(
            one.starts_with("onion-key\n-----BEGIN RSA PUBLIC KEY-----\n"),
            "{one}"
        );
        assert!(one.contains("\nfamily $"), "{one}");
        assert!(
            one.contains(" $AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA ")
                || one.contains("family $AAAA"),
            "{one}"
        );
        assert!(one.contains(" friend\n"), "{one}");
    }
}

#[test]
fn descriptors_are_served_by_identity_and_by_digest() {
    let mut authority = voted(&[1, 2]);
    let ours = signed(1, now());
    let id = hex::encode_upper(relay(1).rsa_id().as_bytes());
    let other = hex::encode_upper(relay(2).rsa_id().as_bytes());
    let by_id = body(&mut authority, &format!("/tor/server/fp/{id}"));
    assert_eq!(by_id, ours.router);
    for path in [&format!("/tor/server/fp/{id}+{other}"), "/tor/server/all"] {
        assert_eq!(found(&mut authority, path, now()).unwrap().len(), 2);
    }
    assert_eq!(body(&mut authority, "/tor/server/authority"), ours.router);
    assert_eq!(
        body(&mut authority, &format!("/tor/extra/fp/{id}")),
        ours.extra_info
    );
    let ns = body(&mut authority, "/tor/status-vote/current/consensus");
    let digest = ns
        .lines()
        .find_map(|line| line.strip_prefix("r relay1 "))
        .unwrap();
    let digest = Base64Unpadded::decode_vec(digest.split(' ').nth(1).unwrap()).unwrap();
    let path = format!("/tor/server/d/{}", hex::encode_upper(digest));
    assert_eq!(body(&mut authority, &path), ours.router);
    for path in [
        "/tor/server/fp/00",
        "/tor/server/d/",
        "/tor/extra/x",
        "/tor/nothing",
        "/",
    ] {
        assert_eq!(status(&mut authority, path), 404, "{path}");
    }
}

#[test]
fn a_consensus_is_sent_to_clients_that_trust_us_only() {
    let mut authority = voted(&[1]);
    let ours: String = hex::encode_upper(KEYS.id().as_bytes())
        .chars()
        .take(6)
        .collect();
    let mut status = |signers: &str| status(&mut authority, &format!("{MICRODESC}{signers}"));
    assert_eq!(status(&format!("/{ours}")), 200);
    assert_eq!(status(&format!("/{}", ours.to_ascii_lowercase())), 200);
    assert_eq!(
        status(&format!("/{ours}+FFFFFF")),
        404,
        "one of two is no majority"
    );
    for none in ["/FFFFFF", "/", "-x"] {
        assert_eq!(status(none), 404);
    }
}

#[test]
fn certificates_are_found_by_either_key() {
    let mut authority = authority();
    let fp = hex::encode_upper(KEYS.id().as_bytes());
    let sk = hex::encode_upper(KEYS.signing.to_public_key().to_rsa_identity().as_bytes());
    let none = "0".repeat(40);
    for (path, expected) in [
        ("all".to_owned(), 200),
        (format!("fp/{none}+{fp}"), 200),
        (format!("sk/{sk}"), 200),
        (format!("fp-sk/{fp}-{sk}"), 200),
        (format!("fp-sk/{fp}-{none}"), 404),
        (format!("fp/{none}"), 404),
        (format!("what/{fp}"), 400),
    ] {
        let status = status(&mut authority, &format!("/tor/keys/{path}"));
        assert_eq!(status, expected, "{path}");
    }
}

#[test]
fn a_descriptor_is_taken_once_and_an_older_one_never() {
    let mut authority = authority();
    assert_eq!(upload(&mut authority, 1).reason, "Descriptor accepted");
    assert!(upload(&mut authority, 1).not_new);
    // Its extra-info document is not that of the descriptor that is kept, which is the lesser fault, as in C tor.
    let older = signed(1, now() - secs(60)).upload_body();
    assert!(authority.post(&older, now()).not_new);
    let newer = OwnDescriptor {
        contact: Some("we".into()),
        ..described(1)
    };
    let newer = newer.sign(&at(now() + secs(60))).unwrap();
    let answer = authority.post(&newer.upload_body(), now());
    assert_eq!(answer.reason, "Descriptor accepted");
    assert_eq!(authority.relays(), 1);
}

#[test]
fn forged_old_future_foreign_and_huge_uploads_are_refused_with_a_reason() {
    let mut authority = authority();
    let good = signed(1, now());
    let refused = |authority: &mut PrivateAuthority, text: &str| {
        let answer = authority.post(text.as_bytes(), now());
        assert_eq!(answer.status, 400, "{}", answer.reason);
        assert!(!answer.reason.contains('\n'));
        answer.reason.into_owned()
    };
    let forged = good.router.replace("uptime 77", "uptime 78");
    let reason = refused(&mut authority, &forged);
    assert!(reason.contains("verify"), "{reason}");
    let late = refused(&mut authority, &signed(1, now() - secs(25 * 3600)).router);
    assert!(late.contains("expired"), "{late}");
    let early = refused(&mut authority, &signed(1, now() + secs(13 * 3600)).router);
    assert!(early.contains("future"), "{early}");
    let lone = refused(&mut authority, &good.extra_info);
    assert!(lone.contains("No corresponding"), "{lone}");
    assert!(refused(&mut authority, "").contains("No descriptors"));
    assert!(refused(&mut authority, "router x\n").contains("Malformed"));
    let huge = format!("router {}\n", "x".repeat(30_000));
    assert!(refused(&mut authority, &huge).contains("too large"));
    assert_eq!(authority.post(&[0xff, 0xfe], now()).status, 400);
    assert_eq!(authority.relays(), 0);
    assert!(authority.post(&good.upload_body(), now()).status == 200);
    // Somebody else's ed25519 keys with a new RSA identity.
    let keys = described(1).keys;
    let other = described(2).keys;
    let mixed = OwnDescriptor {
        keys: Arc::new(weft_dir::descriptor::DescriptorKeys {
            rsa_identity: KeyPair::from(other.rsa_identity.as_key().clone()),
            ed_identity: keys.ed_identity,
            signing: tor_llcrypto::pk::ed25519::ExpandedKeypair::from_secret_key_bytes(
                keys.signing.to_secret_key_bytes(),
            )
            .unwrap(),
            signing_cert: keys.signing_cert.clone(),
            ntor: keys.ntor.clone(),
            tap: KeyPair::from(keys.tap.as_key().clone()),
            families: Vec::new(),
        }),
        ..described(1)
    };
    let mixed = mixed.sign(&moment()).unwrap().router;
    assert!(refused(&mut authority, &mixed).contains("keypair"));
}

#[test]
fn a_new_relay_is_listed_soon_and_otherwise_the_consensus_stays_until_it_is_stale() {
    let mut authority = authority();
    // When the newest consensus was made, after so many seconds.
    let after = |authority: &mut PrivateAuthority, seconds| {
        authority.tick(now() + secs(seconds)).unwrap();
        let made = authority.valid_after();
        made.map(|made| made.duration_since(now()).unwrap().as_secs())
    };
    assert_eq!(after(&mut authority, 99), None, "nobody is there");
    upload(&mut authority, 1);
    assert_eq!(after(&mut authority, 3), None, "others may come");
    assert_eq!(after(&mut authority, 4), Some(4));
    upload(&mut authority, 2);
    for (seconds, made) in [(7, 4), (8, 8), (27, 8), (28, 28)] {
        assert_eq!(after(&mut authority, seconds), Some(made));
    }
    // A clock that was set back.
    assert_eq!(after(&mut authority, 1), Some(1));
    // A relay that has not published for a day is not listed.
    authority.tick(now() + secs(25 * 3600)).unwrap();
    assert_eq!(authority.relays(), 0);
}

#[test]
fn a_sleeping_relay_is_not_listed() {
    let mut authority = voted(&[1]);
    let asleep = OwnDescriptor {
        hibernating: true,
        ..described(2)
    };
    let asleep = asleep.sign(&moment()).unwrap().upload_body();
    assert_eq!(authority.post(&asleep, now()).status, 200);
    let text = body_at(&mut authority, MICRODESC, now() + secs(24));
    assert!(text.contains("\nr relay1 ") && !text.contains("\nr relay2 "));
    assert_eq!(authority.relays(), 2);
}

#[test]
fn granted_flags_go_to_the_relays_that_torrc_names() {
    let one = relay(1).rsa_id();
    let flag = |all, relays, strict| GrantedFlag {
        all,
        relays,
        strict,
    };
    let mut authority = authority_with(|config| {
        let options = &mut config.options;
        options.guards = flag(false, vec![one.into()], true);
        options.exits = flag(false, Vec::new(), true);
        options.hidden_service_dirs = flag(true, Vec::new(), false);
        config.bandwidths = BTreeMap::from([(one, 4321)]);
    });
    upload(&mut authority, 1);
    let unwilling = OwnDescriptor {
        hidden_service_dir: false,
        ..described(2)
    };
    post(&mut authority, &unwilling);
    let entries = entries_after(&mut authority, secs(4));
    assert!(
        entries["relay1"].contains("\ns Authority Fast Guard HSDir Running Stable V2Dir Valid\n")
    );
    assert!(entries["relay2"].contains("\ns Fast HSDir Running Stable V2Dir Valid\n"));
    assert!(entries["relay1"].contains("\nw Bandwidth=4321\n"));
    assert!(!entries["relay2"].contains("\nw Bandwidth=4321\n"));
}

#[test]
fn flags_are_for_what_relays_state() {
    let mut authority = authority();
    let all = described(1);
    let middle = OwnDescriptor {
        exit_policy: vec!["accept *:80".into(), "reject *:*".into()],
        hidden_service_dir: false,
        ..described(2)
    };
    let no_directory = OwnDescriptor {
        tunnelled_dir_server: false,
        ..described(3)
    };
    for relay in [&all, &middle, &no_directory] {
        assert_eq!(post(&mut authority, relay).status, 200);
    }
    let entries = entries_after(&mut authority, secs(4));
    for (relay, flags) in [
        (
            "relay1",
            "Authority Exit Fast Guard HSDir Running Stable V2Dir Valid",
        ),
        ("relay2", "Fast Guard Running Stable V2Dir Valid"),
        ("relay3", "Exit Fast Running Stable Valid"),
    ] {
        let entry = &entries[relay];
        assert!(entry.contains(&format!("\ns {flags}\n")), "{entry}");
    }
}

#[test]
fn a_relay_that_comes_back_with_other_keys_takes_the_port_that_it_had() {
    let mut authority = voted(&[1, 2]);
    let again = |seed, port| OwnDescriptor {
        ipv4: std::net::SocketAddrV4::new(Ipv4Addr::LOCALHOST, port),
        ..described(seed)
    };
    assert_eq!(post(&mut authority, &again(3, 9002)).status, 200);
    assert_eq!(names_after(&mut authority, 8), ["relay1", "relay3"]);
    // Nobody takes that of the authority.
    let refused = post(&mut authority, &again(4, 9001));
    assert!(refused.status == 400 && refused.reason.contains("the authority"));
    assert_eq!(authority.relays(), 2);
}

#[test]
fn in_a_full_network_newcomers_are_refused_and_those_that_are_known_stay() {
    let mut authority = authority_with(|config| config.max_relays = 2);
    upload(&mut authority, 1);
    upload(&mut authority, 2);
    let refused = upload(&mut authority, 3);
    assert_eq!(
        (refused.status, &*refused.reason),
        (400, "This private network is full.")
    );
    let newer = post_at(&mut authority, &described(2), &at(now() + secs(9)));
    assert_eq!(newer.reason, "Descriptor accepted");
    assert_eq!(names_after(&mut authority, 9), ["relay1", "relay2"]);
}

#[test]
fn relays_that_do_not_run_cause_no_consensus() {
    let mut authority = voted(&[1]);
    let asleep = OwnDescriptor {
        hibernating: true,
        ..described(2)
    };
    post(&mut authority, &asleep);
    authority.tick(now() + secs(23)).unwrap();
    assert_eq!(authority.valid_after(), Some(now() + secs(4)));
    assert_eq!(
        post_at(&mut authority, &described(2), &at(now() + secs(10))).status,
        200
    );
    authority.tick(now() + secs(10)).unwrap();
    assert_eq!(authority.valid_after(), Some(now() + secs(10)));
}

#[test]
fn documents_of_an_older_descriptor_are_served_as_long_as_a_consensus_names_them() {
    let mut authority = voted(&[1]);
    let text = body(&mut authority, MICRODESC);
    let named = text.lines().find_map(|line| line.strip_prefix("m "));
    let path = format!("/tor/micro/d/{}", named.unwrap());
    let changed = |port: u16| OwnDescriptor {
        exit_policy: vec![format!("accept *:{port}"), "reject *:*".into()],
        ..described(1)
    };
    // The second of three is in no consensus.
    for (seconds, port) in [(5, 80), (6, 81)] {
        let answer = post_at(&mut authority, &changed(port), &at(now() + secs(seconds)));
        assert_eq!(answer.reason, "Descriptor accepted");
    }
    authority.tick(now() + secs(8)).unwrap();
    assert_eq!(status(&mut authority, &path), 200);
    let signed = changed(80).sign(&at(now() + secs(5))).unwrap();
    let digest = weft_dir::descriptor::signed_digest(&signed.router);
    let path = format!("/tor/server/d/{}", hex::encode_upper(digest));
    assert_eq!(status(&mut authority, &path), 404);
}

#[test]
fn ipv6_addresses_are_listed_where_torrc_says_so() {
    let mut authority = authority();
    let both = OwnDescriptor {
        ipv6: Some("[2001:db8::1]:9001".parse().unwrap()),
        ..described(2)
    };
    post(&mut authority, &both);
    let lists =
        |entries: &BTreeMap<String, String>| entries["relay2"].contains("\na [2001:db8::1]:9001\n");
    assert!(!lists(&entries_after(&mut authority, secs(4))));
    authority.config.options.ipv6 = true;
    assert!(lists(&entries_after(&mut authority, secs(8))));
}

/// C tor 0.4.9.12: TAP keys are wanted for clients of 0.4.8 alone.
#[test]
fn tap_keys_are_wanted_where_torrc_says_so() {
    let without = Moment {
        with_tap: false,
        ..moment()
    };
    let mut authority = authority();
    assert_eq!(post_at(&mut authority, &described(2), &without).status, 200);
    assert_eq!(post(&mut authority, &described(3)).status, 200);
    assert_eq!(names_after(&mut authority, 4), ["relay2", "relay3"]);
    assert!(body(&mut authority, MICRODESC).contains("\nconsensus-method 36\n"));
    authority.config.options.needs_tap = true;
    let refused = post_at(&mut authority, &described(4), &without);
    assert_eq!(
        (refused.status, &*refused.reason),
        (400, "Missing TAP key in descriptor.")
    );
    assert_eq!(names_after(&mut authority, 8), ["relay3"]);
    assert!(body(&mut authority, MICRODESC).contains("\nconsensus-method 35\n"));
}

/// TROVE-2026-062. The certificate that ends here is that of the onion key; tor-netdoc takes the earliest of all.
#[test]
fn a_descriptor_ends_with_the_first_of_its_certificates() {
    const HOUR: u64 = 3600;
    let mut authority = authority();
    let short = Moment {
        onion_key_lifetime: secs(2 * HOUR),
        ..moment()
    };
    post(&mut authority, &described(1));
    assert_eq!(post_at(&mut authority, &described(2), &short).status, 200);
    assert_eq!(names_after(&mut authority, 4), ["relay1", "relay2"]);
    assert_eq!(names_after(&mut authority, HOUR), ["relay1", "relay2"]);
    // Certificates have whole hours.
    assert_eq!(names_after(&mut authority, 3 * HOUR + 4), ["relay1"]);
    let late = now() + secs(3 * HOUR + 4);
    let body = described(3).sign(&short).unwrap().upload_body();
    assert_eq!(authority.post(&body, late).status, 400);
}

#[test]
fn any_upload_is_answered_in_one_line() {
    let good = signed(1, now());
    let body = String::from_utf8(good.upload_body()).unwrap();
    let authority = std::cell::RefCell::new(authority());
    proptest!(ProptestConfig::with_cases(64), |(at in 0..body.len(), byte in any::<u8>(), cut in any::<bool>())| {
        let mut bytes = body.clone().into_bytes();
        bytes[at] = byte;
        if cut {
            bytes.truncate(at);
        }
        let answer = authority.borrow_mut().post(&bytes, now());
        prop_assert!([200, 400].contains(&answer.status));
        prop_assert!(!answer.reason.contains(['\n', '\r']));
    });
}

fn server(authority: PrivateAuthority, clock: &Arc<ManualClock>) -> CacheServer {
    let documents = Arc::<CachedDocuments>::default();
    let server = CacheServer::new(documents, Arc::default(), clock.clone());
    server.with_authority(Some(Arc::new(SharedAuthority::new(authority))))
}

/// One request over HTTP.
async fn ask(server: &CacheServer, request: &[u8]) -> Vec<u8> {
    let (mut ours, theirs) = tokio::io::duplex(1 << 20);
    let server = server.clone();
    let serving = tokio::spawn(async move {
        let asker = Asker::direct(Ipv4Addr::LOCALHOST.into(), None);
        server.serve(theirs, asker).await;
    });
    ours.write_all(request).await.unwrap();
    ours.shutdown().await.unwrap();
    let mut answer = Vec::new();
    ours.read_to_end(&mut answer).await.unwrap();
    drop(ours);
    serving.await.unwrap();
    answer
}

fn status_line(answer: &[u8]) -> String {
    let text = String::from_utf8_lossy(answer);
    text.lines().next().unwrap_or_default().to_owned()
}

/// A POST to `path` that states this length.
fn posted(path: &str, length: usize, body: &[u8]) -> Vec<u8> {
    let head = format!("POST {path} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

#[tokio::test]
async fn descriptors_come_and_documents_go_over_http() {
    let clock = Arc::new(ManualClock::new(now()));
    let server = server(authority(), &clock);
    let upload = signed(1, now()).upload_body();
    let post = |path: &str| posted(path, upload.len(), &upload);
    assert_eq!(
        status_line(&ask(&server, &post("/tor/")).await),
        "HTTP/1.0 200 Descriptor accepted"
    );
    let again = ask(&server, &post("/tor/")).await;
    let again = String::from_utf8(again).unwrap();
    assert!(
        again.contains("\r\nX-Descriptor-Not-New: Yes\r\n\r\n"),
        "{again}"
    );
    let vote = status_line(&ask(&server, &post("/tor/post/vote")).await);
    assert!(vote.starts_with("HTTP/1.0 400 "), "{vote}");
    let get = |header: &str| format!("GET {MICRODESC} HTTP/1.0\r\n{header}\r\n").into_bytes();
    assert_eq!(
        status_line(&ask(&server, &get("")).await),
        "HTTP/1.0 404 Not found"
    );
    clock.advance(secs(4));
    let plain = ask(&server, &get("")).await;
    let text = std::str::from_utf8(&plain).unwrap();
    let (head, text) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.0 200 OK\r\n"), "{head}");
    assert!(text.starts_with("network-status-version 3 microdesc\n"));
    let packed = ask(&server, &get("Accept-Encoding: deflate, gzip\r\n")).await;
    let head = weft_dir::http::parse_head(&packed).unwrap().unwrap();
    let unpacked =
        weft_dir::http::decode(packed[head.length..].to_vec(), head.compression, 1 << 20).unwrap();
    assert_eq!(unpacked, text.as_bytes());
    let date = weft_dir::http::http_date(now() + secs(5)).unwrap();
    let since = get(&format!("If-Modified-Since: {date}\r\n"));
    assert_eq!(
        status_line(&ask(&server, &since).await),
        "HTTP/1.0 304 Not modified"
    );
}

#[tokio::test]
async fn what_is_posted_to_an_authority_is_bounded_and_answered() {
    let server = server(authority(), &Arc::new(ManualClock::new(now())));
    let upload = signed(1, now()).upload_body();
    // Of a good descriptor another reader would take the first three bytes.
    let two_lengths = format!(
        "POST /tor/ HTTP/1.0\r\nContent-Length: 3\r\nContent-Length: {}\r\n\r\n",
        upload.len()
    );
    for (request, expected) in [
        (
            posted("/tor/", 262_145, &upload),
            "400 Router descriptor was too large.",
        ),
        (
            posted("/tor/", 8, b"nonsense"),
            "400 No descriptors found in your POST.",
        ),
        ([two_lengths.as_bytes(), &upload].concat(), "400 "),
        // Cut off.
        (posted("/tor/", 99, b"router"), ""),
    ] {
        let answer = status_line(&ask(&server, &request).await);
        match expected {
            "" => assert_eq!(answer, ""),
            _ => assert!(
                answer.starts_with(&format!("HTTP/1.0 {expected}")),
                "{answer}"
            ),
        }
    }
}

#[test]
fn an_authority_without_a_valid_certificate_does_not_start() {
    let signing = || KeyPair::from(KEYS.signing.as_key().clone());
    let late = AuthorityKeys::new(
        signing(),
        KEYS.cert.clone(),
        now() + Duration::from_secs(400 * 86_400),
    );
    assert!(late.is_err());
    let foreign = KeyPair::from(KEYS.identity.as_key().clone());
    let error = AuthorityKeys::new(foreign, KEYS.cert.clone(), now()).unwrap_err();
    assert!(error.contains("another signing key"), "{error}");
    assert!(AuthorityKeys::new(signing(), "x".into(), now()).is_err());
    let _: RsaIdentity = keys().identity();
}

#[test]
fn bandwidth_files_count_instead_of_what_relays_claim() {
    let text = format!(
        "1700000000\nversion=1.4.0\n=====\nbw=12 node_id=${} nick=x\nnode_id=$00 bw=1\nnode_id=$é bw=1\n",
        hex::encode_upper([7; 20])
    );
    let expected = BTreeMap::from([(RsaIdentity::from([7; 20]), 12)]);
    assert_eq!(parse_bandwidths(&text), expected);
}
