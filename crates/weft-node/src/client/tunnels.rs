//! The directory's streams: over circuits of one hop (dir-spec 1, BEGIN_DIR).

use std::io;

use tokio::sync::{mpsc, oneshot};
use weft_client::{DirectoryTarget, Hop};
use weft_dir::client::{DirConnection, DirOutcome, DirServer, DirSource, DirStreams, OpenFuture};

/// A message of the directory to the client's task.
#[derive(Debug)]
pub(super) enum DirCommand {
    /// Open a stream.
    Open {
        source: DirSource,
        reply: oneshot::Sender<io::Result<DirConnection>>,
    },
    /// The outcome of a request over the stream of this token.
    Outcome(u64, DirOutcome),
}

/// Opens the directory's streams through the client's task.
#[derive(Debug)]
pub(super) struct Tunnels {
    pub(super) commands: mpsc::UnboundedSender<DirCommand>,
}

impl DirStreams for Tunnels {
    fn open(&self, source: DirSource) -> OpenFuture<'_> {
        let (reply, answer) = oneshot::channel();
        // The directory has few requests underway at once, so the queue stays short.
        let sent = self.commands.send(DirCommand::Open { source, reply });
        Box::pin(async move {
            let ending = || io::Error::other("the client is ending");
            sent.map_err(|_| ending())?;
            answer.await.map_err(|_| ending())?
        })
    }

    fn outcome(&self, token: u64, outcome: DirOutcome) {
        let _ = self.commands.send(DirCommand::Outcome(token, outcome));
    }
}

/// The client's name of a source.
pub(super) fn target(source: DirSource) -> DirectoryTarget {
    match source {
        DirSource::Guard => DirectoryTarget::Guard,
        DirSource::Server(server) => DirectoryTarget::Relay(relay(server)),
    }
}

/// A directory of torrc as a hop; its onion key is unknown.
fn relay(server: DirServer) -> Hop {
    Hop {
        rsa: server.rsa.into(),
        ed25519: server.ed25519.map(Into::into),
        ntor: None,
        addrs: server.or_addrs,
        ntor_v3: false,
        congestion_control: false,
        cgo: false,
        abra: false,
        bandwidth: 0,
        nickname: server.nickname,
    }
}
