//! Microdescriptors: families and exit policies that a microdesc consensus leaves out (dir-spec 3.3).
//!
//! A microdescriptor is found by the SHA-256 that the consensus has on the relay's `m` line, so
//! text that is damaged or cut short is simply not found. It is parsed when it is asked for.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::Range;

use sha2::{Digest, Sha256};

use crate::idle::figure::thousands;
use crate::network::{Network, PortPolicy};

/// Texts of microdescriptors, and where each begins and ends.
#[derive(Clone, Debug, Default)]
pub struct Microdescs {
    texts: Vec<Box<[u8]>>,
    /// By SHA-256: which text, which bytes of it.
    places: HashMap<[u8; 32], (usize, Range<usize>)>,
}

/// One microdescriptor: what paths depend on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Microdesc<'a> {
    /// Words of its `family` line: names and identities as the operator wrote them.
    pub family: Vec<&'a str>,
    /// Words of its `family-ids` line (proposal 321).
    pub family_ids: Vec<&'a str>,
    /// Its `p` line. None refuses every port.
    pub policy: Option<PortPolicy>,
    /// The first IPv6 address of its `a` lines.
    pub ipv6: Option<Ipv6Addr>,
}

/// A text that has no microdescriptor in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no line is `onion-key`, so there are no microdescriptors here")]
pub struct NoMicrodescs;

/// Microdescriptors that belong to none of a network's relays, or to few.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub struct OtherMicrodescs {
    /// Of the network.
    relays: usize,
    /// Relays whose microdescriptor was read.
    matched: usize,
    /// Relays whose microdescriptor the consensus names.
    named: usize,
    /// Microdescriptors that there are.
    here: usize,
}

impl fmt::Display for OtherMicrodescs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {} relays have a microdescriptor in these files, which hold {}: ",
            thousands(self.matched as u64),
            thousands(self.relays as u64),
            thousands(self.here as u64)
        )?;
        f.write_str(match self.named {
            0 => {
                "the consensus names none, as those of the plain flavour; give that of the flavour microdesc \
                 (CollecTor's *-consensus-microdesc)"
            }
            _ => {
                "they are of another time; give those that were published with the consensus or before it \
                 (CollecTor's archives of its month and of the month before)"
            }
        })
    }
}

impl Microdescs {
    /// Takes in a text: microdescriptors one after the other, with or without annotations (`@…`)
    /// between them, as CollecTor and the `cached-microdescs` files of C tor have them. May be called
    /// for each of several texts.
    ///
    /// # Errors
    ///
    /// [`NoMicrodescs`].
    pub fn add(&mut self, text: Vec<u8>) -> Result<usize, NoMicrodescs> {
        let found = bounds(&text);
        if found.is_empty() {
            return Err(NoMicrodescs);
        }
        let place = self.texts.len();
        for range in &found {
            if let Some(bytes) = text.get(range.clone()) {
                self.places
                    .insert(Sha256::digest(bytes).into(), (place, range.clone()));
            }
        }
        self.texts.push(text.into());
        Ok(found.len())
    }

    /// The microdescriptor with this SHA-256.
    pub fn get(&self, digest: &[u8; 32]) -> Option<Microdesc<'_>> {
        let (text, range) = self.places.get(digest)?;
        Some(parse(self.texts.get(*text)?.get(range.clone())?))
    }

    /// Returns true if the microdescriptor with this SHA-256 was read.
    pub fn has(&self, digest: &[u8; 32]) -> bool {
        self.places.contains_key(digest)
    }

    /// Of how many relays the microdescriptor is here.
    ///
    /// # Errors
    ///
    /// [`OtherMicrodescs`]: of less than half. Paths through those that are left are those of no network.
    pub fn matched(&self, network: &Network) -> Result<usize, OtherMicrodescs> {
        let digests = || network.relays.iter().filter_map(|relay| relay.microdesc);
        let matched = digests().filter(|digest| self.has(digest)).count();
        let relays = network.relays.len();
        match matched < relays.div_ceil(2) {
            false => Ok(matched),
            true => Err(OtherMicrodescs {
                relays,
                matched,
                named: digests().count(),
                here: self.len(),
            }),
        }
    }

    /// Gives relays without an exit policy that of their microdescriptor. Returns how many have one.
    ///
    /// # Errors
    ///
    /// As [`Microdescs::matched`].
    pub fn complete(&self, network: &mut Network) -> Result<usize, OtherMicrodescs> {
        let matched = self.matched(network)?;
        for relay in &mut network.relays {
            let microdesc = relay.microdesc.as_ref().and_then(|digest| self.get(digest));
            if relay.policy.is_none() {
                relay.policy = microdesc.and_then(|microdesc| microdesc.policy);
            }
        }
        Ok(matched)
    }

    /// SHA-256 of all microdescriptors, in no order.
    pub fn digests(&self) -> impl Iterator<Item = &[u8; 32]> {
        self.places.keys()
    }

    /// Number of different microdescriptors.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns true if there are no microdescriptors.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

/// Where each microdescriptor is: from its `onion-key` to the next one, or to an annotation.
fn bounds(text: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut begun: Option<usize> = None;
    let mut at = 0;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let is_start = line == b"onion-key\n" || line.starts_with(b"onion-key ");
        if is_start || line.first() == Some(&b'@') {
            found.extend(begun.map(|start| start..at));
            begun = is_start.then_some(at);
        }
        at += line.len();
    }
    found.extend(begun.map(|start| start..at));
    found
}

