//! Parses a controller's bytes into commands (control-spec 2.2, 2.3): lines, and data after a `+`.

/// Bytes of a command before authentication, at most.
const MAX_BEFORE_AUTHENTICATION: usize = 16 * 1024;
/// Bytes of a command, at most (MAX_COMMAND_LINE_LENGTH).
const MAX_COMMAND: usize = 1 << 20;

/// A command as it was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RawCommand {
    /// The keyword, in any case of letters; with its `+` if data follows.
    pub word: String,
    /// The rest of the line.
    pub rest: String,
    /// The data after the line, with dots unescaped and lines ended by `\n`; empty without a `+`.
    pub data: String,
}

/// The parser of one connection.
#[derive(Debug, Default)]
pub(super) struct Reader {
    bytes: Vec<u8>,
    /// Bytes at the front that were parsed already.
    taken: usize,
    /// Bytes at the front that were searched for an end of a line.
    searched: usize,
    /// The command whose data is being received.
    open: Option<RawCommand>,
    /// The controller has authenticated.
    trusted: bool,
}

/// Input that is no command; the connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadError {
    TooLong,
    /// An HTTP request, so that the peer is a browser.
    Http,
}

impl Reader {
    /// Raises the bound of a command's length, once the controller has authenticated.
    pub(super) fn trust(&mut self) {
        self.trusted = true;
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next command, once it is complete.
    ///
    /// # Errors
    ///
    /// [`ReadError`]; close the connection.
    pub(super) fn next_command(&mut self) -> Result<Option<RawCommand>, ReadError> {
        while let Some(line) = self.line()? {
            if let Some(mut open) = self.open.take() {
                if line == "." {
                    return Ok(Some(open));
                }
                // The sender doubles a dot at the beginning of a line.
                open.data.push_str(line.strip_prefix('.').unwrap_or(&line));
                open.data.push('\n');
                if open.data.len() > self.most() {
                    return Err(ReadError::TooLong);
                }
                self.open = Some(open);
                continue;
            }
            if !self.trusted && is_http(&line) {
                return Err(ReadError::Http);
            }
            let (word, rest) = match line.split_once([' ', '\t']) {
                Some((word, rest)) => (word, rest.trim_start_matches([' ', '\t'])),
                None => (line.as_str(), ""),
            };
            let command = RawCommand {
                word: word.to_owned(),
                rest: rest.to_owned(),
                data: String::new(),
            };
            if command.word.starts_with('+') {
                self.open = Some(command);
            } else {
                return Ok(Some(command));
            }
        }
        Ok(None)
    }

    fn most(&self) -> usize {
        match self.trusted {
            true => MAX_COMMAND,
            false => MAX_BEFORE_AUTHENTICATION,
        }
    }

    /// Takes a line, without its end. Bytes that are not UTF-8 become replacement characters.
    fn line(&mut self) -> Result<Option<String>, ReadError> {
        let new = self.bytes.get(self.searched..).unwrap_or_default();
        let Some(end) = new.iter().position(|byte| *byte == b'\n') else {
            // Parsed lines are dropped together, so that each of many costs linear time.
            self.bytes.drain(..self.taken);
            self.taken = 0;
            self.searched = self.bytes.len();
            return match self.bytes.len() > self.most() {
                true => Err(ReadError::TooLong),
                false => Ok(None),
            };
        };
        let end = self.searched + end + 1;
        let line = self.bytes.get(self.taken..end).unwrap_or_default();
        if line.len() > self.most() {
            return Err(ReadError::TooLong);
        }
        self.taken = end;
        self.searched = end;
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        Ok(Some(String::from_utf8_lossy(line).into_owned()))
    }
}

/// True if the line is an HTTP request of a browser (control.c,
/// `peek_connection_has_http_command`).
fn is_http(line: &str) -> bool {
    ["CONNECT ", "DELETE ", "GET ", "POST ", "PUT "]
        .iter()
        .any(|word| line.starts_with(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Vec<RawCommand> {
        let mut reader = Reader::default();
        let mut commands = Vec::new();
        for byte in bytes {
            reader.push(&[*byte]);
            commands.extend(reader.next_command().unwrap());
        }
        let mut whole = Reader::default();
        whole.push(bytes);
        for command in &commands {
            assert_eq!(whole.next_command().unwrap().as_ref(), Some(command));
        }
        assert_eq!(whole.next_command(), Ok(None));
        commands
    }

    fn command(word: &str, rest: &str, data: &str) -> RawCommand {
        RawCommand {
            word: word.to_owned(),
            rest: rest.to_owned(),
            data: data.to_owned(),
        }
    }

    #[test]
    fn commands_are_lines_and_may_have_data() {
        let bytes = b"getinfo  version \r\nQUIT\n+LOADCONF\r\n..a\r\nb\r\n.\r\nSIGNAL x\r\nhal";
        let expected = [
            command("getinfo", "version ", ""),
            command("QUIT", "", ""),
            command("+LOADCONF", "", ".a\nb\n"),
            command("SIGNAL", "x", ""),
        ];
        assert_eq!(all(bytes), expected);
        assert_eq!(all(b"\r\n"), [command("", "", "")]);
    }

    #[test]
    fn endless_input_is_an_error() {
        let mut reader = Reader::default();
        reader.push(&[b'a'; MAX_BEFORE_AUTHENTICATION]);
        assert_eq!(reader.next_command(), Ok(None));
        reader.push(b"a");
        assert_eq!(reader.next_command(), Err(ReadError::TooLong));
        reader.trust();
        assert_eq!(reader.next_command(), Ok(None));
        let mut reader = Reader::default();
        reader.push(b"+A\r\n");
        for _ in 0..MAX_BEFORE_AUTHENTICATION {
            reader.push(b"\r\n");
        }
        assert_eq!(reader.next_command(), Ok(None));
        reader.push(b"\r\n");
        assert_eq!(reader.next_command(), Err(ReadError::TooLong));
        let mut reader = Reader::default();
        reader.push(b"GET / HTTP/1.1\r\n");
        assert_eq!(reader.next_command(), Err(ReadError::Http));
    }
}
