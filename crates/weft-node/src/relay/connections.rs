//! Connections: those that others open to us are given to threads, those that we open begin here.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use mio::Token;
use weft_cell::reason::DestroyReason;
use weft_core::address::{ConnectionId, ThreadId};
use weft_core::handshake::Role;
use weft_core::message::ToController;

use super::listeners::Service;
use super::{Relay, listeners};
use crate::logging::safe;
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

    /// Accepts what waits at a listener; nothing, if the token is no listener's.
    pub(super) fn accept(&mut self, listener: Token, now: Instant) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some((service, accepted)) = self.listeners.accept(listener) else {
                return;
            };
            let (socket, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    if let Some(more) = self.accept_failures.check(now) {
                        tracing::warn!("Could not accept a connection: {error}{more}");
                    }
                    // Out of descriptors, most likely: the tick tries again.
                    return;
                }
            };
            if service == Service::Metrics {
                self.accept_metrics(socket, peer, now);
                continue;
            }
            if self.shutdown.is_under_way() {
                continue;
            }
            if let Some((id, thread)) = self.controller.accepted(peer, now) {
                // Latency before packing: the thread writes whole batches.
                let _ = socket.set_nodelay(true);
                let constrained = self.options.resources.constrained_sock_size;
                listeners::constrain((&socket).into(), constrained);
                let adopt = Adopt {
                    id,
                    socket: socket.into(),
                    peer,
                    role: Role::Responder,
                    proxy: None,
                };
                self.tell(thread.0, ToThread::Adopt(Box::new(adopt)));
            }
        }
        // More may wait, and the kernel will not say so again.
        self.accept_again = true;
    }

    /// Begins to open a connection; the thread does the rest.
    pub(super) fn connect(
        &mut self,
        connection: ConnectionId,
        thread: ThreadId,
        addr: SocketAddr,
        role: Role,
        now: Instant,
    ) {
        let failed = ToController::LinkClosed {
            connection,
            reason: DestroyReason::CONNECTFAILED,
        };
        if self.options.network.disabled {
            return self.controller.handle(failed, now);
        }
        // Guards are chosen by the same rules. This is for whatever else asks for a connection.
        if !self.options.is_relay() && !self.options.paths.reachable.allows(addr) {
            tracing::info!(
                "Not connecting to {}, which ReachableAddresses or ClientUseIPv4 and ClientUseIPv6 \
                 rule out",
                safe(addr)
            );
            return self.controller.handle(failed, now);
        }
        let route = self.options.network.route(addr);
        let (to, from) = (route.first(addr), route.source(addr));
        let constrained = self.options.resources.constrained_sock_size;
        match listeners::connect(to, from, constrained) {
            Ok(socket) => {
                let adopt = Adopt {
                    id: connection,
                    socket,
                    peer: addr,
                    role,
                    proxy: route.proxy,
                };
                self.tell(thread.0, ToThread::Adopt(Box::new(adopt)));
            }
            Err(error) => {
                // Without an address to bind to, this only happens when every port is in use.
                let exhausted = error.kind() == io::ErrorKind::AddrNotAvailable;
                self.metrics.ports_exhausted += u64::from(exhausted && from.is_none());
                tracing::info!("Could not connect to {}: {error}", safe(to));
                self.controller.handle(failed, now);
            }
        }
    }
}
