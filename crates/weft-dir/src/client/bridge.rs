//! The descriptor of a bridge, of which no consensus has anything: asked of itself (dir-spec 6, `/tor/server/authority`).

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use weft_datadir::files::DataFile;

use tor_checkable::{SelfSigned as _, TimeBound as _};
use tor_llcrypto::pk::ed25519::Ed25519Identity;
use tor_llcrypto::pk::rsa::RsaIdentity;
use tor_netdoc::doc::routerdesc::RouterDesc;
use tor_protover::Protocols;

use super::asking::{Answered, ask};
use super::options::DirServer;
use super::sources::Candidate;
use super::streams::{DirOutcome, DirSource, DirStreams};
use crate::cache::{self, CacheError};
use crate::clock::Clock;
use crate::descriptor::MAX_ROUTER_DESCRIPTOR;
use crate::descriptors::{DocumentKind, split};
use crate::http::{Limits, Request, Response};

/// Where a relay has its own descriptor.
const PATH: &str = "/tor/server/authority";

/// File name of the descriptors of a client's bridges. C tor has them in `cached-descriptors`, which a relay of Weft serves to anybody.
const KEPT: &str = DataFile::BridgeDescriptors.name();

/// As many are read of it.
const MOST_KEPT: usize = 256;

/// The contents of a bridge's descriptor.
#[derive(Clone, Debug)]
pub struct BridgeDescriptor {
    /// Its name.
    pub nickname: String,
    /// Digest of its RSA identity.
    pub rsa: RsaIdentity,
    /// Its ed25519 identity.
    pub ed25519: Ed25519Identity,
    /// Its onion key.
    pub ntor: [u8; 32],
    /// Its subprotocols.
    pub protocols: Protocols,
    /// Relays that it calls its family; it is among them if there are any.
    pub family: Vec<RsaIdentity>,
    /// Families whose keys certify it, as microdescriptors write them.
    pub family_ids: Vec<String>,
    /// The document.
    pub text: String,
}

/// Asks a bridge for its descriptor.
///
/// # Errors
///
/// Why there is none, for the log.
pub async fn fetch_bridge(
    streams: Arc<dyn DirStreams>,
    bridge: DirServer,
    max_stall: Duration,
    clock: Arc<dyn Clock>,
) -> Result<BridgeDescriptor, String> {
    let candidate = Candidate {
        index: None,
        source: DirSource::Server(bridge),
        after: Duration::ZERO,
        not_earlier: false,
    };
    let limits = Limits {
        body: MAX_ROUTER_DESCRIPTOR,
        decompressed: MAX_ROUTER_DESCRIPTOR,
        ..Limits::with_stall(max_stall)
    };
    let request = Request::get(PATH.to_owned());
    let asked = ask(
        streams.clone(),
        vec![candidate],
        1,
        request,
        limits,
        clock.clone(),
        || (),
    );
    let asked = asked.await;
    let Some(Answered { token, result, .. }) = asked.answered else {
        let mut why = asked.unreachable.into_iter();
        let why = why.next().map(|(_, error)| error.to_string());
        return Err(why.unwrap_or_else(|| "it cannot be reached".to_owned()));
    };
    let descriptor = match result {
        Ok(Response {
            status: 200, body, ..
        }) => parse_bridge_descriptor(&body, clock.wall()),
        Ok(Response { status, reason, .. }) => Err(format!("it answered {status} {reason}")),
        Err(error) => Err(error.to_string()),
    };
    let outcome = match &descriptor {
        Ok(_) => DirOutcome::Good,
        Err(_) => DirOutcome::Bad,
    };
    streams.outcome(token, outcome);
    descriptor
}

/// Reads a descriptor, and checks that its relay signed it and that it is of these days.
///
/// # Errors
///
/// What is wrong with it.
pub fn parse_bridge_descriptor(body: &[u8], now: SystemTime) -> Result<BridgeDescriptor, String> {
    let text = std::str::from_utf8(body).map_err(|_| "its descriptor is no text".to_owned())?;
    let wrong = |why: &dyn std::fmt::Display| format!("its descriptor is wrong: {why}");
    // Where it is kept another one may follow, and what begins otherwise would count to that.
    if !text.starts_with("router ") {
        return Err(wrong(&"it does not begin with its router"));
    }
    let signed = RouterDesc::parse(text)
        .map_err(|error| wrong(&error))?
        .check_signature()
        .map_err(|error| wrong(&error))?;
    let descriptor = signed.if_valid_at(&now).map_err(|error| wrong(&error))?;
    Ok(BridgeDescriptor {
        nickname: nickname(text)
            .ok_or_else(|| wrong(&"it has no nickname"))?
            .to_owned(),
        rsa: descriptor.rsa_identity(),
        ed25519: *descriptor.ed_identity(),
        ntor: *descriptor.ntor_onion_key().as_bytes(),
        protocols: descriptor.protocols().clone(),
        family: descriptor.family().members().copied().collect(),
        family_ids: descriptor
            .family_ids()
            .as_ref()
            .iter()
            .map(ToString::to_string)
            .collect(),
        text: text.to_owned(),
    })
}

