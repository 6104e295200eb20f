//! Lines of the managed-proxy protocol (pt-spec 3.3), as C tor reads them (transports.c).

use std::net::SocketAddr;

use weft_log::Severity;
use weft_trust::{Limit, Payer, Role, Sender, Trust};

use crate::transports::key_values;
use crate::transports::text::is_identifier;

/// The longest line of a program, in bytes. Lines with the longest arguments have some hundreds.
pub(crate) const LONGEST: usize = 8192;

/// The longest name of a transport, in bytes: it is part of log lines, and of what a bridge publishes.
pub(crate) const LONGEST_NAME: usize = 64;
/// The longest arguments of a transport, in bytes: they are part of what a bridge publishes.
const LONGEST_ARGUMENTS: usize = 1024;

/// Cuts bytes into lines. A line that is too long is given up, and what follows of it skipped.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    begun: Vec<u8>,
    skipping: bool,
}

/// A line had more than 8,192 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

impl Lines {
    /// Takes bytes, and hands each line that they complete to `line`, without its end.
    pub fn push(&mut self, mut bytes: &[u8], mut line: impl FnMut(Result<&str, TooLong>)) {
        while let Some(end) = bytes.iter().position(|&b| b == b'\n') {
            let (part, rest) = bytes.split_at(end);
            bytes = rest.get(1..).unwrap_or_default();
            self.append(part, &mut line);
            if !std::mem::take(&mut self.skipping) {
                let text = String::from_utf8_lossy(&self.begun);
                line(Ok(text.strip_suffix('\r').unwrap_or(&text)));
            }
            self.begun.clear();
        }
        self.append(bytes, &mut line);
    }

    fn append(&mut self, part: &[u8], line: &mut impl FnMut(Result<&str, TooLong>)) {
        if self.skipping {
            return;
        }
        if self.begun.len() + part.len() > LONGEST {
            self.skipping = true;
            self.begun = Vec::new();
            line(Err(TooLong));
        } else {
            self.begun.extend_from_slice(part);
        }
    }
}

/// A line that a program prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// `VERSION 1`: it speaks this version, the only one that there is.
    Version,
    /// `VERSION-ERROR no-version`: it speaks none that was offered.
    NoVersion,
    /// `ENV-ERROR`: it does not understand its environment.
    EnvironmentError(String),
    /// `PROXY DONE`: it connects by the proxy that TOR_PT_PROXY names.
    ProxyDone,
    /// `PROXY-ERROR`: it cannot use that proxy.
    ProxyError(String),
    /// `CMETHOD` or `SMETHOD`: one of its transports listens.
    Method(Transport),
    /// `CMETHOD-ERROR` or `SMETHOD-ERROR`: one of its transports cannot be used.
    MethodError {
        /// It is a transport for servers.
        server: bool,
        /// The transport's name and why, in its words.
        text: String,
    },
    /// `CMETHODS DONE` or `SMETHODS DONE`: it has printed all its transports.
    MethodsDone {
        /// They are transports for servers.
        server: bool,
    },
    /// `LOG`.
    Log {
        /// Its severity.
        severity: Severity,
        /// The text.
        message: String,
    },
    /// `STATUS`: something for controllers.
    Status,
    /// Something else, which is ignored.
    Unknown,
}

/// The kinds of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineKind {
    /// The protocol's version, or that the program cannot begin.
    Begin,
    /// The proxy that TOR_PT_PROXY names.
    Proxy,
    /// A transport, or that all have been printed.
    Method,
    /// A line for our log.
    Log,
    /// Something for controllers.
    Status,
    /// Anything else.
    Unknown,
}

impl LineKind {
    /// All of them.
    pub const ALL: [LineKind; 6] = [
        Self::Begin,
        Self::Proxy,
        Self::Method,
        Self::Log,
        Self::Status,
        Self::Unknown,
    ];

