//! The ntor-v3 handshake (proposal 332): handshake type 0x0003 of CREATE2.
//!
//! Like ntor, bound to the relay's ed25519 identity, and each side's message
//! carries extensions, encrypted and authenticated: requests of the client
//! (congestion control, subprotocols) and the relay's responses.

mod key_schedule;

use key_schedule::{KeyStream, Phase1, Phase2};
use rand::CryptoRng;
use subtle::ConstantTimeEq;
use tor_cell::relaycell::extend::{
    CcResponse, CircRequestExt, CircResponseExt, SubprotocolRequest,
};
use tor_protover::named::RELAY_CRYPT_CGO;
use weft_cell::identity::Ed25519Identity;

use super::curve::{Exchange, Keypair, SharedSecret};
use super::error::HandshakeError;
use super::onion_keys::OnionKeys;
use super::params::ReplyParams;
use crate::aes_ctr::aes256_ctr;
use crate::circuit::HopKeys;

/// Length of an onionskin without its message: ID, B, X, MAC.
const ONIONSKIN_OVERHEAD: usize = 32 * 4;

/// Length of a reply without its message: Y, AUTH.
const REPLY_OVERHEAD: usize = 32 * 2;

/// This handshake in error messages.
const NAME: &str = "ntor-v3";

/// VER: the use of the handshake (proposal 332, "extending circuits").
const VERIFICATION: &[u8] = b"circuit extend";

/// The relay's answer to an ntor-v3 onionskin.
pub struct Reply {
    /// The body of the CREATED2: Y, AUTH, encrypted message.
    pub data: Vec<u8>,
    /// The keys of the hop.
    pub keys: HopKeys,
    /// The SENDME increment, in cells, if congestion control was asked for and
    /// granted; otherwise the circuit has fixed windows.
    pub sendme_inc: Option<u8>,
}

/// Answers `onionskin` with the relay's `keys`, granting what `params` allow.
///
/// Extensions of unknown types are ignored; a malformed list of extensions,
/// and a request for a subprotocol that this relay cannot switch on, fail the
/// handshake. Counter Galois Onion can be had with congestion control only, as
/// its messages leave no room for SENDMEs of streams.
pub fn server<R: CryptoRng + ?Sized>(
    onionskin: &[u8],
    keys: &OnionKeys,
    params: &ReplyParams,
    rng: &mut R,
) -> Result<Reply, HandshakeError> {
    let parts = Parts::new(onionskin, keys)?;
    let xb = parts.b.agree(&parts.x)?;
    let opened = parts.open(&xb, VERIFICATION)?;
    let (granted, message) = opened.respond(params)?;
    // Only now: an onionskin that is refused is worth no fresh key.
    let y = Keypair::generate(rng);
    let (data, mut stream) = opened.reply(&y.public, &y.agree(&parts.x)?, message, VERIFICATION)?;
    Ok(Reply {
        data,
        keys: stream.keys(granted.cgo),
        sendme_inc: granted.sendme_inc,
    })
}

/// Parameters that a relay grants.
#[derive(Clone, Copy, Debug)]
struct Granted {
    /// The SENDME increment, if congestion control is.
    sendme_inc: Option<u8>,
    /// Counter Galois Onion.
    cgo: bool,
}

/// Grants a part of `requests`. Of several extensions of one type the first counts.
fn negotiate(requests: &[CircRequestExt], params: &ReplyParams) -> Result<Granted, HandshakeError> {
    let subprotocols = subprotocols(requests);
    let cgo = subprotocols.is_some_and(|asked| asked.contains(RELAY_CRYPT_CGO));
    let asked = requests
        .iter()
        .any(|request| matches!(request, CircRequestExt::CcRequest(_)));
    let sendme_inc = params.sendme_inc.filter(|_| asked);
    // A capability that cannot be switched on must be refused, never ignored
    // (proposal 346).
    let can = match (cgo, sendme_inc) {
        (true, Some(_)) => cgo_alone(),
        _ => SubprotocolRequest::default(),
    };
    if subprotocols.is_some_and(|asked| *asked != can) {
        return Err(HandshakeError::UnsupportedSubprotocol);
    }
    Ok(Granted { sendme_inc, cgo })
}

