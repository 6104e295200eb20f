//! The client machine, in a network whose relays, applications and controllers send anything at any
//! time.
//!
//! Input: operations, each a byte of which and its arguments, as [`World::operate`] reads them. What
//! is missing at the end is zero. Handshakes are real; time moves only by the input.
//!
//! Whatever happens: a stream is on one circuit at most, is refused once, and is asked only of
//! circuits that live; nobody's streams share a circuit with another's; when all relays fall silent
//! every application is answered in the end, and nothing is left when the client is closed.
#![no_main]

#[path = "client/paths.rs"]
mod paths;
#[path = "client/world.rs"]
mod world;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use weft_cell::circ_msg::CreateReply;
use weft_cell::reason::{DestroyReason, EndReason};
use weft_cell::stream_msg::Resolved;
use weft_client::{CircuitPurpose, DirectoryTarget};
use weft_core::address::ConnectionId;
use weft_core::origin::{
    AppCredentials, AppOpening, AppProtocol, AppRequest, EndedBy, OriginEvent, OriginId,
};
use weft_crypto::handshake::{ReplyParams, negotiate};
use weft_fuzz::Bytes;
use weft_path::RelayName;
use world::{Place, RELAYS, Stream, World, rsa};

/// Operations of one input at most, so that none takes long.
const MAX_OPERATIONS: usize = 300;
/// Streams that the input may open.
const MAX_STREAMS: u64 = 64;

fn host(input: &mut Bytes<'_>) -> String {
    match input.byte() % 8 {
        0 => String::from_utf8_lossy(input.data()).into_owned(),
        1 => "192.0.2.7".to_owned(),
        2 => "2001:db8::7".to_owned(),
        3 => "www.example.com.relay5.exit".to_owned(),
        4 => "10.0.0.1".to_owned(),
        _ => "example.com".to_owned(),
    }
}

fn addr(input: &mut Bytes<'_>) -> IpAddr {
    match input.byte() {
        number if number & 1 == 0 => IpAddr::from([192, 0, 2, number]),
        number => IpAddr::from([10, 0, 0, number]),
    }
}

impl World {
    /// One operation.
    fn operate(&mut self, input: &mut Bytes<'_>) {
        match input.byte() % 20 {
            0 => {
                let time = Duration::from_millis(u64::from(input.byte()) * 400);
                self.pass(time);
            }
            1..=3 => self.request(input),
            4..=7 => self.answer(input, true),
            8 => self.answer(input, false),
            9 => self.destroy(input),
            10 | 11 => self.far_end(input),
            12 => self.application_ends(input),
            13 | 14 => self.order(input),
            15 => {
                let target = match input.byte() % 4 {
                    0 => {
                        let hop = self.client.chooser_ref().relays.first().expect("a relay");
                        DirectoryTarget::Relay(hop.into())
                    }
                    _ => DirectoryTarget::Guard,
                };
                if self.next_stream < MAX_STREAMS
                    && let Ok(stream) = self.client.open_directory(&target, self.now)
                {
                    self.next_stream += 1;
                    self.adopt(stream);
                    self.client.serve_now(self.now);
                }
            }
            16 => {
                let mut config = self.client.config().clone();
                let flags = input.byte();
                config.disable_network = flags & 1 != 0;
                config.leave_streams_unattached = flags & 2 != 0;
                config.disable_predicted = flags & 4 != 0;
                config.reject_internal = flags & 8 == 0;
                self.client.set_config(config, self.now);
            }
            17 => {
                let paths = self.client.chooser();
                paths.ready = !input.byte().is_multiple_of(4);
                paths.down.clear();
                self.client.directory_changed(self.now);
            }
            18 => self.client.chooser().verdict = input.byte(),
            _ => self.stale(input),
        }
        self.run();
    }

