//! The identity of the other end: the certificates of CERTS (tor-spec 4.2).

use super::*;
use crate::handshake::identity::LINK_CERT_LIFETIME;

#[test]
fn another_relay_than_the_wanted_one_is_refused() {
    for (rsa, ed) in [
        (Some(*ALICE_ID.rsa_id()), Some(*BOB_ID.ed_id())),
        (Some(*BOB_ID.rsa_id()), Some(*ALICE_ID.ed_id())),
        (Some(*ALICE_ID.rsa_id()), None),
        (None, Some(*ALICE_ID.ed_id())),
    ] {
        let mut alice = initiator_to(Some(&ALICE_ID), rsa, ed);
        let (_, flight) = greeted(&mut alice);
        let error = alice.feed_err(&flight);
        assert_eq!(
            error,
            HandshakeError::WrongIdentity {
                wanted_rsa: rsa,
                wanted_ed: ed,
                found_rsa: *BOB_ID.rsa_id(),
                found_ed: *BOB_ID.ed_id(),
            }
        );
        assert_eq!(error.class(), ErrorClass::WrongIdentity);
        // And it has learned nothing about us.
        assert!(alice.out().is_empty());
    }
}

#[test]
fn every_certificate_is_needed() {
    for kind in [
        CertKind::RsaIdentity,
        CertKind::IdentityToSigning,
        CertKind::SigningToTls,
        CertKind::RsaToIdentity,
    ] {
        let cell = certs_cell(&without(&BOB_ID.responder_certs(), kind));
        assert_eq!(from_bob(&cell), CertError::Missing(kind).into());
    }
    for kind in [
        CertKind::RsaIdentity,
        CertKind::IdentityToSigning,
        CertKind::SigningToLinkAuth,
        CertKind::RsaToIdentity,
    ] {
        let cell = certs_cell(&without(&ALICE_ID.initiator_certs(), kind));
        assert_eq!(from_alice(&cell), CertError::Missing(kind).into());
    }
    // Each side's leaf is none for the other.
    let cell = certs_cell(&BOB_ID.initiator_certs());
    assert_eq!(
        from_bob(&cell),
        CertError::Missing(CertKind::SigningToTls).into()
    );
}

#[test]
fn certificates_expire() {
    // Alice issued hers two days and more ago; the clocks agree.
    let at = |late: Duration| {
        let mut bob = responder();
        bob.now += late;
        bob.feed(&versions(&[5])).unwrap();
        bob.feed(&certs_cell(&ALICE_ID.initiator_certs()))
    };
    at(LINK_CERT_LIFETIME).unwrap();
    let expired = |error: &HandshakeError, expected| match error {
        HandshakeError::BadCertificate(CertError::Expired(kind, validity)) => {
            *kind == expected && validity.from.is_none() && Some(*validity) == error.outside()
        }
        _ => false,
    };
    let error = at(LINK_CERT_LIFETIME + HOUR).unwrap_err();
    assert!(expired(&error, CertKind::SigningToLinkAuth), "{error:?}");
    let error = at(DAY * 31).unwrap_err();
    assert!(expired(&error, CertKind::IdentityToSigning), "{error:?}");
    let until = error.outside().unwrap().until;
    assert!((now()..now() + DAY * 31).contains(&until), "{until:?}");
    assert_eq!(
        at(DAY * 31).unwrap_err().class(),
        ErrorClass::BadCertificate
    );

    // With fresh leaves the old ones are found too.
    let certs = BOB_ID.responder_certs();
    let tls_certificate = Sha256::digest(&BOB.tls_certificate).into();
    let check = |certs: &Certs, now| {
        let purpose = Purpose::Responder {
            tls_certificate: &tls_certificate,
        };
        certs::check(certs, purpose, now).map(|_| ())
    };
    check(&certs, now()).unwrap();
    let forever = now() + DAY * 4000;
    let fresh = with(
        &with(
            &certs,
            CertKind::IdentityToSigning,
            &ed_cert(4, &BOB.keys.identity, Some(&BOB.keys.signing), forever),
        ),
        CertKind::SigningToTls,
        &ed_cert(5, &BOB.keys.signing, None, forever),
    );
    check(&fresh, now() + DAY * 179).unwrap();
    let error = check(&fresh, now() + DAY * 181).unwrap_err();
    assert!(
        matches!(error, CertError::Expired(CertKind::RsaToIdentity, _)),
        "{error:?}"
    );
    let error = check(&fresh, now() + DAY * 400).unwrap_err();
    assert!(
        matches!(error, CertError::Expired(CertKind::RsaIdentity, validity) if validity.from < Some(now())),
        "{error:?}"
    );
    // A clock without a battery begins in 1970.
    for early in [now() - DAY * 40, SystemTime::UNIX_EPOCH] {
        let error = check(&fresh, early).unwrap_err();
        assert!(
            matches!(error, CertError::NotYetValid(CertKind::RsaIdentity, validity) if validity.from > Some(early)),
            "{error:?}"
        );
    }
}

