//! The log lines about uploads of our descriptor: each authority's reason, and what it comes to.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use weft_dir::command::UploadOutcome;
use weft_log::{Line, RateLimit};

/// The interval of lines about an authority that gives the same reason again: failed uploads are repeated.
const INTERVAL: Duration = Duration::from_secs(3600);

/// Time for which uploads to an authority may fail before a warning is logged: it may only be
/// starting.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why an authority does not have our descriptor.
#[derive(Debug)]
struct Trouble {
    /// It has refused it, and is not asked again.
    refused: bool,
    why: String,
    /// The time from which on it has had trouble of any kind.
    since: Instant,
    limit: RateLimit,
}

/// The troubles of authorities as last logged, by nickname: as many as authorities in torrc.
#[derive(Debug, Default)]
pub(super) struct UploadLines {
    troubles: BTreeMap<String, Trouble>,
}

impl UploadLines {
    /// The line about an upload that has ended.
    pub(super) fn line(
        &mut self,
        authority: &str,
        outcome: &UploadOutcome,
        now: Instant,
    ) -> Option<Line> {
        let taken = match outcome {
            UploadOutcome::Accepted => "has taken our descriptor",
            UploadOutcome::NotNew => "had our descriptor already",
            UploadOutcome::Overtaken(_) => {
                "keeps another descriptor of this relay, which is not older"
            }
            UploadOutcome::Refused(reason) => return self.trouble(authority, true, reason, now),
            UploadOutcome::Failed(why) => return self.trouble(authority, false, why, now),
            _ => return None,
        };
        self.troubles.remove(authority);
        Some(Line::info(format!("Authority '{authority}' {taken}.")))
    }

    fn trouble(&mut self, authority: &str, refused: bool, why: &str, now: Instant) -> Option<Line> {
        let trouble = self
            .troubles
            .entry(authority.to_owned())
            .or_insert_with(|| Trouble {
                refused,
                why: String::new(),
                since: now,
                limit: RateLimit::new(INTERVAL),
            });
        if trouble.why != why || trouble.refused != refused {
            trouble.refused = refused;
            why.clone_into(&mut trouble.why);
            trouble.limit = RateLimit::new(INTERVAL);
        }
        let text = match refused {
            // C tor's text, which operators look for.
            true => format!(
                "http status 400 (\"{why}\") response from dirserver '{authority}'. Please correct."
            ),
            false => format!(
                "Could not upload our descriptor to authority '{authority}': {why}. It is tried again."
            ),
        };
        if !refused && now.saturating_duration_since(trouble.since) < PATIENCE {
            return Some(Line::info(text));
        }
        let more = trouble.limit.check(now)?;
        Some(Line::warn(text).text(more))
    }

    /// The line about a descriptor that every authority has been asked to take.
    pub(super) fn published(
        &self,
        accepted: usize,
        of: usize,
        reason: &str,
        observed: u64,
    ) -> Line {
        if accepted > 0 || of == 0 {
            return Line::notice(format!(
                "Published our descriptor ({reason}): {accepted} of {of} authorities have it, observed bandwidth {} kB/s",
                observed / 1000
            ));
        }
        if self.troubles.is_empty() {
            return Line::notice(format!(
                "All {of} authorities keep another descriptor of this relay, which is not older than ours ({reason}): a newer one is made"
            ));
        }
        let why =
            |(authority, trouble): (&String, &Trouble)| format!("{authority}: {}", trouble.why);
        let reasons: Vec<String> = self.troubles.iter().map(why).collect();
        let text = format!(
            "No authority has our descriptor ({reason}), 0 of {of}, so that nobody uses this relay: {}",
            reasons.join("; ")
        );
        match self.troubles.values().all(|trouble| trouble.refused) {
            true => Line::warn(text),
            false => Line::notice(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(line: Option<Line>) -> Option<String> {
        line.map(|line| {
            format!(
                "{} {}",
                line.severity(),
                line.render(weft_log::SafeLogging::All)
            )
        })
    }

    fn refused() -> UploadOutcome {
        UploadOutcome::Refused("Fingerprint is marked rejected".to_owned())
    }

    fn failed() -> UploadOutcome {
        UploadOutcome::Failed("cannot connect: Connection refused".to_owned())
    }

    #[test]
    fn an_authority_that_refuses_is_a_warning_with_its_reason_once_an_hour() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut lines = UploadLines::default();
        let warning = "warn http status 400 (\"Fingerprint is marked rejected\") response from dirserver 'a'. \
                       Please correct.";
        assert_eq!(text(lines.line("a", &refused(), at(0))).unwrap(), warning);
        assert_eq!(text(lines.line("a", &refused(), at(60))), None);
        let other = UploadOutcome::Refused("Suspicious relay address range".to_owned());
        assert!(
            text(lines.line("a", &other, at(61))).is_some(),
            "another reason"
        );
        let taken = text(lines.line("a", &UploadOutcome::Accepted, at(62))).unwrap();
        assert!(taken.starts_with("info "), "{taken}");
        assert_eq!(text(lines.line("a", &refused(), at(63))).unwrap(), warning);
    }

    #[test]
    fn an_authority_that_cannot_be_reached_is_a_warning_after_a_while() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut lines = UploadLines::default();
        let line = text(lines.line("b", &failed(), at(0))).unwrap();
        assert!(line.starts_with("info "), "it may only be starting: {line}");
        let line = text(lines.line("b", &failed(), at(30))).unwrap();
        assert!(
            line.starts_with("warn ") && line.contains("authority 'b'"),
            "{line}"
        );
        assert!(line.contains("Connection refused"), "{line}");
        assert_eq!(text(lines.line("b", &failed(), at(60))), None);
        assert!(text(lines.line("b", &failed(), at(3630))).is_some());
    }

    #[test]
    fn a_descriptor_that_nobody_took_is_reported_with_all_reasons() {
        let now = Instant::now();
        let mut lines = UploadLines::default();
        lines.line("a", &refused(), now);
        let line = text(Some(lines.published(0, 1, "config change", 0))).unwrap();
        assert!(
            line.starts_with("warn No authority has our descriptor"),
            "{line}"
        );
        lines.line("b", &failed(), now);
        let line = text(Some(lines.published(0, 2, "config change", 0))).unwrap();
        assert!(
            line.starts_with("notice No authority"),
            "b may only be starting: {line}"
        );
        assert!(
            line.contains("a: Fingerprint") && line.contains("b: cannot"),
            "{line}"
        );
        lines.line("b", &UploadOutcome::Accepted, now);
        let line = text(Some(lines.published(1, 2, "config change", 5000))).unwrap();
        assert_eq!(
            line,
            "notice Published our descriptor (config change): 1 of 2 authorities have it, observed bandwidth 5 kB/s"
        );
    }

    #[test]
    fn authorities_that_keep_another_descriptor_of_ours_are_no_trouble() {
        let mut lines = UploadLines::default();
        let overtaken = UploadOutcome::Overtaken(std::time::SystemTime::UNIX_EPOCH);
        lines.line("a", &overtaken, Instant::now());
        let line = text(Some(lines.published(0, 1, "initialized", 0))).unwrap();
        assert!(
            line.starts_with("notice All 1 authorities keep another"),
            "{line}"
        );
    }
}