/// The subprotocols that the client requests.
fn subprotocols(requests: &[CircRequestExt]) -> Option<&SubprotocolRequest> {
    requests.iter().find_map(|request| match request {
        CircRequestExt::SubprotocolRequest(subprotocols) => Some(subprotocols),
        _ => None,
    })
}

/// A request for Counter Galois Onion (Relay=6).
pub fn cgo_alone() -> SubprotocolRequest {
    [RELAY_CRYPT_CGO].into_iter().collect()
}

/// An onionskin that is for this relay.
pub(super) struct Parts<'a> {
    id: Ed25519Identity,
    /// The onion key that the client chose.
    pub(super) b: &'a Keypair,
    /// The client's ephemeral public key.
    pub(super) x: [u8; 32],
    /// The client's message, encrypted.
    encrypted: &'a [u8],
    /// MAC over it.
    msg_mac: &'a [u8; 32],
}

impl<'a> Parts<'a> {
    pub(super) fn new(onionskin: &'a [u8], keys: &'a OnionKeys) -> Result<Self, HandshakeError> {
        let too_short = || HandshakeError::TooShort {
            handshake: NAME,
            least: ONIONSKIN_OVERHEAD,
            got: onionskin.len(),
        };
        let (id, rest) = onionskin.split_first_chunk::<32>().ok_or_else(too_short)?;
        let (key_id, rest) = rest.split_first_chunk::<32>().ok_or_else(too_short)?;
        let (x, rest) = rest.split_first_chunk::<32>().ok_or_else(too_short)?;
        let (encrypted, msg_mac) = rest.split_last_chunk::<32>().ok_or_else(too_short)?;

        let id = Ed25519Identity(*id);
        if id != *keys.ed_identity() {
            return Err(HandshakeError::WrongIdentity { handshake: NAME });
        }
        let b = keys
            .find(key_id)
            .ok_or(HandshakeError::UnknownOnionKey { handshake: NAME })?;
        Ok(Self {
            id,
            b,
            x: *x,
            encrypted,
            msg_mac,
        })
    }

    /// [`server`] with an exchange between `b` and `x`.
    pub(super) fn answer(
        &self,
        exchange: &Exchange,
        params: &ReplyParams,
    ) -> Result<Reply, HandshakeError> {
        let opened = self.open(&exchange.xb, VERIFICATION)?;
        let (granted, message) = opened.respond(params)?;
        let (data, mut stream) = opened.reply(&exchange.y, &exchange.xy, message, VERIFICATION)?;
        Ok(Reply {
            data,
            keys: stream.keys(granted.cgo),
            sendme_inc: granted.sendme_inc,
        })
    }

    /// Authenticates and decrypts the message.
    fn open<'b>(
        &'b self,
        xb: &'b SharedSecret,
        verification: &[u8],
    ) -> Result<Opened<'b>, HandshakeError> {
        let phase1 = Phase1::new(xb, &self.id, &self.x, &self.b.public, verification);
        let expected = phase1.mac(&self.id, &self.b.public, &self.x, self.encrypted);
        if !bool::from(expected.ct_eq(self.msg_mac)) {
            return Err(HandshakeError::BadAuthenticator { handshake: NAME });
        }
        let mut message = self.encrypted.to_vec();
        aes256_ctr(&phase1.enc_key, &mut message);
        Ok(Opened {
            parts: self,
            xb,
            message,
        })
    }
}

/// An onionskin whose message has been authenticated and decrypted.
struct Opened<'a> {
    parts: &'a Parts<'a>,
    /// EXP(X, b).
    xb: &'a SharedSecret,
    /// The client's message.
    message: Vec<u8>,
}

