//! A consensus of one authority, in both flavours, written and signed (dir-spec 3.4, 3.9; in C
//! tor's order and words, `networkstatus_compute_consensus`).

use std::fmt::Write as _;
use std::time::Duration;

use base64ct::{Base64Unpadded, Encoding as _};
use digest::Digest as _;
use tor_llcrypto::d::{Sha1, Sha256};
use tor_netdoc::types::Iso8601TimeSp;

use super::config::{AuthorityConfig, Lifetime};
use super::keys::AuthorityKeyError;
use super::keys::AuthorityKeys;
use super::router::{Router, signature_object};
use super::weights::{SCALE, Totals};

/// The consensus method whose documents these are (C tor 0.4.9's newest).
const METHOD: u32 = 35;
/// A descriptor this old is listed as stale, so that its relay makes a new one (C tor `DESC_IS_STALE_INTERVAL`).
const STALE: Duration = Duration::from_secs(18 * 3600);
/// The publication time of every entry of a microdesc consensus (method 33).
const NO_TIME: &str = "2038-01-01 00:00:00";
/// What nodes should and must speak: what everything that still runs speaks.
const PROTOCOLS: &str = "\
recommended-client-protocols Cons=2 Desc=2 Link=4-5 Microdesc=2 Relay=2
recommended-relay-protocols Cons=2 Desc=2 Link=4-5 LinkAuth=3 Microdesc=2 Relay=2
required-client-protocols Cons=2 Desc=2 Link=4 Microdesc=2 Relay=2
required-relay-protocols Desc=2 Link=4 LinkAuth=3 Relay=2
";

/// The flavours of a consensus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flavour {
    /// With descriptors' digests.
    Ns,
    /// With microdescriptors' digests.
    Microdesc,
}

/// One flavour of the consensus of these routers (sorted by identity), signed.
pub(super) fn write(
    flavour: Flavour,
    config: &AuthorityConfig,
    keys: &AuthorityKeys,
    routers: &[&Router],
    lifetime: Lifetime,
) -> Result<String, AuthorityKeyError> {
    let mut text = String::new();
    let written = document(&mut text, flavour, config, keys, routers, lifetime);
    // Writing into a String cannot fail.
    let making = |why: &str| AuthorityKeyError::Making(why.to_owned());
    written.map_err(|_| making("a consensus cannot be written"))?;
    let ids = format!(
        "{} {}",
        hex::encode_upper(keys.identity().as_bytes()),
        hex::encode_upper(keys.signing_id().as_bytes())
    );
    let signed = format!("{text}directory-signature ");
    let (algorithm, signature) = match flavour {
        Flavour::Ns => ("", keys.sign(&Sha1::digest(&signed))),
        Flavour::Microdesc => ("sha256 ", keys.sign(&Sha256::digest(&signed))),
    };
    let signature = signature.ok_or_else(|| making("the signing key does not sign"))?;
    Ok(format!(
        "{signed}{algorithm}{ids}\n{}",
        signature_object(&signature)
    ))
}