/// A certificate of any type: for `subject`, or for Bob's TLS certificate.
fn ed_cert(
    cert_type: u8,
    signer: &ed25519::Keypair,
    subject: Option<&ed25519::Keypair>,
    expires: SystemTime,
) -> Vec<u8> {
    let subject = match subject {
        Some(key) => CertifiedKey::Ed25519(key.verifying_key().into()),
        None => CertifiedKey::X509Sha256Digest(Sha256::digest(&BOB.tls_certificate).into()),
    };
    Ed25519Cert::builder()
        .cert_type(cert_type.into())
        .expiration(expires)
        .signing_key(signer.verifying_key().into())
        .cert_key(subject)
        .encode_and_sign(signer)
        .unwrap()
        .into()
}

#[test]
fn certificates_must_belong_together() {
    use CertKind::*;
    let certs = BOB_ID.responder_certs();
    let alices = ALICE_ID.responder_certs();
    let tomorrow = now() + DAY;
    let refused = |kind, body: &[u8], error| {
        let cell = certs_cell(&with(&certs, kind, body));
        assert_eq!(from_bob(&cell), HandshakeError::from(error), "{kind}");
    };
    // Another relay's, certificate by certificate.
    let of_alice = |kind: CertKind| alices.get(kind.cert_type()).unwrap();
    refused(
        RsaIdentity,
        of_alice(RsaIdentity),
        CertError::BadSignature(RsaToIdentity),
    );
    refused(
        IdentityToSigning,
        of_alice(IdentityToSigning),
        CertError::BadSignature(SigningToTls),
    );
    refused(
        SigningToTls,
        of_alice(SigningToTls),
        CertError::WrongSubject {
            kind: SigningToTls,
            what: "the certificate of this TLS session",
        },
    );
    refused(
        RsaToIdentity,
        of_alice(RsaToIdentity),
        CertError::BadSignature(RsaToIdentity),
    );
    // Bob's TLS certificate, vouched for by Alice.
    refused(
        SigningToTls,
        &ed_cert(5, &ALICE.keys.signing, None, tomorrow),
        CertError::BadSignature(SigningToTls),
    );
    // A key where a digest should be, a digest where a key should be.
    refused(
        SigningToTls,
        &ed_cert(5, &BOB.keys.signing, Some(&BOB.keys.signing), tomorrow),
        CertError::WrongSubject {
            kind: SigningToTls,
            what: "the certificate of this TLS session",
        },
    );
    refused(
        IdentityToSigning,
        &ed_cert(4, &BOB.keys.identity, None, tomorrow),
        CertError::WrongSubject {
            kind: IdentityToSigning,
            what: "an ed25519 key",
        },
    );
    // A good certificate of another type.
    refused(
        SigningToTls,
        &ed_cert(6, &BOB.keys.signing, None, tomorrow),
        CertError::Malformed {
            kind: SigningToTls,
            why: "it claims to be of type 6".to_owned(),
        },
    );
    // Bob's RSA key speaks for Alice's ed25519 identity, not for Bob's.
    let cross = tor_cert::rsa::EncodedRsaCrosscert::encode_and_sign(
        &BOB.keys.rsa,
        &ALICE.keys.identity.verifying_key().into(),
        tomorrow,
    )
    .unwrap();
    refused(
        RsaToIdentity,
        &cross,
        CertError::WrongSubject {
            kind: RsaToIdentity,
            what: "the ed25519 identity key",
        },
    );
    // Alice's signing key, certified by a key that only claims to be Bob's identity.
    let mut forged = ed_cert(4, &ALICE.keys.identity, Some(&BOB.keys.signing), tomorrow);
    let at = forged.len() - 64 - 32;
    forged[at..at + 32].copy_from_slice(BOB.keys.identity.verifying_key().as_bytes());
    refused(
        IdentityToSigning,
        &forged,
        CertError::BadSignature(IdentityToSigning),
    );
    // Without the extension the certificate names no identity.
    let anonymous = Ed25519Cert::builder()
        .cert_type(CertType::IDENTITY_V_SIGNING)
        .expiration(tomorrow)
        .cert_key(CertifiedKey::Ed25519(
            BOB.keys.signing.verifying_key().into(),
        ))
        .encode_and_sign(&BOB.keys.identity)
        .unwrap();
    refused(
        IdentityToSigning,
        &anonymous,
        CertError::Malformed {
            kind: IdentityToSigning,
            why: "it does not include the key that signed it".to_owned(),
        },
    );
}

