//! The handshakes that give a circuit its keys: the relay's and the client's
//! sides of CREATE_FAST ([`fast`]), ntor ([`ntor`]) and ntor-v3 ([`ntor_v3`]).
//!
//! A relay calls [`negotiate`], or [`negotiate_all`] when several clients
//! wait. TAP, which no client of today speaks, is refused.

mod curve;
mod error;
pub mod fast;
pub mod ntor;
pub mod ntor_v3;
mod onion_keys;
mod params;

use rand::CryptoRng;
use weft_cell::circ_msg::{CreateReply, CreateRequest};

pub use error::HandshakeError;
pub use onion_keys::OnionKeys;
pub use params::ReplyParams;

use crate::circuit::HopKeys;
use crate::x25519_lanes::{GROUPS, LANES, Multiplier};

/// Handshake types of CREATE2 (tor-spec 5.1).
mod handshake_type {
    pub(super) const TAP: u16 = 0x0000;
    pub(super) const NTOR: u16 = 0x0002;
    pub(super) const NTOR_V3: u16 = 0x0003;
}

/// A relay's whole answer to a request for a circuit.
pub struct Answer {
    /// The reply for the client.
    pub reply: CreateReply,
    /// The keys of the new hop.
    pub keys: HopKeys,
    /// The SENDME increment, in cells, if congestion control was asked for and
    /// granted; otherwise the circuit has fixed windows.
    pub sendme_inc: Option<u8>,
}

/// A request for a circuit, and the keys and parameters to answer it with.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The client's message.
    pub request: &'a CreateRequest,
    /// The relay's keys.
    pub keys: &'a OnionKeys,
    /// Parameters that the relay may grant.
    pub params: &'a ReplyParams,
}

/// Requests that [`negotiate_all`] answers best at once: three multiplications
/// each fill the lanes that there are. More are answered as well.
pub const BATCH: usize = LANES * GROUPS / 3;

/// Answers a request for a circuit with the relay's `keys`, granting what
/// `params` allow.
pub fn negotiate<R: CryptoRng + ?Sized>(
    request: &CreateRequest,
    keys: &OnionKeys,
    params: &ReplyParams,
    rng: &mut R,
) -> Result<Answer, HandshakeError> {
    match request {
        CreateRequest::Fast { x } => Ok(fast_answer(x, rng)),
        CreateRequest::Create2 {
            handshake_type,
            data,
        } => match *handshake_type {
            handshake_type::NTOR => Ok(ntor::server(data, keys, rng)?.into()),
            handshake_type::NTOR_V3 => Ok(ntor_v3::server(data, keys, params, rng)?.into()),
            other => Err(refused(other)),
        },
    }
}

