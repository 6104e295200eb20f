//! Cutting a link's byte stream into cells, and writing variable-length ones.
//!
//! The decrypted bytes of a link lie in one buffer; [`next`] looks at its start
//! and returns the cell there and how many bytes it takes. Nothing is copied.

use tor_cell::chancell::ChanCmd;

use crate::cell::{CELL_LEN, CellView};

/// Most bytes of versions that a VERSIONS cell may carry: 256 versions, where
/// five exist.
pub const MAX_VERSIONS_LEN: usize = 512;

/// Most bytes that may come before a link's VERSIONS cell (VPADDING and
/// AUTHORIZE cells, tor-spec 4; none is sent today).
pub(crate) const MAX_BEFORE_VERSIONS: usize = 4096;

/// A cell where it lies in a link's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A cell of 514 bytes.
    Fixed(CellView<'a>),
    /// A cell that carries its own length.
    Variable {
        /// 0 in every variable-length cell that exists.
        circ_id: u32,
        /// 7 (VERSIONS) or 128 and above.
        command: ChanCmd,
        /// The bytes after the length.
        body: &'a [u8],
    },
}

/// The stream cannot be, or become, a sequence of cells; the link must close.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A variable-length cell longer than is accepted, or than can be written.
    #[error("variable-length cell {command} has {len} bytes of body (at most {max})")]
    TooLong {
        /// The cell's command.
        command: ChanCmd,
        /// Its body's length in bytes.
        len: usize,
        /// The longest body that was acceptable here, in bytes.
        max: usize,
    },
    /// The link opened with something else than VERSIONS.
    #[error("link opens with cell {command}, not with VERSIONS; the peer may not be speaking Tor")]
    NotVersions {
        /// The command found.
        command: ChanCmd,
    },
    /// Too much came before VERSIONS.
    #[error("more than {MAX_BEFORE_VERSIONS} bytes before the VERSIONS cell")]
    TooMuchBeforeVersions,
    /// A VERSIONS cell that is not a list of 2-byte numbers.
    #[error("VERSIONS cell has an odd length of {0} bytes")]
    OddVersions(usize),
}

/// The cell at the start of `buf`, and how many bytes it takes there.
///
/// `None`: the cell is not complete, read more. A variable-length cell whose
/// length field is more than `max_variable` is refused as soon as that field is
/// there, so that a buffer of `max_variable + 7` or 514 bytes, whichever is more,
/// always suffices.
#[inline]
pub fn next(buf: &[u8], max_variable: usize) -> Result<Option<(Frame<'_>, usize)>, FrameError> {
    let [c0, c1, c2, c3, command, after_command @ ..] = buf else {
        return Ok(None);
    };
    let command = ChanCmd::from(*command);
    if !command.is_var_cell() {
        return Ok(buf
            .first_chunk::<CELL_LEN>()
            .map(|cell| (Frame::Fixed(CellView::new(cell)), CELL_LEN)));
    }
    let Some((body, body_len)) = variable_body(command, after_command, max_variable)? else {
        return Ok(None);
    };
    let frame = Frame::Variable {
        circ_id: u32::from_be_bytes([*c0, *c1, *c2, *c3]),
        command,
        body,
    };
    Ok(Some((frame, WIDE_HEADER_LEN + body_len)))
}

/// Circuit id of 4 bytes, command, length of 2 bytes.
const WIDE_HEADER_LEN: usize = 7;
/// Circuit id of 2 bytes, command, length of 2 bytes: until versions are known.
const NARROW_HEADER_LEN: usize = 5;

/// The body of a variable-length cell, from the bytes after its command.
fn variable_body(
    command: ChanCmd,
    after_command: &[u8],
    max: usize,
) -> Result<Option<(&[u8], usize)>, FrameError> {
    let [l0, l1, rest @ ..] = after_command else {
        return Ok(None);
    };
    let len = usize::from(u16::from_be_bytes([*l0, *l1]));
    if len > max {
        return Err(FrameError::TooLong { command, len, max });
    }
    Ok(rest.get(..len).map(|body| (body, len)))
}

