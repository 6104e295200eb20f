//! Messages of the extension `WeftAbra=1` (docs/extensions/abra.md): a client asks a relay of its circuit
//! how scarce its bandwidth is, and the relay answers with signed statements (Schrock 2017, 3.1; Geddes et
//! al. 2016).
//!
//! Nothing is verified here: a [`Statement`] is what its bytes claim. `weft_core::extensions::abra` checks the
//! signature.

use crate::fields::{CutShort, Fields};

/// The body of ABRA_ASK: the version of the statements that are asked for.
pub const ASK: [u8; 1] = [VERSION];

/// The version of statements.
const VERSION: u8 = 1;

/// The largest weight that a statement may claim, in 1/(Mbit/s). A circuit that moves one cell in a bin of
/// 100 ms runs at 0.041 Mbit/s and adds 24.3; forty thousand such circuits reach the bound. Sums of
/// weights stay far below what an `f64` holds exactly, and no relay can push the known relays' mean
/// without a bound.
pub const MAX_WEIGHT: f64 = 1e6;

/// Longest certificate that a statement may carry, in bytes. One of type 4 with its signer has 140.
pub const MAX_CERT: usize = 256;

/// Precedes what is signed, so that the signature is good for nothing else.
const CONTEXT: &[u8] = b"weft-abra-statement-v1";

/// Length of an ed25519 signature.
const SIGNATURE_LEN: usize = 64;

/// Why a relay's bandwidth is scarce, or that it is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AbraReason {
    /// It has bandwidth left. The weight is 0.
    BelowCapacity,
    /// Its own limits (`RelayBandwidthRate` and the like) hold it back.
    OwnLimits,
    /// One of its threads is busy all the time.
    BusyThread,
    /// Most of its traffic leaves by links that have no room.
    FullLink,
}

impl AbraReason {
    /// All of them, in the order of their numbers.
    pub const ALL: [AbraReason; 4] = [
        AbraReason::BelowCapacity,
        AbraReason::OwnLimits,
        AbraReason::BusyThread,
        AbraReason::FullLink,
    ];

    /// Its number on the wire.
    pub const fn wire(self) -> u8 {
        match self {
            AbraReason::BelowCapacity => 0,
            AbraReason::OwnLimits => 1,
            AbraReason::BusyThread => 2,
            AbraReason::FullLink => 3,
        }
    }

    /// The reason with this number.
    fn of(wire: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.wire() == wire)
    }

    /// A word for logs, metrics and the control port.
    pub const fn word(self) -> &'static str {
        match self {
            AbraReason::BelowCapacity => "below_capacity",
            AbraReason::OwnLimits => "own_limits",
            AbraReason::BusyThread => "busy_thread",
            AbraReason::FullLink => "full_link",
        }
    }
}

/// Bytes that are not a message of this extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AbraMsgError {
    /// It ended too early.
    #[error(transparent)]
    CutShort(#[from] CutShort),
    /// It is of another version.
    #[error("a statement of version {0}")]
    Version(u8),
    /// Its weight is NaN, infinite, negative or above [`MAX_WEIGHT`].
    #[error("a statement whose weight is no number from 0 to 1,000,000")]
    Weight,
    /// Its reason has no meaning, or contradicts its weight.
    #[error("a statement with reason {0}, which is unknown or contradicts its weight")]
    Reason(u8),
    /// Its certificate is too long.
    #[error("a statement with a certificate of {0} bytes")]
    Certificate(usize),
    /// Something follows it. Statements are the same for all clients; room for more would be room for a
    /// tag.
    #[error("a statement that {0} bytes follow")]
    Trailing(usize),
}

/// Claim of a relay about itself, before it is signed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    /// When, by the relay's clock: seconds since 1970.
    pub time: u64,
    /// The sum of 1/h over the circuits of the head, in 1/(Mbit/s): finite, from 0 to [`MAX_WEIGHT`].
    pub weight: f64,
    /// Why it is not 0.
    pub reason: AbraReason,
}

impl Claim {
    /// A claim that can be encoded: a weight above the bound becomes the bound; one that is not a
    /// positive number becomes 0, and 0 has no reason.
    #[must_use]
    pub fn new(time: u64, weight: f64, reason: AbraReason) -> Self {
        if reason == AbraReason::BelowCapacity || weight.is_nan() || weight <= 0.0 {
            return Claim {
                time,
                weight: 0.0,
                reason: AbraReason::BelowCapacity,
            };
        }
        Claim {
            time,
            weight: weight.min(MAX_WEIGHT),
            reason,
        }
    }
}

