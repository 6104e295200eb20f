//! Finds the answer to a request (dir-spec 4 and 6). Reason phrases are those of C tor's
//! dircache.c.

mod consensus;
pub(crate) mod descriptors;
pub(crate) mod found;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tor_llcrypto::pk::rsa::RsaIdentity;
use weft_dir::descriptors::DocumentKind;
use weft_dir::documents::{CachedDocuments, Forms, Held, ServedCert};
use weft_dir::http::{Compression, http_date};

use crate::named::{digests, identities, identity_pairs};
use crate::pieces::{Part, Pieces};
use crate::request::{Accepts, Request};
use crate::resource::Resource;
pub use found::{Found, NOT_FOUND};

/// The reason of an answer that there is no room for.
pub const BUSY: &str = "Directory busy, try again later";

/// Bytes of an answer's documents at most (C tor reads no more: `MAX_DIR_DL_SIZE`).
const MAX_BODY: usize = (1 << 24) - 1;
/// Cache lifetime of microdescriptors (C tor `MICRODESC_CACHE_LIFETIME`).
const MICRODESC_LIFETIME: Duration = Duration::from_secs(48 * 3600);
/// Cache lifetime of certificates.
const KEY_LIFETIME: Duration = Duration::from_secs(3600);
/// Cache lifetime of robots.txt (`ROBOTS_CACHE_LIFETIME`).
const ROBOTS_LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// Below this compression gains nothing.
const SMALL: usize = 256;

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// Status line and headers, with the empty line at their end.
    pub head: String,
    /// The body, made as it is sent.
    pub body: Pieces,
    /// Bytes of documents that the directory may drop while they are sent.
    pub(super) retained: usize,
}

impl Answer {
    /// A status and no document.
    pub fn short(status: u16, reason: &str, now: SystemTime) -> Self {
        let date = http_date(now).map_or(String::new(), |date| format!("Date: {date}\r\n"));
        Self {
            head: format!("HTTP/1.0 {status} {reason}\r\n{date}\r\n"),
            body: Pieces::none(),
            retained: 0,
        }
    }

    /// Bytes of memory that it takes until it has been sent.
    pub(super) fn memory(&self) -> usize {
        self.head.capacity() + self.body.memory() + self.retained
    }

    /// The answer to `request` of `peer`.
    pub fn new(
        documents: &CachedDocuments,
        request: &Request,
        now: SystemTime,
        peer: IpAddr,
    ) -> Self {
        let found = documents.read(|held| find(held, request, now));
        Self::of(found, request.accepts, now, peer)
    }

    /// The answer with what was found for `peer`, who accepts these compressions.
    pub(super) fn of(found: Found, accepts: Accepts, now: SystemTime, peer: IpAddr) -> Self {
        // What is made while it is sent, or read from a file of many, ends with the stream, as C tor's does.
        let length;
        let (body, coding, lifetime, vary) = match found {
            Found::Short(status, reason) => return Self::short(status, reason, now),
            Found::Stored(documents, lifetime) => {
                let best = documents.iter().find_map(|forms| best(forms, accepts));
                let Some((part, coding)) = best else {
                    return Self::short(404, "Not found", now);
                };
                length = Some(part.length());
                let vary = "Vary: X-Or-Diff-From-Consensus\r\n";
                (Pieces::one(part), coding, lifetime, vary)
            }
            Found::Documents(parts, lifetime) => {
                let sum: usize = parts.iter().map(Part::length).sum();
                let in_memory = !parts.iter().any(|part| matches!(part, Part::File { .. }));
                let mut accepted = Compression::FAST_FIRST.into_iter();
                let coding = accepted
                    .find(|coding| accepts.has(*coding) && sum >= SMALL)
                    .unwrap_or(Compression::Identity);
                let (pieces, coding) = Pieces::new(parts, coding);
                let is_known = in_memory && coding == Compression::Identity;
                length = is_known.then_some(sum);
                (pieces, coding, lifetime, "")
            }
            Found::Robots => {
                let robots: Arc<str> = Arc::from("User-agent: *\r\nDisallow: /\r\n");
                length = Some(robots.len());
                let body = Pieces::one(Part::Text(robots));
                (body, Compression::Identity, ROBOTS_LIFETIME, "")
            }
        };
        let date = |time| http_date(time).unwrap_or_default();
        let address = address_header(peer);
        let expiry = if lifetime.is_zero() {
            "Pragma: no-cache\r\n".to_string()
        } else {
            format!("Expires: {}\r\n", date(now + lifetime))
        };
        let length = length.map_or(String::new(), |it| format!("Content-Length: {it}\r\n"));
        Self {
            head: format!(
                "HTTP/1.0 200 OK\r\nDate: {}\r\nContent-Type: text/plain\r\n{address}\
                 Content-Encoding: {}\r\n{length}{expiry}{vary}\r\n",
                date(now),
                coding.name(),
            ),
            body,
            retained: 0,
        }
    }
}

