//! Payload: bytes that are a function of a seed and of their place.
//!
//! Every eight bytes are an output of SplitMix64 (Steele, Lea and Flood 2014) for their number, so
//! that any place can be made or checked without the bytes before it, at several GB/s. They do not
//! repeat, and differ between seeds and directions, so that lost, doubled or swapped bytes are
//! found.

/// Bytes of payload that are generated at a time.
pub(super) const CHUNK: usize = 16 * 1024;

/// One direction of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    seed: u64,
}

impl Pattern {
    /// Payload of the server.
    pub(super) fn down(seed: u64) -> Pattern {
        Pattern {
            seed: mix(seed ^ 0x646f_776e),
        }
    }

    /// Payload of the client.
    pub(super) fn up(seed: u64) -> Pattern {
        Pattern {
            seed: mix(seed ^ 0x7570),
        }
    }

    /// Fills a buffer with the bytes from `place` on.
    pub(super) fn fill(self, place: u64, buffer: &mut [u8]) {
        let mut rest = buffer;
        let mut place = place;
        while !rest.is_empty() {
            if skip(place) == 0 {
                let (words, end) = rest.as_chunks_mut();
                for word in words {
                    *word = self.word(place).to_be_bytes();
                    place = place.wrapping_add(8);
                }
                rest = end;
            }
            let word = self.word(place).to_be_bytes();
            let within = word.get(skip(place)..).unwrap_or_default();
            let count = within.len().min(rest.len());
            let (now, later) = rest.split_at_mut(count);
            now.copy_from_slice(within.get(..count).unwrap_or_default());
            rest = later;
            place = place.wrapping_add(count as u64);
        }
    }

    /// The place of the first byte that is not the one of the pattern from `place` on.
    pub(super) fn difference(self, place: u64, bytes: &[u8]) -> Option<u64> {
        let mut rest = bytes;
        let mut place = place;
        while !rest.is_empty() {
            if skip(place) == 0 {
                // Whole words first: nearly all of the bytes.
                let (words, _) = rest.as_chunks();
                let same = words.iter().zip(0..).take_while(|(word, number)| {
                    let place = place.wrapping_add(8 * number);
                    **word == self.word(place).to_be_bytes()
                });
                let count = 8 * same.count();
                place = place.wrapping_add(count as u64);
                rest = rest.get(count..).unwrap_or_default();
            }
            let word = self.word(place).to_be_bytes();
            let within = word.get(skip(place)..).unwrap_or_default();
            let (now, later) = rest.split_at(within.len().min(rest.len()));
            let equal = now.iter().zip(within).take_while(|(a, b)| a == b).count();
            if equal < now.len() {
                return Some(place.wrapping_add(equal as u64));
            }
            rest = later;
            place = place.wrapping_add(now.len() as u64);
        }
        None
    }

    fn word(self, place: u64) -> u64 {
        let number = (place / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mix(self.seed.wrapping_add(number))
    }
}

/// Where in its word a byte is.
fn skip(place: u64) -> usize {
    usize::try_from(place % 8).unwrap_or(0)
}

/// The finalizer of SplitMix64.
fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_depends_on_its_place_alone() {
        let mut whole = [0; 100];
        Pattern::down(5).fill(0, &mut whole);
        for start in 0..20 {
            let mut part = [0; 33];
            Pattern::down(5).fill(start, &mut part);
            let place = usize::try_from(start).unwrap();
            assert_eq!(part, whole[place..place + 33]);
            assert_eq!(Pattern::down(5).difference(start, &part), None);
            part[7] ^= 1;
            assert_eq!(Pattern::down(5).difference(start, &part), Some(start + 7));
        }
        assert_ne!(Pattern::down(6).difference(0, &whole), None);
        assert_ne!(Pattern::up(5).difference(0, &whole), None);
    }
}
