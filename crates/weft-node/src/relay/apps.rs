//! Applications that come to this node: their sockets go to connection threads, their DNS queries
//! to the client, and the answers back.

use std::collections::BTreeMap;
use std::io;
use std::time::Instant;

use mio::{Registry, Token};
use weft_cell::stream_msg::Resolved;
use weft_core::address::ConnectionId;
use weft_core::origin::{AppRefusal, OriginCommand, OriginEvent};

use super::app_listeners::{AppListeners, AppSocket};
use super::local_ports::LocalPortError;
use super::{Relay, listeners};
use crate::apps::dns::DnsStep;
use crate::client::ToClient;
use crate::logging::{RateLimit, safe_client};
use crate::thread::edges::{AdoptEdge, AdoptKind, EdgeSocket};
use crate::thread::mesh::ToThread;
use crate::torrc::Options;
use crate::torrc::client_ports::{AppPort, AppService};

/// Connections, or datagrams, taken from one listener in one turn.
const TAKEN_PER_TURN: usize = 64;
/// Bytes of a datagram that is looked at.
const DATAGRAM: usize = 4096;
/// Log lines about one kind of trouble.
const QUIET: std::time::Duration = std::time::Duration::from_secs(300);

/// The listeners of applications, and who waits for the DNS.
#[derive(Debug)]
pub(super) struct AppSide {
    listeners: AppListeners,
    /// Queries that the client looks up: the port's number, and the query's at the port.
    asked: BTreeMap<ConnectionId, (u32, u64)>,
    denied: RateLimit,
    failures: RateLimit,
    notices: RateLimit,
}

impl AppSide {
    /// Opens what torrc asks for.
    ///
    /// # Errors
    ///
    /// A port cannot be bound.
    pub(super) fn open(options: &Options) -> Result<Self, LocalPortError> {
        Ok(Self {
            listeners: AppListeners::open(options)?,
            asked: BTreeMap::new(),
            denied: RateLimit::new(QUIET),
            failures: RateLimit::new(QUIET),
            notices: RateLimit::new(QUIET),
        })
    }

    /// Watches the sockets.
    ///
    /// # Errors
    ///
    /// epoll refuses.
    pub(super) fn register(&mut self, registry: &Registry) -> io::Result<()> {
        self.listeners.register(registry)
    }

    /// Does what other lines ask for, or nothing.
    ///
    /// # Errors
    ///
    /// A port cannot be bound.
    pub(super) fn reopen(
        &mut self,
        options: &Options,
        registry: &Registry,
    ) -> Result<(), LocalPortError> {
        self.listeners.reopen(options, registry)
    }

    /// Every port that there ever was, by number.
    pub(super) fn ports(&self) -> &[AppPort] {
        self.listeners.known()
    }

    /// Where each service listens.
    pub(super) fn bound(&self) -> impl Iterator<Item = (AppService, &str)> {
        self.listeners.bound()
    }
}

impl Relay {
    /// Takes what waits at every listener of applications.
    pub(super) fn take_all_applications(&mut self, now: Instant) {
        for token in self.apps.listeners.tokens() {
            self.take_applications(token, now);
        }
    }

    /// Takes what waits at a listener of applications; nothing, if the token is none's.
    pub(super) fn take_applications(&mut self, token: Token, now: Instant) {
        for _ in 0..TAKEN_PER_TURN {
            let Some(accepted) = self.apps.listeners.accept(token) else {
                return self.take_queries(token, now);
            };
            match accepted {
                Ok((socket, rules)) => {
                    let from = match &socket {
                        AppSocket::Tcp(_, from) => Some(*from),
                        AppSocket::Unix(_) => None,
                    };
                    let policy = &self.options.apps.policy;
                    if let Some(from) = from.filter(|from| policy.rejects(from.ip())) {
                        if let Some(more) = self.apps.denied.check(now) {
                            crate::notice!(
                                "Denying socks connection from untrusted address {}{more}",
                                safe_client(from)
                            );
                        }
                        continue;
                    }
                    if self.shutdown.is_under_way() || self.client.is_none() {
                        continue;
                    }
                    let Some((id, thread)) = self.controller.place_application() else {
                        continue;
                    };
                    let constrained = self.options.resources.constrained_sock_size;
                    let socket = match socket {
                        AppSocket::Tcp(socket, _) => {
                            listeners::constrain((&socket).into(), constrained);
                            EdgeSocket::Tcp(socket)
                        }
                        AppSocket::Unix(socket) => EdgeSocket::Unix(socket),
                    };
                    let kind = AdoptKind::Application { rules, from };
                    let adopt = AdoptEdge { id, socket, kind };
                    self.tell(thread.0, ToThread::AdoptEdge(Box::new(adopt)));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    if let Some(more) = self.apps.failures.check(now) {
                        tracing::warn!("Could not accept an application: {error}{more}");
                    }
                    return;
                }
            }
        }
        // More may wait, and the kernel will not say so again.
        self.accept_again = true;
    }

