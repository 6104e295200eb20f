use super::*;
use crate::request::{Parsed, parse};
use crate::shown;
use tor_netdoc::doc::netstatus::ConsensusFlavor;
use weft_dir::certs::Certs;
use weft_dir::consdiff::ConsensusDigest;
use weft_dir::consensus::{REASONABLY_LIVE, verify};
use weft_dir::descriptor::SignedDescriptor;
use weft_dir::documents::{Body, NewConsensus, Status};
use weft_dir::http::{compress, decode, parse_head};
use weft_dir::microdesc;

use crate::testing::{
    TestAuthority, TestConsensus, microdesc as text_of, moment, now, relay, secs,
};

const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 7));

/// A directory with everything, and its authority.
fn directory() -> (CachedDocuments, TestAuthority) {
    let authority = TestAuthority::new(1);
    let mut certs = Certs::default();
    certs.add(&authority.cert, &[authority.id()], now());
    let text = TestConsensus::default().signed_by(&[&authority]);
    let verified = verify(&text, &[authority.id()], &certs, now(), REASONABLY_LIVE).unwrap();
    let documents = CachedDocuments::default();
    let new = new_consensus(ConsensusFlavor::Microdesc, &text, verified.signers);
    documents.set_consensus(&new);
    for compression in [Compression::Deflate, Compression::Zstd, Compression::Lzma] {
        let body = compress(text.as_bytes(), compression).unwrap();
        documents.set_form(&new, compression, Body::Memory(body.into()));
    }
    documents.set_certs(&certs);
    documents.with_microdescs(|store| {
        for number in 0..3 {
            let text = text_of(&[number; 20].into());
            let digest = microdesc::split(&text).next().unwrap().digest();
            store.add(digest, &text, now());
        }
    });
    let descriptor = relay(1);
    documents.set_own(
        descriptor.rsa_id(),
        &descriptor.sign(&moment()).unwrap(),
        false,
    );
    (documents, authority)
}

/// A consensus with the times of [`TestConsensus`]'s default.
fn new_consensus(flavour: ConsensusFlavor, text: &str, signers: Vec<RsaIdentity>) -> NewConsensus {
    let valid_after = now() - secs(60);
    NewConsensus {
        status: Status {
            flavour,
            valid_after,
            fresh_until: valid_after + secs(3600),
            valid_until: valid_after + secs(3 * 3600),
            signers,
        },
        digest: ConsensusDigest::of(text),
        text: text.into(),
    }
}

/// Status line, headers and decompressed body of the answer to a request at `when`.
fn ask_at(
    documents: &CachedDocuments,
    path: &str,
    headers: &str,
    when: SystemTime,
) -> (String, String, String) {
    let request = match parse(format!("GET {path} HTTP/1.0\r\n{headers}\r\n").as_bytes()) {
        Parsed::Get(request) => request,
        other => panic!("{other:?}"),
    };
    let mut answer = Answer::new(documents, &request, when, PEER);
    let head = parse_head(answer.head.as_bytes()).unwrap().unwrap();
    assert_eq!(head.length, answer.head.len());
    assert!(head.date.is_some());
    let (status, headers) = answer.head.split_once("\r\n").unwrap();
    let mut body = Vec::new();
    // By as little as can be at once.
    while let Some(more) = answer.body.next(1) {
        body.extend(more);
    }
    if head.status == 200 {
        assert!(
            head.content_length
                .is_none_or(|length| length == body.len())
        );
        assert_eq!(head.your_address, Some(PEER));
    } else {
        assert!(body.is_empty());
    }
    let body = decode(body, head.compression, 1 << 20).unwrap();
    let body = String::from_utf8(body).unwrap();
    (status.to_string(), headers.to_string(), body)
}

fn ask(documents: &CachedDocuments, path: &str) -> (String, String) {
    let (status, _, body) = ask_at(documents, path, "", now());
    (status, body)
}

/// The status line that `path` is answered with.
fn status(documents: &CachedDocuments, path: &str) -> String {
    let (status, _) = ask(documents, path);
    status.strip_prefix("HTTP/1.0 ").unwrap().to_string()
}

const CONSENSUS: &str = "/tor/status-vote/current/consensus-microdesc";

