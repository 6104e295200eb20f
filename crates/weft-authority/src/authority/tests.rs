//! An authority without sockets: what it takes, what it signs, what it serves.

mod history;
mod newcomers;
mod reachability;
mod repeats;
mod rules;
mod threads;

use std::net::{IpAddr, Ipv4Addr};
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
use tor_netdoc::doc::netstatus::{MdConsensus, NsConsensus};
use tor_netdoc::types::relay_flags::RelayFlag;
use weft_dir::certs::Certs;
use weft_dir::clock::ManualClock;
use weft_dir::consensus::{REASONABLY_LIVE, verify};
use weft_dir::descriptor::{OwnDescriptor, SignedDescriptor};
use weft_dircache::request::MAX_HEAD;
use weft_dircache::server::Asker;

use super::*;
use crate::server::{self, AT_ONCE, AuthorityServer};
use crate::testing::{TestAuthority, authority_config, moment, now, relay, secs};
use crate::{FlagThresholds, Granted, Lists, NamedRelays, ReachabilityOptions, parse_bandwidths};

/// Where descriptors come from.
const FROM: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Making RSA keys takes a moment.
static KEYS: LazyLock<TestAuthority> = LazyLock::new(|| TestAuthority::new(3));

fn keys() -> AuthorityKeys {
    let signing = KeyPair::from(KEYS.signing.as_key().clone());
    AuthorityKeys::new(signing, KEYS.cert.clone(), now()).unwrap()
}

fn config() -> AuthorityConfig {
    AuthorityConfig {
        params: BTreeMap::from([("circwindow".into(), 500), ("cc_alg".into(), 2)]),
        ..authority_config(relay(1).rsa_id())
    }
}

fn authority() -> PrivateAuthority {
    PrivateAuthority::new(config(), keys(), None)
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
    let moment = weft_dir::descriptor::Moment {
        published,
        ..moment()
    };
    described(seed).sign(&moment).unwrap()
}

fn upload(authority: &mut PrivateAuthority, seed: u64) -> Answer {
    authority.post(&signed(seed, now()).upload_body(), FROM, now())
}

fn body(answer: &Answer) -> String {
    assert_eq!(answer.status, 200, "{}", answer.reason);
    answer.body.iter().map(|part| &**part).collect()
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
    assert_eq!(authority.tick(now()).unwrap(), now() + secs(4));
    assert_eq!(authority.valid_after(), None, "others may come");
    authority.tick(now() + secs(4)).unwrap();
    authority
}

const MICRODESC: &str = "/tor/status-vote/current/consensus-microdesc";

#[test]
fn a_consensus_of_either_flavour_verifies_and_lists_the_relays_that_published() {
    let authority = voted(&[1, 2]);
    let text = body(&authority.get(MICRODESC, now()));
    let mut certs = Certs::default();
    let certificate = body(&authority.get("/tor/keys/authority", now()));
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
        text.contains("\nparams AuthDirMaxServersPerAddr=0 cc_alg=2 circwindow=500\n"),
        "{text}"
    );
    assert!(text.contains("\nbandwidth-weights Wbd="), "{text}");

    let ns = body(&authority.get("/tor/status-vote/current/consensus", now()));
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
    let authority = voted(&[1, 2]);
    let text = body(&authority.get(MICRODESC, now()));
    let named: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("m "))
        .collect();
    assert_eq!(named.len(), 2);
    let path = format!("/tor/micro/d/{}", named.join("-"));
    let served = body(&authority.get(&path, now()));
    let parts: Vec<&str> = served.split_inclusive("\nid ed25519 ").collect();
    assert_eq!(parts.len(), 3, "two microdescriptors: {served}");
    for name in named {
        let one = body(&authority.get(&format!("/tor/micro/d/{name}"), now()));
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
    let authority = voted(&[1, 2]);
    let ours = signed(1, now());
    let id = hex::encode_upper(relay(1).rsa_id().as_bytes());
    let other = hex::encode_upper(relay(2).rsa_id().as_bytes());
    let by_id = authority.get(&format!("/tor/server/fp/{id}"), now());
    assert_eq!(body(&by_id), ours.router);
    let both = authority.get(&format!("/tor/server/fp/{id}+{other}"), now());
    assert_eq!(both.body.len(), 2);
    assert_eq!(authority.get("/tor/server/all", now()).body.len(), 2);
    assert_eq!(
        body(&authority.get("/tor/server/authority", now())),
        ours.router
    );
    assert_eq!(
        body(&authority.get(&format!("/tor/extra/fp/{id}"), now())),
        ours.extra_info
    );
    let ns = body(&authority.get("/tor/status-vote/current/consensus", now()));
    let digest = ns
        .lines()
        .find_map(|line| line.strip_prefix("r relay1 "))
        .unwrap();
    let digest = Base64Unpadded::decode_vec(digest.split(' ').nth(1).unwrap()).unwrap();
    let path = format!("/tor/server/d/{}", hex::encode_upper(digest));
    assert_eq!(body(&authority.get(&path, now())), ours.router);
    for path in [
        "/tor/server/fp/00",
        "/tor/server/d/",
        "/tor/extra/x",
        "/tor/nothing",
        "/",
    ] {
        assert_eq!(authority.get(path, now()).status, 404, "{path}");
    }
}

