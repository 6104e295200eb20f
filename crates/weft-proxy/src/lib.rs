//! Protocols between a node and the proxies that connect it to relays: the client's side of SOCKS4, SOCKS5 (RFC 1928,
//! RFC 1929), HTTP CONNECT (RFC 9110 9.3.6) and the PROXY line of haproxy.
//!
//! A [`Request`] is one conversation. It is given the proxy's bytes and gives the bytes to send; it
//! does no I/O and knows no clock, so that every kind of socket can use it. The part of the proxy's
//! answer that it keeps is bounded by [`MAX_ANSWER`].
//!
//! Programs of pluggable transports, which are proxies, too, are in [`transports`].

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::disallowed_types,
        clippy::disallowed_methods,
        clippy::disallowed_macros
    )
)]

mod credentials;
mod error;
mod haproxy;
mod http;
mod socks;
#[cfg(test)]
mod tests;
pub mod transports;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

pub use credentials::{Credentials, Secret};
pub use error::{ANSWER, MAX_ANSWER, ProxyError};

/// A proxy that all connections to relays go through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    /// Where it listens.
    pub addr: SocketAddr,
    /// Protocol for connection requests.
    pub protocol: Protocol,
}

impl Proxy {
    /// The proxy as a URI, with name and password, as programs of pluggable transports get it (transports.c,
    /// `get_pt_proxy_uri`).
    #[must_use]
    pub fn uri(&self) -> String {
        let (scheme, user) = match &self.protocol {
            Protocol::Socks4(_) => ("socks4a", String::new()),
            Protocol::Socks5(None) => ("socks5", String::new()),
            Protocol::Socks5(Some(Credentials { username, password })) => {
                let (username, password) = (username.text(), password.text());
                ("socks5", format!("{username}:{password}@"))
            }
            Protocol::Http(None) => ("http", String::new()),
            Protocol::Http(Some(user)) => ("http", format!("{}@", user.text())),
            // Programs do not know it and refuse to start, so that none connects past the proxy. C tor gives them none.
            Protocol::Haproxy => ("haproxy", String::new()),
        };
        format!("{scheme}://{user}{}", self.addr)
    }
}

/// Protocol of a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// SOCKS4, which knows IPv4 addresses only, with a user id for pluggable transports.
    Socks4(Option<Secret>),
    /// SOCKS5, with the name and password of RFC 1929 where the proxy wants them.
    Socks5(Option<Credentials>),
    /// HTTP CONNECT; `name:password` for Basic authentication (RFC 7617).
    Http(Option<Secret>),
    /// haproxy's PROXY protocol, version 1: one line, which has no answer.
    Haproxy,
}

impl Protocol {
    /// The name, for log lines.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Socks4(_) => "SOCKS4",
            Self::Socks5(_) => "SOCKS5",
            Self::Http(_) => "HTTP",
            Self::Haproxy => "haproxy",
        }
    }
}

/// A proxy that is asked for documents, not for connections (`HTTPProxy`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpProxy {
    /// Where it listens.
    pub addr: SocketAddr,
    /// `name:password` for Basic authentication (RFC 7617).
    pub authenticator: Option<Secret>,
}

impl HttpProxy {
    /// The header line that authenticates; empty without name and password.
    #[must_use]
    pub fn header(&self) -> String {
        self.authenticator
            .as_ref()
            .map_or_else(String::new, http::authorization)
    }
}

/// Local address and proxies of a node's own connections to relays and directories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// The local address to connect from.
    pub bind: Option<IpAddr>,
    /// The proxy to connect through.
    pub proxy: Option<Arc<Proxy>>,
    /// The proxy that unencrypted directory requests go through, in place of the other.
    pub http: Option<Arc<HttpProxy>>,
}

impl Route {
    /// The address that the socket connects to: the proxy's, or else the target's.
    #[must_use]
    pub fn first(&self, target: SocketAddr) -> SocketAddr {
        self.proxy.as_ref().map_or(target, |proxy| proxy.addr)
    }

    /// The local address that the socket is bound to. A proxy on this machine is connected to from
    /// this machine.
    #[must_use]
    pub fn source(&self, target: SocketAddr) -> Option<IpAddr> {
        let first = self.first(target);
        let local = self.proxy.is_some() && first.ip().is_loopback();
        self.bind
            .filter(|bind| bind.is_ipv4() == first.is_ipv4() && !local)
    }

    /// The request to send to the proxy once the socket is connected to it.
    ///
    /// # Errors
    ///
    /// As [`Request::new`].
    pub fn request(&self, target: SocketAddr) -> Result<Option<Request>, ProxyError> {
        let request = |proxy: &Arc<Proxy>| Request::new(&proxy.protocol, target);
        self.proxy.as_ref().map(request).transpose()
    }
}

