//! SIGHUP: applies what can change while the node runs.

use std::time::{Instant, SystemTime};

use weft_config::{Change, CommandLine, Options, keys};
use weft_dir::command::Command;

use super::claims::check_together;
use super::identity::{key_config, prepare_directories};
use super::notices::log_disabled;
use super::{Context, Relay, descriptor, listeners};
use crate::logging::log_all;
use crate::notice;

impl Relay {
    /// SIGHUP: the configuration again, logs reopened, keys reread, descriptor republished.
    pub(super) fn reload(&mut self, now: Instant) {
        notice!("Received reload signal (hup). Reloading config and resetting internal state.");
        if self.process.membership.leads() {
            self.process.manager.reloading();
        }
        let mut republish = Some("config change");
        if !self.options.process.reload_on_sighup {
            notice!("Not reloading the configuration, as __ReloadTorrcOnSIGHUP is 0.");
            let log = &self.options.log;
            if let Err(error) = self.apply_log(log, log) {
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
        if let Some(keys) = &mut self.identity.keys {
            match keys.reload_signing(SystemTime::now(), &mut self.rng) {
                Ok(true) => self.identity.next_signing_check = Instant::now(),
                Ok(false) => {}
                Err(error) => tracing::warn!("Could not read the keys again: {error}"),
            }
        }
        self.reload_families();
        self.publish_descriptor();
        if let Some(reason) = republish {
            self.directory(Command::Publish(reason));
        }
        if self.process.membership.leads() {
            self.process.manager.ready();
        }
    }

    /// Reads the configuration and puts it into force; or nothing of it, if any of it fails.
    fn reload_options(&mut self, now: Instant) -> Result<(), String> {
        let Context {
            command_line, host, ..
        } = &self.context;
        let number = self.process.membership.number();
        let known = &self.context.report;
        let (mut all, changes) =
            match weft_config::reload(command_line, number, host, &self.options) {
                Ok(reloaded) => reloaded,
                Err(report) => {
                    let why = report.to_string();
                    log_all(report.without_errors().without(known).lines());
                    return Err(why);
                }
            };
        if all.len() > 1 {
            let lines = command_line.identities();
            let torrcs: Vec<String> = lines.iter().map(CommandLine::torrc_name).collect();
            let options = all.iter().map(|loaded| &loaded.options);
            let named: Vec<_> = torrcs.iter().map(String::as_str).zip(options).collect();
            check_together(&named).map_err(|why| why.to_string())?;
        }
        if number >= all.len() {
            return Err("the command line names another number of torrcs".to_owned());
        }
        let loaded = all.swap_remove(number);
        log_all(loaded.report.clone().without(known).lines());
        self.context.report = loaded.report;
        self.apply_options(loaded.options, changes, now)
    }

    /// Puts a configuration into force; or nothing of it, if any of it fails.
    pub(super) fn apply_options(
        &mut self,
        new: Options,
        changes: Vec<Change>,
        now: Instant,
    ) -> Result<(), String> {
        if changes.iter().any(|change| change.name == "ConnLimit") {
            let wanted = u64::from(new.resources.conn_limit);
            let most = crate::process::limits::raise_file_limit(wanted)
                .map_err(|error| error.to_string())?;
            let threads = usize::from(self.threads.count());
            self.process.max_files = self.process.membership.max_files(most, threads);
        }
        self.apply_log(&new.log, &self.options.log)
            .map_err(|error| error.to_string())?;
        let registry = self.event_loop.poll.registry();
        let opened = self.apps.ports.number_all(&new).and_then(|ports| {
            let user = new.process.user.as_deref();
            let leads = self.process.membership.leads();
            let hibernating = self.accounting.is_hibernating();
            let wanted = listeners::wanted(&new, &ports, hibernating, leads);
            self.listeners.follow(wanted, user, Some(registry))?;
            self.apps.ports.follow(&new, &ports);
            Ok(())
        });
        if let Err(error) = opened {
            if let Err(error) = self.apply_log(&self.options.log, &new.log) {
                tracing::warn!("{error}");
            }
            return Err(error.to_string());
        }
        let was_disabled = self.options.network.disabled;
        // Connections of before went another way. A relay keeps those of others' circuits.
        let other_way = !new.is_relay()
            && (new.network.proxy != self.options.network.proxy
                || new.bridges != self.options.bridges
                || new.paths.reachable != self.options.paths.reachable);
        self.options = new;
        self.start_client_late();
        for change in changes {
            if change.is(keys::DirAuthority) || change.is(keys::AlternateDirAuthority) {
                notice!("The directory authorities changed");
            }
            if change.needs_restart {
                tracing::warn!("{} takes effect after a restart", change.name);
            }
        }
        if let Some(keys) = &mut self.identity.keys {
            keys.set_config(key_config(&self.options));
        }
        self.set_accounting(now);
        // Our own circuits first, so that nothing is held against the relays that they led over.
        self.follow_client_transports(now);
        self.reload_client();
        if self.options.network.disabled && !was_disabled {
            log_disabled();
            self.controller.close_all_connections();
        } else if other_way {
            self.controller.close_all_connections();
        }
        self.reload_control();
        self.configure_statistics();
        self.follow_bridge_transports(now);
        if let Err(error) = prepare_directories(&self.options) {
            tracing::warn!("{error}");
        }
        let directory = &self.options.directory;
        self.self_test
            .reachability
            .set_assumed(directory.assume_reachable, directory.assume_reachable_ipv6);
        let (ipv4, ipv6) = self.self_test.reachability.is_reachable();
        self.directory(Command::Reachable { ipv4, ipv6 });
        let options = descriptor::directory_options(&self.options);
        self.directory(Command::Options(Box::new(options)));
        self.own.names.look_up_soon();
        self.own.names.poll(&self.options, now);
        self.find_addresses();
        self.reload_authority();
        self.apply_params();
        self.apply_exits(true, now);
        self.reevaluate_exits();
        self.publish_metrics(Instant::now());
        Ok(())
    }
}