#[test]
fn the_consensus_is_served_if_enough_of_the_wanted_authorities_signed_it() {
    let (documents, authority) = directory();
    let (status_line, body) = ask(&documents, CONSENSUS);
    assert_eq!(status_line, "HTTP/1.0 200 OK");
    assert!(body.starts_with("network-status-version 3 microdesc\n"));
    let id = hex::encode_upper(authority.id().as_bytes());
    let prefix = &id[..6];
    for signers in [id.clone(), prefix.to_lowercase(), format!("{prefix}+{id}")] {
        assert_eq!(
            status(&documents, &format!("{CONSENSUS}/{signers}")),
            "200 OK"
        );
    }
    for signers in ["000000".to_string(), format!("{prefix}+000000"), "/".into()] {
        assert_eq!(
            status(&documents, &format!("{CONSENSUS}/{signers}.z")),
            "404 Consensus not signed by sufficient number of requested authorities"
        );
    }
    assert_eq!(
        status(&documents, &format!("{CONSENSUS}/diff/AB/{id}")),
        "404 Couldn't parse request"
    );
    let digest = "AB".repeat(32);
    assert_eq!(
        status(&documents, &format!("{CONSENSUS}/diff/{digest}/{id}")),
        "404 No such diff available"
    );
    assert_eq!(
        status(&documents, "/tor/status-vote/current/consensus"),
        "404 Not found"
    );
}

#[test]
fn the_consensus_is_compressed_as_asked_and_sent_with_its_times() {
    let (documents, _) = directory();
    for (path, accept, coding) in [
        (CONSENSUS.to_string(), "", "identity"),
        (format!("{CONSENSUS}.z"), "", "deflate"),
        (CONSENSUS.to_string(), "x-zstd, deflate, gzip", "x-zstd"),
        (format!("{CONSENSUS}.z"), "x-zstd, x-tor-lzma", "x-tor-lzma"),
        // It is not kept so; C tor answers with zlib, which was not asked for.
        (CONSENSUS.to_string(), "gzip", "identity"),
        (CONSENSUS.to_string(), "br", "identity"),
    ] {
        let headers = match accept {
            "" => String::new(),
            accept => format!("Accept-Encoding: {accept}\r\n"),
        };
        let (_, headers, body) = ask_at(&documents, &path, &headers, now());
        assert!(
            headers.contains(&format!("Content-Encoding: {coding}\r\n")),
            "{headers}"
        );
        assert!(body.starts_with("network-status-version 3 microdesc\n"));
        // Fresh until 59 minutes from now.
        assert!(
            headers.contains("Expires: Sat, 21 Nov 2026 01:59:00 GMT"),
            "{headers}"
        );
    }
    let since = "If-Modified-Since: Sat, 21 Nov 2026 00:59:01 GMT\r\n";
    let (status, ..) = ask_at(&documents, CONSENSUS, since, now());
    assert_eq!(status, "HTTP/1.0 304 Not modified");
    let since = "If-Modified-Since: Sat, 21 Nov 2026 00:59:00 GMT\r\n";
    let (status, ..) = ask_at(&documents, CONSENSUS, since, now());
    assert_eq!(status, "HTTP/1.0 200 OK");
    let late = now() + secs(3 * 3600 + 86_400);
    let (status, ..) = ask_at(&documents, CONSENSUS, "", late);
    assert_eq!(status, "HTTP/1.0 404 Consensus is too old");
    let stale = now() + secs(2 * 3600);
    let (_, headers, _) = ask_at(&documents, CONSENSUS, "", stale);
    assert!(headers.contains("Pragma: no-cache"), "{headers}");
    let early = now() - secs(2 * 86_400);
    let (status, ..) = ask_at(&documents, CONSENSUS, "", early);
    assert_eq!(status, "HTTP/1.0 404 Consensus is too new");
}

