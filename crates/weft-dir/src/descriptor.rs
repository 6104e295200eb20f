//! Our own router descriptor and extra-info document: built, signed, compared.
//!
//! Formats: dir-spec 2.1.1 and 2.1.2; cross-certificates: dir-spec (`onion-key-crosscert`,
//! `ntor-onion-key-crosscert`) and cert-spec. Nothing here is claimed that the caller did not
//! say is true: protocols, policies, directory roles come from [`OwnDescriptor`].
//!
//! About `platform`: authorities refuse a platform that begins with `Tor ` and names an old or
//! malformed version, and take any other software for "nonstandard Tor" (C tor
//! `tor_version_parse_platform`). What we can do is told by `proto`, never guessed from the
//! version, so [`OwnDescriptor::default_platform`] honestly says `Weft`.

use std::fmt::Display;
use std::net::{SocketAddrV4, SocketAddrV6};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64ct::{Base64, Base64Unpadded, Encoding};
use digest::Digest;
use tor_cert::{CertType, CertifiedKey, Ed25519Cert, EncodedCert};
use tor_llcrypto::d::{Sha1, Sha256};
use tor_llcrypto::pk::ed25519::{Ed25519Identity, Ed25519PublicKey, ExpandedKeypair};
use tor_llcrypto::pk::rsa::RsaIdentity;
use tor_llcrypto::pk::{curve25519, keymanip, rsa};
use tor_netdoc::encode::NetdocEncoder;
use tor_netdoc::types::Iso8601TimeSp;
use tor_protover::Protocols;

/// Largest router descriptor that authorities take, in bytes (C tor `MAX_DESCRIPTOR_UPLOAD_SIZE`).
pub const MAX_ROUTER_DESCRIPTOR: usize = 20_000;
/// Largest extra-info document that authorities take, in bytes (`MAX_EXTRAINFO_UPLOAD_SIZE`).
pub const MAX_EXTRA_INFO: usize = 50_000;
/// Prefix of what `router-sig-ed25519` signs (dir-spec 2.1.1).
const ED25519_SIGNATURE_PREFIX: &[u8] = b"Tor router descriptor signature v1";
/// How long a moment of overload is published (`overload-general`; C tor: 72 hours).
const OVERLOAD_IS_NEWS: Duration = Duration::from_secs(72 * 3600);

/// The keys that a descriptor carries or is signed with.
///
/// RSA key pairs have no `Clone`; `KeyPair::from(pair.as_key().clone())` copies one.
pub struct DescriptorKeys {
    /// RSA-1024 identity key: signs both documents.
    pub rsa_identity: rsa::KeyPair,
    /// Ed25519 master identity (its secret may be offline).
    pub ed_identity: Ed25519Identity,
    /// Medium-term ed25519 signing key. C tor keeps it expanded on disk; from a
    /// `Keypair` by `ExpandedKeypair::from(&keypair)`.
    pub signing: ExpandedKeypair,
    /// Encoded certificate (type 4) of `signing` by `ed_identity`, with the identity included.
    pub signing_cert: Vec<u8>,
    /// The ntor onion key in use.
    pub ntor: curve25519::StaticSecret,
    /// The dummy TAP onion key; published if the network asks for it.
    pub tap: rsa::KeyPair,
}

impl std::fmt::Debug for DescriptorKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DescriptorKeys")
            .field("ed_identity", &self.ed_identity)
            .finish_non_exhaustive()
    }
}