    /// The first words of such lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Begin => "VERSION, VERSION-ERROR, ENV-ERROR",
            Self::Proxy => "PROXY DONE, PROXY-ERROR",
            Self::Method => "CMETHOD, CMETHOD-ERROR, CMETHODS DONE, and those of SMETHOD",
            Self::Log => "LOG",
            Self::Status => "STATUS",
            Self::Unknown => "other lines",
        }
    }

    /// Who may print it, and what bounds it.
    #[must_use]
    pub const fn trust(self) -> Trust {
        let limit = match self {
            Self::Begin | Self::Proxy | Self::Method => CONFIGURING,
            Self::Log => LOGGED,
            Self::Status | Self::Unknown => NOTED,
        };
        Trust::new(Sender::Program, Role::Pipe, limit)
    }
}

const CONFIGURING: Limit = Limit::new(
    "{weft-proxy/src/transports/line.rs:LONGEST} bytes of a line, {weft-proxy/src/transports/line.rs:LONGEST_NAME} of a \
            name, {weft-proxy/src/transports/line.rs:LONGEST_ARGUMENTS} of arguments; transports that torrc names; a minute",
    Payer::Program,
    &[
        "names_and_arguments_of_transports_have_a_bound",
        "a_program_that_breaks_the_protocol_is_ended_and_not_started_again",
        "a_program_that_prints_nothing_is_ended_after_a_minute_and_started_again",
        "no_bytes_make_transports_that_torrc_does_not_ask_for",
        "fuzz/managed_proxy",
    ],
);
const LOGGED: Limit = Limit::new(
    "{weft-proxy/src/transports/line.rs:LONGEST} bytes of a line; {weft-proxy/src/transports/managed.rs:LOGGED_AT_ONCE} of them logged in a minute, the others counted",
    Payer::Message,
    &["a_program_has_some_lines_in_the_log_and_the_others_are_counted"],
);
const NOTED: Limit = Limit::new(
    "{weft-proxy/src/transports/line.rs:LONGEST} bytes of a line; {weft-proxy/src/transports/managed.rs:MOST_WAITING} that wait, {weft-proxy/src/transports/managed.rs:LINES_PER_TURN} lines read in a turn",
    Payer::Message,
    &[
        "lines_that_wait_have_a_bound_and_the_program_goes_on",
        "a_turn_reads_some_lines_and_the_next_ones_the_rest",
        "garbage_is_logged_once_a_minute",
    ],
);

/// A transport that listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transport {
    /// Its name, a C identifier.
    pub name: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// The protocol that it speaks there.
    pub offer: Offer,
}

/// The protocol that a transport speaks at its listening address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offer {
    /// SOCKS 4, for a client.
    Socks4,
    /// SOCKS 5, for a client.
    Socks5,
    /// Its own protocol, for clients of a bridge, …
    Bridge {
        /// … which need this of the descriptor, as `key=value,key=value`.
        arguments: Option<String>,
    },
}

/// A line that is not what its first word says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// The reason, in C tor's words where C tor has a message for it.
    pub why: String,
    /// The program has failed, not only the line.
    pub fatal: bool,
}

impl Message {
    /// Its kind.
    #[must_use]
    pub const fn kind(&self) -> LineKind {
        match self {
            Self::Version | Self::NoVersion | Self::EnvironmentError(_) => LineKind::Begin,
            Self::ProxyDone | Self::ProxyError(_) => LineKind::Proxy,
            Self::Method(_) | Self::MethodError { .. } | Self::MethodsDone { .. } => {
                LineKind::Method
            }
            Self::Log { .. } => LineKind::Log,
            Self::Status => LineKind::Status,
            Self::Unknown => LineKind::Unknown,
        }
    }