#[test]
fn the_old_key_type_of_link_certificates_is_understood() {
    // C tor before 0.4.5 has "ed25519 key" where a certificate's digest is (cert-spec A.4).
    let mut cert = Vec::new();
    cert.extend_from_slice(&[1, 5]);
    let hours = (now() + DAY)
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_secs()
        / 3600;
    cert.extend_from_slice(&(hours as u32).to_be_bytes());
    cert.push(1);
    cert.extend_from_slice(&Sha256::digest(&BOB.tls_certificate));
    cert.push(0);
    let signature = BOB.keys.signing.sign(&cert).to_bytes();
    cert.extend_from_slice(&signature);
    let certs = with(&BOB_ID.responder_certs(), CertKind::SigningToTls, &cert);
    let mut alice = relay();
    alice.feed(&versions(&[5])).unwrap();
    alice.feed(&certs_cell(&certs)).unwrap();
}

#[test]
fn no_bit_of_a_responders_certificates_can_be_changed() {
    let good = certs_cell(&BOB_ID.responder_certs());
    for at in 0..good.len() {
        let mut cell = good.clone();
        cell[at] ^= 1;
        let mut alice = relay();
        alice.feed(&versions(&[5])).unwrap();
        let result = alice.feed(&cell);
        let accepted = matches!(alice.handshake.stage, Stage::Proof(_));
        assert!(!accepted, "byte {at}: {result:?}");
    }
}

#[test]
fn keys_that_do_not_fit_together_make_no_identity() {
    let keys = |rsa, identity: &'static Relay, cert: &'static Relay, signing: &'static Relay| {
        let keys = IdentityKeys {
            rsa,
            ed_identity: identity.keys.identity.verifying_key().into(),
            identity_signing_cert: &cert.keys.identity_signing_cert,
            signing: &signing.keys.signing,
        };
        LinkIdentity::issue(
            keys,
            [0; 32],
            LinkCertLifetimes::default(),
            now(),
            &mut rng(5),
        )
    };
    let (alice, bob): (&'static Relay, &'static Relay) = (&ALICE, &BOB);
    keys(&alice.keys.rsa, alice, alice, alice).unwrap();
    for (identity, cert, signing) in [(alice, alice, bob), (alice, bob, bob), (bob, alice, alice)] {
        let error = keys(&alice.keys.rsa, identity, cert, signing).unwrap_err();
        assert!(
            matches!(error, LinkIdentityError::Inconsistent(_)),
            "{error}"
        );
        assert!(error.to_string().contains("KeyDirectory"), "{error}");
    }
    let expired = alice.issue(now() + DAY * 40).unwrap_err();
    assert!(expired.to_string().contains("has expired"), "{expired}");
}

#[test]
fn names_of_certificates_are_random_and_as_long_as_c_tors() {
    use super::super::identity::{CERTIFICATE_NAME, SNI_NAME, random_hostname};

    for lengths in [CERTIFICATE_NAME, SNI_NAME] {
        let mut rng = rng(1);
        let mut names: Vec<String> = (0..50)
            .map(|_| random_hostname(lengths.clone(), &mut rng))
            .collect();
        for name in &names {
            let label = name
                .strip_prefix("www.")
                .and_then(|rest| rest.strip_suffix(".com"));
            assert!(
                label.is_some_and(|label| lengths.contains(&label.len())),
                "{name}"
            );
        }
        names.sort();
        names.dedup();
        assert!(names.len() > 45);
    }
}
