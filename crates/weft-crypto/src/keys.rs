//! The keys of one hop of a circuit, as a handshake leaves them.

use std::fmt;

use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::intro::KH_LEN;

/// Keys of one hop under tor1 relay encryption (tor-spec 5.2.1, 5.2.2).
///
/// Both ends of the hop hold the same value. Wiped when dropped, and its
/// `Debug` shows nothing.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct Tor1Keys {
    /// Df: seeds the running digest of the forward direction.
    pub df: [u8; 20],
    /// Db: seeds the running digest of the backward direction.
    pub db: [u8; 20],
    /// Kf: AES-128 key of the forward direction.
    pub kf: [u8; 16],
    /// Kb: AES-128 key of the backward direction.
    pub kb: [u8; 16],
    /// KH: binds later messages of this hop (an ESTABLISH_INTRO) to this
    /// handshake.
    pub kh: [u8; KH_LEN],
}

impl Tor1Keys {
    /// Length of the key material that one hop takes, KH included.
    pub const LEN: usize = 20 + 20 + 16 + 16 + KH_LEN;

    /// Splits `material` in the order of tor-spec 5.2.2: Df, Db, Kf, Kb, KH.
    pub fn from_key_material(material: &[u8; Self::LEN]) -> Self {
        let mut keys = Self {
            df: [0; 20],
            db: [0; 20],
            kf: [0; 16],
            kb: [0; 16],
            kh: [0; KH_LEN],
        };
        keys.df.copy_from_slice(&material[..20]);
        keys.db.copy_from_slice(&material[20..40]);
        keys.kf.copy_from_slice(&material[40..56]);
        keys.kb.copy_from_slice(&material[56..72]);
        keys.kh.copy_from_slice(&material[72..]);
        keys
    }
}

impl fmt::Debug for Tor1Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tor1Keys(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_material_is_split_in_the_order_of_the_specification() {
        let mut material = [0; Tor1Keys::LEN];
        for (i, byte) in material.iter_mut().enumerate() {
            *byte = u8::try_from(i).unwrap();
        }
        let keys = Tor1Keys::from_key_material(&material);
        assert_eq!((keys.df[0], keys.df[19]), (0, 19));
        assert_eq!((keys.db[0], keys.db[19]), (20, 39));
        assert_eq!((keys.kf[0], keys.kf[15]), (40, 55));
        assert_eq!((keys.kb[0], keys.kb[15]), (56, 71));
        assert_eq!((keys.kh[0], keys.kh[19]), (72, 91));
    }

    #[test]
    fn debug_shows_no_key() {
        let keys = Tor1Keys::from_key_material(&[0x41; Tor1Keys::LEN]);
        assert_eq!(format!("{keys:?}"), "Tor1Keys(..)");
    }
}