    fn request(&mut self, input: &mut Bytes<'_>) {
        if self.next_stream >= MAX_STREAMS {
            return;
        }
        self.next_stream += 1;
        let stream = ConnectionId(self.next_stream);
        let user = input.byte() % 3;
        let opening = match input.byte() % 6 {
            0 => AppOpening::Resolve { name: host(input) },
            1 => AppOpening::ResolvePtr { addr: addr(input) },
            kind => AppOpening::Connect {
                host: host(input),
                port: [80, 443, 22, 0][usize::from(kind) - 2],
            },
        };
        let lookup = !matches!(opening, AppOpening::Connect { .. });
        let place = Place::Waits;
        let known = Stream {
            place,
            user: Some(user),
            lookup,
        };
        self.streams.insert(stream, known);
        let request = AppRequest {
            opening,
            from: Some(IpAddr::from([127, 0, 0, 1])),
            from_port: 1,
            listener: 0,
            protocol: AppProtocol::Socks5,
            credentials: Some(Arc::new(AppCredentials {
                user: vec![user],
                password: Vec::new(),
            })),
        };
        self.event(OriginEvent::Request { stream, request });
    }

    /// A relay answers, as it should or not.
    fn answer(&mut self, input: &mut Bytes<'_>, honest: bool) {
        let Some(circuit) = input.pick(self.circuits.keys().copied()) else {
            return;
        };
        let far = self.circuits.get_mut(&circuit).expect("one of them");
        let reply = match (far.asked.take(), honest) {
            (Some((relay, create)), true) => {
                let grants = ReplyParams {
                    sendme_inc: Some(input.byte()),
                };
                let keys = self.keys.get(&relay).expect("a relay");
                let answered = negotiate(&create, keys, &grants, &mut self.rng);
                answered.expect("an honest handshake").reply
            }
            (None, true) => {
                if let (Some(tunnel), Some(asked)) = (far.link, far.link_asked.take()) {
                    let took = self.now.mono.saturating_duration_since(asked);
                    self.tunnels.entry(tunnel).or_default();
                    self.event(OriginEvent::Linked {
                        circuit,
                        tunnel,
                        took,
                    });
                    return;
                }
                if let Some(asked) = far.probed.take() {
                    let took = self.now.mono.saturating_duration_since(asked);
                    let refused = !input.byte().is_multiple_of(4);
                    self.event(OriginEvent::Probed {
                        circuit,
                        took,
                        refused,
                    });
                }
                return;
            }
            (asked, false) => {
                far.asked = asked;
                let data = input.data().to_vec();
                CreateReply::Created2 { data }
            }
        };
        self.event(OriginEvent::Answered { circuit, reply });
    }

    /// A circuit dies, its streams with it.
    fn destroy(&mut self, input: &mut Bytes<'_>) {
        let Some(circuit) = input.pick(self.circuits.keys().copied()) else {
            return;
        };
        let reason = DestroyReason::from(input.byte());
        let far = self.circuits.get(&circuit);
        let tunnel = far.and_then(|far| far.link).filter(|_| reason.0 & 1 == 0);
        match tunnel.filter(|tunnel| self.tunnels.contains_key(tunnel)) {
            Some(tunnel) => self.lose_tunnel(tunnel, true),
            None => self.lose(circuit, reason, true),
        }
    }

    /// An exit answers a stream, or ends it.
    fn far_end(&mut self, input: &mut Bytes<'_>) {
        let Some(id) = input.pick(self.streams.keys().copied()) else {
            return;
        };
        let known = self.streams.get_mut(&id).expect("one of them");
        match (input.byte() % 3, known.place) {
            (0, Place::Asked(circuit)) if !known.lookup => {
                known.place = Place::Open(circuit);
                self.event(OriginEvent::Connected {
                    stream: id,
                    circuit,
                    addr: Some(addr(input)),
                    ttl: 60,
                });
            }
            (0, Place::Asked(circuit)) => {
                let resolved = Resolved::decode(input.data()).unwrap_or_default();
                self.streams.remove(&id);
                self.event(OriginEvent::Resolved {
                    stream: id,
                    circuit,
                    resolved,
                });
            }
            (_, Place::Asked(circuit) | Place::Open(circuit)) => {
                let waiting = matches!(known.place, Place::Asked(_));
                self.leave(id, waiting);
                self.event(OriginEvent::Ended {
                    stream: id,
                    circuit: Some(circuit),
                    reason: EndReason::from(input.byte() % 16),
                    addr: input.byte().is_multiple_of(2).then(|| addr(input)),
                    by: EndedBy::Exit,
                    waiting,
                    bytes: (1, 1),
                });
            }
            (_, Place::Waits) => {}
        }
    }

