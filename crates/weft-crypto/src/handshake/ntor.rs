//! The ntor handshake (tor-spec 5.1.4, key expansion of 5.2.2): handshake type
//! 0x0002 of CREATE2.

use hkdf::Hkdf;
use hmac::{Hmac, Mac};
use rand::CryptoRng;
use sha2::Sha256;
use weft_cell::identity::RsaIdentity;
use zeroize::Zeroizing;

use super::curve::{Exchange, Keypair, SharedSecret};
use super::error::HandshakeError;
use super::onion_keys::OnionKeys;
use crate::keys::Tor1Keys;

/// Length of the client's onionskin: ID, B, X.
pub(crate) const ONIONSKIN_LEN: usize = 20 + 32 + 32;

/// Length of the relay's reply: Y, AUTH.
pub const REPLY_LEN: usize = 32 + 32;

/// This handshake in error messages.
const NAME: &str = "ntor";

const PROTOID: &[u8] = b"ntor-curve25519-sha256-1";
const T_MAC: &[u8] = b"ntor-curve25519-sha256-1:mac";
const T_KEY: &[u8] = b"ntor-curve25519-sha256-1:key_extract";
const T_VERIFY: &[u8] = b"ntor-curve25519-sha256-1:verify";
const M_EXPAND: &[u8] = b"ntor-curve25519-sha256-1:key_expand";

/// The relay's answer to an ntor onionskin.
pub struct Reply {
    /// The body of the CREATED2: Y, AUTH.
    pub data: [u8; REPLY_LEN],
    /// The keys of the hop.
    pub keys: Tor1Keys,
}

/// Answers `onionskin` with the relay's `keys`.
///
/// An onionskin for another relay or for an onion key that is not held any
/// more is refused. (Identities and public onion keys are in the directory, so
/// the refusal reveals nothing.)
pub fn server<R: CryptoRng + ?Sized>(
    onionskin: &[u8],
    keys: &OnionKeys,
    rng: &mut R,
) -> Result<Reply, HandshakeError> {
    answer_with(onionskin, keys, &Keypair::generate(rng))
}

/// [`server`] with a given y.
fn answer_with(onionskin: &[u8], keys: &OnionKeys, y: &Keypair) -> Result<Reply, HandshakeError> {
    let opened = Opened::new(onionskin, keys)?;
    opened.reply(&Exchange {
        y: y.public,
        xy: y.agree(&opened.x)?,
        xb: opened.b.agree(&opened.x)?,
    })
}

/// An onionskin that is for this relay.
pub(super) struct Opened<'a> {
    id: RsaIdentity,
    /// The onion key that the client chose.
    pub(super) b: &'a Keypair,
    /// The client's ephemeral public key.
    pub(super) x: [u8; 32],
}

impl<'a> Opened<'a> {
    pub(super) fn new(onionskin: &[u8], keys: &'a OnionKeys) -> Result<Self, HandshakeError> {
        let wrong_length = HandshakeError::WrongLength {
            handshake: NAME,
            expected: ONIONSKIN_LEN,
            got: onionskin.len(),
        };
        let Ok(onionskin) = <&[u8; ONIONSKIN_LEN]>::try_from(onionskin) else {
            return Err(wrong_length);
        };
        let (id, key_id, x) = (
            RsaIdentity(field(onionskin, 0)),
            field::<32>(onionskin, 20),
            field::<32>(onionskin, 52),
        );
        if id != *keys.rsa_identity() {
            return Err(HandshakeError::WrongIdentity { handshake: NAME });
        }
        let b = keys
            .find(&key_id)
            .ok_or(HandshakeError::UnknownOnionKey { handshake: NAME })?;
        Ok(Self { id, b, x })
    }

    /// The reply of an exchange between `b` and `x`.
    pub(super) fn reply(&self, exchange: &Exchange) -> Result<Reply, HandshakeError> {
        let transcript = Transcript {
            id: &self.id,
            b: &self.b.public,
            x: &self.x,
            y: &exchange.y,
        };
        let (auth, keys) = transcript.derive(&exchange.xy, &exchange.xb)?;
        let mut data = [0; REPLY_LEN];
        data[..32].copy_from_slice(&exchange.y);
        data[32..].copy_from_slice(&auth.finalize().into_bytes());
        Ok(Reply { data, keys })
    }
}

/// The `N` bytes of an onionskin at `offset`.
fn field<const N: usize>(onionskin: &[u8; ONIONSKIN_LEN], offset: usize) -> [u8; N] {
    let mut out = [0; N];
    for (to, from) in out.iter_mut().zip(onionskin.iter().skip(offset)) {
        *to = *from;
    }
    out
}

/// State of the client between CREATE2 and CREATED2. Its secret is wiped when dropped.
pub struct ClientState {
    id: RsaIdentity,
    /// The relay's onion key.
    b: [u8; 32],
    /// The client's ephemeral key.
    x: Keypair,
}

