//! Handshake messages after the handshake (RFC 8446 4.6): which a peer may send, and what they ask.
//!
//! They are judged as their bytes come. Nothing of them is kept but the beginning of a header, so a
//! message in pieces costs no more than the pieces, and no memory.

use super::error::RecordError;

/// Handshake messages.
pub(super) const HELLO_REQUEST: u8 = 0;
pub(super) const NEW_SESSION_TICKET: u8 = 4;
pub(super) const KEY_UPDATE: u8 = 24;

/// The longest ticket. OpenSSL's have some 250 bytes.
const MAX_TICKET: usize = 1 << 14;

/// Post-handshake messages that this end of a session accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Allowed {
    /// TLS 1.2: none. A HelloRequest or ClientHello begins a renegotiation, which Tor forbids
    /// (tor-spec 2.2).
    Nothing,
    /// A TLS 1.3 server: KeyUpdates.
    KeyUpdates,
    /// A TLS 1.3 client: the same, and tickets, which are ignored: Tor resumes no session.
    KeyUpdatesAndTickets,
}

/// A received KeyUpdate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyUpdate {
    /// New keys in return.
    pub(super) in_return: bool,
}

/// The messages of one direction.
#[derive(Debug)]
pub(super) struct Messages {
    allowed: Allowed,
    /// The beginning of a message: type, length, and the one byte of a KeyUpdate.
    start: [u8; 5],
    /// Bytes of it that have come.
    have: usize,
    /// Bytes of a ticket that are still to come.
    skip: usize,
}

impl Messages {
    pub(super) fn new(allowed: Allowed) -> Self {
        Messages {
            allowed,
            start: [0; 5],
            have: 0,
            skip: 0,
        }
    }

    /// The rest of a message is still to come: nothing else may come before it (RFC 8446 5.1).
    pub(super) fn within_message(&self) -> bool {
        self.have > 0 || self.skip > 0
    }

    /// Takes a record's content. A KeyUpdate is the last message of its record (RFC 8446 5.1).
    ///
    /// # Errors
    ///
    /// [`RecordError::Malformed`] (no content, an endless ticket), [`RecordError::Unexpected`].
    pub(super) fn receive(&mut self, mut bytes: &[u8]) -> Result<Option<KeyUpdate>, RecordError> {
        if bytes.is_empty() {
            return Err(RecordError::Malformed);
        }
        loop {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = bytes.get(skipped..).unwrap_or_default();
            let Some((byte, after)) = bytes.split_first() else {
                return Ok(None);
            };
            bytes = after;
            if let Some(place) = self.start.get_mut(self.have) {
                *place = *byte;
            }
            self.have += 1;
            let [kind, l1, l2, l3, request] = self.start;
            let length = usize::from(l1) << 16 | usize::from(l2) << 8 | usize::from(l3);
            match (self.have, kind) {
                (1, KEY_UPDATE) if self.allowed != Allowed::Nothing => {}
                (1, NEW_SESSION_TICKET) if self.allowed == Allowed::KeyUpdatesAndTickets => {}
                (1, HELLO_REQUEST) => return Err(RecordError::Unexpected("renegotiation")),
                (1, _) => return Err(RecordError::Unexpected("a handshake message")),
                (4, NEW_SESSION_TICKET) => {
                    if length > MAX_TICKET {
                        return Err(RecordError::Malformed);
                    }
                    self.skip = length;
                    self.have = 0;
                }
                (4, KEY_UPDATE) if length != 1 => return Err(RecordError::Malformed),
                (5, KEY_UPDATE) => {
                    if !bytes.is_empty() {
                        return Err(RecordError::Unexpected("a message after a KeyUpdate"));
                    }
                    self.have = 0;
                    return match request {
                        0 | 1 => Ok(Some(KeyUpdate {
                            in_return: request == 1,
                        })),
                        _ => Err(RecordError::Malformed),
                    };
                }
                _ => {}
            }
        }
    }
}
