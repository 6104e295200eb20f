//! Behaviour of users and controllers beyond streams to addresses, and checks of it: names,
//! destinations that rules refuse, streams that a controller holds, options that change, circuits
//! of one hop.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use weft_core::address::ConnectionId;
use weft_core::origin::{AppOpening, AppRequest, OriginCommand, OriginId, StreamOpening};

/// A port that the client's rules refuse (`RejectPlaintextPorts`).
pub(super) const REFUSED_PORT: u16 = 110;
/// A name that stands for the first server as long as torrc has that.
const MAPPED: &str = "mapped.test";
/// The end of servers' names, behind their addresses.
const NAMED: &str = ".server.test";
/// A name that leads to where no exit's policy allows.
const INSIDE: &str = "inside.test";
/// A name that does not exist.
const NOWHERE: &str = "nowhere.test";

/// Behaviour of a client beyond plain streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Odd {
    /// Some streams name their destinations.
    pub(crate) names: bool,
    /// Some streams are for what the client's rules, name servers or exits' policies refuse.
    pub(crate) refused: bool,
    /// A controller attaches streams.
    pub(crate) held: bool,
    /// Users take nothing for so many seconds, then everything for as many, and so on; 0: they always do.
    pub(crate) rests: u64,
    /// When torrc has no MapAddress any more.
    pub(crate) unmapped_at: Duration,
}

/// Names that a hostile client asks for.
pub(super) const NAMES: &[&str] = &[INSIDE, NOWHERE, MAPPED];

/// The name of a server.
pub(super) fn name_of(server: IpAddr) -> String {
    server.to_string().replace('.', "-") + NAMED
}

impl Odd {
    /// The destination of the stream of this number, to this server.
    pub(super) fn target(self, number: usize, server: SocketAddr) -> (String, u16) {
        let port = server.port();
        let host = match number % 8 {
            1 | 5 if self.names => name_of(server.ip()),
            0 if self.refused => INSIDE.to_owned(),
            2 if self.refused => NOWHERE.to_owned(),
            4 if self.refused => MAPPED.to_owned(),
            6 if self.refused => return (server.ip().to_string(), REFUSED_PORT),
            _ => server.ip().to_string(),
        };
        (host, port)
    }

    /// True if users read nothing at that time.
    pub(super) fn rests_at(self, elapsed: Duration) -> bool {
        self.rests > 0 && (elapsed.as_secs() / self.rests) % 2 == 1
    }

    /// A number for the user of the stream of this number.
    pub(super) fn user(self, number: usize) -> u32 {
        u32::from(self.names && number % 3 == 1)
    }

    /// torrc's MapAddress lines, where its servers are these.
    pub(super) fn maps(self, servers: &[SocketAddr]) -> Vec<(String, String)> {
        let first = servers.first().filter(|_| self.refused);
        let line = first.map(|server| (MAPPED.to_owned(), server.ip().to_string()));
        line.into_iter().collect()
    }
}

/// The address that a name server has for a name.
pub(super) fn look_up(name: &[u8], servers: &[SocketAddr]) -> Option<IpAddr> {
    let name = std::str::from_utf8(name).ok()?;
    if name == INSIDE {
        return Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    let addr = name.strip_suffix(NAMED)?.replace('-', ".").parse().ok()?;
    let mut all = servers.iter();
    all.any(|server| server.ip() == addr).then_some(addr)
}

/// Streams that were asked for, and the circuits that they were put on.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// By stream: its user, and whether its name has to stay as it is.
    streams: BTreeMap<ConnectionId, (Vec<u8>, bool)>,
    /// By circuit: the user of its streams.
    users: BTreeMap<OriginId, Vec<u8>>,
}

impl Asked {
    /// An application asks for a stream. `mapped`: torrc has a MapAddress.
    pub(super) fn note(&mut self, stream: ConnectionId, request: &AppRequest, mapped: bool) {
        let user = request.credentials.as_ref();
        let user = user.map_or_else(Vec::new, |one| one.user.clone());
        let is_mapped =
            matches!(&request.opening, AppOpening::Connect { host, .. } if host == MAPPED);
        self.streams.insert(stream, (user, is_mapped && !mapped));
    }

    /// A stream is over.
    pub(super) fn forget_stream(&mut self, stream: ConnectionId) {
        self.streams.remove(&stream);
    }

    /// A circuit is over.
    pub(super) fn forget_circuit(&mut self, circuit: OriginId) {
        self.users.remove(&circuit);
    }

    /// Error in a command, if any. `held`: a controller chooses circuits, which may mix users.
    pub(super) fn check(&mut self, command: &OriginCommand, held: bool) -> Option<String> {
        let OriginCommand::Attach {
            stream,
            circuit,
            opening,
            ..
        } = command
        else {
            return None;
        };
        let (user, stays) = self.streams.get(stream)?;
        if let StreamOpening::Begin { host, port, .. } = opening {
            if *port == REFUSED_PORT {
                return Some(format!(
                    "a stream to port {port}, which the client's rules refuse, is attached"
                ));
            }
            if *stays && host != MAPPED {
                return Some(format!(
                    "a stream to {MAPPED} leads to {host}, which no option maps it to any more"
                ));
            }
        }
        let of_circuit = self.users.entry(*circuit).or_insert_with(|| user.clone());
        (of_circuit != user && !held)
            .then(|| format!("{circuit} has streams of two users that must be kept apart"))
    }
}