/// Answers several requests, in their order, as [`negotiate`] answers each:
/// none has an influence on another's answer. Where the processor can, their
/// multiplications are made together, which takes a third of the time for
/// [`BATCH`] of them.
pub fn negotiate_all<R: CryptoRng + ?Sized>(
    requests: &[Request<'_>],
    rng: &mut R,
) -> Vec<Result<Answer, HandshakeError>> {
    match Multiplier::detect() {
        Some(multiplier) => negotiate_in_lanes(multiplier, requests, rng),
        None => requests
            .iter()
            .map(|one| negotiate(one.request, one.keys, one.params, rng))
            .collect(),
    }
}

/// [`negotiate_all`] with all multiplications together.
fn negotiate_in_lanes<R: CryptoRng + ?Sized>(
    multiplier: Multiplier,
    requests: &[Request<'_>],
    rng: &mut R,
) -> Vec<Result<Answer, HandshakeError>> {
    let opened: Vec<_> = requests.iter().map(Opened::new).collect();
    let clients: Vec<_> = opened
        .iter()
        .filter_map(|opened| match opened {
            Ok(Opened::Ntor(onionskin)) => Some((onionskin.b, onionskin.x)),
            Ok(Opened::NtorV3(parts)) => Some((parts.b, parts.x)),
            Ok(Opened::Fast(_)) | Err(_) => None,
        })
        .collect();
    let mut exchanges = curve::exchange_all(multiplier, &clients, rng).into_iter();
    let mut exchange = || {
        let none = HandshakeError::Internal("exchanging keys with several clients");
        exchanges.next().ok_or(none).flatten()
    };
    let answers = requests.iter().zip(opened).map(|(one, opened)| {
        Ok(match opened? {
            Opened::Fast(x) => fast_answer(x, rng),
            Opened::Ntor(onionskin) => onionskin.reply(&exchange()?)?.into(),
            Opened::NtorV3(parts) => parts.answer(&exchange()?, one.params)?.into(),
        })
    });
    answers.collect()
}

/// A request that has been read as far as it goes without public-key work.
enum Opened<'a> {
    Fast(&'a [u8; 20]),
    Ntor(ntor::Opened<'a>),
    NtorV3(ntor_v3::Parts<'a>),
}

impl<'a> Opened<'a> {
    fn new(one: &Request<'a>) -> Result<Self, HandshakeError> {
        match one.request {
            CreateRequest::Fast { x } => Ok(Self::Fast(x)),
            CreateRequest::Create2 {
                handshake_type,
                data,
            } => match *handshake_type {
                handshake_type::NTOR => Ok(Self::Ntor(ntor::Opened::new(data, one.keys)?)),
                handshake_type::NTOR_V3 => Ok(Self::NtorV3(ntor_v3::Parts::new(data, one.keys)?)),
                other => Err(refused(other)),
            },
        }
    }
}

/// The answer to a CREATE_FAST.
fn fast_answer<R: CryptoRng + ?Sized>(x: &[u8; 20], rng: &mut R) -> Answer {
    let fast::Reply { y, kh, keys } = fast::server(x, rng);
    Answer {
        reply: CreateReply::Fast { y, kh },
        keys: keys.into(),
        sendme_inc: None,
    }
}

impl From<ntor::Reply> for Answer {
    fn from(reply: ntor::Reply) -> Self {
        Self {
            reply: CreateReply::Created2 {
                data: reply.data.to_vec(),
            },
            keys: reply.keys.into(),
            sendme_inc: None,
        }
    }
}

impl From<ntor_v3::Reply> for Answer {
    fn from(reply: ntor_v3::Reply) -> Self {
        Self {
            reply: CreateReply::Created2 { data: reply.data },
            keys: reply.keys,
            sendme_inc: reply.sendme_inc,
        }
    }
}

/// Why a handshake type is not answered.
fn refused(handshake_type: u16) -> HandshakeError {
    match handshake_type {
        handshake_type::TAP => HandshakeError::Tap,
        unknown => HandshakeError::UnknownType(unknown),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::curve::Keypair;
    use super::*;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;
    use tor_cell::relaycell::extend::CcRequest;

    pub(crate) fn array<const N: usize>(digits: &str) -> [u8; N] {
        hex::decode(digits).unwrap().try_into().unwrap()
    }

    /// A relay's keys, with a previous onion key.
    pub(crate) fn onion_keys() -> OnionKeys {
        OnionKeys::new([1; 20].into(), [2; 32].into(), &[3; 32], Some(&[4; 32]))
    }

    #[test]
    fn the_current_onion_key_comes_first() {
        let keys = onion_keys();
        let publics: Vec<_> = keys.publics().collect();
        assert_eq!(
            publics,
            [
                Keypair::from_secret(&[3; 32]).public,
                Keypair::from_secret(&[4; 32]).public
            ]
        );
        assert_eq!(keys.current_public(), publics[0]);
    }

    #[test]
    fn each_kind_of_request_is_answered_in_kind() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let keys = onion_keys();
        let answered = |request: &CreateRequest, rng: &mut ChaCha8Rng| {
            let answer = negotiate(request, &keys, &ReplyParams::default(), rng).unwrap();
            (answer.reply, answer.keys)
        };
        let create2 = |handshake_type, data| CreateRequest::Create2 {
            handshake_type,
            data,
        };

        let client = fast::ClientState::start(&mut rng);
        let request = CreateRequest::Fast { x: *client.x() };
        let (reply, relay_keys) = answered(&request, &mut rng);
        let CreateReply::Fast { y, kh } = reply else {
            panic!("CREATE_FAST wants a CREATED_FAST");
        };
        assert!(HopKeys::from(client.finish(&y, &kh).unwrap()) == relay_keys);

        let client =
            ntor::ClientState::start(keys.rsa_identity(), &keys.current_public(), &mut rng);
        let request = create2(2, client.onionskin().to_vec());
        let (reply, relay_keys) = answered(&request, &mut rng);
        let CreateReply::Created2 { data } = reply else {
            panic!("CREATE2 wants a CREATED2");
        };
        assert!(HopKeys::from(client.finish(&data).unwrap()) == relay_keys);

        let (client, onionskin) =
            ntor_v3::ClientState::start(keys.ed_identity(), &keys.current_public(), &[], &mut rng)
                .unwrap();
        let request = create2(3, onionskin);
        let (reply, relay_keys) = answered(&request, &mut rng);
        let CreateReply::Created2 { data } = reply else {
            panic!("CREATE2 wants a CREATED2");
        };
        assert!(client.finish(&data).unwrap().1 == relay_keys);
    }

    #[test]
    fn negotiate_returns_that_congestion_control_was_granted() {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let keys = onion_keys();
        let (_, data) = ntor_v3::ClientState::start(
            keys.ed_identity(),
            &keys.current_public(),
            &[CcRequest::default().into()],
            &mut rng,
        )
        .unwrap();
        let request = CreateRequest::Create2 {
            handshake_type: 3,
            data,
        };
        for sendme_inc in [None, Some(31)] {
            let answer = negotiate(&request, &keys, &ReplyParams { sendme_inc }, &mut rng).unwrap();
            assert_eq!(answer.sendme_inc, sendme_inc);
        }
    }

    #[test]
    fn tap_and_unknown_types_are_refused_by_name() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let refuse = |handshake_type, rng: &mut ChaCha8Rng| {
            let request = CreateRequest::Create2 {
                handshake_type,
                data: vec![0; 84],
            };
            negotiate(&request, &onion_keys(), &ReplyParams::default(), rng)
                .map(|answer| answer.reply)
                .unwrap_err()
                .to_string()
        };
        assert!(refuse(0, &mut rng).contains("TAP"));
        for handshake_type in [1, 4, 0x1234, u16::MAX] {
            let text = refuse(handshake_type, &mut rng);
            assert!(text.contains(&format!("{handshake_type:#06x}")), "{text}");
        }
    }

    /// Onionskins of all kinds, good and bad: answers to several at once are what each client
    /// expects, and refusals have the same reason as alone.
    #[test]
    fn requests_at_once_are_answered_as_each_by_itself() {
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        let keys = onion_keys();
        let params = ReplyParams {
            sendme_inc: Some(31),
        };
        let fast = || fast::ClientState::start(&mut ChaCha8Rng::seed_from_u64(7));
        let ntor = || {
            let mut rng = ChaCha8Rng::seed_from_u64(5);
            ntor::ClientState::start(keys.rsa_identity(), &keys.current_public(), &mut rng)
        };
        let ntor_v3 = || {
            let (id, asks) = (keys.ed_identity(), [CcRequest::default().into()]);
            let mut rng = ChaCha8Rng::seed_from_u64(6);
            let previous = keys.publics().last().unwrap();
            ntor_v3::ClientState::start(id, &previous, &asks, &mut rng).unwrap()
        };
        let create2 = |handshake_type, data: &[u8]| CreateRequest::Create2 {
            handshake_type,
            data: data.to_vec(),
        };
        let changed = |data: &[u8], at: std::ops::Range<usize>| {
            let mut data = data.to_vec();
            data[at].fill(0);
            data
        };
        let (good, good_v3) = (ntor().onionskin(), ntor_v3().1);
        let kinds = [
            create2(2, &good),
            create2(3, &good_v3),
            CreateRequest::Fast { x: *fast().x() },
            create2(2, &changed(&good, 52..84)),
            create2(2, &good[..83]),
            create2(3, &changed(&good_v3, 64..96)),
            create2(3, &changed(&good_v3, 100..101)),
            create2(3, &changed(&good_v3, 0..1)),
            create2(2, &changed(&good, 20..21)),
            create2(0, &good),
        ];
        // Every number of them, beginning with every kind.
        for n in 0..=2 * BATCH + 1 {
            let of_kinds = kinds.iter().cycle().skip(n % kinds.len()).take(n);
            let requests: Vec<_> = of_kinds
                .map(|request| Request {
                    request,
                    keys: &keys,
                    params: &params,
                })
                .collect();
            let answers = negotiate_all(&requests, &mut rng);
            assert_eq!(answers.len(), n);
            let mut replies = std::collections::HashSet::new();
            for (one, answer) in requests.iter().zip(answers) {
                let answer = match (answer, negotiate(one.request, &keys, &params, &mut rng)) {
                    (Ok(answer), Ok(_)) => answer,
                    (Err(error), Err(alone)) => {
                        assert_eq!(error.to_string(), alone.to_string());
                        continue;
                    }
                    (answer, _) => panic!("{:?}: {:?}", one.request, answer.err()),
                };
                let CreateReply::Created2 { data } = answer.reply else {
                    let CreateReply::Fast { y, kh } = answer.reply else {
                        panic!("an unknown reply");
                    };
                    assert!(HopKeys::from(fast().finish(&y, &kh).unwrap()) == answer.keys);
                    continue;
                };
                let congestion_control = match one.request {
                    CreateRequest::Create2 {
                        handshake_type: 2, ..
                    } => {
                        assert!(HopKeys::from(ntor().finish(&data).unwrap()) == answer.keys);
                        None
                    }
                    _ => {
                        assert!(ntor_v3().0.finish(&data).unwrap().1 == answer.keys);
                        Some(31)
                    }
                };
                assert_eq!(answer.sendme_inc, congestion_control);
                assert!(replies.insert(data), "two clients got one key y");
            }
        }
    }

    #[test]
    fn debug_shows_no_secret() {
        assert_eq!(format!("{:?}", onion_keys()), "OnionKeys(..)");
    }
}