#[test]
fn diffs_are_served_to_those_who_have_what_they_begin_at() {
    let (documents, authority) = directory();
    let (_, text) = ask(&documents, CONSENSUS);
    let new = new_consensus(ConsensusFlavor::Microdesc, &text, vec![authority.id()]);
    let from = ConsensusDigest([0xab; 32]);
    let forms = [Compression::Identity, Compression::Gzip, Compression::Lzma].map(|compression| {
        let body = compress(b"the diff", compression).unwrap();
        (compression, Body::Memory(body.into()))
    });
    documents.set_diff(&new, from, forms.into());
    let header = |digests: &str| format!("X-Or-Diff-From-Consensus: {digests}\r\n");
    let unknown = "CD".repeat(32);
    let by_header = header(&format!("{unknown} {}", from.hex()));
    let by_path = format!("{CONSENSUS}/diff/{}", from.hex().to_lowercase());
    for (path, headers, accept, coding) in [
        (CONSENSUS, &by_header, "", "identity"),
        (CONSENSUS, &by_header, "deflate", "identity"),
        (CONSENSUS, &by_header, "gzip, x-zstd", "gzip"),
        (&by_path, &String::new(), "x-tor-lzma, x-zstd", "x-tor-lzma"),
    ] {
        let headers = match accept {
            "" => headers.clone(),
            accept => format!("{headers}Accept-Encoding: {accept}\r\n"),
        };
        let (status, headers, body) = ask_at(&documents, path, &headers, now());
        assert_eq!(
            (&*status, &*body),
            ("HTTP/1.0 200 OK", "the diff"),
            "{path}"
        );
        assert!(
            headers.contains(&format!("Content-Encoding: {coding}\r\n")),
            "{headers}"
        );
        assert!(
            headers.contains("Vary: X-Or-Diff-From-Consensus\r\n"),
            "{headers}"
        );
        assert!(
            headers.contains("Expires: Sat, 21 Nov 2026 01:59:00 GMT"),
            "{headers}"
        );
    }
    // A diff leads to a consensus that the client's authorities must have signed, too.
    let answer = status(&documents, &format!("{by_path}/000000"));
    assert_eq!(
        answer,
        "404 Consensus not signed by sufficient number of requested authorities"
    );
    let id = hex::encode_upper(authority.id().as_bytes());
    assert_eq!(status(&documents, &format!("{by_path}/{id}")), "200 OK");
    // Who has none that a diff begins at gets all of it, unless only a diff will do.
    let (_, _, body) = ask_at(&documents, CONSENSUS, &header(&unknown), now());
    assert_eq!(body, text);
    assert_eq!(
        status(&documents, &format!("{CONSENSUS}/diff/{unknown}/{id}")),
        "404 No such diff available"
    );
    // Who has the newest gets nothing.
    let newest = ConsensusDigest::of(&text).hex();
    let (not_modified, ..) = ask_at(
        &documents,
        CONSENSUS,
        &header(&format!("{} {newest}", from.hex())),
        now(),
    );
    assert_eq!(not_modified, "HTTP/1.0 304 Not modified");
    assert_eq!(
        status(&documents, &format!("{CONSENSUS}/diff/{newest}")),
        "304 Not modified"
    );
    // The diff goes with the consensus that it leads to.
    let next = TestConsensus {
        params: "a=1",
        ..TestConsensus::default()
    };
    let next = next.signed_by(&[&authority]);
    documents.set_consensus(&new_consensus(
        ConsensusFlavor::Microdesc,
        &next,
        Vec::new(),
    ));
    assert_eq!(status(&documents, &by_path), "404 No such diff available");
    documents.set_diff(&new, from, Forms::new());
    assert_eq!(documents.diffs(ConsensusFlavor::Microdesc), []);
}

#[test]
fn a_diff_whose_file_is_gone_is_the_whole_consensus() {
    let (documents, authority) = directory();
    let (_, text) = ask(&documents, CONSENSUS);
    let new = new_consensus(ConsensusFlavor::Microdesc, &text, vec![authority.id()]);
    let from = ConsensusDigest([0xab; 32]);
    let gone = Body::in_file("/nonexistent/1000".into(), 0, 10);
    documents.set_diff(&new, from, Forms::from([(Compression::Identity, gone)]));
    let header = format!("X-Or-Diff-From-Consensus: {}\r\n", from.hex());
    let (_, _, body) = ask_at(&documents, CONSENSUS, &header, now());
    assert_eq!(body, text);
    let answer = status(&documents, &format!("{CONSENSUS}/diff/{}", from.hex()));
    assert_eq!(answer, "404 Not found");
}

#[test]
fn each_flavour_is_served_by_its_name_and_ns_by_any_other() {
    let (documents, _) = directory();
    let ns = "network-status-version 3\n";
    let path = "/tor/status-vote/current/consensus";
    assert_eq!(status(&documents, path), "404 Not found");
    documents.set_consensus(&new_consensus(ConsensusFlavor::Plain, ns, Vec::new()));
    for other in ["", "-ns", "-unknown"] {
        assert_eq!(ask(&documents, &format!("{path}{other}")).1, ns);
    }
    assert_ne!(ask(&documents, CONSENSUS).1, ns);
}

