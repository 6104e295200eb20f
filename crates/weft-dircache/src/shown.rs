//! Descriptors and extra-info documents for controllers (C tor `getinfo_helper_dir`). Reading them
//! does not block requests.

use std::time::SystemTime;

use memchr::memmem;
use tor_llcrypto::pk::rsa::RsaIdentity;
use weft_dir::descriptors::{DocumentKind, Stored};
use weft_dir::documents::{CachedDocuments, Held, Own};
use weft_dir::http::Compression;

use crate::answer::descriptors;
use crate::answer::found::Found;
use crate::pieces::{Part, Pieces};

/// Where a descriptor's signature begins.
const SIGNATURE: &[u8] = b"\nrouter-signature";
/// Lines of an extra-info document that old descriptors had, in the order in which C tor puts them there.
const HISTORIES: [&[u8]; 2] = [b"\nread-history ", b"\nwrite-history "];

/// A descriptor that is shown.
enum Shown<'a> {
    Own(&'a Own),
    Other(&'a Stored),
}

impl From<Shown<'_>> for Part {
    fn from(shown: Shown<'_>) -> Self {
        match shown {
            Shown::Own(own) => Part::Text(own.text.clone()),
            Shown::Other(stored) => Part::from(stored),
        }
    }
}

/// The descriptor of a relay: our own, or what the consensus lists.
pub fn descriptor_of(documents: &CachedDocuments, relay: &RsaIdentity) -> Option<Vec<u8>> {
    let part = documents.read(|held| descriptor(held, relay).map(Part::from))?;
    read(part)
}

/// The descriptors that the consensus lists, and our own.
pub fn descriptors(documents: &CachedDocuments) -> Vec<u8> {
    let parts = documents.read(|held| all(held).into_iter().map(Part::from).collect());
    join(parts)
}

/// All descriptors, each with the bandwidth histories of its extra-info document before its
/// signature (`munge_extrainfo_into_routerinfo`).
pub fn descriptors_with_histories(documents: &CachedDocuments) -> Vec<u8> {
    let parts: Vec<(Part, Option<Part>)> = documents.read(|held| {
        let with_extra = |shown: Shown<'_>| {
            let extra = extra_info_of(held, &shown);
            (Part::from(shown), extra)
        };
        all(held).into_iter().map(with_extra).collect()
    });
    let mut text = Vec::new();
    for (part, extra) in parts {
        let Some(descriptor) = read(part) else {
            continue;
        };
        let histories = extra.and_then(read).map(|extra| histories(&extra));
        let end = memmem::find(&descriptor, SIGNATURE).map_or(0, |at| at + 1);
        let (signed, signature) = descriptor.split_at(end);
        text.extend_from_slice(signed);
        if end > 0 {
            text.extend(histories.unwrap_or_default());
        }
        text.extend_from_slice(signature);
    }
    text
}

/// The extra-info document with this digest.
pub fn extra_info(documents: &CachedDocuments, digest: &[u8; 20]) -> Option<Vec<u8>> {
    let part = documents.read(|held| match &held.own {
        Some((_, _, Some(own))) if own.digest == *digest => Some(Part::Text(own.text.clone())),
        _ => held.extra_infos.get(digest).map(Part::from),
    });
    read(part?)
}

/// A DirPort's answer to `/tor/server/WHICH`; `None` if none of these descriptors is kept.
pub fn servers(documents: &CachedDocuments, which: &str, now: SystemTime) -> Option<Vec<u8>> {
    let found =
        documents.read(|held| descriptors::find(held, DocumentKind::Descriptor, which, now));
    match found {
        Found::Documents(parts, _) => Some(join(parts)),
        _ => None,
    }
}

fn descriptor<'a>(held: &'a Held, relay: &RsaIdentity) -> Option<Shown<'a>> {
    if let Some((_, own, _)) = held.own.as_ref().filter(|(id, ..)| id == relay) {
        return Some(Shown::Own(own));
    }
    let stored = held.descriptors.get(held.current.get(relay)?)?;
    Some(Shown::Other(stored))
}

/// Ours, and those of others that the consensus lists.
fn all(held: &Held) -> Vec<Shown<'_>> {
    let own = held.own.as_ref().map(|(id, ..)| *id);
    let listed = held.current.keys().copied();
    let others = listed.filter(|id| Some(*id) != own);
    let ids = own.into_iter().chain(others);
    ids.filter_map(|id| descriptor(held, &id)).collect()
}

/// The extra-info document that belongs to a descriptor.
fn extra_info_of(held: &Held, descriptor: &Shown<'_>) -> Option<Part> {
    match descriptor {
        Shown::Own(_) => {
            let (_, _, own) = held.own.as_ref()?;
            Some(Part::Text(own.as_ref()?.text.clone()))
        }
        Shown::Other(stored) => {
            let found = held.extra_infos.get(&stored.extra_info?)?;
            Some(Part::from(found))
        }
    }
}

/// The lines of an extra-info document that have histories of bandwidth.
fn histories(extra: &[u8]) -> Vec<u8> {
    let mut lines = Vec::new();
    for keyword in HISTORIES {
        let line = memmem::find(extra, keyword).and_then(|at| extra.get(at + 1..));
        if let Some(line) = line.and_then(|rest| rest.split_inclusive(|byte| *byte == b'\n').next())
        {
            lines.extend_from_slice(line);
        }
    }
    lines
}

/// A document's text; `None`: its file cannot be read any more.
fn read(part: Part) -> Option<Vec<u8>> {
    let length = part.length();
    let text = join(vec![part]);
    (text.len() == length).then_some(text)
}

/// Documents, one after the other.
fn join(parts: Vec<Part>) -> Vec<u8> {
    let (mut pieces, _) = Pieces::new(parts, Compression::Identity);
    let mut text = Vec::new();
    while let Some(more) = pieces.next(usize::MAX) {
        text.extend(more);
    }
    text
}
