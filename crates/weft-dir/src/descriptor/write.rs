//! Both documents, line by line, and their signatures.
//!
//! Formats: dir-spec 2.1.1 and 2.1.2; cross-certificates: dir-spec (`onion-key-crosscert`,
//! `ntor-onion-key-crosscert`) and cert-spec.

use std::fmt::Display;
use std::time::Duration;

use base64ct::{Base64, Base64Unpadded, Encoding};
use digest::Digest;
use tor_cert::{CertType, CertifiedKey, Ed25519Cert, EncodedCert};
use tor_llcrypto::d::{Sha1, Sha256};
use tor_llcrypto::pk::ed25519::{Ed25519Identity, ExpandedKeypair};
use tor_llcrypto::pk::rsa::RsaIdentity;
use tor_llcrypto::pk::{curve25519, keymanip};
use tor_netdoc::encode::NetdocEncoder;
use tor_netdoc::types::Iso8601TimeSp;

use super::{
    DescriptorError, MAX_EXTRA_INFO, MAX_ROUTER_DESCRIPTOR, Moment, OwnDescriptor, signed_digest,
};

/// Prefix of what `router-sig-ed25519` signs (dir-spec 2.1.1).
const ED25519_SIGNATURE_PREFIX: &[u8] = b"Tor router descriptor signature v1";
/// Time for which an overload is published (`overload-general`; C tor: 72 hours).
const OVERLOAD_IS_NEWS: Duration = Duration::from_secs(72 * 3600);

/// Lifetime of a family's certificate.
const FAMILY_CERT_LIFETIME: Duration = Duration::from_secs(30 * 86_400);

/// `sign` failures of the libraries, in our words.
fn signing(error: impl Display) -> DescriptorError {
    DescriptorError::Signing(error.to_string())
}

impl OwnDescriptor {
    /// The extra-info document.
    pub(super) fn extra_info(&self, moment: &Moment) -> Result<String, DescriptorError> {
        let mut statistics = moment.statistics.as_slice();
        loop {
            let made = self.extra_info_with(moment, statistics);
            match (made, statistics.split_last()) {
                (Err(DescriptorError::TooLong { .. }), Some((_, fewer))) => statistics = fewer,
                (made, _) => return made,
            }
        }
    }

    /// The extra-info document with these statistics.
    fn extra_info_with(
        &self,
        moment: &Moment,
        statistics: &[String],
    ) -> Result<String, DescriptorError> {
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
        // Also where no statistics are published: it is how transports are found.
        for transport in &self.transports {
            args(&mut doc, "transport", transport);
        }
        if self.extra_info_statistics {
            for line in &moment.history {
                doc.push_raw_string(&format_args!("{line}\n"));
            }
            for lines in statistics {
                doc.push_raw_string(lines);
            }
        }
        self.signatures(doc, "extra-info document", MAX_EXTRA_INFO)
    }

    /// The router descriptor that goes with `extra_info`.
    pub(super) fn router(
        &self,
        moment: &Moment,
        extra_info: &str,
    ) -> Result<String, DescriptorError> {
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
        for family in &keys.families {
            doc.item("family-cert")
                .object_bytes("FAMILY CERT", self.family_cert(family, moment)?);
        }
        if let Some(contact) = self.contact.as_ref().filter(|contact| !contact.is_empty()) {
            args(&mut doc, "contact", contact);
        }
        if let Some(distribution) = &self.bridge_distribution {
            args(&mut doc, "bridge-distribution-request", distribution);
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
        if let Some(when) = moment.overload_general.filter(|_| self.overload_statistics) {
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

    /// The family's key certifies our identity (proposal 321).
    fn family_cert(
        &self,
        family: &ExpandedKeypair,
        moment: &Moment,
    ) -> Result<Vec<u8>, DescriptorError> {
        let cert = Ed25519Cert::builder()
            .cert_type(CertType::FAMILY_V_IDENTITY)
            .cert_key(CertifiedKey::Ed25519(self.keys.ed_identity))
            .signing_key(Ed25519Identity::from(*family.public()))
            .expiration(moment.published + FAMILY_CERT_LIFETIME)
            .encode_and_sign(family)
            .map_err(signing)?;
        Ok(cert.encoded().to_vec())
    }

    /// Proof that the holder of the ntor key agrees: its ed25519 form certifies our identity.
    /// Also returns the sign bit of that ed25519 key.
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

/// `ABCD EF01 …`, the form of the `fingerprint` line.
fn spaced_fingerprint(id: &RsaIdentity) -> String {
    let groups: Vec<String> = id.as_bytes().chunks(2).map(hex::encode_upper).collect();
    groups.join(" ")
}

/// Both digests of `extra-info-digest`: SHA-1 of the signed part in hex, and SHA-256 of the whole
/// document, signature included, in base64 (dir-spec 2.1.1 explains that accident).
fn extra_info_digests(extra_info: &str) -> String {
    let sha256 = Base64::encode_string(&Sha256::digest(extra_info));
    format!(
        "{} {}",
        hex::encode_upper(signed_digest(extra_info)),
        sha256.trim_end_matches('=')
    )
}
