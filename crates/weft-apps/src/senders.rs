//! Who may send what at each port for applications, and what bounds it.

use weft_config::options::{AppService, Redirection};
use weft_trust::{Limit, Payer, Role, Sender, Trust};

/// The services of ports.
pub const SERVICES: [AppService; 5] = [
    AppService::Socks,
    AppService::HttpTunnel,
    AppService::Dns,
    AppService::Transparent(Redirection::Netfilter),
    AppService::Natd,
];

/// The requests to a port, who may send them, and what bounds them.
#[must_use]
pub const fn trust(service: AppService) -> (&'static str, Trust) {
    let (what, role, limit) = match service {
        AppService::Socks => (
            "SOCKS 4, 4a and 5: methods, credentials, CONNECT, RESOLVE, RESOLVE_PTR",
            Role::SocksPort,
            SOCKS,
        ),
        AppService::HttpTunnel => ("CONNECT, OPTIONS", Role::HttpTunnelPort, HTTP),
        AppService::Dns => ("queries for A, AAAA and PTR", Role::DnsPort, DNS),
        AppService::Transparent(_) => ("redirected connections", Role::TransPort, REDIRECTED),
        AppService::Natd => ("`[DEST address port]`", Role::NatdPort, NATD),
    };
    (what, Trust::new(Sender::Anybody, role, limit))
}

const SOCKS: Limit = Limit::new(
    "whom SocksPolicy lets in; {weft-apps/src/handshake/socks.rs:MAX_SOCKS4} bytes of SOCKS 4, 255 of each field of SOCKS 5; \
     SocksTimeout",
    Payer::Connection,
    &[
        "a_request_without_end_is_given_up",
        "what_socks_cannot_do_is_refused_with_the_right_code",
        "ports_let_out_what_their_flags_allow",
        "no_bytes_make_a_handshake_panic_or_take_more_than_there_is",
        "fuzz/socks",
    ],
);
const HTTP: Limit = Limit::new(
    "whom SocksPolicy lets in; {weft-apps/src/step.rs:MAX_HANDSHAKE} bytes and {weft-apps/src/handshake/http.rs:MAX_HEADERS} lines \
     of a head; anything but CONNECT is answered to this machine alone; SocksTimeout",
    Payer::Connection,
    &[
        "a_request_without_end_is_given_up",
        "http_that_opens_no_tunnel_is_answered_only_to_this_machine",
        "fuzz/http_connect",
    ],
);
const DNS: Limit = Limit::new(
    "whom SocksPolicy lets in; {weft-apps/src/dns.rs:MAX_WAITING} queries that wait, {weft-apps/src/dns.rs:MAX_QUESTIONS} questions \
     read; SocksTimeout",
    Payer::Request,
    &[
        "dns_queries_are_bounded_in_number_and_time",
        "dns_failures_have_their_codes",
        "fuzz/dns_query",
    ],
);
const REDIRECTED: Limit = Limit::new(
    "whom SocksPolicy lets in; no bytes before the destination is known; SocksTimeout",
    Payer::Connection,
    &["a_redirected_connection_asks_for_its_destination_before_it_sends_anything"],
);
const NATD: Limit = Limit::new(
    "whom SocksPolicy lets in; one line of {weft-apps/src/handshake/redirected.rs:MAX_LINE} bytes; SocksTimeout",
    Payer::Connection,
    &["natd_names_the_destination_in_one_line", "fuzz/natd"],
);
