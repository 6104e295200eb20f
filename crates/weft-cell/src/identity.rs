//! Identities of relays, rendezvous cookies and keys of introduction points: byte strings that must not be taken for each other.

use std::fmt;

use tor_llcrypto::pk::{ed25519, rsa};

/// Declares a byte string of one kind, which is shown in hexadecimal.
macro_rules! bytes {
    ($(#[$doc:meta])* $name:ident, $len:literal) => {
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; $len]);

        impl $name {
            /// The bytes, as messages carry them.
            #[must_use]
            pub const fn as_bytes(&self) -> &[u8; $len] {
                &self.0
            }

            /// Returns true if all bytes are zero, which some senders use for "none".
            #[must_use]
            pub fn is_zero(&self) -> bool {
                self.0 == [0; $len]
            }
        }

        impl From<[u8; $len]> for $name {
            fn from(bytes: [u8; $len]) -> Self {
                Self(bytes)
            }
        }

        impl AsRef<[u8]> for $name {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02X}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({self})", stringify!($name))
            }
        }
    };
}

bytes! {
    /// A relay's RSA identity: the SHA-1 digest of its RSA identity key in DER (tor-spec 1.1), which C
    /// tor calls its fingerprint.
    RsaIdentity, 20
}

bytes! {
    /// A relay's Ed25519 identity: its ed25519 master key.
    Ed25519Identity, 32
}

bytes! {
    /// A cookie by which a client and an onion service meet (rend-spec-v3 4.1).
    RendezvousCookie, 20
}

bytes! {
    /// The ed25519 key by which an introduction point knows an onion service's circuit (rend-spec-v3 3.1.1).
    IntroAuthKey, 32
}

// Arti's types of the same identities, for the crates that work with Arti's documents, keys and
// certificates.

impl From<rsa::RsaIdentity> for RsaIdentity {
    fn from(id: rsa::RsaIdentity) -> Self {
        Self(id.to_bytes())
    }
}

impl From<&rsa::RsaIdentity> for RsaIdentity {
    fn from(id: &rsa::RsaIdentity) -> Self {
        Self(id.to_bytes())
    }
}

impl From<RsaIdentity> for rsa::RsaIdentity {
    fn from(id: RsaIdentity) -> Self {
        Self::from(id.0)
    }
}

impl From<ed25519::Ed25519Identity> for Ed25519Identity {
    fn from(id: ed25519::Ed25519Identity) -> Self {
        Self(id.into())
    }
}

impl From<&ed25519::Ed25519Identity> for Ed25519Identity {
    fn from(id: &ed25519::Ed25519Identity) -> Self {
        Self((*id).into())
    }
}

impl From<Ed25519Identity> for ed25519::Ed25519Identity {
    fn from(id: Ed25519Identity) -> Self {
        Self::from(id.0)
    }
}
