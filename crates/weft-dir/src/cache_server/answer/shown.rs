//! What controllers are shown of the descriptors and extra-info documents that are served (C tor
//! `getinfo_helper_dir`). They are read without holding up those who are served.

use std::time::SystemTime;

use memchr::memmem;
use tor_llcrypto::pk::rsa::RsaIdentity;

use super::super::documents::{CachedDocuments, Held};
use super::super::pieces::{Part, Pieces};
use super::{Found, descriptors};
use crate::compress::Compression;
use crate::descriptors::DocumentKind;

/// Where a descriptor's signature begins.
const SIGNATURE: &[u8] = b"\nrouter-signature";
/// Lines of an extra-info document that old descriptors had, in the order in which C tor puts them there.
const HISTORIES: [&[u8]; 2] = [b"\nread-history ", b"\nwrite-history "];

impl CachedDocuments {
    /// The descriptor of a relay: our own, or what the consensus lists.
    pub fn descriptor_of(&self, relay: &RsaIdentity) -> Option<Vec<u8>> {
        let part = descriptor(&self.held(), relay)?;
        read(part)
    }

    /// The descriptors that the consensus lists, and our own.
    pub fn descriptors(&self) -> Vec<u8> {
        let parts = all(&self.held());
        join(parts)
    }

    /// The same, each with the bandwidth histories of its extra-info document before its signature
    /// (`munge_extrainfo_into_routerinfo`).
    pub fn descriptors_with_histories(&self) -> Vec<u8> {
        let parts: Vec<(Part, Option<Part>)> = {
            let held = self.held();
            let with_extra = |part: Part| {
                let extra = extra_info_of(&held, &part);
                (part, extra)
            };
            all(&held).into_iter().map(with_extra).collect()
        };
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
    pub fn extra_info(&self, digest: &[u8; 20]) -> Option<Vec<u8>> {
        let part = {
            let held = self.held();
            match &held.own {
                Some((_, _, Some(own))) if own.digest == *digest => Part::Text(own.text.clone()),
                _ => Part::Stored(held.extra_infos.get(digest)?.clone()),
            }
        };
        read(part)
    }

    /// What a DirPort answers to `/tor/server/WHICH`; `None`: it has none of these.
    pub fn servers(&self, which: &str, now: SystemTime) -> Option<Vec<u8>> {
        let found = descriptors::find(&self.held(), DocumentKind::Descriptor, which, now);
        match found {
            Found::Parts(parts, _) => Some(join(parts)),
            _ => None,
        }
    }
}

fn descriptor(held: &Held, relay: &RsaIdentity) -> Option<Part> {
    if let Some((_, own, _)) = held.own.as_ref().filter(|(id, ..)| id == relay) {
        return Some(Part::Text(own.text.clone()));
    }
    let stored = held.descriptors.get(held.current.get(relay)?)?;
    Some(Part::Stored(stored.clone()))
}

/// Ours, and those of others that the consensus lists.
fn all(held: &Held) -> Vec<Part> {
    let own = held.own.as_ref().map(|(id, ..)| *id);
    let listed = held.current.keys().copied();
    let others = listed.filter(|id| Some(*id) != own);
    let ids = own.into_iter().chain(others);
    ids.filter_map(|id| descriptor(held, &id)).collect()
}

/// The extra-info document that belongs to a descriptor.
fn extra_info_of(held: &Held, descriptor: &Part) -> Option<Part> {
    match descriptor {
        Part::Text(_) => {
            let (_, _, own) = held.own.as_ref()?;
            Some(Part::Text(own.as_ref()?.text.clone()))
        }
        Part::Stored(stored) => {
            let found = held.extra_infos.get(&stored.extra_info?)?;
            Some(Part::Stored(found.clone()))
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
    match part {
        Part::Text(text) => Some(text.as_bytes().to_vec()),
        Part::Stored(stored) => stored.read().ok(),
    }
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
