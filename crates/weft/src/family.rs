//! `weft family`: the keys that make relays one family (FamilyId, proposal 321).

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::{Args, Parser, Subcommand, ValueHint};
use weft_config::{CommandLine, Options, TorrcSource};
use weft_datadir::file::Staged;
use weft_datadir::keys::family::{self, FamilyKey};
use weft_node::process::host::SystemHost;
use weft_node::relay::key_config;

use weft_cli::args::{self, Asked};
use weft_cli::print::print;

/// The name of a key's files where none is given.
const NAME: &str = "family";

/// Makes relays one family, by a key that all of them have (FamilyId).
#[derive(Debug, Parser)]
#[command(name = "weft family", bin_name = "weft family")]
pub(crate) struct FamilyArgs {
    #[command(subcommand)]
    command: FamilyCommand,
}

#[derive(Debug, Subcommand)]
enum FamilyCommand {
    /// Puts the key of a family into the key directories of relays, and prints the FamilyId line for their torrcs.
    ///
    /// Without --key the family is a new one. Nothing is written unless all relays can have the key, and no key is ever
    /// replaced; a relay that has it already is left alone. Run it as the relays' user or as root.
    Add(AddArgs),
}

#[derive(Debug, Args)]
struct AddArgs {
    /// The torrc of a relay; for several relays it is given several times.
    #[arg(short = 'f', long, value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    torrc_file: Vec<PathBuf>,
    /// Settings that are read before each torrc.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    defaults_torrc: Option<PathBuf>,
    /// The key of the family, NAME.secret_family_key of Weft or `tor --keygen-family`, from another relay.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    key: Option<PathBuf>,
    /// Name of the key's files [default: as --key, or else family].
    #[arg(long)]
    name: Option<String>,
}

/// Does what the words after `weft` ask for, `family` being the first.
pub(crate) fn main(words: impl Iterator<Item = OsString>) -> Result<ExitCode> {
    let args = match args::read::<FamilyArgs>(words)? {
        Ok(Asked { args, .. }) => args,
        Err(status) => return Ok(status),
    };
    let FamilyCommand::Add(args) = args.command;
    add(&args)?;
    Ok(ExitCode::SUCCESS)
}

/// A relay that is to have the key.
struct Member {
    torrc: String,
    options: Options,
}

impl Member {
    fn read(torrc: &Path, defaults: Option<&Path>) -> Result<Self> {
        let mut line = CommandLine::empty();
        line.torrc = Some(TorrcSource::File(torrc.to_owned()));
        line.defaults_torrc = defaults.map(Path::to_owned);
        let torrc = torrc.display().to_string();
        let options = match weft_config::load(&line, &SystemHost::new()) {
            Ok(loaded) => loaded.options,
            Err(report) => bail!("{torrc}: {report}"),
        };
        if !options.is_relay() {
            bail!("{torrc} is no relay's: it has no ORPort");
        }
        Ok(Self { torrc, options })
    }

    /// The directory of its families' keys, which is made where the relay has not run yet.
    fn directory(&self) -> Result<&Path> {
        let directory = self.options.files.family_key_directory.as_path();
        if directory.is_dir() {
            return Ok(directory);
        }
        let (torrc, shown) = (&self.torrc, directory.display());
        if directory != self.options.files.key_directory {
            bail!("{torrc}: there is no directory {shown} (FamilyKeyDirectory)");
        }
        if let Some(user) = &self.options.process.user {
            bail!(
                "{torrc}: there is no directory {shown}; start the relay once, so that {user} has it"
            );
        }
        let config = key_config(&self.options);
        config.prepare_directories().context(torrc.clone())?;
        Ok(directory)
    }

    /// Returns true if torrc names the family, or all families whose keys exist.
    fn names(&self, key: &FamilyKey) -> bool {
        let families = self.options.identity.families.as_ref();
        families.is_some_and(|of| of.all || of.ids.iter().any(|id| *id == *key.id.as_bytes()))
    }
}

/// The name of the key's files.
fn name_of(args: &AddArgs) -> Result<String> {
    let of_key = args.key.as_deref().and_then(Path::file_name);
    let of_key = of_key.and_then(|name| name.to_str()?.strip_suffix(".secret_family_key"));
    let name = args.name.as_deref().or(of_key).unwrap_or(NAME);
    if name.is_empty() || name.contains('/') {
        bail!("--name \"{name}\": a name of files is not empty and has no /");
    }
    Ok(name.to_owned())
}

fn add(args: &AddArgs) -> Result<()> {
    let name = name_of(args)?;
    let defaults = args.defaults_torrc.as_deref();
    let torrcs = args.torrc_file.iter();
    let members = torrcs.map(|torrc| Member::read(torrc, defaults));
    let members = members.collect::<Result<Vec<Member>>>()?;
    let key = match &args.key {
        Some(path) => FamilyKey::read(path)?,
        None => FamilyKey::generate(&mut rand::rng())?,
    };
    let mut text = String::new();
    let mut staged = Staged::for_owners();
    let mut written: Vec<PathBuf> = Vec::new();
    for member in &members {
        let (torrc, directory) = (&member.torrc, member.directory()?);
        let base = directory.join(&name);
        let [path, _] = family::files(&base);
        if let Some(path) = key.find_in(directory)? {
            text += &format!("# {torrc} has the key already: {}\n", path.display());
        } else {
            // Relays may share a directory.
            if !written.contains(&base) {
                key.stage(&base, &mut staged)?;
                written.push(base);
            }
            text += &format!("# {torrc} has the key now: {}\n", path.display());
        }
    }
    staged.commit()?;
    let lacking = members.iter().filter(|member| !member.names(&key));
    let lacking: Vec<&str> = lacking.map(|member| member.torrc.as_str()).collect();
    text += &match lacking.as_slice() {
        [] => "# Every torrc has the line already. Send the relays SIGHUP.\n".to_owned(),
        torrcs => format!(
            "# Add the line to {}, and send the relays SIGHUP.\n",
            torrcs.join(", ")
        ),
    };
    print(format!("{text}FamilyId {}\n", key.id))
}
