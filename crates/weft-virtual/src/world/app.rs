//! A stream of a client's user.

use weft_core::address::ConnectionId;
use weft_core::origin::AppRefusal;
use weft_model::traffic::records::Outcome;
use weft_model::traffic::{ClientStream, Failure, FailureKind, StreamId};

/// A stream of the user's.
#[derive(Debug)]
pub(super) struct App {
    pub(super) stream: StreamId,
    pub(super) isolation: u32,
    pub(super) traffic: ClientStream,
    /// When it is looked at without anything having happened, in nanoseconds.
    pub(super) timer: Option<u64>,
}

impl App {
    pub(super) fn new(stream: StreamId, isolation: u32, traffic: ClientStream) -> App {
        App {
            stream,
            isolation,
            traffic,
            timer: None,
        }
    }
}

/// A stream of the user's that is over.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) id: ConnectionId,
    pub(super) app: Box<App>,
    pub(super) outcome: Outcome,
}

/// Why a stream failed that no circuit took.
pub(super) fn refusal(why: AppRefusal) -> Failure {
    Failure::new(
        FailureKind::Proxy,
        format!("Tor refused the stream: {why:?}"),
    )
}
