//! Messages that an introduction point reads: ESTABLISH_INTRO of onion services, INTRODUCE1 of
//! clients (rend-spec-v3 3.1, 3.2). Both are the data of relay messages.
//!
//! They are parsed as in C tor (`hs_intropoint.c`, `src/trunnel/hs/`). tor-cell's types of the same
//! messages differ: they treat a parameter of the denial-of-service extension that is out of range
//! as missing, and a parameter of an unknown type shifts those after it.
//!
//! - Data after the last field is ignored, and so are extensions of unknown types.
//! - A denial-of-service extension that is cut short, or has a parameter of an unknown type, is
//!   ignored. Of several, the last valid one counts, and of a parameter's values the last.

use crate::fields::{CutShort, Fields};
use crate::identity::IntroAuthKey;

/// AUTH_KEY_TYPE of ed25519.
const ED25519: u8 = 2;
/// EXT_FIELD_TYPE of the denial-of-service extension.
const DOS: u8 = 1;
/// Its parameters.
const RATE: u8 = 1;
const BURST: u8 = 2;
/// Bytes of zeros that an INTRODUCE1 begins with, where version 2 had the service's identity.
pub const LEGACY_KEY_ID_LEN: usize = 20;
/// Prefix of the bytes that an ESTABLISH_INTRO's signature covers (rend-spec-v3 3.1.1).
pub const ESTABLISH_INTRO_PREFIX: &[u8] = b"Tor establish-intro cell v1";

/// Data that is not such a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HsMsgError {
    /// It ended too early.
    #[error(transparent)]
    CutShort(#[from] CutShort),
    /// ESTABLISH_INTRO of an onion service of version 2; some may still exist.
    #[error("an ESTABLISH_INTRO of version 2")]
    Obsolete,
    /// Neither type of authentication key is known.
    #[error("an authentication key of type {0} (known: 2, ed25519)")]
    KeyType(u8),
    /// An ed25519 key or signature of another length.
    #[error("an ed25519 key or signature of {0} bytes")]
    Length(u16),
    /// INTRODUCE1 that does not begin with zeros.
    #[error("an INTRODUCE1 of version 2")]
    LegacyKey,
    /// INTRODUCE1 with nothing for the service.
    #[error("an INTRODUCE1 without an encrypted part")]
    NothingEncrypted,
}

/// Defense of a service by its introduction point against introductions that arrive too fast
/// (proposal 305).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntroDefense {
    /// The service sets nothing: the consensus decides.
    ByConsensus,
    /// Not at all: by the service's wish, or because what it sets makes no sense, as in C tor.
    Off,
    /// Limits the INTRODUCE2 that it relays: the average per second, and the burst.
    Limit {
        /// At least 1.
        rate: u32,
        /// At least as many as the rate.
        burst: u32,
    },
}

impl IntroDefense {
    /// By the two parameters of the extension. One that is missing counts as 0.
    fn of(rate: u64, burst: u64) -> Self {
        match (i32::try_from(rate), i32::try_from(burst)) {
            (Ok(rate), Ok(burst)) if rate > 0 && burst >= rate => IntroDefense::Limit {
                rate: rate.unsigned_abs(),
                burst: burst.unsigned_abs(),
            },
            _ => IntroDefense::Off,
        }
    }

    /// Reads the denial-of-service extension. `None`: ignore it.
    fn decode(field: &[u8]) -> Option<Self> {
        let mut fields = Fields::new("ESTABLISH_INTRO", field);
        let (mut rate, mut burst) = (0, 0);
        let mut known = true;
        for _ in 0..fields.u8("N_PARAMS").ok()? {
            let kind = fields.u8("PARAM_TYPE").ok()?;
            let value = fields.u64("PARAM_VALUE").ok()?;
            match kind {
                RATE => rate = value,
                BURST => burst = value,
                _ => known = false,
            }
        }
        known.then(|| Self::of(rate, burst))
    }
}

