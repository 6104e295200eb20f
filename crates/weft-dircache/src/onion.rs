//! Onion-service descriptors over HTTP: `GET /tor/hs/3/KEY` and `POST /tor/hs/3/publish` (rend-spec UPLOAD-DESC,
//! FETCH-DESC; C tor dircache.c, whose words these are). Both only by a circuit that comes from another
//! relay, so that no directory learns who a service or its client is.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::io::{AsyncRead, AsyncReadExt as _};
use weft_dir::clock::Clock;

use crate::answer::Answer;
use crate::hs_dir::{Fetch, HsDir, Refused};
use crate::plain::plain;
use crate::request::Upload;
use crate::resource::Resource;

/// Time for the body of an upload. Circuits of onion services have up to five hops.
const UPLOAD_TIME: Duration = Duration::from_secs(120);

/// Bytes of a body that are read at once.
const CHUNK: usize = 8 << 10;

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

/// The answer to an upload, of which `came` came with its head; `stream` has the rest. `None`: the other side has gone
/// away, or takes too long.
pub(super) async fn publish(
    directory: &HsDir,
    upload: &Upload,
    came: &[u8],
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
    let _room = match directory.begin_upload(upload.length) {
        Ok(room) => room,
        Err(Some(_)) => return short(400, INVALID),
        Err(None) => return short(503, "Directory busy, try again later"),
    };
    let mut body = came.get(..upload.length).unwrap_or(came).to_vec();
    let read = async {
        while body.len() < upload.length {
            let missing = upload.length - body.len();
            body.reserve(missing.min(CHUNK));
            let most = u64::try_from(missing).unwrap_or(u64::MAX);
            if (&mut *stream).take(most).read_buf(&mut body).await? == 0 {
                return Ok(false);
            }
        }
        io::Result::Ok(true)
    };
    let whole = tokio::select! {
        biased;
        whole = read => whole?,
        () = clock.sleep(UPLOAD_TIME) => false,
    };
    if !whole {
        return Ok(None);
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
