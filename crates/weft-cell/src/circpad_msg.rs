//! The messages by which a client has a relay pad a circuit: PADDING_NEGOTIATE and PADDING_NEGOTIATED
//! (padding-spec 3; C tor: `src/trunnel/circpad_negotiation.trunnel`). Both are the data of relay messages; those of
//! links by similar names are in [`crate::link_msg`].

use crate::fields::{CutShort, Fields};

/// Data that is not a PADDING_NEGOTIATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CircpadMsgError {
    /// It ended too early.
    #[error(transparent)]
    CutShort(#[from] CutShort),
    /// A version other than 0.
    #[error("PADDING_NEGOTIATE has version {0} (known: 0)")]
    Version(u8),
    /// Neither start nor stop.
    #[error("PADDING_NEGOTIATE has command {0} (known: 1 and 2)")]
    Command(u8),
    /// `echo_request`, which asks for an answer, is a number other than 0 and 1.
    #[error("PADDING_NEGOTIATE has echo_request {0} (known: 0 and 1)")]
    Echo(u8),
}

/// Command of a request, or the command that an answer is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CircpadCommand {
    /// No more padding by the machine.
    Stop,
    /// Padding by the machine.
    Start,
}

impl CircpadCommand {
    const fn wire(self) -> u8 {
        match self {
            CircpadCommand::Stop => 1,
            CircpadCommand::Start => 2,
        }
    }
}

/// PADDING_NEGOTIATE, by which a circuit's origin starts or stops a padding machine of a hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircpadNegotiate {
    /// Start or stop.
    pub command: CircpadCommand,
    /// The number of the machine.
    pub machine: u8,
    /// Number of the machine among those started on the circuit; 0: any.
    pub counter: u32,
}

impl CircpadNegotiate {
    /// Reads the data of a PADDING_NEGOTIATE. Data after the fields is ignored.
    ///
    /// # Errors
    ///
    /// The message is malformed.
    pub fn decode(data: &[u8]) -> Result<Self, CircpadMsgError> {
        let mut fields = Fields::new("PADDING_NEGOTIATE", data);
        let version = fields.u8("version")?;
        if version != 0 {
            return Err(CircpadMsgError::Version(version));
        }
        let command = match fields.u8("command")? {
            1 => CircpadCommand::Stop,
            2 => CircpadCommand::Start,
            other => return Err(CircpadMsgError::Command(other)),
        };
        let machine = fields.u8("machine_type")?;
        let echo = fields.u8("echo_request")?;
        if echo > 1 {
            return Err(CircpadMsgError::Echo(echo));
        }
        Ok(CircpadNegotiate {
            command,
            machine,
            counter: fields.u32("machine_ctr")?,
        })
    }

    /// The data.
    pub fn encode(&self) -> [u8; 8] {
        let [a, b, c, d] = self.counter.to_be_bytes();
        [0, self.command.wire(), self.machine, 0, a, b, c, d]
    }

    /// The data of the PADDING_NEGOTIATED that answers it, or that ends the machine unasked.
    pub fn answer(&self, granted: bool) -> [u8; 8] {
        let [a, b, c, d] = self.counter.to_be_bytes();
        let response = match granted {
            true => 1,
            false => 2,
        };
        [0, self.command.wire(), response, self.machine, a, b, c, d]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn messages_lie_as_in_c_tor() {
        let start = CircpadNegotiate {
            command: CircpadCommand::Start,
            machine: 1,
            counter: 0x0102_0304,
        };
        assert_eq!(start.encode(), [0, 2, 1, 0, 1, 2, 3, 4]);
        assert_eq!(start.answer(true), [0, 2, 1, 1, 1, 2, 3, 4]);
        assert_eq!(start.answer(false), [0, 2, 2, 1, 1, 2, 3, 4]);
        let stop = CircpadNegotiate {
            command: CircpadCommand::Stop,
            machine: 0,
            counter: 1,
        };
        assert_eq!(stop.answer(true), [0, 1, 1, 0, 0, 0, 0, 1]);
        // A client that wants an echo, and padding behind the fields.
        let data = [0, 2, 1, 1, 1, 2, 3, 4, 9];
        assert_eq!(CircpadNegotiate::decode(&data), Ok(start));
    }

    #[test]
    fn what_has_no_meaning_is_refused() {
        let with = |at: usize, byte: u8| {
            let mut data = [0, 2, 1, 0, 0, 0, 0, 1];
            data[at] = byte;
            CircpadNegotiate::decode(&data)
        };
        assert_eq!(with(0, 1), Err(CircpadMsgError::Version(1)));
        assert_eq!(with(1, 0), Err(CircpadMsgError::Command(0)));
        assert_eq!(with(1, 3), Err(CircpadMsgError::Command(3)));
        assert_eq!(with(3, 2), Err(CircpadMsgError::Echo(2)));
        assert!(with(2, 255).is_ok());
        for length in 0..8 {
            assert!(CircpadNegotiate::decode(&[0, 2, 1, 0, 0, 0, 0, 1][..length]).is_err());
        }
    }

    proptest! {
        #[test]
        fn what_was_read_can_be_written(data in proptest::collection::vec(any::<u8>(), 0..12)) {
            if let Ok(read) = CircpadNegotiate::decode(&data) {
                prop_assert_eq!(CircpadNegotiate::decode(&read.encode()), Ok(read));
            }
        }
    }
}
