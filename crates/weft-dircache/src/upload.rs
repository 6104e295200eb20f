//! Reading of an upload's body: bounded in time, and charged as it arrives.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use weft_dir::clock::Clock;

use crate::budget::Charge;
use crate::request::Upload;

/// Time for the body of an upload. Circuits of onion services have up to five hops.
const UPLOAD_TIME: Duration = Duration::from_secs(120);

/// Bytes of a body that are read at once.
const CHUNK: usize = 8 << 10;

/// Result of reading an upload's body.
pub(super) enum Reading {
    Whole(Vec<u8>),
    /// There is no room for it.
    NoRoom,
    /// The other side has gone away, or takes too long.
    Ended,
}

/// Reads the body of `upload`, of which `came` has the head and what came with it; `stream` has the rest.
pub(super) async fn read(
    upload: &Upload,
    came: &Vec<u8>,
    charge: &Charge,
    stream: &mut (impl AsyncRead + Unpin),
    clock: &Arc<dyn Clock>,
) -> io::Result<Reading> {
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
                return Ok(Reading::Whole(body));
            }
            let most = u64::try_from(missing).unwrap_or(u64::MAX);
            if (&mut *stream).take(most).read_buf(&mut body).await? == 0 {
                return Ok(Reading::Ended);
            }
        }
    };
    tokio::select! {
        biased;
        read = read => read,
        () = clock.sleep(UPLOAD_TIME) => Ok(Reading::Ended),
    }
}
