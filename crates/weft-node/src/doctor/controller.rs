//! A controller of the running node, for some questions: it authenticates by the cookie, and asks.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::time::{Duration, Instant};

use weft_config::Options;
use weft_datadir::file;

use super::ports::connect;

/// Time that the node may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of a cookie.
const COOKIE: usize = 32;
/// Longest answer, in bytes.
const MAX_ANSWER: u64 = 1 << 20;

/// The values of these keys (GETINFO), of those that the node has.
///
/// # Errors
///
/// Why it cannot be asked, for people.
pub(super) fn ask(options: &Options, keys: &[&str]) -> Result<BTreeMap<String, String>, String> {
    let Some(port) = options.control.ports.first() else {
        return Err("there is no ControlPort and no ControlSocket".to_owned());
    };
    let deadline = Instant::now() + PATIENCE;
    let connection =
        connect(port, PATIENCE).map_err(|error| format!("it does not answer: {error}"))?;
    let authenticate = match (
        &options.control.cookie_file,
        &options.control.hashed_passwords,
    ) {
        (Some(path), _) => {
            let cookie = file::read(path, COOKIE).map_err(|error| error.to_string())?;
            let cookie = cookie.ok_or_else(|| format!("{} is not there", path.display()))?;
            format!("AUTHENTICATE {}\r\n", hex::encode(&*cookie))
        }
        (None, passwords) if passwords.is_empty() => "AUTHENTICATE\r\n".to_owned(),
        (None, _) => return Err("it wants a password, which is not known here".to_owned()),
    };
    converse(connection, &authenticate, keys, deadline).map_err(|error| error.to_string())
}

fn converse(
    connection: impl Read + Write,
    authenticate: &str,
    keys: &[&str],
    deadline: Instant,
) -> io::Result<BTreeMap<String, String>> {
    let mut reader = BufReader::new(connection).take(MAX_ANSWER);
    let send = |reader: &mut io::Take<BufReader<_>>, text: &str| {
        let connection: &mut _ = reader.get_mut().get_mut();
        Write::write_all(connection, text.as_bytes())?;
        Write::flush(connection)
    };
    let mut line = String::new();
    let mut next = |reader: &mut io::Take<BufReader<_>>| {
        if Instant::now() > deadline {
            return Err(io::Error::from(io::ErrorKind::TimedOut));
        }
        line.clear();
        match reader.read_line(&mut line)? {
            0 => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            _ => Ok(line.trim_end().to_owned()),
        }
    };
    send(&mut reader, authenticate)?;
    let answer = next(&mut reader)?;
    if !answer.starts_with("250") {
        return Err(io::Error::other(format!("it answers \"{answer}\"")));
    }
    let mut values = BTreeMap::new();
    for key in keys {
        send(&mut reader, &format!("GETINFO {key}\r\n"))?;
        // `250-key=value`, `250+key=` with lines up to a dot, or an error; then `250 OK`.
        loop {
            let answer = next(&mut reader)?;
            let (code, rest) = answer.split_at_checked(3).unwrap_or((&answer, ""));
            let value = rest.get(1..).and_then(|rest| rest.split_once('='));
            match rest.chars().next() {
                Some('-') => {
                    if let Some((_, value)) = value {
                        values.insert((*key).to_owned(), value.to_owned());
                    }
                }
                Some('+') => {
                    let mut lines = Vec::new();
                    loop {
                        match next(&mut reader)?.as_str() {
                            "." => break,
                            line => lines.push(line.to_owned()),
                        }
                    }
                    values.insert((*key).to_owned(), lines.join("\n"));
                }
                _ if code.len() == 3 => break,
                _ => return Err(io::Error::other(format!("it answers \"{answer}\""))),
            }
        }
    }
    send(&mut reader, "QUIT\r\n")?;
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Input to be read, and output that was written.
    struct Played(io::Cursor<Vec<u8>>, Vec<u8>);

    impl Read for Played {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.0.read(into)
        }
    }

    impl Write for Played {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn play(answers: &str) -> (io::Result<BTreeMap<String, String>>, String) {
        let mut played = Played(io::Cursor::new(answers.into()), Vec::new());
        let deadline = Instant::now() + Duration::from_secs(600);
        let result = converse(
            &mut played,
            "AUTHENTICATE 00\r\n",
            &["a", "b", "c"],
            deadline,
        );
        (result, String::from_utf8(played.1).unwrap())
    }

    #[test]
    fn values_of_one_line_and_of_many_are_read_and_unknown_keys_left_out() {
        let (values, sent) = play(
            "250 OK\r\n250-a=1=2\r\n250 OK\r\n552 Unrecognized key \"b\"\r\n250+c=\r\nx\r\ny\r\n.\r\n250 OK\r\n",
        );
        let values = values.unwrap();
        assert_eq!(values["a"], "1=2");
        assert_eq!(values["c"], "x\ny");
        assert!(!values.contains_key("b"));
        assert_eq!(
            sent,
            "AUTHENTICATE 00\r\nGETINFO a\r\nGETINFO b\r\nGETINFO c\r\nQUIT\r\n"
        );
    }

    #[test]
    fn what_is_no_controllers_port_is_an_error() {
        for answers in [
            "",
            "515 Authentication failed\r\n",
            "HTTP/1.1 400\r\n",
            "250 OK\r\n25",
        ] {
            assert!(play(answers).0.is_err(), "{answers}");
        }
    }
}
