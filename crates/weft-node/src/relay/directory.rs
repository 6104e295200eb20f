//! The relay's directory thread: commands to it, events from it.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Instant, SystemTime};

use weft_authority::SharedAuthority;
use weft_config::Options;
use weft_dir::command::{Command, Event, RelayFlags, Severity, UploadOutcome};
use weft_dir::sockets::Sockets;
use weft_dir::task::Config;
use weft_dircache::{Authority, DirectoryHandle};

use super::error::StartError;
use super::metrics::by_family;
use super::{Relay, descriptor};
use crate::control::events::Event as ControlEvent;
use crate::control::quote;
use crate::control::view::{BootstrapView, long_name};
use crate::logging::{self, safe};
use crate::metrics::{ListenerCounts, TypedConnections};
use crate::notice;
use crate::reachability::CircuitRequests;
use crate::wake::WakeUp;
use weft_datadir::state;

/// Protocols that C tor 0.4.9's authorities require of every relay and that one lacks where `DirCache` is off.
const LACKED: [&str; 2] = ["DirCache", "HSDir"];

/// Missing protocols for which `DirCache` is not the reason: the version is too old.
fn beyond_design(protocols: &str) -> String {
    let name = |entry: &str| entry.split('=').next().is_some_and(|n| LACKED.contains(&n));
    let beyond: Vec<&str> = protocols.split(' ').filter(|entry| !name(entry)).collect();
    beyond.join(" ")
}

/// The names of flags, as a consensus lists them.
fn flag_names(flags: RelayFlags) -> String {
    let mut names: Vec<String> = flags.iter().map(|flag| flag.to_string()).collect();
    names.sort();
    names.join(" ")
}

/// Events that may wait for the main thread.
const EVENTS: usize = 1024;

/// The directory's thread of a relay, and the authority of a private network.
pub(super) struct DirectorySide {
    /// `None`: the node is a client alone, whose directory is on its own thread.
    pub(super) handle: Option<DirectoryHandle>,
    pub(super) events: Receiver<Event>,
    /// It reads the consensus of the last run, which has the relays: no connection is accepted
    /// before.
    pub(super) reads_cache: bool,
    /// Documents that the directory serves instead of those that it fetches.
    pub(super) authority: Option<Arc<SharedAuthority>>,
    /// Bytes of descriptors of onion services that had been pruned when that was last looked at.
    pub(super) pruned: u64,
}

impl DirectorySide {
    /// Starts the directory's thread of a relay. `main` wakes the main thread.
    ///
    /// # Errors
    ///
    /// The system has no thread for it.
    pub(super) fn start(
        options: &Options,
        authority: Option<Arc<SharedAuthority>>,
        state: Vec<(String, String)>,
        [seed, circuit_seed]: [[u8; 32]; 2],
        main: WakeUp,
    ) -> io::Result<Self> {
        let (sender, events) = mpsc::sync_channel(EVENTS);
        let circuits = Arc::new(CircuitRequests::new(circuit_seed));
        let handle = match options.is_relay() {
            false => None,
            true => Some(DirectoryHandle::start(
                Config {
                    options: descriptor::directory_options(options),
                    state,
                    seed,
                    circuits,
                },
                authority
                    .clone()
                    .map(|authority| authority as Arc<dyn Authority>),
                Box::new(move |event| {
                    // Only a main thread that is stuck has a thousand events waiting.
                    let _ = sender.try_send(event);
                    main.notify();
                }),
            )?),
        };
        Ok(DirectorySide {
            reads_cache: handle.is_some(),
            handle,
            events,
            authority,
            pruned: 0,
        })
    }

    /// DirPorts, and connections to directories other than by circuits.
    pub(super) fn connections(
        &self,
        listeners: ListenerCounts,
    ) -> (TypedConnections, TypedConnections) {
        let by = |sockets: Option<&Sockets>| sockets.map(by_family).unwrap_or_default();
        let (received, open) = by(self.handle.as_ref().map(DirectoryHandle::received));
        let mut directory = TypedConnections::received("Directory", received, open);
        let (initiated, open) = by(self.handle.as_ref().map(DirectoryHandle::sockets));
        (directory.created.initiated, directory.open.initiated) = (initiated, open);
        let (opened, open) = (listeners.opened, listeners.open);
        let listener = TypedConnections::initiated("Directory listener", opened, open);
        (listener, directory)
    }
}

impl Relay {
    /// Sends the directory task a command.
    pub(super) fn directory(&mut self, command: Command) {
        if let Some(directory) = &self.directory.handle
            && directory.send(command).is_err()
        {
            tracing::info!("The directory task is busy; it misses a message");
        }
    }

    /// Sends the directory our descriptor as it is now.
    pub(super) fn publish_descriptor(&mut self) {
        let Some(keys) = &self.identity.keys else {
            return;
        };
        match descriptor::own_descriptor(
            &self.options,
            keys,
            &self.identity.families.0,
            &self.own.addresses,
            self.exits.policy(),
        ) {
            Some(mut own) => {
                self.accounting.describe(&mut own, &self.options);
                own.transports = self.bridge_transports.lines(&self.own.addresses);
                self.directory(Command::Descriptor(Box::new(own)));
            }
            None => tracing::info!("No IPv4 address known yet: no descriptor is published"),
        }
    }

