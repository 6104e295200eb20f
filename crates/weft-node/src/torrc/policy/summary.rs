//! The summary of a policy that descriptors and consensuses carry (policies.c,
//! `policy_summarize`; dir-spec 2.1.3).

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]

use super::rule::{Family, PolicyEntry};

/// The longest summary that authorities accept (MAX_EXITPOLICY_SUMMARY_LEN).
pub(super) const MAX_SUMMARY_LEN: usize = 1000;

/// A run of ports while a summary is made.
#[derive(Clone, Copy)]
struct Run {
    first: u16,
    last: u16,
    /// How many addresses (IPv6: how many /64s) are rejected.
    rejected: u64,
    accepted: bool,
}

/// Ports while they are counted.
pub(super) struct Summary {
    runs: Vec<Run>,
}

impl Summary {
    pub(super) fn new() -> Self {
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

    pub(super) fn add(&mut self, entry: &PolicyEntry, family: Family) {
        // A port counts as rejected once it is for more than two IPv4 /8s, or one IPv6 /16.
        let (bits, scale, cutoff) = match family {
            Family::V4 => (32_u8, 0_u8, 1_u64 << 25),
            Family::V6 => (128, 64, 1 << 48),
        };
        let count = if entry.accept {
            if entry.prefix != 0 {
                return;
            }
            None
        } else {
            if entry.is_private_net() {
                return;
            }
            let Some(shift) = (bits - scale).checked_sub(entry.prefix) else {
                return;
            };
            Some(1_u64.checked_shl(shift.into()).unwrap_or(u64::MAX))
        };
        self.cut(entry.port_min);
        if let Some(after) = entry.port_max.checked_add(1) {
            self.cut(after);
        }
        let inside = |r: &&mut Run| entry.port_min <= r.first && r.last <= entry.port_max;
        for run in self.runs.iter_mut().filter(inside) {
            match count {
                Some(count) => run.rejected = run.rejected.saturating_add(count),
                None => run.accepted |= run.rejected <= cutoff,
            }
        }
    }

    pub(super) fn write(&self) -> String {
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
