//! Notices of a network that has stopped to answer: one when connections to guards fail and nothing comes from
//! anywhere, one when streams of applications wait meanwhile, and one when the network answers again.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use weft_cell::identity::RsaIdentity;
use weft_core::origin::LinkFailure;
use weft_log::Line;

/// Time without an answer before an outage is logged: several guards have been tried by then.
const PATIENCE: Duration = Duration::from_secs(10);
/// The interval of lines about networks that come and go.
const INTERVAL: Duration = Duration::from_secs(60);

/// A network that may have stopped to answer.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    /// When something first failed since the network last sent something.
    failed: Option<Instant>,
    /// Since when some stream or other has waited.
    waiting: Option<Instant>,
    /// Links that could not be opened since, and the last of them.
    failures: u32,
    last: Option<(RsaIdentity, SocketAddr, LinkFailure)>,
    /// There was a line about it, and one that has the streams that wait.
    reported: bool,
    reported_streams: bool,
    /// When the last line about an outage was.
    last_line: Option<Instant>,
}

impl Outage {
    /// A link could not be opened.
    pub(crate) fn link_failed(
        &mut self,
        rsa: RsaIdentity,
        addr: SocketAddr,
        failure: LinkFailure,
        now: Instant,
    ) {
        self.failed.get_or_insert(now);
        self.failures = self.failures.saturating_add(1);
        self.last = Some((rsa, addr, failure));
    }

    /// A circuit took too long to build, or exits did not answer a stream.
    pub(crate) fn late(&mut self, now: Instant) {
        self.failed.get_or_insert(now);
    }

    /// The network has sent something.
    pub(crate) fn answered(&mut self, now: Instant) -> Option<Line> {
        let since = self.since();
        self.failed = None;
        self.waiting = None;
        self.failures = 0;
        self.last = None;
        self.reported_streams = false;
        if !std::mem::take(&mut self.reported) {
            return None;
        }
        let seconds = now.saturating_duration_since(since?).as_secs();
        Some(Line::notice(format!(
            "The network answers again, after {seconds} seconds."
        )))
    }

    /// No request is waiting for the network: earlier failures mean nothing.
    pub(crate) fn forget(&mut self) {
        *self = Self {
            last_line: self.last_line,
            ..Self::default()
        };
    }

    /// When something first failed or waited.
    fn since(&self) -> Option<Instant> {
        self.failed.into_iter().chain(self.waiting).min()
    }

    /// Call about once a second, with the number of streams of applications that wait for a circuit.
    pub(crate) fn check(&mut self, waiting: usize, now: Instant) -> Option<Line> {
        match waiting {
            0 => self.waiting = None,
            _ => _ = self.waiting.get_or_insert(now),
        }
        let silent = now.saturating_duration_since(self.since()?);
        if silent < PATIENCE {
            return None;
        }
        if !self.reported {
            let is_recent = |line| now.saturating_duration_since(line) < INTERVAL;
            if self.last_line.is_some_and(is_recent) {
                return None;
            }
            self.last_line = Some(now);
            self.reported = true;
            self.reported_streams = waiting > 0;
            let mut line = format!(
                "Nothing has come from the network for {} seconds",
                silent.as_secs()
            );
            if let Some((rsa, addr, failure)) = self.last {
                let failed = match self.failures {
                    1 => "A connection failed,".to_owned(),
                    n => format!("{n} connections failed, the last one"),
                };
                line.push_str(&format!(
                    ". {failed} to {rsa} at {addr} ({}; {})",
                    failure.message(),
                    failure.name()
                ));
            }
            line.push_str(&format!(
                ".{} Weft keeps trying; is this machine online?",
                streams(waiting)
            ));
            return Some(Line::notice(line));
        }
        if waiting > 0 && !self.reported_streams {
            self.reported_streams = true;
            return Some(Line::notice(format!(
                "The network still does not answer, for {} seconds now.{}",
                silent.as_secs(),
                streams(waiting)
            )));
        }
        None
    }
}

/// Number of waiting streams, as a sentence.
fn streams(waiting: usize) -> String {
    match waiting {
        0 => String::new(),
        1 => " A stream of an application waits for a circuit.".to_owned(),
        n => format!(" {n} streams of applications wait for a circuit."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail(outage: &mut Outage, now: Instant) {
        let addr = SocketAddr::from(([192, 0, 2, 1], 9001));
        outage.link_failed([1; 20].into(), addr, LinkFailure::Refused, now);
    }

    fn text(line: Option<Line>) -> String {
        line.expect("a line").render(weft_log::SafeLogging::All)
    }

    #[test]
    fn a_network_that_vanishes_is_logged_once_and_again_when_it_is_back() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut outage = Outage::default();
        fail(&mut outage, at(0));
        assert!(outage.check(0, at(9)).is_none(), "another guard may work");
        fail(&mut outage, at(9));
        let line = text(outage.check(0, at(10)));
        for part in [
            "Nothing has come from the network for 10 seconds",
            "2 connections failed, the last one to 0101010101010101010101010101010101010101",
            "at 192.0.2.1:9001 (Connection refused; CONNECTREFUSED)",
        ] {
            assert!(line.contains(part), "{line}");
        }
        assert!(!line.contains("stream"), "{line}");
        for seconds in 11..60 {
            fail(&mut outage, at(seconds));
            assert!(outage.check(0, at(seconds)).is_none());
        }
        let line = text(outage.check(3, at(60)));
        assert!(line.contains("3 streams of applications wait"), "{line}");
        assert!(outage.check(400, at(61)).is_none(), "not for each stream");
        let line = text(outage.answered(at(75)));
        assert_eq!(line, "The network answers again, after 75 seconds.");
        assert!(outage.answered(at(76)).is_none());
    }

    #[test]
    fn one_guard_that_fails_beside_others_and_a_stream_that_is_served_leave_no_line() {
        let start = Instant::now();
        let mut outage = Outage::default();
        for second in 0..100 {
            let now = start + Duration::from_secs(second);
            fail(&mut outage, now);
            outage.late(now);
            assert!(outage.check(1, now).is_none());
            if second % 5 == 0 {
                assert!(outage.answered(now).is_none());
            }
        }
        fail(&mut outage, start);
        outage.forget();
        assert!(outage.check(0, start + PATIENCE).is_none());
    }

    #[test]
    fn streams_that_wait_for_nothing_that_fails_are_a_sign_of_their_own() {
        let start = Instant::now();
        let mut outage = Outage::default();
        assert!(outage.check(1, start).is_none());
        let line = text(outage.check(1, start + PATIENCE));
        assert!(line.contains("A stream of an application waits"), "{line}");
        assert!(!line.contains("failed"), "{line}");
    }

    #[test]
    fn a_network_that_comes_and_goes_is_logged_now_and_then() {
        let start = Instant::now();
        let mut outage = Outage::default();
        let mut lines = 0;
        for second in 0..600 {
            let now = start + Duration::from_secs(second);
            match second % 20 {
                0 => fail(&mut outage, now),
                19 => lines += usize::from(outage.answered(now).is_some()),
                _ => lines += usize::from(outage.check(1, now).is_some()),
            }
        }
        assert_eq!(lines, 20, "a third of the outages, and their ends");
    }
}