    /// Reads a line.
    ///
    /// # Errors
    ///
    /// The line breaks the protocol.
    pub fn parse(line: &str) -> Result<Message, BadLine> {
        // The order is C tor's: some words begin with others.
        if let Some(text) = line.strip_prefix("ENV-ERROR") {
            return Ok(Message::EnvironmentError(after_space(text)));
        }
        if line.starts_with("VERSION-ERROR no-version") {
            return Ok(Message::NoVersion);
        }
        if let Some(version) = line.strip_prefix("VERSION") {
            return version_of(version);
        }
        for (word, server) in [("CMETHOD", false), ("SMETHOD", true)] {
            let Some(rest) = line.strip_prefix(word) else {
                continue;
            };
            if rest.starts_with("S DONE") {
                return Ok(Message::MethodsDone { server });
            }
            if let Some(text) = rest.strip_prefix("-ERROR") {
                let text = after_space(text);
                return Ok(Message::MethodError { server, text });
            }
            return method(word, rest, server).map(Message::Method);
        }
        if line.starts_with("PROXY DONE") {
            return Ok(Message::ProxyDone);
        }
        if let Some(text) = line.strip_prefix("PROXY-ERROR") {
            return Ok(Message::ProxyError(after_space(text)));
        }
        if let Some(text) = line.strip_prefix("LOG ") {
            return log(text);
        }
        if let Some(text) = line.strip_prefix("STATUS ") {
            return status(text);
        }
        Ok(Message::Unknown)
    }
}

fn fatal(why: String) -> BadLine {
    BadLine { why, fatal: true }
}

fn ignored(why: String) -> BadLine {
    BadLine { why, fatal: false }
}

/// The text after a keyword and the one character that follows it.
fn after_space(text: &str) -> String {
    let mut rest = text.chars();
    rest.next();
    rest.as_str().to_owned()
}

fn version_of(text: &str) -> Result<Message, BadLine> {
    if text.len() < 2 {
        let why = "Managed proxy sent us malformed VERSION line.";
        return Err(fatal(why.to_owned()));
    }
    match after_space(text).as_str() {
        "1" => Ok(Message::Version),
        other => Err(fatal(format!(
            "Managed proxy tried to negotiate on version '{other}'. We only support version '1'"
        ))),
    }
}

fn method(word: &str, rest: &str, server: bool) -> Result<Transport, BadLine> {
    let mut words = rest.split_ascii_whitespace();
    let few = || {
        fatal(format!(
            "Managed proxy sent us a {word} line with too few arguments."
        ))
    };
    if !rest.starts_with(|c: char| c.is_ascii_whitespace()) {
        return Err(few());
    }
    let name = words.next().ok_or_else(few)?;
    let protocol = if server {
        None
    } else {
        Some(words.next().ok_or_else(few)?)
    };
    let address = words.next().ok_or_else(few)?;
    if !is_identifier(name) {
        return Err(fatal(format!(
            "Transport name is not a C identifier ({name})."
        )));
    }
    if name.len() > LONGEST_NAME {
        return Err(fatal(format!(
            "Transport name has more than {LONGEST_NAME} bytes ({name})."
        )));
    }
    let offer = match protocol {
        Some("socks4") => Offer::Socks4,
        Some("socks5") => Offer::Socks5,
        Some(other) => {
            return Err(fatal(format!(
                "Client managed proxy sent us a proxy protocol we don't recognize. ({other})"
            )));
        }
        None => {
            let arguments = words.next().and_then(|word| word.strip_prefix("ARGS:"));
            let is_good = |text: &str| {
                text.len() <= LONGEST_ARGUMENTS && text.bytes().all(|b| b.is_ascii_graphic())
            };
            if !arguments.is_none_or(is_good) {
                return Err(fatal(format!(
                    "Arguments of transport {name} have more than {LONGEST_ARGUMENTS} bytes, or others than those of \
                     printed ASCII."
                )));
            }
            Offer::Bridge {
                arguments: arguments.map(str::to_owned),
            }
        }
    };
    let at: SocketAddr = address
        .parse()
        .map_err(|_| fatal(format!("Error parsing transport address '{address}'")))?;
    if at.port() == 0 {
        return Err(fatal(format!("Transport address '{address}' has no port.")));
    }
    Ok(Transport {
        name: name.to_owned(),
        address: at,
        offer,
    })
}

