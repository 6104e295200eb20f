//! The authority of a private network, as the directory of its relay asks it: its documents are served in place of the
//! cache's, and it takes what relays post.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::io::AsyncRead;
use weft_dir::clock::Clock;

use crate::answer::{Answer, BUSY, Found};
use crate::budget::Charge;
use crate::request::{Request, Upload};
use crate::upload::{Reading, read};

/// Bytes of an upload: a descriptor and an extra-info document, with room.
const MAX_BODY: usize = 256 << 10;

/// An authority.
pub trait Authority: fmt::Debug + Send + Sync {
    /// Answer to a request for its documents.
    fn find(&self, request: &Request, now: SystemTime) -> Found;

    /// Takes what was posted to `/tor/`.
    fn post(&self, body: &[u8], now: SystemTime) -> Posted;
}

/// The answer to an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posted {
    /// Status code.
    pub status: u16,
    /// Reason phrase.
    pub reason: Cow<'static, str>,
    /// `X-Descriptor-Not-New: Yes`.
    pub not_new: bool,
}

/// The answer to an upload to `authority`, of which `came` has its head and what came with it; `stream` has the rest. What
/// it holds is charged to `charge`. `None`: the other side has gone away, or takes too long.
pub(super) async fn post(
    authority: &dyn Authority,
    upload: &Upload,
    came: &Vec<u8>,
    charge: &Charge,
    stream: &mut (impl AsyncRead + Unpin),
    clock: &Arc<dyn Clock>,
) -> io::Result<Option<Answer>> {
    let short = |status, reason| Ok(Some(Answer::short(status, reason, clock.wall())));
    if upload.length > MAX_BODY {
        return short(400, "Router descriptor was too large.");
    }
    let body = match read(upload, came, charge, stream, clock).await? {
        Reading::Whole(body) => body,
        Reading::NoRoom => return short(503, BUSY),
        Reading::Ended => return Ok(None),
    };
    let now = clock.wall();
    let posted = authority.post(&body, now);
    let mut answer = Answer::short(posted.status, &posted.reason, now);
    if posted.not_new {
        let end = answer.head.len().saturating_sub("\r\n".len());
        answer.head.insert_str(end, "X-Descriptor-Not-New: Yes\r\n");
    }
    Ok(Some(answer))
}
