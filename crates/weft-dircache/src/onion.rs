//! Onion-service descriptors over HTTP: `GET /tor/hs/3/KEY` and `POST /tor/hs/3/publish` (rend-spec UPLOAD-DESC,
//! FETCH-DESC; C tor dircache.c, whose words these are). Both only by a circuit that comes from another
//! relay, so that no directory learns who a service or its client is.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::io::AsyncRead;
use weft_dir::clock::Clock;

use crate::answer::{Answer, BUSY};
use crate::budget::Charge;
use crate::hs_dir::{Fetch, HsDir, Refused};
use crate::plain::plain;
use crate::request::Upload;
use crate::resource::Resource;
use crate::upload::{Reading, read};

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
    let body = match read(upload, came, charge, stream, clock).await? {
        Reading::Whole(body) => body,
        Reading::NoRoom => return short(503, BUSY),
        Reading::Ended => return Ok(None),
    };
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