/// Reads the descriptors that were kept in CacheDirectory, except those that have become invalid or
/// were cut off.
///
/// # Errors
///
/// The file cannot be read.
pub fn read_bridges(
    directory: &Path,
    now: SystemTime,
) -> Result<Vec<BridgeDescriptor>, CacheError> {
    let bytes = cache::read_bytes(directory, KEPT)?.unwrap_or_default();
    let pieces = split(DocumentKind::Descriptor, &bytes).take(MOST_KEPT);
    let parsed = pieces.filter_map(|piece| parse_bridge_descriptor(piece.bytes, now).ok());
    Ok(parsed.collect())
}

/// Keeps descriptors in CacheDirectory, in place of those that were there.
///
/// # Errors
///
/// The file cannot be written.
pub fn keep_bridges<'a>(
    directory: &Path,
    descriptors: impl Iterator<Item = &'a BridgeDescriptor>,
) -> Result<(), CacheError> {
    let texts: String = descriptors.map(|one| one.text.as_str()).collect();
    cache::write(directory, KEPT, texts)
}

/// The nickname in a descriptor; tor-netdoc has read the same line, and shows it to nobody.
fn nickname(text: &str) -> Option<&str> {
    let mut words = text
        .lines()
        .map(str::split_ascii_whitespace)
        .find_map(|mut words| (words.next() == Some("router")).then_some(words));
    let name = words.as_mut().and_then(Iterator::next);
    // dir-spec 2.1.1.
    let is_nickname = |name: &&str| {
        (1..=19).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    name.filter(is_nickname)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{moment, now, relay};

    fn text(number: u64) -> String {
        relay(number).sign(&moment()).unwrap().router
    }

    #[test]
    fn a_descriptor_has_what_a_circuit_needs() {
        let parsed = parse_bridge_descriptor(text(1).as_bytes(), now()).unwrap();
        assert_eq!(parsed.rsa, relay(1).rsa_id());
        assert_eq!(parsed.nickname, relay(1).nickname);
        assert!(parsed.protocols.supports_subver("Relay", 2));
    }

    #[test]
    fn what_was_kept_is_read_again_but_for_what_is_wrong_or_old() {
        let folder = tempfile::tempdir().unwrap();
        let read = |at| read_bridges(folder.path(), at).unwrap();
        assert!(read(now()).is_empty());
        let parse = |number| parse_bridge_descriptor(text(number).as_bytes(), now()).unwrap();
        let both = [parse(1), parse(2)];
        keep_bridges(folder.path(), both.iter()).unwrap();
        let ids =
            |all: Vec<BridgeDescriptor>| -> Vec<_> { all.iter().map(|one| one.rsa).collect() };
        assert_eq!(ids(read(now())), [both[0].rsa, both[1].rsa]);
        assert!(read(now() + Duration::from_secs(21 * 86_400)).is_empty());
        // A disk that is full, or another hand.
        let file = folder.path().join(KEPT);
        let whole = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, &whole[..whole.len() - 9]).unwrap();
        assert_eq!(ids(read(now())), [both[0].rsa]);
        std::fs::write(&file, whole.replacen("uptime 77", "uptime 78", 1)).unwrap();
        assert_eq!(ids(read(now())), [both[1].rsa]);
        std::fs::write(&file, [0xff; 9]).unwrap();
        assert!(read(now()).is_empty());
        keep_bridges(folder.path(), both[1..].iter()).unwrap();
        assert_eq!(ids(read(now())), [both[1].rsa]);
    }

    #[test]
    fn a_nickname_is_the_word_behind_router_whatever_is_between() {
        // Only the name is looked at here: the signature does not fit.
        let text = text(1);
        let name = relay(1).nickname;
        for (line, good) in [("router\t", true), ("router  ", true), ("router x", false)] {
            let changed = text.replacen("router ", line, 1);
            assert_eq!(nickname(&changed) == Some(name.as_str()), good, "{line}");
        }
        for bad in [
            "router a_b 1\n",
            "router\n",
            "router aaaaaaaaaaaaaaaaaaaa 1\n",
            "",
        ] {
            assert!(nickname(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn what_nobody_signed_is_no_descriptor_nor_what_is_of_other_days() {
        let good = text(1);
        let why = |text: &str, at| parse_bridge_descriptor(text.as_bytes(), at).unwrap_err();
        for bad in [
            good.replace("uptime 77", "uptime 78"),
            good.replace("router ", "rooter "),
            String::new(),
            good[..good.len() / 2].to_owned(),
        ] {
            assert!(why(&bad, now()).starts_with("its descriptor is wrong"));
        }
        assert_eq!(
            parse_bridge_descriptor(&[0xff; 9], now()).unwrap_err(),
            "its descriptor is no text"
        );
        let weeks = Duration::from_secs(21 * 86_400);
        assert!(why(&good, now() + weeks).starts_with("its descriptor is wrong"));
        assert!(why(&good, now() - weeks).starts_with("its descriptor is wrong"));
    }
}