    /// Takes the datagrams that wait at a DNSPort; nothing, if the token is none's.
    fn take_queries(&mut self, token: Token, now: Instant) {
        let mut datagram = [0; DATAGRAM];
        for _ in 0..TAKEN_PER_TURN {
            let Some((number, socket, port)) = self.apps.listeners.dns(token) else {
                return;
            };
            let (len, from) = match socket.recv_from(&mut datagram) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // What an earlier answer met comes back as an error of reading.
                Err(_) => continue,
            };
            let datagram = datagram.get(..len).unwrap_or_default();
            let allowed = !self.options.apps.policy.rejects(from.ip());
            let step = port.query(datagram, from, allowed, now);
            let notices = port.take_notices();
            match step {
                DnsStep::Ignore => {}
                DnsStep::Answer(answer) => {
                    // Datagrams may get lost.
                    let _ = socket.send_to(&answer, from);
                }
                DnsStep::Ask { id, request } => {
                    let place = match &mut self.client {
                        Some(_) if !self.shutdown.is_under_way() => {
                            self.controller.place_application()
                        }
                        _ => None,
                    };
                    match place {
                        None => {
                            if let Some((to, answer)) = port.refuse(id, AppRefusal::General) {
                                let _ = socket.send_to(&answer, to);
                            }
                        }
                        Some((stream, thread)) => {
                            self.apps.asked.insert(stream, (number, id));
                            let adopt = AdoptEdge {
                                id: stream,
                                socket: EdgeSocket::None,
                                kind: AdoptKind::Internal,
                            };
                            self.tell(thread.0, ToThread::AdoptEdge(Box::new(adopt)));
                            if let Some(client) = &mut self.client {
                                let event = OriginEvent::Request { stream, request };
                                client.send(ToClient::Event(event));
                            }
                        }
                    }
                }
            }
            for notice in notices {
                if self.apps.notices.check(now).is_some() {
                    notice.log();
                }
            }
        }
        self.accept_again = true;
    }

    /// Something happened to a stream: perhaps a query has its answer.
    pub(super) fn note_answer(&mut self, event: &OriginEvent) {
        match event {
            OriginEvent::Resolved {
                stream, resolved, ..
            } => self.answer_query(*stream, Ok(resolved)),
            OriginEvent::Ended {
                stream,
                waiting: false,
                ..
            } => self.answer_query(*stream, Err(AppRefusal::General)),
            _ => {}
        }
    }

    /// The client decided something of a stream: perhaps of a query.
    pub(super) fn note_decision(&mut self, command: &OriginCommand) {
        match command {
            OriginCommand::Refuse { stream, why } => self.answer_query(*stream, Err(*why)),
            OriginCommand::AnswerResolve { stream, resolved } => {
                self.answer_query(*stream, Ok(resolved));
            }
            _ => {}
        }
    }

    /// Answers a query, if the stream is one.
    fn answer_query(&mut self, stream: ConnectionId, answer: Result<&Resolved, AppRefusal>) {
        let Some((number, id)) = self.apps.asked.remove(&stream) else {
            return;
        };
        let Some((socket, port)) = self.apps.listeners.dns_numbered(number) else {
            return;
        };
        let answer = match answer {
            Ok(resolved) => port.answer(id, resolved),
            Err(why) => port.refuse(id, why),
        };
        if let Some((to, datagram)) = answer {
            let _ = socket.send_to(&datagram, to);
        }
    }

    /// Answers queries that have waited too long.
    pub(super) fn expire_queries(&mut self, now: Instant) {
        let mut late = false;
        for (socket, port) in self.apps.listeners.all_dns() {
            for (_, to, datagram) in port.expire(now) {
                late = true;
                let _ = socket.send_to(&datagram, to);
            }
        }
        if late {
            // Their streams end by themselves; what comes for them is nobody's.
            let listeners = &mut self.apps.listeners;
            self.apps.asked.retain(|_, (number, id)| {
                let port = listeners.dns_numbered(*number);
                port.is_some_and(|(_, port)| port.is_waiting(*id))
            });
        }
    }
}