#[test]
fn microdescriptors_are_served_by_digest_each_once() {
    let (documents, _) = directory();
    let texts = [0, 1, 2].map(|number| text_of(&[number; 20].into()));
    let digests = texts
        .clone()
        .map(|text| microdesc::split(&text).next().unwrap().digest());
    let path = microdesc::path(&[digests[0], [9; 32], digests[2], digests[0]]);
    let (status_line, body) = ask(&documents, &path);
    assert_eq!(status_line, "HTTP/1.0 200 OK");
    let mut served: Vec<&str> = microdesc::split(&body).map(|piece| piece.text).collect();
    served.sort_unstable();
    assert_eq!(served, [&*texts[0], &*texts[2]]);
    for path in [
        "/tor/micro/d/",
        "/tor/micro/d/AAAA",
        "/tor/micro/d/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "/tor/micro/d/!!!!-----",
    ] {
        assert_eq!(status(&documents, path), "404 Not found", "{path}");
    }
}

#[test]
fn a_request_names_so_many_documents_and_no_more() {
    let (documents, authority) = directory();
    let (fp, other) = (
        hex::encode_upper(authority.id().as_bytes()),
        "00".repeat(20),
    );
    let text = text_of(&[0; 20].into());
    let digest = microdesc::path(&[microdesc::split(&text).next().unwrap().digest()]);
    let digest = digest
        .strip_prefix("/tor/micro/d/")
        .unwrap()
        .trim_end_matches(".z");
    for (folder, joint, other, known) in [
        ("keys/fp", "+", other.as_str(), fp.as_str()),
        ("micro/d", "-", "A", digest),
    ] {
        for (before, expected) in [(511, "200 OK"), (512, "404 Not found")] {
            let named = [vec![other; before], vec![known]].concat().join(joint);
            let path = format!("/tor/{folder}/{named}");
            assert_eq!(
                status(&documents, &path),
                expected,
                "{before} before {known}"
            );
        }
    }
}

#[test]
fn certificates_are_served_by_their_keys() {
    let (documents, authority) = directory();
    let fp = hex::encode_upper(authority.id().as_bytes());
    let sk = hex::encode(
        authority
            .signing
            .to_public_key()
            .to_rsa_identity()
            .as_bytes(),
    );
    for which in [
        "all".to_string(),
        format!("fp/{fp}+{fp}"),
        format!("sk/{sk}"),
        format!("fp-sk/{fp}-{sk}+{sk}-{fp}.z"),
    ] {
        let (status_line, body) = ask(&documents, &format!("/tor/keys/{which}"));
        assert_eq!(status_line, "HTTP/1.0 200 OK", "{which}");
        assert_eq!(body, authority.cert, "{which}");
    }
    for (which, answer) in [
        ("authority".to_string(), "404 Not found"),
        (format!("fp/{sk}"), "404 Not found"),
        (format!("fp-sk/{fp}-{fp}"), "404 Not found"),
        ("fp/xyz".into(), "404 Not found"),
        ("x/y".into(), "400 Bad request"),
    ] {
        assert_eq!(status(&documents, &format!("/tor/keys/{which}")), answer);
    }
    let since = "If-Modified-Since: Sat, 21 Nov 2026 00:59:00 GMT\r\n";
    let (status, ..) = ask_at(&documents, "/tor/keys/all", since, now());
    assert_eq!(status, "HTTP/1.0 304 Not modified");
}

#[test]
fn a_bridge_serves_its_descriptor_and_no_extra_info_documents() {
    let (documents, _) = directory();
    let bridge = relay(2);
    documents.set_own(bridge.rsa_id(), &bridge.sign(&moment()).unwrap(), true);
    let (_, body) = ask(&documents, "/tor/server/authority.z");
    assert!(body.starts_with("router weft1 "), "{body}");
    for which in ["authority", "all"] {
        let path = format!("/tor/extra/{which}");
        assert_eq!(status(&documents, &path), "404 Not found");
    }
}

