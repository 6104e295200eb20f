//! The microdesc-flavoured consensus and the authority certificates that it is verified with.
//!
//! A consensus is believed when more than half of the configured authorities signed it (dir-spec
//! 3.10; C tor `networkstatus_check_consensus_signature`). Parsing and signature arithmetic are
//! tor-netdoc's; which certificates count, which times are tolerated, and what a relay keeps of
//! a consensus are decided here.

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use digest::Digest;
use tor_checkable::{ExternallySigned, SelfSigned, TimeBound};
use tor_llcrypto::d::Sha256;
use tor_llcrypto::pk::rsa::RsaIdentity;
use tor_netdoc::doc::authcert::{AuthCert, AuthCertKeyIds};
use tor_netdoc::doc::netstatus::{ConsensusFlavor, MdConsensus, ProtoStatus, consensus_threshold};
use tor_netdoc::types::relay_flags::{RelayFlag, RelayFlags};

use crate::params::Params;

/// How far outside its validity a fetched consensus may be (C tor `REASONABLY_LIVE_TIME`).
pub const REASONABLY_LIVE: Duration = Duration::from_secs(24 * 3600);
/// How long after its end a cached consensus is still read (C tor `OLD_ROUTER_DESC_MAX_AGE`).
pub const CACHE_MAX_AGE: Duration = Duration::from_secs(5 * 24 * 3600);
/// A consensus that begins more than this in the future means that our clock is slow
/// (C tor `EARLY_CONSENSUS_NOTICE_SKEW`).
pub const EARLY_NOTICE: Duration = Duration::from_secs(60);
/// Certificates kept per authority: the one in use, its successor, and some slack.
const MAX_CERTS_PER_AUTHORITY: usize = 4;
/// How far in the future a certificate may have been published before we do not believe it.
const CERT_SKEW: Duration = Duration::from_secs(24 * 3600);

/// What a relay keeps of a verified consensus.
#[derive(Clone, Debug)]
pub struct Consensus {
    /// When it becomes valid.
    pub valid_after: SystemTime,
    /// Until when it is the newest.
    pub fresh_until: SystemTime,
    /// Until when it may be used.
    pub valid_until: SystemTime,
    /// The parameters of the network.
    pub params: Params,
    /// Which subprotocols relays should and must speak.
    pub relay_protocols: ProtoStatus,
    /// SHA-256 of the document, to recognise it again.
    pub digest: [u8; 32],
    /// The relays by RSA identity.
    relays: BTreeMap<RsaIdentity, KnownRelay>,
}

/// A relay that the consensus lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownRelay {
    /// Its ORPorts.
    pub or_ports: Vec<SocketAddr>,
    /// Its flags.
    pub flags: RelayFlags,
}

impl KnownRelay {
    /// Whether the authorities gave it `flag`.
    pub fn has(&self, flag: RelayFlag) -> bool {
        self.flags.contains(flag)
    }
}

impl Consensus {
    /// The relay with this RSA identity, if listed.
    pub fn relay(&self, id: &RsaIdentity) -> Option<&KnownRelay> {
        self.relays.get(id)
    }

    /// All listed relays, by RSA identity.
    pub fn relays(&self) -> impl Iterator<Item = (&RsaIdentity, &KnownRelay)> {
        self.relays.iter()
    }

    /// Whether `now` is within its validity.
    pub fn is_live(&self, now: SystemTime) -> bool {
        self.valid_after <= now && now <= self.valid_until
    }
}

/// Why a consensus is not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConsensusError {
    /// It is not a well-formed microdesc consensus.
    #[error("the consensus is malformed: {0}")]
    Malformed(#[source] Box<tor_netdoc::Error>),
    /// It is of another flavour.
    #[error("the document is a consensus of another flavour than microdesc")]
    Flavour,
    /// It ended too long ago.
    #[error("the consensus ended {} seconds ago; if the authorities are right, our clock is fast: check it", by.as_secs())]
    Expired {
        /// How long ago.
        by: Duration,
    },
    /// It begins too far in the future.
    #[error("the consensus begins in {} seconds; if the authorities are right, our clock is slow: check it", by.as_secs())]
    NotYetValid {
        /// How far.
        by: Duration,
    },
    /// No majority of the configured authorities even claims to have signed it.
    #[error(
        "the consensus is signed by {signed} of our {configured} authorities, and {needed} are needed; check the DirAuthority lines"
    )]
    TooFewSignatures {
        /// Authorities of ours that signed it.
        signed: usize,
        /// Authorities of ours.
        configured: usize,
        /// How many are needed.
        needed: usize,
    },
    /// We lack certificates to check enough of its signatures.
    #[error("{} authority certificates are missing to verify the consensus", .0.len())]
    MissingCerts(Vec<AuthCertKeyIds>),
    /// A signature does not verify.
    #[error("the signatures on the consensus do not verify: {0}")]
    BadSignature(#[source] Box<tor_netdoc::Error>),
}

