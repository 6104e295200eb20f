//! Answers that are never compressed: descriptors of onion services, and the page for people.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use weft_dir::http::http_date;

use crate::answer::{Answer, address_header};
use crate::pieces::{Part, Pieces};

/// Cache lifetime of the page (C tor `DIRPORTFRONTPAGE_CACHE_LIFETIME`).
const PAGE_LIFETIME: Duration = Duration::from_secs(20 * 60);

/// A document of this type, for a client at `peer`; it may be kept for `lifetime`.
pub(super) fn plain(
    body: Arc<[u8]>,
    content: &str,
    lifetime: Duration,
    now: SystemTime,
    peer: IpAddr,
) -> Answer {
    let date = |time| http_date(time).unwrap_or_default();
    let expiry = match lifetime.is_zero() {
        true => "Pragma: no-cache".to_owned(),
        false => format!("Expires: {}", date(now + lifetime)),
    };
    Answer {
        head: format!(
            "HTTP/1.0 200 OK\r\nDate: {}\r\nContent-Type: {content}\r\n{}\
             Content-Encoding: identity\r\nContent-Length: {}\r\n{expiry}\r\n\r\n",
            date(now),
            address_header(peer),
            body.len(),
        ),
        body: Pieces::one(Part::Bytes(body)),
        retained: 0,
    }
}

/// The page for people (`DirPortFrontPage`), at `/` and `/tor/`; 404 where there is none.
pub(super) fn page(page: Option<Arc<[u8]>>, now: SystemTime, peer: IpAddr) -> Answer {
    match page {
        Some(page) => plain(page, "text/html", PAGE_LIFETIME, now, peer),
        None => Answer::short(404, "Not found", now),
    }
}
