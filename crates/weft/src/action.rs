//! Actions of the program instead of, or before, running the node.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail};
use rand::RngExt as _;
use weft_config::table::{self, deprecated_names};
use weft_config::{Action, CommandLine, FingerprintKind, Loaded, Options, Quiet, dump};
use weft_datadir::keys::{RelayKeys, family};
use weft_datadir::lock::{DataDirLock, LockError};
use weft_node::hash_password;
use weft_node::logging::Logging;
use weft_node::relay::{self, key_config};

use crate::help::help;
use crate::keygen;
use weft_cli::print::print;

/// Runs actions that need no configuration; returns `false` for others.
pub(crate) fn immediate(command_line: &CommandLine) -> anyhow::Result<bool> {
    match command_line.action {
        Action::Help => print(help())?,
        // The second line is what Stem and other programs that start a Tor look for.
        Action::Version => print(format!(
            "Weft version {}.\nTor version {}.\n",
            env!("CARGO_PKG_VERSION"),
            weft_node::VERSION
        ))?,
        Action::HashPassword => {
            let password = command_line.password.as_deref().unwrap_or_default();
            let hashed = hash_password(password.as_encoded_bytes(), rand::rng().random());
            print(format!("{hashed}\n"))?;
        }
        Action::KeygenFamily => {
            let name = command_line.family.as_deref().unwrap_or(Path::new(""));
            let made = family::create(name, &mut rand::rng())?;
            let (path, id) = (made.path.display(), made.id);
            print(format!("# Generated {path}\nFamilyId {id}\n"))?;
        }
        Action::ListModules => print("relay: yes\ndirauth: yes\ndircache: yes\npow: no\n")?,
        Action::ListTorrcOptions => {
            print(lines(
                table::all()
                    .filter(|known| known.is_settable())
                    .map(|known| known.name),
            ))?;
        }
        Action::ListDeprecatedOptions => print(lines(deprecated_names()))?,
        Action::Run
        | Action::VerifyConfig
        | Action::DumpConfig(_)
        | Action::Keygen
        | Action::KeyExpiration
        | Action::ListFingerprint(_) => return Ok(false),
    }
    Ok(true)
}

/// Carries out the action with the options of each identity of the process, and returns the exit code. More than one
/// are run or checked.
pub(crate) fn with_options(
    command_line: &CommandLine,
    all: Vec<Loaded>,
    logging: &Logging,
) -> anyhow::Result<ExitCode> {
    let Some(loaded) = all.first() else {
        return Ok(ExitCode::SUCCESS);
    };
    match command_line.action {
        Action::VerifyConfig => {
            let lines = command_line.identities();
            let torrcs: Vec<String> = lines.iter().map(CommandLine::torrc_name).collect();
            let options = all.iter().map(|loaded| &loaded.options);
            let named: Vec<_> = torrcs.iter().map(String::as_str).zip(options).collect();
            relay::check_all(&named)?;
            match command_line.quiet {
                Quiet::No => print("Configuration was valid\n"),
                _ => Ok(()),
            }
        }
        Action::DumpConfig(kind) => print(dump(&loaded.options.settings, &loaded.defaults, kind)),
        Action::Keygen => {
            apply_log(&loaded.options, logging)?;
            keygen::make_keys(command_line, &loaded.options)
        }
        Action::KeyExpiration => {
            apply_log(&loaded.options, logging)?;
            let format = command_line.expiration_format.unwrap_or_default();
            return keygen::print_expiration(format, &loaded.options);
        }
        Action::ListFingerprint(kind) => list_fingerprint(&loaded.options, kind),
        // If the one in the background has not started, its log has the reason.
        _ => {
            return Ok(match relay::launch(command_line, all, logging)? {
                true => ExitCode::SUCCESS,
                false => ExitCode::FAILURE,
            });
        }
    }?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the nickname and the fingerprint as `tor --list-fingerprint` does. A relay that has no
/// keys yet gets them; where it runs, its lock is held and they are only read.
fn list_fingerprint(options: &Options, kind: FingerprintKind) -> anyhow::Result<()> {
    if !options.is_relay() {
        bail!("Clients don't have long-term identity keys. Exiting. To have a relay, set ORPort");
    }
    let config = key_config(options);
    config.prepare_directories()?;
    let now = SystemTime::now();
    let keys = match DataDirLock::acquire(&config.data_directory, Duration::ZERO) {
        Ok(_lock) => RelayKeys::load_or_create(&config, now, &mut rand::rng())?,
        Err(LockError::Held(_)) => RelayKeys::load(&config, now, &mut rand::rng())?,
        Err(why) => return Err(why.into()),
    };
    let fingerprint = match kind {
        FingerprintKind::Rsa => keys.fingerprint_spaced(),
        FingerprintKind::Ed25519 => keys.ed25519_fingerprint(),
    };
    print(format!("{} {fingerprint}\n", options.identity.nickname))
}

fn apply_log(options: &Options, logging: &Logging) -> anyhow::Result<()> {
    logging
        .apply(&options.log, None)
        .context("cannot set up the log")
}

fn lines<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.flat_map(|word| [word, "\n"]).collect()
}