/// ESTABLISH_INTRO: an onion service wants this relay as an introduction point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EstablishIntro<'a> {
    /// AUTH_KEY: by this clients name the service here.
    pub auth_key: IntroAuthKey,
    /// The defense that the service requests.
    pub defense: IntroDefense,
    /// Bytes that HANDSHAKE_AUTH covers.
    pub authenticated: &'a [u8],
    /// HANDSHAKE_AUTH: shows that the message is of this circuit.
    pub handshake_auth: [u8; 32],
    /// Bytes that SIG covers, after [`ESTABLISH_INTRO_PREFIX`].
    pub signed: &'a [u8],
    /// SIG: shows that the sender has the secret part of AUTH_KEY.
    pub signature: [u8; 64],
}

impl<'a> EstablishIntro<'a> {
    /// Reads the data of an ESTABLISH_INTRO. Nothing of it is verified.
    ///
    /// # Errors
    ///
    /// The message is malformed: the caller must close the circuit.
    pub fn decode(data: &'a [u8]) -> Result<Self, HsMsgError> {
        const MESSAGE: &str = "ESTABLISH_INTRO";
        if let Some(0 | 1) = data.first() {
            return Err(HsMsgError::Obsolete);
        }
        let mut fields = Fields::new(MESSAGE, data);
        let auth_key = auth_key(&mut fields)?;
        let mut defense = IntroDefense::ByConsensus;
        for_each_extension(&mut fields, |kind, field| {
            if kind == DOS {
                defense = IntroDefense::decode(field).unwrap_or(defense);
            }
        })?;
        let authenticated = fields.so_far(data);
        let handshake_auth = fields.array("HANDSHAKE_AUTH")?;
        let signed = fields.so_far(data);
        let length = fields.u16("SIG_LEN")?;
        if length != 64 {
            return Err(HsMsgError::Length(length));
        }
        Ok(EstablishIntro {
            auth_key,
            defense,
            authenticated,
            handshake_auth,
            signed,
            signature: fields.array("SIG")?,
        })
    }
}

/// The service that an INTRODUCE1 is for. The rest of it is not for this relay.
///
/// # Errors
///
/// The message is malformed: the client gets an INTRODUCE_ACK with that status.
pub fn introduce1_auth_key(data: &[u8]) -> Result<IntroAuthKey, HsMsgError> {
    let mut fields = Fields::new("INTRODUCE1", data);
    let legacy: [u8; LEGACY_KEY_ID_LEN] = fields.array("LEGACY_KEY_ID")?;
    if legacy != [0; LEGACY_KEY_ID_LEN] {
        return Err(HsMsgError::LegacyKey);
    }
    let auth_key = auth_key(&mut fields)?;
    for_each_extension(&mut fields, |_, _| {})?;
    match fields.so_far(data).len() < data.len() {
        true => Ok(auth_key),
        false => Err(HsMsgError::NothingEncrypted),
    }
}

/// AUTH_KEY_TYPE, AUTH_KEY_LEN and AUTH_KEY.
fn auth_key(fields: &mut Fields<'_>) -> Result<IntroAuthKey, HsMsgError> {
    let kind = fields.u8("AUTH_KEY_TYPE")?;
    if kind != ED25519 {
        return Err(HsMsgError::KeyType(kind));
    }
    match fields.u16("AUTH_KEY_LEN")? {
        32 => Ok(IntroAuthKey(fields.array("AUTH_KEY")?)),
        length => Err(HsMsgError::Length(length)),
    }
}

/// Extensions: their number, and of each its type, its length and its field.
fn for_each_extension(
    fields: &mut Fields<'_>,
    mut take: impl FnMut(u8, &[u8]),
) -> Result<(), CutShort> {
    for _ in 0..fields.u8("N_EXTENSIONS")? {
        let kind = fields.u8("EXT_FIELD_TYPE")?;
        let length = fields.u8("EXT_FIELD_LEN")?;
        take(kind, fields.bytes("EXT_FIELD", length.into())?);
    }
    Ok(())
}

