//! A network as paths see it: relays with flags and weights.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Relays and the weights of their positions.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// `valid-after` of the consensus, as it stands there (UTC): `2021-08-29 19:00:00`.
    pub valid_after: String,
    /// In the order of the document.
    pub relays: Vec<Relay>,
    /// `bandwidth-weights`.
    pub weights: Weights,
}

/// A relay of a consensus.
#[derive(Clone, Debug, PartialEq)]
pub struct Relay {
    /// Its nickname.
    pub nickname: Box<str>,
    /// Its RSA identity.
    pub fingerprint: [u8; 20],
    /// Its IPv4 address.
    pub address: Ipv4Addr,
    /// Its ORPort.
    pub or_port: u16,
    /// The first IPv6 address of its `a` lines.
    pub ipv6: Option<Ipv6Addr>,
    /// Its flags.
    pub flags: Flags,
    /// `Bandwidth=` of its `w` line, kilobytes per second.
    pub bandwidth: u64,
    /// Its exit policy, by port, as its `p` line or microdescriptor summarises it.
    pub policy: Option<PortPolicy>,
    /// SHA-256 of its microdescriptor, from the `m` line of a microdesc consensus.
    pub microdesc: Option<[u8; 32]>,
}

/// The flags of a relay that paths depend on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u16);

macro_rules! flags {
    ($($name:ident = $bit:expr, $word:expr;)*) => {
        impl Flags {
            $(#[doc = concat!("`", $word, "`.")] pub const $name: Flags = Flags(1 << $bit);)*

            /// The flag of this name; none for a flag that paths do not depend on.
            pub fn named(word: &str) -> Flags {
                match word {
                    $($word => Flags::$name,)*
                    _ => Flags::default(),
                }
            }

            /// Each flag with its name.
            pub fn all() -> impl Iterator<Item = (Flags, &'static str)> {
                [$((Flags::$name, $word),)*].into_iter()
            }
        }
    };
}

flags! {
    RUNNING = 0, "Running";
    VALID = 1, "Valid";
    FAST = 2, "Fast";
    STABLE = 3, "Stable";
    GUARD = 4, "Guard";
    EXIT = 5, "Exit";
    BAD_EXIT = 6, "BadExit";
    AUTHORITY = 7, "Authority";
    V2DIR = 8, "V2Dir";
    HSDIR = 9, "HSDir";
    MIDDLE_ONLY = 10, "MiddleOnly";
}

impl Flags {
    /// Returns true if all of these flags are set.
    pub const fn has(self, flags: Flags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// These and those.
    pub const fn with(self, flags: Flags) -> Flags {
        Flags(self.0 | flags.0)
    }
}

/// Ports that an exit allows or refuses, in the form of a policy summary (dir-spec 3.8.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortPolicy {
    /// True if the ranges are allowed and all other ports refused; false if it is the reverse.
    pub accept: bool,
    /// First and last ports, in ascending order.
    pub ranges: Box<[(u16, u16)]>,
}

impl PortPolicy {
    /// Parses a summary as in `p` lines: `accept 80,443,6660-6667`. `None` where it is malformed.
    pub fn parse(summary: &str) -> Option<PortPolicy> {
        let (verb, ports) = summary.split_once(' ')?;
        let accept = match verb {
            "accept" => true,
            "reject" => false,
            _ => return None,
        };
        let port = |word: &str| {
            let is_number = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
            let port = word.parse::<u16>().ok()?;
            (is_number && port != 0).then_some(port)
        };
        let range = |word: &str| {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            let (first, last) = (port(first)?, port(last)?);
            (first <= last).then_some((first, last))
        };
        let ranges = ports.split(',').map(range).collect::<Option<_>>()?;
        Some(PortPolicy { accept, ranges })
    }

    /// Returns true if streams to this port may leave.
    pub fn allows(&self, port: u16) -> bool {
        let is_named = self
            .ranges
            .iter()
            .any(|(first, last)| (*first..=*last).contains(&port));
        is_named == self.accept
    }

    /// Returns true if streams to all ports from `first` to `last` may leave.
    pub fn allows_all(&self, first: u16, last: u16) -> bool {
        let mut inside = self
            .ranges
            .iter()
            .filter(|(begin, end)| *begin <= last && *end >= first)
            .peekable();
        if !self.accept {
            return inside.peek().is_none();
        }
        // Ranges are in ascending order, but may touch.
        let mut next = u32::from(first);
        for (begin, end) in inside {
            if u32::from(*begin) > next {
                return false;
            }
            next = next.max(u32::from(*end) + 1);
        }
        next > u32::from(last)
    }
}

/// `accept 80,443,6660-6669`, as [`PortPolicy::parse`] reads it.
impl fmt::Display for PortPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = match self.accept {
            true => "accept ",
            false => "reject ",
        };
        for (first, last) in &self.ranges {
            match first == last {
                true => write!(f, "{separator}{first}")?,
                false => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

/// A place in a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// First hop.
    Guard,
    /// Second hop; in internal circuits the last one, too.
    Middle,
    /// Last hop of an external circuit.
    Exit,
}

/// The values of `bandwidth-weights` (dir-spec 3.8.3), as fractions of 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weights {
    /// For guards by flags of the relay: neither, guard, exit, both (Wgm, Wgg, Wge is no weight of
    /// dir-spec and so 0, Wgd).
    pub guard: [f64; 4],
    /// Wmm, Wmg, Wme, Wmd.
    pub middle: [f64; 4],
    /// Wem, Weg, Wee, Wed.
    pub exit: [f64; 4],
}

impl Weights {
    /// The factor of a relay's bandwidth at this position. As in C tor, a relay that is a `BadExit` is
    /// weighed as if it were no exit.
    pub fn of(&self, position: Position, flags: Flags) -> f64 {
        let exit = flags.has(Flags::EXIT) && !flags.has(Flags::BAD_EXIT);
        let kind = usize::from(flags.has(Flags::GUARD)) + 2 * usize::from(exit);
        let weights = match position {
            Position::Guard => &self.guard,
            Position::Middle => &self.middle,
            Position::Exit => &self.exit,
        };
        weights.get(kind).copied().unwrap_or(0.0)
    }
}
