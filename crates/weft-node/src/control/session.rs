//! One controller's connection: handles its commands one after the other, and selects its events
//! (control-spec 3).

use std::sync::Arc;

use weft_cell::stream_msg::ReverseName;

use super::args::{
    has_keyword, keyword_args, keyword_value, positional_args, quote, unparsable, wrong_number,
};
use super::auth::{Authentication, Cookie};
use super::backend::{Backend, ClientCommand, ConfigCommand, Signal};
use super::commands::Command;
use super::events::{Event, EventMask, Mapping};
use super::reader::RawCommand;
use super::reply::Reply;
use super::view::{NodeView, iso_time};
use super::{client_commands, info, onion, settings};

/// Constants that all connections of the control ports share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub cookie: Option<Cookie>,
    /// The version that PROTOCOLINFO and GETINFO return.
    pub version: String,
}

/// One controller's connection.
#[derive(Debug)]
pub(crate) struct Session<B> {
    backend: B,
    shared: Arc<Shared>,
    authentication: Authentication,
    trusted: bool,
    events: EventMask,
    /// TAKEOWNERSHIP: the node ends when this connection closes.
    owner: bool,
    /// Lookups of RESOLVE that were not started yet.
    lookups: Vec<(String, Option<std::net::IpAddr>)>,
}

impl<B: Backend> Session<B> {
    pub(crate) fn new(backend: B, shared: Arc<Shared>) -> Self {
        Self {
            backend,
            shared,
            authentication: Authentication::default(),
            trusted: false,
            events: EventMask::default(),
            owner: false,
            lookups: Vec::new(),
        }
    }

    /// The node belongs to this controller, which need not authenticate.
    pub(crate) fn own(&mut self) {
        self.trusted = true;
        self.owner = true;
    }

    /// True if the controller has authenticated.
    pub(crate) fn is_trusted(&self) -> bool {
        self.trusted
    }

    /// True if the node ends when this connection closes.
    pub(crate) fn is_owner(&self) -> bool {
        self.owner
    }

    /// The lookups to start. Their results become events ([`addrmap_events`]).
    pub(crate) fn take_lookups(&mut self) -> Vec<(String, Option<std::net::IpAddr>)> {
        std::mem::take(&mut self.lookups)
    }

    /// The lines of an event; `None`: the controller has not subscribed to it.
    pub(crate) fn encode_event(&self, event: &Event, now: &str) -> Option<String> {
        let wanted = self.trusted && self.events.has(event.name());
        wanted.then(|| event.encode(now))
    }

