//! Bytes of a controller into commands (control-spec 2.2, 2.3): lines, and what follows a `+`.

/// Bytes of a command before the controller has shown who it is.
pub const MAX_BEFORE_AUTHENTICATION: usize = 16 * 1024;
/// Bytes of a command (MAX_COMMAND_LINE_LENGTH).
pub const MAX_COMMAND: usize = 1 << 20;

/// A command as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// As it came, in any case of letters; with its `+` where data follows.
    pub word: String,
    /// The rest of its line.
    pub rest: String,
    /// What followed the line, with the dots undone and lines ended by `\n`; empty without a `+`.
    pub data: String,
}

/// What has come and is no command yet.
#[derive(Debug, Default)]
pub struct Reader {
    bytes: Vec<u8>,
    /// How much of it was taken as lines.
    taken: usize,
    /// How much of it is known to hold no other end of a line.
    searched: usize,
    /// The command whose data comes.
    open: Option<Command>,
    /// The controller has shown who it is.
    trusted: bool,
}

/// Why nothing more can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// A command is longer than a command can be.
    TooLong,
    /// A browser.
    Http,
}

impl Reader {
    /// From now on commands may be long.
    pub fn trust(&mut self) {
        self.trusted = true;
    }

    /// More came.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next command, if it is complete.
    ///
    /// # Errors
    ///
    /// What came is no command; close the connection.
    pub fn next_command(&mut self) -> Result<Option<Command>, ReadError> {
        while let Some(line) = self.line()? {
            if let Some(mut open) = self.open.take() {
                if line == "." {
                    return Ok(Some(open));
                }
                // A dot that begins a line was doubled.
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
            let command = Command {
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

    /// Takes a line, without its end. Bytes that are not text become marks that mean nothing.
    fn line(&mut self) -> Result<Option<String>, ReadError> {
        let new = self.bytes.get(self.searched..).unwrap_or_default();
        let Some(end) = new.iter().position(|byte| *byte == b'\n') else {
            // Lines that were taken go all at once: each of many costs no more than itself.
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

/// Whether a browser was made to come here (control.c, `peek_connection_has_http_command`).
fn is_http(line: &str) -> bool {
    ["CONNECT ", "DELETE ", "GET ", "POST ", "PUT "]
        .iter()
        .any(|word| line.starts_with(word))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Vec<Command> {
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

    fn command(word: &str, rest: &str, data: &str) -> Command {
        Command {
            word: word.to_owned(),
            rest: rest.to_owned(),
            data: data.to_owned(),
        }
    }

    #[test]
    fn commands_come_in_lines_and_some_with_data() {
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
    fn what_has_no_end_is_given_up() {
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
