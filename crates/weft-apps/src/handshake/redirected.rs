//! Connections that a firewall has redirected here: their applications know nothing of it, and get no reply (C tor:
//! `connection_ap_process_transparent`, `connection_ap_process_natd`).

use weft_core::origin::{AppOpening, AppProtocol};
use weft_log::Line;

use super::Handshake;
use crate::destination;
use crate::notice::Notice;
use crate::step::{Failure, Step};

/// Bytes of natd's line at most, with its end.
const MAX_LINE: usize = 29;

impl Handshake {
    /// The request of a TransPort's connection, which is complete before its first byte.
    pub(super) fn transparent(&mut self) -> Result<Step, Failure> {
        let Some(to) = self.to.take() else {
            let line = Line::warn("Fetching original destination failed. Closing.");
            return Err(self.fail(Vec::new(), Notice::new(line)));
        };
        let opening = AppOpening::Connect {
            host: to.ip().to_canonical().to_string(),
            port: to.port(),
        };
        self.request(0, opening, AppProtocol::Transparent)
    }

    /// A NATDPort's bytes: `[DEST ADDRESS PORT]` and the end of the line, then the application's.
    pub(super) fn natd(&mut self, bytes: &[u8]) -> Result<Step, Failure> {
        let head = bytes.get(..MAX_LINE).unwrap_or(bytes);
        let Some(end) = head.iter().position(|byte| *byte == b'\n') else {
            return match bytes.len() < MAX_LINE {
                true => Ok(Step::NeedMore),
                false => Err(self.natd_failure("DEST too long")),
            };
        };
        let line = head.get(..end).unwrap_or_default();
        let parsed = std::str::from_utf8(line).ok().and_then(destination);
        let Some((host, port)) = parsed else {
            return Err(self.natd_failure("the line is not \"[DEST ADDRESS PORT]\""));
        };
        let opening = AppOpening::Connect { host, port };
        self.request(end + 1, opening, AppProtocol::Natd)
    }

    fn natd_failure(&self, why: &str) -> Failure {
        let line = Line::warn(format!("NATD handshake failed: {why}. Closing."));
        self.fail(Vec::new(), Notice::new(line))
    }
}

/// The destination in natd's line. Text after the port is ignored, as in C tor.
fn destination(line: &str) -> Option<(String, u16)> {
    let (host, rest) = line.strip_prefix("[DEST ")?.split_once(' ')?;
    let digits = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    let port = rest.get(..digits)?.parse().ok().filter(|port| *port != 0)?;
    Some((destination::clean_host(host)?, port))
}