/// Reads the lines that count. Malformed ones are passed over, as C tor does.
fn parse(bytes: &[u8]) -> Microdesc<'_> {
    let mut microdesc = Microdesc::default();
    for line in bytes.split(|byte| *byte == b'\n') {
        // Keys are most of the bytes; their lines begin with none of these letters and a space.
        if !matches!(line.first(), Some(b'a' | b'f' | b'p')) {
            continue;
        }
        let Ok(line) = std::str::from_utf8(line) else {
            continue;
        };
        match line.split_once(' ') {
            Some(("family", words)) => microdesc.family = words.split_ascii_whitespace().collect(),
            Some(("family-ids", words)) => {
                microdesc.family_ids = words.split_ascii_whitespace().collect();
            }
            Some(("p", summary)) => microdesc.policy = PortPolicy::parse(summary),
            Some(("a", address)) if microdesc.ipv6.is_none() => {
                let address = address.parse().map(|address: SocketAddr| address.ip());
                if let Ok(IpAddr::V6(address)) = address {
                    microdesc.ipv6 = Some(address);
                }
            }
            _ => {}
        }
    }
    microdesc
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    const TWO: &str = "@last-listed 2018-07-04 11:06:11\nonion-key\n-----BEGIN RSA PUBLIC KEY-----\n\
        p6AB\n-----END RSA PUBLIC KEY-----\nntor-onion-key mrUu\na [2001:db8::1]:9001\n\
        family $774555642FDC1E1D4FDF2E0C31B7CA9501C5C9C7 friend\np accept 80,443,8000-8100\nid ed25519 lJ\n\
        @last-listed 2018-07-04 11:06:15\nonion-key\nntor-onion-key qnjz\nfamily-ids ed25519:abc other:x\n";

    #[test]
    fn a_microdescriptor_is_found_by_its_digest_and_read() {
        let mut microdescs = Microdescs::default();
        assert_eq!(microdescs.add(TWO.into()), Ok(2));
        let start = TWO.find("onion-key").unwrap();
        let end = TWO.rfind("@last").unwrap();
        let first = microdescs
            .get(&Sha256::digest(&TWO[start..end]).into())
            .unwrap();
        assert_eq!(
            first.family,
            ["$774555642FDC1E1D4FDF2E0C31B7CA9501C5C9C7", "friend"]
        );
        assert_eq!(first.ipv6, Some("2001:db8::1".parse().unwrap()));
        let policy = first.policy.unwrap();
        assert!(policy.allows(8100) && !policy.allows(8101) && policy.allows(443));
        let last = TWO.rfind("onion-key\nntor").unwrap();
        let second = microdescs
            .get(&Sha256::digest(&TWO[last..]).into())
            .unwrap();
        assert_eq!(second.family_ids, ["ed25519:abc", "other:x"]);
        assert_eq!(second.policy, None);
        assert_eq!(microdescs.len(), 2);
    }

    #[test]
    fn microdescriptors_of_another_time_are_refused_with_what_to_do() {
        let mut microdescs = Microdescs::default();
        assert_eq!(microdescs.add(TWO.into()), Ok(2));
        let mut network = testing::mixed(40);
        let refused = microdescs
            .complete(&mut network)
            .expect_err("none is named");
        let refused = refused.to_string();
        assert!(
            refused.starts_with(
                "0 of 40 relays have a microdescriptor in these files, which hold 2: "
            ),
            "{refused}"
        );
        assert!(refused.contains("flavour microdesc"), "{refused}");
        for relay in &mut network.relays {
            relay.microdesc = Some([7; 32]);
            relay.policy = None;
        }
        let refused = microdescs
            .complete(&mut network)
            .expect_err("others are named");
        assert!(refused.to_string().contains("another time"), "{refused}");
        // Half of them are enough.
        let start = TWO.find("onion-key").unwrap();
        let end = TWO.rfind("@last").unwrap();
        for relay in network.relays.iter_mut().take(19) {
            relay.microdesc = Some(Sha256::digest(&TWO[start..end]).into());
        }
        let refused = microdescs.complete(&mut network).expect_err("few are here");
        assert!(
            refused.to_string().starts_with("19 of 40 relays"),
            "{refused}"
        );
        network.relays[39].microdesc = network.relays[3].microdesc;
        assert_eq!(microdescs.complete(&mut network), Ok(20));
        assert!(
            network.relays[3]
                .policy
                .as_ref()
                .is_some_and(|policy| policy.allows(443))
        );
    }

    #[test]
    fn a_text_of_something_else_is_refused() {
        let mut microdescs = Microdescs::default();
        assert_eq!(
            microdescs.add(b"network-status-version 3\n".to_vec()),
            Err(NoMicrodescs)
        );
        assert_eq!(microdescs.add(Vec::new()), Err(NoMicrodescs));
        assert!(microdescs.is_empty());
    }

    #[test]
    fn summaries_of_policies_are_read_as_c_tor_reads_them() {
        for bad in [
            "",
            "accept",
            "accept ",
            "allow 80",
            "accept 0-80",
            "accept 443-80",
            "accept 80,,81",
            "accept 65536",
            "accept 80-",
            "reject +80",
            "accept 80 81",
        ] {
            assert_eq!(PortPolicy::parse(bad), None, "{bad:?}");
        }
        let policy = PortPolicy::parse("reject 25,119,135-139").unwrap();
        assert!(policy.allows(80) && !policy.allows(136));
    }
}
