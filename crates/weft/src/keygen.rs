//! `--keygen` and `--key-expiration`: keys without a node, and where their passphrases are from.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::absolute;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use weft_config::{CommandLine, ExpirationFormat, Options, PassphraseFrom};
use weft_datadir::keys::{KeygenRequest, Passphrase, Passphrases, keygen, signing_key_expires};
use weft_node::logging::local_iso;
use weft_node::notice;
use weft_node::relay::key_config;

/// Longest passphrase in bytes: the size of C tor's buffer.
const MAX_LEN: usize = 255;

/// Makes keys.
pub(crate) fn make_keys(command_line: &CommandLine, options: &Options) -> anyhow::Result<()> {
    let args = &command_line.keygen;
    let request = KeygenRequest {
        new_passphrase: args.new_passphrase,
        master_key: args
            .master_key
            .as_deref()
            .map(absolute)
            .transpose()
            .context("--master-key")?,
    };
    let mut source = Source::new(args.passphrase)?;
    keygen(
        &key_config(options),
        &request,
        &mut source,
        SystemTime::now(),
        &mut rand::rng(),
    )?;
    Ok(())
}

/// Prints until when the signing key is valid: on standard error, as C tor does.
pub(crate) fn print_expiration(
    format: ExpirationFormat,
    options: &Options,
) -> anyhow::Result<ExitCode> {
    let config = key_config(options);
    let path = config.signing_cert_path();
    let Some(expires) = signing_key_expires(&config)? else {
        tracing::warn!(
            "Could not load signing key certificate from {}, so we couldn't learn anything about certificate expiration.",
            path.display()
        );
        return Ok(ExitCode::FAILURE);
    };
    let expires = match format {
        ExpirationFormat::Iso8601 => local_iso(expires),
        ExpirationFormat::Timestamp => expires
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs()
            .to_string(),
    };
    notice!(
        "The signing certificate stored in {} is valid until {expires}.",
        path.display()
    );
    writeln!(io::stderr(), "signing-cert-expiry: {expires}")?;
    Ok(ExitCode::SUCCESS)
}

/// Where passphrases are from.
pub(crate) enum Source {
    Nowhere,
    Descriptor(Box<dyn Read>),
    Person(Person),
}

impl Source {
    pub(crate) fn new(from: PassphraseFrom) -> anyhow::Result<Self> {
        Ok(match from {
            PassphraseFrom::Nowhere => Source::Nowhere,
            PassphraseFrom::Descriptor(0) => Source::Descriptor(Box::new(io::stdin())),
            PassphraseFrom::Descriptor(fd) => {
                let file = File::open(format!("/dev/fd/{fd}"));
                let file = file.with_context(|| format!("cannot read --passphrase-fd {fd}"))?;
                Source::Descriptor(Box::new(file))
            }
            PassphraseFrom::Person => Source::Person(Person::new()),
        })
    }
}

impl Passphrases for Source {
    fn current(&mut self) -> Option<Passphrase> {
        match self {
            // C tor asks itself for ever here.
            Source::Nowhere => None,
            Source::Descriptor(file) => read_all(file),
            Source::Person(person) => person.ask("Enter passphrase for master key:").ok()?,
        }
    }

    fn of_new_key(&mut self) -> Option<Passphrase> {
        let passphrase = match self {
            Source::Nowhere => Some(Passphrase::default()),
            Source::Descriptor(file) => read_all(file),
            Source::Person(person) => person.ask_twice().ok(),
        }?;
        if passphrase.is_empty() {
            let _ = writeln!(io::stderr(), "Not encrypting the secret key.");
        }
        Some(passphrase)
    }
}

/// Reads the rest of a file, at most as much as a passphrase may have; `None` at its end.
fn read_all(file: &mut dyn Read) -> Option<Passphrase> {
    let mut passphrase = Passphrase::new(Vec::with_capacity(MAX_LEN));
    let read = file.take(MAX_LEN as u64).read_to_end(&mut passphrase);
    (read.is_ok() && !passphrase.is_empty()).then_some(passphrase)
}

/// A person at a terminal; or standard input, line by line, where there is no terminal.
pub(crate) struct Person {
    terminal: Option<File>,
}

impl Person {
    fn new() -> Self {
        let terminal = OpenOptions::new().read(true).write(true).open("/dev/tty");
        Person {
            terminal: terminal.ok(),
        }
    }

    /// A line; `None` at the end of the input.
    fn ask(&mut self, prompt: &str) -> io::Result<Option<Passphrase>> {
        match &mut self.terminal {
            Some(terminal) => {
                terminal.write_all(prompt.as_bytes())?;
                let line = {
                    let quiet = Quiet::new(terminal)?;
                    read_line(&mut &*quiet.terminal, true)
                };
                terminal.write_all(b"\n")?;
                line
            }
            None => {
                io::stderr().write_all(prompt.as_bytes())?;
                read_line(&mut io::stdin().lock(), false)
            }
        }
    }

    /// A new passphrase. Without a terminal it may be missing.
    fn ask_twice(&mut self) -> io::Result<Passphrase> {
        let may_be_missing = self.terminal.is_none();
        ask_twice(may_be_missing, |prompt| self.ask(prompt))
    }
}

