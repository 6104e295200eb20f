//! A small client of C tor's control port (control-spec), as much of it as a lab needs.
//!
//! Circuits through chosen relays (`EXTENDCIRCUIT`), streams put on them (`ATTACHSTREAM`), facts
//! (`GETINFO`). The peer is a node that we started ourselves, on a Unix socket in a folder that
//! only we can enter, so there is no password; or on a port, with a cookie.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Longest wait for C tor's reply to a command.
const ANSWER: Duration = Duration::from_secs(30);

/// Number of failures that an [`Attacher`] remembers.
const TROUBLES: usize = 100;

/// A socket that carries a control connection.
trait Wire: Read + Write + AsFd + Send + std::fmt::Debug {
    /// Returns true if bytes or the end arrive within this time. It polls instead of setting a read
    /// timeout, because the simulator Shadow has none.
    fn is_readable(&self, within: Duration) -> io::Result<bool> {
        let within = u32::try_from(within.as_millis()).unwrap_or(u32::MAX).max(1);
        let within = PollTimeout::try_from(within).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(self.as_fd(), PollFlags::POLLIN)];
        Ok(poll(&mut fds, within)? > 0)
    }
}

impl Wire for UnixStream {}

impl Wire for TcpStream {}

/// One authenticated connection to a node's control socket or port.
#[derive(Debug)]
pub struct Control {
    stream: BufReader<Box<dyn Wire>>,
    /// Bytes of a line that has not ended yet.
    partial: Vec<u8>,
    /// Asynchronous events that arrived while we waited for something else.
    events: VecDeque<String>,
    /// The socket, or the port in words.
    path: PathBuf,
}

impl Control {
    /// Connects to a port and authenticates with the cookie in this file.
    pub fn connect_port(port: SocketAddr, cookie: &Path) -> Result<Control> {
        let stream = TcpStream::connect(port)
            .with_context(|| format!("connecting to the control port {port}"))?;
        Control::begin(
            Box::new(stream),
            port.to_string().into(),
            &by_cookie(cookie)?,
        )
    }

    /// Connects and authenticates.
    pub fn connect(path: &Path) -> Result<Control> {
        let stream = UnixStream::connect(path)
            .with_context(|| format!("connecting to the control socket {}", path.display()))?;
        Control::begin(Box::new(stream), path.to_owned(), "AUTHENTICATE")
    }

    fn begin(stream: Box<dyn Wire>, path: PathBuf, authenticate: &str) -> Result<Control> {
        let mut control = Control {
            stream: BufReader::new(stream),
            partial: Vec::new(),
            events: VecDeque::new(),
            path,
        };
        control.command(authenticate)?;
        Ok(control)
    }

    /// Sends one command line and returns the lines of its reply without their status codes,
    /// data lines included; a reply other than 250 is an error.
    pub fn command(&mut self, command: &str) -> Result<Vec<String>> {
        let doing = || format!("{command:?} on {}", self.path.display());
        let (doing, deadline) = (doing(), Instant::now() + ANSWER);
        self.stream
            .get_mut()
            .write_all(format!("{command}\r\n").as_bytes())
            .with_context(|| doing.clone())?;
        let mut lines = Vec::new();
        loop {
            let line = self
                .line(deadline)
                .and_then(|line| line.context("no answer in time"))
                .with_context(|| doing.clone())?;
            if line.starts_with("650") {
                self.events.push_back(line);
                continue;
            }
            ensure!(
                line.is_char_boundary(3) && line.len() > 3,
                "{doing}: reply {line:?}"
            );
            let (code, rest) = line.split_at(3);
            ensure!(code == "250", "{doing}: {line}");
            let (kind, text) = rest.split_at(1);
            lines.push(text.to_owned());
            match kind {
                " " => return Ok(lines),
                "+" => loop {
                    let data = self.line(deadline)?.with_context(|| doing.clone())?;
                    if data == "." {
                        break;
                    }
                    lines.push(
                        data.strip_prefix("..")
                            .map_or(data.clone(), |d| format!(".{d}")),
                    );
                },
                _ => {}
            }
        }
    }

    /// `GETINFO key`: the value, its lines joined by `\n`.
    pub fn info(&mut self, key: &str) -> Result<String> {
        let mut lines = self.command(&format!("GETINFO {key}"))?;
        ensure!(
            lines.pop().as_deref() == Some("OK"),
            "GETINFO {key} did not end with OK"
        );
        let mut lines = lines.into_iter();
        let first = lines.next().unwrap_or_default();
        let first = first
            .strip_prefix(key)
            .and_then(|rest| rest.strip_prefix('='));
        let first = first.with_context(|| format!("GETINFO {key} answered something else"))?;
        let values = Some(first.to_owned()).filter(|value| !value.is_empty());
        Ok(values
            .into_iter()
            .chain(lines)
            .collect::<Vec<_>>()
            .join("\n"))
    }

