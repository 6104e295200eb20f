//! C tor's box for a key behind a passphrase (`crypto_pwbox.c`, `crypto_s2k.c`).
//!
//! A box is `TORBOX00`, the length of a header, the header, a 16-byte IV, the encrypted content, and a MAC of all
//! before it. The header names how the passphrase becomes keys: by RFC 2440 (what a C tor without libscrypt writes,
//! Debian's among them), PBKDF2, or scrypt (what one with libscrypt writes, and the others cannot read). All three are
//! read here; PBKDF2 is written: the strongest that every C tor reads.

use cipher::{KeyIvInit, StreamCipher};
use hmac::{Hmac, Mac};
use rand::CryptoRng;
use sha1::{Digest, Sha1};
use sha2::Sha256;
use zeroize::Zeroizing;

/// First bytes of each box.
const MAGIC: &[u8; 8] = b"TORBOX00";
/// Length of the MAC at the end.
const MAC_LEN: usize = 32;
/// Length of the cipher's key; the MAC's follows it.
const CIPHER_KEY_LEN: usize = 16;
/// The content is filled up with zeros to a multiple of this.
const BLOCK: usize = 128;
/// Binary logarithm of the rounds of PBKDF2 in boxes that are written: half a second of work. C tor's own is 17, from
/// 2014.
const WRITTEN_LOG_ROUNDS: u8 = 20;
/// Most rounds that are read: minutes of work.
const MAX_LOG_ROUNDS: u8 = 26;
/// Most memory that scrypt may take, as a binary logarithm of bytes. C tor's boxes take 32 MiB.
const MAX_LOG_MEMORY: u32 = 30;
/// Most work of scrypt, as a binary logarithm of blocks. C tor's boxes take 2^19.
const MAX_LOG_WORK: u32 = 26;

/// A box that does not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PwboxError {
    /// It is no box, or one that asks for more work than a passphrase is worth.
    #[error("its contents are not a box behind a passphrase that this version can read")]
    Corrupted,
    /// The passphrase is another one.
    #[error("the passphrase is wrong")]
    BadSecret,
}

/// Derivation of keys from a passphrase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stretch<'a> {
    /// Type 0: SHA-1 over salt and passphrase, again and again.
    Rfc2440 {
        /// 8 bytes.
        salt: &'a [u8],
        /// The length of what is hashed, as RFC 2440 encodes it.
        count: u8,
    },
    /// Type 1: PBKDF2 with HMAC-SHA1.
    Pbkdf2 {
        /// 16 bytes.
        salt: &'a [u8],
        /// Binary logarithm.
        log_rounds: u8,
    },
    /// Type 2: scrypt.
    Scrypt {
        /// 16 bytes.
        salt: &'a [u8],
        /// Binary logarithms of N, r and p.
        log_n: u8,
        log_r: u8,
        log_p: u8,
    },
}

impl<'a> Stretch<'a> {
    /// Reads the header of a box (`secret_to_key_get_type`).
    fn parse(header: &'a [u8]) -> Result<Self, PwboxError> {
        // Of 9 bytes, it is of before there were types.
        let (kind, rest) = match header {
            _ if header.len() == 9 => (0, header),
            [kind, rest @ ..] => (*kind, rest),
            [] => return Err(PwboxError::Corrupted),
        };
        let stretch = match (kind, rest.len(), rest) {
            (0, 9, [salt @ .., count]) => Stretch::Rfc2440 {
                salt,
                count: *count,
            },
            (1, 17, [salt @ .., log_rounds]) => Stretch::Pbkdf2 {
                salt,
                log_rounds: *log_rounds,
            },
            (2, 18, [salt @ .., log_n, log_rp]) => Stretch::Scrypt {
                salt,
                log_n: *log_n,
                log_r: log_rp >> 4,
                log_p: log_rp & 15,
            },
            _ => return Err(PwboxError::Corrupted),
        };
        stretch
            .is_affordable()
            .then_some(stretch)
            .ok_or(PwboxError::Corrupted)
    }