/// The answer that is expected next.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Socks4,
    Socks5Method(Option<Credentials>),
    Socks5Auth,
    Socks5Connect,
    /// Bytes that have been searched for the end of the head.
    Http(usize),
    Connected,
}

/// One request for a connection, from its first byte to the proxy's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    target: SocketAddr,
    state: State,
    /// Bytes that are not sent yet.
    out: Vec<u8>,
    /// The part of an answer that has arrived.
    answer: Vec<u8>,
}

impl Request {
    /// Begins to ask a proxy of this kind for a connection to `target`.
    ///
    /// # Errors
    ///
    /// [`ProxyError::Ipv6`], [`ProxyError::Credentials`]: the protocol cannot express it.
    pub fn new(protocol: &Protocol, target: SocketAddr) -> Result<Self, ProxyError> {
        let (state, out) = match protocol {
            Protocol::Socks4(user) => {
                let user = user.as_ref().map_or(&[][..], Secret::as_bytes);
                (State::Socks4, socks::connect4(target, user)?)
            }
            Protocol::Socks5(credentials) => {
                if let Some(credentials) = credentials {
                    socks::authenticate(credentials)?;
                }
                let greeting = socks::greeting(credentials.is_some());
                (State::Socks5Method(credentials.clone()), greeting)
            }
            Protocol::Http(authenticator) => (
                State::Http(0),
                http::connect(target, authenticator.as_ref()),
            ),
            Protocol::Haproxy => (State::Connected, haproxy::line(target)),
        };
        Ok(Self {
            target,
            state,
            out,
            answer: Vec::new(),
        })
    }

    /// The bytes to send now.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        &self.out
    }

    /// The first `count` bytes of the output are sent.
    pub fn sent(&mut self, count: usize) {
        self.out.drain(..count.min(self.out.len()));
    }

    /// True if the proxy has connected and all bytes for it are sent: the next byte is the
    /// target's.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.state == State::Connected && self.out.is_empty()
    }

    /// Takes bytes from the proxy.
    ///
    /// # Errors
    ///
    /// [`ProxyError`]: there is no connection, and the socket is of no use any more.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), ProxyError> {
        let room = MAX_ANSWER.saturating_sub(self.answer.len());
        let (taken, rest) = bytes.split_at_checked(room).unwrap_or((bytes, &[]));
        self.answer.extend_from_slice(taken);
        while let Some(used) = self.step()? {
            self.answer.drain(..used.min(self.answer.len()));
            if self.state == State::Connected {
                return match self.answer.is_empty() && rest.is_empty() {
                    true => Ok(()),
                    false => Err(ProxyError::Unasked),
                };
            }
        }
        match rest.is_empty() {
            true => Ok(()),
            false => Err(ProxyError::TooLong),
        }
    }

    /// Takes the next step if its whole answer is here: the bytes of it.
    fn step(&mut self) -> Result<Option<usize>, ProxyError> {
        let (used, next) = match &mut self.state {
            State::Connected if self.answer.is_empty() => return Ok(None),
            State::Connected => return Err(ProxyError::Unasked),
            State::Socks4 => match socks::reply4(&self.answer)? {
                Some(used) => (used, State::Connected),
                None => return Ok(None),
            },
            State::Socks5Method(credentials) => {
                let Some((used, method)) = socks::method(&self.answer)? else {
                    return Ok(None);
                };
                match (method, credentials) {
                    (socks::Method::None, _) => {
                        self.out.extend(socks::connect5(self.target));
                        (used, State::Socks5Connect)
                    }
                    (socks::Method::Password, Some(credentials)) => {
                        self.out.extend(socks::authenticate(credentials)?);
                        (used, State::Socks5Auth)
                    }
                    (socks::Method::Password, None) => return Err(ProxyError::NoMethod),
                }
            }
            State::Socks5Auth => match socks::authenticated(&self.answer)? {
                Some(used) => {
                    self.out.extend(socks::connect5(self.target));
                    (used, State::Socks5Connect)
                }
                None => return Ok(None),
            },
            State::Socks5Connect => match socks::reply5(&self.answer)? {
                Some(used) => (used, State::Connected),
                None => return Ok(None),
            },
            State::Http(searched) => match http::reply(&self.answer, searched)? {
                Some(used) => (used, State::Connected),
                None => return Ok(None),
            },
        };
        self.state = next;
        Ok(Some(used))
    }
}