impl ClientState {
    /// Begins a handshake with the relay of RSA identity `rsa_identity` and
    /// onion key `onion_key`; send [`Self::onionskin`].
    pub fn start<R: CryptoRng + ?Sized>(
        rsa_identity: &RsaIdentity,
        onion_key: &[u8; 32],
        rng: &mut R,
    ) -> Self {
        Self {
            id: *rsa_identity,
            b: *onion_key,
            x: Keypair::generate(rng),
        }
    }

    /// The body of the CREATE2.
    pub fn onionskin(&self) -> [u8; ONIONSKIN_LEN] {
        let mut onionskin = [0; ONIONSKIN_LEN];
        onionskin[..20].copy_from_slice(self.id.as_bytes());
        onionskin[20..52].copy_from_slice(&self.b);
        onionskin[52..].copy_from_slice(&self.x.public);
        onionskin
    }

    /// Ends the handshake with the body of the relay's CREATED2.
    pub fn finish(self, reply: &[u8]) -> Result<Tor1Keys, HandshakeError> {
        let Ok(reply) = <&[u8; REPLY_LEN]>::try_from(reply) else {
            return Err(HandshakeError::WrongLength {
                handshake: NAME,
                expected: REPLY_LEN,
                got: reply.len(),
            });
        };
        let mut y = [0; 32];
        y.copy_from_slice(&reply[..32]);
        let transcript = Transcript {
            id: &self.id,
            b: &self.b,
            x: &self.x.public,
            y: &y,
        };
        let (auth, keys) = transcript.derive(&self.x.agree(&y)?, &self.x.agree(&self.b)?)?;
        // verify_slice compares in constant time.
        auth.verify_slice(&reply[32..])
            .map_err(|_| HandshakeError::BadAuthenticator { handshake: NAME })?;
        Ok(keys)
    }
}

/// The public values of one handshake, in the specification's letters.
struct Transcript<'a> {
    id: &'a RsaIdentity,
    b: &'a [u8; 32],
    x: &'a [u8; 32],
    y: &'a [u8; 32],
}

impl Transcript<'_> {
    /// AUTH, as the MAC ready to be finished or compared, and the keys.
    fn derive(
        &self,
        xy: &SharedSecret,
        xb: &SharedSecret,
    ) -> Result<(Hmac<Sha256>, Tor1Keys), HandshakeError> {
        let mut secret_input = Zeroizing::new(Vec::with_capacity(32 * 5 + 20 + PROTOID.len()));
        for part in [
            &xy.as_bytes()[..],
            xb.as_bytes(),
            self.id.as_bytes(),
            self.b,
            self.x,
            self.y,
            PROTOID,
        ] {
            secret_input.extend_from_slice(part);
        }

        let verify = tweaked(T_VERIFY)?
            .chain_update(&secret_input[..])
            .finalize()
            .into_bytes();
        let auth = tweaked(T_MAC)?
            .chain_update(verify)
            .chain_update(self.id.as_bytes())
            .chain_update(self.b)
            .chain_update(self.y)
            .chain_update(self.x)
            .chain_update(PROTOID)
            .chain_update(b"Server");

        let mut material = Zeroizing::new([0; Tor1Keys::LEN]);
        Hkdf::<Sha256>::new(Some(T_KEY), &secret_input)
            .expand(M_EXPAND, &mut material[..])
            .map_err(|_| HandshakeError::Internal("expanding ntor's keys"))?;
        Ok((auth, Tor1Keys::from_key_material(&material)))
    }
}