    /// Handles an event of the directory.
    pub(super) fn on_directory(&mut self, event: Event, now: Instant) {
        match event {
            Event::Consensus(consensus) => {
                self.network.adopt(consensus, now);
                self.apply_params();
                self.check_families();
            }
            Event::CacheRead => {
                self.directory.reads_cache = false;
                self.accept_all(now);
            }
            // A client in the same process reports its own start: programs wait for its end before they
            // ask for circuits.
            Event::Bootstrap { .. } if self.client.is_some() => {}
            Event::Bootstrap {
                percent,
                tag,
                summary,
            } => {
                notice!("Bootstrapped {percent}% ({tag}): {summary}");
                self.network.bootstrap = Some(BootstrapView {
                    progress: percent,
                    tag: tag.to_owned(),
                    summary: summary.to_owned(),
                    problem: None,
                });
            }
            Event::Uploaded { authority, outcome } => {
                self.report_upload(&authority, &outcome);
                self.network.accepted |=
                    matches!(outcome, UploadOutcome::Accepted | UploadOutcome::NotNew);
                if let Some(line) = self.uploads.line(&authority, &outcome, now) {
                    logging::log(&line);
                }
            }
            Event::Published {
                accepted,
                of,
                reason,
                observed,
            } => {
                self.network.accepted = accepted > 0;
                self.self_test.published = observed;
                self.report(ControlEvent::DescriptorChanged);
                logging::log(&self.uploads.published(accepted, of, reason, observed));
            }
            Event::NewDescriptors(relays) => {
                let names = relays.into_iter();
                let names = names.map(|(id, nickname)| long_name(&id.into(), &nickname));
                self.report(ControlEvent::NewDescriptors(names.collect()));
            }
            Event::Downloads(downloads) => {
                self.network.downloads = Some(Arc::from(downloads));
            }
            Event::Listed(Some(flags)) => {
                self.metrics.flags = flags;
                notice!("The consensus lists us, with flags: {}", flag_names(flags));
            }
            Event::Listed(None) => {
                self.metrics.flags = RelayFlags::empty();
                notice!("The consensus does not list us (any more)");
            }
            Event::MissingProtocols {
                required,
                protocols,
            } => {
                if required {
                    self.on_required_protocols(&protocols, now);
                } else {
                    tracing::info!(
                        "The consensus recommends protocols that this version does not speak: \
                         {protocols}"
                    );
                }
            }
            Event::ClockSkew { seconds, source } => {
                let event = format!("CLOCK_SKEW SKEW={seconds} SOURCE=DIRSERV");
                self.report_general_status("WARN", &event);
                if let Some(more) = self.log_limits.skew.check(now) {
                    tracing::warn!(
                        "Our clock differs from the directory's ({source}) by {seconds} seconds: \
                         check your time and date settings{more}"
                    );
                }
            }
            Event::AddressSuggested { address, source } if self.own.seen != Some(address) => {
                tracing::info!("{source} sees us at {}", safe(address));
                self.own.seen = Some(address);
                self.find_addresses();
            }
            Event::State(lines) => self.save_state(&lines),
            Event::Message(severity, text) => match severity {
                Severity::Info => tracing::info!("{text}"),
                Severity::Notice => notice!("{text}"),
                Severity::Warn => tracing::warn!("{text}"),
            },
            _ => {}
        }
    }

    /// STATUS_SERVER about an upload of our descriptor (directory_post). Call it before the outcome is noted.
    fn report_upload(&self, authority: &str, outcome: &UploadOutcome) {
        let authorities = crate::directory::authorities(&self.options);
        let mut named = authorities.iter().filter(|one| one.nickname == authority);
        let Some(at) = named.next().map(|one| one.dir_addr) else {
            return;
        };
        match outcome {
            UploadOutcome::Accepted | UploadOutcome::NotNew => {
                let event = format!("ACCEPTED_SERVER_DESCRIPTOR DIRAUTH={at}");
                self.report_server_status("NOTICE", &event);
                if !self.network.accepted {
                    self.report_server_status("NOTICE", "GOOD_SERVER_DESCRIPTOR");
                }
            }
            UploadOutcome::Refused(reason) => {
                let reason = quote(reason.as_bytes());
                let event = format!("BAD_SERVER_DESCRIPTOR DIRAUTH={at} REASON={reason}");
                self.report_server_status("WARN", &event);
            }
            _ => {}
        }
    }

    /// The network requires what this relay lacks. C tor ends then (`handle_missing_protocol_warning`).
    /// With `DirCache 0` the descriptor shows what is lacking; the authorities list the relay all the same.
    fn on_required_protocols(&mut self, protocols: &str, now: Instant) {
        let new = beyond_design(protocols);
        if new.is_empty() {
            tracing::warn!(
                "The consensus requires protocols that this relay does not speak with DirCache 0: {protocols}. \
                 Relays of the public network are to speak them, and its authorities may leave this one out"
            );
        } else {
            let (of, protocols) = ("relays", new);
            self.fail(StartError::TooOld { of, protocols }, now);
        }
    }

    /// Keeps the bandwidth history for the next start.
    pub(super) fn save_state(&self, lines: &[(String, String)]) {
        let saved = state::update(
            &self.options.files.data_directory,
            SystemTime::now(),
            |state| {
                for (key, value) in lines {
                    state.set(key, value);
                }
            },
        );
        if let Err(error) = saved {
            tracing::warn!("Could not save the state: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_logged_as_a_consensus_lists_them() {
        use weft_dir::command::RelayFlag;
        let flags = RelayFlag::Valid | RelayFlag::Fast | RelayFlag::V2Dir;
        assert_eq!(flag_names(flags), "Fast V2Dir Valid");
    }

    #[test]
    fn a_relay_that_is_no_directory_goes_on_and_one_that_is_too_old_ends() {
        for (missing, beyond) in [
            ("DirCache=2 HSDir=2", ""),
            (
                "HSDir=2 HSIntro=6 Link=6 Relay=9",
                "HSIntro=6 Link=6 Relay=9",
            ),
            ("Frob=1", "Frob=1"),
        ] {
            assert_eq!(beyond_design(missing), beyond, "{missing}");
        }
    }
}
