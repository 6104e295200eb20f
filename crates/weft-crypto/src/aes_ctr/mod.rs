//! AES in counter mode with a zero initial counter, as Tor uses it everywhere.
//!
//! This is the hot path of a relay: every cell is one pass of it. It stands
//! behind these two types so that the implementation can be exchanged without
//! touching anything else. Where the processor has wide AES instructions
//! ([`wide`]) a pass costs half of what it costs by the portable
//! implementation, RustCrypto's, which uses AES-NI or its ARM equal.

#[cfg(target_arch = "x86_64")]
mod wide;

use cipher::{KeyIvInit, StreamCipher, StreamCipherSeek as _};

/// A running AES-128-CTR key stream: one direction of one hop (tor-spec 0.3).
///
/// Wiped when dropped.
#[derive(Clone)]
pub(crate) struct Aes128Ctr(Stream);

/// The implementation that this processor runs.
#[derive(Clone)]
enum Stream {
    #[cfg(target_arch = "x86_64")]
    Wide(wide::Wide),
    // Boxed: it has room for a software schedule, four times as much as `Wide`.
    Portable(Box<Portable>),
}

/// RustCrypto's. Only the encryption half of the key schedule is kept (counter
/// mode never decrypts), which halves the bytes per circuit.
type Portable = ctr::Ctr128BE<aes::Aes128Enc>;

impl Aes128Ctr {
    /// Starts the key stream of `key` at counter zero.
    pub(crate) fn new(key: &[u8; 16]) -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(wide) = wide::Wide::new(key) {
            return Self(Stream::Wide(wide));
        }
        Self(Stream::Portable(Box::new(portable(key))))
    }

    /// Adds the next `data.len()` bytes of key stream to `data`, in place.
    #[inline]
    pub(crate) fn apply(&mut self, data: &mut [u8]) {
        match &mut self.0 {
            #[cfg(target_arch = "x86_64")]
            Stream::Wide(stream) => stream.apply(data),
            Stream::Portable(stream) => portable_pass(stream, data),
        }
    }

    /// Bytes of key stream used.
    pub(crate) fn position(&self) -> u64 {
        match &self.0 {
            #[cfg(target_arch = "x86_64")]
            Stream::Wide(stream) => stream.position(),
            // It fits: a circuit never sees 2⁶⁴ bytes.
            Stream::Portable(stream) => stream.try_current_pos().unwrap_or(u64::MAX),
        }
    }

    /// Adds the next `N` bytes of key stream to `from` and writes the sum to `to`.
    #[inline]
    pub(crate) fn apply_to<const N: usize>(&mut self, from: &[u8; N], to: &mut [u8; N]) {
        match &mut self.0 {
            #[cfg(target_arch = "x86_64")]
            Stream::Wide(stream) => stream.apply_to(from, to),
            Stream::Portable(stream) => {
                *to = *from;
                portable_pass(stream, to);
            }
        }
    }
}

/// One pass by the portable implementation. The only call of RustCrypto's pass, and not inlined itself:
/// so that one is inlined here, wherever the callers are (50 instructions a cell).
#[inline(never)]
fn portable_pass(stream: &mut Portable, data: &mut [u8]) {
    stream.apply_keystream(data);
}

/// See [`Portable`].
fn portable(key: &[u8; 16]) -> Portable {
    Portable::new(key.into(), &[0; 16].into())
}

/// Adds the AES-256-CTR key stream of `key`, from its start, to `data`:
/// the one-message cipher of ntor-v3 (proposal 332).
pub(crate) fn aes256_ctr(key: &[u8; 32], data: &mut [u8]) {
    ctr::Ctr128BE::<aes::Aes256Enc>::new(key.into(), &[0; 16].into()).apply_keystream(data);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NIST SP 800-38A F.5.1 uses a non-zero counter; with a zero one, the
    /// first key stream block is the encryption of the zero block (FIPS 197
    /// style known answer: AES-128, zero key).
    #[test]
    fn zero_key_gives_the_known_first_blocks() {
        // This processor's implementation, and the one that every processor has.
        let portable = Aes128Ctr(Stream::Portable(Box::new(portable(&[0; 16]))));
        for mut stream in [Aes128Ctr::new(&[0; 16]), portable] {
            let mut data = [0; 32];
            // Uneven pieces: the stream continues where it stopped.
            let (first, second) = data.split_at_mut(13);
            stream.apply(first);
            let mut moved = [0; 19];
            stream.clone().apply_to(&[0; 19], &mut moved);
            stream.apply(second);
            assert_eq!(second, moved);
            assert_eq!(stream.position(), 32);
            assert_eq!(
                hex::encode(data),
                "66e94bd4ef8a2c3b884cfa59ca342b2e58e2fccefa7e3061367f1d57a4e7455a"
            );
        }
    }

    #[test]
    fn this_processors_implementation_is_the_portable_one_at_every_offset() {
        let key: [u8; 16] = std::array::from_fn(|i| u8::try_from(7 * i + 1).unwrap());
        let (mut ours, mut reference) = (Aes128Ctr::new(&key), portable(&key));
        if matches!(ours.0, Stream::Portable(_)) {
            weft_testing::not_run!(
                "this processor has no VAES and AVX-512: only the portable AES-CTR is there"
            );
            return;
        }
        // Every length up to more than a pass, so that pieces begin at every offset in a block.
        for length in (0..700).chain([509; 64]).chain([5000, 1, 65_536]) {
            let mut data: Vec<u8> = (0..length)
                .map(|i| u8::try_from(i % 251).unwrap())
                .collect();
            let mut expected = data.clone();
            ours.apply(&mut data);
            reference.apply_keystream(&mut expected);
            assert_eq!(data, expected, "after {length} bytes");
        }
        for round in 0..64 {
            let from = [round; 509];
            let (mut to, mut expected) = ([0; 509], from);
            ours.apply_to(&from, &mut to);
            reference.apply_keystream(&mut expected);
            assert_eq!(to, expected, "cell {round}");
            let position: u64 = reference.try_current_pos().unwrap();
            assert_eq!(ours.position(), position);
        }
    }

    #[test]
    fn aes256_zero_key_gives_the_known_first_block() {
        let mut data = [0; 16];
        aes256_ctr(&[0; 32], &mut data);
        assert_eq!(hex::encode(data), "dc95c078a2408989ad48a21492842087");
    }
}
