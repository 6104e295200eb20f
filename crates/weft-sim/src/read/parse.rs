//! One consensus document, either flavour (dir-spec 3.4.1 and 3.9).
//!
//! A separate line scanner, because it reads documents that are no longer valid, in any version of
//! their format since 2007, and only what paths depend on. It is total: hostile bytes are an error.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::str::FromStr;

use base64ct::{Base64Unpadded, Encoding as _};
use weft_policy::WEIGHT_SCALE;

use super::error::ReadError;
use super::number::number;
use super::weights;
use crate::network::{Flags, Network, PortPolicy, Relay, Weights};

/// No `p` line of dir-spec 3.8.2 is longer; C tor's is cut off at 1000 characters.
const MAX_RANGES: usize = 1000;

/// Reads a consensus. `name` is what errors call it.
///
/// # Errors
///
/// [`ReadError::Line`], with the first line that is wrong; one behind the last where the document ends
/// too early.
pub fn parse(text: &[u8], name: &str) -> Result<Network, ReadError> {
    let mut reader = Reader::default();
    let mut line = 0;
    let mut begin = 0;
    let wrong = |line: usize, what: String| ReadError::Line {
        name: name.to_owned(),
        line,
        what,
    };
    for end in memchr::memchr_iter(b'\n', text) {
        line += 1;
        let bytes = text.get(begin..end).unwrap_or_default();
        begin = end + 1;
        reader.line(bytes).map_err(|what| wrong(line, what))?;
    }
    if begin < text.len() {
        return Err(wrong(line + 1, "the document breaks off in it".to_owned()));
    }
    reader.end().map_err(|what| wrong(line + 1, what))
}

/// Where in the document a line is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    /// Annotations of archives may come before everything.
    #[default]
    Start,
    Header,
    Relays,
    Footer,
    Signatures,
    /// Between `-----BEGIN` and `-----END`.
    Signature,
}

#[derive(Default)]
struct Reader {
    part: Part,
    microdesc: bool,
    is_consensus: bool,
    method: u32,
    scale: Option<u32>,
    valid_after: Option<String>,
    relays: Vec<Relay>,
    /// Kinds of lines read so far for the last relay.
    seen: Seen,
    weights: Option<Weights>,
    signatures: usize,
}

#[derive(Clone, Copy, Default)]
struct Seen {
    flags: bool,
    bandwidth: bool,
    policy: bool,
}

type Line<'a> = std::str::Split<'a, char>;

impl Reader {
    fn line(&mut self, bytes: &[u8]) -> Result<(), String> {
        if self.part == Part::Signature {
            if bytes == b"-----END SIGNATURE-----" {
                self.part = Part::Signatures;
                self.signatures += 1;
            }
            return Ok(());
        }
        let line = std::str::from_utf8(bytes).map_err(|_| "it is no text".to_owned())?;
        let line = line.strip_suffix('\r').unwrap_or(line);
        let (keyword, rest) = line.split_once(' ').unwrap_or((line, ""));
        let words = rest.split(' ');
        match self.part {
            Part::Start => self.start(keyword, words),
            Part::Header => match keyword {
                "r" => self.relay(words),
                "directory-footer" => self.footer(),
                "directory-signature" => self.signature(),
                _ => self.header(keyword, rest, words),
            },
            Part::Relays => match keyword {
                "r" => self.relay(words),
                "s" => self.flags(words),
                "w" => self.bandwidth(words),
                "p" => self.policy(words),
                "m" if self.microdesc => self.microdesc(words),
                "a" => self.address(words),
                "directory-footer" => self.footer(),
                // Before consensus method 9 there was no footer.
                "directory-signature" => self.signature(),
                _ => Ok(()),
            },
            Part::Footer | Part::Signatures => match keyword {
                "bandwidth-weights" if self.part == Part::Footer => self.bandwidth_weights(words),
                "directory-signature" => self.signature(),
                "-----BEGIN" => {
                    self.part = Part::Signature;
                    Ok(())
                }
                "r" | "s" | "w" | "directory-footer" | "network-status-version" => {
                    Err(format!("there is {keyword:?} behind the end of the relays"))
                }
                _ => Ok(()),
            },
            // Handled above.
            Part::Signature => Ok(()),
        }
    }

    fn start(&mut self, keyword: &str, mut words: Line<'_>) -> Result<(), String> {
        match keyword {
            // CollecTor's annotations.
            "@type" | "@source" | "@downloaded-at" => Ok(()),
            "network-status-version" => {
                let version = words.next().unwrap_or_default();
                if version != "3" {
                    return Err(format!(
                        "network-status-version {version:?} is unknown; only 3 is read"
                    ));
                }
                self.microdesc = match words.next() {
                    None | Some("" | "ns") => false,
                    Some("microdesc") => true,
                    Some(flavour) => {
                        return Err(format!(
                            "flavour {flavour:?} is unknown; only ns and microdesc are read"
                        ));
                    }
                };
                self.part = Part::Header;
                Ok(())
            }
            _ => Err("it is no consensus: network-status-version must come first".to_owned()),
        }
    }

