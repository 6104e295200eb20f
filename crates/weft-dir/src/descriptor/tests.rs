//! Two parsers and C tor accept our descriptors, and read the right values.

use super::*;
use crate::testing::{moment, now, relay, secs, statistics, with_family};
use digest::Digest;
use tor_checkable::{SelfSigned, TimeBound};
use tor_llcrypto::d::Sha1;
use tor_netdoc::doc::routerdesc::{RouterDesc, RouterDescUnverified};
use tor_netdoc::parse2::{ParseInput, parse_netdoc};

/// Both of tor-netdoc's parsers accept `text` as signed and valid now.
fn accepted(text: &str) {
    parse_netdoc::<RouterDescUnverified>(&ParseInput::new(text, "descriptor"))
        .unwrap()
        .verify()
        .unwrap()
        .if_valid_at(&now())
        .unwrap();
    RouterDesc::parse(text)
        .unwrap()
        .check_signature()
        .unwrap()
        .if_valid_at(&now())
        .unwrap();
}

fn full() -> OwnDescriptor {
    OwnDescriptor {
        ipv6: Some("[2001:db8::1]:9001".parse().unwrap()),
        contact: Some("Tester <tester at example.org>".into()),
        family: vec![format!("${}", "A".repeat(40))],
        exit_policy: vec!["accept 192.0.2.0/24:80-443".into(), "reject *:*".into()],
        ipv6_policy: Some("accept 80,443".into()),
        hidden_service_dir: true,
        tunnelled_dir_server: true,
        ..relay(1)
    }
}

#[test]
fn a_minimal_and_a_full_descriptor_are_well_formed_and_signed() {
    for descriptor in [relay(1), full()] {
        let signed = descriptor.sign(&moment()).unwrap();
        accepted(&signed.router);
    }
}

#[test]
fn a_minimal_descriptor_claims_nothing_more_than_it_must() {
    let text = relay(1).sign(&moment()).unwrap().router;
    for absent in [
        "hidden-service-dir",
        "tunnelled-dir-server",
        "contact",
        "family",
        "or-address",
        "ipv6-policy",
        "hibernating",
        "overload-general",
        "caches-extra-info",
    ] {
        assert!(
            !text
                .lines()
                .any(|line| line.split(' ').next() == Some(absent)),
            "{absent}"
        );
    }
    assert!(text.contains("\nreject *:*\n"));
    assert!(text.contains("\nuptime 77\n"));
    assert!(text.contains("\nbandwidth 1073741824 1073741824 123456\n"));
    assert!(text.contains("\nplatform Weft "));
    assert!(text.starts_with("router weft1 127.0.0.1 9001 0 0\nidentity-ed25519\n"));
}

#[test]
fn a_bridge_s_documents_have_its_distribution_and_transports() {
    let bridge = OwnDescriptor {
        bridge_distribution: Some("email".into()),
        transports: vec!["obfs4 192.0.2.1:443 cert=a,iat-mode=0".into()],
        extra_info_statistics: false,
        ..full()
    };
    let signed = bridge.sign(&moment()).unwrap();
    accepted(&signed.router);
    // C tor's order: between contact and ntor-onion-key.
    let at = signed
        .router
        .find("\nbridge-distribution-request email\nntor-onion-key ");
    assert!(at.is_some(), "{}", signed.router);
    let line = "\ntransport obfs4 192.0.2.1:443 cert=a,iat-mode=0\n";
    assert!(signed.extra_info.contains(line), "{}", signed.extra_info);
    let plain = full();
    assert_eq!(plain.changed(&bridge), Some("config change"));
    for bad in ["obfs4 192.0.2.1:443 a\nrouter-signature", "obfs4 \u{e4}"] {
        let bridge = OwnDescriptor {
            transports: vec![bad.into()],
            ..full()
        };
        let error = bridge.sign(&moment()).unwrap_err().to_string();
        assert!(error.contains("transport"), "{error}");
    }
}

