//! One program of transports, from its start to its end.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use weft_log::{Line, RateLimit};

use crate::transports::line::{Lines, Message, Offer, TooLong, Transport};

/// A program that has not printed all its transports after this time is ended. C tor waits forever.
const CONFIGURE_WITHIN: Duration = Duration::from_secs(60);
/// A program that ended is started again after this, twice as long each time …
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// … and this long at most. C tor starts it again at once.
const LONGEST_WAIT: Duration = Duration::from_secs(600);
/// A program that ran this long with its transports begins with the first wait again.
const RAN_WELL: Duration = Duration::from_secs(60);
/// Lines that are no part of the configuration, or of no use for it, before it is over: with more the program has failed.
const MOST_ODD: u32 = 64;
/// Lines of the protocol that are read in one turn: the rest waits for the next ones.
const LINES_PER_TURN: usize = 256;
/// Largest memory of waiting lines, in bytes. Lines beyond it are dropped.
const MOST_WAITING: usize = 256 << 10;
/// Overhead of a waiting line beside its text, in bytes.
const LINE_OVERHEAD: usize = 64;
/// Lines of a program's own that are logged in [`LOG_EVERY`]; the others are counted.
const LOGGED_AT_ONCE: u32 = 64;
/// Lines that a program can cause at will are logged once in this time.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// Whose transports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// A client's, of ClientTransportPlugin.
    Client,
    /// A bridge's, of ServerTransportPlugin.
    Server,
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Side::Client => "Client",
            Side::Server => "Server",
        }
    }
}

/// The program to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Whose transports it has.
    pub side: Side,
    /// The file, and its arguments.
    pub command: Vec<String>,
    /// The transports that it must offer.
    pub transports: Vec<String>,
    /// It must connect by a proxy (TOR_PT_PROXY).
    pub by_proxy: bool,
}

impl Program {
    /// The file, which names the program in log lines.
    #[must_use]
    pub fn name(&self) -> &str {
        self.command.first().map_or("", String::as_str)
    }
}

/// Phase of a program's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is not running: it is to be started.
    Infant,
    /// It runs, and has printed nothing.
    Launched,
    /// It speaks our version, and prints its transports.
    AcceptingMethods,
    /// Its transports can be used.
    Completed,
    /// It broke the protocol: it is not started again.
    Broken,
    /// It was stopped for good.
    Stopped,
}

impl State {
    /// C tor's words, but for a program that was stopped, of which it keeps nothing.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            State::Infant => "Infant",
            State::Launched => "Launched",
            State::AcceptingMethods => "Accepting methods",
            State::Completed => "Completed",
            State::Broken => "Broken",
            State::Stopped => "Stopped",
        }
    }
}

/// Rate limit for the log lines of one kind from one program.
#[derive(Debug, Default)]
struct LogBudget {
    since: Option<Instant>,
    used: u32,
    left_out: u64,
}

impl LogBudget {
    /// Asks to log a line. `None`: do not. Else write what is returned behind the line.
    fn take(&mut self, now: Instant) -> Option<String> {
        let is_new = self
            .since
            .is_none_or(|since| now.saturating_duration_since(since) >= LOG_EVERY);
        if is_new {
            self.since = Some(now);
            self.used = 0;
        }
        if self.used >= LOGGED_AT_ONCE {
            self.left_out = self.left_out.saturating_add(1);
            return None;
        }
        self.used += 1;
        Some(match std::mem::take(&mut self.left_out) {
            0 => String::new(),
            count => format!(" [{count} lines before it are not logged]"),
        })
    }
}

/// Where a program's bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// The protocol.
    Output,
    /// Its standard error, for people.
    Error,
}

/// An action for the caller.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Start the process; then call [`Managed::launched`] or [`Managed::failed_to_launch`].
    Launch,
    /// End the process, if it has not ended.
    Stop,
    /// A line for the log.
    Log(Line),
    /// [`Managed::transports`] has what can be used from now on.
    Ready,
    /// None of them can be used any more.
    Lost,
}

