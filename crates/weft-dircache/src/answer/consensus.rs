//! Requests for consensuses and for diffs to them (C tor `handle_get_current_consensus`).

use std::time::SystemTime;

use tor_netdoc::doc::netstatus::ConsensusFlavor;
use weft_dir::consdiff::ConsensusDigest;
use weft_dir::consensus::REASONABLY_LIVE;
use weft_dir::documents::Held;

use super::found::{Found, NOT_FOUND};
use crate::named::signed_by;
use crate::request::Request;

/// Nothing has changed.
const NOT_MODIFIED: Found = Found::Short(304, "Not modified");

/// The consensus that the rest of a path asks for.
#[derive(Debug, PartialEq)]
struct Asked<'a> {
    flavour: ConsensusFlavor,
    /// A diff from this consensus, and nothing else. An error: it names none.
    diff: Option<Result<ConsensusDigest, ()>>,
    /// The authorities of which more than half must have signed it.
    signers: Option<&'a str>,
}

impl<'a> Asked<'a> {
    /// `[-FLAVOUR][/FINGERPRINTS]` or `[-FLAVOUR]/diff/DIGEST[/FINGERPRINTS]`; anything else asks for the flavour
    /// `ns`, as an unknown flavour does.
    fn read(rest: &'a str) -> Self {
        let (flavour, rest) = match rest.strip_prefix('-') {
            Some(named) => match named.split_once('/') {
                Some((flavour, rest)) => (flavour, Some(rest)),
                None => (named, None),
            },
            None => ("ns", rest.strip_prefix('/')),
        };
        let flavour = match flavour {
            "microdesc" => ConsensusFlavor::Microdesc,
            _ => ConsensusFlavor::Plain,
        };
        let (diff, signers) = match rest.and_then(|rest| rest.strip_prefix("diff/")) {
            None => (None, rest),
            Some(rest) => {
                let (digest, signers) = match rest.split_once('/') {
                    Some((digest, signers)) => (digest, Some(signers)),
                    None => (rest, None),
                };
                (Some(ConsensusDigest::from_hex(digest).ok_or(())), signers)
            }
        };
        Self {
            flavour,
            diff,
            signers,
        }
    }
}

/// The answer to a request for `/tor/status-vote/current/consensus` and `rest`.
pub(super) fn find(held: &Held, rest: &str, request: &Request, now: SystemTime) -> Found {
    let asked = Asked::read(rest);
    let one;
    let has: &[ConsensusDigest] = match asked.diff {
        None => &request.has,
        Some(Err(())) => return Found::Short(404, "Couldn't parse request"),
        Some(Ok(digest)) => {
            one = [digest];
            &one
        }
    };
    let consensus = held.consensuses.get(&asked.flavour);
    if consensus.is_some_and(|consensus| has.contains(&consensus.digest)) {
        return NOT_MODIFIED;
    }
    let diff =
        consensus.and_then(|consensus| has.iter().find_map(|from| consensus.diffs.get(from)));
    if asked.diff.is_some() && diff.is_none() {
        return Found::Short(404, "No such diff available");
    }
    let Some(consensus) = consensus else {
        return NOT_FOUND;
    };
    let status = &consensus.status;
    if status.valid_after > now + REASONABLY_LIVE {
        return Found::Short(404, "Consensus is too new");
    }
    if status.valid_until + REASONABLY_LIVE < now {
        return Found::Short(404, "Consensus is too old");
    }
    if (asked.signers).is_some_and(|signers| !signed_by(&status.signers, signers)) {
        return Found::Short(
            404,
            "Consensus not signed by sufficient number of requested authorities",
        );
    }
    if request
        .since
        .is_some_and(|since| status.valid_after < since)
    {
        return NOT_MODIFIED;
    }
    let whole = asked.diff.is_none().then_some(&consensus.forms);
    let documents = diff.into_iter().chain(whole).cloned().collect();
    let fresh = status.fresh_until.duration_since(now);
    Found::Stored(documents, fresh.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_as_c_tor_reads_them() {
        use ConsensusFlavor::{Microdesc, Plain};
        let hex = "AB".repeat(32);
        let digest = ConsensusDigest([0xab; 32]);
        for (rest, flavour, diff, signers) in [
            ("", Plain, None, None),
            ("x", Plain, None, None),
            ("/14C1", Plain, None, Some("14C1")),
            ("-ns", Plain, None, None),
            ("-other/14C1", Plain, None, Some("14C1")),
            ("-microdesc", Microdesc, None, None),
            ("-microdesc/", Microdesc, None, Some("")),
            ("-microdesc/14+C1", Microdesc, None, Some("14+C1")),
            ("/diff/AB/14", Plain, Some(Err(())), Some("14")),
            (&format!("/diff/{hex}"), Plain, Some(Ok(digest)), None),
            (
                &format!("-microdesc/diff/{hex}/14/x"),
                Microdesc,
                Some(Ok(digest)),
                Some("14/x"),
            ),
        ] {
            let asked = Asked {
                flavour,
                diff,
                signers,
            };
            assert_eq!(Asked::read(rest), asked, "{rest}");
        }
    }
}
