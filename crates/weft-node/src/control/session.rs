//! One controller: what it says, one command after the other, and what it hears (control-spec 3).

use std::sync::Arc;

use super::auth::{Authentication, Cookie};
use super::backend::{Backend, Change, Order, Signal};
use super::events::{Event, Wanted};
use super::reader::Command;
use super::reply::Reply;
use super::view::{NodeView, iso_time};
use super::words::{flag, key_values, quote, split_words, value, words};
use super::{info, orders, settings};

/// What all controllers of a port share.
#[derive(Debug)]
pub struct Shared {
    /// The secret of the cookie file, where there is one.
    pub cookie: Option<Cookie>,
    /// What we say of our version.
    pub version: String,
}

/// One controller's connection.
#[derive(Debug)]
pub struct Session<B> {
    backend: B,
    shared: Arc<Shared>,
    authentication: Authentication,
    trusted: bool,
    wanted: Wanted,
    /// The node ends when this controller goes.
    owner: bool,
    /// Lookups that were asked for.
    look_ups: Vec<(String, Option<std::net::IpAddr>)>,
}

impl<B: Backend> Session<B> {
    /// A controller came.
    pub fn new(backend: B, shared: Arc<Shared>) -> Self {
        Self {
            backend,
            shared,
            authentication: Authentication::default(),
            trusted: false,
            wanted: Wanted::default(),
            owner: false,
            look_ups: Vec::new(),
        }
    }

    /// It has shown that it may.
    pub fn is_trusted(&self) -> bool {
        self.trusted
    }

    /// The node shall end when it goes.
    pub fn is_owner(&self) -> bool {
        self.owner
    }

    /// Lookups to be begun; whose ends are told as events.
    pub fn take_look_ups(&mut self) -> Vec<(String, Option<std::net::IpAddr>)> {
        std::mem::take(&mut self.look_ups)
    }

    /// What it is sent of something that happened; nothing, if it did not ask.
    pub fn event(&self, event: &Event, now: &str) -> Option<String> {
        let wanted = self.trusted && self.wanted.has(event.name());
        wanted.then(|| event.encode(now))
    }

    /// Carries out a command.
    pub async fn command(&mut self, command: &Command, nonce: [u8; 32]) -> Reply {
        let upper = command.word.to_ascii_uppercase();
        let word = upper.as_str();
        let rest = command.rest.as_str();
        if word == "QUIT" {
            return Reply::last(250, "closing connection");
        }
        if !self.trusted && !self.authentication.allows(word) {
            return Reply::last(514, "Authentication required.");
        }
        let node = self.backend.node();
        match word {
            "AUTHENTICATE" => self.authenticate(rest, &node),
            "AUTHCHALLENGE" => {
                let cookie = self.shared.cookie.as_ref();
                let cookie = cookie.filter(|_| node.options.control.cookie_file.is_some());
                self.authentication.challenge(rest, cookie, nonce)
            }
            "PROTOCOLINFO" => self.protocol_info(rest, &node),
            "GETINFO" => info::get(&self.backend, &node, &self.shared.version, &words(rest)).await,
            "GETCONF" => settings::get(&node.options.settings, &words(rest)),
            "SETCONF" => self.configure(rest, Change::Set).await,
            "RESETCONF" => self.configure(rest, Change::Reset).await,
            "+LOADCONF" => self.change(Change::Load(command.data.clone())).await,
            "SAVECONF" => {
                let force = key_values(rest).is_some_and(|args| flag(&args, "FORCE"));
                match self.backend.configure(Change::Save { force }).await {
                    Ok(()) => Reply::ok(),
                    Err(_) => Reply::line(551, "Unable to write configuration to disk."),
                }
            }
            "SETEVENTS" => self.set_events(rest),
            "SIGNAL" => self.signal(rest),
            "TAKEOWNERSHIP" => {
                self.owner = true;
                Reply::ok()
            }
            "DROPOWNERSHIP" => {
                self.owner = false;
                Reply::ok()
            }
            "USEFEATURE" => use_feature(rest),
            "MAPADDRESS" => orders::map_addresses(&self.backend, rest).await,
            "RESOLVE" => self.resolve(rest),
            "EXTENDCIRCUIT" => orders::extend_circuit(&self.backend, rest).await,
            "SETCIRCUITPURPOSE" => orders::set_purpose(&self.backend, rest).await,
            "CLOSECIRCUIT" => orders::close_circuit(&self.backend, rest).await,
            "ATTACHSTREAM" => orders::attach_stream(&self.backend, rest).await,
            "REDIRECTSTREAM" => orders::redirect_stream(&self.backend, rest).await,
            "CLOSESTREAM" => orders::close_stream(&self.backend, rest).await,
            "DROPGUARDS" => orders::order(&self.backend, Order::DropGuards).await,
            "DROPTIMEOUTS" => orders::order(&self.backend, Order::DropTimeouts).await,
            "SETROUTERPURPOSE" => Reply::line(511, "SETROUTERPURPOSE is obsolete."),
            // There are none to delete (hs_address_is_valid, handle_control_del_onion).
            "DEL_ONION" if is_onion_id(rest.trim()) => Reply::line(552, "Unknown Onion Service id"),
            "DEL_ONION" => Reply::line(512, "Malformed Onion Service id"),
            "+POSTDESCRIPTOR"
            | "HSFETCH"
            | "+HSPOST"
            | "ADD_ONION"
            | "ONION_CLIENT_AUTH_ADD"
            | "ONION_CLIENT_AUTH_REMOVE"
            | "ONION_CLIENT_AUTH_VIEW" => Reply::line(
                551,
                format!("{word} is not supported by this version of Weft"),
            ),
            _ => Reply::line(510, format!("Unrecognized command \"{}\"", command.word)),
        }
    }