#[test]
fn our_own_descriptor_is_served_and_nobody_elses() {
    let (documents, _) = directory();
    let descriptor = relay(1);
    let signed = descriptor.sign(&moment()).unwrap();
    let fp = hex::encode_upper(descriptor.rsa_id().as_bytes());
    for which in ["authority".to_string(), "all".into(), format!("fp/{fp}")] {
        let (_, body) = ask(&documents, &format!("/tor/server/{which}.z"));
        assert!(body.starts_with("router weft1 "), "{body}");
        let (_, body) = ask(&documents, &format!("/tor/extra/{which}"));
        assert!(body.starts_with("extra-info weft1 "), "{body}");
    }
    // A descriptor names its extra-info document by digest.
    let line = signed
        .router
        .lines()
        .find(|l| l.starts_with("extra-info-digest "));
    let digest = line.unwrap().split(' ').nth(1).unwrap().to_string();
    let (_, body) = ask(&documents, &format!("/tor/extra/d/{digest}"));
    assert!(body.starts_with("extra-info weft1 "), "{body}");
    let other = "A".repeat(40);
    for (path, answer) in [
        (format!("server/fp/{other}"), "404 Servers unavailable"),
        (format!("server/d/{digest}"), "404 Servers unavailable"),
        ("server/x/y".into(), "404 Not found"),
        ("nonsense".into(), "404 Not found"),
        ("".into(), "404 Not found"),
        ("robots.txt".into(), "200 OK"),
    ] {
        assert_eq!(
            status(&documents, &format!("/tor/{path}")),
            answer,
            "{path}"
        );
    }
}

#[test]
fn descriptors_of_others_are_served_from_the_cache_files() {
    use weft_dir::descriptors::{DocumentKind, split};

    let (documents, _) = directory();
    let folder = tempfile::tempdir().unwrap();
    let others: Vec<_> = (2..5)
        .map(|seed| {
            let other = relay(seed);
            (other.rsa_id(), other.sign(&moment()).unwrap())
        })
        .collect();
    let mut listed = std::collections::BTreeMap::new();
    let mut digests = Vec::new();
    for (id, signed) in &others {
        for (kind, text) in [
            (DocumentKind::Descriptor, &signed.router),
            (DocumentKind::ExtraInfo, &signed.extra_info),
        ] {
            let pieces: Vec<_> = split(kind, text.as_bytes()).collect();
            documents
                .with_store(kind, |store| store.add(folder.path(), &pieces))
                .unwrap();
            if kind == DocumentKind::Descriptor {
                digests.push(hex::encode(pieces[0].digest));
                // The last one is not in the consensus any more.
                if digests.len() < 3 {
                    listed.insert(*id, pieces[0].digest);
                }
            }
        }
    }
    documents.set_current(listed);
    let ids: Vec<String> = (others
        .iter()
        .map(|(id, _)| hex::encode_upper(id.as_bytes())))
    .collect();
    let own = hex::encode(relay(1).rsa_id().as_bytes());
    let starts =
        |body: &str, word: &str| body.lines().filter(|line| line.starts_with(word)).count();
    for (which, count) in [
        ("all".to_string(), 3),
        ("authority".into(), 1),
        (format!("fp/{}+{own}+{}+{}", ids[0], ids[0], ids[2]), 2),
    ] {
        for coding in ["identity", "deflate", "gzip", "x-zstd", "x-tor-lzma"] {
            let accept = format!("Accept-Encoding: {coding}\r\n");
            let (_, _, body) = ask_at(&documents, &format!("/tor/server/{which}"), &accept, now());
            assert_eq!(starts(&body, "router "), count, "{which}");
            let (_, _, body) = ask_at(&documents, &format!("/tor/extra/{which}"), &accept, now());
            assert_eq!(starts(&body, "extra-info "), count, "{which}");
        }
    }
    let (_, body) = ask(&documents, &format!("/tor/server/fp/{}", ids[0]));
    assert_eq!(body, others[0].1.router);
    are_shown(&documents, &others);
    // By digest old ones are served, too.
    let (_, headers, body) = ask_at(
        &documents,
        &format!("/tor/server/d/{}.z", digests[2]),
        "",
        now(),
    );
    assert_eq!(body, others[2].1.router);
    assert!(
        headers.contains("Content-Encoding: deflate") && headers.contains("Expires: Mon, 23 Nov"),
        "{headers}"
    );
    let answer = status(&documents, &format!("/tor/server/fp/{}", ids[2]));
    assert_eq!(answer, "404 Servers unavailable");
    // One that is older than a day is not served by its relay's identity.
    let path = format!("/tor/server/fp/{}", ids[0]);
    let late = now() + secs(86_401);
    assert_eq!(
        ask_at(&documents, &path, "", late).0,
        "HTTP/1.0 404 Servers unavailable"
    );
    // A document whose file is gone is left out.
    let journal = folder.path().join("cached-descriptors.new");
    std::fs::File::options()
        .write(true)
        .open(journal)
        .unwrap()
        .set_len(10)
        .unwrap();
    let (_, body) = ask(&documents, "/tor/server/all");
    assert_eq!(starts(&body, "router "), 1);
}