    /// True if the work is bounded: a file must not occupy the program for hours.
    fn is_affordable(self) -> bool {
        match self {
            Stretch::Rfc2440 { .. } => true,
            Stretch::Pbkdf2 { log_rounds, .. } => log_rounds <= MAX_LOG_ROUNDS,
            Stretch::Scrypt {
                log_n,
                log_r,
                log_p,
                ..
            } => {
                let blocks = u32::from(log_n).saturating_add(u32::from(log_r));
                // A block of scrypt has 128 bytes.
                blocks.saturating_add(7) <= MAX_LOG_MEMORY
                    && blocks.saturating_add(u32::from(log_p)) <= MAX_LOG_WORK
            }
        }
    }

    /// The cipher's key and the MAC's.
    fn keys(self, passphrase: &[u8]) -> Result<Keys, PwboxError> {
        let mut keys = Zeroizing::new([0; CIPHER_KEY_LEN + MAC_LEN]);
        match self {
            Stretch::Rfc2440 { salt, count } => {
                let hashed = rfc2440(salt, count, passphrase);
                hkdf::Hkdf::<Sha256>::new(Some(salt), hashed.as_slice())
                    .expand(b"EXPAND", keys.as_mut_slice())
                    .map_err(|_| PwboxError::Corrupted)?;
            }
            Stretch::Pbkdf2 { salt, log_rounds } => {
                let rounds = 1u32
                    .checked_shl(u32::from(log_rounds))
                    .ok_or(PwboxError::Corrupted)?;
                pbkdf2::pbkdf2_hmac::<Sha1>(passphrase, salt, rounds, keys.as_mut_slice());
            }
            Stretch::Scrypt {
                salt,
                log_n,
                log_r,
                log_p,
            } => {
                let params = scrypt::Params::new(log_n, 1 << log_r, 1 << log_p, keys.len())
                    .map_err(|_| PwboxError::Corrupted)?;
                scrypt::scrypt(passphrase, salt, &params, keys.as_mut_slice())
                    .map_err(|_| PwboxError::Corrupted)?;
            }
        }
        Ok(Keys(keys))
    }
}

/// RFC 2440, 3.6.1.3, with SHA-1.
fn rfc2440(salt: &[u8], count: u8, passphrase: &[u8]) -> Zeroizing<[u8; 20]> {
    let mut left = (16 + u64::from(count & 15)) << (u32::from(count >> 4) + 6);
    let salted = Zeroizing::new([salt, passphrase].concat());
    let mut hash = Sha1::new();
    while left > 0 && !salted.is_empty() {
        let take = usize::try_from(left).map_or(salted.len(), |left| left.min(salted.len()));
        hash.update(salted.get(..take).unwrap_or_default());
        left = left.saturating_sub(take as u64);
    }
    Zeroizing::new(hash.finalize().into())
}

/// The cipher's key and the MAC's.
struct Keys(Zeroizing<[u8; CIPHER_KEY_LEN + MAC_LEN]>);

impl Keys {
    /// AES-128 in counter mode, both ways.
    fn crypt(&self, iv: &[u8; 16], data: &mut [u8]) {
        let (key, _) = self.0.split_at(CIPHER_KEY_LEN);
        // Neither length is anything else, so that this does not fail.
        if let Ok(mut cipher) = ctr::Ctr128BE::<aes::Aes128>::new_from_slices(key, iv) {
            cipher.apply_keystream(data);
        }
    }

    /// HMAC-SHA256 of what stands before the MAC.
    fn mac(&self, signed: &[u8]) -> Option<Hmac<Sha256>> {
        let (_, key) = self.0.split_at(CIPHER_KEY_LEN);
        let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
        mac.update(signed);
        Some(mac)
    }
}

/// A box that was read, and is closed.
#[derive(Debug)]
pub struct Pwbox<'a> {
    stretch: Stretch<'a>,
    iv: &'a [u8; 16],
    encrypted: &'a [u8],
    /// All before the MAC.
    signed: &'a [u8],
    mac: &'a [u8],
}

