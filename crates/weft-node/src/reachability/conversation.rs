//! Messages of a directory on a stream, and the reactions to them.

use weft_cell::RelayCmd;

/// DATA cells for which a SENDME is due, on a stream and on a circuit (tor-spec 7.3, 7.4).
pub(super) const PER_STREAM_SENDME: usize = 50;
pub(super) const PER_CIRCUIT_SENDME: usize = 100;

/// Reaction to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Wait,
    /// The request is sent.
    Ask,
    /// A SENDME is sent on the stream, and before it one about the circuit.
    Acknowledge {
        /// A SENDME about the circuit is sent before it.
        of_circuit: bool,
    },
    /// The stream has ended, or has sent what it may not.
    Over,
}

/// A stream to a directory, behind its BEGIN_DIR.
#[derive(Debug)]
pub struct Conversation {
    is_connected: bool,
    /// DATA cells that have come.
    cells: usize,
    answer: Vec<u8>,
    longest: usize,
}

impl Conversation {
    /// Creates a conversation whose answer may have at most `longest` bytes.
    pub fn new(longest: usize) -> Self {
        Self {
            is_connected: false,
            cells: 0,
            answer: Vec::new(),
            longest,
        }
    }

    /// Takes a message of the stream.
    pub fn take(&mut self, command: RelayCmd, data: &[u8]) -> Step {
        match (command, self.is_connected) {
            (RelayCmd::CONNECTED, false) => {
                self.is_connected = true;
                Step::Ask
            }
            (RelayCmd::DATA, true) => {
                self.answer.extend_from_slice(data);
                self.cells = self.cells.saturating_add(1);
                if self.answer.len() > self.longest {
                    Step::Over
                } else if self.cells.is_multiple_of(PER_STREAM_SENDME) {
                    Step::Acknowledge {
                        of_circuit: self.cells.is_multiple_of(PER_CIRCUIT_SENDME),
                    }
                } else {
                    Step::Wait
                }
            }
            // Data before there is a stream, and its end.
            (RelayCmd::END | RelayCmd::DATA, _) => Step::Over,
            _ => Step::Wait,
        }
    }

    /// All that has come.
    pub fn answer(self) -> Vec<u8> {
        self.answer
    }
}
