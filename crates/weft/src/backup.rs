//! `weft backup` and `weft restore`: a relay's identity in one encrypted file.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, bail};
use clap::{Args, Parser, ValueHint};
use weft_config::{CommandLine, Options, PassphraseFrom};
use weft_datadir::backup::{self, Backup, Places};
use weft_datadir::keys::{Identities, KeyConfig, Passphrase, Passphrases as _};
use weft_datadir::lock::DataDirLock;
use weft_node::doctor;
use weft_node::logging::local_iso;
use weft_node::process::host::SystemHost;
use weft_node::process::user;
use weft_node::relay::key_config;

use crate::keygen::Source;
use weft_cli::args::{self, Asked};
use weft_cli::print::print;
use weft_stats::bounds::Bounds;

/// Descriptors that a process can have: Linux's own bound, unless an administrator has changed it.
const DESCRIPTORS: Bounds<u32> = Bounds::new(0, 1_048_575);

// For both commands. No doc comment: it would be their help.
#[derive(Debug, Args)]
struct OfRelay {
    /// Read the passphrase from this file descriptor, 0 being standard input, in place of asking for it.
    #[arg(long, value_name = "N", value_parser = DESCRIPTORS.parser())]
    passphrase_fd: Option<u32>,
    /// The words with which the relay is started: -f FILE, --defaults-torrc FILE, --OPTION VALUE.
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "RELAY'S WORDS"
    )]
    words: Vec<OsString>,
}

/// Writes a relay's identity to an encrypted file: its keys, those of its families and transports, and what `state` counts.
///
/// The relay may run meanwhile. What is written is read again, opened and compared. torrc is not in it: keep a copy beside.
/// As root, it reads the relay's files as the User of torrc, and the backup is root's.
#[derive(Debug, Parser)]
#[command(name = "weft backup", bin_name = "weft backup")]
pub(crate) struct BackupArgs {
    /// The relay moves: it must have ended, and does not start here any more until a later backup,
    /// made where it runs then, is restored here, or the file `moved` of its key directory is
    /// removed. (C tor does not know of that file.)
    #[arg(long = "move")]
    moves: bool,
    /// The file to write; it must not be there yet.
    #[arg(value_hint = ValueHint::FilePath)]
    file: PathBuf,
    #[command(flatten)]
    relay: OfRelay,
}

/// Brings a relay's identity back from the file of `weft backup`, here or on another machine.
///
/// Nothing is written unless the passphrase is right, all keys belong together, the directories are this relay's or empty,
/// no process has the DataDirectory, and nothing answers with these keys where the relay ran. A relay
/// that was moved away from here with weft backup --move comes back only by a later backup, made where
/// it runs now. Run it as root or as the relay's user.
#[derive(Debug, Parser)]
#[command(name = "weft restore", bin_name = "weft restore")]
pub(crate) struct RestoreArgs {
    /// Say what is in the file, and write nothing.
    #[arg(long)]
    check: bool,
    /// Confirm that you have ended the relay where it ran. Needed if the backup has no address to ask;
    /// addresses that it has are asked all the same.
    #[arg(long)]
    not_running: bool,
    /// The file.
    #[arg(value_hint = ValueHint::FilePath)]
    file: PathBuf,
    #[command(flatten)]
    relay: OfRelay,
}

/// The relay that these words start.
fn relay(words: Vec<OsString>) -> Result<Options> {
    let command_line = match CommandLine::parse(words) {
        Ok(command_line) => command_line,
        Err(report) => bail!("{report}"),
    };
    let torrc = command_line.torrc_name();
    if command_line.is_shared() {
        bail!("one relay at a time: give one torrc");
    }
    let options = match weft_config::load(&command_line, &SystemHost::new()) {
        Ok(loaded) => loaded.options,
        Err(report) => bail!("{torrc}: {report}"),
    };
    if !options.is_relay() {
        bail!("{torrc} is no relay's: it has no ORPort, and a client has no identity that lasts");
    }
    Ok(options)
}

fn places<'a>(keys: &'a KeyConfig, options: &'a Options) -> Places<'a> {
    Places {
        keys,
        family: &options.files.family_key_directory,
    }
}

fn source(passphrase_fd: Option<u32>) -> Result<Source> {
    Source::new(match passphrase_fd {
        Some(fd) => PassphraseFrom::Descriptor(fd.try_into()?),
        None => PassphraseFrom::Person,
    })
}

