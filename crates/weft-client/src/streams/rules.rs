//! The rules for a destination on its way to the network, after maps were applied ([`Rewritten`]).
//! Allowed destinations are [`Checked`]. BEGIN and RESOLVE are made only from these, so no command
//! of a controller and no map evades a rule (C tor's `connection_ap_handshake_rewrite_and_attach`).

use std::net::IpAddr;

use weft_cell::reason::EndReason;
use weft_cell::stream_msg::{Answer, AnswerKind, BeginFlags, Resolved, reverse_name};
use weft_core::origin::{AppRefusal, StreamOpening};
use weft_core::routable::is_public;
use weft_log::Line;
use weft_path::TargetPort;
use weft_planted::{Fault, planted};

use super::refused::Refused;
use super::rewritten::Rewritten;
use super::stream::{Stream, StreamKind, StreamState};
use crate::addresses::{Host, Virtual};
use crate::circuits::Circuit;
use crate::config::{ClientConfig, ListenerConfig};
use crate::events::StreamEnd;

/// The TTL of an answer that needs no exit, in seconds.
const LITERAL_TTL: u32 = 3600;

/// A destination that the rules allow.
pub(crate) struct Checked<'a>(Target<'a>);

enum Target<'a> {
    Directory,
    Connect(&'a Rewritten, ListenerConfig),
    Resolve(&'a Host),
    ResolvePtr(IpAddr),
}

/// The result of the rules.
pub(crate) enum Verdict<'a> {
    Allowed(Checked<'a>),
    /// It needs no exit.
    Answered(Resolved),
}

/// Applies all rules to a stream.
///
/// # Errors
///
/// It breaks one.
pub(crate) fn check<'a>(stream: &'a Stream, config: &ClientConfig) -> Result<Verdict<'a>, Refused> {
    let allowed = |target| Ok(Verdict::Allowed(Checked(target)));
    if matches!(stream.kind, StreamKind::Directory(_)) {
        return allowed(Target::Directory);
    }
    let Some(target) = &stream.rewritten else {
        let line = Line::warn("A destination was not rewritten. Refusing.");
        return Err(Refused::malformed(line));
    };
    let host = target.host();
    if stream.kind == StreamKind::ResolvePtr {
        let Some(addr) = host.address() else {
            let line = Line::warn("A reverse lookup is of no address. Refusing.");
            return Err(Refused::malformed(line));
        };
        if config.reject_internal_answers && !is_public(addr) {
            return Ok(Verdict::Answered(single(AnswerKind::Error)));
        }
        return allowed(Target::ResolvePtr(addr));
    }
    check_name(host, config)?;
    check_listener(host, stream.listener)?;
    if stream.kind == StreamKind::Resolve {
        return match host.address() {
            Some(addr) => Ok(Verdict::Answered(single(answer_kind(addr)))),
            None => allowed(Target::Resolve(host)),
        };
    }
    check_connect(stream, target, config)?;
    allowed(Target::Connect(target, stream.listener))
}

/// Names that no exit may get.
fn check_name(host: &Host, config: &ClientConfig) -> Result<(), Refused> {
    let networks = config.virtual_networks;
    let kinds = [Virtual::Name, Virtual::Ipv4, Virtual::Ipv6];
    // One that stands for nothing (any more) would fail there, or mean something else.
    if kinds.iter().any(|kind| kind.owns(host, networks)) {
        let line = Line::warn("Missing mapping for virtual address '").client(host);
        let end = StreamEnd::Local(EndReason::INTERNAL);
        let refused = Refused::new(AppRefusal::General, end, line.text("'. Refusing."));
        return Err(refused.always());
    }
    if host.is_onion() {
        let line = Line::warn("")
            .client(host)
            .text(" is an onion service; this version of Weft cannot connect to them");
        let end = StreamEnd::Local(EndReason::RESOLVEFAILED);
        return Err(Refused::new(AppRefusal::OnionService(0), end, line).always());
    }
    let strange = config.allow_strange_names && !host.as_str().is_empty();
    if !strange && !host.is_valid() {
        let line = Line::warn("Destination '")
            .client(host.as_str().escape_default())
            .text("' seems to be an invalid hostname. Failing.");
        return Err(Refused::malformed(line));
    }
    Ok(())
}

