//! Our own router descriptor and extra-info document: built, signed, compared.
//!
//! Formats: dir-spec 2.1.1 and 2.1.2; cross-certificates: dir-spec (`onion-key-crosscert`,
//! `ntor-onion-key-crosscert`) and cert-spec. Nothing here is claimed that the caller did not
//! provide: protocols, policies, directory roles come from [`OwnDescriptor`].
//!
//! About `platform`: authorities refuse a platform that begins with `Tor ` and names an old or
//! malformed version, and take any other software for "nonstandard Tor" (C tor
//! `tor_version_parse_platform`). Our capabilities stand in `proto` and are never guessed from the
//! version, so [`OwnDescriptor::default_platform`] is `Weft`.

mod write;

use std::net::{SocketAddrV4, SocketAddrV6};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use digest::Digest as _;
use memchr::memmem;
use tor_cert::Ed25519Cert;
use tor_llcrypto::d::Sha1;
use tor_llcrypto::pk::ed25519::{Ed25519Identity, Ed25519PublicKey, ExpandedKeypair};
use tor_llcrypto::pk::rsa::RsaIdentity;
use tor_llcrypto::pk::{curve25519, rsa};
use tor_protover::Protocols;

/// Largest router descriptor that authorities take, in bytes (C tor `MAX_DESCRIPTOR_UPLOAD_SIZE`).
pub const MAX_ROUTER_DESCRIPTOR: usize = 20_000;
/// Largest extra-info document that authorities take, in bytes (`MAX_EXTRAINFO_UPLOAD_SIZE`).
pub const MAX_EXTRA_INFO: usize = 50_000;

/// The part of a descriptor or extra-info document that its digest is of: all up to the end of its line
/// `router-signature` (dir-spec 1.3; C tor takes the first, `router_get_hash_impl`). `None`: it has no such line.
pub fn signed_part(document: &[u8]) -> Option<&[u8]> {
    const MARKER: &[u8] = b"\nrouter-signature\n";
    let at = memmem::find(document, MARKER)?;
    document.get(..at + MARKER.len())
}

/// SHA-1 of the [`signed_part`], by which a document is named; of one without a signature, of all.
pub fn signed_digest(document: &str) -> [u8; 20] {
    let document = document.as_bytes();
    Sha1::digest(signed_part(document).unwrap_or(document)).into()
}

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
    /// The keys of the families that the relay is in (proposal 321).
    pub families: Vec<ExpandedKeypair>,
}

impl std::fmt::Debug for DescriptorKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DescriptorKeys")
            .field("ed_identity", &self.ed_identity)
            .finish_non_exhaustive()
    }
}

impl DescriptorKeys {
    /// The identities of the families.
    fn family_ids(&self) -> Vec<Ed25519Identity> {
        let identity = |key: &ExpandedKeypair| Ed25519Identity::from(*key.public());
        self.families.iter().map(identity).collect()
    }
}

/// The contents of our descriptor, except what changes by the minute ([`Moment`]).
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
    /// True if we serve onion-service descriptors.
    pub hidden_service_dir: bool,
    /// True if we answer directory requests over BEGIN_DIR.
    pub tunnelled_dir_server: bool,
    /// True if we are hibernating (AccountingMax).
    pub hibernating: bool,
    /// True if statistics are published in the extra-info document (ExtraInfoStatistics).
    pub extra_info_statistics: bool,
    /// Distribution method that the bridge authority should use (BridgeDistribution); `None` if it
    /// is no bridge.
    pub bridge_distribution: Option<String>,
    /// The pluggable transports that a bridge offers, each as the extra-info document has it behind `transport`.
    pub transports: Vec<String>,
    /// True if overload is published (OverloadStatistics).
    pub overload_statistics: bool,
}

/// The contents of a descriptor that depend on the moment of its making.
#[derive(Clone, Debug)]
pub struct Moment {
    /// Publication time.
    pub published: SystemTime,
    /// Time since our start.
    pub uptime: Duration,
    /// Observed bandwidth, in bytes per second.
    pub observed: u64,
    /// Start of the hour in which we were last overloaded.
    pub overload_general: Option<SystemTime>,
    /// Lifetime of the ntor onion key (consensus: onion-key-rotation-days).
    pub onion_key_lifetime: Duration,
    /// True if the TAP key is included (consensus: publish-dummy-tap-key).
    pub with_tap: bool,
    /// True if the family line is included (consensus: publish-family-list).
    pub with_family: bool,
    /// Bandwidth history lines of the extra-info document.
    pub history: Vec<String>,
    /// Its other statistics: whole lines in each. The last are left out where there is no room.
    pub statistics: Vec<String>,
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
    /// Observed bandwidth in it, in bytes per second.
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
        /// Keyword of the line.
        field: &'static str,
        /// The value.
        value: String,
        /// The reason.
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
        /// Name of the document.
        document: &'static str,
        /// Its length in bytes.
        length: usize,
        /// Largest length that authorities accept, in bytes.
        limit: usize,
    },
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

    /// The change that makes `newer` worth publishing in place of `self`; `None` if there is none.
    pub fn changed(&self, newer: &OwnDescriptor) -> Option<&'static str> {
        let keys_differ = !Arc::ptr_eq(&self.keys, &newer.keys)
            && (self.keys.signing_cert != newer.keys.signing_cert
                || self.rsa_id() != newer.rsa_id()
                || curve25519::PublicKey::from(&self.keys.ntor)
                    != curve25519::PublicKey::from(&newer.keys.ntor)
                || self.keys.tap.to_public_key().to_der()
                    != newer.keys.tap.to_public_key().to_der()
                || self.keys.family_ids() != newer.keys.family_ids());
        if keys_differ {
            return Some("keys have changed");
        }
        if (self.ipv4, self.ipv6) != (newer.ipv4, newer.ipv6) {
            return Some("IP address or ORPort has changed");
        }
        let policy = |d: &OwnDescriptor| (d.exit_policy.clone(), d.ipv6_policy.clone());
        let details = |d: &OwnDescriptor| {
            (
                d.nickname.clone(),
                d.platform.clone(),
                d.contact.clone(),
                d.family.clone(),
                d.hibernating,
                (d.bridge_distribution.clone(), d.transports.clone()),
            )
        };
        let roles = |d: &OwnDescriptor| {
            (
                d.protocols.clone(),
                d.hidden_service_dir,
                d.tunnelled_dir_server,
                (d.extra_info_statistics, d.overload_statistics),
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
            && details(self) == details(newer)
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

    /// Observed bandwidth as it is published.
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
        let word = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
        if let Some(text) = self.bridge_distribution.as_ref().filter(|text| !word(text)) {
            return field("bridge-distribution-request", text, "is not a word");
        }
        // A program printed these.
        let words = |text: &str| text.bytes().all(|b| b == b' ' || b.is_ascii_graphic());
        if let Some(text) = self.transports.iter().find(|text| !words(text)) {
            return field("transport", text, "is not ASCII text");
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
}

#[cfg(test)]
mod tests;