/// Does what the words after `weft` ask for, `backup` being the first.
pub(crate) fn backup(words: impl Iterator<Item = OsString>) -> Result<ExitCode> {
    let args = match args::read::<BackupArgs>(args::own_first::<BackupArgs>(words))? {
        Ok(Asked { args, .. }) => args,
        Err(status) => return Ok(status),
    };
    let options = relay(args.relay.words)?;
    let config = key_config(&options);
    let file = std::path::absolute(&args.file).context("FILE")?;
    if file.symlink_metadata().is_ok() {
        bail!(
            "{} exists already: nothing is ever replaced",
            file.display()
        );
    }
    // Opened as the user who started this; another may not be allowed to.
    let mut source = source(args.relay.passphrase_fd)?;
    let now = SystemTime::now();
    // The relay's user owns these directories, and could make root follow links out of them.
    let collected = user::as_configured(&options, || collect(&options, &config, args.moves, now))?;
    let Collected {
        backup,
        identities,
        lock,
    } = collected?;
    let passphrase = source.of_new_key();
    let passphrase = passphrase.filter(|passphrase| !passphrase.is_empty());
    let passphrase = passphrase.context("a backup is never written without a passphrase")?;
    let sealed = backup.seal(&passphrase, &mut rand::rng())?;
    backup::write_new(&file, &sealed)?;
    let read = Backup::open(&backup::read(&file)?, &passphrase)?;
    if read != backup {
        bail!(
            "{} is not what was written: the disk may be failing",
            file.display()
        );
    }
    let mut text = format!(
        "{} has the identity of {} {} in {} files.\n",
        file.display(),
        backup.nickname,
        identities.fingerprint(),
        backup.len()
    );
    if !backup.has_master_key() {
        text +=
            "The master identity key is not among them: it is kept elsewhere (OfflineMasterKey).\n";
    }
    if lock.is_some() {
        let mark = mark_moved(&options, &config, &file, now).with_context(|| {
            let file = file.display();
            format!("{file} is written, but the relay could not be marked as moved: it starts here")
        })?;
        text += &format!(
            "The relay does not start here any more: see {}.\n",
            mark.display()
        );
    }
    print(text)?;
    Ok(ExitCode::SUCCESS)
}

/// A relay's identity, as it was read.
struct Collected {
    backup: Backup,
    identities: Identities,
    /// Held until the relay is marked as moved.
    lock: Option<DataDirLock>,
}

/// Reads a relay's identity and, if it `moves`, keeps the relay from being started meanwhile.
fn collect(
    options: &Options,
    config: &KeyConfig,
    moves: bool,
    now: SystemTime,
) -> Result<Collected> {
    let lock = match moves {
        true => Some(
            DataDirLock::acquire(&config.data_directory, Duration::ZERO)
                .context("end the relay first")?,
        ),
        false => None,
    };
    let mut backup = Backup::collect(places(config, options), Vec::new(), now)?;
    let identities = backup.identities(&config.key_directory)?;
    backup.addresses = doctor::addresses(options, &identities);
    Ok(Collected {
        backup,
        identities,
        lock,
    })
}

/// Marks the relay as moved, as its user.
fn mark_moved(
    options: &Options,
    config: &KeyConfig,
    file: &Path,
    now: SystemTime,
) -> Result<PathBuf> {
    user::become_configured(options)?;
    Ok(backup::mark_moved(config, file, now)?)
}

/// Does what the words after `weft` ask for, `restore` being the first.
pub(crate) fn restore(words: impl Iterator<Item = OsString>) -> Result<ExitCode> {
    let args = match args::read::<RestoreArgs>(args::own_first::<RestoreArgs>(words))? {
        Ok(Asked { args, .. }) => args,
        Err(status) => return Ok(status),
    };
    // Read as the user who started this; another may not be allowed to.
    let sealed = backup::read(&args.file)?;
    if !Backup::is_sealed(&sealed) {
        bail!(backup::BackupError::NoBackup);
    }
    let passphrase = source(args.relay.passphrase_fd)?.current();
    let passphrase = passphrase.unwrap_or_default();
    let backup = open(&sealed, &passphrase, &args.file)?;
    let shown = args.file.display();
    if args.check {
        let identities = backup.identities(Path::new("the backup"))?;
        print(format!(
            "{shown} is whole: {} {}, made {}, {} files; it ran at {}.\n",
            backup.nickname,
            identities.fingerprint(),
            local_iso(backup.made),
            backup.len(),
            match backup.addresses.as_slice() {
                [] => "an address that was not known".to_owned(),
                all => list(all),
            }
        ))?;
        return Ok(ExitCode::SUCCESS);
    }
    let options = relay(args.relay.words)?;
    let config = key_config(&options);
    let identities = backup.identities(&config.key_directory)?;
    let asked = backup.addresses_to_ask(args.not_running)?;
    if let Some(at) = doctor::still_runs(&options, asked, &identities) {
        bail!(
            "the relay still runs at {at}: end it there first. Two relays with the same keys take each other's circuits, \
             and the authorities list neither for long. Nothing was restored"
        );
    }
    user::become_configured(&options)?;
    config.prepare_directories()?;
    let lock = DataDirLock::acquire(&config.data_directory, Duration::ZERO)?;
    let written = backup.restore(places(&config, &options))?;
    drop(lock);
    let mut text = format!(
        "{} {} is in {} now ({written} files written).\n",
        backup.nickname,
        identities.fingerprint(),
        config.key_directory.display()
    );
    if backup.nickname != options.identity.nickname {
        text += &format!(
            "Its nickname was {}, and is {} by this torrc.\n",
            backup.nickname, options.identity.nickname
        );
    }
    if !backup.has_master_key() {
        text += "Its master identity key is kept elsewhere: see OfflineMasterKey.\n";
    }
    text += &match asked {
        [] => {
            "It could not be asked whether the relay still runs: the backup has no address of it.\n"
                .to_owned()
        }
        asked => format!(
            "No relay answers with these keys at {}: it has ended, or cannot be reached from here.\n",
            list(asked)
        ),
    };
    text += "Start it here only; never start the one that it was copied from again.\n";
    print(text)?;
    Ok(ExitCode::SUCCESS)
}

/// Addresses in a sentence.
fn list(addresses: &[SocketAddr]) -> String {
    let shown: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    shown.join(" and ")
}

fn open(sealed: &[u8], passphrase: &Passphrase, file: &Path) -> Result<Backup> {
    Backup::open(sealed, passphrase).with_context(|| file.display().to_string())
}
