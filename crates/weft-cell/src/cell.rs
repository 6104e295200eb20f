//! One fixed-length cell: owned ([`Cell`]) and borrowed ([`CellView`]).
//!
//! Layout (tor-spec 3, link protocol 4 and later): circuit id 4 bytes, command
//! 1 byte, body 509 bytes.

use std::fmt;

use tor_cell::chancell::ChanCmd;

/// Bytes of a fixed-length cell on the wire.
pub const CELL_LEN: usize = 514;
/// Bytes of a fixed-length cell's body (PAYLOAD_LEN in tor-spec 0.2).
pub const BODY_LEN: usize = 509;
/// Bytes of a circuit id (CIRCID_LEN for link protocol 4 and later).
pub(crate) const CIRC_ID_LEN: usize = 4;

/// The body of a fixed-length cell.
pub type Body = [u8; BODY_LEN];

/// One fixed-length cell, owned, as on the wire.
#[derive(Clone, PartialEq, Eq)]
pub struct Cell([u8; CELL_LEN]);

impl Cell {
    /// A cell with a body of zeros.
    pub fn new(circ_id: u32, command: ChanCmd) -> Self {
        let mut cell = Cell([0; CELL_LEN]);
        cell.set_circ_id(circ_id);
        cell.set_command(command);
        cell
    }

    /// The cell that these bytes are. Every 514 bytes are a cell.
    pub fn from_bytes(bytes: [u8; CELL_LEN]) -> Self {
        Cell(bytes)
    }

    /// The circuit on this link that the cell belongs to; 0 for the link itself.
    pub fn circ_id(&self) -> u32 {
        self.view().circ_id()
    }

    /// Moves the cell to another circuit.
    pub fn set_circ_id(&mut self, circ_id: u32) {
        let [c0, c1, c2, c3, ..] = &mut self.0;
        [*c0, *c1, *c2, *c3] = circ_id.to_be_bytes();
    }

    /// Command of the cell.
    pub fn command(&self) -> ChanCmd {
        self.view().command()
    }

    /// Changes what the cell is for (RELAY_EARLY passed on as RELAY).
    pub fn set_command(&mut self, command: ChanCmd) {
        let [_, _, _, _, byte, ..] = &mut self.0;
        *byte = u8::from(command);
    }

    /// The 509 bytes after the command.
    pub fn body(&self) -> &Body {
        self.view().body()
    }

    /// The 509 bytes after the command, to be encrypted or written in place.
    pub fn body_mut(&mut self) -> &mut Body {
        let [_, _, _, _, _, body @ ..] = &mut self.0;
        body
    }

    /// The cell as sent.
    pub fn as_bytes(&self) -> &[u8; CELL_LEN] {
        &self.0
    }

    /// The cell as sent, to be read into.
    pub fn as_bytes_mut(&mut self) -> &mut [u8; CELL_LEN] {
        &mut self.0
    }

    /// This cell, borrowed.
    pub fn view(&self) -> CellView<'_> {
        CellView(&self.0)
    }
}

impl From<&[u8; CELL_LEN]> for Cell {
    fn from(bytes: &[u8; CELL_LEN]) -> Self {
        Cell(*bytes)
    }
}

impl From<CellView<'_>> for Cell {
    fn from(view: CellView<'_>) -> Self {
        Cell(*view.0)
    }
}

impl fmt::Debug for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view().fmt(f)
    }
}

/// One fixed-length cell where it lies in a buffer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CellView<'a>(&'a [u8; CELL_LEN]);

impl<'a> CellView<'a> {
    /// Views these bytes as a cell. Every 514 bytes are one.
    pub fn new(bytes: &'a [u8; CELL_LEN]) -> Self {
        CellView(bytes)
    }

    /// The circuit on this link that the cell belongs to; 0 for the link itself.
    pub fn circ_id(self) -> u32 {
        let [c0, c1, c2, c3, ..] = *self.0;
        u32::from_be_bytes([c0, c1, c2, c3])
    }

    /// Command of the cell.
    pub fn command(self) -> ChanCmd {
        let [_, _, _, _, command, ..] = *self.0;
        ChanCmd::from(command)
    }

    /// The 509 bytes after the command.
    pub fn body(self) -> &'a Body {
        let [_, _, _, _, _, body @ ..] = self.0;
        body
    }

    /// The cell as received.
    pub fn as_bytes(self) -> &'a [u8; CELL_LEN] {
        self.0
    }
}

/// Circuit id and command only: bodies are private to their circuits.
impl fmt::Debug for CellView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Cell(circuit {:#010x}, {})",
            self.circ_id(),
            self.command()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bytes_are_read_into_a_cell_where_it_lies() {
        let bytes: [u8; CELL_LEN] = std::array::from_fn(|at| (at % 251) as u8);
        let mut cell = Cell::new(1, ChanCmd::RELAY);
        *cell.as_bytes_mut() = bytes;
        assert_eq!(cell.as_bytes(), &bytes);
        assert_eq!(cell.circ_id(), u32::from_be_bytes([0, 1, 2, 3]));
    }

    #[test]
    fn layout_is_circuit_id_command_body() {
        let mut cell = Cell::new(0x8000_0102, ChanCmd::RELAY_EARLY);
        cell.body_mut()[0] = 0xaa;
        cell.body_mut()[BODY_LEN - 1] = 0xbb;
        assert_eq!(
            cell.as_bytes()[..7],
            [0x80, 0x00, 0x01, 0x02, 9, 0xaa, 0x00]
        );
        assert_eq!(cell.as_bytes()[CELL_LEN - 1], 0xbb);
        assert_eq!(CIRC_ID_LEN + 1 + BODY_LEN, CELL_LEN);
    }

    #[test]
    fn debug_shows_no_body() {
        let mut cell = Cell::new(1, ChanCmd::RELAY);
        cell.body_mut().fill(0x77);
        assert_eq!(format!("{cell:?}"), "Cell(circuit 0x00000001, RELAY)");
    }

    proptest! {
        #[test]
        fn every_514_bytes_are_a_cell(bytes in proptest::collection::vec(any::<u8>(), CELL_LEN)) {
            let bytes: [u8; CELL_LEN] = bytes.try_into().unwrap();
            let view = CellView::new(&bytes);
            let mut copy = Cell::new(view.circ_id(), view.command());
            *copy.body_mut() = *view.body();
            prop_assert_eq!(&copy, &Cell::from(view));
            prop_assert_eq!(copy.as_bytes(), &bytes);
            prop_assert_eq!(Cell::from(&bytes), Cell::from_bytes(bytes));
        }

        #[test]
        fn setters_touch_only_their_field(circ in any::<u32>(), other in any::<u32>(), cmd in any::<u8>()) {
            let mut cell = Cell::new(circ, ChanCmd::RELAY);
            cell.body_mut().fill(0x5a);
            cell.set_circ_id(other);
            cell.set_command(ChanCmd::from(cmd));
            prop_assert_eq!(cell.circ_id(), other);
            prop_assert_eq!(u8::from(cell.command()), cmd);
            prop_assert_eq!(cell.body(), &[0x5a; BODY_LEN]);
        }
    }
}