impl<'a> Pwbox<'a> {
    /// Reads the parts of a box.
    ///
    /// # Errors
    ///
    /// It is none, or asks for too much work.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, PwboxError> {
        let parsed = || {
            let (signed, mac) = bytes.split_at_checked(bytes.len().checked_sub(MAC_LEN)?)?;
            let (header_len, rest) = signed.strip_prefix(MAGIC)?.split_first()?;
            let (header, rest) = rest.split_at_checked(usize::from(*header_len))?;
            let (iv, encrypted) = rest.split_first_chunk::<16>()?;
            // The content's length and nothing less.
            (encrypted.len() >= 4).then_some((header, iv, encrypted, signed, mac))
        };
        let (header, iv, encrypted, signed, mac) = parsed().ok_or(PwboxError::Corrupted)?;
        Ok(Pwbox {
            stretch: Stretch::parse(header)?,
            iv,
            encrypted,
            signed,
            mac,
        })
    }

    /// The content.
    ///
    /// # Errors
    ///
    /// The passphrase is another one, or the box was made wrongly.
    pub fn open(&self, passphrase: &[u8]) -> Result<Zeroizing<Vec<u8>>, PwboxError> {
        let keys = self.stretch.keys(passphrase)?;
        let mac = keys.mac(self.signed).ok_or(PwboxError::Corrupted)?;
        mac.verify_slice(self.mac)
            .map_err(|_| PwboxError::BadSecret)?;
        let mut content = Zeroizing::new(self.encrypted.to_vec());
        keys.crypt(self.iv, &mut content);
        let (len, rest) = content
            .split_first_chunk::<4>()
            .ok_or(PwboxError::Corrupted)?;
        let len = usize::try_from(u32::from_be_bytes(*len)).unwrap_or(usize::MAX);
        let secret = rest.get(..len).ok_or(PwboxError::Corrupted)?;
        Ok(Zeroizing::new(secret.to_vec()))
    }
}

/// A box with `secret` in it, which C tor opens, too; `None`: the secret is longer than any key.
pub fn seal(secret: &[u8], passphrase: &[u8], rng: &mut impl CryptoRng) -> Option<Vec<u8>> {
    seal_with(secret, passphrase, WRITTEN_LOG_ROUNDS, rng)
}

