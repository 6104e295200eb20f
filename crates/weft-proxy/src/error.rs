//! Why a proxy opens no connection.

/// The longest answer that is read, in bytes: status line and headers of an HTTP proxy. SOCKS answers
/// are shorter (262 bytes).
pub const MAX_ANSWER: usize = 8192;

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
        /// What was expected.
        protocol: &'static str,
        /// What is wrong.
        what: &'static str,
    },
    /// More than [`MAX_ANSWER`] bytes.
    #[error("the proxy's answer is longer than {MAX_ANSWER} bytes")]
    TooLong,
    /// Bytes follow the answer, although it is the client that speaks next.
    #[error("the proxy sent bytes of its own behind its answer")]
    Unasked,
}