    fn authenticate(&mut self, rest: &str, node: &NodeView) -> Reply {
        let options = &node.options.control;
        let cookie = self.shared.cookie.as_ref();
        match self.authentication.authenticate(rest, options, cookie) {
            Ok(()) => {
                self.trusted = true;
                Reply::ok()
            }
            Err(reply) => reply,
        }
    }

    fn protocol_info(&mut self, rest: &str, node: &NodeView) -> Reply {
        self.authentication.asked_protocol = true;
        let is_version = |word: &&str| word.parse::<u32>().is_ok();
        if let Some(bad) = words(rest).iter().find(|word| !is_version(word)) {
            let mut reply = Reply::line(513, format!("No such version {}", quote(bad.as_bytes())));
            reply.close = !self.trusted;
            return reply;
        }
        let options = &node.options.control;
        let mut methods = Vec::new();
        if options.cookie_file.is_some() {
            methods.extend(["COOKIE", "SAFECOOKIE"]);
        }
        if !options.hashed_passwords.is_empty() {
            methods.push("HASHEDPASSWORD");
        }
        if methods.is_empty() {
            methods.push("NULL");
        }
        let mut auth = format!("AUTH METHODS={}", methods.join(","));
        if let Some(file) = &options.cookie_file {
            let whole = std::path::absolute(file).unwrap_or_else(|_| file.clone());
            let bytes = std::os::unix::ffi::OsStrExt::as_bytes(whole.as_os_str());
            auth.push_str(&format!(" COOKIEFILE={}", quote(bytes)));
        }
        let mut reply = Reply::line(250, "PROTOCOLINFO 1");
        reply.add(250, auth);
        reply.add(
            250,
            format!("VERSION Tor={}", quote(self.shared.version.as_bytes())),
        );
        reply.add(250, "OK");
        reply
    }

    fn set_events(&mut self, rest: &str) -> Reply {
        let mut wanted = Wanted::default();
        for name in words(rest) {
            if !wanted.add(name) {
                return Reply::line(552, format!("Unrecognized event \"{name}\""));
            }
        }
        self.wanted = wanted;
        for kind in ["DEBUG", "INFO"] {
            if wanted.has(kind) {
                self.backend.want_log(kind);
                break;
            }
        }
        Reply::ok()
    }

    fn signal(&mut self, rest: &str) -> Reply {
        let words = words(rest);
        let [name] = words[..] else {
            return wrong_number("SIGNAL", words.len(), 1, 1);
        };
        match Signal::named(name) {
            Some(signal) => {
                self.backend.signal(signal);
                Reply::ok()
            }
            None => Reply::line(552, format!("Unrecognized signal code \"{name}\"")),
        }
    }

