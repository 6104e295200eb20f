//! Why a circuit or a stream was closed: the reasons of DESTROY and TRUNCATED
//! (tor-spec 5.4) and of END (tor-spec 6.3).
//!
//! Any byte is a reason, for peers may know reasons that we do not. The text is
//! C tor's, so that logs and tools read alike.

use std::fmt;

/// Defines a reason byte with its named values and their text.
macro_rules! reasons {
    (
        $(#[$type_doc:meta])*
        $type:ident {
            $( $(#[$doc:meta])* $name:ident = $value:literal, $text:literal; )+
        }
    ) => {
        $(#[$type_doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $type(pub u8);

        impl $type {
            $( $(#[$doc])* pub const $name: $type = $type($value); )+

            /// The specification's name of the reason, if it has one.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $( $value => Some(stringify!($name)), )+
                    _ => None,
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0 {
                    $( $value => f.write_str($text), )+
                    other => write!(f, "unknown reason {other}"),
                }
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.name() {
                    Some(name) => write!(f, "{}({name})", stringify!($type)),
                    None => write!(f, "{}({})", stringify!($type), self.0),
                }
            }
        }

        impl From<u8> for $type {
            fn from(byte: u8) -> Self {
                $type(byte)
            }
        }

        impl From<$type> for u8 {
            fn from(reason: $type) -> u8 {
                reason.0
            }
        }
    };
}

reasons! {
    /// Why a circuit was closed: the byte in DESTROY and TRUNCATED (tor-spec 5.4).
    ///
    /// A relay that passes a DESTROY on sends [`DESTROYED`](Self::DESTROYED),
    /// whatever reason it received; an origin always sends [`NONE`](Self::NONE).
    DestroyReason {
        /// No reason given.
        NONE = 0, "NONE";
        /// Tor protocol violation.
        PROTOCOL = 1, "TORPROTOCOL";
        /// Internal error.
        INTERNAL = 2, "INTERNAL";
        /// A client sent a TRUNCATE command.
        REQUESTED = 3, "REQUESTED";
        /// Not currently operating; trying to save bandwidth.
        HIBERNATING = 4, "HIBERNATING";
        /// Out of memory, sockets, or circuit ids.
        RESOURCELIMIT = 5, "RESOURCELIMIT";
        /// Unable to reach the relay.
        CONNECTFAILED = 6, "CONNECTFAILED";
        /// Connected to the relay, but its identity was not as expected.
        OR_IDENTITY = 7, "OR_IDENTITY";
        /// The connection that was carrying this circuit died.
        CHANNEL_CLOSED = 8, "CHANNEL_CLOSED";
        /// The circuit has expired for being dirty or old.
        FINISHED = 9, "FINISHED";
        /// Circuit construction took too long.
        TIMEOUT = 10, "TIMEOUT";
        /// The circuit was destroyed without a client's TRUNCATE.
        DESTROYED = 11, "DESTROYED";
        /// Request for an unknown hidden service.
        NOSUCHSERVICE = 12, "NOSUCHSERVICE";
    }
}

reasons! {
    /// Why a stream was closed: the first byte of END (tor-spec 6.3).
    EndReason {
        /// Catch-all for unlisted reasons.
        MISC = 1, "misc error";
        /// Could not look up the hostname.
        RESOLVEFAILED = 2, "resolve failed";
        /// The remote host refused the connection.
        CONNECTREFUSED = 3, "connection refused";
        /// The relay refuses to connect to the host or port.
        EXITPOLICY = 4, "exit policy failed";
        /// The circuit is being destroyed.
        DESTROY = 5, "destroyed";
        /// The anonymized TCP connection was closed.
        DONE = 6, "closed normally";
        /// The connection timed out.
        TIMEOUT = 7, "gave up (timeout)";
        /// Routing error while attempting to contact the destination.
        NOROUTE = 8, "no route to host";
        /// The relay is temporarily hibernating.
        HIBERNATING = 9, "server is hibernating";
        /// Internal error at the relay.
        INTERNAL = 10, "internal error at server";
        /// The relay has no resources to fulfil the request.
        RESOURCELIMIT = 11, "server out of resources";
        /// The connection was unexpectedly reset.
        CONNRESET = 12, "connection reset";
        /// Tor protocol violation.
        TORPROTOCOL = 13, "Tor protocol error";
        /// BEGIN_DIR was sent to a relay that is not a directory.
        NOTDIRECTORY = 14, "not a directory";
    }
}

impl EndReason {
    /// The reason that the data of an END message gives; MISC when it gives none,
    /// as tor-spec 6.3 asks.
    pub(crate) fn from_end_data(data: &[u8]) -> Self {
        data.first().copied().map_or(EndReason::MISC, EndReason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_tor_spec_5_4() {
        let names: Vec<_> = (0..=13).map(|byte| DestroyReason(byte).name()).collect();
        assert_eq!(
            names,
            [
                Some("NONE"),
                Some("PROTOCOL"),
                Some("INTERNAL"),
                Some("REQUESTED"),
                Some("HIBERNATING"),
                Some("RESOURCELIMIT"),
                Some("CONNECTFAILED"),
                Some("OR_IDENTITY"),
                Some("CHANNEL_CLOSED"),
                Some("FINISHED"),
                Some("TIMEOUT"),
                Some("DESTROYED"),
                Some("NOSUCHSERVICE"),
                None,
            ]
        );
    }

    #[test]
    fn values_are_those_of_tor_spec_6_3() {
        let names: Vec<_> = (0..=15).map(|byte| EndReason(byte).name()).collect();
        assert_eq!(
            names,
            [
                None,
                Some("MISC"),
                Some("RESOLVEFAILED"),
                Some("CONNECTREFUSED"),
                Some("EXITPOLICY"),
                Some("DESTROY"),
                Some("DONE"),
                Some("TIMEOUT"),
                Some("NOROUTE"),
                Some("HIBERNATING"),
                Some("INTERNAL"),
                Some("RESOURCELIMIT"),
                Some("CONNRESET"),
                Some("TORPROTOCOL"),
                Some("NOTDIRECTORY"),
                None,
            ]
        );
    }

    #[test]
    fn reads_like_c_tor_and_shows_the_number_of_an_unknown_reason() {
        assert_eq!(DestroyReason::PROTOCOL.to_string(), "TORPROTOCOL");
        assert_eq!(EndReason::DONE.to_string(), "closed normally");
        assert_eq!(EndReason(99).to_string(), "unknown reason 99");
        assert_eq!(
            format!("{:?}", DestroyReason::TIMEOUT),
            "DestroyReason(TIMEOUT)"
        );
    }

    #[test]
    fn an_empty_end_is_misc() {
        assert_eq!(EndReason::from_end_data(&[]), EndReason::MISC);
        assert_eq!(EndReason::from_end_data(&[6, 1]), EndReason::DONE);
        assert_eq!(EndReason::from_end_data(&[200]), EndReason(200));
    }
}
