//! One hop of a circuit: the client's side of its handshake, and the messages that carry it
//! (tor-spec 5.1).

use std::net::SocketAddr;

use rand::CryptoRng;
use tor_cell::relaycell::extend::{CcRequest, CircResponseExt};
use weft_cell::circ_msg::{CircMsgError, CreateReply, CreateRequest, Extend2, handshake_type};
use weft_cell::identity::{Ed25519Identity, RsaIdentity};
use weft_core::flow::accepts_sendme_inc;
use weft_core::origin::{HopFlow, LinkTarget};
use weft_crypto::HopKeys;
use weft_crypto::handshake::{HandshakeError, fast, ntor, ntor_v3};

/// A relay as a hop of a circuit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Digest of its RSA identity; zero: any relay at its address.
    pub rsa: RsaIdentity,
    /// Its ed25519 identity; a relay that is known by torrc alone may be without.
    pub ed25519: Option<Ed25519Identity>,
    /// Its ntor onion key; without one it can only be asked by CREATE_FAST.
    pub ntor: Option<[u8; 32]>,
    /// Its ORPorts, the one to prefer first.
    pub addrs: Vec<SocketAddr>,
    /// It speaks ntor-v3 (Relay=4).
    pub ntor_v3: bool,
    /// It does congestion control (FlowCtrl=2).
    pub congestion_control: bool,
    /// It speaks Counter Galois Onion (Relay=6).
    pub cgo: bool,
    /// It states how scarce its bandwidth is (WeftAbra=1).
    pub abra: bool,
    /// Its weight in the consensus; 0: unknown.
    pub bandwidth: u64,
    /// Its name, for people; may be empty.
    pub nickname: String,
}

impl Hop {
    /// A relay known only by this address.
    #[must_use]
    pub fn unknown(addr: SocketAddr) -> Self {
        Hop {
            rsa: RsaIdentity([0; 20]),
            ed25519: None,
            ntor: None,
            addrs: vec![addr],
            ntor_v3: false,
            congestion_control: false,
            cgo: false,
            abra: false,
            bandwidth: 0,
            nickname: String::new(),
        }
    }

    /// The identities that a link to it must have.
    pub fn link(&self) -> LinkTarget {
        LinkTarget {
            addrs: self.addrs.clone(),
            rsa: self.rsa,
            ed25519: self.ed25519,
        }
    }
}

/// Why a hop did not become part of a circuit.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BuildError {
    /// The handshake failed.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// A message could not be made.
    #[error(transparent)]
    Message(#[from] CircMsgError),
    /// A hop behind the first needs an onion key.
    #[error("the onion key of {0} is not known")]
    NoOnionKey(String),
    /// The relay granted Counter Galois Onion without the extensions that it requires.
    #[error("the relay granted Counter Galois Onion without congestion control")]
    NoCongestionControl,
    /// The relay answered with the wrong kind of cell.
    #[error("the relay answered another handshake than it was asked")]
    WrongReply,
    /// The relay granted an extension that was not requested, or an increment too far from the consensus'.
    #[error(
        "the relay answered congestion control with an increment of {got} (ours is {})",
        ours.map_or("none".to_owned(), |ours| ours.to_string())
    )]
    Increment {
        /// The increment of the relay.
        got: u8,
        /// The consensus' cc_sendme_inc, if congestion control was requested.
        ours: Option<u8>,
    },
}

/// The client's secrets between a CREATE and its answer.
pub(crate) struct HopHandshake {
    kind: Kind,
    /// The cc_sendme_inc of the consensus, if congestion control was requested.
    asked: Option<u8>,
}

enum Kind {
    Fast(fast::ClientState),
    Ntor(ntor::ClientState),
    NtorV3(Box<ntor_v3::ClientState>),
}

impl std::fmt::Debug for HopHandshake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.kind {
            Kind::Fast(_) => "CREATE_FAST",
            Kind::Ntor(_) => "ntor",
            Kind::NtorV3(_) => "ntor-v3",
        };
        write!(f, "HopHandshake({kind})")
    }
}