/// Asks until both lines are the same. `may_be_missing`: the end of the input is an empty line, as
/// in C tor, and scripts get keys that are not encrypted. After lines that differ it is an error:
/// their author wants a passphrase.
fn ask_twice(
    mut may_be_missing: bool,
    mut ask: impl FnMut(&str) -> io::Result<Option<Passphrase>>,
) -> io::Result<Passphrase> {
    loop {
        let mut line = |prompt| match ask(prompt)? {
            None if !may_be_missing => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            line => Ok(line.unwrap_or_default()),
        };
        let first = line("Enter new passphrase:")?;
        let second = line("       One more time:")?;
        if first == second {
            return Ok(first);
        }
        writeln!(io::stderr(), "That didn't match.")?;
        may_be_missing = false;
    }
}

/// A terminal that does not show what is typed, and hands on each key: until it is dropped.
struct Quiet<'a> {
    terminal: &'a File,
    before: Termios,
}

impl<'a> Quiet<'a> {
    fn new(terminal: &'a File) -> io::Result<Self> {
        let before = tcgetattr(terminal)?;
        let mut quiet = before.clone();
        // Without ISIG, Ctrl-C is a key: the terminal is never left as it is here.
        quiet
            .local_flags
            .remove(LocalFlags::ECHO | LocalFlags::ICANON | LocalFlags::ISIG);
        tcsetattr(terminal, SetArg::TCSAFLUSH, &quiet)?;
        Ok(Quiet { terminal, before })
    }
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        let _ = tcsetattr(self.terminal, SetArg::TCSAFLUSH, &self.before);
    }
}

/// Reads a line without its end, and keeps at most the length of a passphrase. `keys`: it is typed,
/// and keys may correct it.
fn read_line(input: &mut dyn Read, keys: bool) -> io::Result<Option<Passphrase>> {
    let mut line = Passphrase::new(Vec::with_capacity(MAX_LEN));
    let mut byte = [0];
    let mut is_empty = true;
    loop {
        match input.read(&mut byte) {
            Ok(0) => return Ok((!is_empty).then_some(line)),
            Ok(_) => {}
            Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
            Err(why) => return Err(why),
        }
        is_empty = false;
        let [key] = byte;
        match key {
            b'\n' => return Ok(Some(line)),
            b'\r' if keys => return Ok(Some(line)),
            // Ctrl-C, Ctrl-D and Ctrl-\.
            3 | 4 | 28 if keys => return Err(io::ErrorKind::Interrupted.into()),
            // Backspace.
            8 | 127 if keys => drop(line.pop()),
            // Ctrl-U.
            21 if keys => line.clear(),
            _ if line.len() < MAX_LEN => line.push(key),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(mut input: &[u8], keys: bool) -> Vec<String> {
        let mut lines = Vec::new();
        while let Ok(Some(line)) = read_line(&mut input, keys) {
            lines.push(String::from_utf8(line.to_vec()).unwrap());
        }
        lines
    }

    #[test]
    fn a_line_is_a_passphrase_and_the_end_is_none() {
        assert_eq!(
            lines(b"one\n\ntwo\rthree", false),
            ["one", "", "two\rthree"]
        );
        assert!(lines(b"", false).is_empty());
        let long = [b'a'; 300];
        assert_eq!(lines(&long, false), ["a".repeat(MAX_LEN)]);
    }

    /// Number of prompts on input without a terminal, and the passphrase.
    fn asked(mut input: &[u8], may_be_missing: bool) -> (usize, Option<String>) {
        let mut prompts = 0;
        let passphrase = ask_twice(may_be_missing, |_| {
            prompts += 1;
            read_line(&mut input, false)
        });
        let text = |passphrase: Passphrase| String::from_utf8(passphrase.to_vec()).unwrap();
        (prompts, passphrase.ok().map(text))
    }

    #[test]
    fn without_a_terminal_the_end_of_the_input_is_an_empty_passphrase() {
        for input in ["", "\n", "\n\n"] {
            assert_eq!(asked(input.as_bytes(), true), (2, Some(String::new())));
        }
        assert_eq!(asked(b"a\na\n", true), (2, Some("a".to_owned())));
        assert_eq!(asked(b"a\nb\nc\nc\n", true), (4, Some("c".to_owned())));
        // At a terminal that is closed, nobody chose.
        assert_eq!(asked(b"", false), (1, None));
    }

    #[test]
    fn lines_that_differ_and_then_end_are_no_passphrase() {
        for input in ["a\nb\n", "a\n", "a", "\na\n"] {
            assert_eq!(asked(input.as_bytes(), true), (3, None), "{input:?}");
        }
    }

    #[test]
    fn keys_correct_what_is_typed() {
        assert_eq!(
            lines(b"secrat\x7f\x7fet\rx\x15new\n", true),
            ["secret", "new"]
        );
        let interrupted = read_line(&mut &b"sec\x03"[..], true).unwrap_err();
        assert_eq!(interrupted.kind(), io::ErrorKind::Interrupted);
    }

    #[test]
    fn a_descriptor_has_one_passphrase_and_its_line_end_is_a_part_of_it() {
        let mut source = Source::Descriptor(Box::new(&b"secret\n"[..]));
        assert_eq!(source.current().unwrap().as_slice(), b"secret\n");
        assert!(source.current().is_none());
        assert!(source.of_new_key().is_none());
        assert!(Source::Nowhere.current().is_none());
        assert!(Source::Nowhere.of_new_key().unwrap().is_empty());
    }
}