    /// Closes a circuit and, if it is a leg of a conflux set, the others of the set, over which its streams
    /// would go on.
    pub fn close_circuit_and_set(&mut self, circuit: &str) -> Result<()> {
        let set = |line: &str| {
            let id = line
                .split(' ')
                .find_map(|word| word.strip_prefix("CONFLUX_ID="));
            id.map(str::to_owned)
        };
        let all = self.info("circuit-status")?;
        let line = all
            .lines()
            .find(|line| line.split(' ').next() == Some(circuit));
        let wanted = set(line.with_context(|| format!("no circuit {circuit} in {all:?}"))?);
        self.command(&format!("CLOSECIRCUIT {circuit}"))?;
        for leg in all
            .lines()
            .filter(|line| wanted.is_some() && set(line) == wanted)
        {
            let id = leg.split(' ').next().context("a circuit's number")?;
            // The end may have closed it by now.
            let _ = self.command(&format!("CLOSECIRCUIT {id}"));
        }
        Ok(())
    }

    /// The next asynchronous event (`650 …` without the code), or `None` at the deadline.
    pub fn event(&mut self, deadline: Instant) -> Result<Option<String>> {
        let line = match self.events.pop_front() {
            Some(line) => Some(line),
            None => self.line(deadline)?,
        };
        Ok(line.map(|line| line.get(4..).unwrap_or_default().to_owned()))
    }

    /// Builds a circuit through each path, all at once, and returns their ids in the same order
    /// once all are built.
    pub fn build_circuits(&mut self, paths: &[Vec<Fingerprint>]) -> Result<Vec<u32>> {
        self.command("SETEVENTS CIRC")?;
        let mut circuits = Vec::with_capacity(paths.len());
        for path in paths {
            let hops: Vec<String> = path.iter().map(|relay| format!("${relay}")).collect();
            let reply = self.command(&format!("EXTENDCIRCUIT 0 {}", hops.join(",")))?;
            let id = reply
                .first()
                .and_then(|line| line.strip_prefix("EXTENDED "));
            let id: Option<u32> = id.and_then(|id| id.parse().ok());
            circuits.push(id.with_context(|| format!("EXTENDCIRCUIT answered {reply:?}"))?);
        }
        let mut waiting = circuits.clone();
        let deadline = Instant::now() + Duration::from_secs(60);
        while !waiting.is_empty() {
            let Some(event) = self.event(deadline)? else {
                bail!(
                    "{} of {} circuits were not built in time",
                    waiting.len(),
                    circuits.len()
                );
            };
            let mut words = event.split_whitespace();
            let (Some("CIRC"), Some(id), Some(state)) = (words.next(), words.next(), words.next())
            else {
                continue;
            };
            let Some(at) = waiting.iter().position(|circuit| circuit.to_string() == id) else {
                continue;
            };
            match state {
                "BUILT" => drop(waiting.swap_remove(at)),
                "FAILED" | "CLOSED" => bail!("a circuit was not built: {event}"),
                _ => {}
            }
        }
        self.command("SETEVENTS")?;
        self.events.clear();
        Ok(circuits)
    }

    /// Closes circuits; those that are gone already are no error.
    pub fn close_circuits(&mut self, circuits: &[u32]) {
        for circuit in circuits {
            // C tor answers 552 for a circuit that it has closed itself.
            let _ = self.command(&format!("CLOSECIRCUIT {circuit}"));
        }
    }

    fn line(&mut self, deadline: Instant) -> Result<Option<String>> {
        loop {
            if self.stream.buffer().is_empty() {
                let left = deadline.saturating_duration_since(Instant::now());
                match self.stream.get_ref().is_readable(left) {
                    Ok(true) => {}
                    Ok(false) if Instant::now() >= deadline => return Ok(None),
                    Ok(false) => continue,
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(error) => return Err(error).context("waiting for the control socket"),
                }
            }
            let bytes = match self.stream.fill_buf() {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).context("reading from the control socket"),
            };
            ensure!(
                !bytes.is_empty(),
                "the control connection of {} ended",
                self.path.display()
            );
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(bytes.len(), |end| end + 1);
            self.partial.extend(bytes.iter().take(taken));
            self.stream.consume(taken);
            if end.is_some() {
                let line = String::from_utf8_lossy(&self.partial);
                let line = line.trim_end_matches(['\r', '\n']).to_owned();
                self.partial.clear();
                return Ok(Some(line));
            }
        }
    }
}