/// Like [`seal`], with 2^`log_rounds` rounds.
fn seal_with(
    secret: &[u8],
    passphrase: &[u8],
    log_rounds: u8,
    rng: &mut impl CryptoRng,
) -> Option<Vec<u8>> {
    let mut header = [0; 18];
    let mut iv = [0; 16];
    rng.fill_bytes(&mut header);
    rng.fill_bytes(&mut iv);
    let [kind, .., rounds] = &mut header;
    *kind = 1;
    *rounds = log_rounds;
    let mut content = Zeroizing::new(Vec::with_capacity(secret.len().checked_add(4 + BLOCK)?));
    content.extend_from_slice(&u32::try_from(secret.len()).ok()?.to_be_bytes());
    content.extend_from_slice(secret);
    let filled = content.len().checked_next_multiple_of(BLOCK)?;
    content.resize(filled, 0);
    let keys = Stretch::parse(&header).ok()?.keys(passphrase).ok()?;
    keys.crypt(&iv, &mut content);
    let header_len = [u8::try_from(header.len()).ok()?];
    let mut sealed = [MAGIC.as_slice(), &header_len, &header, &iv, &content].concat();
    let mac = keys.mac(&sealed)?.finalize().into_bytes();
    sealed.extend_from_slice(&mac);
    Some(sealed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha20Rng;

    fn rng(seed: u64) -> ChaCha20Rng {
        ChaCha20Rng::seed_from_u64(seed)
    }

    fn open(sealed: &[u8], passphrase: &[u8]) -> Result<Vec<u8>, PwboxError> {
        Pwbox::parse(sealed)?
            .open(passphrase)
            .map(|secret| secret.to_vec())
    }

    fn unhex(text: &str) -> Vec<u8> {
        hex::decode(text.replace(char::is_whitespace, "")).unwrap()
    }

    /// Made with Python's hashlib and openssl: N 2^12, r 8, p 2.
    const SCRYPT: &str = "\
         544f52424f58303013026465666768696a6b6c6d6e6f707172730c31c8c9cacbcccdcecfd0d1d2d3d4d5d6d7e6fcc7ef9f3a \
         01b711f64b9a77420025b62647fb2ff7efcb08ee468bbd22cfdb4cfe8580451d3697358da3a3db0d02084fd6b2c423b02e20 \
         ab20fa73eba66b244ed2ea9ead918770e05d9b254b7f99c86c30d274e2c584b451502ef723834dd35a255f145dd6e15b93e5 \
         b3708bee5bb3aee2aedfd8926a7eeb199c404591320910ecb5b0647c4b73f66a128ae85440a50c57ca2090bdf39da2c3fb7d \
         40ded8f5";

    /// Made with Python's hashlib and openssl: 2^10 rounds.
    const PBKDF2: &str = "\
         544f52424f58303012016465666768696a6b6c6d6e6f707172730ac8c9cacbcccdcecfd0d1d2d3d4d5d6d705381abde6f5de \
         92f887ed738d7d288b2a708945db7d43dcf4e3207878232d12e097dea43b7e1841106eeb58ce59f1376e27e7193966aceefb \
         9efc4edaf4161216230aa0a35ff0455eb881110a454c48938775748506ab9a9c6834b7543ab2b47a32af6fd1845b5a323280 \
         7324d20fea9963a5c6d00cf0afc375e275e5d136df033530c8c767e64bc71bc0cc49b75322023c5f4501933c13a50fbcf10e \
         3e32f0";

    #[test]
    fn boxes_of_others_open_by_each_way_of_stretching() {
        let secret: Vec<u8> = (0..64).collect();
        for sealed in [SCRYPT, PBKDF2] {
            let sealed = unhex(sealed);
            assert_eq!(open(&sealed, b"a passphrase"), Ok(secret.clone()));
            assert_eq!(open(&sealed, b"another"), Err(PwboxError::BadSecret));
        }
        // What Debian's tor writes is opened in tests/ctor_keys.rs.
    }

    #[test]
    fn a_box_opens_by_its_passphrase_and_no_other() {
        let sealed = seal_with(&[7; 64], b"secret", 4, &mut rng(1)).unwrap();
        assert_eq!(open(&sealed, b"secret"), Ok(vec![7; 64]));
        assert_eq!(sealed.len(), 8 + 1 + 18 + 16 + 128 + 32);
        for wrong in [&b""[..], b"secre", b"secret\n", b"Secret"] {
            assert_eq!(open(&sealed, wrong), Err(PwboxError::BadSecret));
        }
    }

    #[test]
    fn any_changed_byte_is_noticed() {
        let sealed = seal_with(&[7; 64], b"secret", 1, &mut rng(2)).unwrap();
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(open(&changed, b"secret").is_err(), "byte {at}");
            assert!(open(&sealed[..at], b"secret").is_err(), "cut at {at}");
        }
    }

    #[test]
    fn a_box_that_asks_for_hours_of_work_is_refused() {
        let with_header = |header: &[u8]| {
            let len = [header.len() as u8];
            [MAGIC.as_slice(), &len, header, &[0; 16 + 128 + 32]].concat()
        };
        let pbkdf2 = |log_rounds| with_header(&[&[1], &[0; 16][..], &[log_rounds]].concat());
        let scrypt = |log_n, log_rp| with_header(&[&[2], &[0; 16][..], &[log_n, log_rp]].concat());
        assert!(Pwbox::parse(&pbkdf2(17)).is_ok() && Pwbox::parse(&scrypt(15, 0x31)).is_ok());
        for sealed in [pbkdf2(31), pbkdf2(255), scrypt(63, 0x31), scrypt(15, 0xff)] {
            assert_eq!(Pwbox::parse(&sealed).unwrap_err(), PwboxError::Corrupted);
        }
        for header in [&[][..], &[3; 18], &[0; 8], &[1; 17], &[2; 18]] {
            assert!(Pwbox::parse(&with_header(header)).is_err(), "{header:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_box_or_an_error(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            magic in any::<bool>(),
        ) {
            let bytes = if magic { [MAGIC.as_slice(), &bytes].concat() } else { bytes };
            let _ = Pwbox::parse(&bytes);
        }
    }
}