#[test]
fn a_consensus_is_sent_to_clients_that_trust_us_only() {
    let authority = voted(&[1]);
    let ours: String = hex::encode_upper(KEYS.id().as_bytes())
        .chars()
        .take(6)
        .collect();
    let status = |signers: &str| {
        authority
            .get(&format!("{MICRODESC}/{signers}"), now())
            .status
    };
    assert_eq!(status(&ours), 200);
    assert_eq!(status(&ours.to_ascii_lowercase()), 200);
    assert_eq!(
        status(&format!("{ours}+FFFFFF")),
        404,
        "one of two is no majority"
    );
    assert_eq!(status("FFFFFF"), 404);
    assert_eq!(status(""), 404);
    assert_eq!(
        authority
            .get("/tor/status-vote/current/consensus-x", now())
            .status,
        404
    );
}

#[test]
fn certificates_are_found_by_either_key() {
    let authority = authority();
    let fp = hex::encode_upper(KEYS.id().as_bytes());
    let sk = hex::encode_upper(KEYS.signing.to_public_key().to_rsa_identity().as_bytes());
    let none = "0".repeat(40);
    for (path, status) in [
        ("all".to_owned(), 200),
        (format!("fp/{none}+{fp}"), 200),
        (format!("sk/{sk}"), 200),
        (format!("fp-sk/{fp}-{sk}"), 200),
        (format!("fp-sk/{fp}-{none}"), 404),
        (format!("fp/{none}"), 404),
        (format!("what/{fp}"), 400),
    ] {
        let answer = authority.get(&format!("/tor/keys/{path}"), now());
        assert_eq!(answer.status, status, "{path}");
    }
}

#[test]
fn a_descriptor_is_taken_once_and_an_older_one_never() {
    let mut authority = authority();
    assert_eq!(
        upload(&mut authority, 1),
        Answer::short(200, "Descriptor accepted")
    );
    assert!(upload(&mut authority, 1).not_new);
    // Its extra-info document is not that of the descriptor that is kept, which is the lesser fault, as in C tor.
    let older = signed(1, now() - secs(60)).upload_body();
    assert!(authority.post(&older, FROM, now()).not_new);
    let newer = OwnDescriptor {
        contact: Some("we".into()),
        ..described(1)
    };
    let newer = newer
        .sign(&weft_dir::descriptor::Moment {
            published: now() + secs(60),
            ..moment()
        })
        .unwrap();
    let answer = authority.post(&newer.upload_body(), FROM, now());
    assert_eq!(answer.reason, "Descriptor accepted");
    assert_eq!(authority.relays(), 1);
}