/// Parses and verifies `text` against `authorities` and their `certs` at `now`.
///
/// `tolerance` is how far outside its validity the consensus may be: [`REASONABLY_LIVE`] for one
/// just fetched, [`CACHE_MAX_AGE`] for one from the cache.
pub fn verify(
    text: &str,
    authorities: &[RsaIdentity],
    certs: &Certs,
    now: SystemTime,
    tolerance: Duration,
) -> Result<Consensus, ConsensusError> {
    // Told apart here because the parser itself only says that an item is missing.
    let first = text.lines().next().unwrap_or_default();
    if first.split(' ').next() == Some("network-status-version")
        && first.split(' ').nth(2) != Some(ConsensusFlavor::Microdesc.name())
    {
        return Err(ConsensusError::Flavour);
    }
    let (_, _, unchecked) =
        MdConsensus::parse(text).map_err(|error| ConsensusError::Malformed(Box::new(error)))?;

    let lifetime = unchecked.dangerously_peek().peek_lifetime().clone();
    match now.duration_since(lifetime.valid_until()) {
        Ok(by) if by > tolerance => return Err(ConsensusError::Expired { by }),
        _ => {}
    }
    match lifetime.valid_after().duration_since(now) {
        Ok(by) if by > REASONABLY_LIVE => return Err(ConsensusError::NotYetValid { by }),
        _ => {}
    }
    // Our own tolerance has been applied; tor-netdoc's bound would be stricter.
    let unvalidated = unchecked
        .dangerously_assume_timely()
        .set_n_authorities(authorities.len());

    let signed: HashSet<RsaIdentity> = unvalidated
        .signing_cert_ids()
        .map(|ids| ids.id_fingerprint)
        .filter(|id| authorities.contains(id))
        .collect();
    let needed = consensus_threshold(authorities.len()).start;
    if signed.len() < needed {
        return Err(ConsensusError::TooFewSignatures {
            signed: signed.len(),
            configured: authorities.len(),
            needed,
        });
    }
    let usable: Vec<AuthCert> = certs
        .usable(now)
        .filter(|cert| authorities.contains(cert.id_fingerprint()))
        .cloned()
        .collect();
    if let Err(missing) = unvalidated.key_is_correct(&usable) {
        let ours = missing
            .into_iter()
            .filter(|ids| authorities.contains(&ids.id_fingerprint))
            .collect();
        return Err(ConsensusError::MissingCerts(ours));
    }
    let consensus = unvalidated
        .check_signature(&usable)
        .map_err(|error| ConsensusError::BadSignature(Box::new(error)))?;

    Ok(Consensus {
        valid_after: lifetime.valid_after(),
        fresh_until: lifetime.fresh_until(),
        valid_until: lifetime.valid_until(),
        params: Params::from_consensus(consensus.params()),
        relay_protocols: consensus.relay_protocol_status().clone(),
        digest: Sha256::digest(text).into(),
        relays: consensus
            .relays()
            .iter()
            .map(|relay| {
                let known = KnownRelay {
                    or_ports: relay.addrs().collect(),
                    flags: *relay.flags(),
                };
                (*relay.rsa_identity(), known)
            })
            .collect(),
    })
}

/// Authority certificates whose signatures have been checked.
#[derive(Clone, Debug, Default)]
pub struct Certs {
    /// Certificates with their text, newest first within an authority.
    certs: Vec<(AuthCert, String)>,
}

/// What became of the certificates in a document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertsAdded {
    /// How many were new and are kept.
    pub added: usize,
    /// What was wrong with the others that were not merely known, old or foreign.
    pub bad: Vec<String>,
}

