//! Exits that destinations are kept to (`TrackHostExits`): sites that log people out whose address
//! changes.

use std::collections::BTreeMap;
use std::time::Instant;

use weft_core::address::ConnectionId;
use weft_core::origin::OriginId;
use weft_path::RelayName;

use crate::client::chooser::Chooser;

use super::streams::Kind;
use super::{Client, Now};

/// Destinations that are remembered at most.
const MAX_TRACKED: usize = 4096;

/// Which exit each destination was reached by, and until when it is kept to that.
#[derive(Debug, Default)]
pub(super) struct Tracked(BTreeMap<String, ([u8; 20], Instant)>);

impl Tracked {
    /// The exit of a destination.
    fn get(&self, host: &str, now: Instant) -> Option<[u8; 20]> {
        let (exit, until) = self.0.get(host)?;
        (now < *until).then_some(*exit)
    }

    /// A destination was reached.
    fn note(&mut self, host: String, exit: [u8; 20], until: Instant, now: Instant) {
        if self.0.len() >= MAX_TRACKED && !self.0.contains_key(&host) {
            self.0.retain(|_, (_, until)| now < *until);
            let first = self.0.iter().min_by_key(|(_, (_, until))| *until);
            if let Some(first) = first.map(|(host, _)| host.clone())
                && self.0.len() >= MAX_TRACKED
            {
                self.0.remove(&first);
            }
        }
        self.0.insert(host, (exit, until));
    }

    /// Nobody is kept to this exit any more.
    fn forget_exit(&mut self, exit: &[u8; 20]) {
        self.0.retain(|_, (of, _)| of != exit);
    }

    /// Only these destinations are tracked now.
    pub(super) fn keep(&mut self, patterns: &[String]) {
        self.0.retain(|host, _| is_tracked(patterns, host));
    }

    /// All is forgotten.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Whether a destination is among `TrackHostExits`: names, `.example.com` for it and all below, `.`
/// for all (C tor's `hostname_in_track_host_exits`). All in lower case.
fn is_tracked(patterns: &[String], host: &str) -> bool {
    patterns
        .iter()
        .any(|pattern| match pattern.strip_prefix('.') {
            Some("") => true,
            Some(name) => host == name || host.ends_with(pattern),
            None => host == pattern,
        })
}

impl<C: Chooser> Client<C> {
    /// A stream goes to the exit that its destination was reached by before.
    pub(super) fn keep_to_exit(&mut self, id: ConnectionId, now: Now) {
        if self.config.track_hosts.is_empty() {
            return;
        }
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if stream.kind != Kind::Connect || stream.exit.is_some() {
            return;
        }
        let host = stream.host.to_ascii_lowercase();
        if let Some(exit) = self.tracked.get(&host, now.mono) {
            stream.exit = Some(RelayName::Rsa(exit));
            stream.exit_optional = true;
        }
    }

    /// A stream is open: its destination is kept to this exit from now on, or for longer.
    pub(super) fn note_exit(&mut self, id: ConnectionId, circuit: OriginId, now: Now) {
        let (Some(stream), Some(circuit)) = (self.streams.get(&id), self.circuits.get(&circuit))
        else {
            return;
        };
        let host = stream.host.to_ascii_lowercase();
        if stream.kind != Kind::Connect || !is_tracked(&self.config.track_hosts, &host) {
            return;
        }
        if let Some(exit) = &circuit.exit {
            let until = now.mono + self.config.track_for;
            self.tracked.note(host, exit.rsa, until, now.mono);
        }
    }

    /// The exit that a stream was kept to is of no use to it: another will do. False: it was kept to
    /// none, or asked for it.
    pub(super) fn leave_exit(&mut self, id: ConnectionId) -> bool {
        let Some(stream) = self.streams.get_mut(&id) else {
            return false;
        };
        if !std::mem::take(&mut stream.exit_optional) {
            return false;
        }
        if let Some(RelayName::Rsa(exit)) = stream.exit.take() {
            self.tracked.forget_exit(&exit);
        }
        true
    }

    /// No circuit could be built to an exit: streams that were only kept to it go elsewhere
    /// (C tor's `circuit_discard_optional_exit_enclaves`).
    pub(super) fn leave_unreachable_exit(&mut self, exit: &[u8; 20]) {
        let name = RelayName::Rsa(*exit);
        let kept: Vec<ConnectionId> = self
            .streams
            .values()
            .filter(|stream| stream.exit_optional && stream.exit.as_ref() == Some(&name))
            .map(|stream| stream.id)
            .collect();
        for id in kept {
            self.leave_exit(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn names_ends_and_all_can_be_tracked() {
        let of = |patterns: &[&str], host| {
            let patterns: Vec<String> = patterns.iter().map(|&text| text.to_owned()).collect();
            is_tracked(&patterns, host)
        };
        assert!(of(&["a.example"], "a.example") && !of(&["a.example"], "b.a.example"));
        assert!(of(&[".a.example"], "b.a.example") && of(&[".a.example"], "a.example"));
        assert!(!of(&[".a.example"], "ba.example") && of(&["x", "."], "b"));
        assert!(!of(&[], "b"));
    }

    #[test]
    fn what_is_remembered_ends_and_is_bounded() {
        let now = Instant::now();
        let mut tracked = Tracked::default();
        let after = |seconds| now + Duration::from_secs(seconds);
        for number in 0..MAX_TRACKED as u64 + 1 {
            tracked.note(number.to_string(), [1; 20], after(number + 1), now);
        }
        assert_eq!(tracked.0.len(), MAX_TRACKED);
        assert_eq!(tracked.get("0", now), None, "it would have ended first");
        assert_eq!(tracked.get("7", after(7)), Some([1; 20]));
        assert_eq!(tracked.get("7", after(8)), None);
        tracked.forget_exit(&[1; 20]);
        assert!(tracked.0.is_empty());
    }
}
