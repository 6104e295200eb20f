//! TLS records after the handshake, in place (RFC 8446 5.2; RFC 5246 6.2.3.3, RFC 5288, RFC 7905).
//!
//! rustls shakes hands and hands its secrets over
//! ([`LinkSession::into_records`](super::LinkSession::into_records)); from then on a relay moves so
//! many bytes that each copy shows. rustls's buffered connection copies every byte twice on the way
//! in and allocates for every record both ways. Here a record is decrypted where the socket's bytes
//! lie, and cells are gathered straight into the record that will carry them. The cryptography
//! itself is aws-lc's, as in rustls.
//!
//! What a peer may send besides data: alerts, session tickets (ignored: Tor resumes no session) and
//! KeyUpdates (RFC 8446 4.6.3). Anything else ends the link.

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce,
    UnboundKey,
};
use rustls::{ConnectionTrafficSecrets, ExtractedSecrets, ProtocolVersion};
use thiserror::Error;

use super::secrets::Secret;

/// Bytes of a record's header: type, version, length.
pub const HEADER: usize = 5;
/// The most plaintext that a record may hold.
pub const MAX_PLAINTEXT: usize = 1 << 14;
/// The most bytes of a record, header included, in any version (RFC 5246 6.2.3).
pub const MAX_RECORD: usize = HEADER + MAX_PLAINTEXT + 2048;
/// Bytes of an authentication tag.
const TAG: usize = 16;
/// Bytes of the nonce that a TLS 1.2 AES-GCM record carries (RFC 5288 3).
const EXPLICIT_NONCE: usize = 8;
/// Records under one key: half of what AES-GCM bears with full records (RFC 8446 5.5: 2^24.5).
const RECORDS_PER_KEY: u64 = 1 << 23;
/// Bytes of handshake messages that may wait for their rest; tickets are much smaller.
const MAX_HANDSHAKE: usize = 1 << 14;

/// Content types.
const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;
/// Handshake messages.
const HELLO_REQUEST: u8 = 0;
const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;
/// Alerts that end nothing or end all in good order.
const CLOSE_NOTIFY: u8 = 0;
const USER_CANCELED: u8 = 90;

/// Why a session cannot go on.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum RecordError {
    /// The bytes are not TLS.
    #[error("the peer's bytes are no TLS record")]
    NotARecord,
    /// A record was altered or is not the peer's.
    #[error("a TLS record that does not decrypt")]
    Decrypt,
    /// A record without content type, or with too much in it.
    #[error("a malformed TLS record")]
    Malformed,
    /// The peer gave up.
    #[error("the peer sent TLS alert {0}")]
    Alert(u8),
    /// A message that has no place after the handshake.
    #[error("an unexpected TLS message ({0})")]
    Unexpected(&'static str),
    /// TLS 1.2 knows no new keys without renegotiation, which Tor forbids (tor-spec 2.2).
    #[error("the TLS session's keys are used up")]
    UsedUp,
    /// A cipher that rustls offers and this module does not know.
    #[error("a TLS cipher that is not known here")]
    UnknownCipher,
}

/// What a record held.
#[derive(Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// Application data.
    Data(&'a [u8]),
    /// Something that TLS itself needed.
    Nothing,
    /// The peer sends no more.
    Closed,
}

/// The length of the record at the start of `bytes`, once all of it is there.
///
/// # Errors
///
/// [`RecordError::NotARecord`].
pub fn whole(bytes: &[u8]) -> Result<Option<usize>, RecordError> {
    let Some([kind, major, _, high, low]) = bytes.first_chunk::<HEADER>().copied() else {
        return Ok(None);
    };
    let length = HEADER + usize::from(u16::from_be_bytes([high, low]));
    if !(CHANGE_CIPHER_SPEC..=APPLICATION_DATA).contains(&kind) || major != 3 || length > MAX_RECORD
    {
        return Err(RecordError::NotARecord);
    }
    Ok((length <= bytes.len()).then_some(length))
}

/// Which TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Tls12,
    Tls13,
}

/// The keys of one direction.
#[derive(Debug)]
struct Direction {
    version: Version,
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
    /// Of the next record.
    sequence: u64,
    /// Records under this key.
    used: u64,
    /// What the next key is made from (TLS 1.3).
    secret: Option<Secret>,
}

