//! Keys and authenticators of the ntor-v3 handshake (proposal 332, in its letters).

use digest::{ExtendableOutput, Update, XofReader};
use sha3::{Digest, Sha3_256, Shake256};
use weft_cell::identity::Ed25519Identity;
use zeroize::Zeroizing;

use crate::cgo::CgoKeys;
use crate::circuit::HopKeys;
use crate::handshake::curve::SharedSecret;
use crate::keys::Tor1Keys;

const PROTOID: &[u8] = b"ntor3-curve25519-sha3_256-1";
const T_MSGKDF: &[u8] = b"ntor3-curve25519-sha3_256-1:kdf_phase1";
const T_MSGMAC: &[u8] = b"ntor3-curve25519-sha3_256-1:msg_mac";
const T_KEY_SEED: &[u8] = b"ntor3-curve25519-sha3_256-1:key_seed";
const T_VERIFY: &[u8] = b"ntor3-curve25519-sha3_256-1:verify";
const T_FINAL: &[u8] = b"ntor3-curve25519-sha3_256-1:kdf_final";
const T_AUTH: &[u8] = b"ntor3-curve25519-sha3_256-1:auth_final";

/// The keys of the client's message: KDF(secret_input_phase1, T_MSGKDF).
pub(super) struct Phase1 {
    pub(super) enc_key: Zeroizing<[u8; 32]>,
    pub(super) mac_key: Zeroizing<[u8; 32]>,
}

impl Phase1 {
    pub(super) fn new(
        xb: &SharedSecret,
        id: &Ed25519Identity,
        x: &[u8; 32],
        b: &[u8; 32],
        verification: &[u8],
    ) -> Self {
        let mut kdf = Shake256::default();
        encap(&mut kdf, T_MSGKDF);
        for part in [xb.as_bytes(), id.as_bytes(), x, b] {
            kdf.update(part);
        }
        kdf.update(PROTOID);
        encap(&mut kdf, verification);
        let mut stream = kdf.finalize_xof();
        let mut keys = Self {
            enc_key: Zeroizing::new([0; 32]),
            mac_key: Zeroizing::new([0; 32]),
        };
        stream.read(&mut keys.enc_key[..]);
        stream.read(&mut keys.mac_key[..]);
        keys
    }

    /// MAC(mac_key, ID | B | X | encrypted message, T_MSGMAC).
    pub(super) fn mac(
        &self,
        id: &Ed25519Identity,
        b: &[u8; 32],
        x: &[u8; 32],
        encrypted: &[u8],
    ) -> [u8; 32] {
        let mut mac = Sha3_256::default();
        encap(&mut mac, T_MSGMAC);
        encap(&mut mac, &self.mac_key[..]);
        for part in [id.as_bytes(), b, x] {
            Update::update(&mut mac, part);
        }
        Update::update(&mut mac, encrypted);
        mac.finalize().into()
    }
}

/// The public values of a whole handshake, in the specification's letters.
pub(super) struct Phase2<'a> {
    pub(super) id: &'a Ed25519Identity,
    pub(super) b: &'a [u8; 32],
    pub(super) x: &'a [u8; 32],
    pub(super) y: &'a [u8; 32],
    pub(super) msg_mac: &'a [u8; 32],
}

impl Phase2<'_> {
    /// `verify`, and the key stream KDF(ntor_key_seed, T_FINAL).
    pub(super) fn derive(
        &self,
        xy: &SharedSecret,
        xb: &SharedSecret,
        verification: &[u8],
    ) -> (Zeroizing<[u8; 32]>, KeyStream) {
        let secret_input = |tweak| {
            let mut hash = Sha3_256::default();
            encap(&mut hash, tweak);
            for part in [
                xy.as_bytes(),
                xb.as_bytes(),
                self.id.as_bytes(),
                self.b,
                self.x,
                self.y,
            ] {
                Update::update(&mut hash, part);
            }
            Update::update(&mut hash, PROTOID);
            encap(&mut hash, verification);
            Zeroizing::new(<[u8; 32]>::from(hash.finalize()))
        };
        let key_seed = secret_input(T_KEY_SEED);
        let mut kdf = Shake256::default();
        encap(&mut kdf, T_FINAL);
        kdf.update(&key_seed[..]);
        (secret_input(T_VERIFY), KeyStream(kdf.finalize_xof()))
    }

    /// AUTH = H(auth_input, T_AUTH).
    pub(super) fn auth(&self, verify: &[u8; 32], encrypted: &[u8]) -> [u8; 32] {
        let mut hash = Sha3_256::default();
        encap(&mut hash, T_AUTH);
        let id = self.id.as_bytes();
        for part in [verify, id, self.b, self.y, self.x, self.msg_mac] {
            Update::update(&mut hash, part);
        }
        encap(&mut hash, encrypted);
        Update::update(&mut hash, PROTOID);
        Update::update(&mut hash, b"Server");
        hash.finalize().into()
    }
}

/// The key stream that a handshake ends with: first the key of the relay's
/// message, then the circuit's.
pub(super) struct KeyStream(<Shake256 as ExtendableOutput>::Reader);

impl KeyStream {
    pub(super) fn enc_key(&mut self) -> Zeroizing<[u8; 32]> {
        let mut key = Zeroizing::new([0; 32]);
        self.0.read(&mut key[..]);
        key
    }

    /// The circuit's keys; only one kind can be taken.
    pub(super) fn keys(&mut self, cgo: bool) -> HopKeys {
        if !cgo {
            return self.tor1_keys().into();
        }
        let mut material = Zeroizing::new([0; CgoKeys::LEN]);
        self.0.read(&mut material[..]);
        CgoKeys::from_key_material(&material).into()
    }

    pub(super) fn tor1_keys(&mut self) -> Tor1Keys {
        let mut material = Zeroizing::new([0; Tor1Keys::LEN]);
        self.0.read(&mut material[..]);
        Tor1Keys::from_key_material(&material)
    }
}

/// ENCAP(s): its length as eight bytes, then itself.
fn encap(hash: &mut impl Update, s: &[u8]) {
    // usize is at most 64 bits wide on every target.
    hash.update(&(s.len() as u64).to_be_bytes());
    hash.update(s);
}
