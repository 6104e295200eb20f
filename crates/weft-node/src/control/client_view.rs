//! Snapshots and events of the client's circuits, streams and links, with control-spec's words for their states.

use weft_client::{
    Bootstrap, CircuitEnd, CircuitInfo, CircuitPurpose, CircuitStatus, EndOfCircuit, Isolation,
    RemapSource, StreamEnd, StreamInfo, StreamNews, StreamPurpose, StreamStatus,
};
use weft_core::controller::OpenLink;
use weft_core::origin::{AppProtocol, LinkState};

use super::events::{Event, Reasons};
use super::view::{BootstrapView, CircuitView, LinkView, Speed, StreamView};

pub(super) fn bootstrap_view(bootstrap: &Bootstrap) -> BootstrapView {
    BootstrapView {
        progress: bootstrap.percent,
        tag: bootstrap.tag.to_owned(),
        summary: bootstrap.summary.to_owned(),
        problem: None,
    }
}

pub(super) fn circuit_view(circuit: &CircuitInfo) -> CircuitView {
    let mut build_flags = Vec::new();
    if circuit.purpose == CircuitPurpose::Directory {
        build_flags.extend(["ONEHOP_TUNNEL", "IS_INTERNAL"]);
    }
    if circuit.need_capacity {
        build_flags.push("NEED_CAPACITY");
    }
    if circuit.need_uptime {
        build_flags.push("NEED_UPTIME");
    }
    let credentials = circuit.used_by.as_ref().and_then(|(fields, mixed)| {
        let same = !mixed.has(Isolation::AUTH);
        fields.credentials.clone().filter(|_| same)
    });
    CircuitView {
        id: circuit.id.0,
        status: match circuit.status {
            CircuitStatus::Launched => "LAUNCHED",
            CircuitStatus::Extended => "EXTENDED",
            CircuitStatus::GuardWait => "GUARD_WAIT",
            CircuitStatus::Built => "BUILT",
            CircuitStatus::Failed => "FAILED",
            CircuitStatus::Closed => "CLOSED",
        },
        path: circuit.path.iter().take(circuit.built).cloned().collect(),
        build_flags,
        purpose: circuit.purpose.name(),
        created: circuit.created,
        credentials,
        speed: Speed {
            build_time: circuit.build_time,
            round_trip: circuit.round_trip,
            weight: circuit.weight,
            stated: circuit.stated,
            uses: circuit.uses,
        },
        conflux: circuit.conflux,
    }
}

pub(super) fn circuit_reasons(end: CircuitEnd) -> Reasons {
    match end.remote {
        Some(remote) => {
            let name = EndOfCircuit::Destroy(remote).name();
            vec![("REASON", "DESTROYED"), ("REMOTE_REASON", name)]
        }
        None => vec![("REASON", end.reason.name())],
    }
}

/// A connection as `orconn-status` lists it. `name`: of the relay that it leads to.
pub(super) fn link_view(link: OpenLink, name: Option<String>) -> LinkView {
    LinkView {
        id: link.id.0,
        status: match (link.open, &name) {
            (true, _) => "CONNECTED",
            (false, Some(_)) => "LAUNCHED",
            (false, None) => "NEW",
        },
        target: name.unwrap_or_else(|| link.addr.to_string()),
    }
}

/// The status of an ORCONN event, and why it came to that.
pub(super) fn link_status(state: LinkState) -> (&'static str, Option<&'static str>) {
    match state {
        LinkState::Launched => ("LAUNCHED", None),
        LinkState::Connected => ("CONNECTED", None),
        LinkState::Failed(failure) => ("FAILED", Some(failure.name())),
        LinkState::Closed(why) => ("CLOSED", Some(why.name())),
    }
}

pub(super) fn stream_status(status: StreamStatus) -> &'static str {
    match status {
        StreamStatus::New => "NEW",
        StreamStatus::NewResolve => "NEWRESOLVE",
        StreamStatus::ControllerWait => "CONTROLLER_WAIT",
        StreamStatus::SentConnect => "SENTCONNECT",
        StreamStatus::SentResolve => "SENTRESOLVE",
        StreamStatus::Succeeded => "SUCCEEDED",
    }
}