impl Direction {
    fn new(
        version: Version,
        (sequence, secrets): (u64, ConnectionTrafficSecrets),
        secret: Option<Secret>,
    ) -> Result<Self, RecordError> {
        let (algorithm, key, iv) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv),
            _ => return Err(RecordError::UnknownCipher),
        };
        let iv = iv.as_ref().first_chunk().copied();
        Ok(Direction {
            version,
            key: make_key(algorithm, key.as_ref())?,
            iv: iv.ok_or(RecordError::UnknownCipher)?,
            sequence,
            used: sequence,
            secret,
        })
    }

    /// Replaces the keys by the next ones (RFC 8446 7.2).
    fn update(&mut self) -> Result<(), RecordError> {
        let secret = self.secret.as_mut().ok_or(RecordError::UsedUp)?;
        let algorithm = self.key.algorithm();
        let mut key = [0; 32];
        let key = key
            .get_mut(..algorithm.key_len())
            .ok_or(RecordError::UnknownCipher)?;
        secret.next();
        secret.expand(b"key", key);
        secret.expand(b"iv", &mut self.iv);
        self.key = make_key(algorithm, key)?;
        zeroize::Zeroize::zeroize(key);
        self.sequence = 0;
        self.used = 0;
        Ok(())
    }

    /// Whether each record carries a part of its nonce.
    fn nonce_is_explicit(&self) -> bool {
        self.version == Version::Tls12 && self.key.algorithm() != &CHACHA20_POLY1305
    }

    /// The nonce of the next record (RFC 8446 5.3); for TLS 1.2's AES-GCM as good as any other that
    /// never comes twice.
    fn nonce(&self) -> [u8; NONCE_LEN] {
        let mut nonce = self.iv;
        for (byte, other) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= other;
        }
        nonce
    }

    /// What is authenticated besides the content: the header itself (RFC 8446 5.2), or number, type,
    /// version and length of the plaintext (RFC 5246 6.2.3.3).
    fn additional(&self, header: [u8; HEADER], plaintext: usize) -> Additional {
        let mut bytes = [0; 13];
        let length = match self.version {
            Version::Tls13 => {
                bytes[..HEADER].copy_from_slice(&header);
                HEADER
            }
            Version::Tls12 => {
                let [kind, major, minor, ..] = header;
                let [.., high, low] = plaintext.to_be_bytes();
                bytes[..8].copy_from_slice(&self.sequence.to_be_bytes());
                bytes[8..].copy_from_slice(&[kind, major, minor, high, low]);
                13
            }
        };
        Additional { bytes, length }
    }

    fn advance(&mut self) {
        self.sequence += 1;
        self.used += 1;
    }
}

/// See [`Direction::additional`].
struct Additional {
    bytes: [u8; 13],
    length: usize,
}