/// H(·, t): HMAC-SHA256 with the tweak as the key.
fn tweaked(tweak: &[u8]) -> Result<Hmac<Sha256>, HandshakeError> {
    Hmac::new_from_slice(tweak).map_err(|_| HandshakeError::Internal("keying ntor's HMAC"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake::tests::{array, onion_keys};
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;

    /// C tor's reference implementation (ntor_ref.py), as Arti records it.
    #[test]
    fn the_published_handshake() {
        let b = Keypair::from_secret(&array(
            "4820544f4c4420594f5520444f474954204b454550532048415050454e494e47",
        ));
        let x = Keypair::from_secret(&array(
            "706f6461792069207075742e2e2e2e2e2e2e2e4a454c4c59206f6e2074686973",
        ));
        let y_secret = "70686520737175697272656c2e2e2e2e2e2e2e2e686173206869732067616d65";
        let y = Keypair::from_secret(&array(y_secret));
        let id = RsaIdentity(array("69546f6c64596f7541626f75745374616972732e"));
        let b_secret = array("4820544f4c4420594f5520444f474954204b454550532048415050454e494e47");
        let keys = OnionKeys::new(id, [0; 32].into(), &b_secret, None);

        let client = ClientState { id, b: b.public, x };
        assert_eq!(
            hex::encode(client.onionskin()),
            "69546f6c64596f7541626f75745374616972732e\
             ccbc8541904d18af08753eae967874749e6149f873de937f57f8fd903a21c471\
             e65dfdbef8b2635837fe2cebc086a8096eae3213e6830dc407516083d412b078"
        );
        let reply = answer_with(&client.onionskin(), &keys, &y).unwrap();
        assert_eq!(
            hex::encode(reply.data),
            "390480a14362761d6aec1fea840f6e9e928fb2adb7b25c670be1045e35133a37\
             1cbdf68b89923e1f85e8e18ee6e805ea333fe4849c790ffd2670bd80fec95cc8"
        );
        let keys = client.finish(&reply.data).unwrap();
        assert!(keys == reply.keys);
        assert_eq!(
            hex::encode([&keys.df[..], &keys.db, &keys.kf, &keys.kb].concat()),
            "0c62dee7f48893370d0ef896758d35729867beef1a5121df80e00f79ed349af3\
             9b51cae125719182f19d932a667dae1afbf2e336e6910e7822223e763afad0a1\
             3342157969dc6b79"
        );
    }

    /// C tor's test_crypto.c: the key expansion by itself.
    #[test]
    fn the_published_key_expansion() {
        let mut material = [0; 100];
        Hkdf::<Sha256>::new(Some(T_KEY), b"Tor")
            .expand(M_EXPAND, &mut material)
            .unwrap();
        assert_eq!(
            hex::encode(material),
            "5521492a85139a8d9107a2d5c0d9c91610d0f95989975ebee6\
             c02a4f8d622a6cfdf9b7c7edd3832e2760ded1eac309b76f8d\
             66c4a3c4d6225429b3a016e3c3d45911152fc87bc2de9630c3\
             961be9fdb9f93197ea8e5977180801926d3321fa21513e59ac"
        );
    }

    #[test]
    fn both_onion_keys_are_answered() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let keys = onion_keys();
        let publics: Vec<_> = keys.publics().collect();
        assert_eq!(publics.len(), 2);
        for public in publics {
            let client = ClientState::start(keys.rsa_identity(), &public, &mut rng);
            let reply = server(&client.onionskin(), &keys, &mut rng).unwrap();
            assert!(client.finish(&reply.data).unwrap() == reply.keys);
        }
    }

    #[test]
    fn a_replayed_onionskin_gets_keys_of_its_own() {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let keys = onion_keys();
        let client = ClientState::start(keys.rsa_identity(), &keys.current_public(), &mut rng);
        let first = server(&client.onionskin(), &keys, &mut rng).unwrap();
        let replayed = server(&client.onionskin(), &keys, &mut rng).unwrap();
        assert_ne!(first.data, replayed.data);
        assert!(first.keys != replayed.keys);
    }

    #[test]
    fn an_onionskin_for_someone_else_is_refused() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let keys = onion_keys();
        let other_id = ClientState::start(&[9; 20].into(), &keys.current_public(), &mut rng);
        assert!(matches!(
            server(&other_id.onionskin(), &keys, &mut rng),
            Err(HandshakeError::WrongIdentity { .. })
        ));
        let other_key = ClientState::start(keys.rsa_identity(), &[9; 32], &mut rng);
        assert!(matches!(
            server(&other_key.onionskin(), &keys, &mut rng),
            Err(HandshakeError::UnknownOnionKey { .. })
        ));
    }

    #[test]
    fn an_onionskin_of_another_length_is_refused() {
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        let keys = onion_keys();
        let client = ClientState::start(keys.rsa_identity(), &keys.current_public(), &mut rng);
        let mut onionskin = client.onionskin().to_vec();
        onionskin.push(0);
        for len in [0, 1, 83, 85] {
            assert!(matches!(
                server(&onionskin[..len], &keys, &mut rng),
                Err(HandshakeError::WrongLength { got, expected: 84, .. }) if got == len
            ));
        }
    }

    #[test]
    fn a_degenerate_client_key_is_refused() {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let keys = onion_keys();
        let client = ClientState::start(keys.rsa_identity(), &keys.current_public(), &mut rng);
        let mut onionskin = client.onionskin();
        onionskin[52..].fill(0);
        assert!(matches!(
            server(&onionskin, &keys, &mut rng),
            Err(HandshakeError::DegenerateKey)
        ));
    }

    #[test]
    fn a_reply_changed_anywhere_is_refused() {
        let mut rng = ChaCha8Rng::seed_from_u64(6);
        let keys = onion_keys();
        let x = Keypair::generate(&mut rng);
        let client = || ClientState {
            id: *keys.rsa_identity(),
            b: keys.current_public(),
            x: x.clone(),
        };
        let reply = server(&client().onionskin(), &keys, &mut rng).unwrap();
        assert!(client().finish(&reply.data).is_ok());
        for i in 0..REPLY_LEN {
            let mut changed = reply.data;
            changed[i] ^= 4;
            assert!(client().finish(&changed).is_err(), "byte {i}");
        }
        assert!(client().finish(&reply.data[..63]).is_err());
        assert!(client().finish(&[&reply.data[..], &[0]].concat()).is_err());
        let mut degenerate = reply.data;
        degenerate[..32].fill(0);
        assert!(matches!(
            client().finish(&degenerate),
            Err(HandshakeError::DegenerateKey)
        ));
    }
}
