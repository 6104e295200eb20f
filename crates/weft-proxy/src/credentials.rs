//! Names and passwords for a proxy.

use std::fmt;

/// Longest name and longest password, in bytes (RFC 1929).
const MAX_LEN: usize = 255;

/// Name and password for a SOCKS5 proxy, 1 to 255 bytes each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The name.
    pub username: Secret,
    /// The password.
    pub password: Secret,
}

impl Credentials {
    /// Arguments for a pluggable transport, of 1 to 510 bytes: the name takes the first 255 of them, the password the others, and is
    /// one NUL where there are none (pt-spec 3.5).
    #[must_use]
    pub fn of_transport(args: &str) -> Self {
        let (username, rest) = args
            .as_bytes()
            .split_at_checked(MAX_LEN)
            .unwrap_or((args.as_bytes(), &[]));
        let password = if rest.is_empty() { &[0] } else { rest };
        Self {
            username: Secret(username.to_vec()),
            password: Secret(password.to_vec()),
        }
    }
}

/// Bytes that belong into no log.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Keeps a text.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(text.into_bytes())
    }

    pub(crate) fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[scrubbed]")
    }
}
