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