impl Opened<'_> {
    /// The granted parameters, and the relay's message that grants them.
    fn respond(&self, params: &ReplyParams) -> Result<(Granted, Vec<u8>), HandshakeError> {
        let requests =
            CircRequestExt::decode(&self.message).map_err(HandshakeError::BadExtensions)?;
        let granted = negotiate(&requests, params)?;
        let responses: Vec<_> = granted
            .sendme_inc
            .map(|inc| CircResponseExt::from(CcResponse::new(inc)))
            .into_iter()
            .collect();
        let mut message = Vec::new();
        CircResponseExt::write_many_onto(&responses, &mut message)
            .map_err(|_| HandshakeError::Internal("encoding ntor-v3's response extensions"))?;
        Ok((granted, message))
    }

    /// The reply that carries `message`, and the key stream that follows. `y`
    /// is the relay's fresh public key, `xy` what it has in common with X.
    fn reply(
        &self,
        y: &[u8; 32],
        xy: &SharedSecret,
        mut message: Vec<u8>,
        verification: &[u8],
    ) -> Result<(Vec<u8>, KeyStream), HandshakeError> {
        let phase2 = Phase2 {
            id: &self.parts.id,
            b: &self.parts.b.public,
            x: &self.parts.x,
            y,
            msg_mac: self.parts.msg_mac,
        };
        let (verify, mut stream) = phase2.derive(xy, self.xb, verification);
        aes256_ctr(&stream.enc_key(), &mut message);
        let auth = phase2.auth(&verify, &message);
        let mut data = Vec::with_capacity(REPLY_OVERHEAD + message.len());
        data.extend_from_slice(y);
        data.extend_from_slice(&auth);
        data.append(&mut message);
        Ok((data, stream))
    }
}

/// State of the client between CREATE2 and CREATED2. Its secrets are wiped when dropped.
pub struct ClientState {
    id: Ed25519Identity,
    /// The relay's onion key.
    b: [u8; 32],
    /// The client's ephemeral key.
    x: Keypair,
    /// EXP(B, x).
    xb: SharedSecret,
    /// MAC over the client's message.
    msg_mac: [u8; 32],
    /// Counter Galois Onion was asked for, which is granted by an answer.
    cgo: bool,
}

impl ClientState {
    /// Begins a handshake with the relay of ed25519 identity `ed_identity` and
    /// onion key `onion_key`. Returns the state and the body of the CREATE2,
    /// which asks for `requests`.
    pub fn start<R: CryptoRng + ?Sized>(
        ed_identity: &Ed25519Identity,
        onion_key: &[u8; 32],
        requests: &[CircRequestExt],
        rng: &mut R,
    ) -> Result<(Self, Vec<u8>), HandshakeError> {
        let mut message = Vec::new();
        CircRequestExt::write_many_onto(requests, &mut message)
            .map_err(|_| HandshakeError::Internal("encoding ntor-v3's request extensions"))?;
        let (mut state, onionskin) =
            Self::start_with_message(ed_identity, onion_key, &message, rng)?;
        state.cgo = subprotocols(requests).is_some_and(|asked| asked.contains(RELAY_CRYPT_CGO));
        Ok((state, onionskin))
    }

    /// [`Self::start`] with a message that need not be a list of extensions:
    /// what a relay has to expect of a hostile client.
    pub fn start_with_message<R: CryptoRng + ?Sized>(
        ed_identity: &Ed25519Identity,
        onion_key: &[u8; 32],
        message: &[u8],
        rng: &mut R,
    ) -> Result<(Self, Vec<u8>), HandshakeError> {
        Self::begin(
            ed_identity,
            onion_key,
            message,
            Keypair::generate(rng),
            VERIFICATION,
        )
    }

    fn begin(
        ed_identity: &Ed25519Identity,
        onion_key: &[u8; 32],
        message: &[u8],
        x: Keypair,
        verification: &[u8],
    ) -> Result<(Self, Vec<u8>), HandshakeError> {
        let xb = x.agree(onion_key)?;
        let phase1 = Phase1::new(&xb, ed_identity, &x.public, onion_key, verification);
        let mut encrypted = message.to_vec();
        aes256_ctr(&phase1.enc_key, &mut encrypted);
        let msg_mac = phase1.mac(ed_identity, onion_key, &x.public, &encrypted);

        let mut onionskin = Vec::with_capacity(ONIONSKIN_OVERHEAD + encrypted.len());
        onionskin.extend_from_slice(ed_identity.as_bytes());
        onionskin.extend_from_slice(onion_key);
        onionskin.extend_from_slice(&x.public);
        onionskin.append(&mut encrypted);
        onionskin.extend_from_slice(&msg_mac);
        let state = Self {
            id: *ed_identity,
            b: *onion_key,
            x,
            xb,
            msg_mac,
            cgo: false,
        };
        Ok((state, onionskin))
    }

