//! The authority certificates that consensuses are verified with. Parsing and signature arithmetic are tor-netdoc's; which
//! certificates count is decided here.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use tor_checkable::{SelfSigned as _, TimeBound as _};
use tor_llcrypto::pk::rsa::RsaIdentity;
use tor_netdoc::doc::authcert::AuthCert;

/// Certificates kept per authority: the one in use, its successor, and some slack.
const MAX_CERTS_PER_AUTHORITY: usize = 4;
/// Largest clock skew, in the future, of a certificate's publication time.
const CERT_SKEW: Duration = Duration::from_secs(24 * 3600);

/// Authority certificates whose signatures have been checked.
#[derive(Clone, Debug, Default)]
pub struct Certs {
    /// Certificates with their text, newest first within an authority.
    certs: Vec<(AuthCert, String)>,
}

/// The results for the certificates in a document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertsAdded {
    /// Number of certificates that were new and are kept.
    pub added: usize,
    /// Errors of the others, except those that were already known, old, or of another authority.
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
    pub(crate) fn usable(&self, now: SystemTime) -> impl Iterator<Item = &AuthCert> {
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

    /// All certificates with their texts.
    pub fn iter(&self) -> impl Iterator<Item = (&AuthCert, &str)> {
        self.certs.iter().map(|(cert, text)| (cert, text.as_str()))
    }

    /// All certificates as one document, as C tor's `cached-certs` has them.
    pub fn text(&self) -> String {
        self.certs.iter().map(|(_, text)| text.as_str()).collect()
    }

    /// Number of certificates.
    pub fn len(&self) -> usize {
        self.certs.len()
    }

    /// True if it holds no certificate.
    pub fn is_empty(&self) -> bool {
        self.certs.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;
    use crate::testing::{TestAuthority, now, secs};

    static AUTHORITIES: LazyLock<[TestAuthority; 3]> =
        LazyLock::new(|| [1, 2, 3].map(TestAuthority::new));

    fn ids() -> Vec<RsaIdentity> {
        AUTHORITIES.iter().map(TestAuthority::id).collect()
    }

    fn certs() -> Certs {
        let mut certs = Certs::default();
        for authority in &*AUTHORITIES {
            let added = CertsAdded {
                added: 1,
                bad: Vec::new(),
            };
            assert_eq!(certs.add(&authority.cert, &ids(), now()), added);
        }
        certs
    }

    #[test]
    fn certificates_that_ended_or_were_forged_are_not_kept() {
        let authority = &AUTHORITIES[0];
        let mut certs = Certs::default();
        assert_eq!(
            certs
                .add(&authority.cert, &ids(), now() + secs(31 * 86_400))
                .added,
            0
        );
        let forged = authority
            .cert
            .replacen("dir-key-expires 2026", "dir-key-expires 2036", 1);
        assert_ne!(forged, authority.cert);
        let outcome = certs.add(&forged, &ids(), now());
        assert_eq!((outcome.added, outcome.bad.len()), (0, 1));
        assert_eq!(certs.add("nonsense", &ids(), now()).added, 0);
        assert!(certs.is_empty());
    }

    #[test]
    fn certificates_survive_their_cache_file() {
        let mut again = Certs::default();
        assert_eq!(again.add(&certs().text(), &ids(), now()).added, 3);
        assert_eq!(
            again.add(&certs().text(), &ids(), now()).added,
            0,
            "known already"
        );
        assert_eq!(again.len(), 3);
    }
}
