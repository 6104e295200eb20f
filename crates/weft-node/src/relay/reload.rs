//! SIGHUP: what can change while the relay runs.

use std::time::{Instant, SystemTime};

use weft_dir::command::Command;

use super::{Relay, descriptor, start};
use crate::notice;
use crate::torrc::{self, Change, Options};

/// The operator, or a controller, wants no network (`DisableNetwork`).
pub(super) fn tell_disabled() {
    notice!(
        "DisableNetwork is set. Weft will not make or accept non-control network connections. \
         Shutting down all existing connections."
    );
}

impl Relay {
    /// SIGHUP: the configuration again, logs reopened, keys reread, descriptor republished.
    pub(super) fn reload(&mut self, now: Instant) {
        notice!("Received reload signal (hup). Reloading config and resetting internal state.");
        self.manager.reloading();
        let mut republish = Some("config change");
        if !self.options.process.reload_on_sighup {
            notice!("Not reloading the configuration, as __ReloadTorrcOnSIGHUP says.");
            let log = &self.options.log;
            if let Err(error) = self.context.logging.apply(log, Some(log)) {
                tracing::warn!("{error}");
            }
        } else if let Err(why) = self.reload_options(now) {
            for line in why.lines() {
                tracing::warn!("{line}");
            }
            tracing::warn!(
                "The old configuration stays in force. Correct the above and send SIGHUP again"
            );
            republish = None;
        }
        if let Some(keys) = &mut self.keys {
            match keys.reload_signing(SystemTime::now(), &mut self.rng) {
                Ok(true) => self.next_signing_check = Instant::now(),
                Ok(false) => {}
                Err(error) => tracing::warn!("Could not read the keys again: {error}"),
            }
        }
        self.publish_descriptor();
        if let Some(reason) = republish {
            self.directory(Command::Publish(reason));
        }
        self.manager.ready();
    }

    /// Reads the configuration and puts it into force; or nothing of it, if any of it fails.
    fn reload_options(&mut self, now: Instant) -> Result<(), String> {
        let context = &self.context;
        let (loaded, changes) =
            match torrc::reload(&context.command_line, &context.host, &self.options) {
                Ok(reloaded) => reloaded,
                Err(report) => {
                    let why = report.to_string();
                    report.without_errors().log();
                    return Err(why);
                }
            };
        loaded.report.log();
        self.apply_options(loaded.options, changes, now)
    }

    /// Puts a configuration into force; or nothing of it, if any of it fails.
    pub(super) fn apply_options(
        &mut self,
        new: Options,
        changes: Vec<Change>,
        now: Instant,
    ) -> Result<(), String> {
        let context = &self.context;
        if changes.iter().any(|change| change.name == "ConnLimit") {
            let wanted = u64::from(new.resources.conn_limit);
            self.max_connections = crate::process::limits::raise_file_limit(wanted)
                .map_err(|error| error.to_string())?;
        }
        context
            .logging
            .apply(&new.log, Some(&self.options.log))
            .map_err(|error| error.to_string())?;
        let registry = self.poll.registry();
        let reopened = self
            .apps
            .reopen(&new, registry)
            .map_err(|error| error.to_string());
        let reopened = reopened.and_then(|()| {
            let result = self.control.follow(&new, Some(registry));
            result.map_err(|error| error.to_string())
        });
        let reopened = reopened.and_then(|()| {
            let result = self.listeners.reopen(&new, registry);
            result.map_err(|error| error.to_string())
        });
        if let Err(error) = reopened {
            let apps = self.apps.reopen(&self.options, registry);
            let control = self.control.follow(&self.options, Some(registry));
            for error in [apps.err(), control.err()].into_iter().flatten() {
                tracing::warn!("{error}");
            }
            if let Err(error) = context.logging.apply(&self.options.log, Some(&new.log)) {
                tracing::warn!("{error}");
            }
            return Err(error);
        }
        let was_disabled = self.options.network.disabled;
        // Connections of before went another way. A relay keeps those of others' circuits.
        let other_way = !new.is_relay()
            && (new.network.proxy != self.options.network.proxy
                || new.paths.reachable != self.options.paths.reachable);
        self.options = new;
        self.start_client_late();
        for change in changes {
            if change.affects_authorities() {
                notice!("The directory authorities changed");
            }
            if change.needs_restart() {
                tracing::warn!("{} takes effect after a restart", change.name);
            }
        }
        if let Some(keys) = &mut self.keys {
            keys.set_config(start::key_config(&self.options));
        }
        // Our own circuits first, so that nothing is held against the relays that they led over.
        self.reload_client();
        if self.options.network.disabled && !was_disabled {
            tell_disabled();
            self.controller.close_all_connections();
        } else if other_way {
            self.controller.close_all_connections();
        }
        self.reload_control();
        if let Err(error) = start::prepare_directories(&self.options) {
            tracing::warn!("{error}");
        }
        let directory = &self.options.directory;
        self.reachability
            .set_assumed(directory.assume_reachable, directory.assume_reachable_ipv6);
        let (ipv4, ipv6) = self.reachability.is_reachable();
        self.directory(Command::Reachable { ipv4, ipv6 });
        let options = descriptor::directory_options(&self.options);
        self.directory(Command::Options(Box::new(options)));
        self.names.look_up_soon();
        self.names.poll(&self.options, now);
        self.find_addresses();
        self.apply_params();
        self.apply_exits(true, now);
        self.tell_metrics(Instant::now());
        Ok(())
    }
}