/// What we say about ourselves, except what changes by the minute ([`Moment`]).
#[derive(Clone, Debug)]
pub struct OwnDescriptor {
    /// The keys.
    pub keys: Arc<DescriptorKeys>,
    /// Nickname: 1 to 19 ASCII letters and digits.
    pub nickname: String,
    /// IPv4 address and ORPort that others reach us at.
    pub ipv4: SocketAddrV4,
    /// IPv6 address and ORPort, if we have one.
    pub ipv6: Option<SocketAddrV6>,
    /// The `platform` line; see [`OwnDescriptor::default_platform`].
    pub platform: String,
    /// The subprotocols that we really speak.
    pub protocols: Protocols,
    /// BandwidthRate, in bytes per second, after MaxAdvertisedBandwidth.
    pub bandwidth_rate: u64,
    /// BandwidthBurst, in bytes per second, after MaxAdvertisedBandwidth.
    pub bandwidth_burst: u64,
    /// Observed bandwidth is not reported above this, in bytes per second (MaxAdvertisedBandwidth).
    pub max_advertised: Option<u64>,
    /// Histories are not reported above this rate, in bytes per second (RelayBandwidthRate).
    pub relay_bandwidth_rate: Option<u64>,
    /// ContactInfo.
    pub contact: Option<String>,
    /// Members of our family: `$FINGERPRINT`s or nicknames, without ourselves.
    pub family: Vec<String>,
    /// Exit policy, one `accept …` or `reject …` per entry; empty means `reject *:*`.
    pub exit_policy: Vec<String>,
    /// Port summary of the IPv6 exit policy (`accept 80,443`); none means no IPv6 exiting.
    pub ipv6_policy: Option<String>,
    /// Whether we serve onion-service descriptors.
    pub hidden_service_dir: bool,
    /// Whether we answer directory requests over BEGIN_DIR.
    pub tunnelled_dir_server: bool,
    /// Whether we are hibernating (AccountingMax).
    pub hibernating: bool,
    /// Whether to publish statistics in the extra-info document (ExtraInfoStatistics).
    pub extra_info_statistics: bool,
}

/// What a descriptor says about the moment of its making.
#[derive(Clone, Debug)]
pub struct Moment {
    /// Publication time.
    pub published: SystemTime,
    /// How long we have been running.
    pub uptime: Duration,
    /// Observed bandwidth, in bytes per second.
    pub observed: u64,
    /// Start of the hour in which we were last overloaded.
    pub overload_general: Option<SystemTime>,
    /// How long the ntor onion key may be believed (consensus: onion-key-rotation-days).
    pub onion_key_lifetime: Duration,
    /// Whether the TAP key is included (consensus: publish-dummy-tap-key).
    pub with_tap: bool,
    /// Whether the family line is included (consensus: publish-family-list).
    pub with_family: bool,
    /// Bandwidth history lines of the extra-info document.
    pub history: Vec<String>,
}

/// A descriptor and its extra-info document, signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedDescriptor {
    /// The router descriptor.
    pub router: String,
    /// The extra-info document.
    pub extra_info: String,
    /// Publication time of both.
    pub published: SystemTime,
    /// Observed bandwidth that it tells, in bytes per second.
    pub observed: u64,
}

impl SignedDescriptor {
    /// Body of the POST that uploads both documents.
    pub fn upload_body(&self) -> Vec<u8> {
        [self.router.as_bytes(), self.extra_info.as_bytes()].concat()
    }
}

/// Why no descriptor could be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DescriptorError {
    /// A field holds something that a descriptor line cannot.
    #[error("cannot write the descriptor's {field} line: {value:?} {why}; correct it in the torrc")]
    Field {
        /// Which line.
        field: &'static str,
        /// The value.
        value: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The signing certificate is not one for our keys.
    #[error(
        "cannot sign the descriptor: ed25519_signing_cert {0}; remove ed25519_signing_cert and ed25519_signing_secret_key from the key directory to have them made anew"
    )]
    SigningCert(&'static str),
    /// Signing failed.
    #[error("cannot sign the descriptor: {0}")]
    Signing(String),
    /// A document is larger than authorities accept.
    #[error(
        "cannot publish: the {document} has {length} bytes, and authorities take {limit} at most; shorten ContactInfo, MyFamily or ExitPolicy"
    )]
    TooLong {
        /// Which document.
        document: &'static str,
        /// Its length in bytes.
        length: usize,
        /// What is accepted.
        limit: usize,
    },
}

/// `sign` failures of the libraries, in our words.
fn signing(error: impl Display) -> DescriptorError {
    DescriptorError::Signing(error.to_string())
}

impl OwnDescriptor {
    /// The platform line of this software: `Weft VERSION on OS`.
    pub fn default_platform() -> String {
        let os = match std::env::consts::OS {
            "linux" => "Linux",
            "macos" => "Darwin",
            "freebsd" => "FreeBSD",
            other => other,
        };
        format!("Weft {} on {os}", env!("CARGO_PKG_VERSION"))
    }

    /// RSA identity digest of this relay.
    pub fn rsa_id(&self) -> RsaIdentity {
        self.keys.rsa_identity.to_public_key().to_rsa_identity()
    }