/// ABRA_WEIGHT's body, decoded. Its signature is not checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    /// The relay's claim.
    pub claim: Claim,
    /// The certificate of the relay's signing key by its identity key (cert-spec, type 4).
    pub certificate: Vec<u8>,
    /// The signing key's signature of [`signed_part`].
    pub signature: [u8; SIGNATURE_LEN],
    /// The bytes before the signature, as they came.
    unsigned: Vec<u8>,
}

impl Statement {
    /// Reads ABRA_WEIGHT's body.
    ///
    /// # Errors
    ///
    /// The message is malformed. Nothing is allocated before the lengths are checked.
    pub fn decode(body: &[u8]) -> Result<Self, AbraMsgError> {
        let mut fields = Fields::new("ABRA_WEIGHT", body);
        let version = fields.u8("version")?;
        if version != VERSION {
            return Err(AbraMsgError::Version(version));
        }
        let time = u64::from_be_bytes(fields.array("time")?);
        let weight = f64::from_be_bytes(fields.array("weight")?);
        let reason_byte = fields.u8("reason")?;
        if !(0.0..=MAX_WEIGHT).contains(&weight) || weight.is_sign_negative() {
            return Err(AbraMsgError::Weight);
        }
        let reason = AbraReason::of(reason_byte)
            .filter(|reason| (*reason == AbraReason::BelowCapacity) == (weight == 0.0))
            .ok_or(AbraMsgError::Reason(reason_byte))?;
        let length = usize::from(fields.u16("length of the certificate")?);
        if length > MAX_CERT {
            return Err(AbraMsgError::Certificate(length));
        }
        let certificate = fields.bytes("certificate", length)?.to_vec();
        let signature = fields.array("signature")?;
        let unsigned_len = UNSIGNED_LEN + length;
        let unsigned = body.get(..unsigned_len).unwrap_or_default().to_vec();
        match body.len() - unsigned_len - SIGNATURE_LEN {
            0 => Ok(Statement {
                claim: Claim {
                    time,
                    weight,
                    reason,
                },
                certificate,
                signature,
                unsigned,
            }),
            more => Err(AbraMsgError::Trailing(more)),
        }
    }

    /// Bytes that the signature covers, if the statement is of the relay with this identity.
    pub fn signed_part(&self, identity: &[u8; 32]) -> Vec<u8> {
        signed_part(identity, &self.unsigned)
    }
}

/// Bytes of a statement without its certificate and signature.
const UNSIGNED_LEN: usize = 1 + 8 + 8 + 1 + 2;

/// A statement without its signature, to be followed by it. A certificate that is too long is an error of
/// the relay's own.
///
/// # Errors
///
/// [`AbraMsgError::Certificate`].
pub fn unsigned(claim: &Claim, certificate: &[u8]) -> Result<Vec<u8>, AbraMsgError> {
    let too_long = AbraMsgError::Certificate(certificate.len());
    if certificate.len() > MAX_CERT {
        return Err(too_long);
    }
    let length = u16::try_from(certificate.len()).map_err(|_| too_long)?;
    let mut bytes = Vec::with_capacity(UNSIGNED_LEN + certificate.len() + SIGNATURE_LEN);
    bytes.push(VERSION);
    bytes.extend_from_slice(&claim.time.to_be_bytes());
    bytes.extend_from_slice(&claim.weight.to_be_bytes());
    bytes.push(claim.reason.wire());
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(certificate);
    Ok(bytes)
}

