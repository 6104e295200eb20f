//! Why a proxy opens no connection.

use weft_trust::{Limit, Payer, Role, Sender, Trust};

/// The longest answer that is read, in bytes: status line and headers of an HTTP proxy. SOCKS answers
/// are shorter (262 bytes).
pub const MAX_ANSWER: usize = 8192;

/// Who may send the answer of a proxy, and what bounds it.
pub const ANSWER: Trust = Trust::new(
    Sender::UpstreamProxy,
    Role::Upstream,
    Limit::new(
        "{weft-proxy/src/error.rs:MAX_ANSWER} bytes and nothing behind it; a minute, as for the whole handshake of the link",
        Payer::Connection,
        &[
            "an_answer_has_a_bound_and_nothing_behind_it",
            "what_is_not_the_protocol_is_refused_at_once",
            "a_connection_that_opens_no_link_in_a_minute_is_closed",
            "fuzz/proxy_answer",
        ],
    ),
);

/// Why a proxy opens no connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyError {
    /// SOCKS4 has no room for the address.
    #[error("a SOCKS4 proxy cannot connect to IPv6 addresses")]
    Ipv6,
    /// SOCKS5 has one byte for the length of each.
    #[error("name and password for a SOCKS5 proxy have 1 to 255 bytes each")]
    Credentials,
    /// It wants a name and a password, and there is none.
    #[error("the proxy accepts no method of authentication that is configured")]
    NoMethod,
    /// Name or password are wrong.
    #[error("the proxy refused the name and password")]
    Unauthorized,
    /// It does not connect.
    #[error("the proxy refused: {0}")]
    Refused(String),
    /// Its answer is not of the protocol.
    #[error("the proxy's answer is not {protocol}: {what}")]
    Malformed {
        /// The protocol that was expected.
        protocol: &'static str,
        /// The violation.
        what: &'static str,
    },
    /// More than [`MAX_ANSWER`] bytes.
    #[error("the proxy's answer is longer than {MAX_ANSWER} bytes")]
    TooLong,
    /// Bytes follow the answer, although it is the client that speaks next.
    #[error("the proxy sent bytes of its own behind its answer")]
    Unasked,
}
