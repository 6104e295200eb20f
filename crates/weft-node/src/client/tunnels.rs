//! The directory's streams: over circuits of one hop (dir-spec 1, BEGIN_DIR).

use std::io;

use tokio::sync::{mpsc, oneshot};
use weft_dir::client::{DirConnection, DirOutcome, DirServer, DirSource, DirStreams, OpenFuture};

use super::building::Hop;
use super::machine::DirectoryTarget;

/// What the directory asks of the client's task.
#[derive(Debug)]
pub(super) enum DirOrder {
    /// A stream.
    Open {
        /// To whom.
        source: DirSource,
        /// Where it goes.
        reply: oneshot::Sender<io::Result<DirConnection>>,
    },
    /// How a request over the stream of this number went.
    Outcome(u64, DirOutcome),
}

/// Opens the directory's streams, by way of the client's task.
#[derive(Debug)]
pub(super) struct Tunnels {
    /// To the client's task.
    pub(super) orders: mpsc::UnboundedSender<DirOrder>,
}

impl DirStreams for Tunnels {
    fn open(&self, source: DirSource) -> OpenFuture<'_> {
        let (reply, answer) = oneshot::channel();
        // The directory has few requests underway at once, so the queue stays short.
        let sent = self.orders.send(DirOrder::Open { source, reply });
        Box::pin(async move {
            let gone = || io::Error::other("the client is ending");
            sent.map_err(|_| gone())?;
            answer.await.map_err(|_| gone())?
        })
    }

    fn outcome(&self, token: u64, outcome: DirOutcome) {
        let _ = self.orders.send(DirOrder::Outcome(token, outcome));
    }
}

/// Whom a source is, for the machine.
pub(super) fn target(source: DirSource) -> DirectoryTarget {
    match source {
        DirSource::Guard => DirectoryTarget::Guard,
        DirSource::Server(server) => DirectoryTarget::Relay(relay(server)),
    }
}

/// A directory of torrc as a hop; its onion key is not known.
fn relay(server: DirServer) -> Hop {
    let mut rsa = [0; 20];
    for (to, from) in rsa.iter_mut().zip(server.rsa.as_bytes()) {
        *to = *from;
    }
    Hop {
        rsa,
        ed25519: server.ed25519.map(Into::into),
        ntor: None,
        addrs: server.or_addrs,
        ntor_v3: false,
        congestion_control: false,
        cgo: false,
        nickname: server.nickname,
    }
}
