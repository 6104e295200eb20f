//! Onion-service descriptors over HTTP: `GET /tor/hs/3/KEY` and `POST /tor/hs/3/publish` (rend-spec UPLOAD-DESC,
//! FETCH-DESC; C tor dircache.c, whose words these are). Both only by a circuit that comes from another
//! relay, so that no directory learns who a service or its client is.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::io::{AsyncRead, AsyncReadExt as _};
use weft_dir::clock::Clock;

use crate::answer::{Answer, BUSY};
use crate::budget::Charge;
use crate::hs_dir::{Fetch, HsDir, Refused};
use crate::plain::plain;
use crate::request::Upload;
use crate::resource::Resource;

/// Time for the body of an upload. Circuits of onion services have up to five hops.
const UPLOAD_TIME: Duration = Duration::from_secs(120);

/// Bytes of a body that are read at once.
const CHUNK: usize = 8 << 10;

/// The result of reading the body of an upload.
enum Reading {
    Whole,
    /// There is no room for it.
    NoRoom,
    /// The other side has gone away, or takes too long.
    Ended,
}

/// The answer to a GET for `path`, with the fetch that it is. `None`: the path is no descriptor's.
pub(super) fn fetch<'a>(
    directory: &'a HsDir,
    path: &str,
    by_relay: bool,
    peer: IpAddr,
    now: (SystemTime, Duration),
) -> Option<(Answer, Option<Fetch<'a>>)> {
    let Some((Resource::OnionDescriptor, key)) = Resource::get(path) else {
        return None;
    };
    if !by_relay {
        directory.note_single_hop();
        let reason = "Rejecting single hop HS v3 descriptor request";
        return Some((Answer::short(503, reason, now.0), None));
    }
    let Some(fetch) = directory.fetch(key, now.1) else {
        return Some((Answer::short(404, "Not found", now.0), None));
    };
    let text = fetch.text.clone();
    let retained = text.len();
    let mut answer = plain(text, "text/plain", Duration::ZERO, now.0, peer);
    // A service that publishes again and again leaves the text to those who fetch it.
    answer.retained = retained;
    Some((answer, Some(fetch)))
}

/// The answer to an upload, of which `came` has its head and what came with it; `stream` has the
/// rest. The upload's memory is charged to `charge`. `None`: the other side has closed the stream,
/// or takes too long.
pub(super) async fn publish(
    directory: &HsDir,
    upload: &Upload,
    came: &Vec<u8>,
    charge: &Charge,
    stream: &mut (impl AsyncRead + Unpin),
    by_relay: bool,
    clock: &Arc<dyn Clock>,
) -> io::Result<Option<Answer>> {
    let short = |status, reason| Ok(Some(Answer::short(status, reason, clock.wall())));
    let Some((Resource::OnionUpload, rest)) = Resource::post(&upload.path) else {
        return short(
            400,
            "Nonauthoritative directory does not accept posted server descriptors",
        );
    };
    if !by_relay {
        directory.note_single_hop();
        return short(503, "Rejecting single hop HS descriptor post");
    }
    const INVALID: &str = "Invalid HS descriptor. Rejected.";
    if !rest.starts_with("3/publish") {
        return short(400, INVALID);
    }
    if directory.refuses_length(upload.length) {
        return short(400, INVALID);
    }
    let mut body = came.get(upload.head..).unwrap_or_default().to_vec();
    body.truncate(upload.length);
    let read = async {
        loop {
            let missing = upload.length - body.len();
            body.reserve(missing.min(CHUNK));
            if !charge.set(came.capacity() + body.capacity()) {
                return Ok(Reading::NoRoom);
            }
            if missing == 0 {
                return Ok(Reading::Whole);
            }
            let most = u64::try_from(missing).unwrap_or(u64::MAX);
            if (&mut *stream).take(most).read_buf(&mut body).await? == 0 {
                return Ok(Reading::Ended);
            }
        }
    };
    let read: io::Result<Reading> = tokio::select! {
        biased;
        read = read => read,
        () = clock.sleep(UPLOAD_TIME) => Ok(Reading::Ended),
    };
    match read? {
        Reading::Whole => {}
        Reading::NoRoom => return short(503, BUSY),
        Reading::Ended => return Ok(None),
    }
    match directory.publish(&body, (clock.wall(), clock.monotonic())) {
        Ok(()) => short(200, "HS descriptor stored successfully."),
        Err(
            Refused::TooLong
            | Refused::Malformed
            | Refused::Signature
            | Refused::Expired
            | Refused::NotNewer,
        ) => short(400, INVALID),
    }
}
