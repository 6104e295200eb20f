//! Reports of each link's number of circuits and of links that lost packets hold up, for a
//! controller that wants them
//! ([`RelayParams::report_load`](crate::params::RelayParams::report_load)).

use std::time::Instant;

use super::CellPath;
use crate::handshake::PeerIdentity;
use crate::link::loss::TcpCounters;
use crate::message::ToController;
use crate::slots::LinkKey;

impl CellPath {
    /// A circuit was put on a link, or taken off it.
    pub(in crate::manager) fn load_changed(&mut self, key: LinkKey) {
        if self.params.report_load
            && let Some(link) = self.links.get_mut(key)
            && !std::mem::replace(&mut link.unreported, true)
        {
            self.unreported.push(key);
        }
    }

    /// The controller has sent a circuit to a link.
    pub(in crate::manager) fn joined(&mut self, key: LinkKey) {
        if let Some(link) = self.links.get_mut(key) {
            link.joins += 1;
            link.idle_reported = false;
        }
        self.load_changed(key);
    }

    /// True if [`tcp_read`](Self::tcp_read) is of use for a link: it leads to a relay, and the
    /// controller wants reports of loss.
    pub(in crate::manager) fn watches_loss(&self, key: LinkKey) -> bool {
        let link = self.links.get(key).filter(|_| self.params.watch_loss);
        link.is_some_and(|link| matches!(link.peer, PeerIdentity::Relay { .. }))
    }

    /// Records the kernel's counters of a link's TCP connection; to be called about once a second.
    pub(in crate::manager) fn tcp_read(
        &mut self,
        key: LinkKey,
        counters: TcpCounters,
        now: Instant,
    ) {
        if let Some(link) = self.links.get_mut(key) {
            let before = link.loss.is_lossy();
            if link.loss.read(counters, now) != before {
                self.load_changed(key);
            }
        }
    }

    /// The controller begins to ask: it is sent the number of every link.
    pub(in crate::manager) fn report_all_loads(&mut self) {
        let keys: Vec<LinkKey> = self.links.iter().map(|(key, _)| key).collect();
        for key in keys {
            self.load_changed(key);
        }
    }

    /// Queues what the controller does not know: one message for each link, however often its number
    /// has changed since the last one.
    pub(in crate::manager) fn report_loads(&mut self) {
        for key in self.unreported.drain(..) {
            // A link that has closed meanwhile is reported as such. Its key may be another's by now.
            let Some(link) = self.links.get_mut(key) else {
                continue;
            };
            if std::mem::take(&mut link.unreported) {
                self.to_controller.push(ToController::LinkLoad {
                    connection: link.connection,
                    circuits: link.circuits(),
                    joins: link.joins,
                    lossy: link.loss.is_lossy(),
                });
            }
        }
    }
}