    /// Carries out a command. `nonce` is random, for AUTHCHALLENGE.
    pub(crate) async fn command(&mut self, command: &RawCommand, nonce: [u8; 32]) -> Reply {
        let rest = command.rest.as_str();
        let known = Command::of(&command.word);
        if !self.trusted && !known.is_some_and(|known| self.authentication.allows(known)) {
            return Reply::last(514, "Authentication required.");
        }
        let Some(known) = known else {
            return Reply::line(510, format!("Unrecognized command \"{}\"", command.word));
        };
        let node = self.backend.node();
        match known {
            Command::Authenticate => self.authenticate(rest, &node),
            Command::AuthChallenge => {
                let cookie = self.shared.cookie.as_ref();
                let cookie = cookie.filter(|_| node.options.control.cookie_file.is_some());
                self.authentication.challenge(rest, cookie, nonce)
            }
            Command::ProtocolInfo => self.protocol_info(rest, &node),
            Command::Quit => Reply::last(250, "closing connection"),
            Command::GetInfo => {
                info::get(
                    &self.backend,
                    &node,
                    &self.shared.version,
                    &positional_args(rest),
                )
                .await
            }
            Command::GetConf => settings::get(&node.options.settings, &positional_args(rest)),
            Command::SetConf => self.configure(rest, ConfigCommand::Set).await,
            Command::ResetConf => self.configure(rest, ConfigCommand::Reset).await,
            Command::LoadConf => self.change(ConfigCommand::Load(command.data.clone())).await,
            Command::SaveConf => {
                let force = keyword_args(rest).is_some_and(|args| has_keyword(&args, "FORCE"));
                match self.backend.configure(ConfigCommand::Save { force }).await {
                    Ok(()) => Reply::ok(),
                    Err(_) => Reply::line(551, "Unable to write configuration to disk."),
                }
            }
            Command::SetEvents => self.set_events(rest).await,
            Command::Signal => self.signal(rest).await,
            Command::TakeOwnership => {
                self.owner = true;
                Reply::ok()
            }
            Command::DropOwnership => {
                self.owner = false;
                Reply::ok()
            }
            Command::UseFeature => use_feature(rest),
            Command::MapAddress => client_commands::map_addresses(&self.backend, rest).await,
            Command::Resolve => self.resolve(rest),
            Command::ExtendCircuit => client_commands::extend_circuit(&self.backend, rest).await,
            Command::SetCircuitPurpose => client_commands::set_purpose(&self.backend, rest).await,
            Command::CloseCircuit => client_commands::close_circuit(&self.backend, rest).await,
            Command::AttachStream => client_commands::attach_stream(&self.backend, rest).await,
            Command::RedirectStream => client_commands::redirect_stream(&self.backend, rest).await,
            Command::CloseStream => client_commands::close_stream(&self.backend, rest).await,
            Command::DropGuards => {
                client_commands::run(&self.backend, ClientCommand::DropGuards).await
            }
            Command::DropTimeouts => {
                client_commands::run(&self.backend, ClientCommand::DropTimeouts).await
            }
            Command::SetRouterPurpose => Reply::line(511, "SETROUTERPURPOSE is obsolete."),
            Command::AddOnion
            | Command::DelOnion
            | Command::HsFetch
            | Command::HsPost
            | Command::OnionAuthAdd
            | Command::OnionAuthRemove
            | Command::OnionAuthView => onion::command(known.word(), rest),
            Command::PostDescriptor => Reply::line(
                551,
                format!("{} is not supported by this version of Weft", known.word()),
            ),
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
        self.authentication.protocol_info_sent = true;
        let is_version = |word: &&str| word.parse::<u32>().is_ok();
        if let Some(bad) = positional_args(rest).iter().find(|word| !is_version(word)) {
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

    async fn set_events(&mut self, rest: &str) -> Reply {
        let mut events = EventMask::default();
        for name in positional_args(rest) {
            if !events.add(name) {
                return Reply::line(552, format!("Unrecognized event \"{name}\""));
            }
        }
        self.events = events;
        for kind in ["DEBUG", "INFO"] {
            if events.has(kind) {
                self.backend.enable_events(kind).await;
                break;
            }
        }
        for kind in ["CONN_BW", "CELL_STATS"] {
            if events.has(kind) {
                self.backend.enable_events(kind).await;
            }
        }
        Reply::ok()
    }

    async fn signal(&self, rest: &str) -> Reply {
        let words = positional_args(rest);
        let [name] = words[..] else {
            return wrong_number("SIGNAL", words.len(), 1, 1);
        };
        match Signal::from_name(name) {
            Some(signal) => {
                self.backend.signal(signal).await;
                Reply::ok()
            }
            None => Reply::line(552, format!("Unrecognized signal code \"{name}\"")),
        }
    }

    fn resolve(&mut self, rest: &str) -> Reply {
        let Some(args) = keyword_args(rest) else {
            return unparsable("RESOLVE");
        };
        if !self.events.has("ADDRMAP") {
            tracing::warn!(
                "A controller asks to look up a name but does not want ADDRMAP events: it will not \
                 hear the answer"
            );
        }
        let reverse =
            keyword_value(&args, "mode").is_some_and(|mode| mode.eq_ignore_ascii_case("reverse"));
        for arg in args.iter().filter(|arg| arg.value.is_none()) {
            let address = match reverse {
                true => arg
                    .key
                    .parse()
                    .ok()
                    .or_else(|| ReverseName::parse(arg.key.as_bytes()).address()),
                false => None,
            };
            if reverse && address.is_none() {
                let text = format!("syntax error: invalid address '{}'", arg.key);
                return Reply::line(512, text);
            }
            self.lookups.push((arg.key.clone(), address));
        }
        Reply::ok()
    }

    async fn configure(
        &self,
        rest: &str,
        change: impl FnOnce(Vec<(String, Option<String>)>) -> ConfigCommand,
    ) -> Reply {
        let Some(args) = keyword_args(rest) else {
            return unparsable("SETCONF");
        };
        let pairs = args.into_iter().map(|arg| (arg.key, arg.value));
        self.change(change(pairs.collect())).await
    }

    async fn change(&self, change: ConfigCommand) -> Reply {
        match self.backend.configure(change).await {
            Ok(()) => Reply::ok(),
            Err(failed) => Reply::line(failed.code, failed.text),
        }
    }
}

/// The ADDRMAP events for the result of a lookup.
pub(super) fn addrmap_events(
    name: &str,
    resolved: Option<&weft_cell::stream_msg::Resolved>,
) -> Vec<Event> {
    use weft_cell::stream_msg::AnswerKind;
    let now = time::OffsetDateTime::now_utc();
    let event = |to: Option<String>, ttl: u32| {
        let until = now + time::Duration::seconds(i64::from(ttl));
        let local = crate::logging::local_iso(until.into());
        Event::Mapped(Mapping {
            from: name.to_owned(),
            to,
            expires: Some((local, iso_time(until, ' '))),
            stream: None,
        })
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
        // C tor reports the best answer only.
        break;
    }
    if events.is_empty() {
        events.push(event(None, 60));
    }
    events
}

fn use_feature(rest: &str) -> Reply {
    let known = |word: &&str| {
        ["VERBOSE_NAMES", "EXTENDED_EVENTS"]
            .iter()
            .any(|known| known.eq_ignore_ascii_case(word))
    };
    match positional_args(rest).iter().find(|word| !known(word)) {
        Some(word) => Reply::line(552, format!("Unrecognized feature \"{word}\"")),
        None => Reply::ok(),
    }
}
