//! The relay to measure: its address, identities and ntor onion key.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use base64ct::{Base64, Base64Unpadded, Encoding as _};
use weft_cell::identity::{Ed25519Identity, RsaIdentity};

/// A relay as circuits need to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aim {
    /// Its ORPort.
    pub address: SocketAddr,
    /// Its RSA identity.
    pub rsa: RsaIdentity,
    /// Its Ed25519 identity; not checked if absent.
    pub ed25519: Option<Ed25519Identity>,
    /// Its ntor onion key.
    pub ntor: [u8; 32],
}

/// The peer at the address of the target.
#[derive(Clone, Copy, Debug)]
pub(super) enum Peer {
    /// A relay.
    Relay(Aim),
    /// A bare pipe: cells inside TLS, without the handshakes of Tor.
    Pipe(SocketAddr),
}

impl Peer {
    pub(super) fn address(&self) -> SocketAddr {
        match self {
            Peer::Relay(aim) => aim.address,
            Peer::Pipe(address) => *address,
        }
    }
}

/// Known facts about a relay. Sources are merged; the first value of each fact stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Its ORPort.
    pub address: Option<SocketAddr>,
    /// Its RSA identity.
    pub rsa: Option<RsaIdentity>,
    /// Its Ed25519 identity.
    pub ed25519: Option<Ed25519Identity>,
    /// Its ntor onion key.
    pub ntor: Option<[u8; 32]>,
}

impl Known {
    /// Takes from `other` what is missing.
    #[must_use]
    pub fn or(self, other: Known) -> Known {
        Known {
            address: self.address.or(other.address),
            rsa: self.rsa.or(other.rsa),
            ed25519: self.ed25519.or(other.ed25519),
            ntor: self.ntor.or(other.ntor),
        }
    }

    /// The relay, if all is known that must be.
    ///
    /// # Errors
    ///
    /// Names what is missing.
    pub fn aim(self) -> Result<Aim> {
        let missing = |what| format!("the relay's {what} is not known");
        Ok(Aim {
            address: self.address.with_context(|| missing("address"))?,
            rsa: self
                .rsa
                .with_context(|| missing("RSA identity (fingerprint)"))?,
            ed25519: self.ed25519,
            ntor: self.ntor.with_context(|| missing("ntor onion key"))?,
        })
    }
}

/// 40 hexadecimal digits, with or without spaces and a `$`.
///
/// # Errors
///
/// They are not that.
pub fn fingerprint(text: &str) -> Result<RsaIdentity> {
    let digits: String = text.split_whitespace().collect();
    let digits = digits.strip_prefix('$').unwrap_or(&digits);
    let mut bytes = [0; 20];
    match hex::decode_to_slice(digits, &mut bytes) {
        Ok(()) => Ok(bytes.into()),
        Err(_) => bail!("{text:?} is no fingerprint: it should be 40 hexadecimal digits"),
    }
}

/// A key of 32 bytes in base64, with or without `=`, as descriptors have it.
///
/// # Errors
///
/// It is not that.
pub fn key(text: &str) -> Result<[u8; 32]> {
    let mut bytes = [0; 32];
    let decoded = if text.ends_with('=') {
        Base64::decode(text, &mut bytes)
    } else {
        Base64Unpadded::decode(text, &mut bytes)
    };
    match decoded.map(<[u8]>::len) {
        Ok(32) => Ok(bytes),
        _ => bail!("{text:?} is no key: it should be 32 bytes in base64"),
    }
}