/// The flags of the stream's listener.
fn check_listener(host: &Host, listener: ListenerConfig) -> Result<(), Refused> {
    let ListenerConfig {
        ipv4, ipv6, dns, ..
    } = listener;
    let (allowed, what) = match host.address() {
        None => (dns && (ipv4 || ipv6), "host names"),
        Some(IpAddr::V4(_)) => (ipv4, "IPv4 addresses"),
        Some(IpAddr::V6(_)) => (ipv6, "IPv6 addresses"),
    };
    if allowed {
        return Ok(());
    }
    let line = Line::warn("Refusing to connect to ")
        .client(host)
        .text(format!(": its port does not take {what}."));
    Err(Refused::policy(line))
}

/// The rules for connections.
fn check_connect(
    stream: &Stream,
    target: &Rewritten,
    config: &ClientConfig,
) -> Result<(), Refused> {
    let host = target.host();
    if target.port() == 0 {
        let line = Line::warn("Application asked to connect to port 0. Refusing.");
        return Err(Refused::malformed(line));
    }
    if stream.is_tied() {
        return Ok(());
    }
    let local = match host.address() {
        Some(addr) => !is_public(addr),
        None => host.is_local_name(),
    };
    if config.reject_internal && local {
        let text = "Rejecting SOCKS request for anonymous connection to private address ";
        let line = Line::warn(text).client(host).text(".");
        let refused = Refused::new(AppRefusal::General, StreamEnd::PrivateAddr, line);
        return Err(refused);
    }
    if config.reject_plaintext_ports.contains(&target.port())
        && !(stream.state == StreamState::Held && planted(Fault::HeldStreamUnchecked))
    {
        return Err(Refused::policy(plaintext_line(target.port(), " Closing.")));
    }
    Ok(())
}

/// The warning about a port of WarnPlaintextPorts or RejectPlaintextPorts.
pub(crate) fn plaintext_line(port: u16, end: &str) -> Line {
    Line::warn(format!(
        "Application request to port {port}: this port is commonly used for unencrypted \
         protocols. Please make sure you don't send anything you would mind the rest of \
         the Internet reading!{end}"
    ))
}

impl Checked<'_> {
    /// The message that asks a circuit's last hop for it.
    pub(crate) fn opening<G>(&self, circuit: &Circuit<G>) -> StreamOpening {
        match &self.0 {
            Target::Directory => StreamOpening::BeginDir,
            Target::Resolve(host) => StreamOpening::Resolve {
                name: host.to_string(),
            },
            Target::ResolvePtr(addr) => StreamOpening::Resolve {
                name: reverse_name(*addr),
            },
            Target::Connect(target, listener) => StreamOpening::Begin {
                host: target.host().to_string(),
                port: target.port(),
                flags: flags(target, listener, circuit),
            },
        }
    }
}

/// The address families that will do, as far as the exit has them (C tor's
/// `connection_ap_get_begincell_flags`).
fn flags<G>(target: &Rewritten, listener: &ListenerConfig, circuit: &Circuit<G>) -> BeginFlags {
    let (ipv4, ipv6) = match target.host().address() {
        Some(addr) => (addr.is_ipv4(), addr.is_ipv6()),
        None => (listener.ipv4, listener.ipv6),
    };
    let mut flags = BeginFlags::default();
    if ipv4 && !ipv6 {
        return flags;
    }
    flags.ipv4_not_ok = !ipv4;
    let port = TargetPort {
        ipv6: true,
        port: target.port(),
    };
    flags.ipv6_ok = ipv6 && circuit.allows(Some(port));
    flags.ipv6_preferred = flags.ipv6_ok && ipv4 && listener.prefer_ipv6;
    flags
}

/// A RESOLVED with one answer.
fn single(kind: AnswerKind) -> Resolved {
    Resolved {
        answers: vec![Answer {
            kind,
            ttl: LITERAL_TTL,
        }],
    }
}

pub(crate) fn answer_kind(addr: IpAddr) -> AnswerKind {
    match addr {
        IpAddr::V4(v4) => AnswerKind::Ipv4(v4),
        IpAddr::V6(v6) => AnswerKind::Ipv6(v6),
    }
}