/// If `buf` is the beginning of an incomplete variable-length cell: how many bytes are missing. For links
/// where no such cell is of use, so that its bytes need not be kept.
pub fn missing_of_variable(buf: &[u8]) -> Option<usize> {
    let (_, rest) = buf.split_first_chunk::<{ crate::cell::CIRC_ID_LEN }>()?;
    let ([command], rest) = rest.split_first_chunk::<1>()?;
    let (length, body) = rest.split_first_chunk::<2>()?;
    if !ChanCmd::from(*command).is_var_cell() {
        return None;
    }
    usize::from(u16::from_be_bytes(*length))
        .checked_sub(body.len())
        .filter(|missing| *missing > 0)
}

/// The command of the cell whose beginning `buf` is.
pub fn command_of(buf: &[u8]) -> Option<ChanCmd> {
    let (_, rest) = buf.split_first_chunk::<{ crate::cell::CIRC_ID_LEN }>()?;
    rest.first().map(|command| ChanCmd::from(*command))
}

/// The versions that a peer's first cell lists, in its order, and how many bytes
/// have been consumed.
///
/// A link's first cell is VERSIONS, with a 2-byte circuit id (tor-spec 3, 4.1).
/// VPADDING and AUTHORIZE cells may come before it (tor-spec 4); they are skipped
/// and counted into the bytes consumed, because the transcripts that AUTHENTICATE
/// signs contain them (tor-spec 4.4.1). `None`: read more; never more than
/// [`MAX_BEFORE_VERSIONS`] + 5 + [`MAX_VERSIONS_LEN`] bytes in all.
pub fn next_versions(buf: &[u8]) -> Result<Option<(Vec<u16>, usize)>, FrameError> {
    let mut consumed = 0;
    loop {
        let Some([_, _, command, after_command @ ..]) = buf.get(consumed..) else {
            return Ok(None);
        };
        let command = ChanCmd::from(*command);
        match command {
            ChanCmd::VERSIONS => {
                let body = variable_body(command, after_command, MAX_VERSIONS_LEN)?;
                let Some((body, len)) = body else {
                    return Ok(None);
                };
                let (pairs, []) = body.as_chunks::<2>() else {
                    return Err(FrameError::OddVersions(len));
                };
                let versions = pairs.iter().copied().map(u16::from_be_bytes).collect();
                return Ok(Some((versions, consumed + NARROW_HEADER_LEN + len)));
            }
            ChanCmd::VPADDING | ChanCmd::AUTHORIZE => {
                let [l0, l1, ..] = after_command else {
                    return Ok(None);
                };
                // The length is checked before the body has come, so that no
                // buffer has to hold more than the bound.
                consumed += NARROW_HEADER_LEN + usize::from(u16::from_be_bytes([*l0, *l1]));
                if consumed > MAX_BEFORE_VERSIONS {
                    return Err(FrameError::TooMuchBeforeVersions);
                }
            }
            _ => return Err(FrameError::NotVersions { command }),
        }
    }
}

/// Appends a VERSIONS cell as a link's first cell: with a 2-byte circuit id of 0.
pub fn encode_versions(versions: &[u16], out: &mut Vec<u8>) -> Result<(), FrameError> {
    let command = ChanCmd::VERSIONS;
    let len = length_field(command, versions.len().saturating_mul(2), MAX_VERSIONS_LEN)?;
    out.extend_from_slice(&[0, 0, u8::from(command)]);
    out.extend_from_slice(&len.to_be_bytes());
    for version in versions {
        out.extend_from_slice(&version.to_be_bytes());
    }
    Ok(())
}

/// Appends a variable-length cell with a 4-byte circuit id.
pub fn encode_variable(
    circ_id: u32,
    command: ChanCmd,
    body: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), FrameError> {
    let len = length_field(command, body.len(), usize::from(u16::MAX))?;
    out.reserve(WIDE_HEADER_LEN + body.len());
    out.extend_from_slice(&circ_id.to_be_bytes());
    out.push(u8::from(command));
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(body);
    Ok(())
}

