//! A consensus of one authority, in both flavours, written and signed (dir-spec 3.4, 3.9; in C
//! tor's order and words, `networkstatus_compute_consensus`).

use std::fmt::Write as _;

use base64ct::{Base64Unpadded, Encoding as _};
use digest::Digest as _;
use tor_llcrypto::d::{Sha1, Sha256};
use tor_netdoc::types::Iso8601TimeSp;
use weft_config::GrantedFlag;
use weft_policy::{BandwidthTotals, WEIGHT_SCALE};

use crate::config::{AuthorityConfig, Lifetime};
use crate::keys::{AuthorityKeyError, AuthorityKeys};
use crate::router::{Router, signature_object};

/// The consensus method whose documents these are: that of C tor 0.4.9.12, whose microdescriptors need no TAP key.
const METHOD: u32 = 36;
/// The consensus method with AuthDirSupport048Clients.
const METHOD_WITH_TAP: u32 = 35;
/// The publication time of every entry of a microdesc consensus (method 33).
const NO_TIME: &str = "2038-01-01 00:00:00";
/// Recommended and required subprotocols, as C tor 0.4.9.11's authorities vote for them. No
/// document at hand lists those that 0.4.9.12 recommends besides.
const PROTOCOLS: &str = "\
recommended-client-protocols Cons=2 Desc=2 DirCache=2 FlowCtrl=1-2 HSDir=2 HSIntro=4 HSRend=2 Link=4-5 Microdesc=2 Relay=2-4
recommended-relay-protocols Cons=2 Desc=2 DirCache=2 FlowCtrl=1-2 HSDir=2 HSIntro=4-5 HSRend=2 Link=4-5 LinkAuth=3 Microdesc=2 Relay=2-4
required-client-protocols Cons=2 Desc=2 FlowCtrl=1 Link=4 Microdesc=2 Relay=2
required-relay-protocols Cons=2 Desc=2 DirCache=2 FlowCtrl=1-2 HSDir=2 HSIntro=4-5 HSRend=2 Link=4-5 LinkAuth=3 Microdesc=2 Relay=2-4
";

/// The flavours of a consensus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavour {
    /// With descriptors' digests.
    Ns,
    /// With microdescriptors' digests.
    Microdesc,
}

/// One flavour of the consensus of these relays (sorted by identity), signed.
pub(crate) fn write(
    flavour: Flavour,
    config: &AuthorityConfig,
    keys: &AuthorityKeys,
    relays: &[&Router],
    lifetime: Lifetime,
) -> Result<String, AuthorityKeyError> {
    let mut text = String::new();
    let written = document(&mut text, flavour, config, keys, relays, lifetime);
    // Writing into a String cannot fail.
    let making = |why: &str| AuthorityKeyError::Making(why.to_owned());
    written.map_err(|_| making("a consensus cannot be written"))?;
    text += "directory-signature ";
    let (digest, algorithm) = match flavour {
        Flavour::Ns => (Sha1::digest(&text).to_vec(), ""),
        Flavour::Microdesc => (Sha256::digest(&text).to_vec(), "sha256 "),
    };
    let signature = keys.sign(&digest);
    let signature = signature.ok_or_else(|| making("the signing key does not sign"))?;
    text += &format!(
        "{algorithm}{} {}\n{}",
        hex::encode_upper(keys.identity().as_bytes()),
        hex::encode_upper(keys.signing_id().as_bytes()),
        signature_object(&signature)
    );
    Ok(text)
}

