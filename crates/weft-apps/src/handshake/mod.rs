//! One connection of an application, from its first byte to the reply ([`Handshake`]).

mod http;
mod redirected;
mod socks;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use weft_cell::stream_msg::Resolved;
use weft_config::options::AppService;
use weft_core::origin::{AppCredentials, AppOpening, AppProtocol, AppRefusal, AppRequest};
use weft_core::routable::{is_public, remove_internal};
use weft_log::Line;

use crate::notice::Notice;
use crate::phase::{ReplyProtocol, SocksPhase};
use crate::rules::AppRules;
use crate::step::{Failure, Step};
use crate::{destination, http_reply, socks_reply};

/// One connection of an application, until it has its reply.
///
/// Call [`receive`](Self::receive) with all bytes that are not consumed yet, until it returns
/// [`Step::Request`], [`Step::Answered`] or an error; then send the reply that
/// [`connected`](Self::connected), [`resolved`](Self::resolved) or [`refused`](Self::refused) returns.
#[derive(Debug)]
pub struct Handshake {
    rules: Arc<AppRules>,
    from: Option<SocketAddr>,
    /// Where a connection led that was redirected to a TransPort.
    to: Option<SocketAddr>,
    state: SocksPhase,
    credentials: Option<AppCredentials>,
    reply_protocol: ReplyProtocol,
    notices: Vec<Notice>,
    /// The request is for the name of an address.
    reverse: bool,
    finished: bool,
}

impl Handshake {
    /// The state of a connection that was just accepted; `from` is `None` on a Unix socket.
    #[must_use]
    pub fn new(rules: Arc<AppRules>, from: Option<SocketAddr>) -> Self {
        Self {
            rules,
            from,
            to: None,
            state: SocksPhase::Start,
            credentials: None,
            reply_protocol: ReplyProtocol::None,
            notices: Vec::new(),
            reverse: false,
            finished: false,
        }
    }

    /// The state of a connection that was redirected to a TransPort; `to` is where it led, if that is known. The request
    /// is there without any bytes.
    #[must_use]
    pub fn redirected(
        rules: Arc<AppRules>,
        from: Option<SocketAddr>,
        to: Option<SocketAddr>,
    ) -> Self {
        Self {
            to,
            ..Self::new(rules, from)
        }
    }

    /// Handles `bytes`: everything received that was not consumed by an earlier call. None of it is kept:
    /// pass the rest again, with what follows.
    ///
    /// # Errors
    ///
    /// The bytes are no request of the protocol, or the request is not allowed.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Step, Failure> {
        if self.finished {
            return Err(Failure {
                reply: Vec::new(),
                notice: Box::new(Notice::new(Line::info("the handshake is over"))),
            });
        }
        let step = match self.rules.service {
            AppService::Socks => self.socks(bytes),
            AppService::HttpTunnel => self.http(bytes),
            AppService::Transparent(_) => self.transparent(),
            AppService::Natd => self.natd(bytes),
            AppService::Dns => Err(self.fail(
                Vec::new(),
                Notice::new(Line::info("a DNSPort has no connections")),
            )),
        };
        self.finished = !matches!(step, Ok(Step::NeedMore | Step::Reply { .. }));
        step
    }

    /// True if an exit may report that it connected to this address. Otherwise the stream ends with
    /// TORPROTOCOL (relay.c, `connection_edge_process_relay_cell_not_open`).
    #[must_use]
    pub fn may_be_connected_to(&self, addr: IpAddr) -> bool {
        !(addr.is_unspecified() || self.rules.reject_internal_answers && !is_public(addr))
    }

    /// True if every one of [`take_notices`](Self::take_notices) is to be logged, without a rate
    /// limit (`TestSocks`).
    #[must_use]
    pub fn tests(&self) -> bool {
        self.rules.test_socks
    }

    /// The log lines since the last call. Rate-limit them, unless [`AppRules::test_socks`] or
    /// [`AppRules::safe_socks`] ask for each.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// The reply to a CONNECT request that succeeded. As in C tor it contains no address.
    #[must_use]
    pub fn connected(&self) -> Vec<u8> {
        match self.reply_protocol {
            ReplyProtocol::None => Vec::new(),
            ReplyProtocol::Socks4 => socks_reply::reply4(true, None),
            ReplyProtocol::Socks5 => socks_reply::reply5_status(0, self.is_ipv6()),
            ReplyProtocol::Http => http_reply::connected(),
        }
    }

    /// The reply to a RESOLVE request. Addresses that an exit should not claim are left out
    /// (`ClientDNSRejectInternalAddresses`).
    #[must_use]
    pub fn resolved(&self, resolved: &Resolved) -> Vec<u8> {
        let mut resolved = resolved.clone();
        if self.rules.reject_internal_answers {
            remove_internal(&mut resolved);
        }
        self.answered(&resolved)
    }

    /// The reply to a RESOLVE request that no exit was asked for: a virtual address is a private one.
    #[must_use]
    pub fn answered(&self, resolved: &Resolved) -> Vec<u8> {
        match self.reply_protocol {
            ReplyProtocol::Socks4 => socks_reply::resolved4(resolved),
            ReplyProtocol::Socks5 if self.reverse => socks_reply::resolved_name5(resolved),
            ReplyProtocol::Socks5 => socks_reply::resolved5(resolved, &self.rules.flags),
            ReplyProtocol::None | ReplyProtocol::Http => Vec::new(),
        }
    }

    /// The reply to a request that failed.
    #[must_use]
    pub fn refused(&self, why: AppRefusal) -> Vec<u8> {
        match self.reply_protocol {
            ReplyProtocol::None => Vec::new(),
            ReplyProtocol::Socks4 => socks_reply::reply4(false, None),
            ReplyProtocol::Socks5 => {
                let status = socks_reply::status(why, self.rules.flags.extended_errors);
                socks_reply::reply5_status(status, self.is_ipv6())
            }
            ReplyProtocol::Http => http_reply::refused(why),
        }
    }

    fn is_ipv6(&self) -> bool {
        self.from.is_some_and(|from| from.is_ipv6())
    }

    fn fail(&self, reply: Vec<u8>, notice: Notice) -> Failure {
        let notice = Box::new(notice);
        Failure { reply, notice }
    }

    /// Checks a complete request against the rules.
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