    fn header(&mut self, keyword: &str, rest: &str, mut words: Line<'_>) -> Result<(), String> {
        match keyword {
            "vote-status" => {
                if rest != "consensus" {
                    return Err(format!("vote-status {rest:?}: it is no consensus"));
                }
                self.is_consensus = true;
            }
            "consensus-method" => self.method = number(Some(rest), "consensus method")?,
            "valid-after" => {
                let is_time = rest.len() == 19
                    && rest.bytes().enumerate().all(|(at, byte)| match at {
                        4 | 7 => byte == b'-',
                        10 => byte == b' ',
                        13 | 16 => byte == b':',
                        _ => byte.is_ascii_digit(),
                    });
                if !is_time {
                    return Err(format!("valid-after {rest:?} is no time"));
                }
                self.valid_after = Some(rest.to_owned());
            }
            "params" => {
                let scale = words.find_map(|word| word.strip_prefix("bwweightscale="));
                if let Some(scale) = scale {
                    self.scale = Some(number_in(
                        Some(scale),
                        "bwweightscale",
                        1..=i32::MAX as u32,
                    )?);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// `r nickname identity [digest] date time address orport dirport`: the microdesc flavour has no
    /// digest (dir-spec 3.9.2).
    fn relay(&mut self, mut words: Line<'_>) -> Result<(), String> {
        self.relay_ends()?;
        if self.part == Part::Header {
            self.header_ends()?;
            self.part = Part::Relays;
        }
        let nickname = words.next().unwrap_or_default();
        let is_name = (1..=19).contains(&nickname.len())
            && nickname.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !is_name {
            return Err(format!("{nickname:?} is no nickname"));
        }
        let fingerprint: [u8; 20] = base64(words.next(), "identity")?;
        if !self.microdesc {
            let _: [u8; 20] = base64(words.next(), "descriptor digest")?;
        }
        let (_date, _time) = (words.next(), words.next());
        let address = words.next().unwrap_or_default();
        let address =
            Ipv4Addr::from_str(address).map_err(|_| format!("{address:?} is no IPv4 address"))?;
        let or_port = number(words.next(), "ORPort")?;
        let _: u16 = number(words.next(), "DirPort")?;
        // C tor, too, refuses documents whose entries are out of order.
        if let Some(last) = self.relays.last()
            && last.fingerprint >= fingerprint
        {
            return Err("the relays are out of order, or one comes twice".to_owned());
        }
        self.seen = Seen::default();
        self.relays.push(Relay {
            nickname: nickname.into(),
            fingerprint,
            address,
            or_port,
            ipv6: None,
            flags: Flags::default(),
            bandwidth: 0,
            policy: None,
            microdesc: None,
        });
        Ok(())
    }

    /// The relay that the line belongs to.
    fn last(&mut self) -> Result<&mut Relay, String> {
        self.relays
            .last_mut()
            .ok_or_else(|| "it belongs to no relay".to_owned())
    }

    /// The last relay has all the lines that it must have.
    fn relay_ends(&self) -> Result<(), String> {
        match self.relays.last() {
            Some(relay) if !self.seen.flags => {
                Err(format!("relay {} before it has no s line", relay.nickname))
            }
            _ => Ok(()),
        }
    }

    fn flags(&mut self, words: Line<'_>) -> Result<(), String> {
        if std::mem::replace(&mut self.seen.flags, true) {
            return Err("it is the second s line of this relay".to_owned());
        }
        self.last()?.flags = words.map(Flags::named).fold(Flags::default(), Flags::with);
        Ok(())
    }

    /// A relay without this line, as in documents before 2009, has bandwidth 0, as in C tor.
    fn bandwidth(&mut self, mut words: Line<'_>) -> Result<(), String> {
        if std::mem::replace(&mut self.seen.bandwidth, true) {
            return Err("it is the second w line of this relay".to_owned());
        }
        let value = words.find_map(|word| word.strip_prefix("Bandwidth="));
        // The protocol's numbers of bandwidth fit 32 bits; so sums of them are exact.
        self.last()?.bandwidth = number::<u32>(value, "Bandwidth")?.into();
        Ok(())
    }

    fn policy(&mut self, mut words: Line<'_>) -> Result<(), String> {
        if std::mem::replace(&mut self.seen.policy, true) {
            return Err("it is the second p line of this relay".to_owned());
        }
        let accept = match words.next() {
            Some("accept") => true,
            Some("reject") => false,
            _ => return Err("p is followed by accept or reject".to_owned()),
        };
        let list = words.next().unwrap_or_default();
        let ranges = ranges(list).ok_or_else(|| format!("{list:?} is no list of ports"))?;
        self.last()?.policy = Some(PortPolicy { accept, ranges });
        Ok(())
    }

    fn microdesc(&mut self, mut words: Line<'_>) -> Result<(), String> {
        self.last()?.microdesc = Some(base64(words.next(), "microdescriptor digest")?);
        Ok(())
    }

    fn address(&mut self, mut words: Line<'_>) -> Result<(), String> {
        let word = words.next().unwrap_or_default();
        let (address, port) = word
            .rsplit_once(':')
            .ok_or_else(|| format!("{word:?} is no address and port"))?;
        let _: u16 = number(Some(port), "port")?;
        let inner = address
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        if let Some(inner) = inner {
            let ipv6 =
                Ipv6Addr::from_str(inner).map_err(|_| format!("{inner:?} is no IPv6 address"))?;
            let relay = self.last()?;
            relay.ipv6 = relay.ipv6.or(Some(ipv6));
        } else if Ipv4Addr::from_str(address).is_err() {
            return Err(format!("{address:?} is no address"));
        }
        Ok(())
    }

    fn header_ends(&self) -> Result<(), String> {
        if !self.is_consensus {
            return Err("the header has no vote-status".to_owned());
        }
        if self.valid_after.is_none() {
            return Err("the header has no valid-after".to_owned());
        }
        Ok(())
    }

    fn footer(&mut self) -> Result<(), String> {
        self.header_ends()?;
        self.relay_ends()?;
        self.part = Part::Footer;
        Ok(())
    }

    fn signature(&mut self) -> Result<(), String> {
        if matches!(self.part, Part::Header | Part::Relays) {
            self.footer()?;
        }
        self.part = Part::Signatures;
        Ok(())
    }

    fn bandwidth_weights(&mut self, words: Line<'_>) -> Result<(), String> {
        if self.weights.is_some() {
            return Err("it is the second bandwidth-weights line".to_owned());
        }
        // Before method 31 a bug made authorities ignore the parameter wherever others followed it;
        // none was ever set. With a parameter, values above its scale show that they did.
        let scale = self.scale.unwrap_or(WEIGHT_SCALE);
        self.weights = Some(weights::read(words, scale)?);
        Ok(())
    }

    fn end(mut self) -> Result<Network, String> {
        let truncated = |at: &str| Err(format!("the document breaks off {at}"));
        match self.part {
            Part::Start => return Err("it is empty".to_owned()),
            Part::Header => return truncated("in its header"),
            Part::Relays => return truncated("among its relays"),
            Part::Footer => return truncated("in its footer, before the signatures"),
            Part::Signature => return truncated("in a signature"),
            Part::Signatures if self.signatures == 0 => return truncated("before the signatures"),
            Part::Signatures => {}
        }
        // C tor chooses one relay as soon as another where none has bandwidth, as in the consensuses of a young network
        // (`choose_array_element_by_weight`).
        if self.relays.iter().all(|relay| relay.bandwidth == 0) {
            for relay in &mut self.relays {
                relay.bandwidth = 1;
            }
        }
        let weights = match self.weights {
            Some(weights) => weights,
            None => weights::computed_weights(
                &self.relays,
                self.method,
                self.scale.unwrap_or(WEIGHT_SCALE),
            )
            .ok_or("there are no bandwidth-weights, and none can be computed: no relay is a guard, an exit or a middle with bandwidth")?,
        };
        Ok(Network {
            valid_after: self.valid_after.unwrap_or_default(),
            relays: self.relays,
            weights,
        })
    }
}

fn number_in(word: Option<&str>, what: &str, range: RangeInclusive<u32>) -> Result<u32, String> {
    let number = number(word, what)?;
    match range.contains(&number) {
        true => Ok(number),
        false => Err(format!("{what} {number} is out of range")),
    }
}

/// `N` bytes in base64 without padding.
fn base64<const N: usize>(word: Option<&str>, what: &str) -> Result<[u8; N], String> {
    let word = word.ok_or_else(|| format!("there is no {what}"))?;
    let mut bytes = [0; N];
    match Base64Unpadded::decode(word, &mut bytes) {
        Ok(decoded) if decoded.len() == N => Ok(bytes),
        _ => Err(format!("{what} {word:?} is not {N} bytes in base64")),
    }
}

/// `80,443,6660-6669`, in ascending order.
fn ranges(list: &str) -> Option<Box<[(u16, u16)]>> {
    let mut ranges = Vec::new();
    for word in list.split(',') {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        let first: u16 = number(Some(first), "").ok()?;
        let last: u16 = number(Some(last), "").ok()?;
        let is_behind = ranges.last().is_none_or(|(_, before)| *before < first);
        if first > last || !is_behind || ranges.len() >= MAX_RANGES {
            return None;
        }
        ranges.push((first, last));
    }
    Some(ranges.into())
}