impl HopHandshake {
    /// Begins a handshake with a hop. Returns its secrets and the request to send.
    ///
    /// `congestion` is the consensus' cc_sendme_inc where congestion control is requested. As in C
    /// tor, ntor-v3 is used only then: without extensions ntor does as well, and both are equally
    /// safe.
    ///
    /// # Errors
    ///
    /// The request could not be made.
    pub(crate) fn start<R: CryptoRng + ?Sized>(
        hop: &Hop,
        congestion: Option<u8>,
        rng: &mut R,
    ) -> Result<(Self, CreateRequest), BuildError> {
        let Some(onion_key) = &hop.ntor else {
            let state = fast::ClientState::start(rng);
            let request = CreateRequest::Fast { x: *state.x() };
            let kind = Kind::Fast(state);
            return Ok((HopHandshake { kind, asked: None }, request));
        };
        let v3 = hop.ntor_v3 && hop.congestion_control;
        if let (Some(_), Some(ed25519), true) = (congestion, &hop.ed25519, v3) {
            let mut wishes = vec![CcRequest::default().into()];
            if hop.cgo {
                wishes.push(ntor_v3::cgo_alone().into());
            }
            let (state, data) = ntor_v3::ClientState::start(ed25519, onion_key, &wishes, rng)?;
            let request = CreateRequest::Create2 {
                handshake_type: handshake_type::NTOR_V3,
                data,
            };
            let kind = Kind::NtorV3(Box::new(state));
            let asked = congestion;
            return Ok((HopHandshake { kind, asked }, request));
        }
        let state = ntor::ClientState::start(&hop.rsa, onion_key, rng);
        let request = CreateRequest::Create2 {
            handshake_type: handshake_type::NTOR,
            data: state.onionskin().to_vec(),
        };
        let kind = Kind::Ntor(state);
        Ok((HopHandshake { kind, asked: None }, request))
    }

    /// Ends the handshake with the hop's answer.
    ///
    /// # Errors
    ///
    /// The answer is not the hop's, or grants invalid extensions.
    pub(crate) fn finish(self, reply: &CreateReply) -> Result<(Box<HopKeys>, HopFlow), BuildError> {
        let keys = match (self.kind, reply) {
            (Kind::Fast(state), CreateReply::Fast { y, kh }) => state.finish(y, kh)?.into(),
            (Kind::Ntor(state), CreateReply::Created2 { data }) => state.finish(data)?.into(),
            (Kind::NtorV3(state), CreateReply::Created2 { data }) => {
                let (responses, keys) = state.finish(data)?;
                let flow = granted(&responses, self.asked)?;
                if flow == HopFlow::Fixed && keys.tor1().is_none() {
                    return Err(BuildError::NoCongestionControl);
                }
                return Ok((Box::new(keys), flow));
            }
            _ => return Err(BuildError::WrongReply),
        };
        Ok((Box::new(keys), HopFlow::Fixed))
    }
}

/// The flow control that follows from a hop's ntor-v3 responses.
fn granted(responses: &[CircResponseExt], ours: Option<u8>) -> Result<HopFlow, BuildError> {
    let mut flow = HopFlow::Fixed;
    for response in responses {
        let CircResponseExt::CcResponse(response) = response else {
            continue;
        };
        let got = response.sendme_inc();
        // Proposal 324 10.3: within one of the consensus' value, so that it reveals nothing of the
        // exit that could mark the client.
        if !ours.is_some_and(|ours| accepts_sendme_inc(ours, got)) {
            return Err(BuildError::Increment { got, ours });
        }
        flow = HopFlow::Vegas { sendme_inc: got };
    }
    Ok(flow)
}