fn length_field(command: ChanCmd, len: usize, max: usize) -> Result<u16, FrameError> {
    match u16::try_from(len) {
        Ok(field) if len <= max => Ok(field),
        _ => Err(FrameError::TooLong { command, len, max }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::{BODY_LEN, Cell};
    use proptest::prelude::*;

    const MAX: usize = 1000;

    #[test]
    fn what_is_missing_of_a_variable_cell_is_known_from_its_beginning() {
        let mut cell = Vec::new();
        encode_variable(0, ChanCmd::VPADDING, &[7; 300], &mut cell).unwrap();
        assert_eq!(missing_of_variable(&cell[..7]), Some(300));
        assert_eq!(command_of(&cell[..5]), Some(ChanCmd::VPADDING));
        assert_eq!(command_of(&cell[..4]), None);
        assert_eq!(missing_of_variable(&cell[..100]), Some(207));
        // Whole, too short to know, or of fixed length.
        assert_eq!(missing_of_variable(&cell), None);
        assert_eq!(missing_of_variable(&cell[..6]), None);
        assert_eq!(missing_of_variable(&[0; 100]), None);
    }

    #[test]
    fn versions_cell_as_c_tor_sends_it() {
        // C tor 0.4.9's first VERSIONS: 3, 4 and 5.
        let wire = [0, 0, 7, 0, 6, 0, 3, 0, 4, 0, 5];
        assert_eq!(next_versions(&wire), Ok(Some((vec![3, 4, 5], 11))));
        let mut ours = Vec::new();
        encode_versions(&[3, 4, 5], &mut ours).unwrap();
        assert_eq!(ours, wire);
    }

    #[test]
    fn versions_may_be_preceded_by_padding_and_followed_by_cells() {
        let mut wire = vec![0, 0, 128, 0, 3, 9, 9, 9, 0, 0, 132, 0, 0];
        let before = wire.len();
        wire.extend([0, 0, 7, 0, 2, 0, 5, 0xff, 0xff]);
        for cut in 0..before + 7 {
            assert_eq!(next_versions(&wire[..cut]), Ok(None), "cut at {cut}");
        }
        assert_eq!(next_versions(&wire), Ok(Some((vec![5], before + 7))));
    }

    #[test]
    fn a_link_that_does_not_open_with_versions_is_refused_at_once() {
        let command = ChanCmd::from(b'T');
        assert_eq!(
            next_versions(b"GET"),
            Err(FrameError::NotVersions { command })
        );
        assert_eq!(
            next_versions(&[0, 0, 7, 0, 3, 0, 4, 0]),
            Err(FrameError::OddVersions(3))
        );
        assert!(matches!(
            next_versions(&[0, 0, 7, 2, 2]),
            Err(FrameError::TooLong { len: 514, .. })
        ));
        assert_eq!(
            next_versions(&[0, 0, 128, 0x10, 0]),
            Err(FrameError::TooMuchBeforeVersions)
        );
    }

    #[test]
    fn what_comes_before_versions_is_bounded_to_the_byte() {
        for (len, fits) in [
            (MAX_BEFORE_VERSIONS - 1, true),
            (MAX_BEFORE_VERSIONS, true),
            (MAX_BEFORE_VERSIONS + 1, false),
        ] {
            // Two cells, so that it is their sum which is bounded.
            let second = len - NARROW_HEADER_LEN - 100;
            let mut wire = vec![0, 0, 128, 0, 95];
            wire.resize(100, 0);
            wire.extend([0, 0, 128]);
            wire.extend((second as u16).to_be_bytes());
            wire.resize(len, 0);
            wire.extend([0, 0, 7, 0, 2, 0, 5]);
            let expected = match fits {
                true => Ok(Some((vec![5], len + 7))),
                false => Err(FrameError::TooMuchBeforeVersions),
            };
            assert_eq!(next_versions(&wire), expected, "{len} bytes");
        }
    }

    #[test]
    fn an_empty_versions_cell_lists_nothing() {
        assert_eq!(next_versions(&[0, 0, 7, 0, 0]), Ok(Some((vec![], 5))));
    }

    #[test]
    fn fixed_and_variable_cells_differ_by_command() {
        let mut wire = Vec::new();
        wire.extend_from_slice(Cell::new(5, ChanCmd::NETINFO).as_bytes());
        wire.extend([0, 0, 0, 0, 129, 0, 2, 0xab, 0xcd]);
        wire.extend_from_slice(Cell::new(6, ChanCmd::from(127)).as_bytes());
        let (first, used) = next(&wire, MAX).unwrap().unwrap();
        let Frame::Fixed(view) = first else {
            panic!("{first:?}")
        };
        assert_eq!(
            (view.circ_id(), view.command(), used),
            (5, ChanCmd::NETINFO, CELL_LEN)
        );
        let (second, used2) = next(&wire[used..], MAX).unwrap().unwrap();
        assert_eq!(
            second,
            Frame::Variable {
                circ_id: 0,
                command: ChanCmd::CERTS,
                body: &[0xab, 0xcd]
            }
        );
        assert_eq!(used2, 9);
        let (third, _) = next(&wire[used + used2..], MAX).unwrap().unwrap();
        assert!(matches!(third, Frame::Fixed(view) if view.circ_id() == 6));
    }

    #[test]
    fn a_too_long_cell_is_refused_before_its_body_arrives() {
        let header = [0, 0, 0, 0, 129, 0x03, 0xe9];
        assert_eq!(next(&header[..6], MAX), Ok(None));
        assert_eq!(
            next(&header, MAX),
            Err(FrameError::TooLong {
                command: ChanCmd::CERTS,
                len: 1001,
                max: MAX
            })
        );
    }

    #[test]
    fn what_cannot_be_written_is_an_error_and_writes_nothing() {
        let mut out = Vec::new();
        assert!(encode_variable(0, ChanCmd::CERTS, &[0; 65536], &mut out).is_err());
        assert!(encode_versions(&[4; 257], &mut out).is_err());
        assert!(out.is_empty());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic_and_views_stay_inside(
            buf in proptest::collection::vec(any::<u8>(), 0..1200),
            max in 0usize..1200,
        ) {
            if let Ok(Some((frame, used))) = next(&buf, max) {
                prop_assert!(used <= buf.len());
                match frame {
                    Frame::Fixed(view) => prop_assert_eq!(&view.as_bytes()[..], &buf[..used]),
                    Frame::Variable { body, .. } => {
                        prop_assert!(body.len() <= max);
                        prop_assert_eq!(body, &buf[7..used]);
                    }
                }
            }
            if let Ok(Some((_, used))) = next_versions(&buf) {
                prop_assert!(used <= buf.len());
            }
        }

        #[test]
        fn a_stream_of_cells_is_cut_where_it_was_joined(
            cells in proptest::collection::vec(
                (any::<u32>(), any::<u8>(), proptest::collection::vec(any::<u8>(), 0..MAX)), 0..8),
        ) {
            let mut wire = Vec::new();
            for (circ_id, command, body) in &cells {
                let command = ChanCmd::from(*command);
                if command.is_var_cell() {
                    encode_variable(*circ_id, command, body, &mut wire).unwrap();
                } else {
                    let mut cell = Cell::new(*circ_id, command);
                    let len = body.len().min(BODY_LEN);
                    cell.body_mut()[..len].copy_from_slice(&body[..len]);
                    wire.extend_from_slice(cell.as_bytes());
                }
            }
            let mut rest = &wire[..];
            for (circ_id, command, body) in &cells {
                let (frame, used) = next(rest, MAX).unwrap().unwrap();
                // One byte less is never a whole cell.
                prop_assert_eq!(next(&rest[..used - 1], MAX), Ok(None));
                match frame {
                    Frame::Fixed(view) => {
                        prop_assert_eq!((view.circ_id(), u8::from(view.command())), (*circ_id, *command));
                        let len = body.len().min(BODY_LEN);
                        prop_assert_eq!(&view.body()[..len], &body[..len]);
                    }
                    Frame::Variable { circ_id: c, command: k, body: b } => {
                        prop_assert_eq!((c, u8::from(k), b), (*circ_id, *command, &body[..]));
                    }
                }
                rest = &rest[used..];
            }
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn versions_round_trip(versions in proptest::collection::vec(any::<u16>(), 0..=256)) {
            let mut wire = Vec::new();
            encode_versions(&versions, &mut wire).unwrap();
            let len = wire.len();
            prop_assert_eq!(next_versions(&wire), Ok(Some((versions, len))));
        }
    }
}