fn log(text: &str) -> Result<Message, BadLine> {
    let pairs = key_values::parse(text)
        .ok_or_else(|| ignored(format!("wrote an invalid LOG message: {text}")))?;
    let message = key_values::find(&pairs, "MESSAGE")
        .ok_or_else(|| ignored(format!("wrote a LOG line without MESSAGE: {text}")))?;
    let severity = key_values::find(&pairs, "SEVERITY")
        .ok_or_else(|| ignored(format!("wrote a LOG line without SEVERITY: {text}")))?;
    let severity = match severity {
        "debug" => Severity::Debug,
        "info" => Severity::Info,
        "notice" => Severity::Notice,
        "warning" => Severity::Warn,
        "error" => Severity::Err,
        other => {
            let why = format!("wrote a LOG line with an invalid severity level: {other}");
            return Err(ignored(why));
        }
    };
    Ok(Message::Log {
        severity,
        message: message.to_owned(),
    })
}

fn status(text: &str) -> Result<Message, BadLine> {
    let pairs = key_values::parse(text)
        .ok_or_else(|| ignored(format!("wrote an invalid STATUS message: {text}")))?;
    if key_values::find(&pairs, "TRANSPORT").is_none() {
        let why = format!("wrote a STATUS line without TRANSPORT: {text}");
        return Err(ignored(why));
    }
    Ok(Message::Status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lines(parts: &[&[u8]]) -> Vec<Result<String, TooLong>> {
        let mut lines = Lines::default();
        let mut found = Vec::new();
        for part in parts {
            lines.push(part, |line| found.push(line.map(str::to_owned)));
        }
        found
    }

    #[test]
    fn lines_may_arrive_in_parts_and_end_like_those_of_dos() {
        assert_eq!(
            lines(&[b"VER", b"SION 1\r\nSMETHODS", b" DONE\n\nrest"]),
            [
                Ok("VERSION 1".to_owned()),
                Ok("SMETHODS DONE".to_owned()),
                Ok(String::new())
            ]
        );
    }

    #[test]
    fn a_line_without_an_end_is_given_up_once_and_the_next_one_is_read() {
        let part = [b'a'; 5000];
        assert_eq!(
            lines(&[&part, &part, &part, b"\nVERSION 1\n"]),
            [Err(TooLong), Ok("VERSION 1".to_owned())]
        );
        let mut reader = Lines::default();
        for _ in 0..100 {
            reader.push(&part, |_| ());
            assert!(reader.begun.capacity() <= 2 * LONGEST);
        }
    }

    #[test]
    fn each_message_of_the_protocol_is_read() {
        let read = |line| Message::parse(line).unwrap();
        let at = |address: &str| address.parse().unwrap();
        assert_eq!(read("VERSION 1"), Message::Version);
        assert_eq!(read("VERSION-ERROR no-version"), Message::NoVersion);
        assert_eq!(
            read("ENV-ERROR no TOR_PT_STATE_LOCATION"),
            Message::EnvironmentError("no TOR_PT_STATE_LOCATION".to_owned())
        );
        assert_eq!(read("ENV-ERROR"), Message::EnvironmentError(String::new()));
        assert_eq!(read("PROXY DONE"), Message::ProxyDone);
        assert_eq!(
            read("PROXY-ERROR SOCKS 4 upstream proxies unsupported."),
            Message::ProxyError("SOCKS 4 upstream proxies unsupported.".to_owned())
        );
        assert_eq!(
            read("CMETHOD trebuchet socks5 127.0.0.1:19999"),
            Message::Method(Transport {
                name: "trebuchet".to_owned(),
                address: at("127.0.0.1:19999"),
                offer: Offer::Socks5
            })
        );
        assert_eq!(
            read("SMETHOD obfs4 [::]:443 ARGS:cert=abc,iat-mode=0 MORE"),
            Message::Method(Transport {
                name: "obfs4".to_owned(),
                address: at("[::]:443"),
                offer: Offer::Bridge {
                    arguments: Some("cert=abc,iat-mode=0".to_owned())
                }
            })
        );
        assert_eq!(
            read("SMETHOD trebuchet 198.51.100.1:19999"),
            Message::Method(Transport {
                name: "trebuchet".to_owned(),
                address: at("198.51.100.1:19999"),
                offer: Offer::Bridge { arguments: None }
            })
        );
        assert_eq!(
            read("SMETHOD-ERROR trebuchet no cows available"),
            Message::MethodError {
                server: true,
                text: "trebuchet no cows available".to_owned()
            }
        );
        assert_eq!(
            read("CMETHODS DONE"),
            Message::MethodsDone { server: false }
        );
        assert_eq!(read("SMETHODS DONE"), Message::MethodsDone { server: true });
        assert_eq!(
            read("LOG SEVERITY=warning MESSAGE=\"Hm, hm\""),
            Message::Log {
                severity: Severity::Warn,
                message: "Hm, hm".to_owned()
            }
        );
        assert_eq!(
            read("STATUS TRANSPORT=obfs4 ADDRESS=198.51.100.123:1234 CONNECT=Success"),
            Message::Status
        );
        for line in ["", "LOG", "version 1", "HTTP/1.1 200 OK", "STATUS"] {
            assert_eq!(read(line), Message::Unknown, "{line}");
        }
    }

    #[test]
    fn lines_that_break_the_protocol_say_how() {
        let why = |line| Message::parse(line).unwrap_err();
        for (line, words) in [
            ("VERSION", "malformed VERSION line"),
            ("VERSION 2", "negotiate on version '2'"),
            ("VERSION-ERROR some-other", "negotiate on version"),
            (
                "CMETHOD obfs4 socks5",
                "CMETHOD line with too few arguments",
            ),
            ("SMETHOD obfs4", "SMETHOD line with too few arguments"),
            ("SMETHODX obfs4 127.0.0.1:1", "too few arguments"),
            ("SMETHOD 4obfs 127.0.0.1:1", "not a C identifier (4obfs)"),
            (
                "SMETHOD obfs4 127.0.0.1",
                "Error parsing transport address '127.0.0.1'",
            ),
            (
                "SMETHOD obfs4 localhost:80",
                "Error parsing transport address",
            ),
            ("SMETHOD obfs4 127.0.0.1:0", "has no port"),
            (
                "CMETHOD obfs4 socks6 127.0.0.1:1",
                "don't recognize. (socks6)",
            ),
        ] {
            let error = why(line);
            assert!(
                error.fatal && error.why.contains(words),
                "{line}: {error:?}"
            );
        }
        for (line, words) in [
            ("LOG nonsense", "invalid LOG message"),
            ("LOG SEVERITY=info", "without MESSAGE"),
            ("LOG MESSAGE=a", "without SEVERITY"),
            (
                "LOG SEVERITY=loud MESSAGE=a",
                "invalid severity level: loud",
            ),
            ("STATUS nonsense", "invalid STATUS message"),
            ("STATUS CONNECT=Success", "without TRANSPORT"),
        ] {
            let error = why(line);
            assert!(
                !error.fatal && error.why.contains(words),
                "{line}: {error:?}"
            );
        }
    }

    #[test]
    fn names_and_arguments_of_transports_have_a_bound() {
        let at = |name: &str, arguments: &str| {
            Message::parse(&format!("SMETHOD {name} 192.0.2.1:1 ARGS:{arguments}"))
        };
        let (name, arguments) = ("a".repeat(64), "k".repeat(1024));
        assert!(at(&name, &arguments).is_ok());
        for (name, arguments, words) in [
            ("a".repeat(65), String::new(), "more than 64 bytes"),
            (name.clone(), "k".repeat(1025), "more than 1024 bytes"),
            (name.clone(), "k=\u{e4}".to_owned(), "printed ASCII"),
            (name, "k=\u{1b}[2J".to_owned(), "printed ASCII"),
        ] {
            let error = at(&name, &arguments).unwrap_err();
            assert!(error.fatal && error.why.contains(words), "{error:?}");
        }
        let client = format!("CMETHOD {} socks5 127.0.0.1:1", "a".repeat(65));
        assert!(Message::parse(&client).unwrap_err().fatal);
    }

    proptest! {
        #[test]
        fn lines_are_the_same_however_they_are_cut(text in "[a-c\n\r]{0,60}", cut in 0_usize..60) {
            let bytes = text.as_bytes();
            let (a, b) = bytes.split_at(cut.min(bytes.len()));
            prop_assert_eq!(lines(&[a, b]), lines(&[bytes]));
        }
    }
}