fn document(
    text: &mut String,
    flavour: Flavour,
    config: &AuthorityConfig,
    keys: &AuthorityKeys,
    relays: &[&Router],
    lifetime: Lifetime,
) -> std::fmt::Result {
    let name = match flavour {
        Flavour::Ns => "",
        Flavour::Microdesc => " microdesc",
    };
    let options = &config.options;
    let method = match options.needs_tap {
        true => METHOD_WITH_TAP,
        false => METHOD,
    };
    write!(
        text,
        "network-status-version 3{name}\nvote-status consensus\nconsensus-method {method}\n\
         valid-after {}\nfresh-until {}\nvalid-until {}\nvoting-delay {} {}\n\
         client-versions\nserver-versions\n\
         known-flags Authority Exit Fast Guard HSDir Running Stable V2Dir Valid\n{PROTOCOLS}",
        Iso8601TimeSp::from(lifetime.valid_after),
        Iso8601TimeSp::from(lifetime.fresh_until),
        Iso8601TimeSp::from(lifetime.valid_until),
        options.vote_delay.as_secs(),
        options.dist_delay.as_secs(),
    )?;
    if !options.params.is_empty() {
        let params = options.params.iter();
        let params = params.map(|(name, value)| format!("{name}={value}"));
        writeln!(text, "params {}", Vec::from_iter(params).join(" "))?;
    }
    // There was no vote to name; the digest of what would have been in it is as good.
    let vote = hex::encode_upper(Sha1::digest(text.as_bytes()));
    writeln!(
        text,
        "dir-source {} {} {ip} {ip} {} {}\ncontact {}\nvote-digest {vote}",
        config.nickname,
        hex::encode_upper(keys.identity().as_bytes()),
        config.dir_port,
        config.or_port,
        config.contact.as_deref().unwrap_or("(none)"),
        ip = config.address,
    )?;
    let mut totals = BandwidthTotals::of_method(method);
    for router in relays {
        entry(text, flavour, config, router, &mut totals)?;
    }
    writeln!(text, "directory-footer")?;
    let scale = options.params.get("bwweightscale").copied();
    let scale = scale.and_then(|scale| u32::try_from(scale).ok());
    let scale = scale.filter(|scale| *scale > 0).unwrap_or(WEIGHT_SCALE);
    let weights = totals.weights(scale);
    if let Some(weights) = weights.filter(|weights| weights.is_balanced) {
        writeln!(text, "bandwidth-weights {weights}")?;
    }
    Ok(())
}

fn entry(
    text: &mut String,
    flavour: Flavour,
    config: &AuthorityConfig,
    router: &Router,
    totals: &mut BandwidthTotals,
) -> std::fmt::Result {
    let id = Base64Unpadded::encode_string(router.rsa.as_bytes());
    let published = Iso8601TimeSp::from(router.published).to_string();
    let digest = Base64Unpadded::encode_string(&router.digest);
    // Our own descriptor has no DirPort, which relays go on to ask.
    let dir_port = match router.rsa == config.identity {
        true => config.dir_port,
        false => router.dir_port,
    };
    let (digest, published) = match flavour {
        Flavour::Ns => (format!(" {digest}"), published.as_str()),
        Flavour::Microdesc => (String::new(), NO_TIME),
    };
    writeln!(
        text,
        "r {} {id}{digest} {published} {} {} {}",
        router.nickname, router.ip, router.or_port, dir_port
    )?;
    if let Some(ipv6) = router.ipv6.filter(|_| config.options.ipv6) {
        writeln!(text, "a {ipv6}")?;
    }
    if flavour == Flavour::Microdesc {
        let digest = Base64Unpadded::encode_string(&router.microdesc_digest);
        writeln!(text, "m {digest}")?;
    }
    let options = &config.options;
    let granted = |to: &GrantedFlag, deserved| to.grants(&router.rsa.into(), deserved);
    let is_guard = granted(&options.guards, router.directory);
    let is_exit = granted(&options.exits, router.general_exit);
    let serves_onions = router.directory && router.hidden_service_dir;
    write!(text, "s")?;
    for (flag, has) in [
        ("Authority", router.rsa == config.identity),
        ("Exit", is_exit),
        ("Fast", true),
        ("Guard", is_guard),
        (
            "HSDir",
            granted(&options.hidden_service_dirs, serves_onions),
        ),
        ("Running", true),
        ("Stable", true),
        ("V2Dir", router.directory),
        ("Valid", true),
    ] {
        if has {
            write!(text, " {flag}")?;
        }
    }
    writeln!(text)?;
    if let Some(version) = &router.version {
        writeln!(text, "v {version}")?;
    }
    if !router.protocols.is_empty() {
        writeln!(text, "pr {}", router.protocols)?;
    }
    let measured = config.bandwidths.get(&router.rsa);
    let bandwidth = measured.copied().unwrap_or(router.bandwidth).max(1);
    totals.add(is_guard, is_exit, bandwidth);
    writeln!(text, "w Bandwidth={bandwidth}")?;
    if flavour == Flavour::Ns {
        writeln!(text, "p {}", router.summary)?;
    }
    Ok(())
}
