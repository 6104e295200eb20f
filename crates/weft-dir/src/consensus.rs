//! Consensuses: the microdesc flavour, which relays and clients use, and the flavour `ns`, which caches keep for others.
//!
//! A consensus is accepted when more than half of the configured authorities signed it (dir-spec
//! 3.10; C tor `networkstatus_check_consensus_signature`). Parsing and signature arithmetic are
//! tor-netdoc's; which certificates count, which times are tolerated, and what a relay keeps of
//! a consensus are decided here.

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use digest::Digest;
use tor_checkable::{ExternallySigned, TimeBound};
use tor_llcrypto::d::Sha256;
use tor_llcrypto::pk::rsa::RsaIdentity;
use tor_netdoc::doc::authcert::{AuthCert, AuthCertKeyIds};
use tor_netdoc::doc::netstatus::{
    ConsensusFlavor, Lifetime, MdConsensus, PlainConsensus, ProtoStatus, RelayWeight,
    consensus_threshold,
};
use tor_netdoc::types::relay_flags::{RelayFlag, RelayFlags};

use crate::certs::Certs;
use crate::consdiff::ConsensusDigest;
use crate::microdesc::MdDigest;
use crate::params::Params;

/// Largest distance of the current time from the validity of a fetched consensus (C tor
/// `REASONABLY_LIVE_TIME`).
pub const REASONABLY_LIVE: Duration = Duration::from_secs(24 * 3600);
/// Time after its end for which a cached consensus is still read (C tor `OLD_ROUTER_DESC_MAX_AGE`).
pub(crate) const CACHE_MAX_AGE: Duration = Duration::from_secs(5 * 24 * 3600);
/// A consensus that begins more than this in the future means that our clock is slow
/// (C tor `EARLY_CONSENSUS_NOTICE_SKEW`).
pub(crate) const EARLY_NOTICE: Duration = Duration::from_secs(60);
/// The parts of a verified consensus that a relay keeps.
#[derive(Clone)]
pub struct Consensus {
    /// When it becomes valid.
    pub valid_after: SystemTime,
    /// Until when it is the newest.
    pub fresh_until: SystemTime,
    /// Until when it may be used.
    pub valid_until: SystemTime,
    /// The parameters of the network.
    pub params: Params,
    /// Subprotocols recommended and required for relays.
    pub(crate) relay_protocols: ProtoStatus,
    /// Subprotocols recommended and required for clients.
    pub(crate) client_protocols: ProtoStatus,
    /// SHA-256 of the document, to recognise it again.
    pub digest: [u8; 32],
    /// The digest by which a diff names it.
    pub(crate) as_signed: ConsensusDigest,
    /// The relays by RSA identity; none in the flavour `ns`.
    relays: BTreeMap<RsaIdentity, KnownRelay>,
}

/// A relay that the consensus lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownRelay {
    /// Its ORPorts.
    pub or_ports: Vec<SocketAddr>,
    /// Its flags.
    pub flags: RelayFlags,
    /// SHA-256 of its microdescriptor.
    pub microdesc: MdDigest,
    /// Its consensus weight, relative to others.
    pub weight: u32,
}

impl KnownRelay {
    /// True if the authorities gave it `flag`.
    pub fn has(&self, flag: RelayFlag) -> bool {
        self.flags.contains(flag)
    }
}

impl std::fmt::Debug for Consensus {
    /// Without the thousands of relays.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Consensus")
            .field("valid_after", &self.valid_after)
            .field("valid_until", &self.valid_until)
            .field("relays", &self.relays.len())
            .finish_non_exhaustive()
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

    /// True if `now` is within its validity.
    pub(crate) fn is_live(&self, now: SystemTime) -> bool {
        self.valid_after <= now && now <= self.valid_until
    }