    /// Ends the handshake with the body of the relay's CREATED2. Returns the
    /// relay's responses and the keys of the hop: of Counter Galois Onion, if
    /// that was asked for.
    pub fn finish(self, reply: &[u8]) -> Result<(Vec<CircResponseExt>, HopKeys), HandshakeError> {
        let cgo = self.cgo;
        let (message, mut stream) = self.complete(reply, VERIFICATION)?;
        let responses = CircResponseExt::decode(&message).map_err(HandshakeError::BadExtensions)?;
        Ok((responses, stream.keys(cgo)))
    }

    /// The relay's message, authenticated, and the key stream that follows.
    fn complete(
        self,
        reply: &[u8],
        verification: &[u8],
    ) -> Result<(Vec<u8>, KeyStream), HandshakeError> {
        let too_short = || HandshakeError::TooShort {
            handshake: NAME,
            least: REPLY_OVERHEAD,
            got: reply.len(),
        };
        let (y, rest) = reply.split_first_chunk::<32>().ok_or_else(too_short)?;
        let (auth, encrypted) = rest.split_first_chunk::<32>().ok_or_else(too_short)?;
        let phase2 = Phase2 {
            id: &self.id,
            b: &self.b,
            x: &self.x.public,
            y,
            msg_mac: &self.msg_mac,
        };
        let (verify, mut stream) = phase2.derive(&self.x.agree(y)?, &self.xb, verification);
        if !bool::from(phase2.auth(&verify, encrypted).ct_eq(auth)) {
            return Err(HandshakeError::BadAuthenticator { handshake: NAME });
        }
        let mut message = encrypted.to_vec();
        aes256_ctr(&stream.enc_key(), &mut message);
        Ok((message, stream))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake::tests::{array, onion_keys};
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;
    use tor_cell::relaycell::extend::CcRequest;

    /// Proposal 332's reference implementation, as C tor and Arti record it.
    #[test]
    fn the_published_handshake() {
        let b_secret = array("4051daa5921cfa2a1c27b08451324919538e79e788a81b38cbed097a5dff454a");
        let id = Ed25519Identity(array(
            "9fad2af287ef942632833d21f946c6260c33fae6172b60006e86e4a6911753a2",
        ));
        let x = Keypair::from_secret(&array(
            "b825a3719147bcbe5fb1d0b0fcb9c09e51948048e2e3283d2ab7b45b5ef38b49",
        ));
        let y = Keypair::from_secret(&array(
            "4865a5b7689dafd978f529291c7171bc159be076b92186405d13220b80e2a053",
        ));
        let verification = b"xyzzy";
        let keys = OnionKeys::new([0; 20].into(), id, &b_secret, None);

        let (client, onionskin) =
            ClientState::begin(&id, &keys.current_public(), b"hello world", x, verification)
                .unwrap();
        assert_eq!(
            hex::encode(&onionskin),
            "9fad2af287ef942632833d21f946c6260c33fae6172b60006e86e4a6911753a2\
             f8307a2bc1870b00b828bb74dbb8fd88e632a6375ab3bcd1ae706aaa8b6cdd1d\
             252fe9ae91264c91d4ecb8501f79d0387e34ad8ca0f7c995184f7d11d5da4f46\
             3bebd9151fd3b47c180abc9e044d53565f04d82bbb3bebed3d06cea65db8be9c\
             72b68cd461942088502f67"
        );
        let parts = Parts::new(&onionskin, &keys).unwrap();
        let xb = parts.b.agree(&parts.x).unwrap();
        let opened = parts.open(&xb, verification).unwrap();
        assert_eq!(opened.message, b"hello world");
        let xy = y.agree(&parts.x).unwrap();
        let (reply, mut relay_stream) = opened
            .reply(&y.public, &xy, b"Hola Mundo".to_vec(), verification)
            .unwrap();
        assert_eq!(
            hex::encode(&reply),
            "4bf4814326fdab45ad5184f5518bd7fae25dc59374062698201a50a22954246d\
             2fc5f8773ca824542bc6cf6f57c7c29bbf4e5476461ab130c5b18ab0a9127665\
             1202c3e1e87c0d32054c"
        );
        let (message, mut client_stream) = client.complete(&reply, verification).unwrap();
        assert_eq!(message, b"Hola Mundo");
        let expected = "9c19b631fd94ed86a817e01f6c80b0743a43f5fa\
                        ebd39cfaa8b00fa8bcc65c3bfeaa403d91acbd68\
                        a821bf6ee8504602b094a254392a0773\
                        7d5662768c7a9fb1b2814bb34780eaee\
                        6e867c773e28c212ead563e98a1cd5d5b4576f5e";
        for stream in [&mut relay_stream, &mut client_stream] {
            let keys = stream.tor1_keys();
            assert_eq!(
                hex::encode([&keys.df[..], &keys.db, &keys.kf, &keys.kb, &keys.kh].concat()),
                expected
            );
        }
    }

    /// A client's handshake with a relay of `params`: the client's result.
    fn handshake(message: &[u8], params: &ReplyParams) -> Result<Reply, HandshakeError> {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let keys = onion_keys();
        let (_, onionskin) = ClientState::start_with_message(
            keys.ed_identity(),
            &keys.current_public(),
            message,
            &mut rng,
        )
        .unwrap();
        server(&onionskin, &keys, params, &mut rng)
    }

    #[test]
    fn both_onion_keys_are_answered() {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let keys = onion_keys();
        for public in keys.publics() {
            let (client, onionskin) =
                ClientState::start(keys.ed_identity(), &public, &[], &mut rng).unwrap();
            let reply = server(&onionskin, &keys, &ReplyParams::default(), &mut rng).unwrap();
            let (responses, client_keys) = client.finish(&reply.data).unwrap();
            assert_eq!(responses, []);
            assert!(client_keys == reply.keys);
        }
    }

    #[test]
    fn congestion_control_is_answered_only_where_it_is_on() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let keys = onion_keys();
        let asked = [CircRequestExt::from(CcRequest::default())];
        let on = ReplyParams {
            sendme_inc: Some(31),
        };
        for (requests, params, granted) in [
            (&asked[..], &on, Some(31)),
            (&asked[..], &ReplyParams::default(), None),
            (&[][..], &on, None),
        ] {
            let (client, onionskin) = ClientState::start(
                keys.ed_identity(),
                &keys.current_public(),
                requests,
                &mut rng,
            )
            .unwrap();
            let reply = server(&onionskin, &keys, params, &mut rng).unwrap();
            assert_eq!(reply.sendme_inc, granted);
            let (responses, _) = client.finish(&reply.data).unwrap();
            let expected: Vec<CircResponseExt> = granted
                .map(|inc| CcResponse::new(inc).into())
                .into_iter()
                .collect();
            assert_eq!(responses, expected);
        }
    }

