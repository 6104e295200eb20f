//! Requests that are refused without a circuit: by the maps, or by the rules.

use weft_cell::reason::EndReason;
use weft_core::origin::AppRefusal;
use weft_log::Line;

use crate::events::StreamEnd;

/// A request that is refused without a circuit.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) why: AppRefusal,
    pub(crate) end: StreamEnd,
    pub(crate) line: Line,
    /// The line is logged however many were logged before.
    pub(crate) always: bool,
}

impl Refused {
    pub(crate) fn new(why: AppRefusal, end: StreamEnd, line: Line) -> Self {
        Self {
            why,
            end,
            line,
            always: false,
        }
    }

    pub(crate) fn always(self) -> Self {
        Self {
            always: true,
            ..self
        }
    }

    /// C tor's END_STREAM_REASON_ENTRYPOLICY.
    pub(crate) fn policy(line: Line) -> Self {
        Self::new(AppRefusal::NotAllowed, StreamEnd::EntryPolicy, line)
    }

    /// C tor's END_STREAM_REASON_TORPROTOCOL.
    pub(crate) fn malformed(line: Line) -> Self {
        let end = StreamEnd::Local(EndReason::TORPROTOCOL);
        Self::new(AppRefusal::General, end, line)
    }
}
