//! The exits that destinations are kept on (`TrackHostExits`).

use std::collections::BTreeMap;
use std::time::Instant;

use weft_cell::identity::RsaIdentity;

use crate::addresses::Host;

/// Destinations that are remembered at most.
const MAX_TRACKED: usize = 4096;

/// Exits that destinations were reached by, and the time until which each destination keeps its
/// exit.
#[derive(Debug, Default)]
pub(crate) struct Tracked(BTreeMap<Host, (RsaIdentity, Instant)>);

impl Tracked {
    /// The exit of a destination.
    pub(crate) fn get(&self, host: &Host, now: Instant) -> Option<RsaIdentity> {
        let (exit, until) = self.0.get(host)?;
        (now < *until).then_some(*exit)
    }

    /// A destination was reached.
    pub(crate) fn note(&mut self, host: Host, exit: RsaIdentity, until: Instant, now: Instant) {
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

    /// Drops the destinations of this exit.
    pub(crate) fn forget_exit(&mut self, exit: &RsaIdentity) {
        self.0.retain(|_, (of, _)| of != exit);
    }

    /// Only these destinations are tracked now.
    pub(crate) fn keep(&mut self, patterns: &[String]) {
        self.0.retain(|host, _| is_tracked(patterns, host));
    }

    /// All is forgotten.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Returns true if a destination is among `TrackHostExits`: names, `.example.com` for it and all
/// names below it, `.` for all (C tor's `hostname_in_track_host_exits`). Patterns are in lower
/// case.
pub(crate) fn is_tracked(patterns: &[String], host: &Host) -> bool {
    let host = host.as_str();
    patterns
        .iter()
        .any(|pattern| match pattern.strip_prefix('.') {
            Some("") => true,
            Some(name) => host == name || host.ends_with(pattern),
            None => host == pattern,
        })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn names_ends_and_all_can_be_tracked() {
        let of = |patterns: &[&str], host: &str| {
            let patterns: Vec<String> = patterns.iter().map(|&text| text.to_owned()).collect();
            is_tracked(&patterns, &Host::new(host))
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
            let host = Host::new(&number.to_string());
            tracked.note(host, [1; 20].into(), after(number + 1), now);
        }
        assert_eq!(tracked.0.len(), MAX_TRACKED);
        let get = |host: &str, now| tracked.get(&Host::new(host), now);
        assert_eq!(get("0", now), None, "it would have ended first");
        assert_eq!(get("7", after(7)), Some([1; 20].into()));
        assert_eq!(get("7", after(8)), None);
        tracked.forget_exit(&[1; 20].into());
        assert!(tracked.0.is_empty());
    }
}