#[test]
fn a_digest_is_of_all_up_to_the_first_line_of_a_signature() {
    let signed = "router x\nrouter-signature\n";
    let twice = format!("{signed}one\nrouter-signature\nanother\n");
    assert_eq!(signed_part(twice.as_bytes()), Some(signed.as_bytes()));
    assert_eq!(signed_digest(&twice), *Sha1::digest(signed));
    let unsigned = "router x\nrouter-signatures\n";
    assert_eq!(signed_part(unsigned.as_bytes()), None);
    assert_eq!(signed_digest(unsigned), *Sha1::digest(unsigned));
}

#[test]
fn the_descriptor_names_its_extra_info_document() {
    let signed = full().sign(&moment()).unwrap();
    let end =
        signed.extra_info.find("\nrouter-signature\n").unwrap() + "\nrouter-signature\n".len();
    let sha1 = hex::encode_upper(Sha1::digest(&signed.extra_info[..end]));
    assert!(
        signed
            .router
            .contains(&format!("extra-info-digest {sha1} "))
    );
    assert!(
        signed
            .extra_info
            .contains("\nwrite-history 2026-11-20 01:00:00 (86400 s) 1024\n")
    );
    let quiet = OwnDescriptor {
        extra_info_statistics: false,
        overload_statistics: true,
        ..full()
    };
    assert!(
        !quiet
            .sign(&moment())
            .unwrap()
            .extra_info
            .contains("history")
    );
}

#[test]
fn without_a_tap_key_there_is_no_crosscert_either() {
    let text = relay(1)
        .sign(&Moment {
            with_tap: false,
            ..moment()
        })
        .unwrap()
        .router;
    assert!(!text.contains("\nonion-key"));
    assert!(text.contains("\nntor-onion-key-crosscert "));
}

#[test]
fn every_key_pair_gives_a_crosscert_that_verifies() {
    // Both sign bits of the ed25519 form occur among these.
    let mut bits = std::collections::BTreeSet::new();
    for seed in 0..8 {
        let text = relay(seed).sign(&moment()).unwrap().router;
        let at = text.find("ntor-onion-key-crosscert ").unwrap();
        bits.insert(text.as_bytes()[at + 25]);
        accepted(&text);
    }
    assert_eq!(bits.len(), 2, "seeds that show both sign bits");
}

#[test]
fn overload_is_published_for_three_days() {
    let published = |hours: u64| {
        let moment = Moment {
            overload_general: Some(now() - secs(hours * 3600)),
            ..moment()
        };
        relay(1)
            .sign(&moment)
            .unwrap()
            .router
            .contains("\noverload-general 1 2026-11-")
    };
    assert!(published(0) && published(71) && !published(72));
    let silent = OwnDescriptor {
        overload_statistics: false,
        ..relay(1)
    };
    let moment = Moment {
        overload_general: Some(now()),
        ..moment()
    };
    let router = silent.sign(&moment).unwrap().router;
    assert!(!router.contains("overload-general"));
}

#[test]
fn a_hibernating_relay_and_an_advertised_limit_lower_the_bandwidth() {
    let observed = |descriptor: OwnDescriptor| descriptor.sign(&moment()).unwrap().observed;
    assert_eq!(
        observed(OwnDescriptor {
            hibernating: true,
            ..relay(1)
        }),
        0
    );
    assert_eq!(
        observed(OwnDescriptor {
            max_advertised: Some(1000),
            ..relay(1)
        }),
        1000
    );
}

#[test]
fn fields_that_would_break_a_line_are_refused_by_name() {
    let error = |change: fn(&mut OwnDescriptor)| {
        let mut descriptor = relay(1);
        change(&mut descriptor);
        descriptor.sign(&moment()).unwrap_err().to_string()
    };
    assert!(error(|d| d.nickname = "two words".into()).contains("router"));
    assert!(error(|d| d.nickname = "a".repeat(20)).contains("router"));
    assert!(error(|d| d.contact = Some("x\nreject *:*".into())).contains("contact"));
    assert!(error(|d| d.platform = "Weft\r".into()).contains("platform"));
    assert!(error(|d| d.family = vec!["$A $B".into()]).contains("family"));
    assert!(error(|d| d.exit_policy = vec!["contact me".into()]).contains("exit policy"));
    assert!(error(|d| d.ipv4.set_port(0)).contains("router"));
    assert!(error(|d| d.contact = Some("x".repeat(20_000))).contains("20000"));
}

