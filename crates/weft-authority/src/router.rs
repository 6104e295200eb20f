//! One relay as an authority knows it: its descriptor, checked, and what follows from it.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64ct::{Base64, Base64Unpadded, Encoding as _};
use digest::Digest as _;
use tor_checkable::{SelfSigned as _, TimeBound as _};
use tor_llcrypto::d::Sha256;
use tor_llcrypto::pk::ed25519::Ed25519Identity;
use tor_llcrypto::pk::rsa::RsaIdentity;
use tor_netdoc::doc::routerdesc::RouterDesc;
use tor_netdoc::types::policy::{IpPattern, RuleKind};
use weft_dir::descriptor::{MAX_EXTRA_INFO, MAX_ROUTER_DESCRIPTOR, signed_digest};
use weft_policy::{PortSummary, Rule};

/// Longest time in the future at which a descriptor may be published (C tor `ROUTER_ALLOW_SKEW`).
const SKEW: Duration = Duration::from_secs(12 * 3600);
/// Greatest age of a descriptor that arrives (C tor `ROUTER_MAX_AGE_TO_PUBLISH`).
pub(crate) const MAX_AGE: Duration = Duration::from_secs(24 * 3600);
/// Largest bandwidth that counts on a relay's claim alone, in bytes per second (C tor
/// `DEFAULT_MAX_BELIEVABLE_BANDWIDTH`).
const BELIEVABLE: u64 = 10_000_000;
/// The private networks, whose rejection is no restriction (policies.c, `private_nets`).
const PRIVATE_V4: [([u8; 4], u8); 6] = [
    ([0, 0, 0, 0], 8),
    ([169, 254, 0, 0], 16),
    ([127, 0, 0, 0], 8),
    ([192, 168, 0, 0], 16),
    ([10, 0, 0, 0], 8),
    ([172, 16, 0, 0], 12),
];

/// A relay.
#[derive(Debug)]
pub(crate) struct Router {
    /// The descriptor.
    pub(crate) text: Arc<str>,
    /// Its SHA-1 up to the RSA signature, as documents name it.
    pub(crate) digest: [u8; 20],
    /// The digests of its extra-info document (`extra-info-digest`).
    extra_info_digests: Option<String>,
    /// The extra-info document, once it has come.
    pub(crate) extra_info: Option<ExtraInfo>,
    pub(crate) rsa: RsaIdentity,
    pub(crate) ed: Ed25519Identity,
    pub(crate) nickname: String,
    /// When it was made.
    pub(crate) published: SystemTime,
    /// When the first of its certificates ends, those of families among them.
    pub(crate) valid_until: SystemTime,
    /// Address.
    pub(crate) ip: Ipv4Addr,
    /// ORPort.
    pub(crate) or_port: u16,
    /// DirPort, or zero.
    pub(crate) dir_port: u16,
    /// IPv6 ORPort.
    pub(crate) ipv6: Option<SocketAddr>,
    /// `Tor 0.4.9.11`, for C tor only (C tor `version_from_platform`).
    pub(crate) version: Option<String>,
    /// Subprotocols, in the relay's words.
    pub(crate) protocols: String,
    /// The bandwidth that it claims, in kilobytes per second.
    pub(crate) bandwidth: u64,
    /// The summary of its IPv4 exit policy.
    pub(crate) summary: String,
    /// True if the summary allows ports 80 and 443.
    pub(crate) general_exit: bool,
    /// True if it answers directory requests.
    pub(crate) directory: bool,
    /// True if it stores onion services' descriptors.
    pub(crate) hidden_service_dir: bool,
    /// True if its descriptor has `hibernating 1`.
    hibernating: bool,
    /// The microdescriptor.
    pub(crate) microdesc: Arc<str>,
    /// Its SHA-256.
    pub(crate) microdesc_digest: [u8; 32],
}

/// A relay's extra-info document.
#[derive(Clone, Debug)]
pub(crate) struct ExtraInfo {
    /// The document.
    pub(crate) text: Arc<str>,
    /// Its SHA-1 up to the RSA signature.
    pub(crate) digest: [u8; 20],
}

