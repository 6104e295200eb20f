//! TLS records after the handshake, in place (RFC 8446 5.2; RFC 5246 6.2.3.3, RFC 5288, RFC 7905).
//!
//! rustls shakes hands and hands its secrets over
//! ([`LinkSession::into_records`](crate::LinkSession::into_records)); from then on a relay moves so
//! many bytes that each copy shows. rustls's buffered connection copies every byte twice on the way
//! in and allocates for every record both ways. Here a record is decrypted where the socket's bytes
//! lie, and cells are gathered straight into the record that will carry them. The cryptography
//! itself is aws-lc's, as in rustls.
//!
//! What a peer may send besides data: alerts, KeyUpdates (RFC 8446 4.6.3), and to a client session
//! tickets ([`messages`]). Anything else ends the link, and so does more of these than the data
//! between them pays for ([`overhead`]).

mod error;
mod messages;
mod overhead;

use std::hint::black_box;

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce,
    UnboundKey,
};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use rustls::{ConnectionTrafficSecrets, ExtractedSecrets, ProtocolVersion, Side};

use crate::secrets::Secret;
use messages::{Allowed, KEY_UPDATE, Messages};
use overhead::Overhead;

pub use error::RecordError;

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
/// Records that AES-GCM bears under one key: 2^24.5. RFC 8446 5.5 computes it for TLS 1.3, and
/// RFC 9325 4.4 recommends the same number for TLS 1.2, whose own bound would be slightly higher.
const RECORDS_PER_KEY: u64 = 23_726_566;

/// Content types.
const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;
/// Alerts that end nothing or end all in good order.
const CLOSE_NOTIFY: u8 = 0;
const USER_CANCELED: u8 = 90;

/// Contents of a record.
#[derive(Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// Application data.
    Data(&'a [u8]),
    /// Something that TLS itself needed.
    Nothing,
    /// The peer sends no more.
    Closed,
}

/// Records sealed or opened under keys that are never updated, and those that still may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyUse {
    /// Records that went under them.
    pub used: u64,
    /// Records that may still go.
    pub left: u64,
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

/// The keys of one direction.
///
/// A nonce belongs to one key, so sequence number and key must never disagree. Keys of TLS 1.3 are
/// always derived from the secret that is kept, and always begin at number 0
/// ([`from_secret`](Direction::from_secret)); the keys from rustls are only compared with them.
///
/// What a record needs is in its first 64 bytes.
#[derive(Debug)]
#[repr(C)]
struct Direction {
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
    /// The origin is a secret.
    is_tls13: bool,
    /// Number of the next record: the records that went under this key.
    sequence: u64,
    /// Records that may go under this key.
    most: u64,
    origin: Origin,
}

/// Where the keys of a direction come from.
#[derive(Debug)]
enum Origin {
    /// TLS 1.2: the handshake. There are no others.
    Handshake,
    /// TLS 1.3: this traffic secret.
    Secret(Secret),
}