    /// True if `now` is at most a day outside its validity. Circuits may then be built with it (C
    /// tor `networkstatus_consensus_reasonably_live`).
    pub fn is_reasonably_live(&self, now: SystemTime) -> bool {
        self.valid_after <= now + REASONABLY_LIVE && now <= self.valid_until + REASONABLY_LIVE
    }
}

/// A consensus that has been verified.
#[derive(Clone, Debug)]
pub struct Verified {
    /// The part that every node keeps.
    pub consensus: Consensus,
    /// All of it, as path selection wants it.
    pub document: Box<MdConsensus>,
    /// The authorities of ours that signed it, sorted.
    pub signers: Vec<RsaIdentity>,
}

/// Why a consensus is not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConsensusError {
    /// It is not a well-formed consensus.
    #[error("the consensus is malformed: {0}")]
    Malformed(#[source] Box<tor_netdoc::Error>),
    /// It is of another flavour.
    #[error("the document is a consensus of another flavour than {}", .0.name())]
    Flavour(ConsensusFlavor),
    /// It lists no relay; the first consensuses of a young private network do not.
    #[error("the consensus lists no relay yet")]
    Empty,
    /// It ended too long ago.
    #[error("the consensus ended {} seconds ago; if the authorities are right, our clock is fast: check it", by.as_secs())]
    Expired {
        /// Time since its end.
        by: Duration,
    },
    /// It begins too far in the future.
    #[error("the consensus begins in {} seconds; if the authorities are right, our clock is slow: check it", by.as_secs())]
    NotYetValid {
        /// Time until its beginning.
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
        /// Signatures that are needed.
        needed: usize,
    },
    /// We lack certificates to check enough of its signatures.
    #[error("{} authority certificates are missing to verify the consensus", .0.len())]
    MissingCerts(Vec<AuthCertKeyIds>),
    /// A signature does not verify.
    #[error("the signatures on the consensus do not verify: {0}")]
    BadSignature(#[source] Box<tor_netdoc::Error>),
}

/// Refuses a document of another flavour, and one without relays. Distinguished here because the parser itself only
/// reports that an item is missing.
fn check_kind(text: &str, flavour: ConsensusFlavor) -> Result<(), ConsensusError> {
    let first = text.lines().next().unwrap_or_default();
    let mut words = first.split(' ');
    let is_consensus = words.next() == Some("network-status-version");
    let named = words.nth(1).unwrap_or(ConsensusFlavor::Plain.name());
    if is_consensus && named != flavour.name() {
        return Err(ConsensusError::Flavour(flavour));
    }
    if is_consensus && text.contains("\ndirectory-footer\n") && !text.contains("\nr ") {
        return Err(ConsensusError::Empty);
    }
    Ok(())
}

/// Refuses a consensus that is further than `tolerance` outside its validity.
fn check_times(
    lifetime: &Lifetime,
    now: SystemTime,
    tolerance: Duration,
) -> Result<(), ConsensusError> {
    match now.duration_since(lifetime.valid_until()) {
        Ok(by) if by > tolerance => return Err(ConsensusError::Expired { by }),
        _ => {}
    }
    match lifetime.valid_after().duration_since(now) {
        Ok(by) if by > REASONABLY_LIVE => Err(ConsensusError::NotYetValid { by }),
        _ => Ok(()),
    }
}

/// The body of a function that parses and verifies a document of this type: the document, its lifetime, and the
/// authorities that signed it. tor-netdoc's types of the flavours have no trait in common.
macro_rules! checked {
    ($document:ty, $flavour:expr, $text:expr, $authorities:expr, $certs:expr, $now:expr, $tolerance:expr) => {{
        let (text, authorities, now): (&str, &[RsaIdentity], SystemTime) =
            ($text, $authorities, $now);
        check_kind(text, $flavour)?;
        let (_, _, unchecked) =
            <$document>::parse(text).map_err(|error| ConsensusError::Malformed(Box::new(error)))?;
        let lifetime = unchecked.dangerously_peek().peek_lifetime().clone();
        check_times(&lifetime, now, $tolerance)?;
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
        let usable: Vec<AuthCert> = $certs
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
        let document = unvalidated
            .check_signature(&usable)
            .map_err(|error| ConsensusError::BadSignature(Box::new(error)))?;
        let mut signers: Vec<RsaIdentity> = signed.into_iter().collect();
        signers.sort();
        (document, lifetime, signers)
    }};
}

/// Parses and verifies `text`, of the microdesc flavour, against `authorities` and their `certs` at `now`.
///
/// `tolerance` is how far outside its validity the consensus may be: [`REASONABLY_LIVE`] for one
/// just fetched, [`CACHE_MAX_AGE`] for one from the cache.
pub fn verify(
    text: &str,
    authorities: &[RsaIdentity],
    certs: &Certs,
    now: SystemTime,
    tolerance: Duration,
) -> Result<Verified, ConsensusError> {
    let (document, lifetime, signers) = checked!(
        MdConsensus,
        ConsensusFlavor::Microdesc,
        text,
        authorities,
        certs,
        now,
        tolerance
    );
    let statuses = [
        document.relay_protocol_status(),
        document.client_protocol_status(),
    ];
    let params = Params::from_consensus(document.params(), method(text));
    let consensus = Consensus {
        relays: document
            .relays()
            .iter()
            .map(|relay| {
                let known = KnownRelay {
                    or_ports: relay.addrs().collect(),
                    flags: *relay.flags(),
                    microdesc: *relay.md_digest(),
                    weight: match relay.weight() {
                        RelayWeight::Measured(weight) | RelayWeight::Unmeasured(weight) => *weight,
                        _ => 0,
                    },
                };
                (*relay.rsa_identity(), known)
            })
            .collect(),
        ..without_relays(text, &lifetime, params, statuses)
    };
    Ok(Verified {
        consensus,
        document: Box::new(document),
        signers,
    })
}

/// The consensus method by which it was made; 1 where it names none (dir-spec 3.4.1).
fn method(text: &str) -> u32 {
    let mut head = text.lines().take_while(|line| !line.starts_with("r "));
    let method = head.find_map(|line| line.strip_prefix("consensus-method "));
    method.and_then(|method| method.parse().ok()).unwrap_or(1)
}

/// The parts of a consensus that concern the network as a whole; `relays` and `clients` are their
/// protocols.
fn without_relays(
    text: &str,
    lifetime: &Lifetime,
    params: Params,
    [relays, clients]: [&ProtoStatus; 2],
) -> Consensus {
    Consensus {
        valid_after: lifetime.valid_after(),
        fresh_until: lifetime.fresh_until(),
        valid_until: lifetime.valid_until(),
        params,
        relay_protocols: relays.clone(),
        client_protocols: clients.clone(),
        digest: Sha256::digest(text).into(),
        as_signed: ConsensusDigest::of(text),
        relays: BTreeMap::new(),
    }
}

/// A descriptor that a consensus lists: its relay, and its SHA-1 digest.
pub type ListedDescriptor = (RsaIdentity, [u8; 20]);

/// A consensus of the flavour `ns` that has been verified.
#[derive(Clone, Debug)]
pub struct VerifiedNs {
    /// Its times and parameters.
    pub consensus: Consensus,
    /// The descriptors that it lists.
    pub descriptors: Vec<ListedDescriptor>,
    /// The authorities of ours that signed it, sorted.
    pub signers: Vec<RsaIdentity>,
}

/// Like [`verify`], for the flavour `ns`.
pub fn verify_ns(
    text: &str,
    authorities: &[RsaIdentity],
    certs: &Certs,
    now: SystemTime,
    tolerance: Duration,
) -> Result<VerifiedNs, ConsensusError> {
    let (document, lifetime, signers) = checked!(
        PlainConsensus,
        ConsensusFlavor::Plain,
        text,
        authorities,
        certs,
        now,
        tolerance
    );
    let descriptors = (document.relays().iter())
        .map(|relay| (*relay.rsa_identity(), *relay.rd_digest()))
        .collect();
    let statuses = [
        document.relay_protocol_status(),
        document.client_protocol_status(),
    ];
    let params = Params::from_consensus(document.params(), method(text));
    Ok(VerifiedNs {
        consensus: without_relays(text, &lifetime, params, statuses),
        descriptors,
        signers,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certs::CertsAdded;
    use crate::paths::certs_path;
    use crate::testing::{TestAuthority, TestConsensus, now, secs};
    use std::sync::LazyLock;

    /// Three authorities; making RSA keys takes a moment.
    static AUTHORITIES: LazyLock<[TestAuthority; 3]> =
        LazyLock::new(|| [1, 2, 3].map(TestAuthority::new));

    fn ids() -> Vec<RsaIdentity> {
        AUTHORITIES.iter().map(TestAuthority::id).collect()
    }

    fn certs() -> Certs {
        let mut certs = Certs::default();
        for authority in AUTHORITIES.iter() {
            assert_eq!(
                certs.add(&authority.cert, &ids(), now()),
                CertsAdded {
                    added: 1,
                    bad: vec![]
                }
            );
        }
        certs
    }

    fn signed(by: &[usize]) -> String {
        let signers: Vec<&TestAuthority> = by.iter().map(|at| &AUTHORITIES[*at]).collect();
        TestConsensus::default().signed_by(&signers)
    }

    fn check(text: &str) -> Result<Consensus, ConsensusError> {
        verify(text, &ids(), &certs(), now(), REASONABLY_LIVE).map(|verified| verified.consensus)
    }

    #[test]
    fn a_consensus_signed_by_a_majority_is_believed() {
        let consensus = check(&signed(&[0, 2])).unwrap();
        assert_eq!(
            consensus.params.kist_sched_run_interval,
            Duration::from_millis(7)
        );
        assert!(consensus.is_live(now()));
        let relay = consensus.relay(&[9; 20].into()).unwrap();
        assert_eq!(relay.or_ports, ["127.0.0.1:9001".parse().unwrap()]);
        assert!(relay.has(RelayFlag::Fast) && !relay.has(RelayFlag::Guard));
        assert!(consensus.relay(&[8; 20].into()).is_none());
    }

    #[test]
    fn half_of_the_authorities_are_not_enough() {
        let error = check(&signed(&[0])).unwrap_err();
        assert!(matches!(
            error,
            ConsensusError::TooFewSignatures {
                signed: 1,
                configured: 3,
                needed: 2
            }
        ));
    }

    #[test]
    fn signatures_of_strangers_do_not_count() {
        let strangers = [TestAuthority::new(11), TestAuthority::new(12)];
        let text =
            TestConsensus::default().signed_by(&[&AUTHORITIES[0], &strangers[0], &strangers[1]]);
        let mut certs = certs();
        for stranger in &strangers {
            assert_eq!(certs.add(&stranger.cert, &ids(), now()).added, 0);
        }
        let error = verify(&text, &ids(), &certs, now(), REASONABLY_LIVE).unwrap_err();
        assert!(
            matches!(error, ConsensusError::TooFewSignatures { signed: 1, .. }),
            "{error}"
        );
    }

    #[test]
    fn one_signature_twice_counts_once() {
        let text = signed(&[0]);
        let at = text.find("directory-signature").unwrap();
        let twice = format!("{text}{}", &text[at..]);
        assert!(matches!(
            check(&twice),
            Err(ConsensusError::TooFewSignatures { signed: 1, .. })
        ));
    }

    #[test]
    fn a_consensus_that_was_changed_is_forged() {
        let forged = signed(&[0, 1, 2]).replace("circwindow=500", "circwindow=900");
        assert!(matches!(
            check(&forged),
            Err(ConsensusError::BadSignature(_))
        ));
    }

    #[test]
    fn without_certificates_the_error_names_those_missing() {
        let error = verify(
            &signed(&[0, 1]),
            &ids(),
            &Certs::default(),
            now(),
            REASONABLY_LIVE,
        );
        let Err(ConsensusError::MissingCerts(missing)) = error else {
            panic!("{error:?}");
        };
        assert_eq!(missing.len(), 2);
        let path = certs_path(&missing);
        assert!(
            path.starts_with("/tor/keys/fp-sk/") && path.len() == 16 + 2 * 81 + 1 + 2,
            "{path}"
        );
    }

    #[test]
    fn one_long_past_or_far_in_the_future_is_refused_with_its_time() {
        let at = |valid_after| {
            let consensus = TestConsensus {
                valid_after,
                ..TestConsensus::default()
            };
            check(&consensus.signed_by(&[&AUTHORITIES[0], &AUTHORITIES[1]]))
        };
        let day = secs(86_400);
        let past = now() - secs(3 * 3600);
        assert!(
            at(past - day).is_ok(),
            "a day after its end it is still reasonably live"
        );
        assert!(matches!(
            at(past - day - secs(1)),
            Err(ConsensusError::Expired { .. })
        ));
        assert!(at(now() + day).is_ok());
        assert!(matches!(
            at(now() + day + secs(1)),
            Err(ConsensusError::NotYetValid { .. })
        ));
    }

    #[test]
    fn cut_off_anywhere_it_is_refused() {
        let text = signed(&[0, 1]);
        for length in (0..text.len()).step_by(37) {
            let error = check(&text[..length]).unwrap_err();
            assert!(
                matches!(
                    error,
                    ConsensusError::Malformed(_)
                        | ConsensusError::TooFewSignatures { .. }
                        | ConsensusError::Flavour(_)
                ),
                "{length}: {error}"
            );
        }
    }

    #[test]
    fn a_consensus_without_relays_is_named() {
        let consensus = TestConsensus {
            relays: Vec::new(),
            ..TestConsensus::default()
        };
        let text = consensus.signed_by(&[&AUTHORITIES[0], &AUTHORITIES[1]]);
        assert!(matches!(check(&text), Err(ConsensusError::Empty)));
    }

    #[test]
    fn another_flavour_is_named() {
        let text = signed(&[0, 1]).replace("version 3 microdesc", "version 3");
        assert!(matches!(check(&text), Err(ConsensusError::Flavour(_))));
    }

    /// Consensuses of the live network, where the checkout has them beside it.
    #[test]
    fn consensuses_of_the_live_network_lack_only_certificates() {
        for (name, valid_after) in [
            ("2018-07-05-05-00-00-consensus-microdesc.xz", 1_530_766_800),
            ("2025-12-09-20-00-00-consensus-microdesc.xz", 1_765_310_400),
        ] {
            let Some(path) = weft_testing::real_document(&format!("consensus/{name}")) else {
                weft_testing::not_run!("{name} is not in ../shared/data");
                continue;
            };
            let packed = std::fs::read(path).unwrap();
            let unpacked = lzma_rust2::XzReader::new(packed.as_slice(), true);
            let text = std::io::read_to_string(unpacked).unwrap();
            let authorities: Vec<RsaIdentity> = text
                .lines()
                .filter_map(|line| line.strip_prefix("dir-source "))
                .map(|line| RsaIdentity::from_hex(line.split(' ').nth(1).unwrap()).unwrap())
                .collect();
            let when = SystemTime::UNIX_EPOCH + secs(valid_after);
            let error = verify(
                &text,
                &authorities,
                &Certs::default(),
                when,
                REASONABLY_LIVE,
            )
            .unwrap_err();
            let ConsensusError::MissingCerts(missing) = error else {
                panic!("{name}: {error}");
            };
            assert!(missing.len() > authorities.len() / 2, "{name}");
        }
    }
}
