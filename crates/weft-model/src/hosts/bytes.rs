//! The bytes of a direction of a connection, from the write to the reader's last use of them: pieces as they were written.

use std::collections::VecDeque;

/// Bytes of one write call. The unread ones begin at `from`.
#[derive(Debug)]
struct Piece {
    bytes: Vec<u8>,
    from: usize,
}

impl Piece {
    fn rest(&self) -> &[u8] {
        self.bytes.get(self.from..).unwrap_or_default()
    }
}

/// Bytes in order. Bytes at the front may be *held*: the connection counts them as read, but the
/// reader has not released them.
#[derive(Debug, Default)]
pub(crate) struct Bytes {
    pieces: VecDeque<Piece>,
    length: usize,
    held: usize,
}

impl Bytes {
    /// Bytes that were not read yet.
    pub(crate) fn unread(&self) -> usize {
        self.length - self.held
    }

    /// Adds a piece, which is not copied.
    pub(crate) fn push(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.length += bytes.len();
            self.pieces.push_back(Piece { bytes, from: 0 });
        }
    }

    /// So many more count as read.
    pub(crate) fn hold(&mut self, count: usize) {
        self.held += count.min(self.unread());
    }

    /// The first `wanted` bytes, in one piece; none if fewer are held.
    pub(crate) fn first(&mut self, wanted: usize) -> &[u8] {
        if self.held < wanted {
            return &[];
        }
        let length = self.pieces.front().map_or(0, |piece| piece.rest().len());
        if length < wanted {
            self.join(wanted);
        }
        let front = self.pieces.front();
        front
            .and_then(|piece| piece.rest().get(..wanted))
            .unwrap_or_default()
    }

    /// Makes a piece of the first `wanted` bytes.
    fn join(&mut self, wanted: usize) {
        let mut joined = Vec::with_capacity(wanted);
        while joined.len() < wanted
            && let Some(piece) = self.pieces.front_mut()
        {
            let rest = piece.rest();
            let count = rest.len().min(wanted - joined.len());
            joined.extend_from_slice(rest.get(..count).unwrap_or_default());
            let is_empty = count == rest.len();
            piece.from += count;
            if is_empty {
                self.pieces.pop_front();
            }
        }
        self.pieces.push_front(Piece {
            bytes: joined,
            from: 0,
        });
    }

    /// Lets go of the first `count` bytes that are held.
    pub(crate) fn release(&mut self, count: usize) {
        let mut left = count.min(self.held);
        self.held -= left;
        self.length -= left;
        while left > 0
            && let Some(piece) = self.pieces.front_mut()
        {
            let rest = piece.rest().len();
            if rest > left {
                piece.from += left;
                return;
            }
            left -= rest;
            self.pieces.pop_front();
        }
    }

    /// Hands the first `count` held bytes to `take`, piece by piece, and releases them.
    pub(crate) fn take(&mut self, count: usize, mut take: impl FnMut(&[u8])) {
        let mut left = count.min(self.held);
        for piece in &self.pieces {
            let rest = piece.rest();
            let part = rest.get(..left.min(rest.len())).unwrap_or_default();
            if part.is_empty() {
                break;
            }
            take(part);
            left -= part.len();
        }
        self.release(count);
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt as _, SeedableRng as _};
    use rand_chacha::ChaCha12Rng;

    use super::*;

    #[test]
    fn bytes_leave_in_the_order_in_which_they_came() {
        for seed in 0..50 {
            let mut rng = ChaCha12Rng::seed_from_u64(seed);
            let mut bytes = Bytes::default();
            // All written bytes, and the numbers of read and of released ones.
            let (mut written, mut read, mut gone) = (Vec::new(), 0, 0);
            for _ in 0..500 {
                match rng.random_range(0..5) {
                    0 | 1 => {
                        let piece: Vec<u8> =
                            (0..rng.random_range(0..40)).map(|_| rng.random()).collect();
                        written.extend_from_slice(&piece);
                        bytes.push(piece);
                    }
                    2 => {
                        let count = rng.random_range(0..60);
                        bytes.hold(count);
                        read = written.len().min(read + count);
                    }
                    3 => {
                        let wanted = rng.random_range(0..60);
                        let end = match gone + wanted <= read {
                            true => gone + wanted,
                            false => gone,
                        };
                        assert_eq!(bytes.first(wanted), &written[gone..end], "seed {seed}");
                        let count = rng.random_range(0..60);
                        bytes.release(count);
                        gone = read.min(gone + count);
                    }
                    _ => {
                        let count = rng.random_range(0..60);
                        let end = read.min(gone + count);
                        let mut taken = Vec::new();
                        bytes.take(count, |part| taken.extend_from_slice(part));
                        assert_eq!(taken, &written[gone..end], "seed {seed}");
                        gone = end;
                    }
                }
                assert_eq!(
                    (bytes.unread(), bytes.held),
                    (written.len() - read, read - gone)
                );
            }
        }
    }
}
