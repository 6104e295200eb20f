//! Bytes that wait for a socket, in memory that is given back when they are taken.

/// Empty buffers that a thread keeps for reuse, and the bytes of memory in all of them, at most.
const SPARE_COUNT: usize = 32;
const SPARE_BYTES: usize = 2 << 20;
/// Memory of a buffer that is not given back while something waits in it, at most, however little.
const SLACK: usize = 64 << 10;

/// Empty buffers of one thread. Sockets mostly take all that a turn brought; the few buffers that
/// this needs are passed on, so that an edge without bytes holds no memory and a burst makes none.
#[derive(Debug, Default)]
pub struct Spares {
    /// Empty, each with some memory.
    buffers: Vec<Vec<u8>>,
    /// Capacity of all of them, in bytes.
    bytes: usize,
}

impl Spares {
    /// A buffer, with memory if there is one.
    fn take(&mut self) -> Vec<u8> {
        let buffer = self.buffers.pop().unwrap_or_default();
        self.bytes -= buffer.capacity();
        buffer
    }

    /// Takes a buffer back.
    fn put(&mut self, mut buffer: Vec<u8>) {
        let bytes = self.bytes + buffer.capacity();
        if self.buffers.len() < SPARE_COUNT && bytes <= SPARE_BYTES {
            buffer.clear();
            self.bytes = bytes;
            self.buffers.push(buffer);
        }
    }

    /// Bytes of memory.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes
    }

    /// Gives the memory back.
    pub(crate) fn clear(&mut self) {
        *self = Spares::default();
    }
}

/// Bytes in order, taken from the front.
#[derive(Debug, Default)]
pub struct Bytes {
    /// The bytes already taken, then those that wait.
    bytes: Vec<u8>,
    /// Number of bytes taken.
    taken: usize,
}

impl Bytes {
    /// Number of bytes that wait.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.taken
    }

    /// None waits.
    pub fn is_empty(&self) -> bool {
        self.taken == self.bytes.len()
    }

    /// Adds bytes at the end.
    pub fn push(&mut self, bytes: &[u8], spares: &mut Spares) {
        if self.bytes.capacity() == 0 {
            self.bytes = spares.take();
        }
        // Only when what was taken outweighs what must be moved.
        if self.taken > self.len() && self.taken >= 1 << 16 {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The bytes that wait.
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(self.taken..).unwrap_or_default()
    }

    /// Takes bytes from the front.
    pub fn take(&mut self, count: usize, spares: &mut Spares) {
        self.taken = (self.taken + count).min(self.bytes.len());
        if self.is_empty() {
            self.taken = 0;
            spares.put(std::mem::take(&mut self.bytes));
        } else if self.bytes.capacity() > SLACK && self.len() < self.bytes.capacity() / 4 {
            // The bytes moved are less than a third of those taken before.
            let rest = self.as_slice().to_vec();
            self.bytes = rest;
            self.taken = 0;
        }
    }

    /// Bytes of memory.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_in_order_however_they_are_taken() {
        let (mut bytes, mut spares) = (Bytes::default(), Spares::default());
        let mut expected = 0u32;
        let mut next = 0u32;
        for round in 0..2000u32 {
            for _ in 0..round % 90 {
                bytes.push(&next.to_be_bytes(), &mut spares);
                next += 1;
            }
            for _ in 0..round % 83 {
                if bytes.is_empty() {
                    break;
                }
                let front = bytes.as_slice().first_chunk::<4>().copied();
                assert_eq!(front, Some(expected.to_be_bytes()));
                bytes.take(4, &mut spares);
                expected += 1;
            }
            assert_eq!(bytes.len(), 4 * (next - expected) as usize);
        }
    }

    #[test]
    fn a_buffer_that_is_drained_holds_nothing_and_the_next_burst_uses_its_memory() {
        let (mut first, mut spares) = (Bytes::default(), Spares::default());
        first.push(&[1; 100_000], &mut spares);
        let memory = first.capacity();
        first.take(100_000, &mut spares);
        assert_eq!((first.capacity(), spares.capacity()), (0, memory));
        let mut second = Bytes::default();
        second.push(&[2; 100], &mut spares);
        assert_eq!((second.capacity(), spares.capacity()), (memory, 0));
    }

    #[test]
    fn a_buffer_that_was_long_shrinks_while_the_rest_waits() {
        let (mut bytes, mut spares) = (Bytes::default(), Spares::default());
        bytes.push(&vec![3; 10 << 20], &mut spares);
        for _ in 0..1023 {
            bytes.take(10 << 10, &mut spares);
            assert!(
                bytes.capacity() <= 4 * bytes.len() + SLACK,
                "{}",
                bytes.len()
            );
        }
        assert_eq!(bytes.as_slice(), [3; 10 << 10]);
    }

    #[test]
    fn spare_buffers_are_few_and_small() {
        let mut spares = Spares::default();
        spares.put(vec![0; SPARE_BYTES + 1]);
        assert_eq!(spares.capacity(), 0);
        for _ in 0..100 {
            spares.put(vec![0; 1000]);
        }
        assert_eq!(spares.capacity(), SPARE_COUNT * 1000);
        spares.put(vec![0; SPARE_BYTES]);
        assert!(spares.capacity() <= SPARE_BYTES);
        spares.clear();
        assert_eq!(spares.capacity(), 0);
    }
}
