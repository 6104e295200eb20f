//! Bounds the cost of a peer's records beyond the data in them.
//!
//! A KeyUpdate of 27 bytes on the wire costs some 700 times as much CPU as 27 bytes of cells, and
//! an empty record costs as much as one with a cell in it. So the peer pays for everything but data
//! with a credit. The credit begins with a burst, and only bytes of application data refill it. The
//! rule depends on bytes alone, neither on time nor on the order of records, so reordering records
//! gains nothing.

use super::error::RecordError;

/// The most credit, which a new link has, in bytes of application data.
const MOST: usize = 1 << 20;
/// Credit that each record of application data costs, in bytes: a peer that sends less in a record
/// than this on average uses credit up. Cells are 514 bytes, and no honest peer sends them in small
/// pieces for long.
const DATA_RECORD: usize = 64;
/// Credit that each other record costs, in bytes: an alert, a session ticket or a part of one, a
/// record without data. An honest peer sends a few in the life of a link.
const OTHER_RECORD: usize = 1 << 12;
/// Credit that each KeyUpdate costs besides its record, in bytes. Honest peers send one for each
/// 2^23 records or more (RFC 8446 5.5), most never.
const KEY_UPDATE: usize = 1 << 16;

/// A peer's credit for records beyond the data in them.
#[derive(Debug)]
pub(super) struct Overhead {
    credit: usize,
}

impl Overhead {
    /// Of a new link.
    pub(super) fn new() -> Self {
        Overhead { credit: MOST }
    }

    /// Records an arrived record with this number of bytes of application data.
    ///
    /// # Errors
    ///
    /// [`RecordError::Overhead`], as the other two.
    pub(super) fn data(&mut self, bytes: usize) -> Result<(), RecordError> {
        self.credit = (self.credit + bytes).min(MOST);
        self.charge(DATA_RECORD, "small records")
    }

    /// A record without application data came.
    pub(super) fn other_record(&mut self) -> Result<(), RecordError> {
        self.charge(OTHER_RECORD, "records without data")
    }

    /// A KeyUpdate came, in a record that is charged for by itself.
    pub(super) fn key_update(&mut self) -> Result<(), RecordError> {
        self.charge(KEY_UPDATE, "KeyUpdates")
    }

    fn charge(&mut self, cost: usize, what: &'static str) -> Result<(), RecordError> {
        let left = self.credit.checked_sub(cost);
        self.credit = left.ok_or(RecordError::Overhead(what))?;
        Ok(())
    }
}