#[test]
fn a_certificate_for_other_keys_is_refused() {
    let (ours, other) = (relay(1), relay(2));
    let with = |cert: Vec<u8>| {
        let keys = DescriptorKeys {
            rsa_identity: ours.keys.rsa_identity.as_key().clone().into(),
            ed_identity: ours.keys.ed_identity,
            signing: ExpandedKeypair::from_secret_key_bytes(
                ours.keys.signing.to_secret_key_bytes(),
            )
            .unwrap(),
            signing_cert: cert,
            ntor: ours.keys.ntor.clone(),
            tap: ours.keys.tap.as_key().clone().into(),
            families: Vec::new(),
        };
        OwnDescriptor {
            keys: Arc::new(keys),
            ..ours.clone()
        }
        .sign(&moment())
    };
    assert!(with(ours.keys.signing_cert.clone()).is_ok());
    assert!(matches!(
        with(other.keys.signing_cert.clone()),
        Err(DescriptorError::SigningCert(_))
    ));
    assert!(matches!(
        with(vec![1, 2, 3]),
        Err(DescriptorError::SigningCert(_))
    ));
}

#[test]
fn only_what_others_see_counts_as_a_change() {
    let before = relay(1);
    assert_eq!(before.changed(&before.clone()), None);
    assert_eq!(before.changed(&relay(1)), None, "the same keys read again");
    assert_eq!(before.changed(&relay(2)), Some("keys have changed"));
    let moved = OwnDescriptor {
        ipv4: "127.0.0.1:9002".parse().unwrap(),
        ..relay(1)
    };
    assert_eq!(
        before.changed(&moved),
        Some("IP address or ORPort has changed")
    );
    let contact = OwnDescriptor {
        contact: Some("me".into()),
        ..relay(1)
    };
    assert_eq!(before.changed(&contact), Some("config change"));
}

#[test]
fn statistics_follow_the_histories_and_the_last_give_way_where_there_is_no_room() {
    let published = |statistics: Vec<String>| {
        let moment = Moment {
            statistics,
            ..moment()
        };
        relay(1).sign(&moment).unwrap().extra_info
    };
    let all = statistics(now());
    let text = published(all.clone());
    let whole = format!("(86400 s) 1024\n{}router-sig-ed25519 ", all.concat());
    assert!(text.contains(&whole), "{text}");
    let long = format!("dirreq-v3-ips {}\n", "x".repeat(MAX_EXTRA_INFO));
    let text = published(vec!["a 1\n".into(), "b 2\n".into(), long, "c 3\n".into()]);
    assert!(text.contains("\na 1\nb 2\nrouter-sig-ed25519 "), "{text}");
    let quiet = OwnDescriptor {
        extra_info_statistics: false,
        ..relay(1)
    };
    let moment = Moment {
        statistics: all,
        ..moment()
    };
    let text = quiet.sign(&moment).unwrap().extra_info;
    assert!(!text.contains("stats-end"), "{text}");
}

