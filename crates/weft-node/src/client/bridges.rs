//! The bridges of the client: carries out what [`weft_client::Bridges`] wants.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use weft_cell::identity::RsaIdentity;
use weft_client::{BridgeTask, Bridges, Now, Via};
use weft_dir::client::{DirServer, DirStreams, fetch_bridge};
use weft_dir::clock::SystemClock;
use weft_path::Hop;

use super::task::{Task, now};
use crate::logging;

/// A bridge's answer: from where, and what.
pub(super) type BridgeAnswer = (SocketAddr, Result<Hop, String>);

/// The bridges of a client, and what they are asked.
pub(super) struct BridgeSide {
    pub(super) bridges: Bridges,
    /// Opens streams to them.
    pub(super) streams: Arc<dyn DirStreams>,
    /// A request that stands still this long fails.
    pub(super) max_stall: Duration,
    answers: mpsc::UnboundedSender<BridgeAnswer>,
    /// Whether some bridge can be asked for documents, as the directory was last notified.
    usable: bool,
    /// All connections go through a proxy.
    pub(super) proxied: bool,
}

impl BridgeSide {
    pub(super) fn new(
        streams: Arc<dyn DirStreams>,
        max_stall: Duration,
        proxied: bool,
    ) -> (Self, mpsc::UnboundedReceiver<BridgeAnswer>) {
        let (answers, receiver) = mpsc::unbounded_channel();
        let side = BridgeSide {
            bridges: Bridges::default(),
            streams,
            max_stall,
            answers,
            usable: false,
            proxied,
        };
        (side, receiver)
    }

    /// What connections to this relay are made by.
    pub(super) fn via(&self, rsa: &RsaIdentity) -> Via {
        match (self.bridges.is_by_transport(rsa), self.proxied) {
            (true, _) => Via::Transport,
            (false, true) => Via::Proxy,
            (false, false) => Via::Direct,
        }
    }

    /// Asks a bridge for its descriptor. The bridges that are asked at once are at most those of torrc.
    fn ask(&self, addr: SocketAddr, rsa: RsaIdentity) {
        let server = DirServer {
            nickname: addr.to_string(),
            rsa: rsa.into(),
            ed25519: None,
            or_addrs: vec![addr],
            dir_addr: None,
            weight: 1.0,
            authority: false,
        };
        let (streams, stall) = (self.streams.clone(), self.max_stall);
        let answers = self.answers.clone();
        tokio::spawn(async move {
            let clock = Arc::new(SystemClock::default());
            let answer = fetch_bridge(streams, server, stall, clock).await;
            let hop = answer.map(|of| {
                let (rsa, ed25519) = (of.rsa.into(), of.ed25519.into());
                Hop::of_bridge(addr, of.nickname, (rsa, ed25519), of.ntor, &of.protocols)
            });
            // Without a receiver the client is ending.
            let _ = answers.send((addr, hop));
        });
    }
}

impl Task {
    /// What is known of bridges, or torrc's list of them, is new.
    pub(super) fn bridges_changed(&mut self, now: Now) {
        let known = self.bridges.bridges.for_paths();
        let paths = self.client.chooser();
        if paths.set_bridges(known, now, &mut self.rng) {
            crate::notice!("Other guards are in use now: circuits so far are abandoned");
            self.client.abandon_circuits();
        }
    }

    /// A bridge has sent its descriptor, or not.
    pub(super) fn on_bridge_answer(&mut self, (addr, answer): BridgeAnswer) {
        let now = now();
        if self.bridges.bridges.answered(addr, answer, now.mono) {
            self.bridges_changed(now);
        }
        self.run_bridges(now);
    }

    /// A link is open: it may be to a bridge of which only the address was known.
    pub(super) fn meet_bridge(&mut self, addr: SocketAddr, rsa: RsaIdentity, now: Now) {
        if self.bridges.bridges.met(addr, rsa, now.mono) {
            self.bridges_changed(now);
        }
    }

    /// Connects to the bridges, and asks them, as far as that is due; notifies the directory when some can be asked.
    pub(super) fn run_bridges(&mut self, now: Now) {
        if self.bridges.bridges.are_used() && !self.client.config().disable_network {
            self.ask_bridges(now);
        }
        let usable = self.client.chooser_ref().has_usable_bridge();
        if usable != self.bridges.usable && self.directory.set_bridges(usable) {
            self.bridges.usable = usable;
        }
    }

    /// Connects to the bridges, and asks them, as far as that is due.
    fn ask_bridges(&mut self, now: Now) {
        if self.client.chooser().take_asks_bridges() {
            self.bridges.bridges.retry(now.mono);
        }
        let paths = self.client.chooser_ref().options();
        let due = self.bridges.bridges.due(paths, now.mono, &mut self.rng);
        for task in due {
            match task {
                BridgeTask::Meet(addr) => {
                    if let Err(error) = self.client.meet(addr, now) {
                        tracing::info!("Could not connect to a bridge: {error}");
                    }
                }
                BridgeTask::Ask(addr, rsa) => self.bridges.ask(addr, rsa),
            }
        }
        for line in self.bridges.bridges.take_lines() {
            logging::log(&line);
        }
    }
}
