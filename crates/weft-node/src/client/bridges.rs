//! The bridges of the client: carries out what [`weft_client::Bridges`] wants.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rand::rngs::StdRng;
use tokio::sync::mpsc;
use weft_cell::identity::RsaIdentity;
use weft_client::{BridgeTask, Bridges, Client, DescribedBridge, Now, Paths, Via};
use weft_dir::client::{
    BridgeDescriptor, ClientHandle, DirServer, DirStreams, fetch_bridge, keep_bridges, read_bridges,
};
use weft_dir::clock::SystemClock;
use weft_path::{Hop, StatedFamily};

use crate::logging;

/// A bridge's answer.
pub(super) struct BridgeAnswer {
    addr: SocketAddr,
    /// RSA identity that was asked for.
    rsa: RsaIdentity,
    descriptor: Result<BridgeDescriptor, String>,
}

fn described(addr: SocketAddr, of: &BridgeDescriptor) -> DescribedBridge {
    let ids = (of.rsa.into(), of.ed25519.into());
    DescribedBridge {
        hop: Hop::of_bridge(addr, of.nickname.clone(), ids, of.ntor, &of.protocols),
        family: StatedFamily {
            relays: of.family.iter().map(|id| (*id).into()).collect(),
            keys: of.family_ids.clone(),
        },
    }
}

/// The bridges of a client, and what they are asked.
pub(super) struct BridgeSide {
    pub(super) bridges: Bridges,
    /// Descriptors that are on disk, or will be.
    kept: BTreeMap<RsaIdentity, BridgeDescriptor>,
    /// Opens streams to them.
    streams: Arc<dyn DirStreams>,
    /// A request that stands still this long fails.
    pub(super) max_stall: Duration,
    answers: mpsc::UnboundedSender<BridgeAnswer>,
    /// True if a bridge can be asked for documents, as last reported to the directory.
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
            kept: BTreeMap::new(),
            streams,
            max_stall,
            answers,
            usable: false,
            proxied,
        };
        (side, receiver)
    }

    /// Path of connections to this relay.
    pub(super) fn via(&self, rsa: &RsaIdentity) -> Via {
        match (self.bridges.is_by_transport(rsa), self.proxied) {
            (true, _) => Via::Transport,
            (false, true) => Via::Proxy,
            (false, false) => Via::Direct,
        }
    }

    /// Takes the descriptors of bridges that were kept in CacheDirectory. True: path selection has to know.
    pub(super) fn restore(&mut self, directory: Option<&Path>, now: SystemTime) -> bool {
        let Some(directory) = directory.filter(|_| self.bridges.are_used()) else {
            return false;
        };
        match read_bridges(directory, now) {
            Ok(found) => {
                for descriptor in found {
                    let rsa = descriptor.rsa.into();
                    self.kept.entry(rsa).or_insert(descriptor);
                }
            }
            Err(error) => tracing::warn!("Could not read the descriptors of bridges: {error}"),
        }
        let kept = &self.kept;
        self.bridges
            .restore(|addr, rsa| kept.get(&rsa).map(|of| described(addr, of)))
    }

    /// Keeps a descriptor, with those of the other bridges of torrc.
    fn keep(&mut self, descriptor: BridgeDescriptor, directory: Option<&Path>) {
        self.kept.insert(descriptor.rsa.into(), descriptor);
        let bridges = self.bridges.for_paths();
        self.kept
            .retain(|rsa, _| bridges.iter().any(|bridge| bridge.rsa == Some(*rsa)));
        if let Some(directory) = directory
            && let Err(error) = keep_bridges(directory, self.kept.values())
        {
            tracing::warn!("Could not keep the descriptors of bridges: {error}");
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
            let descriptor = fetch_bridge(streams, server, stall, clock).await;
            // Without a receiver the client is ending.
            let _ = answers.send(BridgeAnswer {
                addr,
                rsa,
                descriptor,
            });
        });
    }

    /// Applies a change in what is known of bridges, or in torrc's list of them.
    pub(super) fn changed(&self, client: &mut Client<Paths>, rng: &mut StdRng, now: Now) {
        let known = self.bridges.for_paths();
        if client.chooser().set_bridges(known, now, rng) {
            crate::notice!("Other guards are in use now: circuits so far are abandoned");
            client.abandon_circuits();
        }
    }

    /// A bridge has sent its descriptor, or not. `directory` is CacheDirectory.
    pub(super) fn on_answer(
        &mut self,
        answer: BridgeAnswer,
        directory: Option<&Path>,
        client: &mut Client<Paths>,
        rng: &mut StdRng,
        now: Now,
    ) {
        let BridgeAnswer {
            addr,
            rsa,
            descriptor,
        } = answer;
        let known = descriptor.as_ref().map(|of| described(addr, of));
        let known = known.map_err(String::clone);
        if self.bridges.answered(addr, known, now.mono) {
            self.changed(client, rng, now);
        }
        // Another relay's was refused.
        if let Ok(descriptor) = descriptor
            && rsa == descriptor.rsa.into()
        {
            self.keep(descriptor, directory);
        }
    }

    /// A link is open: it may lead to a bridge known only by its address.
    pub(super) fn meet(
        &mut self,
        (addr, rsa): (SocketAddr, RsaIdentity),
        client: &mut Client<Paths>,
        rng: &mut StdRng,
        now: Now,
    ) {
        if self.bridges.met(addr, rsa, now.mono) {
            self.changed(client, rng, now);
        }
    }

    /// Connects to the bridges, and asks them, as far as that is due; notifies the directory when some can be asked.
    pub(super) fn run(
        &mut self,
        client: &mut Client<Paths>,
        directory: &ClientHandle,
        rng: &mut StdRng,
        now: Now,
    ) {
        if self.bridges.are_used() && !client.config().disable_network {
            self.ask_due(client, rng, now);
        }
        let usable = client.chooser_ref().has_usable_bridge();
        if usable != self.usable && directory.set_bridges(usable) {
            self.usable = usable;
        }
    }

    /// Connects to the bridges, and asks them, as far as that is due.
    fn ask_due(&mut self, client: &mut Client<Paths>, rng: &mut StdRng, now: Now) {
        if client.chooser().take_asks_bridges() {
            self.bridges.retry(now.mono);
        }
        let paths = client.chooser_ref().options();
        let due = self.bridges.due(paths, now.mono, rng);
        for task in due {
            match task {
                BridgeTask::Meet(addr) => {
                    if let Err(error) = client.meet(addr, now) {
                        tracing::info!("Could not connect to a bridge: {error}");
                    }
                }
                BridgeTask::Ask(addr, rsa) => self.ask(addr, rsa),
            }
        }
        for line in self.bridges.take_lines() {
            logging::log(&line);
        }
    }
}