    /// What makes `newer` worth publishing in place of `self`, if anything.
    pub fn changed(&self, newer: &OwnDescriptor) -> Option<&'static str> {
        let keys_differ = !Arc::ptr_eq(&self.keys, &newer.keys)
            && (self.keys.signing_cert != newer.keys.signing_cert
                || self.rsa_id() != newer.rsa_id()
                || curve25519::PublicKey::from(&self.keys.ntor)
                    != curve25519::PublicKey::from(&newer.keys.ntor)
                || self.keys.tap.to_public_key().to_der()
                    != newer.keys.tap.to_public_key().to_der());
        if keys_differ {
            return Some("keys have changed");
        }
        if (self.ipv4, self.ipv6) != (newer.ipv4, newer.ipv6) {
            return Some("IP address or ORPort has changed");
        }
        let policy = |d: &OwnDescriptor| (d.exit_policy.clone(), d.ipv6_policy.clone());
        let told = |d: &OwnDescriptor| {
            (
                d.nickname.clone(),
                d.platform.clone(),
                d.contact.clone(),
                d.family.clone(),
                d.hibernating,
            )
        };
        let roles = |d: &OwnDescriptor| {
            (
                d.protocols.clone(),
                d.hidden_service_dir,
                d.tunnelled_dir_server,
                d.extra_info_statistics,
            )
        };
        let rates = |d: &OwnDescriptor| {
            (
                d.bandwidth_rate,
                d.bandwidth_burst,
                d.max_advertised,
                d.relay_bandwidth_rate,
            )
        };
        let same = policy(self) == policy(newer)
            && told(self) == told(newer)
            && roles(self) == roles(newer)
            && rates(self) == rates(newer);
        (!same).then_some("config change")
    }

    /// Builds and signs both documents.
    pub fn sign(&self, moment: &Moment) -> Result<SignedDescriptor, DescriptorError> {
        self.check()?;
        let extra_info = self.extra_info(moment)?;
        let router = self.router(moment, &extra_info)?;
        Ok(SignedDescriptor {
            router,
            extra_info,
            published: moment.published,
            observed: self.observed(moment),
        })
    }

    /// Observed bandwidth as it is told.
    fn observed(&self, moment: &Moment) -> u64 {
        if self.hibernating {
            return 0;
        }
        moment.observed.min(self.max_advertised.unwrap_or(u64::MAX))
    }

    /// Refuses what would make the documents malformed or untrue.
    fn check(&self) -> Result<(), DescriptorError> {
        let field = |field, value: &str, why| {
            Err(DescriptorError::Field {
                field,
                value: value.to_string(),
                why,
            })
        };
        let nickname = &self.nickname;
        if nickname.is_empty()
            || nickname.len() > 19
            || !nickname.bytes().all(|b| b.is_ascii_alphanumeric())
        {
            return field(
                "router",
                nickname,
                "is not a nickname of 1 to 19 letters and digits",
            );
        }
        let one_line =
            |text: &str| !text.chars().any(char::is_control) && !text.starts_with('\u{feff}');
        for (name, text) in [
            ("platform", Some(&self.platform)),
            ("contact", self.contact.as_ref()),
        ] {
            if let Some(text) = text.filter(|text| !one_line(text)) {
                return field(name, text, "contains control characters");
            }
        }
        for member in &self.family {
            if member.is_empty()
                || !member
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "$=~".contains(c))
            {
                return field("family", member, "is not a fingerprint or nickname");
            }
        }
        for rule in self.exit_policy.iter().chain(&self.ipv6_policy) {
            if !(rule.starts_with("accept") || rule.starts_with("reject")) || !one_line(rule) {
                return field("exit policy", rule, "is not an accept or reject rule");
            }
        }
        if self.ipv4.port() == 0 || self.ipv4.ip().is_unspecified() {
            return field(
                "router",
                &self.ipv4.to_string(),
                "is not an address that others can reach",
            );
        }
        self.check_signing_cert()
    }

    /// Checks that the signing certificate is of our signing key, by our identity.
    fn check_signing_cert(&self) -> Result<(), DescriptorError> {
        let cert = Ed25519Cert::decode(&self.keys.signing_cert)
            .map_err(|_| DescriptorError::SigningCert("is malformed"))?
            .should_have_signing_key()
            .map_err(|_| DescriptorError::SigningCert("does not include the identity key"))?;
        let signing = Ed25519Identity::from(self.keys.signing.public_key());
        if cert.peek_subject_key().as_ed25519() != Some(&signing) {
            return Err(DescriptorError::SigningCert(
                "certifies another signing key",
            ));
        }
        if cert.peek_signing_key() != &self.keys.ed_identity {
            return Err(DescriptorError::SigningCert(
                "is signed by another identity",
            ));
        }
        Ok(())
    }

    /// The extra-info document.
    fn extra_info(&self, moment: &Moment) -> Result<String, DescriptorError> {
        let mut doc = NetdocEncoder::new();
        args(
            &mut doc,
            "extra-info",
            format_args!(
                "{} {}",
                self.nickname,
                hex::encode_upper(self.rsa_id().as_bytes())
            ),
        );
        doc.item("identity-ed25519")
            .object_bytes("ED25519 CERT", self.keys.signing_cert.clone());
        args(&mut doc, "published", Iso8601TimeSp::from(moment.published));
        if self.extra_info_statistics {
            for line in &moment.history {
                doc.push_raw_string(&format_args!("{line}\n"));
            }
        }
        self.signatures(doc, "extra-info document", MAX_EXTRA_INFO)
    }

    /// The router descriptor that goes with `extra_info`.
    fn router(&self, moment: &Moment, extra_info: &str) -> Result<String, DescriptorError> {
        let keys = &self.keys;
        let mut doc = NetdocEncoder::new();
        args(
            &mut doc,
            "router",
            format_args!(
                "{} {} {} 0 0",
                self.nickname,
                self.ipv4.ip(),
                self.ipv4.port()
            ),
        );
        doc.item("identity-ed25519")
            .object_bytes("ED25519 CERT", keys.signing_cert.clone());
        args(
            &mut doc,
            "master-key-ed25519",
            Base64Unpadded::encode_string(keys.ed_identity.as_bytes()),
        );
        if let Some(ipv6) = self.ipv6 {
            args(
                &mut doc,
                "or-address",
                format_args!("[{}]:{}", ipv6.ip(), ipv6.port()),
            );
        }
        args(&mut doc, "platform", &self.platform);
        args(&mut doc, "proto", &self.protocols);
        args(&mut doc, "published", Iso8601TimeSp::from(moment.published));
        args(&mut doc, "fingerprint", spaced_fingerprint(&self.rsa_id()));
        args(&mut doc, "uptime", moment.uptime.as_secs());
        // Authorities read these as C ints.
        let int = |rate: u64| rate.min(i32::MAX.unsigned_abs().into());
        args(
            &mut doc,
            "bandwidth",
            format_args!(
                "{} {} {}",
                int(self.bandwidth_rate),
                int(self.bandwidth_burst),
                int(self.observed(moment))
            ),
        );
        args(
            &mut doc,
            "extra-info-digest",
            extra_info_digests(extra_info),
        );
        if moment.with_tap {
            doc.item("onion-key")
                .object_bytes("RSA PUBLIC KEY", keys.tap.to_public_key().to_der());
        }
        doc.item("signing-key")
            .object_bytes("RSA PUBLIC KEY", keys.rsa_identity.to_public_key().to_der());
        if moment.with_tap {
            doc.item("onion-key-crosscert")
                .object_bytes("CROSSCERT", self.tap_crosscert()?);
        }
        let (crosscert, sign_bit) = self.ntor_crosscert(moment)?;
        doc.item("ntor-onion-key-crosscert")
            .arg(&u32::from(sign_bit))
            .object_bytes("ED25519 CERT", crosscert);
        if moment.with_family && !self.family.is_empty() {
            args(&mut doc, "family", self.family.join(" "));
        }
        if self.hibernating {
            args(&mut doc, "hibernating", 1);
        }
        if self.hidden_service_dir {
            doc.item("hidden-service-dir").finish();
        }
        if let Some(contact) = self.contact.as_ref().filter(|contact| !contact.is_empty()) {
            args(&mut doc, "contact", contact);
        }
        let ntor = curve25519::PublicKey::from(&keys.ntor);
        args(
            &mut doc,
            "ntor-onion-key",
            Base64Unpadded::encode_string(ntor.as_bytes()),
        );
        if self.exit_policy.is_empty() {
            doc.push_raw_string(&"reject *:*\n");
        }
        for rule in &self.exit_policy {
            doc.push_raw_string(&format_args!("{rule}\n"));
        }
        if let Some(policy) = self
            .ipv6_policy
            .as_ref()
            .filter(|policy| *policy != "reject 1-65535")
        {
            args(&mut doc, "ipv6-policy", policy);
        }
        if self.tunnelled_dir_server {
            doc.item("tunnelled-dir-server").finish();
        }
        if let Some(when) = moment.overload_general {
            let age = moment.published.duration_since(when).unwrap_or_default();
            if age < OVERLOAD_IS_NEWS {
                args(
                    &mut doc,
                    "overload-general",
                    format_args!("1 {}", Iso8601TimeSp::from(when)),
                );
            }
        }
        self.signatures(doc, "router descriptor", MAX_ROUTER_DESCRIPTOR)
    }

    /// Ends a document with both signatures.
    fn signatures(
        &self,
        mut doc: NetdocEncoder,
        document: &'static str,
        limit: usize,
    ) -> Result<String, DescriptorError> {
        let mut hash = Sha256::new();
        hash.update(ED25519_SIGNATURE_PREFIX);
        hash.update(doc.text_sofar().map_err(signing)?);
        hash.update("router-sig-ed25519 ");
        let signature = self.keys.signing.sign(&hash.finalize());
        args(
            &mut doc,
            "router-sig-ed25519",
            Base64Unpadded::encode_string(&signature.to_bytes()),
        );

        let mut hash = Sha1::new();
        hash.update(doc.text_sofar().map_err(signing)?);
        hash.update("router-signature\n");
        let signature = self
            .keys
            .rsa_identity
            .sign(&hash.finalize())
            .map_err(signing)?;
        doc.item("router-signature")
            .object_bytes("SIGNATURE", signature);

        let text = doc.finish().map_err(signing)?;
        if text.len() > limit {
            return Err(DescriptorError::TooLong {
                document,
                length: text.len(),
                limit,
            });
        }
        Ok(text)
    }

    /// Proof that the holder of the TAP key agrees: it signs both our identities.
    fn tap_crosscert(&self) -> Result<Vec<u8>, DescriptorError> {
        let signed = [self.rsa_id().as_bytes(), self.keys.ed_identity.as_bytes()].concat();
        self.keys.tap.sign(&signed).map_err(signing)
    }

    /// Proof that the holder of the ntor key agrees: its ed25519 form certifies our identity.
    /// Also returns the sign bit that tells which ed25519 key that is.
    fn ntor_crosscert(&self, moment: &Moment) -> Result<(Vec<u8>, u8), DescriptorError> {
        let (as_ed25519, sign_bit) =
            keymanip::convert_curve25519_to_ed25519_private(&self.keys.ntor).ok_or_else(|| {
                DescriptorError::Signing("the ntor onion key has no ed25519 form".into())
            })?;
        let cert = Ed25519Cert::builder()
            .cert_type(CertType::NTOR_CC_IDENTITY)
            .cert_key(CertifiedKey::Ed25519(self.keys.ed_identity))
            .expiration(moment.published + moment.onion_key_lifetime)
            .encode_and_sign(&as_ed25519)
            .map_err(signing)?;
        Ok((cert.encoded().to_vec(), sign_bit))
    }
}