    #[test]
    fn extensions_of_unknown_types_are_ignored() {
        // Two extensions: type 200 with two bytes, type 201 with none.
        assert!(handshake(&[2, 200, 2, 7, 7, 201, 0], &ReplyParams::default()).is_ok());
    }

    #[test]
    fn malformed_extensions_fail_the_handshake() {
        for message in [
            &[][..],                // no count
            &[1],                   // one promised, none there
            &[1, 1],                // no length
            &[1, 1, 2, 0],          // too few bytes
            &[0, 0],                // bytes after the list
            &[1, 3, 1, 2],          // half a subprotocol request
            &[1, 3, 4, 2, 5, 2, 5], // unsorted subprotocol requests
            &[255; 255],
        ] {
            assert!(
                matches!(
                    handshake(message, &ReplyParams::default()),
                    Err(HandshakeError::BadExtensions(_))
                ),
                "{message:?}"
            );
        }
    }

    #[test]
    fn counter_galois_onion_comes_with_congestion_control_only() {
        let mut rng = ChaCha8Rng::seed_from_u64(8);
        let keys = onion_keys();
        let cc = CircRequestExt::from(CcRequest::default());
        let cgo = CircRequestExt::from(cgo_alone());
        let on = ReplyParams {
            sendme_inc: Some(31),
        };
        for (requests, params, granted) in [
            (vec![cc.clone(), cgo.clone()], &on, true),
            (vec![cgo.clone()], &on, false),
            (vec![cc, cgo], &ReplyParams::default(), false),
        ] {
            let public = keys.current_public();
            let (client, onionskin) =
                ClientState::start(keys.ed_identity(), &public, &requests, &mut rng).unwrap();
            let answer = server(&onionskin, &keys, params, &mut rng);
            if granted {
                let reply = answer.unwrap();
                assert_eq!(reply.sendme_inc, Some(31));
                assert!(reply.keys.tor1().is_none());
                assert!(client.finish(&reply.data).unwrap().1 == reply.keys);
            } else {
                assert!(matches!(
                    answer,
                    Err(HandshakeError::UnsupportedSubprotocol)
                ));
            }
        }
    }