/// Controllers are shown them: the last of `others` is not in the consensus any more.
fn are_shown(documents: &CachedDocuments, others: &[(RsaIdentity, SignedDescriptor)]) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let own = relay(1);
    let signed = own.sign(&moment()).unwrap();
    let of = |id: &RsaIdentity| shown::descriptor_of(documents, id).map(text);
    assert_eq!(of(&others[0].0).as_ref(), Some(&others[0].1.router));
    assert_eq!(of(&others[2].0), None);
    assert_eq!(of(&own.rsa_id()), Some(signed.router.clone()));
    let mut listed: Vec<_> = others[..2].iter().collect();
    listed.sort_by_key(|(id, _)| *id);
    let routers = listed.iter().map(|(_, signed)| signed.router.as_str());
    let all: String = std::iter::once(&*signed.router).chain(routers).collect();
    assert_eq!(text(shown::descriptors(documents)), all);
    // Each with the histories that its extra-info document has, before the signature.
    let with_histories = text(shown::descriptors_with_histories(documents));
    assert_eq!(with_histories.matches("\nwrite-history ").count(), 3);
    let lines = |text: &str| -> Vec<String> {
        let kept = text.lines().filter(|line| !line.contains("-history "));
        kept.map(str::to_owned).collect()
    };
    assert_eq!(lines(&with_histories), lines(&all));
    for signature in with_histories.split("\nrouter-signature\n").skip(1) {
        let next = signature.split("\nrouter ").next().unwrap();
        assert!(!next.contains("history"), "{next}");
    }
    // By digest, whether it is listed or not.
    for (_, signed) in others {
        let digest =
            weft_dir::descriptors::split(DocumentKind::ExtraInfo, signed.extra_info.as_bytes());
        let digest = digest.map(|piece| piece.digest).next().unwrap();
        let shown = shown::extra_info(documents, &digest).map(text);
        assert_eq!(shown.as_ref(), Some(&signed.extra_info));
    }
    assert_eq!(shown::extra_info(documents, &[7; 20]), None);
    let servers = |which: &str| shown::servers(documents, which, now()).map(text);
    assert_eq!(servers("authority"), Some(signed.router));
    assert_eq!(servers("frob"), None);
    assert_eq!(servers(&format!("fp/{}", "AB".repeat(20))), None);
}

#[test]
fn an_empty_directory_has_nothing() {
    let documents = CachedDocuments::default();
    assert!(
        shown::descriptors(&documents).is_empty()
            && shown::descriptors_with_histories(&documents).is_empty()
    );
    for path in [CONSENSUS, "/tor/keys/all", "/tor/micro/d/AAAA"] {
        assert_eq!(status(&documents, path), "404 Not found");
    }
    assert_eq!(
        status(&documents, "/tor/server/authority"),
        "404 Servers unavailable"
    );
}

#[test]
fn a_local_client_gets_no_address() {
    let (documents, _) = directory();
    let request = Request {
        path: CONSENSUS.into(),
        accepts: Accepts::default(),
        since: None,
        has: Vec::new(),
    };
    for (peer, sent) in [
        ("127.0.0.1", false),
        ("192.168.1.2", false),
        ("::ffff:10.0.0.1", false),
        ("::1", false),
        ("2001:db8::1", true),
        ("203.0.113.7", true),
    ] {
        let answer = Answer::new(&documents, &request, now(), peer.parse().unwrap());
        assert_eq!(answer.head.contains("X-Your-Address-Is"), sent, "{peer}");
        let head = parse_head(answer.head.as_bytes()).unwrap().unwrap();
        assert_eq!(head.compression, Compression::Identity);
    }
}