/// The body of the EXTEND2 by which a circuit's last hop extends it to this one.
///
/// # Errors
///
/// The hop has no address or no onion key.
pub(crate) fn extend2(hop: &Hop, request: CreateRequest) -> Result<Vec<u8>, BuildError> {
    let CreateRequest::Create2 {
        handshake_type,
        data,
    } = request
    else {
        return Err(BuildError::NoOnionKey(hop.nickname.clone()));
    };
    let mut extend = Extend2 {
        rsa: Some(hop.rsa),
        ed25519: hop.ed25519,
        handshake_type,
        handshake: data,
        ..Extend2::default()
    };
    for addr in &hop.addrs {
        match addr {
            SocketAddr::V4(v4) => extend.ipv4 = extend.ipv4.or(Some(*v4)),
            SocketAddr::V6(v6) => extend.ipv6 = extend.ipv6.or(Some(*v6)),
        }
    }
    Ok(extend.encode()?)
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng as _;
    use tor_cell::relaycell::extend::CcResponse;
    use weft_crypto::handshake::{OnionKeys, ReplyParams, negotiate};

    use super::*;

    fn relay() -> (OnionKeys, Hop) {
        let keys = OnionKeys::new([1; 20].into(), [2; 32].into(), &[3; 32], None);
        let hop = Hop {
            rsa: *keys.rsa_identity(),
            ed25519: Some(*keys.ed_identity()),
            ntor: Some(keys.current_public()),
            addrs: vec!["192.0.2.1:9001".parse().unwrap()],
            ntor_v3: true,
            congestion_control: true,
            cgo: false,
            abra: false,
            bandwidth: 0,
            nickname: "relay".to_owned(),
        };
        (keys, hop)
    }

    /// A handshake with the relay, which grants `grants`.
    fn shake(
        hop: &Hop,
        keys: &OnionKeys,
        wanted: Option<u8>,
        grants: Option<u8>,
    ) -> Result<HopFlow, BuildError> {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let (state, request) = HopHandshake::start(hop, wanted, &mut rng).unwrap();
        let params = ReplyParams { sendme_inc: grants };
        let answer = negotiate(&request, keys, &params, &mut rng).unwrap();
        let (ours, flow) = state.finish(&answer.reply)?;
        assert!(*ours == answer.keys);
        Ok(flow)
    }

    #[test]
    fn each_kind_of_hop_is_asked_in_its_way() {
        let (keys, hop) = relay();
        assert_eq!(shake(&hop, &keys, None, None).unwrap(), HopFlow::Fixed);
        let vegas = HopFlow::Vegas { sendme_inc: 31 };
        assert_eq!(shake(&hop, &keys, Some(31), Some(31)).unwrap(), vegas);
        assert_eq!(shake(&hop, &keys, Some(31), None).unwrap(), HopFlow::Fixed);
        let mut new = hop.clone();
        new.cgo = true;
        assert_eq!(shake(&new, &keys, Some(31), Some(31)).unwrap(), vegas);
        assert_eq!(shake(&new, &keys, None, None).unwrap(), HopFlow::Fixed);
        let mut old = hop.clone();
        old.congestion_control = false;
        assert_eq!(
            shake(&old, &keys, Some(31), Some(31)).unwrap(),
            HopFlow::Fixed
        );
        let mut unknown = hop;
        unknown.ntor = None;
        assert_eq!(
            shake(&unknown, &keys, Some(31), Some(31)).unwrap(),
            HopFlow::Fixed
        );
    }

    #[test]
    fn an_increment_far_from_the_consensus_is_refused() {
        let (keys, hop) = relay();
        for (granted, taken) in [(29, false), (30, true), (32, true), (33, false)] {
            let result = shake(&hop, &keys, Some(31), Some(granted));
            assert_eq!(result.is_ok(), taken, "{granted}");
        }
    }

    /// TROVE-2026-032.
    #[test]
    fn congestion_control_that_was_not_asked_for_is_refused() {
        let granted_anyway = [CircResponseExt::from(CcResponse::new(31))];
        let refused = granted(&granted_anyway, None);
        assert!(matches!(
            refused,
            Err(BuildError::Increment {
                got: 31,
                ours: None
            })
        ));
        // Nor is it there to be granted: without the wish the handshake is another one, which has no extensions.
        let (keys, hop) = relay();
        assert_eq!(shake(&hop, &keys, None, Some(31)).unwrap(), HopFlow::Fixed);
    }

    #[test]
    fn the_answer_must_fit_the_question() {
        let (_, mut hop) = relay();
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let (state, _) = HopHandshake::start(&hop, None, &mut rng).unwrap();
        let fast = CreateReply::Fast {
            y: [0; 20],
            kh: [0; 20],
        };
        assert!(matches!(state.finish(&fast), Err(BuildError::WrongReply)));
        hop.ntor = None;
        let (state, request) = HopHandshake::start(&hop, None, &mut rng).unwrap();
        assert!(matches!(state.finish(&fast), Err(BuildError::Handshake(_))));
        assert!(matches!(
            extend2(&hop, request),
            Err(BuildError::NoOnionKey(_))
        ));
    }

    #[test]
    fn extend2_names_both_identities_and_every_family() {
        let (_, mut hop) = relay();
        hop.addrs.push("[2001:db8::1]:9002".parse().unwrap());
        hop.addrs.push("192.0.2.9:9".parse().unwrap());
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let (_, request) = HopHandshake::start(&hop, None, &mut rng).unwrap();
        let read = Extend2::decode(&extend2(&hop, request).unwrap()).unwrap();
        assert_eq!(read.ipv4, Some("192.0.2.1:9001".parse().unwrap()));
        assert_eq!(read.ipv6, Some("[2001:db8::1]:9002".parse().unwrap()));
        assert_eq!(read.rsa, Some(hop.rsa));
        assert_eq!(read.ed25519, hop.ed25519);
        assert_eq!(read.handshake_type, handshake_type::NTOR);
    }
}