fn document(
    text: &mut String,
    flavour: Flavour,
    config: &AuthorityConfig,
    keys: &AuthorityKeys,
    routers: &[&Router],
    lifetime: Lifetime,
) -> std::fmt::Result {
    let name = match flavour {
        Flavour::Ns => "",
        Flavour::Microdesc => " microdesc",
    };
    write!(
        text,
        "network-status-version 3{name}\nvote-status consensus\nconsensus-method {METHOD}\n\
         valid-after {}\nfresh-until {}\nvalid-until {}\nvoting-delay {} {}\n\
         client-versions\nserver-versions\n\
         known-flags Authority BadExit Exit Fast Guard HSDir MiddleOnly NoEdConsensus Running \
         Stable StaleDesc Sybil V2Dir Valid\n{PROTOCOLS}",
        Iso8601TimeSp::from(lifetime.valid_after),
        Iso8601TimeSp::from(lifetime.fresh_until),
        Iso8601TimeSp::from(lifetime.valid_until),
        config.vote_delay.as_secs(),
        config.dist_delay.as_secs(),
    )?;
    if !config.params.is_empty() {
        let params: Vec<String> = config
            .params
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        writeln!(text, "params {}", params.join(" "))?;
    }
    let id = hex::encode_upper(keys.identity().as_bytes());
    // There was no vote to name; the digest of what would have been in it is as good.
    let vote = hex::encode_upper(Sha1::digest(text.as_bytes()));
    writeln!(
        text,
        "dir-source {} {id} {ip} {ip} {} {}\ncontact {}\nvote-digest {vote}",
        config.nickname,
        config.dir_port,
        config.or_port,
        config.contact.as_deref().unwrap_or("(none)"),
        ip = config.address,
    )?;
    let guards = Guards::of(config, routers);
    let mut totals = Totals::default();
    for router in routers {
        entry(
            text,
            flavour,
            config,
            router,
            &guards,
            lifetime,
            &mut totals,
        )?;
    }
    writeln!(text, "directory-footer")?;
    let scale = config.params.get("bwweightscale").copied();
    let scale = scale.filter(|scale| *scale > 0).map_or(SCALE, i64::from);
    if let Some(weights) = totals.weights(scale) {
        writeln!(text, "bandwidth-weights {weights}")?;
    }
    Ok(())
}

fn entry(
    text: &mut String,
    flavour: Flavour,
    config: &AuthorityConfig,
    router: &Router,
    guards: &Guards,
    lifetime: Lifetime,
    totals: &mut Totals,
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
    if let Some(ipv6) = router.ipv6 {
        writeln!(text, "a {ipv6}")?;
    }
    if flavour == Flavour::Microdesc {
        let digest = Base64Unpadded::encode_string(&router.microdesc_digest);
        writeln!(text, "m {digest}")?;
    }
    let guard = guards.has(config, router);
    let exit = config.exits.grants(&router.rsa, router.general_exit);
    let directory = router.directory;
    let hidden = directory
        && router.hidden_service_dir
        && router.uptime(lifetime.valid_after) >= config.hs_dir_min_uptime;
    let stale = router.published + STALE < lifetime.valid_after;
    let flags = [
        ("Authority", router.rsa == config.identity),
        ("Exit", exit),
        ("Fast", true),
        ("Guard", guard),
        (
            "HSDir",
            config.hidden_service_dirs.grants(&router.rsa, hidden),
        ),
        ("Running", true),
        ("Stable", true),
        ("StaleDesc", stale),
        ("V2Dir", directory),
        ("Valid", true),
    ];
    write!(text, "s")?;
    for (flag, _) in flags.iter().filter(|(_, has)| *has) {
        write!(text, " {flag}")?;
    }
    writeln!(text)?;
    if let Some(version) = &router.version {
        writeln!(text, "v {version}")?;
    }
    if !router.protocols.is_empty() {
        writeln!(text, "pr {}", router.protocols)?;
    }
    let bandwidth = bandwidth(config, router);
    totals.add(guard, exit, bandwidth);
    writeln!(text, "w Bandwidth={bandwidth}")?;
    if flavour == Flavour::Ns {
        writeln!(text, "p {}", router.summary)?;
    }
    Ok(())
}

/// What a relay's bandwidth counts, in kilobytes per second. A relay that has just started claims
/// none; where all had none, relays could not be weighed.
fn bandwidth(config: &AuthorityConfig, router: &Router) -> u64 {
    let measured = config.bandwidths.get(&router.rsa).copied();
    measured.unwrap_or(router.bandwidth).max(1)
}

/// Which relays may be guards.
struct Guards {
    /// The bandwidth that half of the relays have.
    median: u64,
}

impl Guards {
    fn of(config: &AuthorityConfig, routers: &[&Router]) -> Self {
        let mut all: Vec<u64> = routers
            .iter()
            .map(|router| bandwidth(config, router))
            .collect();
        all.sort_unstable();
        Self {
            median: all.get(all.len() / 2).copied().unwrap_or(0),
        }
    }

    fn has(&self, config: &AuthorityConfig, router: &Router) -> bool {
        let worthy = router.directory && bandwidth(config, router) >= self.median;
        config.guards.grants(&router.rsa, worthy)
    }
}
