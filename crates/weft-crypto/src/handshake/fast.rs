//! CREATE_FAST: no public-key work, for a first hop that the link has already
//! authenticated (tor-spec 5.1.5, KDF-TOR of 5.2.1).

use rand::CryptoRng;
use sha1::{Digest, Sha1};
use subtle::ConstantTimeEq;
use zeroize::{ZeroizeOnDrop, Zeroizing};

use super::error::HandshakeError;
use crate::keys::Tor1Keys;

/// KDF-TOR's blocks for one hop: 100 bytes, 92 of them used.
const KDF_BLOCKS: u8 = 5;

/// The relay's answer to a CREATE_FAST.
pub struct Reply {
    /// Y: the relay's random half of the key material.
    pub y: [u8; 20],
    /// KH: shows the client that both derived the same keys.
    pub kh: [u8; 20],
    /// The keys of the hop.
    pub keys: Tor1Keys,
}

/// Answers the client's `x`. Cannot fail: any 20 bytes are a good X.
pub fn server<R: CryptoRng + ?Sized>(x: &[u8; 20], rng: &mut R) -> Reply {
    let mut y = [0; 20];
    rng.fill_bytes(&mut y);
    let keys = derive(x, &y);
    Reply {
        y,
        kh: keys.kh,
        keys,
    }
}

/// State of the client between CREATE_FAST and CREATED_FAST.
#[derive(ZeroizeOnDrop)]
pub struct ClientState {
    x: [u8; 20],
}

impl ClientState {
    /// Begins a handshake; send [`Self::x`].
    pub fn start<R: CryptoRng + ?Sized>(rng: &mut R) -> Self {
        let mut x = [0; 20];
        rng.fill_bytes(&mut x);
        Self { x }
    }

    /// X: the body of the CREATE_FAST cell.
    pub fn x(&self) -> &[u8; 20] {
        &self.x
    }

    /// Ends the handshake with the relay's CREATED_FAST.
    pub fn finish(self, y: &[u8; 20], kh: &[u8; 20]) -> Result<Tor1Keys, HandshakeError> {
        let keys = derive(&self.x, y);
        if bool::from(keys.kh.ct_eq(kh)) {
            Ok(keys)
        } else {
            Err(HandshakeError::BadAuthenticator {
                handshake: "CREATE_FAST",
            })
        }
    }
}

/// The keys of a hop from K0 = X | Y. Unlike after ntor, KH comes first.
fn derive(x: &[u8; 20], y: &[u8; 20]) -> Tor1Keys {
    let material = kdf_tor(&Sha1::new_with_prefix(x).chain_update(y));
    let mut ordered = Zeroizing::new([0; Tor1Keys::LEN]);
    let (kh, rest) = material.split_at(20);
    for (out, byte) in ordered.iter_mut().zip(rest.iter().take(72).chain(kh)) {
        *out = *byte;
    }
    Tor1Keys::from_key_material(&ordered)
}

/// KDF-TOR: H(K0 | 00) | H(K0 | 01) | … (tor-spec 5.2.1), where `k0` has taken
/// K0 in.
fn kdf_tor(k0: &Sha1) -> Zeroizing<[u8; 20 * KDF_BLOCKS as usize]> {
    let mut material = Zeroizing::new([0; 20 * KDF_BLOCKS as usize]);
    for (counter, block) in (0..KDF_BLOCKS).zip(material.chunks_exact_mut(20)) {
        block.copy_from_slice(&k0.clone().chain_update([counter]).finalize());
    }
    material
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake::tests::array;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;

    /// C tor's test_crypto.c, from a reference script.
    #[test]
    fn kdf_tor_gives_the_published_values() {
        assert_eq!(
            hex::encode(&kdf_tor(&Sha1::new_with_prefix("Tor"))[..]),
            "776c6214fc647aaa5f683c737ee66ec44f03d0372e1cce6922\
             7950f236ddf1e329a7ce7c227903303f525a8c6662426e8034\
             870642a6dabbd41b5d97ec9bf2312ea729992f48f8ea2d0ba8\
             3f45dfda1a80bdc8b80de01b23e3e0ffae099b3e4ccf28dc28"
        );
    }

    /// Recorded from C tor: X, Y | KH, and the key material that follows KH.
    #[test]
    fn handshakes_recorded_from_c_tor_give_its_keys() {
        for (x, y, kh, material) in [
            (
                "080e247df7c252fcd2dc10f459703480c223e3a6",
                "ba95c0d092335428bf80093bbed0b7a26c49e1e8",
                "696fbf9c8d6be26504219c000d26afe370fcef04",
                "afa89b4fc8cf882335a582c52478b5fcb1e08daf\
                 707e2c2d23b8c27d30bd461f3df98a3af82221cb\
                 658ad0aa8680b99067e4f7dbc546970e\
                 a9a56b26433c71da867bdd09c14a1308",
            ),
            (
                "5f786c724c2f5978474a04fa63772057ad896a03",
                "6210b037001405742fe78b6f5b34e6db3c9f2f7e",
                "24239498613e0ed872e110a00774a3fcb37a7507",
                "d41b65d83fb4b34a322b658be4d706edcd8b6281\
                 3757e719118c394e1f22e1c8ea8959bab30e856a\
                 914c3054946f547397094de031f5bca3\
                 84c65c8880bf7aab9ce7bee33971f9de",
            ),
        ] {
            let state = ClientState { x: array(x) };
            let keys = state.finish(&array(y), &array(kh)).unwrap();
            let got = [&keys.df[..], &keys.db, &keys.kf, &keys.kb].concat();
            assert_eq!(hex::encode(got), material);
            assert_eq!(hex::encode(keys.kh), kh);
        }
    }

    #[test]
    fn both_sides_derive_the_same_keys() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let state = ClientState::start(&mut rng);
        let reply = server(state.x(), &mut rng);
        let keys = state.finish(&reply.y, &reply.kh).unwrap();
        assert!(keys == reply.keys);
    }

    #[test]
    fn a_changed_reply_is_refused() {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let reply_to = |state: &ClientState, rng: &mut ChaCha8Rng| server(state.x(), rng);

        let state = ClientState::start(&mut rng);
        let mut reply = reply_to(&state, &mut rng);
        reply.kh[19] ^= 1;
        assert!(state.finish(&reply.y, &reply.kh).is_err());

        let state = ClientState::start(&mut rng);
        let mut reply = reply_to(&state, &mut rng);
        reply.y[0] ^= 0x80;
        assert!(state.finish(&reply.y, &reply.kh).is_err());
    }
}