/// A program of transports.
#[derive(Debug)]
pub struct Managed {
    program: Program,
    state: State,
    /// When the state began; nothing: never in motion yet.
    since: Option<Instant>,
    /// An infant is started then; nothing: now.
    start_at: Option<Instant>,
    wait: Duration,
    proxy_done: bool,
    transports: Vec<Transport>,
    output: Lines,
    error: Lines,
    /// Lines of the protocol that are not read yet.
    waiting: VecDeque<String>,
    /// The memory that they take.
    waiting_bytes: usize,
    /// Lines of no use while it is configuring.
    odd: u32,
    /// Budgets for the lines that it prints, and for its LOG messages.
    shown: LogBudget,
    logged: LogBudget,
    unknown: RateLimit,
    too_long: RateLimit,
    too_many: RateLimit,
    bad: RateLimit,
    actions: VecDeque<Action>,
}

impl Managed {
    /// A program that is to be started: by the next [`tick`](Self::tick).
    #[must_use]
    pub fn new(program: Program) -> Self {
        Managed {
            program,
            state: State::Infant,
            since: None,
            start_at: None,
            wait: FIRST_WAIT,
            proxy_done: false,
            transports: Vec::new(),
            output: Lines::default(),
            error: Lines::default(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            odd: 0,
            shown: LogBudget::default(),
            logged: LogBudget::default(),
            unknown: RateLimit::new(LOG_EVERY),
            too_many: RateLimit::new(LOG_EVERY),
            too_long: RateLimit::new(LOG_EVERY),
            bad: RateLimit::new(LOG_EVERY),
            actions: VecDeque::new(),
        }
    }

    /// The settings that it was created with.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Its current phase.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// It broke the protocol, or waits to be started again: a reload of torrc starts it again.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        match self.state {
            State::Broken => true,
            State::Infant => self.start_at.is_some(),
            _ => false,
        }
    }

    /// Lines wait to be read: call [`read_lines`](Self::read_lines) again soon.
    #[must_use]
    pub fn has_more(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The transports that are usable now.
    #[must_use]
    pub fn transports(&self) -> &[Transport] {
        match self.state {
            State::Completed => &self.transports,
            _ => &[],
        }
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Time passes. Call it at the start, and once a second.
    pub fn tick(&mut self, now: Instant) {
        match self.state {
            State::Infant if self.start_at.is_none_or(|at| at <= now) => {
                // Asked for once: the answer is another state.
                self.start_at = Some(now + LONGEST_WAIT);
                self.actions.push_back(Action::Launch);
            }
            State::Launched | State::AcceptingMethods if self.lasts(now) >= CONFIGURE_WITHIN => {
                let name = self.program.name();
                let seconds = CONFIGURE_WITHIN.as_secs();
                self.log(
                    Line::warn(format_args!(
                        "Managed proxy at '{name}' has not finished the configuration protocol in {seconds} seconds. \
                         We end it, and start it again later."
                    ))
                    .domain("PT"),
                );
                self.actions.push_back(Action::Stop);
                self.start_later(now);
            }
            _ => {}
        }
    }

    /// The process was started.
    pub fn launched(&mut self, now: Instant, process: u32) {
        let name = self.program.name();
        let line = format!("Managed proxy at '{name}' has spawned with PID '{process}'.");
        self.log(Line::info(line).domain("CONFIG"));
        self.output = Lines::default();
        self.error = Lines::default();
        self.forget_lines();
        self.transports.clear();
        self.proxy_done = false;
        self.odd = 0;
        self.enter(now, State::Launched);
    }

    /// The process could not be started: it is tried again later.
    pub fn failed_to_launch(&mut self, now: Instant, why: &str) {
        let name = self.program.name();
        let line = format!("Managed proxy at '{name}' failed at launch. ({why})");
        self.log(Line::warn(line).domain("CONFIG"));
        self.start_later(now);
    }

    /// The process ended, by itself or because it was stopped: `status` is its exit code, or what ended it.
    pub fn exited(&mut self, now: Instant, status: &str) {
        // Lines that it printed before its end count.
        while self.has_more() {
            self.read_lines(now);
        }
        let name = self.program.name();
        match self.state {
            State::Launched | State::AcceptingMethods | State::Completed => {
                self.log(
                    Line::warn(format_args!(
                        "Managed proxy \"{name}\" process terminated with status code {status}"
                    ))
                    .domain("PT"),
                );
                self.start_later(now);
            }
            // It was stopped.
            State::Infant | State::Broken | State::Stopped => {
                self.log(
                    Line::info(format_args!(
                        "Managed proxy \"{name}\" has ended with status code {status}"
                    ))
                    .domain("PT"),
                );
            }
        }
    }

    /// Bytes that the process wrote. [`read_lines`](Self::read_lines) reads the protocol's lines of them.
    pub fn output(&mut self, now: Instant, stream: Stream, bytes: &[u8]) {
        let mut lines = match stream {
            Stream::Output => std::mem::take(&mut self.output),
            Stream::Error => std::mem::take(&mut self.error),
        };
        lines.push(bytes, |line| match (stream, line) {
            (Stream::Output, Ok(line)) => self.keep(now, line),
            (Stream::Error, Ok(line)) => {
                if let Some(more) = self.shown.take(now) {
                    let name = self.program.name();
                    let text = format!(
                        "Managed proxy at '{name}' reported via standard error: {line}{more}"
                    );
                    self.log(Line::info(text).domain("PT"));
                }
            }
            (_, Err(TooLong)) => self.on_too_long(now, stream),
        });
        match stream {
            Stream::Output => self.output = lines,
            Stream::Error => self.error = lines,
        }
    }

    /// Reads lines that wait, as many as a turn has time for.
    pub fn read_lines(&mut self, now: Instant) {
        for _ in 0..LINES_PER_TURN {
            let Some(line) = self.waiting.pop_front() else {
                return;
            };
            let size = line.len() + LINE_OVERHEAD;
            self.waiting_bytes = self.waiting_bytes.saturating_sub(size);
            self.on_line(now, &line);
        }
    }

    /// Ends the program for good: torrc does not name it any more, or Tor ends.
    pub fn stop(&mut self, now: Instant) {
        self.lose();
        self.actions.push_back(Action::Stop);
        self.forget_lines();
        self.enter(now, State::Stopped);
    }

    /// Keeps a line for [`read_lines`](Self::read_lines), as long as there is room.
    fn keep(&mut self, now: Instant, line: &str) {
        if !self.is_configuring() && self.state != State::Completed {
            return;
        }
        let size = line.len() + LINE_OVERHEAD;
        if self.waiting_bytes + size <= MOST_WAITING {
            self.waiting_bytes += size;
            return self.waiting.push_back(line.to_owned());
        }
        let name = self.program.name();
        if let Some(suppressed) = self.too_many.check(now) {
            let line = Line::warn(format_args!(
                "Managed proxy at '{name}' prints more than we read. We ignore some of its lines"
            ));
            self.log(line.text(suppressed).text('.').domain("PT"));
        }
        // It may have been a transport.
        if self.is_configuring() {
            self.fail(now);
        }
    }

    fn forget_lines(&mut self) {
        self.waiting.clear();
        self.waiting_bytes = 0;
    }

    fn on_too_long(&mut self, now: Instant, stream: Stream) {
        let name = self.program.name();
        if let Some(suppressed) = self.too_long.check(now) {
            let line = Line::warn(format_args!(
                "Managed proxy at '{name}' wrote a line of more than {} bytes, which we ignore",
                crate::transports::line::LONGEST
            ));
            self.log(line.text(suppressed).text('.').domain("PT"));
        }
        // It may have been a transport.
        if stream == Stream::Output && self.is_configuring() {
            self.fail(now);
        }
    }

    fn on_line(&mut self, now: Instant, line: &str) {
        if !self.is_configuring() && self.state != State::Completed {
            return;
        }
        let name = self.program.name().to_owned();
        if let Some(more) = self.shown.take(now) {
            let shown = format!("Got a line from managed proxy '{name}': ({line}){more}");
            self.log(Line::info(shown).domain("PT"));
        }
        let message = match Message::parse(line) {
            Ok(message) => message,
            Err(bad) if bad.fatal => {
                if self.is_configuring() {
                    self.log(Line::warn(bad.why).domain("CONFIG"));
                }
                return self.fail(now);
            }
            Err(bad) => {
                if let Some(suppressed) = self.bad.check(now) {
                    let text = format!("Managed proxy \"{name}\" {}", bad.why);
                    self.log(Line::warn(text).text(suppressed).domain("PT"));
                }
                return self.on_odd(now);
            }
        };
        match message {
            Message::Log { severity, message } => {
                if let Some(more) = self.logged.take(now) {
                    let text = format!("Managed proxy \"{name}\": {message}{more}");
                    self.log(Line::new(severity, text).domain("PT"));
                }
            }
            // C tor's table of events has no name for PT_LOG and PT_STATUS, so that no controller can ask for them.
            Message::Status => {}
            Message::Unknown => self.on_unknown(now, line),
            Message::ProxyDone
                if !self.program.by_proxy && self.state == State::AcceptingMethods =>
            {
                self.on_unknown(now, line);
            }
            message => self.configure(now, message),
        }
    }

    fn on_unknown(&mut self, now: Instant, line: &str) {
        if let Some(suppressed) = self.unknown.check(now) {
            let text = format!("Unknown line received by managed proxy ({line}).");
            self.log(Line::notice(text).text(suppressed).domain("GENERAL"));
        }
        self.on_odd(now);
    }

    /// A line of no use: a program that is not configured yet has only some of them.
    fn on_odd(&mut self, now: Instant) {
        if self.is_configuring() {
            self.odd += 1;
            if self.odd > MOST_ODD {
                self.fail(now);
            }
        }
    }

    /// A message of the configuration: each has its time.
    fn configure(&mut self, now: Instant, message: Message) {
        let server = self.program.side == Side::Server;
        let begins = matches!(
            message,
            Message::Version | Message::NoVersion | Message::EnvironmentError(_)
        );
        let due = if begins {
            State::Launched
        } else {
            State::AcceptingMethods
        };
        if self.state != due {
            return self.fail(now);
        }
        match message {
            Message::Version => self.enter(now, State::AcceptingMethods),
            Message::NoVersion => {
                self.warn_config(
                    "Managed proxy could not pick a configuration protocol version.".to_owned(),
                );
                self.fail(now);
            }
            Message::EnvironmentError(text) => {
                self.warn_config(format!(
                    "Managed proxy couldn't understand the pluggable transport environment variables. ({text})"
                ));
                self.fail(now);
            }
            Message::ProxyDone => self.proxy_done = true,
            Message::ProxyError(text) => {
                self.warn_config(format!(
                    "Managed proxy failed to configure the pluggable transport's outgoing proxy. ({text})"
                ));
                self.fail(now);
            }
            Message::MethodError { server, text } => {
                // The program's other transports can be used.
                let side = if server { Side::Server } else { Side::Client }.name();
                self.warn_config(format!(
                    "{side} managed proxy encountered a method error. ({text})"
                ));
                self.on_odd(now);
            }
            Message::Method(transport) => self.on_method(now, transport),
            Message::MethodsDone { server: of } if of != server => self.on_other_side(now),
            Message::MethodsDone { .. } => self.on_done(now),
            Message::Log { .. } | Message::Status | Message::Unknown => {}
        }
    }

    fn on_method(&mut self, now: Instant, transport: Transport) {
        let of_server = matches!(transport.offer, Offer::Bridge { .. });
        if of_server != (self.program.side == Side::Server) {
            return self.on_other_side(now);
        }
        let Transport { name, address, .. } = &transport;
        if !self.program.transports.contains(name) {
            self.warn_config(format!(
                "Managed proxy at '{}' offers transport '{name}', which torrc does not ask it for.",
                self.program.name()
            ));
            return self.on_odd(now);
        }
        if self.transports.iter().any(|t| t.name == *name) {
            self.warn_config(format!(
                "Managed proxy at '{}' offers transport '{name}' twice.",
                self.program.name()
            ));
            return self.fail(now);
        }
        let side = self.program.side.name();
        let line = format!("{side} transport {name} at {address}.");
        self.log(Line::info(line).domain("CONFIG"));
        self.transports.push(transport);
    }

    fn on_other_side(&mut self, now: Instant) {
        self.warn_config(format!(
            "Managed proxy at '{}' answers for the other side: it was asked for transports of a {}.",
            self.program.name(),
            self.program.side.name().to_ascii_lowercase()
        ));
        self.fail(now);
    }

    fn on_done(&mut self, now: Instant) {
        let name = self.program.name().to_owned();
        if self.transports.is_empty() {
            let line = format!(
                "Managed proxy '{name}' was spawned successfully, but it didn't launch any pluggable transport \
                 listeners!"
            );
            self.log(Line::warn(line).domain("GENERAL"));
        }
        if self.program.by_proxy && !self.proxy_done {
            self.warn_config(format!(
                "Managed proxy '{name}' did not configure the specified outgoing proxy and will be terminated."
            ));
            self.actions.push_back(Action::Stop);
            self.forget_lines();
            return self.enter(now, State::Broken);
        }
        if self.transports.is_empty() {
            self.actions.push_back(Action::Stop);
            return self.start_later(now);
        }
        let side = self.program.side.name();
        let line = format!("{side} managed proxy '{name}' configuration completed!");
        self.log(Line::info(line).domain("CONFIG"));
        self.enter(now, State::Completed);
        self.actions.push_back(Action::Ready);
    }

    /// It broke the protocol.
    fn fail(&mut self, now: Instant) {
        self.warn_config(format!(
            "Managed proxy at '{}' failed the configuration protocol and will be destroyed.",
            self.program.name()
        ));
        self.lose();
        self.actions.push_back(Action::Stop);
        self.forget_lines();
        self.enter(now, State::Broken);
    }

    /// The process has ended or is ended now: another one is started after a while.
    fn start_later(&mut self, now: Instant) {
        if self.state == State::Completed && self.lasts(now) >= RAN_WELL {
            self.wait = FIRST_WAIT;
        }
        self.lose();
        self.forget_lines();
        self.start_at = Some(now + self.wait);
        self.wait = (self.wait * 2).min(LONGEST_WAIT);
        self.enter(now, State::Infant);
    }

    fn lose(&mut self) {
        if self.state == State::Completed {
            self.actions.push_back(Action::Lost);
        }
    }

    fn is_configuring(&self) -> bool {
        matches!(self.state, State::Launched | State::AcceptingMethods)
    }

    fn lasts(&self, now: Instant) -> Duration {
        self.since
            .map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    fn enter(&mut self, now: Instant, state: State) {
        self.since = Some(now);
        if self.state == state {
            return;
        }
        let (before, after) = (self.state.name(), state.name());
        let name = self.program.name();
        let line = format!("Managed proxy \"{name}\" changed state: {before} -> {after}");
        self.log(Line::info(line).domain("PT"));
        self.state = state;
    }

    fn log(&mut self, line: Line) {
        self.actions.push_back(Action::Log(line));
    }

    fn warn_config(&mut self, text: String) {
        self.log(Line::warn(text).domain("CONFIG"));
    }
}

#[cfg(test)]
mod tests;
