//! Which documents a path names (dir-spec 4.2 to 4.6, 6.2), of an authority.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tor_llcrypto::pk::rsa::RsaIdentity;
use weft_dircache::named::{MAX_NAMED, digests, identities, identity_pairs};
use weft_dircache::resource::Resource;

use super::{Answer, PrivateAuthority};
use crate::keys::AuthorityKeys;

/// How long descriptors, microdescriptors and certificates may be kept (dircache.c).
const DESCRIPTOR_LIFETIME: Duration = Duration::from_secs(48 * 3600);
const MICRODESC_LIFETIME: Duration = Duration::from_secs(48 * 3600);
const KEY_LIFETIME: Duration = Duration::from_secs(48 * 3600);
const PAGE_LIFETIME: Duration = Duration::from_secs(20 * 60);

impl PrivateAuthority {
    /// The answer to a GET of `path`, which begins with `/tor/` and has lost its `.z`.
    #[must_use]
    pub fn get(&self, path: &str, now: SystemTime) -> Answer {
        let Some((resource, rest)) = Resource::get(path) else {
            return Answer::short(404, "Not found");
        };
        match resource {
            Resource::Consensus => self.consensus_at(rest, now),
            Resource::Certificates => self.certificate_at(rest),
            Resource::Descriptors => self.descriptors_at(rest, false),
            Resource::ExtraInfo => self.descriptors_at(rest, true),
            Resource::Microdescriptors => {
                let found =
                    digests(rest).filter_map(|digest| self.microdescs.get(&digest).cloned());
                Answer::documents(found.collect(), MICRODESC_LIFETIME)
            }
            Resource::FrontPage => {
                let page = self.config.front_page.clone();
                Answer {
                    page: true,
                    ..Answer::documents(page.into_iter().collect(), PAGE_LIFETIME)
                }
            }
            // Only relays have these.
            Resource::OnionDescriptor
            | Resource::Robots
            | Resource::OnionUpload
            | Resource::RelayUpload => Answer::short(404, "Not found"),
        }
    }

    /// `""`, `-microdesc`, `/FINGERPRINTS`, `-microdesc/FINGERPRINTS`.
    fn consensus_at(&self, rest: &str, now: SystemTime) -> Answer {
        let (flavour, signers) = match rest.split_once('/') {
            Some((flavour, signers)) => (flavour, Some(signers)),
            None => (rest, None),
        };
        let Some(current) = &self.current else {
            return Answer::short(404, "Not found");
        };
        let text = match flavour {
            "" | "-ns" => &current.ns,
            "-microdesc" => &current.microdesc,
            _ => return Answer::short(404, "Not found"),
        };
        if signers.is_some_and(|signers| !self.signed_enough(signers)) {
            return Answer::short(
                404,
                "Consensus not signed by sufficient number of requested authorities",
            );
        }
        let fresh = current.lifetime.fresh_until.duration_since(now);
        Answer {
            modified: Some(current.lifetime.valid_after),
            ..Answer::documents(vec![text.clone()], fresh.unwrap_or_default())
        }
    }

    /// Whether more than half of these authorities, named by the beginnings of their identities,
    /// are ourselves.
    fn signed_enough(&self, signers: &str) -> bool {
        let ids = self.keys.all().map(AuthorityKeys::identity);
        let own: Vec<String> = ids.map(|id| hex::encode_upper(id.as_bytes())).collect();
        let (mut named, mut signed) = (0_usize, 0_usize);
        for prefix in signers.split('+').take(MAX_NAMED) {
            named += 1;
            let prefix = prefix.to_ascii_uppercase();
            let is_ours = own.iter().any(|own| own.starts_with(&prefix));
            signed += usize::from(!prefix.is_empty() && is_ours);
        }
        signed > named / 2
    }

    /// `all`, `authority`, `fp/F+F`, `sk/S+S`, `fp-sk/F-S+F-S`.
    fn certificate_at(&self, which: &str) -> Answer {
        let named = |keys: &AuthorityKeys| {
            let (identity, signing) = (keys.identity(), keys.signing_id());
            match which.split_once('/') {
                None => {
                    which == "all" || (which == "authority" && identity == self.keys.own.identity())
                }
                Some(("fp", ids)) => identities(ids).any(|id| id == identity),
                Some(("sk", ids)) => identities(ids).any(|id| id == signing),
                Some(("fp-sk", pairs)) => {
                    identity_pairs(pairs).any(|pair| pair == (identity, signing))
                }
                Some(_) => false,
            }
        };
        if which
            .split_once('/')
            .is_some_and(|(by, _)| !matches!(by, "fp" | "sk" | "fp-sk"))
        {
            return Answer::short(400, "Bad request");
        }
        let found = self.keys.all().zip(&self.certificates);
        let found: Vec<_> = found.filter(|(keys, _)| named(keys)).collect();
        let newest = found.iter().map(|(keys, _)| keys.published()).max();
        let certificates = found
            .into_iter()
            .map(|(_, certificate)| certificate.clone());
        let answer = Answer::documents(certificates.collect(), KEY_LIFETIME);
        Answer {
            modified: newest,
            ..answer
        }
    }

    /// `all`, `authority`, `fp/F+F`, `d/D+D`.
    fn descriptors_at(&self, which: &str, extra_info: bool) -> Answer {
        let of = |id: &RsaIdentity| {
            let router = self.routers.get(id)?;
            match extra_info {
                false => Some(router.text.clone()),
                true => Some(router.extra_info.as_ref()?.text.clone()),
            }
        };
        let found: Vec<Arc<str>> = match which.split_once('/') {
            None if which == "all" => self.routers.keys().filter_map(of).collect(),
            None if which == "authority" => of(&self.config.identity).into_iter().collect(),
            Some(("fp", ids)) => identities(ids).filter_map(|id| of(&id)).collect(),
            Some(("d", digests)) => identities(digests)
                .filter_map(|digest| self.descriptors.get(&digest.to_bytes()).cloned())
                .collect(),
            _ => return Answer::short(404, "Key not recognized"),
        };
        match found.is_empty() {
            true => Answer::short(404, "Servers unavailable"),
            false => Answer::documents(found, DESCRIPTOR_LIFETIME),
        }
    }
}