/// The command that authenticates with the cookie in this file.
fn by_cookie(path: &Path) -> Result<String> {
    let cookie =
        std::fs::read(path).with_context(|| format!("reading the cookie {}", path.display()))?;
    Ok(format!("AUTHENTICATE {}", hex::encode(cookie)))
}

/// A relay's RSA identity fingerprint, 40 upper-case hexadecimal digits.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Fingerprint(String);

impl Fingerprint {
    /// Reads a fingerprint with or without spaces.
    pub fn parse(text: &str) -> Result<Fingerprint> {
        let digits: String = text
            .split_whitespace()
            .collect::<String>()
            .to_ascii_uppercase();
        ensure!(
            digits.len() == 40 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()),
            "{text:?} is not a relay fingerprint (40 hexadecimal digits)"
        );
        Ok(Fingerprint(digits))
    }
}

impl std::fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Puts each new stream of a client on the circuit whose id is the stream's SOCKS user name.
///
/// The client must run with `__LeaveStreamsUnattached 1`. Ends when dropped. Remembers what went
/// wrong with circuits and streams, because a SOCKS client hears of it only that it did.
#[derive(Debug)]
pub struct Attacher {
    stop: Arc<AtomicBool>,
    troubles: Arc<Mutex<VecDeque<String>>>,
    thread: Option<JoinHandle<()>>,
}

impl Attacher {
    /// Starts attaching the streams of the client behind this control socket.
    pub fn start(path: &Path) -> Result<Attacher> {
        Attacher::with(Control::connect(path)?)
    }

    /// Like [`start`](Self::start), over a connection that is already open.
    ///
    /// # Errors
    ///
    /// The client does not report events, or the system has no thread.
    pub fn with(mut control: Control) -> Result<Attacher> {
        control.command("SETEVENTS STREAM CIRC")?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let troubles = Arc::new(Mutex::new(VecDeque::new()));
        let noted = Arc::clone(&troubles);
        let thread = std::thread::Builder::new()
            .name("attacher".into())
            .spawn(move || {
                while !stopped.load(Ordering::Relaxed) {
                    let deadline = Instant::now() + Duration::from_millis(200);
                    match control.event(deadline) {
                        Ok(Some(event)) => {
                            // Noted first: who hears from its application that a stream failed
                            // finds here why.
                            if is_trouble(&event) {
                                let mut noted =
                                    noted.lock().unwrap_or_else(PoisonError::into_inner);
                                noted.push_back(event.clone());
                                if noted.len() > TROUBLES {
                                    noted.pop_front();
                                }
                            }
                            attach(&mut control, &event);
                        }
                        Ok(None) => {}
                        // The client has ended; its streams fail by themselves.
                        Err(_) => return,
                    }
                }
            })
            .context("starting a thread that attaches streams")?;
        Ok(Attacher {
            stop,
            thread: Some(thread),
            troubles,
        })
    }
}

impl Attacher {
    /// The last events of circuits and streams that ended otherwise than by being finished.
    #[must_use]
    pub fn troubles(&self) -> Vec<String> {
        let troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        troubles.iter().cloned().collect()
    }
}