    /// An application leaves.
    fn application_ends(&mut self, input: &mut Bytes<'_>) {
        let Some((stream, known)) = input.pick(self.streams.clone()) else {
            return;
        };
        self.streams.remove(&stream);
        self.event(OriginEvent::Ended {
            stream,
            circuit: match known.place {
                Place::Waits => None,
                Place::Asked(circuit) | Place::Open(circuit) => Some(circuit),
            },
            reason: EndReason::DONE,
            addr: None,
            by: EndedBy::Application,
            waiting: false,
            bytes: (0, 0),
        });
    }

    /// A controller asks for something.
    fn order(&mut self, input: &mut Bytes<'_>) {
        let now = self.now;
        let circuit = OriginId(u64::from(input.byte() % 32));
        let circuit = input.pick(self.circuits.keys().copied()).unwrap_or(circuit);
        let stream = input
            .pick(self.streams.keys().copied())
            .unwrap_or(ConnectionId(99));
        let relays: Vec<RelayName> = input
            .data()
            .iter()
            .map(|byte| match byte % 16 {
                number if number < RELAYS => RelayName::Rsa(rsa(number)),
                number => RelayName::Nickname(format!("relay{number}")),
            })
            .collect();
        // Errors are answers as good as others.
        match input.byte() % 11 {
            0 => {
                let _ = self
                    .client
                    .new_circuit(&relays, CircuitPurpose::Controller, now);
            }
            1 => {
                let _ = self
                    .client
                    .new_circuit(&relays, CircuitPurpose::General, now);
            }
            2 => {
                let _ = self.client.extend_circuit(circuit, &relays, now);
            }
            3 => {
                let purpose = match input.byte() % 2 {
                    0 => CircuitPurpose::General,
                    _ => CircuitPurpose::Controller,
                };
                let _ = self.client.set_purpose(circuit, purpose, now);
                self.mixed = true;
            }
            4 => {
                let _ = self
                    .client
                    .close(circuit, input.byte().is_multiple_of(2), now);
            }
            5 => {
                self.mixed = true;
                let hop = input.byte().is_multiple_of(2).then(|| input.byte() % 6);
                let to = (!input.byte().is_multiple_of(4)).then_some((circuit, hop));
                let _ = self.client.attach_stream(stream, to, now);
            }
            6 => {
                let port = input.byte().is_multiple_of(2).then_some(443);
                let host = host(input);
                let _ = self.client.redirect_stream(stream, &host, port);
            }
            7 => {
                let reason = EndReason::from(input.byte() % 16);
                let _ = self.client.close_stream(stream, reason, now);
            }
            8 => {
                let (from, to) = (host(input), host(input));
                let _ = self.client.map_address(&from, &to);
            }
            9 if self.next_stream < MAX_STREAMS => {
                self.next_stream += 1;
                let name = host(input);
                let _ = self.client.look_up(AppOpening::Resolve { name }, now);
            }
            9 => self.client.abandon_circuits(),
            _ => self.client.new_identity(now),
        }
    }

    /// What was on its way when its circuit or stream was given up.
    fn stale(&mut self, input: &mut Bytes<'_>) {
        let circuit = OriginId(u64::from(input.byte()) + 1_000_000);
        let stream = ConnectionId(u64::from(input.byte()) + 1_000_000);
        let event = match input.byte() % 4 {
            0 => OriginEvent::Closed {
                circuit,
                reason: DestroyReason::NONE,
                remote: true,
            },
            1 => OriginEvent::Connected {
                stream,
                circuit,
                addr: None,
                ttl: 0,
            },
            2 => OriginEvent::Resolved {
                stream,
                circuit,
                resolved: Resolved::default(),
            },
            _ => OriginEvent::Ended {
                stream,
                circuit: Some(circuit),
                reason: EndReason::DONE,
                addr: None,
                by: EndedBy::Exit,
                waiting: true,
                bytes: (0, 0),
            },
        };
        self.event(event);
    }
}

fuzz_target!(|input: &[u8]| {
    let mut input = Bytes::new(input);
    let mut world = World::new();
    for _ in 0..MAX_OPERATIONS {
        if input.is_empty() {
            break;
        }
        world.operate(&mut input);
    }
    world.finish();
});