#[test]
fn forged_old_future_foreign_and_huge_uploads_are_refused_with_a_reason() {
    let mut authority = authority();
    let good = signed(1, now());
    let refused = |authority: &mut PrivateAuthority, text: &str| {
        let answer = authority.post(text.as_bytes(), FROM, now());
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
    assert_eq!(authority.post(&[0xff, 0xfe], FROM, now()).status, 400);
    assert_eq!(authority.relays(), 0);
    assert!(authority.post(&good.upload_body(), FROM, now()).status == 200);
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
    assert_eq!(authority.tick(now()).unwrap(), now() + secs(4));
    assert_eq!(authority.valid_after(), None, "nobody is there");
    upload(&mut authority, 1);
    assert_eq!(authority.tick(now()).unwrap(), now() + secs(4));
    authority.tick(now() + secs(4)).unwrap();
    assert_eq!(authority.valid_after(), Some(now() + secs(4)));
    upload(&mut authority, 2);
    assert_eq!(authority.tick(now() + secs(5)).unwrap(), now() + secs(8));
    assert_eq!(authority.valid_after(), Some(now() + secs(4)));
    authority.tick(now() + secs(8)).unwrap();
    assert_eq!(authority.valid_after(), Some(now() + secs(8)));
    // Intervals begin at midnight.
    assert_eq!(authority.tick(now() + secs(9)).unwrap(), now() + secs(20));
    authority.tick(now() + secs(20)).unwrap();
    assert_eq!(authority.valid_after(), Some(now() + secs(20)));
    assert_eq!(authority.tick(now() + secs(21)).unwrap(), now() + secs(40));
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
    assert_eq!(authority.post(&asleep, FROM, now()).status, 200);
    authority.tick(now() + secs(10)).unwrap();
    let text = body(&authority.get(MICRODESC, now() + secs(10)));
    assert!(text.contains("\nr relay1 ") && !text.contains("\nr relay2 "));
    assert_eq!(authority.relays(), 2);
}

#[test]
fn granted_flags_go_to_the_relays_that_torrc_names() {
    let one = relay(1).rsa_id();
    let named = Granted {
        all: false,
        relays: vec![[7; 20].into(), one],
        strict: true,
    };
    let nobody = Granted {
        strict: true,
        ..Granted::default()
    };
    let everybody = Granted {
        all: true,
        ..Granted::default()
    };
    let mut authority = PrivateAuthority::new(
        AuthorityConfig {
            guards: named,
            exits: nobody,
            hidden_service_dirs: everybody,
            bandwidths: BTreeMap::from([(one, 4321)]),
            ..config()
        },
        keys(),
        None,
    );
    upload(&mut authority, 1);
    upload(&mut authority, 2);
    authority.tick(now() + secs(4)).unwrap();
    let text = body(&authority.get(MICRODESC, now()));
    let (_, _, consensus) = MdConsensus::parse(&text).unwrap();
    let consensus = consensus.dangerously_assume_timely().set_n_authorities(1);
    let entries: Vec<&str> = text.split("\nr ").skip(1).collect();
    assert_eq!(entries.len(), 2);
    for entry in entries {
        assert_eq!(
            entry.contains(" Guard "),
            entry.starts_with("relay1 "),
            "{entry}"
        );
        assert_eq!(
            entry.contains("Bandwidth=4321\n"),
            entry.starts_with("relay1 ")
        );
        assert!(
            !entry.contains(" Exit ") && entry.contains(" HSDir "),
            "{entry}"
        );
    }
    assert_eq!(consensus.signing_cert_ids().count(), 1);
}

#[test]
fn directories_of_onion_services_state_it_and_have_run_long_enough() {
    let moment = |uptime| weft_dir::descriptor::Moment {
        uptime: secs(uptime),
        ..moment()
    };
    // Two hours must have passed when the consensus is made, four seconds from now.
    let mut authority = PrivateAuthority::new(
        AuthorityConfig {
            flags: FlagThresholds {
                hs_dir_uptime: secs(7200),
                ..config().flags
            },
            ..config()
        },
        keys(),
        None,
    );
    let unwilling = OwnDescriptor {
        hidden_service_dir: false,
        ..described(3)
    };
    let no_directory = OwnDescriptor {
        tunnelled_dir_server: false,
        ..described(4)
    };
    for (relay, uptime) in [
        (described(1), 7196),
        (described(2), 7195),
        (unwilling, 90_000),
        (no_directory, 90_000),
    ] {
        let signed = relay.sign(&moment(uptime)).unwrap();
        let answer = authority.post(&signed.upload_body(), FROM, now());
        assert_eq!(answer.status, 200, "{}", answer.reason);
    }
    authority.tick(now() + secs(4)).unwrap();
    let text = body(&authority.get(MICRODESC, now()));
    let entries: Vec<&str> = text.split("\nr ").skip(1).collect();
    assert_eq!(entries.len(), 4);
    for entry in entries {
        let has = entry.contains(" HSDir ");
        assert_eq!(has, entry.starts_with("relay1 "), "{entry}");
    }
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
        let answer = authority.borrow_mut().post(&bytes, FROM, now());
        prop_assert!([200, 400].contains(&answer.status));
        prop_assert!(!answer.reason.contains(['\n', '\r']));
    });
}