pub(super) fn stream_view(stream: &StreamInfo, status: &'static str) -> StreamView {
    StreamView {
        id: stream.id.0,
        status,
        circuit: stream.circuit.map_or(0, |circuit| circuit.0),
        // IPv6 addresses are in brackets, as in C tor.
        target: match stream.host.contains(':') {
            true => format!("[{}]:{}", stream.host, stream.port),
            false => format!("{}:{}", stream.host, stream.port),
        },
        source: stream.source,
        purpose: match stream.purpose {
            StreamPurpose::User => "USER",
            StreamPurpose::DnsRequest => "DNS_REQUEST",
            StreamPurpose::DirFetch => "DIR_FETCH",
        },
        protocol: match stream.fields.protocol {
            AppProtocol::Socks4 => "SOCKS4",
            AppProtocol::Socks5 => "SOCKS5",
            AppProtocol::HttpConnect => "HTTPCONNECT",
            AppProtocol::Dns => "DNS",
            AppProtocol::Transparent => "TRANS",
            AppProtocol::Natd => "NATD",
            AppProtocol::Internal => "UNKNOWN",
        },
        nym_epoch: stream.fields.nym_epoch,
        session_group: stream.fields.session_group,
        isolation: stream.isolation.names(),
        credentials: stream.fields.credentials.clone(),
    }
}

pub(super) fn stream_event(stream: &StreamInfo, what: &StreamNews) -> Event {
    let reasons = |end: &StreamEnd| {
        let (reason, remote) = end.names();
        let remote = remote.map(|remote| ("REMOTE_REASON", remote));
        [("REASON", reason)].into_iter().chain(remote).collect()
    };
    let (status, more) = match what {
        StreamNews::New => ("NEW", Reasons::new()),
        StreamNews::NewResolve => ("NEWRESOLVE", Reasons::new()),
        StreamNews::Remap(RemapSource::Exit) => ("REMAP", vec![("SOURCE", "EXIT")]),
        StreamNews::Remap(RemapSource::Map) => ("REMAP", vec![("SOURCE", "CACHE")]),
        StreamNews::SentConnect => ("SENTCONNECT", Reasons::new()),
        StreamNews::SentResolve => ("SENTRESOLVE", Reasons::new()),
        StreamNews::Succeeded => ("SUCCEEDED", Reasons::new()),
        StreamNews::Failed(end) => ("FAILED", reasons(end)),
        StreamNews::Closed(end) => ("CLOSED", reasons(end)),
        StreamNews::Detached(end) => ("DETACHED", reasons(end)),
        StreamNews::ControllerWait => ("CONTROLLER_WAIT", Reasons::new()),
    };
    Event::Stream(stream_view(stream, status), more)
}

#[cfg(test)]
mod tests {
    use weft_core::address::ConnectionId;
    use weft_core::origin::LinkFailure;

    use super::*;

    #[test]
    fn a_link_has_the_name_of_its_relay_or_the_address_of_its_client() {
        let link = OpenLink {
            id: ConnectionId(7),
            addr: ([192, 0, 2, 1], 9001).into(),
            rsa: None,
            open: false,
        };
        let open = OpenLink { open: true, ..link };
        let name = Some("$AB~one".to_owned());
        for (link, name, target, status) in [
            (link, None, "192.0.2.1:9001", "NEW"),
            (open, None, "192.0.2.1:9001", "CONNECTED"),
            (link, name.clone(), "$AB~one", "LAUNCHED"),
            (open, name, "$AB~one", "CONNECTED"),
        ] {
            let view = link_view(link, name);
            assert_eq!((view.id, &*view.target, view.status), (7, target, status));
        }
        let failed = LinkState::Failed(LinkFailure::Timeout);
        assert_eq!(link_status(failed), ("FAILED", Some("TIMEOUT")));
        assert_eq!(
            link_status(LinkState::Closed(LinkFailure::Done)),
            ("CLOSED", Some("DONE"))
        );
    }
}
