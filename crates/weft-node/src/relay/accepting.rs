//! Connections and datagrams that others open to this node, each passed on by the service of its listener.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use mio::Token;
use weft_config::options::AppService;
use weft_core::handshake::Role;

use super::listen_socket::Accepted;
use super::listeners::Service;
use super::{Relay, outgoing};
use crate::exit::connect_errors::is_resource_exhaustion;
use crate::thread::Adopt;
use crate::thread::mesh::ToThread;

/// Connections accepted from one listener in one turn.
const ACCEPTS_PER_TURN: usize = 64;

impl Relay {
    /// Accepts what waits at every listener.
    pub(super) fn accept_all(&mut self, now: Instant) {
        for listener in self.listeners.tokens() {
            self.accept(listener, now);
        }
    }

    /// Accepts what waits at a listener; nothing, if no listener has the token.
    pub(super) fn accept(&mut self, listener: Token, now: Instant) {
        let Some((service, number)) = self.listeners.service(listener) else {
            return;
        };
        // A relay of the consensus that was accepted too early would count as a client, and its streams be refused.
        if self.directory.reads_cache && service.is_network() {
            return;
        }
        if service == Service::App(AppService::Dns) {
            return self.take_queries(number, now);
        }
        for _ in 0..ACCEPTS_PER_TURN {
            match self.listeners.accept(listener) {
                None => return,
                Some(Ok(accepted)) => self.dispatch(service, number, accepted, now),
                Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => return,
                Some(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Some(Err(error)) => {
                    if let Some(more) = self.log_limits.accept.check(now) {
                        tracing::warn!("Could not accept a connection to {service}: {error}{more}");
                        if is_resource_exhaustion(&error) {
                            let open = self.controller.connections();
                            let event = format!("TOO_MANY_CONNECTIONS CURRENT={open}");
                            self.report_general_status("WARN", &event);
                        }
                    }
                    if is_resource_exhaustion(&error) {
                        self.note_files_exhausted();
                    }
                    // Out of descriptors, most likely: the tick tries again.
                    return;
                }
            }
        }
        // More may wait, and the kernel will not report it again.
        self.event_loop.accept_again = true;
    }

    fn dispatch(&mut self, service: Service, number: u32, accepted: Accepted, now: Instant) {
        match (service, accepted) {
            (Service::Or, Accepted::Tcp(socket, peer)) => {
                self.accept_link(socket, peer, None, now);
            }
            (Service::ExtOr, Accepted::Tcp(socket, _)) => self.accept_ext_or(socket, now),
            (Service::Metrics, Accepted::Tcp(socket, peer)) => {
                self.accept_metrics(socket, peer, now);
            }
            (Service::Dir, Accepted::Tcp(socket, peer)) => self.accept_dir(socket, peer, now),
            (Service::App(_), accepted) => self.accept_application(number, accepted, now),
            (Service::Control, accepted) => self.accept_controller(accepted, now),
            // Ports of relays and MetricsPort have no Unix sockets.
            (Service::Or | Service::ExtOr | Service::Dir | Service::Metrics, Accepted::Unix(_)) => {
            }
        }
    }

    /// Gives a connection to the ORPort to a connection thread. One that a transport program hands
    /// over has the address of its client, and the transport's name.
    pub(super) fn accept_link(
        &mut self,
        socket: std::net::TcpStream,
        peer: SocketAddr,
        transport: Option<String>,
        now: Instant,
    ) {
        if self.shutdown.is_under_way() || self.accounting.is_hibernating() {
            return;
        }
        self.count_other_files();
        let handed_over = transport.is_some();
        let admitted = match handed_over {
            true => self.controller.handed_over(peer, now),
            false => self.controller.accepted(peer, now),
        };
        if let Some((id, thread)) = admitted {
            self.note_client(peer.ip());
            self.note_arrival(id, peer.ip(), transport);
            // Latency before packing: the thread writes whole batches.
            let _ = socket.set_nodelay(true);
            outgoing::constrain(
                (&socket).into(),
                self.options.resources.constrained_sock_size,
            );
            let adopt = Adopt {
                id,
                socket,
                peer,
                role: Role::Responder,
                proxy: None,
                handed_over,
            };
            self.threads
                .send(thread.0, ToThread::Adopt(Box::new(adopt)));
        }
    }
}
