//! Names and passwords for a proxy.

use std::fmt;

/// Name and password for a SOCKS5 proxy, 1 to 255 bytes each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The name.
    pub username: Secret,
    /// The password.
    pub password: Secret,
}

/// Text that belongs into no log.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps a text.
    #[must_use]
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[scrubbed]")
    }
}