impl Direction {
    /// Goes on where rustls ended: after `sequence` records under these keys.
    fn new(
        version: ProtocolVersion,
        (sequence, secrets): (u64, ConnectionTrafficSecrets),
        first_secret: Option<Secret>,
    ) -> Result<Self, RecordError> {
        let (algorithm, key, iv) = match &secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv),
            _ => return Err(RecordError::UnknownCipher),
        };
        match (version, first_secret) {
            (ProtocolVersion::TLSv1_3, Some(secret)) => {
                let (derived_key, derived_iv) = secret.keys(algorithm);
                verify_slices_are_equal(&derived_key, key.as_ref())
                    .and_then(|()| verify_slices_are_equal(&derived_iv, iv.as_ref()))
                    .map_err(|_| RecordError::UpdatedTooEarly)?;
                let mut direction = Self::from_secret(algorithm, secret)?;
                direction.sequence = sequence;
                Ok(direction)
            }
            (ProtocolVersion::TLSv1_2, None) => {
                let iv = iv.as_ref().first_chunk().copied();
                Ok(Direction {
                    key: make_key(algorithm, key.as_ref())?,
                    iv: iv.ok_or(RecordError::UnknownCipher)?,
                    is_tls13: false,
                    sequence,
                    most: records_per_key(algorithm),
                    origin: Origin::Handshake,
                })
            }
            _ => Err(RecordError::UnknownCipher),
        }
    }

    /// The keys of a TLS 1.3 secret, before any record (RFC 8446 7.3).
    fn from_secret(algorithm: &'static Algorithm, secret: Secret) -> Result<Self, RecordError> {
        let (key, iv) = secret.keys(algorithm);
        Ok(Direction {
            key: make_key(algorithm, &key)?,
            iv,
            is_tls13: true,
            sequence: 0,
            most: records_per_key(algorithm),
            origin: Origin::Secret(secret),
        })
    }

    /// Replaces the keys by the next ones (RFC 8446 7.2).
    fn update(&mut self) -> Result<(), RecordError> {
        let Origin::Secret(secret) = &self.origin else {
            return Err(RecordError::UsedUp);
        };
        *self = Self::from_secret(self.key.algorithm(), secret.next())?;
        Ok(())
    }

    fn is_tls13(&self) -> bool {
        self.is_tls13
    }

    /// Records that may still go under these keys.
    fn records_left(&self) -> u64 {
        self.most.saturating_sub(self.sequence)
    }

    /// True if each record carries the explicit part of its nonce (TLS 1.2 with AES-GCM).
    fn nonce_is_explicit(&self) -> bool {
        !self.is_tls13() && self.key.algorithm() != &CHACHA20_POLY1305
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

    /// The additional authenticated data: the header itself (RFC 8446 5.2), or number, type,
    /// version and length of the plaintext (RFC 5246 6.2.3.3).
    fn additional(&self, header: [u8; HEADER], plaintext: usize) -> Additional {
        let mut bytes = [0; 13];
        let length = if self.is_tls13() {
            bytes[..HEADER].copy_from_slice(&header);
            HEADER
        } else {
            let [kind, major, minor, ..] = header;
            let [.., high, low] = plaintext.to_be_bytes();
            bytes[..8].copy_from_slice(&self.sequence.to_be_bytes());
            bytes[8..].copy_from_slice(&[kind, major, minor, high, low]);
            13
        };
        Additional { bytes, length }
    }
}