/// Bytes that the signature covers: the context, the relay's ed25519 identity, and the statement
/// without its signature.
pub fn signed_part(identity: &[u8; 32], unsigned: &[u8]) -> Vec<u8> {
    [CONTEXT, identity, unsigned].concat()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A statement's bytes with this claim, a certificate of this length and a signature of ones.
    fn bytes(claim: &Claim, certificate: usize) -> Vec<u8> {
        let mut bytes = unsigned(claim, &vec![7; certificate]).unwrap();
        bytes.extend_from_slice(&[1; SIGNATURE_LEN]);
        bytes
    }

    fn some_claim() -> Claim {
        Claim::new(1_795_000_000, 0.1, AbraReason::OwnLimits)
    }

    /// The offset of the weight.
    const WEIGHT_AT: usize = 9;

    fn with_weight(weight: f64) -> Result<Statement, AbraMsgError> {
        let mut bytes = bytes(&some_claim(), 140);
        bytes[WEIGHT_AT..WEIGHT_AT + 8].copy_from_slice(&weight.to_be_bytes());
        Statement::decode(&bytes)
    }

    #[test]
    fn a_statement_fits_a_relay_message_of_either_layout() {
        assert!(bytes(&some_claim(), MAX_CERT).len() <= 480);
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        for reason in AbraReason::ALL {
            let claim = Claim::new(9, 2.5, reason);
            let statement = Statement::decode(&bytes(&claim, 140)).unwrap();
            assert_eq!(statement.claim, claim);
            assert_eq!(statement.certificate, vec![7; 140]);
            assert_eq!(statement.signature, [1; 64]);
            let unsigned = unsigned(&claim, &[7; 140]).unwrap();
            assert_eq!(
                statement.signed_part(&[3; 32]),
                signed_part(&[3; 32], &unsigned)
            );
        }
    }

    #[test]
    fn a_signature_covers_the_identity_and_every_byte_of_the_statement() {
        let part = |identity: [u8; 32], changed: Option<usize>| {
            let mut bytes = bytes(&some_claim(), MAX_CERT);
            if let Some(at) = changed {
                bytes[at] ^= 1;
            }
            let statement = Statement::decode(&bytes);
            // A change that makes it no statement needs no signature.
            statement
                .ok()
                .map(|statement| statement.signed_part(&identity))
        };
        let unsigned_len = UNSIGNED_LEN + MAX_CERT;
        let good = part([3; 32], None).unwrap();
        assert!(good.starts_with(CONTEXT));
        assert_eq!(good.len(), CONTEXT.len() + 32 + unsigned_len);
        for at in 0..unsigned_len {
            assert_ne!(part([3; 32], Some(at)).as_ref(), Some(&good), "byte {at}");
        }
        for at in 0..32 {
            let mut identity = [3; 32];
            identity[at] ^= 1;
            assert_ne!(part(identity, None).unwrap(), good, "identity {at}");
        }
        for at in unsigned_len..unsigned_len + SIGNATURE_LEN {
            assert_eq!(part([3; 32], Some(at)).as_ref(), Some(&good));
        }
    }

    #[test]
    fn weights_that_are_no_numbers_of_the_range_are_refused() {
        for weight in [
            f64::NAN,
            f64::INFINITY,
            -1.0,
            -0.0,
            f64::NEG_INFINITY,
            1e6 + 1.0,
        ] {
            assert_eq!(with_weight(weight), Err(AbraMsgError::Weight), "{weight}");
        }
        assert_eq!(with_weight(MAX_WEIGHT).unwrap().claim.weight, MAX_WEIGHT);
    }

    #[test]
    fn a_reason_that_contradicts_the_weight_is_refused() {
        assert_eq!(with_weight(0.0), Err(AbraMsgError::Reason(1)));
        let mut bytes = bytes(&some_claim(), 0);
        for reason in [0, 4, 255] {
            bytes[WEIGHT_AT + 8] = reason;
            assert_eq!(Statement::decode(&bytes), Err(AbraMsgError::Reason(reason)));
        }
    }

    #[test]
    fn claims_of_anything_can_be_encoded() {
        for weight in [f64::NAN, -3.0, 0.0, f64::INFINITY, 1e300, 5e-324, 2.0] {
            for reason in AbraReason::ALL {
                let claim = Claim::new(1, weight, reason);
                assert_eq!(Statement::decode(&bytes(&claim, 3)).unwrap().claim, claim);
            }
        }
    }

    #[test]
    fn other_versions_long_certificates_and_what_follows_are_refused() {
        let good = bytes(&some_claim(), 140);
        let mut other = good.clone();
        other[0] = 2;
        assert_eq!(Statement::decode(&other), Err(AbraMsgError::Version(2)));
        let mut longer = good.clone();
        longer.push(0);
        assert_eq!(Statement::decode(&longer), Err(AbraMsgError::Trailing(1)));
        for cut in 0..good.len() {
            assert!(matches!(
                Statement::decode(&good[..cut]),
                Err(AbraMsgError::CutShort(_))
            ));
        }
        assert_eq!(
            unsigned(&some_claim(), &[0; MAX_CERT + 1]),
            Err(AbraMsgError::Certificate(MAX_CERT + 1))
        );
        let mut long = unsigned(&some_claim(), &[]).unwrap();
        let at = long.len() - 2;
        long[at..].copy_from_slice(&257u16.to_be_bytes());
        long.extend([0; 400]);
        assert_eq!(
            Statement::decode(&long),
            Err(AbraMsgError::Certificate(257))
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused_and_encode_as_they_were(
            body in proptest::collection::vec(any::<u8>(), 0..500),
            version in any::<bool>(),
        ) {
            let mut body = body;
            if version && let Some(first) = body.first_mut() {
                *first = VERSION;
            }
            if let Ok(statement) = Statement::decode(&body) {
                let mut again = unsigned(&statement.claim, &statement.certificate).unwrap();
                again.extend_from_slice(&statement.signature);
                prop_assert_eq!(again, body);
            }
        }
    }
}