    fn resolve(&mut self, rest: &str) -> Reply {
        let Some(args) = key_values(rest) else {
            return unparsable("RESOLVE");
        };
        if !self.wanted.has("ADDRMAP") {
            tracing::warn!(
                "A controller asks to look up a name but does not want ADDRMAP events: it will not \
                 hear the answer"
            );
        }
        let reverse = value(&args, "mode").is_some_and(|mode| mode.eq_ignore_ascii_case("reverse"));
        for arg in args.iter().filter(|arg| arg.value.is_none()) {
            let address = match reverse {
                true => arg
                    .key
                    .parse()
                    .ok()
                    .or_else(|| crate::apps::dns::reverse(&arg.key)),
                false => None,
            };
            if reverse && address.is_none() {
                let text = format!("syntax error: invalid address '{}'", arg.key);
                return Reply::line(512, text);
            }
            self.look_ups.push((arg.key.clone(), address));
        }
        Reply::ok()
    }

    async fn configure(
        &self,
        rest: &str,
        change: impl FnOnce(Vec<(String, Option<String>)>) -> Change,
    ) -> Reply {
        let Some(args) = key_values(rest) else {
            return unparsable("SETCONF");
        };
        let pairs = args.into_iter().map(|arg| (arg.key, arg.value));
        self.change(change(pairs.collect())).await
    }

    async fn change(&self, change: Change) -> Reply {
        match self.backend.configure(change).await {
            Ok(()) => Reply::ok(),
            Err(failed) => Reply::line(failed.code, failed.text),
        }
    }
}

/// The event that a lookup comes to.
pub(super) fn mapped(name: &str, resolved: Option<&weft_cell::stream_msg::Resolved>) -> Vec<Event> {
    use weft_cell::stream_msg::AnswerKind;
    let now = time::OffsetDateTime::now_utc();
    let event = |to: Option<String>, ttl: u32| {
        let until = now + time::Duration::seconds(i64::from(ttl));
        let utc = iso_time(until, ' ');
        let local = crate::logging::local_iso(until.into());
        let details = Event::map_details(&local, Some(&utc), to.is_none(), None);
        Event::Mapped(name.to_owned(), to, details)
    };
    let answers = resolved.map(|resolved| resolved.answers.as_slice());
    let mut events = Vec::new();
    for answer in answers.unwrap_or_default() {
        let to = match &answer.kind {
            AnswerKind::Ipv4(address) => address.to_string(),
            AnswerKind::Ipv6(address) => address.to_string(),
            AnswerKind::Hostname(name) => String::from_utf8_lossy(name).into_owned(),
            AnswerKind::TransientError | AnswerKind::Error => continue,
        };
        events.push(event(Some(to), answer.ttl));
        // C tor tells the best answer only.
        break;
    }
    if events.is_empty() {
        events.push(event(None, 60));
    }
    events
}

/// Whether it has the form of an onion service's name, without `.onion`.
fn is_onion_id(text: &str) -> bool {
    text.len() == 56
        && text
            .bytes()
            .all(|b| b.is_ascii_alphabetic() || (b'2'..=b'7').contains(&b))
}

fn use_feature(rest: &str) -> Reply {
    let known = |word: &&str| {
        ["VERBOSE_NAMES", "EXTENDED_EVENTS"]
            .iter()
            .any(|known| known.eq_ignore_ascii_case(word))
    };
    match words(rest).iter().find(|word| !known(word)) {
        Some(word) => Reply::line(552, format!("Unrecognized feature \"{word}\"")),
        None => Reply::ok(),
    }
}

/// The reply to a command with too many arguments, or too few.
pub(super) fn wrong_number(command: &str, found: usize, least: usize, most: usize) -> Reply {
    let what = match found < least {
        true => format!("Need at least {least} argument(s)"),
        false => format!("Cannot accept more than {most} argument(s)"),
    };
    Reply::line(512, format!("Bad arguments to {command}: {what}"))
}

/// The reply to a command whose keyed arguments are no such thing.
pub(super) fn unparsable(command: &str) -> Reply {
    let text = format!("Bad arguments to {command}: Cannot parse keyword argument(s)");
    Reply::line(512, text)
}

/// The first words and the keyed arguments behind them.
pub(super) fn arguments<'a>(
    command: &str,
    rest: &'a str,
    count: usize,
) -> Result<(Vec<&'a str>, Vec<super::words::Arg>), Reply> {
    let (words, rest) = split_words(rest, count);
    if words.len() < count {
        return Err(wrong_number(command, words.len(), count, count));
    }
    let args = key_values(rest).ok_or_else(|| unparsable(command))?;
    Ok((words, args))
}