/// The data of an INTRO_ESTABLISHED: no extensions.
pub const INTRO_ESTABLISHED: [u8; 1] = [0];

/// STATUS of an INTRODUCE_ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntroduceStatus {
    /// The message was passed on to the service.
    Success,
    /// No service has this key here, or it takes no more for now.
    UnknownId,
    /// The INTRODUCE1 cannot be read, or not be passed on.
    BadFormat,
}

impl IntroduceStatus {
    /// The data of the INTRODUCE_ACK, without extensions.
    pub const fn encode(self) -> [u8; 3] {
        let status = match self {
            IntroduceStatus::Success => 0,
            IntroduceStatus::UnknownId => 1,
            IntroduceStatus::BadFormat => 2,
        };
        [0, status, 0]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Extensions, as they lie in messages.
    fn extensions(all: &[(u8, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![u8::try_from(all.len()).unwrap()];
        for (kind, field) in all {
            bytes.extend([*kind, u8::try_from(field.len()).unwrap()]);
            bytes.extend(*field);
        }
        bytes
    }

    /// An ESTABLISH_INTRO with these extensions.
    fn establish(all: &[(u8, &[u8])]) -> Vec<u8> {
        let key = [&[2, 0, 32][..], &[7; 32]].concat();
        let end = [&[8; 32][..], &[0, 64], &[9; 64]].concat();
        [key, extensions(all), end].concat()
    }

    /// A denial-of-service extension with these parameters.
    fn params(all: &[(u8, u64)]) -> Vec<u8> {
        let mut bytes = vec![u8::try_from(all.len()).unwrap()];
        for (kind, value) in all {
            bytes.push(*kind);
            bytes.extend(value.to_be_bytes());
        }
        bytes
    }

    fn defense(all: &[(u8, &[u8])]) -> IntroDefense {
        EstablishIntro::decode(&establish(all)).unwrap().defense
    }

    #[test]
    fn the_parts_of_an_establish_intro_are_where_the_specification_has_them() {
        let data = establish(&[]);
        let read = EstablishIntro::decode(&data).unwrap();
        assert_eq!(read.auth_key, IntroAuthKey([7; 32]));
        assert_eq!(read.defense, IntroDefense::ByConsensus);
        assert_eq!(read.authenticated, &data[..36]);
        assert_eq!(read.signed, &data[..68]);
        assert_eq!((read.handshake_auth, read.signature), ([8; 32], [9; 64]));
        // Data after the message is ignored.
        let longer = [&data[..], b"more"].concat();
        assert_eq!(EstablishIntro::decode(&longer), Ok(read));
        for length in 0..data.len() {
            assert!(EstablishIntro::decode(&data[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn keys_of_other_kinds_and_lengths_are_refused() {
        let with = |at: usize, byte: u8| {
            let mut data = establish(&[]);
            data[at] = byte;
            EstablishIntro::decode(&data).map(|read| read.defense)
        };
        assert_eq!(with(0, 0), Err(HsMsgError::Obsolete));
        assert_eq!(with(0, 1), Err(HsMsgError::Obsolete));
        assert_eq!(with(0, 3), Err(HsMsgError::KeyType(3)));
        assert_eq!(with(2, 31), Err(HsMsgError::Length(31)));
        assert_eq!(with(2, 33), Err(HsMsgError::Length(33)));
        assert_eq!(with(69, 63), Err(HsMsgError::Length(63)));
        assert!(matches!(
            with(35, 1),
            Err(HsMsgError::CutShort(_) | HsMsgError::Length(_))
        ));
    }

    #[test]
    fn a_defense_is_what_c_tor_makes_of_the_extension() {
        let max = u64::from(i32::MAX.unsigned_abs());
        let limit = |rate, burst| IntroDefense::Limit { rate, burst };
        for (rate, burst, expected) in [
            (25, 200, limit(25, 200)),
            (1, 1, limit(1, 1)),
            (
                max,
                max,
                limit(i32::MAX.unsigned_abs(), i32::MAX.unsigned_abs()),
            ),
            (0, 200, IntroDefense::Off),
            (25, 0, IntroDefense::Off),
            (26, 25, IntroDefense::Off),
            (max + 1, max + 1, IntroDefense::Off),
            (1, u64::MAX, IntroDefense::Off),
        ] {
            let field = params(&[(RATE, rate), (BURST, burst)]);
            assert_eq!(defense(&[(DOS, &field)]), expected, "{rate} {burst}");
            let other_order = params(&[(BURST, burst), (RATE, rate)]);
            assert_eq!(defense(&[(9, b"?"), (DOS, &other_order)]), expected);
        }
        // One that is missing is 0.
        assert_eq!(defense(&[(DOS, &params(&[(RATE, 5)]))]), IntroDefense::Off);
        assert_eq!(defense(&[(DOS, &params(&[]))]), IntroDefense::Off);
        // The last of several counts.
        let twice = params(&[(RATE, 1), (BURST, 9), (RATE, 2)]);
        assert_eq!(defense(&[(DOS, &twice)]), limit(2, 9));
        assert_eq!(defense(&[(DOS, &params(&[])), (DOS, &twice)]), limit(2, 9));
    }

    #[test]
    fn an_extension_that_cannot_be_read_is_as_if_it_were_not_there() {
        let good = params(&[(RATE, 1), (BURST, 2)]);
        let unknown = params(&[(RATE, 1), (3, 1), (BURST, 2)]);
        for bad in [&[][..], &good[..good.len() - 1], &unknown] {
            assert_eq!(defense(&[(DOS, bad)]), IntroDefense::ByConsensus);
            let kept = IntroDefense::Limit { rate: 1, burst: 2 };
            assert_eq!(defense(&[(DOS, &good), (DOS, bad)]), kept);
        }
    }

    /// An INTRODUCE1 with this encrypted part.
    fn introduce(encrypted: &[u8]) -> Vec<u8> {
        let key = [&[0; 20][..], &[2, 0, 32], &[7; 32]].concat();
        [&key[..], &extensions(&[(4, b"ext")]), encrypted].concat()
    }

    #[test]
    fn an_introduce1_names_the_service_by_its_key() {
        let data = introduce(b"e");
        assert_eq!(introduce1_auth_key(&data), Ok(IntroAuthKey([7; 32])));
        assert_eq!(
            introduce1_auth_key(&introduce(b"")),
            Err(HsMsgError::NothingEncrypted)
        );
        for length in 0..data.len() {
            assert!(introduce1_auth_key(&data[..length]).is_err(), "{length}");
        }
        let with = |at: usize, byte: u8| {
            let mut data = introduce(b"e");
            data[at] = byte;
            introduce1_auth_key(&data)
        };
        assert_eq!(with(19, 1), Err(HsMsgError::LegacyKey));
        assert_eq!(with(20, 1), Err(HsMsgError::KeyType(1)));
        assert_eq!(with(22, 33), Err(HsMsgError::Length(33)));
    }

    #[test]
    fn answers_are_those_of_c_tor() {
        assert_eq!(INTRO_ESTABLISHED, [0]);
        assert_eq!(IntroduceStatus::Success.encode(), [0, 0, 0]);
        assert_eq!(IntroduceStatus::UnknownId.encode(), [0, 1, 0]);
        assert_eq!(IntroduceStatus::BadFormat.encode(), [0, 2, 0]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_an_error(data in proptest::collection::vec(any::<u8>(), 0..500)) {
            if let Ok(read) = EstablishIntro::decode(&data) {
                prop_assert!(data.starts_with(read.signed) && read.signed.starts_with(read.authenticated));
                prop_assert_eq!(read.signed.len(), read.authenticated.len() + 32);
            }
            let _ = introduce1_auth_key(&data);
        }
    }
}