/// One request over HTTP.
async fn ask(server: &AuthorityServer, request: &[u8]) -> Vec<u8> {
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

#[tokio::test]
async fn descriptors_come_and_documents_go_over_http() {
    let clock = Arc::new(ManualClock::new(now()));
    let server = AuthorityServer::new(authority(), clock.clone());
    let upload = signed(1, now()).upload_body();
    let post = |path: &str| {
        let head = format!(
            "POST {path} HTTP/1.0\r\nContent-Length: {}\r\n\r\n",
            upload.len()
        );
        [head.as_bytes(), &upload].concat()
    };
    assert_eq!(
        status_line(&ask(&server, &post("/tor/")).await),
        "HTTP/1.0 200 Descriptor accepted"
    );
    let again = ask(&server, &post("/tor/")).await;
    assert!(String::from_utf8_lossy(&again).contains("\r\nX-Descriptor-Not-New: Yes\r\n"));
    assert_eq!(
        status_line(&ask(&server, &post("/tor/post/vote")).await),
        "HTTP/1.0 404 Not found"
    );
    let voting = server.clone();
    let voting = tokio::spawn(async move { voting.vote(Arc::new(|_, _| {}), None).await });
    clock.advance(secs(4));
    tokio::task::yield_now().await;
    let plain = ask(
        &server,
        format!("GET {MICRODESC} HTTP/1.0\r\n\r\n").as_bytes(),
    )
    .await;
    let (head, text) = std::str::from_utf8(&plain)
        .unwrap()
        .split_once("\r\n\r\n")
        .unwrap();
    assert!(
        head.starts_with("HTTP/1.0 200 OK\r\n") && head.contains("X-Your-Address-Is: 127.0.0.1"),
        "{head}"
    );
    assert!(text.starts_with("network-status-version 3 microdesc\n"));
    let request = format!("GET {MICRODESC}.z HTTP/1.0\r\nAccept-Encoding: deflate, gzip\r\n\r\n");
    let packed = ask(&server, request.as_bytes()).await;
    let head = weft_dir::http::parse_head(&packed).unwrap().unwrap();
    let unpacked =
        weft_dir::http::decode(packed[head.length..].to_vec(), head.compression, 1 << 20).unwrap();
    assert_eq!(unpacked, text.as_bytes());
    let date = weft_dir::http::http_date(now() + secs(5)).unwrap();
    let request = format!("GET {MICRODESC} HTTP/1.0\r\nIf-Modified-Since: {date}\r\n\r\n");
    assert_eq!(
        status_line(&ask(&server, request.as_bytes()).await),
        "HTTP/1.0 304 Not modified"
    );
    voting.abort();
}

#[tokio::test]
async fn requests_that_make_no_sense_are_refused() {
    let server = AuthorityServer::new(authority(), Arc::new(ManualClock::new(now())));
    let long = [b"GET /".as_slice(), &vec![b'x'; MAX_HEAD]].concat();
    // A good descriptor, of which another reader would take the first three bytes.
    let upload = signed(1, now()).upload_body();
    let length = upload.len();
    let two_lengths =
        format!("POST /tor/ HTTP/1.0\r\nContent-Length: 3\r\nContent-Length: {length}\r\n\r\n");
    let two_lengths = [two_lengths.as_bytes(), &upload].concat();
    for request in [
        b"".as_slice(),
        b"nonsense",
        b"GET /tor/\r\n",
        b"HEAD / HTTP/1.0\r\n\r\n",
        b"POST /tor/ HTTP/1.0\r\nContent-Length: x\r\n\r\n",
        &two_lengths,
        b"POST /tor/ HTTP/1.0\r\nContent-Length: 99\r\n\r\ncut off",
        b"POST /tor/ HTTP/1.0\r\nContent-Length: 99999999999\r\n\r\n",
        &long,
    ] {
        let answer = status_line(&ask(&server, request).await);
        assert!(answer.starts_with("HTTP/1.0 400 "), "{answer}");
    }
}

#[tokio::test]
async fn an_authority_shows_its_page_to_people() {
    let page = "<p>A network of our own.</p>";
    let with = |front_page| {
        let config = AuthorityConfig {
            front_page,
            ..config()
        };
        let authority = PrivateAuthority::new(config, keys(), None);
        AuthorityServer::new(authority, Arc::new(ManualClock::new(now())))
    };
    let server = with(Some(page.into()));
    for path in ["/", "/tor/"] {
        let request = format!("GET {path} HTTP/1.0\r\nAccept-Encoding: deflate\r\n\r\n");
        let answer = ask(&server, request.as_bytes()).await;
        assert_eq!(status_line(&answer), "HTTP/1.0 200 OK");
        let answer = String::from_utf8(answer).unwrap();
        assert!(
            answer.contains("\r\nContent-Type: text/html\r\n"),
            "{answer}"
        );
        assert!(answer.contains("\r\nExpires: Sat, 21 Nov 2026 01:20:00 GMT\r\n"));
        assert!(answer.ends_with(page), "{answer}");
    }
    let answer = ask(&with(None), b"GET / HTTP/1.0\r\n\r\n").await;
    assert_eq!(status_line(&answer), "HTTP/1.0 404 Not found");
}

/// What the MetricsPort has of a DirPort.
#[test]
fn connections_to_the_dirport_are_counted_while_they_are_open() {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let welcome = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let open = welcome.clone();
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    let surroundings = server::Surroundings {
        allowed: Arc::new(move |_| open.load(relaxed)),
        log: Arc::new(|_, _| {}),
        tester: None,
        folder: None,
    };
    let handle = server::AuthorityHandle::start(authority(), vec![listener], surroundings).unwrap();
    let wait = |open| {
        for _ in 0..600 {
            if handle.sockets().ipv4().open == open {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("never {open} open: {:?}", handle.sockets().ipv4());
    };
    let _silent = std::net::TcpStream::connect(address).unwrap();
    wait(1);
    let mut asking = std::net::TcpStream::connect(address).unwrap();
    asking
        .write_all(b"GET /tor/nothing HTTP/1.0\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    asking.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.0 404 "), "{answer}");
    drop(asking);
    wait(1);
    // One from an address that may not ask is closed unheard.
    welcome.store(false, relaxed);
    let mut denied = std::net::TcpStream::connect(address).unwrap();
    let _ = denied.write_all(b"GET /tor/nothing HTTP/1.0\r\n\r\n");
    let mut answer = Vec::new();
    let _ = denied.read_to_end(&mut answer);
    assert!(answer.is_empty());
    assert_eq!(handle.sockets().ipv4().opened, 2);
    assert_eq!(handle.sockets().ipv6().opened, 0);
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

#[tokio::test]
async fn silent_connections_keep_no_request_out() {
    let server = AuthorityServer::new(authority(), Arc::new(ManualClock::new(now())));
    let mut silent = Vec::new();
    for _ in 0..AT_ONCE + 1 {
        let (ours, theirs) = tokio::io::duplex(64);
        let server = server.clone();
        let asker = Asker::direct(Ipv4Addr::LOCALHOST.into(), None);
        tokio::spawn(async move { server.serve(theirs, asker).await });
        silent.push(ours);
    }
    // The newest has its place, so they all had one.
    tokio::task::yield_now().await;
    assert_eq!(
        status_line(&ask(&server, b"GET /tor/none HTTP/1.0\r\n\r\n").await),
        "HTTP/1.0 404 Not found"
    );
    // The oldest gave way.
    let mut nothing = Vec::new();
    assert_eq!(silent[0].read_to_end(&mut nothing).await.unwrap(), 0);
}

#[tokio::test]
async fn what_unread_answers_hold_is_counted_and_past_the_bound_requests_are_refused() {
    let mut authority = authority();
    upload(&mut authority, 1);
    let server = AuthorityServer::new(authority, Arc::new(ManualClock::new(now())));
    let ask = async |peer: [u8; 4], count: usize| {
        let mut streams = Vec::new();
        for _ in 0..count {
            let (mut ours, theirs) = tokio::io::duplex(64);
            let server = server.clone();
            let asker = Asker::direct(peer.into(), None);
            let request = "GET /tor/server/all HTTP/1.0\r\nAccept-Encoding: deflate\r\n\r\n";
            let serving = tokio::spawn(async move { server.serve(theirs, asker).await });
            ours.write_all(request.as_bytes()).await.unwrap();
            let mut status = [0; 12];
            let read = ours.read_exact(&mut status).await;
            let status = read.map(|_| String::from_utf8_lossy(&status).into_owned());
            streams.push((ours, serving, status.unwrap_or_default()));
        }
        streams
    };
    server.budget().set_most(4 << 20);
    let streams = ask([203, 0, 113, 1], 32).await;
    let served = streams
        .iter()
        .filter(|(.., status)| status.ends_with("200"));
    assert!((4..32).contains(&served.count()));
    let refused = streams
        .iter()
        .filter(|(.., status)| status.ends_with("503"));
    assert!(refused.count() > 0);
    let total = server.budget().total();
    assert!((1 << 20..=4 << 20).contains(&total), "{total}");
    // Others are served, and one of those that do not read ends for it.
    let (.., status) = ask([203, 0, 113, 2], 1).await.pop().unwrap();
    assert!(status.ends_with("200"), "{status}");
    drop(streams);
}
