//! Connections that this node opens to relays. They begin here; a connection thread does the rest.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use weft_core::address::{ConnectionId, ThreadId};
use weft_core::handshake::Role;
use weft_core::message::ToController;
use weft_core::origin::LinkFailure;

use super::{Relay, outgoing};
use crate::exit::connect_errors::is_resource_exhaustion;
use crate::logging::safe;
use crate::thread::mesh::ToThread;
use crate::thread::{Adopt, io_failure};

impl Relay {
    /// Begins to open a connection.
    pub(super) fn connect(
        &mut self,
        connection: ConnectionId,
        thread: ThreadId,
        addr: SocketAddr,
        role: Role,
        now: Instant,
    ) {
        let failed = |why| ToController::ConnectionClosed { connection, why };
        if self.options.network.disabled || self.accounting.is_asleep() {
            return self.controller.handle(failed(LinkFailure::Forbidden), now);
        }
        // Guards are chosen by the same rules. This check is for all other connections.
        if !self.options.is_relay() && !self.options.paths.reachable.allows(addr) {
            tracing::info!(
                "Not connecting to {}, which ReachableAddresses or ClientUseIPv4 and ClientUseIPv6 \
                 rule out",
                safe(addr)
            );
            return self.controller.handle(failed(LinkFailure::Forbidden), now);
        }
        let route = match self.route_to(addr) {
            Ok(route) => route,
            Err(failure) => return self.controller.handle(failed(failure), now),
        };
        let (to, from) = (route.first(addr), route.source(addr));
        let constrained = self.options.resources.constrained_sock_size;
        match outgoing::connect(to, from, constrained) {
            Ok(socket) => {
                let adopt = Adopt {
                    id: connection,
                    socket,
                    peer: addr,
                    role,
                    proxy: route.proxy,
                    handed_over: false,
                };
                self.threads
                    .send(thread.0, ToThread::Adopt(Box::new(adopt)));
            }
            Err(error) => {
                // Without an address to bind to, this only happens when every port is in use.
                let exhausted = error.kind() == io::ErrorKind::AddrNotAvailable;
                if exhausted && from.is_none() {
                    self.metrics.ports_exhausted += 1;
                    self.overloaded();
                }
                if is_resource_exhaustion(&error) {
                    self.note_files_exhausted();
                }
                tracing::info!("Could not connect to {}: {error}", safe(to));
                self.controller.handle(failed(io_failure(&error)), now);
            }
        }
    }
}
