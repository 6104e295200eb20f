//! Link TLS as bytes: records around cells, and the flights of a link's handshake. Nothing is encrypted; sizes and round trips
//! are those of the real thing.

use std::collections::VecDeque;

use weft_cell::CELL_LEN;
use weft_cell::Cell;
use weft_core::memory::cells::Empties;

/// A record's header.
pub(super) const HEADER: usize = 5;
/// Bytes that encryption appends: the content type and the tag.
const TRAILER: usize = 17;
/// Cells in one record at most, as a node writes them (`weft-node/src/thread/connection.rs`).
pub(super) const CELLS: usize = 31;

/// Content of the flights, one after another: ClientHello; ServerHello to Finished; Finished and VERSIONS; VERSIONS, CERTS, AUTH_CHALLENGE,
/// NETINFO and session tickets; CERTS, AUTHENTICATE and NETINFO (a client sends NETINFO alone, which is shorter: nothing waits for the rest).
pub(super) const HELLO: usize = 290;
pub(super) const SERVER_HELLO: usize = 1_250;
pub(super) const VERSIONS: usize = 110;
pub(super) const RESPONSE: usize = 2_500;
pub(super) const NETINFO: usize = 2_300;

/// Appends a record with so many bytes of nothing.
pub(super) fn put_flight(out: &mut Vec<u8>, length: usize) {
    put_header(out, length);
    out.resize(out.len() + length + TRAILER, 0);
}

/// Appends a record with these bytes, as a hostile node does.
pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_header(out, bytes.len());
    out.extend_from_slice(bytes);
    out.resize(out.len() + TRAILER, 0);
}

/// Moves so many cells at most, [`CELLS`] or fewer, into a record at the end of `out`, and their boxes to `spent`. How many
/// they were.
pub(super) fn put_cells(
    out: &mut Vec<u8>,
    cells: &mut VecDeque<Box<Cell>>,
    most: usize,
    spent: &mut Empties,
) -> usize {
    let count = cells.len().min(CELLS).min(most);
    if count == 0 {
        return 0;
    }
    put_header(out, count * CELL_LEN);
    for cell in cells.drain(..count) {
        out.extend_from_slice(cell.as_bytes());
        spent.push(cell);
    }
    out.resize(out.len() + TRAILER, 0);
    count
}

fn put_header(out: &mut Vec<u8>, length: usize) {
    let whole = u16::try_from(length + TRAILER).unwrap_or(u16::MAX);
    out.extend([23, 3, 3]);
    out.extend(whole.to_be_bytes());
}

/// Total length of the record that begins so; `None` if its header is incomplete.
pub(super) fn length(begin: &[u8]) -> Option<usize> {
    let length = begin.get(3..HEADER)?;
    let length = length
        .iter()
        .fold(0, |sum, byte| (sum << 8) | usize::from(*byte));
    Some(HEADER + length)
}

/// The content of a record of this length; `None`: it has not all come.
pub(super) fn content(bytes: &[u8], length: usize) -> Option<&[u8]> {
    let content = bytes.get(HEADER..length)?;
    content.get(..content.len().saturating_sub(TRAILER))
}

/// Makes room for records with so many cells, which are not there for long.
pub(super) fn reserve(out: &mut Vec<u8>, cells: usize) {
    out.reserve_exact(cells * CELL_LEN + cells.div_ceil(CELLS) * (HEADER + TRAILER));
}

#[cfg(test)]
mod tests {
    use weft_cell::ChanCmd;

    use super::*;

    #[test]
    fn a_record_comes_out_as_it_went_in() {
        let boxed = |id| Box::new(Cell::new(id, ChanCmd::RELAY));
        let mut cells: VecDeque<_> = (0..CELLS as u32 + 2).map(boxed).collect();
        let (mut out, mut spent) = (Vec::new(), Vec::new());
        put_flight(&mut out, HELLO);
        let hello = HELLO + HEADER + TRAILER;
        assert_eq!(
            put_cells(&mut out, &mut cells, usize::MAX, &mut spent),
            CELLS
        );
        assert_eq!((cells.len(), spent.len()), (2, CELLS));
        assert_eq!(length(&out), Some(hello));
        assert_eq!(content(&out, hello).unwrap().len(), HELLO);
        let rest = &out[hello..];
        let length = length(rest).unwrap();
        let whole = content(rest, length).unwrap();
        assert_eq!(whole.len(), CELLS * CELL_LEN);
        assert_eq!(&whole[CELL_LEN..2 * CELL_LEN], spent[1].as_bytes());
        assert_eq!(hello + length, out.len());
        assert!(content(&rest[..length - 1], length).is_none());
        assert!(super::length(&rest[..HEADER - 1]).is_none());
    }
}
