//! The summary of an exit policy that descriptors, microdescriptors and consensuses carry
//! (policies.c, `policy_summarize`; dir-spec 2.1.3).

/// The longest summary that authorities accept (MAX_EXITPOLICY_SUMMARY_LEN).
pub const MAX_SUMMARY_LEN: usize = 1000;

/// A run of ports while a summary is made.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: u16,
    last: u16,
    /// Addresses that are rejected (IPv6: in /64s).
    rejected: u64,
    accepted: bool,
}

/// A rule of a policy, as far as summaries look at it.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// True for accept, false for reject.
    pub accept: bool,
    /// True if it applies to IPv6 addresses.
    pub ipv6: bool,
    /// Length of the prefix that addresses have in common, in bits.
    pub prefix: u8,
    /// True if the addresses are exactly one of the private networks.
    pub private_net: bool,
    /// The first and the last port.
    pub ports: (u16, u16),
}

/// Ports while they are counted, by the rules of one family of addresses.
#[derive(Clone, Debug)]
pub struct PortSummary {
    runs: Vec<Run>,
}

impl Default for PortSummary {
    fn default() -> Self {
        Self::new()
    }
}

impl PortSummary {
    /// Of a policy without rules: nothing is accepted.
    #[must_use]
    pub fn new() -> Self {
        Self {
            runs: vec![Run {
                first: 1,
                last: u16::MAX,
                rejected: 0,
                accepted: false,
            }],
        }
    }

    /// Cuts runs so that one starts at `port`.
    fn cut(&mut self, port: u16) {
        if let Some(index) = self
            .runs
            .iter()
            .position(|r| r.first < port && port <= r.last)
            && let Some(run) = self.runs.get_mut(index)
        {
            let tail = Run {
                first: port,
                ..*run
            };
            run.last = port.saturating_sub(1);
            self.runs.insert(index + 1, tail);
        }
    }

    /// Counts the next rule.
    pub fn add(&mut self, rule: Rule) {
        // A port counts as rejected once it is for more than two IPv4 /8s, or one IPv6 /16.
        let (bits, scale, cutoff) = match rule.ipv6 {
            false => (32_u8, 0_u8, 1_u64 << 25),
            true => (128, 64, 1 << 48),
        };
        let (port_min, port_max) = rule.ports;
        let count = if rule.accept {
            if rule.prefix != 0 {
                return;
            }
            None
        } else {
            if rule.private_net {
                return;
            }
            let Some(shift) = (bits - scale).checked_sub(rule.prefix) else {
                return;
            };
            Some(1_u64.checked_shl(shift.into()).unwrap_or(u64::MAX))
        };
        self.cut(port_min);
        if let Some(after) = port_max.checked_add(1) {
            self.cut(after);
        }
        let inside = |r: &&mut Run| port_min <= r.first && r.last <= port_max;
        for run in self.runs.iter_mut().filter(inside) {
            match count {
                Some(count) => run.rejected = run.rejected.saturating_add(count),
                None => run.accepted |= run.rejected <= cutoff,
            }
        }
    }

    /// The summary.
    #[must_use]
    pub fn write(&self) -> String {
        let (mut accepted, mut rejected) = (Vec::new(), Vec::new());
        for runs in self.runs.chunk_by(|a, b| a.accepted == b.accepted) {
            let (Some(first), Some(last)) = (runs.first(), runs.last()) else {
                continue;
            };
            let text = if first.first == last.last {
                first.first.to_string()
            } else {
                format!("{}-{}", first.first, last.last)
            };
            if first.accepted {
                accepted.push(text)
            } else {
                rejected.push(text)
            }
        }
        if accepted.is_empty() {
            return "reject 1-65535".to_owned();
        }
        if rejected.is_empty() {
            return "accept 1-65535".to_owned();
        }
        let (accepted, rejected) = (accepted.join(","), rejected.join(","));
        let room = MAX_SUMMARY_LEN - "accept ".len();
        if accepted.len() > room && rejected.len() > room {
            let cut = accepted
                .get(..=room)
                .and_then(|head| head.rfind(','))
                .unwrap_or(room);
            format!("accept {}", accepted.get(..cut).unwrap_or_default())
        } else if rejected.len() < accepted.len() {
            format!("reject {rejected}")
        } else {
            format!("accept {accepted}")
        }
    }
}