    #[test]
    fn a_subprotocol_that_cannot_be_switched_on_is_refused() {
        // Relay=5, and Relay=6 without congestion control.
        assert!(matches!(
            handshake(&[1, 3, 2, 2, 5], &ReplyParams::default()),
            Err(HandshakeError::UnsupportedSubprotocol)
        ));
        assert!(matches!(
            handshake(&[2, 1, 0, 3, 2, 2, 6], &ReplyParams::default()),
            Err(HandshakeError::UnsupportedSubprotocol)
        ));
        // Asking for nothing is granted.
        assert!(handshake(&[1, 3, 0], &ReplyParams::default()).is_ok());
    }

    #[test]
    fn an_onionskin_for_someone_else_is_refused() {
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        let keys = onion_keys();
        let params = ReplyParams::default();
        let other = Keypair::generate(&mut rng).public;
        let (_, other_id) =
            ClientState::start(&[9; 32].into(), &keys.current_public(), &[], &mut rng).unwrap();
        assert!(matches!(
            server(&other_id, &keys, &params, &mut rng),
            Err(HandshakeError::WrongIdentity { .. })
        ));
        let (_, other_key) = ClientState::start(keys.ed_identity(), &other, &[], &mut rng).unwrap();
        assert!(matches!(
            server(&other_key, &keys, &params, &mut rng),
            Err(HandshakeError::UnknownOnionKey { .. })
        ));
    }

    #[test]
    fn an_onionskin_changed_or_cut_anywhere_is_refused() {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let keys = onion_keys();
        let params = ReplyParams::default();
        let requests = [CircRequestExt::from(CcRequest::default())];
        let (_, onionskin) = ClientState::start(
            keys.ed_identity(),
            &keys.current_public(),
            &requests,
            &mut rng,
        )
        .unwrap();
        assert!(server(&onionskin, &keys, &params, &mut rng).is_ok());
        for i in 0..onionskin.len() {
            let mut changed = onionskin.clone();
            changed[i] ^= 1;
            assert!(
                server(&changed, &keys, &params, &mut rng).is_err(),
                "byte {i}"
            );
            assert!(server(&onionskin[..i], &keys, &params, &mut rng).is_err());
        }
        let mut degenerate = onionskin.clone();
        degenerate[64..96].fill(0);
        assert!(matches!(
            server(&degenerate, &keys, &params, &mut rng),
            Err(HandshakeError::DegenerateKey)
        ));
    }

    #[test]
    fn a_reply_changed_or_cut_anywhere_is_refused() {
        let mut rng = ChaCha8Rng::seed_from_u64(6);
        let keys = onion_keys();
        let x = Keypair::generate(&mut rng);
        let start = || {
            ClientState::begin(
                keys.ed_identity(),
                &keys.current_public(),
                &[0],
                x.clone(),
                VERIFICATION,
            )
            .unwrap()
        };
        let (client, onionskin) = start();
        let reply = server(&onionskin, &keys, &ReplyParams::default(), &mut rng)
            .unwrap()
            .data;
        assert!(client.finish(&reply).is_ok());
        for i in 0..reply.len() {
            let mut changed = reply.clone();
            changed[i] ^= 1;
            assert!(start().0.finish(&changed).is_err(), "byte {i}");
            assert!(start().0.finish(&reply[..i]).is_err(), "cut at {i}");
        }
        let mut degenerate = reply;
        degenerate[..32].fill(0);
        assert!(matches!(
            start().0.finish(&degenerate),
            Err(HandshakeError::DegenerateKey)
        ));
    }

    #[test]
    fn a_replayed_onionskin_gets_keys_of_its_own() {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let keys = onion_keys();
        let params = ReplyParams::default();
        let (_, onionskin) =
            ClientState::start(keys.ed_identity(), &keys.current_public(), &[], &mut rng).unwrap();
        let first = server(&onionskin, &keys, &params, &mut rng).unwrap();
        let replayed = server(&onionskin, &keys, &params, &mut rng).unwrap();
        assert_ne!(first.data, replayed.data);
        assert!(first.keys != replayed.keys);
    }
}