impl Certs {
    /// Adds the certificates in `text` that belong to `authorities` and have not ended at `now`.
    pub fn add(&mut self, text: &str, authorities: &[RsaIdentity], now: SystemTime) -> CertsAdded {
        let mut outcome = CertsAdded::default();
        let parsed = match AuthCert::parse_multiple(text) {
            Ok(parsed) => parsed,
            Err(error) => {
                outcome.bad.push(error.to_string());
                return outcome;
            }
        };
        for cert in parsed {
            let cert = cert.and_then(|unchecked| {
                let text = unchecked.within(text).unwrap_or_default().to_string();
                let signed = unchecked
                    .check_signature()
                    .map_err(tor_netdoc::Error::from)?;
                Ok((signed, text))
            });
            match cert {
                Ok((timed, text)) => {
                    if let Ok(cert) = timed.extend_start_bound(CERT_SKEW).if_valid_at(&now) {
                        outcome.added += usize::from(self.insert(cert, text, authorities));
                    }
                }
                Err(error) => outcome.bad.push(error.to_string()),
            }
        }
        outcome
    }

    /// Keeps `cert` if it is of one of `authorities` and not known yet; bounded per authority.
    fn insert(&mut self, cert: AuthCert, text: String, authorities: &[RsaIdentity]) -> bool {
        let known = self.certs.iter().any(|(have, _)| {
            have.key_ids() == cert.key_ids() && have.published() >= cert.published()
        });
        if known || !authorities.contains(cert.id_fingerprint()) || text.is_empty() {
            return false;
        }
        let (id, key_ids) = (*cert.id_fingerprint(), cert.key_ids());
        self.certs.retain(|(have, _)| have.key_ids() != key_ids);
        self.certs.push((cert, text));
        self.certs
            .sort_by_key(|(cert, _)| (*cert.id_fingerprint(), std::cmp::Reverse(cert.published())));
        let mut of_this = 0;
        self.certs.retain(|(cert, _)| {
            of_this += usize::from(*cert.id_fingerprint() == id);
            *cert.id_fingerprint() != id || of_this <= MAX_CERTS_PER_AUTHORITY
        });
        true
    }

    /// The certificates that have not ended.
    fn usable(&self, now: SystemTime) -> impl Iterator<Item = &AuthCert> {
        self.certs
            .iter()
            .map(|(cert, _)| cert)
            .filter(move |cert| cert.expires() >= now)
    }

    /// Identities of authorities that we have a certificate of.
    pub fn authorities(&self, now: SystemTime) -> HashSet<RsaIdentity> {
        self.usable(now)
            .map(|cert| *cert.id_fingerprint())
            .collect()
    }

    /// All certificates as one document, as C tor's `cached-certs` has them.
    pub fn text(&self) -> String {
        self.certs.iter().map(|(_, text)| text.as_str()).collect()
    }

    /// How many certificates are held.
    pub fn len(&self) -> usize {
        self.certs.len()
    }

    /// Whether no certificate is held.
    pub fn is_empty(&self) -> bool {
        self.certs.is_empty()
    }
}

/// Path of the consensus on an authority, asking only for one that a majority of `authorities`
/// signed (dir-spec 4.2: conditional on 3-byte fingerprint prefixes, sorted).
pub fn consensus_path(authorities: &[RsaIdentity]) -> String {
    let mut prefixes: Vec<String> = authorities
        .iter()
        .map(|id| {
            id.as_bytes()
                .iter()
                .take(3)
                .map(|byte| format!("{byte:02X}"))
                .collect()
        })
        .collect();
    prefixes.sort();
    format!(
        "/tor/status-vote/current/consensus-microdesc/{}.z",
        prefixes.join("+")
    )
}

/// Path of the certificates with these keys (dir-spec 4.3).
pub fn certs_path(missing: &[AuthCertKeyIds]) -> String {
    let pair = |ids: &AuthCertKeyIds| {
        format!(
            "{}-{}",
            hex::encode_upper(ids.id_fingerprint.as_bytes()),
            hex::encode_upper(ids.sk_fingerprint.as_bytes())
        )
    };
    let mut pairs: Vec<String> = missing.iter().map(pair).collect();
    pairs.sort();
    pairs.dedup();
    format!("/tor/keys/fp-sk/{}.z", pairs.join("+"))
}
