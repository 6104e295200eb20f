//! Applications: their sockets are given to connection threads, their DNS queries to the client, and the
//! answers are sent back.

use std::collections::BTreeMap;
use std::io;
use std::time::Instant;

use weft_cell::stream_msg::Resolved;
use weft_config::options::AppService;
use weft_core::address::ConnectionId;
use weft_core::controller::{EdgePeer, FamilyCounts};
use weft_core::origin::{AppRefusal, OriginCommand, OriginEvent};

use super::app_ports::AppPorts;
use super::listen_socket::Accepted;
use super::{Relay, outgoing, redirected};
use crate::client::ToClient;
use crate::logging::{self, safe_client};
use crate::thread::edges::{AdoptEdge, AdoptKind, EdgeSocket};
use crate::thread::mesh::ToThread;
use weft_apps::DnsStep;
use weft_log::RateLimit;

/// Datagrams taken from one listener in one turn.
const TAKEN_PER_TURN: usize = 64;
/// Bytes of a datagram that is looked at.
const DATAGRAM: usize = 4096;
/// Log lines about one kind of trouble.
const QUIET: std::time::Duration = std::time::Duration::from_secs(300);

/// The ports of applications, and the DNS queries that the client looks up.
#[derive(Debug)]
pub(super) struct AppSide {
    pub(super) ports: AppPorts,
    /// Queries that the client looks up: the port's number, and the query's at the port.
    asked: BTreeMap<ConnectionId, (u32, u64)>,
    /// Connections that SocksPolicy rejected.
    pub(super) rejected: FamilyCounts,
    denied: RateLimit,
    notices: RateLimit,
}

impl AppSide {
    pub(super) fn new(ports: AppPorts) -> Self {
        Self {
            ports,
            asked: BTreeMap::new(),
            rejected: FamilyCounts::default(),
            denied: RateLimit::new(QUIET),
            notices: RateLimit::new(QUIET),
        }
    }
}

/// The answer to a query.
#[derive(Clone, Copy)]
enum Answer<'a> {
    Exit(&'a Resolved),
    /// The client's own answer, without a request to an exit.
    Own(&'a Resolved),
    Refused(AppRefusal),
}

impl Relay {
    /// Gives a connection of an application to a connection thread.
    pub(super) fn accept_application(&mut self, number: u32, accepted: Accepted, now: Instant) {
        let from = match &accepted {
            Accepted::Tcp(_, from) => Some(*from),
            Accepted::Unix(_) => None,
        };
        let policy = &self.options.apps.policy;
        if let Some(from) = from.filter(|from| policy.rejects(from.ip())) {
            *self.apps.rejected.of(from.ip()) += 1;
            if let Some(more) = self.apps.denied.check(now) {
                crate::notice!(
                    "Denying socks connection from untrusted address {}{more}",
                    safe_client(from)
                );
            }
            return;
        }
        if self.shutdown.is_under_way() || self.client.is_none() {
            return;
        }
        let Some(rules) = self.apps.ports.rules(number) else {
            return;
        };
        let Some((id, thread)) = self.controller.place_application() else {
            return;
        };
        let mut to = None;
        let socket = match accepted {
            Accepted::Tcp(socket, _) => {
                if let AppService::Transparent(redirection) = rules.service {
                    match redirected::destination(&socket, redirection) {
                        Ok(addr) => to = Some(addr),
                        // The connection is closed, and that is logged, where it is handled.
                        Err(error) => tracing::debug!("Where it led is not known: {error}"),
                    }
                }
                let constrained = self.options.resources.constrained_sock_size;
                outgoing::constrain((&socket).into(), constrained);
                EdgeSocket::Tcp(socket)
            }
            Accepted::Unix(socket) => EdgeSocket::Unix(socket),
        };
        if let Some(from) = from {
            self.controller
                .note_edge_peer(id, EdgePeer::Application(from.ip()));
        }
        let kind = AdoptKind::Application { rules, from, to };
        let adopt = AdoptEdge { id, socket, kind };
        self.threads
            .send(thread.0, ToThread::AdoptEdge(Box::new(adopt)));
    }

    /// Takes the datagrams that wait at the DNSPort with this number.
    pub(super) fn take_queries(&mut self, number: u32, now: Instant) {
        let mut datagram = [0; DATAGRAM];
        for _ in 0..TAKEN_PER_TURN {
            let (Some(socket), Some(port)) = (
                self.listeners.datagrams(number),
                self.apps.ports.dns(number),
            ) else {
                return;
            };
            let (len, from) = match socket.recv_from(&mut datagram) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // An error that an earlier answer met is returned here, as an error of reading.
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
                            self.threads
                                .send(thread.0, ToThread::AdoptEdge(Box::new(adopt)));
                            if let Some(client) = &mut self.client {
                                let event = OriginEvent::Request { stream, request };
                                client.send(ToClient::Event(event));
                            }
                        }
                    }
                }
            }
            for notice in notices {
                if notice.always {
                    logging::log(&notice.line);
                } else if let Some(more) = self.apps.notices.check(now) {
                    logging::log(&notice.line.text(more));
                }
            }
        }
        self.event_loop.accept_again = true;
    }

    /// Something happened to a stream: perhaps a query has its answer.
    pub(super) fn note_answer(&mut self, event: &OriginEvent) {
        match event {
            OriginEvent::Resolved {
                stream, resolved, ..
            } => self.answer_query(*stream, Answer::Exit(resolved)),
            OriginEvent::Ended {
                stream,
                waiting: false,
                ..
            } => self.answer_query(*stream, Answer::Refused(AppRefusal::General)),
            _ => {}
        }
    }

    /// The client decided something of a stream: perhaps of a query.
    pub(super) fn note_decision(&mut self, command: &OriginCommand) {
        match command {
            OriginCommand::Refuse { stream, why } => {
                self.answer_query(*stream, Answer::Refused(*why));
            }
            OriginCommand::AnswerResolve { stream, resolved } => {
                self.answer_query(*stream, Answer::Own(resolved));
            }
            _ => {}
        }
    }

    /// Answers a query, if the stream is one.
    fn answer_query(&mut self, stream: ConnectionId, answer: Answer<'_>) {
        let Some((number, id)) = self.apps.asked.remove(&stream) else {
            return;
        };
        let (Some(socket), Some(port)) = (
            self.listeners.datagrams(number),
            self.apps.ports.dns(number),
        ) else {
            return;
        };
        let answer = match answer {
            Answer::Exit(resolved) => port.answer(id, resolved),
            Answer::Own(resolved) => port.answer_own(id, resolved),
            Answer::Refused(why) => port.refuse(id, why),
        };
        if let Some((to, datagram)) = answer {
            let _ = socket.send_to(&datagram, to);
        }
    }

    /// Answers queries that have waited too long.
    pub(super) fn expire_queries(&mut self, now: Instant) {
        let mut late = false;
        for (number, port) in self.apps.ports.all_dns() {
            for (_, to, datagram) in port.expire(now) {
                late = true;
                if let Some(socket) = self.listeners.datagrams(number) {
                    let _ = socket.send_to(&datagram, to);
                }
            }
        }
        if late {
            // Their streams end by themselves; answers that arrive later are dropped.
            let ports = &mut self.apps.ports;
            self.apps.asked.retain(|_, (number, id)| {
                let port = ports.dns(*number);
                port.is_some_and(|port| port.is_waiting(*id))
            });
        }
    }
}