/// A document in the best compression that is there and `accepts` has.
fn best(forms: &Forms, accepts: Accepts) -> Option<(Part, Compression)> {
    let mut accepted = Compression::BEST_FIRST
        .into_iter()
        .filter(|coding| accepts.has(*coding));
    accepted.find_map(|coding| {
        // A file that is gone belonged to a consensus that is no longer served.
        let part = Part::try_from(forms.get(&coding)?).ok()?;
        Some((part, coding))
    })
}

/// The header with the address of a client at `peer`, or nothing.
pub(super) fn address_header(peer: IpAddr) -> String {
    match sends_address(peer) {
        true => format!("X-Your-Address-Is: {peer}\r\n"),
        false => String::new(),
    }
}

/// True if the answer to a client at `peer` includes that address. It does not if `peer` is on our
/// own network, where the address may be that of a router that forwards ports (C tor
/// `is_local_to_resolve_addr`).
fn sends_address(peer: IpAddr) -> bool {
    match peer.to_canonical() {
        IpAddr::V4(ip) => {
            !(ip.is_loopback() || ip.is_private() || ip.is_link_local() || ip.is_unspecified())
        }
        IpAddr::V6(ip) => {
            !(ip.is_loopback()
                || ip.is_unique_local()
                || ip.is_unicast_link_local()
                || ip.is_unspecified())
        }
    }
}

/// All texts, as far as they fit.
fn texts(texts: impl Iterator<Item = Arc<str>>, lifetime: Duration) -> Found {
    let mut length = 0;
    let fit = texts.take_while(|text| {
        length += text.len();
        length <= MAX_BODY
    });
    match Vec::from_iter(fit.map(Part::Text)) {
        none if none.is_empty() => NOT_FOUND,
        parts => Found::Documents(parts, lifetime),
    }
}

/// The documents that `request` asks for.
fn find(held: &Held, request: &Request, now: SystemTime) -> Found {
    let Some((resource, rest)) = Resource::get(&request.path) else {
        return NOT_FOUND;
    };
    match resource {
        Resource::Consensus => consensus::find(held, rest, request, now),
        Resource::Microdescriptors => microdescs(held, rest),
        Resource::Certificates => keys(held, rest, request.since),
        Resource::Descriptors => descriptors::find(held, DocumentKind::Descriptor, rest, now),
        Resource::ExtraInfo => descriptors::find(held, DocumentKind::ExtraInfo, rest, now),
        Resource::Robots => Found::Robots,
        // Not among the documents.
        Resource::OnionDescriptor
        | Resource::FrontPage
        | Resource::OnionUpload
        | Resource::RelayUpload => NOT_FOUND,
    }
}

/// Microdescriptors, by their [`digests`].
fn microdescs(held: &Held, named: &str) -> Found {
    let mut digests: Vec<[u8; 32]> = digests(named).collect();
    digests.sort_unstable();
    digests.dedup();
    let found = digests
        .iter()
        .filter_map(|digest| held.microdescs.get(digest).cloned());
    texts(found, MICRODESC_LIFETIME)
}

/// `all`, `fp/F+F`, `sk/S+S`, `fp-sk/F-S+F-S`; `authority` would be our own.
fn keys(held: &Held, which: &str, since: Option<SystemTime>) -> Found {
    let newest = |id: RsaIdentity| {
        let of = |cert: &&ServedCert| cert.ids.id_fingerprint == id;
        held.certs
            .iter()
            .filter(of)
            .max_by_key(|cert| cert.published)
    };
    let mut certs: Vec<_> = match which.split_once('/') {
        None if which == "all" => held.certs.iter().collect(),
        None if which == "authority" => Vec::new(),
        Some(("fp", ids)) => identities(ids).filter_map(newest).collect(),
        Some(("sk", ids)) => identities(ids)
            .filter_map(|id| held.certs.iter().find(|cert| cert.ids.sk_fingerprint == id))
            .collect(),
        Some(("fp-sk", pairs)) => identity_pairs(pairs)
            .filter_map(|(fp, sk)| {
                let is = |cert: &&ServedCert| {
                    cert.ids.id_fingerprint == fp && cert.ids.sk_fingerprint == sk
                };
                held.certs.iter().find(is)
            })
            .collect(),
        _ => return Found::Short(400, "Bad request"),
    };
    if certs.is_empty() {
        return NOT_FOUND;
    }
    let mut seen = Vec::new();
    certs.retain(|cert| {
        let first = !seen.contains(&cert.ids);
        seen.push(cert.ids);
        first && since.is_none_or(|since| cert.published >= since)
    });
    if certs.is_empty() {
        return Found::Short(304, "Not modified");
    }
    texts(certs.iter().map(|cert| cert.text.clone()), KEY_LIFETIME)
}

#[cfg(test)]
mod tests;
