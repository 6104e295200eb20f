//! Requests for router descriptors and extra-info documents (C tor `handle_get_descriptor`,
//! `dirserv_get_routerdesc_spool`).

use std::time::{Duration, SystemTime};

use tor_llcrypto::pk::rsa::RsaIdentity;
use weft_dir::descriptors::{DescriptorDigest, DocumentKind, Stored};
use weft_dir::documents::{Held, Own};

use super::found::{Found, NOT_FOUND};
use crate::named::identities;
use crate::pieces::Part;

/// Cache lifetime of one document (`ROUTERDESC_BY_DIGEST_CACHE_LIFETIME`).
const ONE_LIFETIME: Duration = Duration::from_secs(48 * 3600);
/// Cache lifetime of all documents together (`FULL_DIR_CACHE_LIFETIME`).
const ALL_LIFETIME: Duration = Duration::from_secs(3600);
/// Largest age of a descriptor that is served by its relay's identity
/// (`ROUTER_MAX_AGE_TO_PUBLISH`).
const MAX_AGE: Duration = Duration::from_secs(24 * 3600);

/// The documents among `authority`, `all`, `fp/F+F`, `d/D+D`.
pub(crate) fn find(held: &Held, kind: DocumentKind, which: &str, now: SystemTime) -> Found {
    let no_extra_infos = held.own.as_ref().is_some_and(|(_, _, own)| own.is_none());
    if kind == DocumentKind::ExtraInfo && no_extra_infos {
        return NOT_FOUND;
    }
    let search = Search { held, kind, now };
    let mut lifetime = Duration::ZERO;
    let parts: Vec<Part> = match which.split_once('/') {
        None if which == "authority" => {
            search.own().into_iter().map(|(_, own)| text(own)).collect()
        }
        None if which == "all" => {
            lifetime = ALL_LIFETIME;
            let own = search.own().map(|(_, own)| text(own));
            let others = held.current.keys().filter_map(|id| search.current(id));
            own.into_iter().chain(others.map(Part::from)).collect()
        }
        Some(("fp", ids)) => {
            let mut ids: Vec<RsaIdentity> = identities(ids).collect();
            ids.sort_unstable();
            ids.dedup();
            ids.iter().filter_map(|id| search.by_id(id)).collect()
        }
        Some(("d", digests)) => {
            let mut digests: Vec<RsaIdentity> = identities(digests).collect();
            digests.sort_unstable();
            digests.dedup();
            let digests = digests.iter().map(|digest| digest.to_bytes());
            digests
                .filter_map(|digest| search.by_digest(&digest))
                .collect()
        }
        _ => return NOT_FOUND,
    };
    if parts.is_empty() {
        return Found::Short(404, "Servers unavailable");
    }
    if parts.len() == 1 && lifetime.is_zero() {
        lifetime = ONE_LIFETIME;
    }
    Found::Documents(parts, lifetime)
}

fn text(own: &Own) -> Part {
    Part::Text(own.text.clone())
}

/// Where documents of one kind are looked up.
struct Search<'a> {
    held: &'a Held,
    kind: DocumentKind,
    now: SystemTime,
}

impl<'a> Search<'a> {
    /// This relay's own.
    fn own(&self) -> Option<(&'a RsaIdentity, &'a Own)> {
        let (id, router, extra_info) = self.held.own.as_ref()?;
        match self.kind {
            DocumentKind::Descriptor => Some((id, router)),
            DocumentKind::ExtraInfo => Some((id, extra_info.as_ref()?)),
        }
    }

    /// The document of relay `id` that the consensus lists, if it is young enough to be served.
    fn current(&self, id: &RsaIdentity) -> Option<&'a Stored> {
        let digest = self.held.current.get(id)?;
        let descriptor = self.held.descriptors.get(digest)?;
        let found = match self.kind {
            DocumentKind::Descriptor => descriptor,
            DocumentKind::ExtraInfo => self.held.extra_infos.get(&descriptor.extra_info?)?,
        };
        let is_young = found.published + MAX_AGE >= self.now;
        is_young.then_some(found)
    }

    fn by_id(&self, id: &RsaIdentity) -> Option<Part> {
        match self.own().filter(|(own, _)| *own == id) {
            Some((_, own)) => Some(text(own)),
            None => self.current(id).map(Part::from),
        }
    }

    fn by_digest(&self, digest: &DescriptorDigest) -> Option<Part> {
        if let Some((_, own)) = self.own().filter(|(_, own)| own.digest == *digest) {
            return Some(text(own));
        }
        let store = match self.kind {
            DocumentKind::Descriptor => &self.held.descriptors,
            DocumentKind::ExtraInfo => &self.held.extra_infos,
        };
        store.get(digest).map(Part::from)
    }
}