#[test]
fn a_family_certifies_the_identity_by_its_key() {
    let relay = with_family(
        OwnDescriptor {
            hidden_service_dir: true,
            contact: Some("x".into()),
            ..relay(1)
        },
        9,
    );
    let text = relay.sign(&moment()).unwrap().router;
    accepted(&text);
    let place = "\nhidden-service-dir\nfamily-cert\n-----BEGIN FAMILY CERT-----\n";
    let (_, rest) = text.split_once(place).unwrap();
    let (base64, rest) = rest.split_once("-----END FAMILY CERT-----\n").unwrap();
    assert!(rest.starts_with("contact x\n"), "{rest}");
    use base64ct::{Base64, Encoding as _};
    let bytes = Base64::decode_vec(&base64.replace('\n', "")).unwrap();
    let cert = Ed25519Cert::decode(&bytes).unwrap();
    let cert = cert.should_have_signing_key().unwrap();
    let family = Ed25519Identity::from(*relay.keys.families[0].public());
    assert_eq!(cert.peek_signing_key(), &family);
    let cert = cert.check_signature().unwrap();
    let cert = cert.if_valid_at(&(now() + secs(29 * 86_400))).unwrap();
    let subject = cert.subject_key().as_ed25519();
    assert_eq!(subject, Some(&relay.keys.ed_identity));
    assert_eq!(cert.cert_type(), tor_cert::CertType::FAMILY_V_IDENTITY);
    let expired = Ed25519Cert::decode(&bytes).unwrap();
    let expired = expired.should_have_signing_key().unwrap();
    let expired = expired.check_signature().unwrap();
    assert!(expired.if_valid_at(&(now() + secs(31 * 86_400))).is_err());
    let without = OwnDescriptor {
        keys: crate::testing::relay(1).keys,
        ..relay.clone()
    };
    assert_eq!(without.changed(&relay), Some("keys have changed"));
}

/// Stem, with which services read all documents of the network. The module's name marks the tests that need it, for
/// `cargo xtask test`, which installs it.
mod with_stem {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;

    const PROGRAM: &str = r#"
import io, sys
from stem.descriptor import parse_file
router, extra = sys.stdin.buffer.read().split(b'\0')
[router] = parse_file(io.BytesIO(router), 'server-descriptor 1.0', validate=True)
assert router.nickname == 'weft1', router.nickname
assert router.certificate is not None and router.onion_key is not None
assert router.observed_bandwidth == 123456, router.observed_bandwidth
assert 'family-cert' in router.get_bytes().decode()
[extra] = parse_file(io.BytesIO(extra), 'extra-info 1.0', validate=True)
assert router.extra_info_digest == extra.digest(), (router.extra_info_digest, extra.digest())
assert extra.geoip_db_digest == 'A' * 40 and extra.geoip6_db_digest == 'B' * 40
assert extra.dir_v3_ips == {'us': 8} and extra.dir_v3_requests == {'us': 24}, extra.dir_v3_ips
assert extra.dir_v3_responses, extra.dir_v3_responses
assert extra.entry_ips == {'de': 8}, extra.entry_ips
assert extra.exit_kibibytes_written == {443: 5, 'other': 0}, extra.exit_kibibytes_written
assert extra.exit_kibibytes_read == {443: 69, 'other': 0}, extra.exit_kibibytes_read
assert extra.exit_streams_opened == {443: 4, 'other': 0}, extra.exit_streams_opened
assert extra.conn_bi_direct_read == 1, extra.conn_bi_direct_read
assert len(extra.cell_processed_cells) == 10, extra.cell_processed_cells
assert extra.write_history_values == [1024], extra.write_history_values
assert extra.padding_counts['read-total'] == 10000, extra.padding_counts
print('stem is content')
"#;

    #[test]
    fn stem_reads_both_documents_with_everything_in_them() {
        let Some(python) = std::env::var_os("WEFT_STEM_PYTHON") else {
            weft_testing::not_run!(
                "WEFT_STEM_PYTHON names no Python that has Stem; `cargo xtask test --only stem` makes one"
            );
            return;
        };
        let moment = Moment {
            overload_general: Some(now()),
            statistics: statistics(now()),
            ..moment()
        };
        let signed = with_family(full(), 9).sign(&moment).unwrap();
        let mut process = Command::new(&python)
            .args(["-c", PROGRAM])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let documents = format!("{}\0{}", signed.router, signed.extra_info);
        let mut stdin = process.stdin.take().unwrap();
        stdin.write_all(documents.as_bytes()).unwrap();
        drop(stdin);
        let output = process.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("stem is content"), "{text}");
    }
}