impl Router {
    /// Checks a descriptor; otherwise why it is refused, in C tor's words where C tor has them.
    pub(crate) fn read(text: &str, now: SystemTime) -> Result<Self, String> {
        if text.len() > MAX_ROUTER_DESCRIPTOR {
            return Err("Router descriptor was too large.".into());
        }
        // tor-netdoc's newer parser refuses nicknames in family lines, which C tor still writes.
        let timed = RouterDesc::parse(text)
            .map_err(|error| format!("Malformed router descriptor: {error}"))?
            .check_signature()
            .map_err(|error| format!("Router descriptor does not verify: {error}"))?;
        let published = timed.dangerously_peek().published();
        if published > now + SKEW {
            return Err(
                "Rejected: Your clock is set too far in the future, or your timezone is \
                        not correct."
                    .into(),
            );
        }
        if published + MAX_AGE < now {
            return Err(
                "Rejected: Server is expired, or your clock is too far in the past, or your \
                 timezone is not correct."
                    .into(),
            );
        }
        let (_, ends) = timed.bounds_start_end();
        let parsed = timed
            .extend_start_bound(SKEW)
            .if_valid_at(&now)
            .map_err(|error| format!("Rejected: a certificate has ended: {error}"))?;
        let rsa = parsed.rsa_identity();
        let ed = *parsed.ed_identity();
        let mut policy = PortSummary::new();
        for (kind, pattern) in parsed.ipv4_policy.rules() {
            let (prefix, private_net) = match pattern.addrs {
                IpPattern::All => (0, false),
                IpPattern::Net(net) => match net.addr() {
                    IpAddr::V4(ip) => (
                        net.prefix_len(),
                        PRIVATE_V4.contains(&(ip.octets(), net.prefix_len())),
                    ),
                    IpAddr::V6(_) => continue,
                },
            };
            policy.add(Rule {
                accept: kind == RuleKind::Accept,
                ipv6: false,
                prefix,
                private_net,
                ports: port_range(&pattern.ports.to_string()).unwrap_or((1, u16::MAX)),
            });
        }
        let summary = policy.write();
        let microdesc: Arc<str> = microdesc(text, &parsed, &rsa, &summary).into();
        let bandwidth = bandwidth(text).ok_or("Malformed router descriptor: no bandwidth")?;
        Ok(Self {
            text: text.into(),
            digest: signed_digest(text),
            extra_info: None,
            rsa,
            ed,
            nickname: parsed.router.nickname.to_string(),
            published,
            valid_until: ends.unwrap_or(published + MAX_AGE),
            ip: parsed.router.address,
            or_port: parsed.router.orport,
            dir_port: parsed.router.dirport,
            ipv6: parsed
                .or_address
                .iter()
                .copied()
                .find(|address| address.is_ipv6()),
            version: line(text, "platform").and_then(version),
            protocols: line(text, "proto").unwrap_or_default().to_owned(),
            bandwidth,
            general_exit: allows(&summary, 80) && allows(&summary, 443),
            summary,
            // tor-netdoc looks for a word with other dashes.
            directory: parsed.router.dirport != 0 || has_line(text, "tunnelled-dir-server"),
            hidden_service_dir: has_line(text, "hidden-service-dir"),
            hibernating: line(text, "hibernating").is_some_and(|value| value == "1"),
            microdesc_digest: Sha256::digest(microdesc.as_bytes()).into(),
            microdesc,
            extra_info_digests: line(text, "extra-info-digest").map(str::to_owned),
        })
    }

    /// True if it runs, by its own claim.
    pub(crate) fn runs(&self) -> bool {
        !self.hibernating
    }

    /// True if its descriptor has a TAP key.
    pub(crate) fn has_tap(&self) -> bool {
        object(&self.text, "onion-key").is_some()
    }

    /// The digests of its descriptor and of its extra-info document.
    pub(crate) fn digests(&self) -> impl Iterator<Item = [u8; 20]> + use<> {
        let extra_info = self.extra_info.as_ref().map(|extra| extra.digest);
        std::iter::once(self.digest).chain(extra_info)
    }

    /// The extra-info document that this descriptor names; otherwise why it is none.
    pub(crate) fn named_extra_info(&self, text: &str) -> Result<ExtraInfo, String> {
        if text.len() > MAX_EXTRA_INFO {
            return Err("Extrainfo document was too large".into());
        }
        // The relay has signed these digests with its descriptor: nothing else can have them.
        let digest = signed_digest(text);
        let sha256 = Base64Unpadded::encode_string(&Sha256::digest(text));
        let digests = self.extra_info_digests.as_deref().unwrap_or_default();
        let (sha1, more) = digests.split_once(' ').unwrap_or((digests, ""));
        if !sha1.eq_ignore_ascii_case(&hex::encode(digest)) || !(more.is_empty() || more == sha256)
        {
            return Err("Extra-info document is not the one that the descriptor names".into());
        }
        Ok(ExtraInfo {
            text: text.into(),
            digest,
        })
    }
}

