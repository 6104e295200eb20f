//! What this machine's applications say to a client: SOCKS 4, 4a and 5, HTTP CONNECT, and DNS.
//!
//! No sockets here. A [`Handshake`] is one connection's, from its first byte until the application
//! is answered; whoever has the socket gives it bytes and sends what it says. [`destination`] says
//! where nobody may go, [`dns`] is the DNSPort. All bytes are hostile: every page of a browser can
//! make it send some here (architecture rule 6).
//!
//! `tor-socksproto` is not used: it gives no answers for methods and commands that it refuses, and
//! knows neither C tor's tolerance (a user name that nobody asked for) nor its preferences
//! (`PreferSOCKSNoAuth`), nor a bound of its own on SOCKS 4.

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]

pub mod destination;
pub mod dns;
mod http;
mod socks;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use weft_cell::stream_msg::Resolved;
use weft_core::origin::{AppCredentials, AppOpening, AppProtocol, AppRefusal, AppRequest};
use weft_core::routable::is_public;

use crate::torrc::client_ports::{AppPort, AppService, StreamFlags};
use crate::torrc::options::AppOptions;
use destination::DestinationRules;

/// Bytes of a connection that a handshake wants to see at once, at most: the head of an HTTP
/// request. Who keeps more than this for it keeps data for the destination.
pub const MAX_HANDSHAKE: usize = 8192;

/// What a listener does with those who come to it; shared by its connections.
#[derive(Clone, Debug)]
pub struct AppRules {
    /// The listener's number.
    pub listener: u32,
    /// What it speaks.
    pub service: AppService,
    /// Its flags.
    pub flags: StreamFlags,
    /// `SafeSocks`.
    pub safe_socks: bool,
    /// `TestSocks`.
    pub test_socks: bool,
    /// `ClientDNSRejectInternalAddresses`: exits are not believed that name private addresses.
    pub reject_internal_answers: bool,
    /// Where nobody may go; `None`: whoever takes the requests asks
    /// [`destination::check`] itself.
    pub destination: Option<DestinationRules>,
}

impl AppRules {
    /// The rules of one port.
    #[must_use]
    pub fn new(listener: u32, port: &AppPort, options: &AppOptions) -> Self {
        Self {
            listener,
            service: port.service,
            flags: port.flags,
            safe_socks: options.safe_socks,
            test_socks: options.test_socks,
            reject_internal_answers: options.reject_internal_answers,
            destination: Some(DestinationRules::before_maps(options)),
        }
    }
}

/// Something that the operator, or a controller, should hear of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// How loud.
    pub level: tracing::Level,
    /// The log line.
    pub text: String,
    /// The STATUS_CLIENT event, without its severity (control-spec 4.1.10).
    pub event: Option<String>,
}

impl Notice {
    fn new(level: tracing::Level, text: impl Into<String>) -> Self {
        Self {
            level,
            text: text.into(),
            event: None,
        }
    }

    fn with_event(mut self, event: impl Into<String>) -> Self {
        self.event = Some(event.into());
        self
    }

    /// Writes it to the log.
    pub fn log(&self) {
        match self.level {
            tracing::Level::ERROR => tracing::error!("{}", self.text),
            tracing::Level::WARN => tracing::warn!("{}", self.text),
            tracing::Level::INFO => tracing::info!("{}", self.text),
            _ => tracing::debug!("{}", self.text),
        }
    }
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Read more.
    NeedMore,
    /// Forget the first `used` bytes and send `reply`; then ask again.
    Reply {
        /// Bytes that have been dealt with.
        used: usize,
        /// What the application waits for.
        reply: Vec<u8>,
    },
    /// The application asks for something. What follows the first `used` bytes is for the
    /// destination (optimistic data).
    Request {
        /// Bytes that have been dealt with.
        used: usize,
        /// What it asks for.
        request: AppRequest,
    },
    /// The answer is known already: send it and close.
    Answered {
        /// The answer.
        reply: Vec<u8>,
    },
}

/// A handshake that failed: send the reply, if there is one, and close.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What to send; may be empty.
    pub reply: Vec<u8>,
    /// Why.
    pub notice: Notice,
}

/// How the application wants to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Voice {
    /// Not at all, yet.
    None,
    Socks4,
    Socks5,
    Http,
}

/// One application's connection, until it has been answered.
#[derive(Debug)]
pub struct Handshake {
    rules: Arc<AppRules>,
    from: Option<SocketAddr>,
    state: socks::State,
    credentials: Option<AppCredentials>,
    voice: Voice,
    notices: Vec<Notice>,
    /// It asked for the name of an address.
    reverse: bool,
    finished: bool,
}

