//! Documents that a path names (dir-spec 4.2 to 4.6, 6.2), of an authority.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tor_llcrypto::pk::rsa::RsaIdentity;
use weft_dircache::answer::{Found, NOT_FOUND};
use weft_dircache::named::{digests, identities, identity_pairs, signed_by};
use weft_dircache::pieces::Part;
use weft_dircache::resource::Resource;

use crate::authority::PrivateAuthority;

/// Time for which descriptors, microdescriptors and certificates may be cached (dircache.c).
const LIFETIME: Duration = Duration::from_secs(48 * 3600);

/// These documents; 404 if there are none.
fn documents(texts: impl Iterator<Item = Arc<str>>, lifetime: Duration) -> Found {
    let parts: Vec<Part> = texts.map(Part::Text).collect();
    match parts.is_empty() {
        true => NOT_FOUND,
        false => Found::Documents(parts, lifetime),
    }
}

impl PrivateAuthority {
    /// Answer to a GET of `path`, which begins with `/tor/` and has lost its `.z`. `since` is the
    /// time of the document that the client has. A consensus that is due is made first.
    pub fn get(&mut self, path: &str, since: Option<SystemTime>, now: SystemTime) -> Found {
        let Some((resource, rest)) = Resource::get(path) else {
            return NOT_FOUND;
        };
        match resource {
            Resource::Consensus => match self.tick(now) {
                Ok(()) => self.consensus_at(rest, since, now),
                Err(_) => Found::Short(503, "The consensus cannot be signed"),
            },
            Resource::Certificates => self.certificate_at(rest),
            Resource::Descriptors => self.descriptors_at(rest, false),
            Resource::ExtraInfo => self.descriptors_at(rest, true),
            Resource::Microdescriptors => {
                let found = digests(rest).filter_map(|digest| self.microdescs.get(&digest));
                documents(found.cloned(), LIFETIME)
            }
            Resource::Robots => Found::Robots,
            // Not among the documents.
            Resource::OnionDescriptor
            | Resource::FrontPage
            | Resource::OnionUpload
            | Resource::RelayUpload => NOT_FOUND,
        }
    }

    /// `""`, `-microdesc`, `/FINGERPRINTS`, `-microdesc/FINGERPRINTS`.
    fn consensus_at(&self, rest: &str, since: Option<SystemTime>, now: SystemTime) -> Found {
        let (flavour, signers) = match rest.split_once('/') {
            Some((flavour, signers)) => (flavour, Some(signers)),
            None => (rest, None),
        };
        let Some(current) = &self.current else {
            return NOT_FOUND;
        };
        let text = match flavour {
            "" | "-ns" => &current.ns,
            "-microdesc" => &current.microdesc,
            _ => return NOT_FOUND,
        };
        if signers.is_some_and(|signers| !signed_by(&[self.keys.identity()], signers)) {
            return Found::Short(
                404,
                "Consensus not signed by sufficient number of requested authorities",
            );
        }
        if since.is_some_and(|since| current.lifetime.valid_after <= since) {
            return Found::Short(304, "Not modified");
        }
        let fresh = current.lifetime.fresh_until.duration_since(now);
        documents(std::iter::once(text.clone()), fresh.unwrap_or_default())
    }

    /// `all`, `authority`, `fp/F+F`, `sk/S+S`, `fp-sk/F-S+F-S`.
    fn certificate_at(&self, which: &str) -> Found {
        let (identity, signing) = (self.keys.identity(), self.keys.signing_id());
        let is_named = match which.split_once('/') {
            None => which == "all" || which == "authority",
            Some(("fp", ids)) => identities(ids).any(|id| id == identity),
            Some(("sk", ids)) => identities(ids).any(|id| id == signing),
            Some(("fp-sk", pairs)) => identity_pairs(pairs).any(|pair| pair == (identity, signing)),
            Some(_) => return Found::Short(400, "Bad request"),
        };
        let certificate = is_named.then(|| self.keys.certificate().clone());
        documents(certificate.into_iter(), LIFETIME)
    }

    /// `all`, `authority`, `fp/F+F`, `d/D+D`.
    fn descriptors_at(&self, which: &str, extra_info: bool) -> Found {
        let of = |id: &RsaIdentity| {
            let router = self.routers.get(id)?;
            match extra_info {
                false => Some(router.text.clone()),
                true => Some(router.extra_info.as_ref()?.text.clone()),
            }
        };
        match which.split_once('/') {
            None if which == "all" => documents(self.routers.keys().filter_map(of), LIFETIME),
            None if which == "authority" => {
                documents(of(&self.config.identity).into_iter(), LIFETIME)
            }
            Some(("fp", ids)) => documents(identities(ids).filter_map(|id| of(&id)), LIFETIME),
            Some(("d", digests)) => {
                let digests = identities(digests).map(|digest| digest.to_bytes());
                let found = digests.filter_map(|digest| self.descriptors.get(&digest));
                documents(found.cloned(), LIFETIME)
            }
            _ => NOT_FOUND,
        }
    }
}
