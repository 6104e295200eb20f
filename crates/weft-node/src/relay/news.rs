//! Between the relay and its directory task: commands to it, news from it.

use std::time::{Instant, SystemTime};

use weft_dir::command::{Command, Event, RelayFlags, Severity};

use super::{Relay, descriptor};
use crate::logging::safe;
use crate::notice;
use crate::process::state;

impl Relay {
    /// Sends the directory task a command.
    pub(super) fn directory(&mut self, command: Command) {
        if let Some(directory) = &self.directory
            && directory.send(command).is_err()
        {
            tracing::info!("The directory task is busy; it misses a message");
        }
    }

    /// Tells the directory what our descriptor says now.
    pub(super) fn publish_descriptor(&mut self) {
        let Some(keys) = &self.keys else {
            return;
        };
        match descriptor::own_descriptor(&self.options, keys, &self.addresses, self.exits.policy())
        {
            Some(own) => self.directory(Command::Descriptor(Box::new(own))),
            None => tracing::info!("No IPv4 address known yet: no descriptor is published"),
        }
    }

    /// News from the directory.
    pub(super) fn on_directory(&mut self, event: Event, now: Instant) {
        match event {
            Event::Consensus(consensus) => {
                self.network = consensus.params.clone();
                self.consensus = Some(consensus);
                self.apply_params();
            }
            // A client in the same process tells of its own start: programs wait for that one's end
            // before they ask for circuits.
            Event::Bootstrap { .. } if self.client.is_some() => {}
            Event::Bootstrap {
                percent,
                tag,
                summary,
            } => notice!("Bootstrapped {percent}% ({tag}): {summary}"),
            Event::Uploaded { authority, outcome } => {
                tracing::info!("Upload of our descriptor to {authority}: {outcome:?}");
            }
            Event::Published {
                accepted,
                of,
                reason,
                observed,
            } => notice!(
                "Published our descriptor ({reason}): {accepted} of {of} authorities have it, \
                 observed bandwidth {} kB/s",
                observed / 1000
            ),
            Event::Listed(Some(flags)) => {
                self.metrics.flags = flags;
                notice!("The consensus lists us, with flags: {flags:?}");
            }
            Event::Listed(None) => {
                self.metrics.flags = RelayFlags::empty();
                notice!("The consensus does not list us (any more)");
            }
            Event::MissingProtocols {
                required,
                protocols,
            } => {
                // C tor stops when it lacks a required protocol. A relay of this version lacks
                // those of onion services and exits by design, and its descriptor says so.
                if required {
                    tracing::warn!(
                        "The consensus requires protocols that this version does not speak: \
                         {protocols}. It is not for the public network yet: relays there are to \
                         speak them, and the authorities may leave this one out"
                    );
                } else {
                    tracing::info!(
                        "The consensus recommends protocols that this version does not speak: \
                         {protocols}"
                    );
                }
            }
            Event::ClockSkew { seconds, source } => {
                if let Some(more) = self.skew_lines.check(now) {
                    tracing::warn!(
                        "Our clock differs from the directory's ({source}) by {seconds} seconds: \
                         check your time and date settings{more}"
                    );
                }
            }
            Event::AddressSuggested { address, source } if self.address_seen != Some(address) => {
                tracing::info!("{source} sees us at {}", safe(address));
                self.address_seen = Some(address);
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