impl Drop for Attacher {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn attach(control: &mut Control, event: &str) {
    let Some((stream, circuit)) = stream_to_attach(event) else {
        return;
    };
    let attached = circuit
        .context("no circuit named")
        .and_then(|circuit| control.command(&format!("ATTACHSTREAM {stream} {circuit}")));
    if attached.is_err() {
        // The circuit is gone or was never there: the application hears it now, not by a timeout.
        let _ = control.command(&format!("CLOSESTREAM {stream} 1"));
    }
}

/// True if an event reports that a circuit or stream failed, or was closed for another reason than
/// that it had finished or that we requested it.
fn is_trouble(event: &str) -> bool {
    let state = event.split_whitespace().nth(2);
    let ended = matches!(state, Some("FAILED" | "CLOSED" | "DETACHED"));
    let expected = ["REASON=DONE", "REASON=REQUESTED", "REASON=FINISHED"];
    ended
        && !event
            .split_whitespace()
            .any(|word| expected.contains(&word))
}

/// The ids of a new stream and of the circuit that its user name asks for.
fn stream_to_attach(event: &str) -> Option<(u64, Option<u32>)> {
    let mut words = event.split_whitespace();
    if words.next()? != "STREAM" {
        return None;
    }
    let stream = words.next()?.parse().ok()?;
    // DETACHED: the exit refused and C tor would try another circuit; there is none to try.
    match words.next()? {
        "NEW" | "NEWRESOLVE" => {}
        "DETACHED" => return Some((stream, None)),
        _ => return None,
    }
    let name = words.find_map(|word| word.strip_prefix("SOCKS_USERNAME="));
    Some((
        stream,
        name.and_then(|name| name.trim_matches('"').parse().ok()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_stream_asks_for_the_circuit_in_its_user_name() {
        let event =
            r#"STREAM 12 NEW 0 127.0.0.1:9 PURPOSE=USER SOCKS_USERNAME="7" SOCKS_PASSWORD="x""#;
        assert_eq!(stream_to_attach(event), Some((12, Some(7))));
    }

    #[test]
    fn a_stream_without_a_circuit_is_closed_and_others_are_left_alone() {
        assert_eq!(
            stream_to_attach("STREAM 12 NEW 0 127.0.0.1:9 PURPOSE=USER"),
            Some((12, None))
        );
        assert_eq!(
            stream_to_attach("STREAM 12 DETACHED 7 a:9 REASON=END"),
            Some((12, None))
        );
        assert_eq!(stream_to_attach("STREAM 12 SUCCEEDED 7 127.0.0.1:9"), None);
        assert_eq!(stream_to_attach("CIRC 12 BUILT"), None);
    }

    #[test]
    fn an_end_that_nobody_asked_for_is_trouble() {
        assert!(is_trouble(
            "CIRC 7 CLOSED $A~a BUILD_FLAGS=NEED_CAPACITY REASON=DESTROYED REMOTE_REASON=X"
        ));
        assert!(is_trouble(
            "STREAM 9 FAILED 7 127.0.0.1:9 REASON=END REMOTE_REASON=RESOLVEFAILED"
        ));
        assert!(!is_trouble("STREAM 9 CLOSED 7 127.0.0.1:9 REASON=DONE"));
        assert!(!is_trouble("CIRC 7 CLOSED $A~a REASON=REQUESTED"));
        assert!(!is_trouble("CIRC 7 BUILT $A~a"));
    }

    #[test]
    fn a_fingerprint_is_forty_digits_with_or_without_spaces() {
        let spaced = "0123 4567 89ab cdef 0123 4567 89AB CDEF 0123 4567";
        let parsed = Fingerprint::parse(spaced).expect("a fingerprint");
        assert_eq!(
            parsed.to_string(),
            "0123456789ABCDEF0123456789ABCDEF01234567"
        );
        for wrong in ["", "0123", &"0".repeat(41), &"g".repeat(40)] {
            assert!(Fingerprint::parse(wrong).is_err(), "{wrong}");
        }
    }

    /// A peer that answers as C tor does, one canned reply for each command.
    fn peer(replies: &'static [&'static str]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("control");
        let listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().expect("a client");
            let mut commands = BufReader::new(stream);
            for reply in replies {
                let mut command = String::new();
                if commands.read_line(&mut command).unwrap_or(0) == 0 {
                    return;
                }
                let _ = commands.get_mut().write_all(reply.as_bytes());
            }
        });
        (folder, path)
    }

    #[test]
    fn replies_of_one_line_and_of_many_are_read_and_events_between_them_kept() {
        let (_folder, path) = peer(&[
            "250 OK\r\n",
            "650 CIRC 3 BUILT\r\n250+ns/all=\r\nr one\r\n..\r\n.\r\n250 OK\r\n",
            "250-version=0.4.9\r\n250 OK\r\n",
        ]);
        let mut control = Control::connect(&path).expect("connected");
        assert_eq!(control.info("ns/all").expect("an answer"), "r one\n.");
        assert_eq!(control.info("version").expect("an answer"), "0.4.9");
        let event = control.event(Instant::now()).expect("an event");
        assert_eq!(event.as_deref(), Some("CIRC 3 BUILT"));
    }

    #[test]
    fn a_refusal_is_an_error_that_repeats_it() {
        let (_folder, path) = peer(&["250 OK\r\n", "552 Unrecognized key \"x\"\r\n"]);
        let mut control = Control::connect(&path).expect("connected");
        let error = control.info("x").expect_err("refused");
        assert!(
            format!("{error:#}").contains("Unrecognized key"),
            "{error:#}"
        );
    }
}