/// The most records under one key of this cipher. ChaCha20-Poly1305 has no bound but that of the
/// sequence number (RFC 8446 5.5, RFC 9325 4.4).
fn records_per_key(algorithm: &Algorithm) -> u64 {
    if algorithm == &CHACHA20_POLY1305 {
        u64::MAX
    } else {
        RECORDS_PER_KEY
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

/// Both directions of a session whose handshake is done.
///
/// A record of a link on which nothing has come for long finds nothing of it in the processor's cache: the fields are
/// in the order in which records need them, in two lines for those that come and two for those that go.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Records {
    rx: Direction,
    /// Remaining credit for the peer's handshake messages and small records.
    overhead: Overhead,
    /// These messages.
    messages: Messages,
    /// The peer asked for new keys and has not got them.
    owes_update: bool,
    line: Line,
    tx: Direction,
}

/// A line of the cache begins here.
#[derive(Debug)]
#[repr(align(64))]
struct Line;

impl Records {
    /// Reads what opening a record needs, so that it is in the processor's cache when one comes.
    #[inline]
    pub fn touch_rx(&self) {
        black_box(self.rx.sequence);
    }

    /// Reads the state that sealing a record needs, so that it is in the processor's cache.
    #[inline]
    pub fn touch_tx(&self) {
        black_box(self.tx.sequence);
    }

    /// Goes on where a handshake ended, on this side of it. `first_tx` and `first_rx` are the traffic
    /// secrets of TLS 1.3 that it ended with.
    ///
    /// # Errors
    ///
    /// [`RecordError::UpdatedTooEarly`]: a KeyUpdate went or came since, and the secrets are not those
    /// of the keys in use. No honest peer updates keys before the link is open.
    /// [`RecordError::UnknownCipher`].
    pub(super) fn new(
        side: Side,
        version: Option<ProtocolVersion>,
        secrets: ExtractedSecrets,
        first_tx: Option<Secret>,
        first_rx: Option<Secret>,
    ) -> Result<Self, RecordError> {
        let version = version.ok_or(RecordError::UnknownCipher)?;
        Ok(Self::of(
            side,
            Direction::new(version, secrets.tx, first_tx)?,
            Direction::new(version, secrets.rx, first_rx)?,
        ))
    }

    fn of(side: Side, tx: Direction, rx: Direction) -> Self {
        let allowed = match side {
            _ if !rx.is_tls13() => Allowed::Nothing,
            Side::Client => Allowed::KeyUpdatesAndTickets,
            Side::Server => Allowed::KeyUpdates,
        };
        Records {
            rx,
            overhead: Overhead::new(),
            messages: Messages::new(allowed),
            owes_update: false,
            line: Line,
            tx,
        }
    }

    /// A client's and a server's TLS 1.3 sessions that speak to each other, with keys that everybody
    /// knows: for tests and fuzzing of what may come inside records.
    ///
    /// # Errors
    ///
    /// None that tests could not do without.
    pub fn loopback() -> Result<(Self, Self), RecordError> {
        let direction =
            |secret: [u8; 32]| Direction::from_secret(&AES_128_GCM, Secret::new(&secret));
        let (there, back) = ([1; 32], [2; 32]);
        let client = Self::of(Side::Client, direction(there)?, direction(back)?);
        let server = Self::of(Side::Server, direction(back)?, direction(there)?);
        Ok((client, server))
    }

    /// Records sent and records that may still be sent under the current keys, in the direction
    /// that is nearer to its limit. `None` if new keys replace them in time (TLS 1.3).
    pub fn key_use(&self) -> Option<KeyUse> {
        if self.tx.is_tls13() {
            return None;
        }
        let nearer = if self.tx.records_left() < self.rx.records_left() {
            &self.tx
        } else {
            &self.rx
        };
        Some(KeyUse {
            used: nearer.sequence,
            left: nearer.records_left(),
        })
    }

    /// Lowers the number of records that may be sent or received under the keys in use, so that a test
    /// reaches the limit.
    pub fn limit_keys(&mut self, most: u64) {
        self.tx.most = self.tx.most.min(most);
        self.rx.most = self.rx.most.min(most);
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
        if self.owes_update || self.tx.records_left() == 0 {
            self.seal_key_update(false, wire)?;
            self.owes_update = false;
        }
        self.seal_as(APPLICATION_DATA, pieces, wire)
    }

    /// Appends a KeyUpdate, which may ask for one in return, and goes on with the new keys.
    ///
    /// # Errors
    ///
    /// [`RecordError::UsedUp`]: TLS 1.2 has none.
    pub fn seal_key_update(
        &mut self,
        in_return: bool,
        wire: &mut Vec<u8>,
    ) -> Result<(), RecordError> {
        if !self.tx.is_tls13() {
            return Err(RecordError::UsedUp);
        }
        let message = [KEY_UPDATE, 0, 0, 1, u8::from(in_return)];
        self.seal_as(HANDSHAKE, [&message[..]], wire)?;
        self.tx.update()
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
        let outer = if tx.is_tls13() {
            APPLICATION_DATA
        } else {
            kind
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
        if tx.is_tls13() {
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
        tx.sequence += 1;
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
        if rx.is_tls13() && outer != APPLICATION_DATA {
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
        rx.sequence += 1;
        let (kind, opened): (u8, &'a [u8]) = if rx.is_tls13() {
            let end = opened.iter().rposition(|byte| *byte != 0);
            let end = end.ok_or(RecordError::Malformed)?;
            let kind = opened.get(end).copied().unwrap_or_default();
            (kind, opened.get(..end).unwrap_or_default())
        } else {
            (outer, opened)
        };
        if opened.len() > MAX_PLAINTEXT {
            return Err(RecordError::Malformed);
        }
        if kind != HANDSHAKE && self.messages.within_message() {
            return Err(RecordError::Unexpected("data within a handshake message"));
        }
        match (kind, opened) {
            (APPLICATION_DATA, data) if !data.is_empty() => {
                self.overhead.data(data.len())?;
                return Ok(Content::Data(data));
            }
            _ => self.overhead.other_record()?,
        }
        match (kind, opened) {
            (APPLICATION_DATA, _) => Ok(Content::Nothing),
            (ALERT, [_, CLOSE_NOTIFY]) => Ok(Content::Closed),
            (ALERT, [_, USER_CANCELED]) => Ok(Content::Nothing),
            (ALERT, [_, alert]) => Err(RecordError::Alert(*alert)),
            (HANDSHAKE, messages) => {
                if let Some(update) = self.messages.receive(messages)? {
                    self.overhead.key_update()?;
                    self.rx.update()?;
                    self.owes_update |= update.in_return;
                }
                Ok(Content::Nothing)
            }
            _ => Err(RecordError::Unexpected("its content type is unknown")),
        }
    }
}

#[cfg(test)]
mod tests;