impl AsRef<[u8]> for Additional {
    fn as_ref(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

fn make_key(algorithm: &'static Algorithm, key: &[u8]) -> Result<LessSafeKey, RecordError> {
    let key = UnboundKey::new(algorithm, key).map_err(|_| RecordError::UnknownCipher)?;
    Ok(LessSafeKey::new(key))
}

/// Both directions of a session whose handshake is done. See the module.
#[derive(Debug)]
pub struct Records {
    tx: Direction,
    rx: Direction,
    /// The peer asked for new keys and has not got them.
    owes_update: bool,
    /// The beginning of a handshake message whose rest has not come.
    handshake: Vec<u8>,
}

impl Records {
    /// Goes on where a handshake ended. `tx_secret` and `rx_secret` are TLS 1.3's traffic secrets.
    pub(super) fn new(
        version: Option<ProtocolVersion>,
        secrets: ExtractedSecrets,
        tx_secret: Option<Secret>,
        rx_secret: Option<Secret>,
    ) -> Result<Self, RecordError> {
        let version = match version {
            Some(ProtocolVersion::TLSv1_3) => Version::Tls13,
            Some(ProtocolVersion::TLSv1_2) => Version::Tls12,
            _ => return Err(RecordError::UnknownCipher),
        };
        Ok(Records {
            tx: Direction::new(version, secrets.tx, tx_secret)?,
            rx: Direction::new(version, secrets.rx, rx_secret)?,
            owes_update: false,
            handshake: Vec::new(),
        })
    }

    /// Two TLS 1.3 sessions that speak to each other, with keys that everybody knows: for tests and
    /// fuzzing of what may come inside records.
    ///
    /// # Errors
    ///
    /// None that tests could not do without.
    pub fn loopback() -> Result<(Self, Self), RecordError> {
        let direction = |secret: [u8; 32]| {
            let mut secret = Secret::new(&secret);
            let mut direction = Direction {
                version: Version::Tls13,
                key: make_key(&AES_128_GCM, &[0; 16])?,
                iv: [0; NONCE_LEN],
                sequence: 0,
                used: 0,
                secret: None,
            };
            secret.next();
            direction.secret = Some(secret);
            direction.update()?;
            Ok(direction)
        };
        let (there, back) = ([1; 32], [2; 32]);
        let records = |tx, rx| {
            Ok(Records {
                tx: direction(tx)?,
                rx: direction(rx)?,
                owes_update: false,
                handshake: Vec::new(),
            })
        };
        Ok((records(there, back)?, records(back, there)?))
    }

    /// Appends a record to `wire` with these pieces of application data, at most [`MAX_PLAINTEXT`]
    /// bytes in all. New keys go before it when they are due.
    ///
    /// # Errors
    ///
    /// [`RecordError::UsedUp`], [`RecordError::Malformed`] (too much data).
    pub fn seal<'p>(
        &mut self,
        pieces: impl IntoIterator<Item = &'p [u8]>,
        wire: &mut Vec<u8>,
    ) -> Result<(), RecordError> {
        if self.owes_update || self.tx.used >= RECORDS_PER_KEY {
            if self.tx.version == Version::Tls12 {
                return Err(RecordError::UsedUp);
            }
            // type 24, length 1, "update not requested"
            self.seal_as(HANDSHAKE, [&[KEY_UPDATE, 0, 0, 1, 0][..]], wire)?;
            self.tx.update()?;
            self.owes_update = false;
        }
        self.seal_as(APPLICATION_DATA, pieces, wire)
    }

    /// Appends the alert that ends the session in good order.
    ///
    /// # Errors
    ///
    /// None that a session with fresh keys could have.
    pub fn seal_close_notify(&mut self, wire: &mut Vec<u8>) -> Result<(), RecordError> {
        const WARNING: u8 = 1;
        self.seal_as(ALERT, [&[WARNING, CLOSE_NOTIFY][..]], wire)
    }

    /// Appends a record of any content type.
    ///
    /// # Errors
    ///
    /// [`RecordError::Malformed`]: too much data.
    pub fn seal_as<'p>(
        &mut self,
        kind: u8,
        pieces: impl IntoIterator<Item = &'p [u8]>,
        wire: &mut Vec<u8>,
    ) -> Result<(), RecordError> {
        let tx = &mut self.tx;
        let start = wire.len();
        let nonce = tx.nonce();
        let outer = match tx.version {
            Version::Tls13 => APPLICATION_DATA,
            Version::Tls12 => kind,
        };
        wire.extend_from_slice(&[outer, 3, 3, 0, 0]);
        if tx.nonce_is_explicit() {
            wire.extend_from_slice(&nonce[4..]);
        }
        let body = wire.len();
        for piece in pieces {
            wire.extend_from_slice(piece);
        }
        let plaintext = wire.len() - body;
        if plaintext > MAX_PLAINTEXT {
            wire.truncate(start);
            return Err(RecordError::Malformed);
        }
        if tx.version == Version::Tls13 {
            wire.push(kind);
        }
        let [.., high, low] = (wire.len() - start - HEADER + TAG).to_be_bytes();
        let header = [outer, 3, 3, high, low];
        if let Some(place) = wire.get_mut(start..start + HEADER) {
            place.copy_from_slice(&header);
        }
        let additional = tx.additional(header, plaintext);
        let tag = tx
            .key
            .seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(additional),
                wire.get_mut(body..).unwrap_or_default(),
            )
            .map_err(|_| RecordError::Malformed)?;
        wire.extend_from_slice(tag.as_ref());
        tx.advance();
        Ok(())
    }

    /// Decrypts a whole record ([`whole`]) where it lies.
    ///
    /// # Errors
    ///
    /// [`RecordError`]: the caller closes the connection.
    pub fn open<'a>(&mut self, record: &'a mut [u8]) -> Result<Content<'a>, RecordError> {
        let rx = &mut self.rx;
        let (header, rest) = record
            .split_first_chunk_mut::<HEADER>()
            .ok_or(RecordError::NotARecord)?;
        let header = *header;
        let mut nonce = rx.nonce();
        let body = if rx.nonce_is_explicit() {
            let (explicit, body) = rest
                .split_first_chunk_mut::<EXPLICIT_NONCE>()
                .ok_or(RecordError::Malformed)?;
            nonce[..4].copy_from_slice(&rx.iv[..4]);
            nonce[4..].copy_from_slice(explicit);
            body
        } else {
            rest
        };
        let plaintext = body.len().checked_sub(TAG).ok_or(RecordError::Malformed)?;
        let [outer, ..] = header;
        if rx.version == Version::Tls13 && outer != APPLICATION_DATA {
            return Err(RecordError::Unexpected("a record that is not encrypted"));
        }
        let additional = rx.additional(header, plaintext);
        let opened: &'a mut [u8] = rx
            .key
            .open_in_place(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(additional),
                body,
            )
            .map_err(|_| RecordError::Decrypt)?;
        rx.advance();
        let (kind, opened): (u8, &'a [u8]) = match rx.version {
            Version::Tls12 => (outer, opened),
            Version::Tls13 => {
                let end = opened.iter().rposition(|byte| *byte != 0);
                let end = end.ok_or(RecordError::Malformed)?;
                let kind = opened.get(end).copied().unwrap_or_default();
                (kind, opened.get(..end).unwrap_or_default())
            }
        };
        if opened.len() > MAX_PLAINTEXT {
            return Err(RecordError::Malformed);
        }
        if kind != HANDSHAKE && !self.handshake.is_empty() {
            return Err(RecordError::Unexpected("data within a handshake message"));
        }
        match (kind, opened) {
            (APPLICATION_DATA, data) => Ok(Content::Data(data)),
            (ALERT, [_, CLOSE_NOTIFY]) => Ok(Content::Closed),
            (ALERT, [_, USER_CANCELED]) => Ok(Content::Nothing),
            (ALERT, [_, alert]) => Err(RecordError::Alert(*alert)),
            (HANDSHAKE, messages) => self.on_handshake(messages).map(|()| Content::Nothing),
            _ => Err(RecordError::Unexpected("its content type is unknown")),
        }
    }

    /// Bytes that it keeps for messages whose rest has not come: the peer decides, up to a bound.
    pub fn buffered(&self) -> usize {
        self.handshake.capacity()
    }

    /// Handles handshake messages, which may share records and may be split among them.
    fn on_handshake(&mut self, bytes: &[u8]) -> Result<(), RecordError> {
        self.handshake.extend_from_slice(bytes);
        if bytes.is_empty() || self.handshake.len() > MAX_HANDSHAKE {
            return Err(RecordError::Malformed);
        }
        let messages = std::mem::take(&mut self.handshake);
        let mut rest = messages.as_slice();
        while let Some(([kind, l1, l2, l3], after)) = rest.split_first_chunk::<4>() {
            let length = usize::from(*l1) << 16 | usize::from(*l2) << 8 | usize::from(*l3);
            let Some((message, after)) = after.split_at_checked(length) else {
                break;
            };
            rest = after;
            match (*kind, message, self.rx.version) {
                (NEW_SESSION_TICKET, _, Version::Tls13) => {}
                (KEY_UPDATE, [wants @ (0 | 1)], Version::Tls13) => {
                    if !rest.is_empty() {
                        return Err(RecordError::Unexpected("a message after a KeyUpdate"));
                    }
                    self.rx.update()?;
                    self.owes_update |= *wants == 1;
                }
                (HELLO_REQUEST, _, Version::Tls12) => {
                    return Err(RecordError::Unexpected("renegotiation"));
                }
                _ => return Err(RecordError::Unexpected("a handshake message")),
            }
        }
        self.handshake = rest.to_vec();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
