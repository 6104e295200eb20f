//! What several fuzz targets share.

/// The first `N` bytes of an input; zeros where it has none.
///
/// Turns inputs of any length into fixed-length bodies, so that short files in the
/// corpus can stand for whole cells.
pub fn zero_padded<const N: usize>(input: &[u8]) -> [u8; N] {
    let mut padded = [0; N];
    for (place, byte) in padded.iter_mut().zip(input) {
        *place = *byte;
    }
    padded
}

/// The rest of an input that is a list of operations. After its end, every byte is zero.
pub struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    /// Begins at the first byte of `input`.
    pub fn new(input: &'a [u8]) -> Self {
        Self(input)
    }

    /// Whether all bytes have been read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    /// A number of three bytes, big-endian.
    pub fn u24(&mut self) -> u32 {
        u32::from_be_bytes([0, self.byte(), self.byte(), self.byte()])
    }

    /// One of `from`, chosen by one byte. That byte is read also when `from` is empty.
    pub fn pick<I>(&mut self, from: I) -> Option<I::Item>
    where
        I: IntoIterator<IntoIter: ExactSizeIterator>,
    {
        let number = usize::from(self.byte());
        let mut from = from.into_iter();
        let length = from.len();
        from.nth(number.checked_rem(length)?)
    }

    /// A byte that is a length, then so many bytes, or those that are left.
    pub fn data(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte()).min(self.0.len());
        let (data, rest) = self.0.split_at(length);
        self.0 = rest;
        data
    }
}
