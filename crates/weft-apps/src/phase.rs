//! The phases of a handshake.

/// The phase of a SOCKS handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocksPhase {
    /// No message has arrived.
    Start,
    /// SOCKS 5: a user name must follow.
    Credentials,
    /// SOCKS 5: the request must follow, or once a user name that was not asked for.
    Request { may_authenticate: bool },
}

/// The protocol of the replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyProtocol {
    /// Not known yet.
    None,
    Socks4,
    Socks5,
    Http,
}
