//! The clients' view of the network: a consensus with microdescriptors, as `tor-netdir` holds them.
//!
//! The documents are written as text and read again, so that path selection meets what it meets in a node.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64ct::{Base64Unpadded, Encoding as _};
use tor_checkable::{ExternallySigned as _, TimeBound as _};
use tor_netdir::{MdReceiver as _, NetDir, PartialNetDir};
use tor_netdoc::doc::microdesc::MicrodescAndHash;
use tor_netdoc::doc::netstatus::MdConsensus;
use tor_netdoc::types::Iso8601TimeSp;
use weft_client::{ConfluxParams, PathParams};
use weft_crypto::handshake::OnionKeys;
use weft_path::PathBiasOptions;
use weft_sim::network::{Flags, Relay as Listed};
use weft_sim::read::computed_weights;
use weft_sim::write::bandwidth_weights;

use crate::setup::{Directory, Relay};

/// When a run begins: 2026-01-01 00:30:00.
const EPOCH: Duration = Duration::from_secs(1_767_227_400);
/// Consensuses are made half an hour before, and valid for longer than the longest run.
const AGE: Duration = Duration::from_secs(1_800);
const VALID: Duration = Duration::from_secs(3 * 86_400);
/// Denominator of bandwidth weights.
const SCALE: u32 = 10_000;
/// The consensus method whose rules make the weights.
const METHOD: u32 = 33;
/// Subprotocols of Weft's relays (`weft-node/src/relay/descriptor.rs`), and those of directories.
const PROTOCOLS: &str = "Conflux=1 Cons=2 Desc=2 DirCache=2 FlowCtrl=1-2 Link=4-5 LinkAuth=3 Microdesc=2 Relay=2-6 WeftAbra=1";

/// Additional subprotocol of relays at which tunnels of mTor may end.
const MTOR: &str = "WeftMtor=1";

/// The documents of these relays, and what follows from their parameters. With `sendme_inc` circuits have congestion
/// control. With `mtor` tunnels may end at them.
pub(super) fn directory(
    listed: &[&Listed],
    relays: &[Relay],
    sendme_inc: Option<u8>,
    mtor: bool,
) -> Result<Directory, String> {
    let microdescs: Vec<MicrodescAndHash> = listed
        .iter()
        .zip(relays)
        .map(|(listed, relay)| microdesc(listed, relay))
        .collect::<Result<_, _>>()?;
    let text = consensus(listed, &microdescs, sendme_inc, mtor)?;
    let netdir = netdir(&text, microdescs)?;
    Ok(Directory {
        netdir: Arc::new(netdir),
        params: PathParams {
            bias: PathBiasOptions::default(),
            congestion: sendme_inc,
            conflux: ConfluxParams::default(),
        },
        epoch: SystemTime::UNIX_EPOCH + EPOCH,
    })
}

fn microdesc(listed: &Listed, relay: &Relay) -> Result<MicrodescAndHash, String> {
    let keys = OnionKeys::new(relay.rsa, relay.ed25519, &relay.onion_key, None);
    let mut text = format!(
        "onion-key\nntor-onion-key {}\n",
        Base64Unpadded::encode_string(&keys.current_public())
    );
    if let Some(policy) = &listed.policy {
        text += &format!("p {policy}\n");
    }
    text += &format!(
        "id ed25519 {}\n",
        Base64Unpadded::encode_string(relay.ed25519.as_ref())
    );
    MicrodescAndHash::parse(&text)
        .map_err(|error| format!("the microdescriptor of {}: {error}", listed.nickname))
}

/// A consensus of microdescriptors. Its one signature is none.
fn consensus(
    listed: &[&Listed],
    microdescs: &[MicrodescAndHash],
    sendme_inc: Option<u8>,
    mtor: bool,
) -> Result<String, String> {
    let made = SystemTime::UNIX_EPOCH + EPOCH - AGE;
    let [from, fresh, until] =
        [Duration::ZERO, VALID / 2, VALID].map(|later| Iso8601TimeSp::from(made + later));
    let zeros = "0".repeat(40);
    let params = match sendme_inc {
        Some(increment) => format!("cc_alg=2 cc_sendme_inc={increment}"),
        None => "cc_alg=0".to_owned(),
    };
    let protocols = match mtor {
        true => format!("{PROTOCOLS} {MTOR}"),
        false => PROTOCOLS.to_owned(),
    };
    let flags: Vec<&str> = Flags::all().map(|(_, name)| name).collect();
    let mut text = format!(
        "network-status-version 3 microdesc\nvote-status consensus\nconsensus-method {METHOD}\n\
         valid-after {from}\nfresh-until {fresh}\nvalid-until {until}\nvoting-delay 300 300\n\
         client-versions\nserver-versions\nknown-flags {}\n\
         recommended-client-protocols Link=4\nrecommended-relay-protocols Link=4\n\
         required-client-protocols Link=4\nrequired-relay-protocols Link=4\nparams {params}\n\
         dir-source virtual {zeros} 127.0.0.1 127.0.0.1 7000 7001\ncontact nobody\nvote-digest {zeros}\n",
        in_order(flags).join(" "),
    );
    let mut entries: Vec<(&&Listed, &MicrodescAndHash)> = listed.iter().zip(microdescs).collect();
    entries.sort_by_key(|(relay, _)| relay.fingerprint);
    for (relay, microdesc) in entries {
        let flags = Flags::all().filter(|(flag, _)| relay.flags.has(*flag));
        let flags = in_order(flags.map(|(_, name)| name).collect());
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "r {} {} 2038-01-01 00:00:00 {} {} 0\nm {}\ns {}\nv Tor 0.4.9.1\npr {protocols}\n\
             w Bandwidth={}\n",
            relay.nickname,
            Base64Unpadded::encode_string(&relay.fingerprint),
            relay.address,
            relay.or_port,
            Base64Unpadded::encode_string(microdesc.digest()),
            flags.join(" "),
            relay.bandwidth.min(u64::from(u32::MAX)),
        );
    }
    text.push_str("directory-footer\n");
    let all: Vec<Listed> = listed.iter().map(|relay| (*relay).clone()).collect();
    let weights = computed_weights(&all, METHOD, SCALE)
        .ok_or("there are no bandwidth-weights for it: a class of relays has no bandwidth")?;
    bandwidth_weights(&mut text, &weights);
    let _ = write!(
        text,
        "directory-signature sha256 {zeros} {zeros}\n-----BEGIN SIGNATURE-----\nAAAA\n\
         -----END SIGNATURE-----\n"
    );
    Ok(text)
}

/// Flags are in alphabetical order.
fn in_order(mut flags: Vec<&str>) -> Vec<&str> {
    flags.sort_unstable();
    flags
}

fn netdir(consensus: &str, microdescs: Vec<MicrodescAndHash>) -> Result<NetDir, String> {
    let (_, _, unchecked) = MdConsensus::parse(consensus)
        .map_err(|error| format!("the consensus that was made of it: {error}"))?;
    // We made it ourselves: no authority has signed it, and it is valid when the run begins.
    let consensus = unchecked
        .dangerously_assume_timely()
        .dangerously_assume_wellsigned();
    let mut partial = PartialNetDir::new(consensus, None);
    for microdesc in microdescs {
        partial.add_microdesc(microdesc);
    }
    partial.unwrap_if_sufficient().map_err(|_| {
        "it has too few guards, middle relays or exits with bandwidth for paths".to_owned()
    })
}