impl Handshake {
    /// A connection that was accepted just now; `from` is `None` on a Unix socket.
    #[must_use]
    pub fn new(rules: Arc<AppRules>, from: Option<SocketAddr>) -> Self {
        Self {
            rules,
            from,
            state: socks::State::Start,
            credentials: None,
            voice: Voice::None,
            notices: Vec::new(),
            reverse: false,
            finished: false,
        }
    }

    /// Looks at the bytes that have come and are not yet dealt with.
    ///
    /// Nothing is kept of them: give those that are not `used` again, with more.
    ///
    /// # Errors
    ///
    /// The application says what nobody understands, or wants what it may not have.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Step, Failure> {
        if self.finished {
            return Err(Failure {
                reply: Vec::new(),
                notice: Notice::new(tracing::Level::INFO, "the handshake is over"),
            });
        }
        let step = match self.rules.service {
            AppService::Socks => self.socks(bytes),
            AppService::HttpTunnel => self.http(bytes),
            AppService::Dns => Err(self.fail(
                Vec::new(),
                Notice::new(tracing::Level::INFO, "a DNSPort has no connections"),
            )),
        };
        self.finished = !matches!(step, Ok(Step::NeedMore | Step::Reply { .. }));
        step
    }

    /// Whether an exit may claim to have connected to this address: where it may not, the stream is
    /// to end with TORPROTOCOL (relay.c, `connection_edge_process_relay_cell_not_open`).
    #[must_use]
    pub fn may_be_connected_to(&self, addr: IpAddr) -> bool {
        !(addr.is_unspecified() || self.rules.reject_internal_answers && !is_public(addr))
    }

    /// Whether each of [`take_notices`](Self::take_notices) is wanted (`TestSocks`).
    #[must_use]
    pub fn tests(&self) -> bool {
        self.rules.test_socks
    }

    /// What the log should say of the application so far. Tell it once; rate-limit it, unless
    /// [`AppRules::test_socks`] or [`AppRules::safe_socks`] ask for each.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// The answer to a request to connect: it is done. As in C tor it names no address.
    #[must_use]
    pub fn connected(&self) -> Vec<u8> {
        match self.voice {
            Voice::None => Vec::new(),
            Voice::Socks4 => socks::reply4(true, None),
            Voice::Socks5 => socks::reply5_status(0, self.is_ipv6()),
            Voice::Http => http::connected(),
        }
    }

    /// The answer to a request to resolve. Addresses that an exit should not claim are left out
    /// (`ClientDNSRejectInternalAddresses`).
    #[must_use]
    pub fn resolved(&self, resolved: &Resolved) -> Vec<u8> {
        let mut resolved = resolved.clone();
        if self.rules.reject_internal_answers {
            destination::remove_internal(&mut resolved);
        }
        self.answered(&resolved)
    }

    fn answered(&self, resolved: &Resolved) -> Vec<u8> {
        match self.voice {
            Voice::Socks4 => socks::resolved4(resolved),
            Voice::Socks5 if self.reverse => socks::resolved_name5(resolved),
            Voice::Socks5 => socks::resolved5(resolved, &self.rules.flags),
            Voice::None | Voice::Http => Vec::new(),
        }
    }

    /// The answer to a request that fails.
    #[must_use]
    pub fn refused(&self, why: AppRefusal) -> Vec<u8> {
        match self.voice {
            Voice::None => Vec::new(),
            Voice::Socks4 => socks::reply4(false, None),
            Voice::Socks5 => {
                let status = socks::status(why, self.rules.flags.extended_errors);
                socks::reply5_status(status, self.is_ipv6())
            }
            Voice::Http => http::refused(why),
        }
    }

    fn is_ipv6(&self) -> bool {
        self.from.is_some_and(|from| from.is_ipv6())
    }

    fn fail(&self, reply: Vec<u8>, notice: Notice) -> Failure {
        Failure { reply, notice }
    }

    /// The application's request is complete: holds it against the rules.
    fn request(
        &mut self,
        used: usize,
        opening: AppOpening,
        protocol: AppProtocol,
    ) -> Result<Step, Failure> {
        let rules = self.rules.clone();
        self.reverse = matches!(opening, AppOpening::ResolvePtr { .. });
        if let Some(destination) = &rules.destination {
            match destination::check(&opening, protocol, &rules.flags, destination) {
                Ok(notice) => self.notices.extend(notice),
                Err(refused) => return Err(self.fail(self.refused(refused.why), refused.notice)),
            }
            if let Some(answer) = destination::known_answer(&opening) {
                return Ok(Step::Answered {
                    reply: self.answered(&answer),
                });
            }
        }
        let request = AppRequest {
            opening,
            from: self.from.map(|from| from.ip()),
            from_port: self.from.map_or(0, |from| from.port()),
            listener: self.rules.listener,
            protocol,
            credentials: self.credentials.take().map(Arc::new),
        };
        Ok(Step::Request { used, request })
    }
}