/// Adds an item with ready-made arguments.
fn args(doc: &mut NetdocEncoder, keyword: &'static str, arguments: impl Display) {
    doc.item(keyword).args_raw_string(&arguments);
}

/// `ABCD EF01 …`, as the `fingerprint` line has it.
fn spaced_fingerprint(id: &RsaIdentity) -> String {
    let groups: Vec<String> = id.as_bytes().chunks(2).map(hex::encode_upper).collect();
    groups.join(" ")
}

/// Both digests of `extra-info-digest`: SHA-1 of the signed part in hex, and SHA-256 of the whole
/// document, signature included, in base64 (dir-spec 2.1.1 explains that accident).
fn extra_info_digests(extra_info: &str) -> String {
    let marker = "\nrouter-signature\n";
    let signed = match extra_info.rfind(marker) {
        Some(at) => extra_info.get(..at + marker.len()).unwrap_or(extra_info),
        None => extra_info,
    };
    let sha256 = Base64::encode_string(&Sha256::digest(extra_info));
    format!(
        "{} {}",
        hex::encode_upper(Sha1::digest(signed)),
        sha256.trim_end_matches('=')
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{moment, now, relay, secs};
    use tor_checkable::{SelfSigned, TimeBound};
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
    fn overload_is_told_for_three_days() {
        let told = |hours: u64| {
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
        assert!(told(0) && told(71) && !told(72));
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
}