/// The bandwidth that a descriptor claims, in kilobytes per second: `bandwidth AVERAGE BURST OBSERVED`, in bytes.
fn bandwidth(text: &str) -> Option<u64> {
    let mut rates = line(text, "bandwidth")?.split(' ').map(str::parse);
    let mut next = || rates.next()?.ok();
    let [average, _, observed]: [u64; 3] = [next()?, next()?, next()?];
    Some(average.min(observed).min(BELIEVABLE) / 1000)
}

/// The rest of the first line that begins with `keyword`.
pub(crate) fn line<'a>(text: &'a str, keyword: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| line.strip_prefix(keyword)?.strip_prefix(' '))
}

/// True if `text` has a line with `keyword` alone.
fn has_line(text: &str, keyword: &str) -> bool {
    text.lines().any(|line| line == keyword)
}

/// `Tor VERSION` of C tor's platform line; other software has no version for consensuses.
fn version(platform: &str) -> Option<String> {
    let mut words = platform.strip_prefix("Tor ")?.split_whitespace();
    Some(format!("Tor {}", words.next()?))
}

/// True if a summary that [`PortSummary`] wrote allows `port`.
fn allows(summary: &str, port: u16) -> bool {
    let (kind, ports) = summary.split_once(' ').unwrap_or_default();
    let inside = ports
        .split(',')
        .any(|range| port_range(range).is_some_and(|(first, last)| (first..=last).contains(&port)));
    inside == (kind == "accept")
}

/// `80` or `80-90`.
fn port_range(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some((first.parse().ok()?, last.parse().ok()?))
}

/// The microdescriptor, byte for byte as C tor's authorities make it by consensus method 35
/// (dirvote.c, `dirvote_create_microdescriptor`; dir-spec 3.3). A relay without TAP key has an empty `onion-key`, as
/// from method 36 on (proposal 350).
fn microdesc(text: &str, parsed: &RouterDesc, rsa: &RsaIdentity, summary: &str) -> String {
    let mut microdesc = String::from("onion-key\n");
    if let Some(key) = object(text, "onion-key") {
        microdesc += key;
    }
    let ntor = Base64Unpadded::encode_string(parsed.ntor_onion_key.0.as_bytes());
    microdesc += &format!("ntor-onion-key {ntor}\n");
    if let Some(members) = line(text, "family") {
        microdesc += &format!("family {}\n", family(members, rsa));
    }
    let ids = parsed.family_ids();
    let ids: Vec<String> = ids.as_ref().iter().map(ToString::to_string).collect();
    if !ids.is_empty() {
        microdesc += &format!("family-ids {}\n", ids.join(" "));
    }
    if summary != "reject 1-65535" {
        microdesc += &format!("p {summary}\n");
    }
    let ipv6 = parsed.ipv6_policy.to_string();
    if line(text, "ipv6-policy").is_some() && ipv6 != "reject 1-65535" {
        microdesc += &format!("p6 {ipv6}\n");
    }
    let ed = Base64Unpadded::encode_string(parsed.master_key_ed25519.0.as_bytes());
    microdesc + &format!("id ed25519 {ed}\n")
}

/// The object after the line `keyword`, its begin and end lines included.
fn object<'a>(text: &'a str, keyword: &str) -> Option<&'a str> {
    const END: &str = "\n-----END RSA PUBLIC KEY-----\n";
    let begin = format!("\n{keyword}\n");
    let at = text.find(&begin)? + begin.len();
    let rest = text.get(at..)?;
    let length = rest.find(END)? + END.len();
    rest.get(..length)
}

/// A family line as every authority writes it: identities in capitals, nicknames in small letters,
/// ourselves included, each once, sorted (C tor `nodefamily_canonicalize`).
fn family(members: &str, rsa: &RsaIdentity) -> String {
    let own = format!("${}", hex::encode_upper(rsa.as_bytes()));
    let written = members.split_whitespace().map(|member| {
        let identity = member.strip_prefix('$').unwrap_or(member);
        let identity = identity.split(['=', '~']).next().unwrap_or_default();
        if identity.len() == 40 && identity.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            format!("${}", identity.to_ascii_uppercase())
        } else if member.len() <= 19 && member.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            member.to_ascii_lowercase()
        } else {
            member.to_owned()
        }
    });
    let all: BTreeSet<String> = written.chain([own]).collect();
    Vec::from_iter(all).join(" ")
}

/// A PEM-like object for a signature.
pub(crate) fn signature_object(signature: &[u8]) -> String {
    let encoded = Base64::encode_string(signature);
    let mut object = String::from("-----BEGIN SIGNATURE-----\n");
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, more) = rest.split_at_checked(64).unwrap_or((rest, ""));
        object += line;
        object.push('\n');
        rest = more;
    }
    object + "-----END SIGNATURE-----\n"
}
