//! TCP streams that fill links: what else there is in a network.

use weft_model::hosts::{ConnId, End, HostId};

use super::ground::{Ground, Listener, News, Owner};
use crate::setup::Background;

/// Where they are read.
const PORT: u16 = 5_001;
/// Bytes that are written at once.
static CHUNK: [u8; 64 << 10] = [0; 64 << 10];

/// Begins all of them.
pub(super) fn begin(streams: &[Background], ground: &mut Ground) {
    for stream in streams {
        ground.listen(HostId(stream.to), PORT, Listener::Background);
        open(stream, ground);
    }
}

fn open(stream: &Background, ground: &mut Ground) {
    let Background { from, to } = *stream;
    if let Some(addr) = ground.addr_of(HostId(to)) {
        let to_addr = std::net::SocketAddr::new(addr, PORT);
        ground.connect(HostId(from), to_addr, Owner::Background { from, to });
    }
}

/// A connection came.
pub(super) fn accept(conn: ConnId, ground: &mut Ground) {
    let hosts = [End::Opener, End::Accepter].map(|end| ground.net.host_of(conn, end));
    if let [Some(from), Some(to)] = hosts {
        let owner = Owner::Background {
            from: from.0,
            to: to.0,
        };
        ground.own(conn, End::Accepter, owner);
    }
}

/// Something has happened to one's connection: the opener writes as much as it can, the other end reads all.
pub(super) fn note(stream: Background, conn: ConnId, end: End, news: News, ground: &mut Ground) {
    match (end, news) {
        (End::Opener, News::Connected | News::Writable) => {
            while ground.net.write(conn, end, &CHUNK) == CHUNK.len() {}
        }
        (End::Accepter, News::Readable) => {
            ground.net.read(conn, end, usize::MAX, |_| ());
        }
        // One that breaks is opened again.
        (End::Opener, News::Broken) => open(&stream, ground),
        _ => {}
    }
}
