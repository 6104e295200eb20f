//! TLS 1.3 traffic secrets, from which the keys after the next KeyUpdate are made (RFC 8446 7.2).
//!
//! rustls gives the keys in use to the code that takes a session over, but the secrets behind them
//! only to a [`KeyLog`]. So each session has its own log, in memory, that keeps just these two.

use std::fmt;
use std::sync::OnceLock;

use aws_lc_rs::aead::{Algorithm, NONCE_LEN};
use aws_lc_rs::hkdf::{HKDF_SHA256, HKDF_SHA384, KeyType, Prk};
use rustls::KeyLog;
use zeroize::Zeroizing;

/// The traffic secret of one direction: as long as the hash of the cipher suite.
#[derive(Clone)]
pub(super) struct Secret(Zeroizing<Vec<u8>>);

/// Shows nothing.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// A length for HKDF.
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

impl Secret {
    /// A copy of what rustls logs.
    pub(super) fn new(bytes: &[u8]) -> Self {
        Secret(Zeroizing::new(bytes.to_vec()))
    }

    /// `HKDF-Expand-Label(secret, label, "", out.len())` (RFC 8446 7.1).
    ///
    /// `label` and `out` are ours and short: nothing here can fail.
    pub(super) fn expand(&self, label: &[u8], out: &mut [u8]) {
        const PREFIX: &[u8] = b"tls13 ";
        let algorithm = if self.0.len() == 32 {
            HKDF_SHA256
        } else {
            HKDF_SHA384
        };
        let [.., high, low] = out.len().to_be_bytes();
        let [.., label_length] = (PREFIX.len() + label.len()).to_be_bytes();
        let info = [&[high, low, label_length][..], PREFIX, label, &[0]];
        let prk = Prk::new_less_safe(algorithm, &self.0);
        let expanded = prk
            .expand(&info, Length(out.len()))
            .and_then(|okm| okm.fill(out));
        debug_assert!(expanded.is_ok());
    }

    /// The secret after a KeyUpdate (RFC 8446 7.2).
    pub(super) fn next(&self) -> Self {
        let mut next = Zeroizing::new(vec![0; self.0.len()]);
        self.expand(b"traffic upd", &mut next);
        Secret(next)
    }

    /// The key and the IV of this cipher (RFC 8446 7.3).
    pub(super) fn keys(&self, algorithm: &Algorithm) -> (Zeroizing<Vec<u8>>, [u8; NONCE_LEN]) {
        let mut key = Zeroizing::new(vec![0; algorithm.key_len()]);
        let mut iv = [0; NONCE_LEN];
        self.expand(b"key", &mut key);
        self.expand(b"iv", &mut iv);
        (key, iv)
    }
}

/// The secrets of one session, once its handshake is done.
#[derive(Debug, Default)]
pub(super) struct SessionSecrets {
    /// Of what the client sends.
    pub(super) client: OnceLock<Secret>,
    /// Of what the server sends.
    pub(super) server: OnceLock<Secret>,
}

impl KeyLog for SessionSecrets {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        let place = match label {
            "CLIENT_TRAFFIC_SECRET_0" => &self.client,
            "SERVER_TRAFFIC_SECRET_0" => &self.server,
            _ => return,
        };
        // Each is logged once in a session.
        let _ = place.set(Secret::new(secret));
    }
}
