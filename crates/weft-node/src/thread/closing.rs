//! The end of connections, and the log lines about it.

use std::time::{Instant, SystemTime};

use time::macros::format_description;
use weft_core::handshake::{ErrorClass, Validity};
use weft_core::slots::SlotKey as _;

use super::ConnectionThread;
use super::clock::wall_clock;
use super::close_reason::CloseReason;
use super::connection::{Connection, Phase, Proxying};
use super::params::ThreadParams;
use crate::logging::safe;
use weft_tls::LinkTlsError;
use weft_tls::records::RecordError;

impl ConnectionThread {
    /// Closes a connection and everything on it.
    pub(super) fn close(&mut self, token: usize, reason: &CloseReason, now: Instant) {
        let Some(mut connection) = self.sockets.all.try_remove(token) else {
            return;
        };
        self.sockets.by_id.remove(&connection.id);
        // Deregistering fails only for sockets that the kernel has forgotten.
        let _ = self.poll.registry().deregister(&mut connection.socket);
        self.log_close(&connection, reason, now);
        match connection.phase {
            Phase::Open(link, _) => {
                if let Some(entry) = self.sockets.by_link.get_mut(link.index()) {
                    *entry = None;
                }
                self.manager.close_link(link, reason.failure(), now);
            }
            Phase::Handshake(_) | Phase::Transition => {
                self.manager
                    .links_mut()
                    .connection_failed(connection.id, reason.failure());
            }
        }
    }

    /// One line about a connection that ended, with a severity that fits the reason.
    pub(super) fn log_close(
        &mut self,
        connection: &Connection,
        reason: &CloseReason,
        now: Instant,
    ) {
        let (id, peer) = (connection.id, safe(connection.peer));
        if let Phase::Handshake(handshaking) = &connection.phase
            && let Some(Proxying { proxy, .. }) = &handshaking.proxy
        {
            if !matches!(reason, CloseReason::Requested)
                && let Some(more) = self.log_limits.proxy.check(now)
            {
                let (kind, at) = (proxy.protocol.name(), safe(proxy.addr));
                tracing::warn!(
                    "The {kind} proxy at {at} gave no connection to {peer}: {reason}. Weft does not \
                     connect without it: make sure that it runs and may be used{more}"
                );
            }
            return;
        }
        match reason {
            CloseReason::Handshake(error)
                if matches!(
                    error.class(),
                    ErrorClass::WrongIdentity | ErrorClass::AuthenticationFailed
                ) && connection.initiated =>
            {
                if let Some(more) = self.log_limits.peer.check(now) {
                    tracing::warn!("The relay at {peer} is not who it should be: {error}{more}");
                }
            }
            CloseReason::Handshake(error) if connection.initiated && error.outside().is_some() => {
                if let (Some(validity), Some(more)) =
                    (error.outside(), self.log_limits.peer.check(now))
                {
                    let line = of_another_time(validity, wall_clock());
                    tracing::warn!("The relay at {peer}: {line}{more}");
                }
            }
            CloseReason::Handshake(_)
            | CloseReason::Link(_)
            | CloseReason::Record(RecordError::Overhead(_) | RecordError::Unexpected(_))
            | CloseReason::Tls(LinkTlsError::Records(_)) => {
                if let Some(more) = self.log_limits.protocol.check(now) {
                    let line = format_args!("Closing {id} to {peer}: {reason}{more}");
                    protocol_warning(&self.params, line);
                }
            }
            CloseReason::Stuck => {
                let line = format_args!("Closing {id} to {peer}: {reason}");
                protocol_warning(&self.params, line);
            }
            _ => tracing::debug!("Closing {id} to {peer}: {reason}"),
        }
    }
}

/// Log text for a certificate that is not valid at the time of this machine, in C tor's words
/// (`log_cert_lifetime`).
fn of_another_time(validity: Validity, now: SystemTime) -> String {
    let date = |time: SystemTime| {
        let form =
            format_description!("[month repr:short] [day] [hour]:[minute]:[second] [year] UTC");
        time::OffsetDateTime::from(time)
            .format(form)
            .unwrap_or_default()
    };
    let problem = match now > validity.until {
        true => "expired",
        false => "not yet valid",
    };
    let lifetime = match validity.from {
        Some(from) => format!("runs from {} through {}", date(from), date(validity.until)),
        None => format!("runs through {}", date(validity.until)),
    };
    format!(
        "Certificate {problem}. Either their clock is set wrong, or your clock is wrong. (certificate lifetime {lifetime}. Your \
         time is {}.)",
        date(now)
    )
}

/// Logs a line about a peer that breaks the protocol: a warning with `ProtocolWarnings`.
pub(super) fn protocol_warning(params: &ThreadParams, line: std::fmt::Arguments<'_>) {
    if params.protocol_warnings {
        tracing::warn!("{line}");
    } else {
        tracing::info!("{line}");
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn a_wrong_clock_is_told_with_all_dates() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let validity = Validity {
            from: Some(at(1_795_000_000)),
            until: at(1_826_000_000),
        };
        assert_eq!(
            of_another_time(validity, at(60)),
            "Certificate not yet valid. Either their clock is set wrong, or your clock is wrong. (certificate lifetime \
             runs from Nov 18 11:06:40 2026 UTC through Nov 12 06:13:20 2027 UTC. Your time is Jan 01 00:01:00 1970 UTC.)"
        );
        let validity = Validity {
            from: None,
            ..validity
        };
        let line = of_another_time(validity, at(2_000_000_000));
        assert!(line.starts_with("Certificate expired. "), "{line}");
        assert!(
            line.contains("(certificate lifetime runs through Nov 12"),
            "{line}"
        );
    }
}
