//! The command line: C tor's own flags, and any torrc option as `--Option value` (C tor:
//! src/app/config/config.c, `config_parse_commandline`).

use std::ffi::OsString;
use std::path::PathBuf;

use crate::dump::DumpKind;
use crate::host::Host;
use crate::load::flags::{Argument, FLAGS};
use crate::report::{Origin, Report};
use crate::table;
use crate::table::find;
use crate::text::lexer::{Command, Line};

/// Action of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Run the node.
    Run,
    /// Report whether the configuration can be used.
    VerifyConfig,
    /// Print the relay's fingerprint.
    ListFingerprint(FingerprintKind),
    /// Make the key of a family.
    KeygenFamily,
    /// Make keys, without running.
    Keygen,
    /// Print how long the signing key is valid.
    KeyExpiration,
    /// Print the configuration.
    DumpConfig(DumpKind),
    /// Print the version.
    Version,
    /// Print how to use the program.
    Help,
    /// Print the name of every option that can be set.
    ListTorrcOptions,
    /// Print the name of every deprecated option.
    ListDeprecatedOptions,
    /// Print which parts of Tor this program has.
    ListModules,
    /// Print what HashedControlPassword wants to hold of a password.
    HashPassword,
}

/// Identity key whose fingerprint is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FingerprintKind {
    /// Of the RSA key, in hexadecimal.
    Rsa,
    /// Of the ed25519 key, which is the key itself in base64.
    Ed25519,
}

/// Severity of log lines before, or without, `Log` lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Quiet {
    /// Notices.
    #[default]
    No,
    /// `--hush`: warnings.
    Hush,
    /// `--quiet`: nothing.
    Silent,
}

/// Where `--keygen` gets passphrases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PassphraseFrom {
    /// The terminal, or else standard input.
    #[default]
    Person,
    /// Nowhere (`--no-passphrase`).
    Nowhere,
    /// A file descriptor (`--passphrase-fd`).
    Descriptor(i32),
}

/// Arguments of `--keygen`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeygenArgs {
    /// `--newpass`: the passphrase changes.
    pub new_passphrase: bool,
    /// Where passphrases are from.
    pub passphrase: PassphraseFrom,
    /// `--master-key`: the file of the master identity key.
    pub master_key: Option<PathBuf>,
}

/// Format of times from `--key-expiration`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExpirationFormat {
    /// Local time.
    #[default]
    Iso8601,
    /// Seconds since 1970.
    Timestamp,
}

/// Where torrc is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TorrcSource {
    /// Standard input (`-f -`).
    Stdin,
    /// A file, as it was named: `~/` is not replaced yet.
    File(PathBuf),
}

/// A command line, read.
#[derive(Clone, Debug)]
pub struct CommandLine {
    /// Action of the program.
    pub action: Action,
    /// Severity of the first log lines.
    pub quiet: Quiet,
    /// torrc, where one is named.
    pub torrc: Option<TorrcSource>,
    /// The torrcs of further identities of the process.
    pub more_torrcs: Vec<TorrcSource>,
    /// The defaults torrc, where one is named.
    pub defaults_torrc: Option<PathBuf>,
    /// `--ignore-missing-torrc`: a torrc that is named but is not there is as good as an empty one.
    pub ignore_missing_torrc: bool,
    /// `--allow-missing-torrc`: so is one that cannot be read.
    pub allow_missing_torrc: bool,
    /// The password of `--hash-password`.
    pub password: Option<OsString>,
    /// The name of the family of `--keygen-family`.
    pub family: Option<PathBuf>,
    /// Arguments of `--keygen`.
    pub keygen: KeygenArgs,
    /// Format of times from `--key-expiration`.
    pub expiration_format: Option<ExpirationFormat>,
    /// Torrc options.
    pub options: Vec<Line>,
    /// Warnings about the command line.
    pub report: Report,
}

/// Flags of C tor that Weft does not have.
const FLAGS_OF_TOR: [&str; 2] = ["--library-versions", "--dbg-dump-subsystem-list"];

impl CommandLine {
    /// A command line without words.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            action: Action::Run,
            quiet: Quiet::No,
            torrc: None,
            more_torrcs: Vec::new(),
            defaults_torrc: None,
            ignore_missing_torrc: false,
            allow_missing_torrc: false,
            password: None,
            family: None,
            keygen: KeygenArgs::default(),
            expiration_format: None,
            options: Vec::new(),
            report: Report::default(),
        }
    }

    /// Quietness that the words request, even if others of them are wrong.
    #[must_use]
    pub fn quiet_of(words: &[OsString]) -> Quiet {
        let quiet = |word: &OsString| match word.to_str() {
            Some("--quiet") => Quiet::Silent,
            Some("--hush") => Quiet::Hush,
            _ => Quiet::No,
        };
        words.iter().map(quiet).max().unwrap_or_default()
    }

    /// Makes the paths of files absolute, as a daemon's SIGHUP needs them.
    #[must_use]
    pub fn from_anywhere(mut self, host: &dyn Host) -> Self {
        let fixed = |path: PathBuf| match path.starts_with("~") {
            true => path,
            false => host.absolute(&path),
        };
        let fixed_source = |source| match source {
            TorrcSource::File(path) => TorrcSource::File(fixed(path)),
            other => other,
        };
        self.torrc = self.torrc.map(fixed_source);
        let more = self.more_torrcs.into_iter();
        self.more_torrcs = more.map(fixed_source).collect();
        self.defaults_torrc = self.defaults_torrc.map(fixed);
        self
    }

    /// Returns true if the process has several identities.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        !self.more_torrcs.is_empty()
    }

    /// The command line of each identity of the process: the same but for torrc.
    #[must_use]
    pub fn identities(&self) -> Vec<Self> {
        let numbers = 0..=self.more_torrcs.len();
        numbers.map(|number| self.identity(number)).collect()
    }

    /// The command line of the identity with this number.
    #[must_use]
    pub fn identity(&self, number: usize) -> Self {
        let torrc = match number.checked_sub(1) {
            None => self.torrc.as_ref(),
            Some(more) => self.more_torrcs.get(more),
        };
        Self {
            torrc: torrc.cloned(),
            more_torrcs: Vec::new(),
            ..self.clone()
        }
    }

    /// The name of its torrc, as it was given.
    #[must_use]
    pub fn torrc_name(&self) -> String {
        match &self.torrc {
            Some(TorrcSource::File(path)) => path.display().to_string(),
            Some(TorrcSource::Stdin) => "standard input".to_owned(),
            None => "torrc".to_owned(),
        }
    }

    /// Reads the words behind the program's name.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Self, Report> {
        let mut line = Self::empty();
        let words: Vec<OsString> = words.into_iter().collect();
        let mut rest = words.as_slice();
        while let Some((word, after)) = rest.split_first() {
            rest = line.take(word, after);
        }
        line.check_companions(&words);
        if line.report.has_errors() {
            Err(line.report)
        } else {
            Ok(line)
        }
    }

    fn error(&mut self, text: String) {
        self.report.error(Some(&origin()), text);
    }

    /// Flags that mean nothing without another.
    fn check_companions(&mut self, words: &[OsString]) {
        let has = |flag: &str| words.iter().any(|word| word == flag);
        for flag in [
            "--newpass",
            "--no-passphrase",
            "--passphrase-fd",
            "--master-key",
        ] {
            if has(flag) && self.action != Action::Keygen {
                self.error(format!("{flag} specified without --keygen!"));
            }
        }
        if has("--no-passphrase") && has("--passphrase-fd") {
            self.error("--no-passphrase specified with --passphrase-fd!".to_owned());
        }
        if self.is_shared() {
            let needs_one = matches!(
                self.action,
                Action::ListFingerprint(_)
                    | Action::Keygen
                    | Action::KeyExpiration
                    | Action::DumpConfig(_)
            );
            let mut sources = self.torrc.iter().chain(&self.more_torrcs);
            if needs_one {
                self.error("-f is given more than once, which is for running several identities: name one torrc".to_owned());
            } else if sources.any(|source| *source == TorrcSource::Stdin) {
                self.error("-f -: standard input has the torrc of one identity, and -f is given more than once".to_owned());
            }
        }
        if self.expiration_format.is_some() && self.action != Action::KeyExpiration {
            self.error("--format specified without --key-expiration!".to_owned());
        }
    }

    fn no_value(&mut self, word: &str, text: String) {
        let message = format!("Command-line option '{word}' with no value. Failing.");
        self.report
            .error_with_c_tor_message(Some(&origin()), text, message);
    }

    /// Reads one flag or option and its argument; returns what comes behind.
    fn take<'a>(&mut self, word: &OsString, rest: &'a [OsString]) -> &'a [OsString] {
        let Some(word) = word.to_str() else {
            self.error(format!("\"{}\" is not UTF-8", word.display()));
            return rest;
        };
        let flag = FLAGS
            .iter()
            .find(|flag| word == flag.long || Some(word) == flag.short);
        match flag {
            Some(flag) => self.take_flag(flag.long, word, flag.argument, rest),
            None => self.take_option(word, rest),
        }
    }

    fn take_flag<'a>(
        &mut self,
        name: &str,
        word: &str,
        argument: Argument,
        rest: &'a [OsString],
    ) -> &'a [OsString] {
        let next = rest.split_first();
        let (value, rest) = match (argument, next) {
            (Argument::None, _) => (None, rest),
            (Argument::File | Argument::Word, Some((value, rest))) => (Some(value), rest),
            (Argument::File | Argument::Word, None) => {
                self.no_value(word, format!("{word} needs a value"));
                return rest;
            }
            (Argument::OneOf(_) | Argument::MaybeOneOf(_), Some((value, rest)))
                if !value.as_encoded_bytes().starts_with(b"-") =>
            {
                (Some(value), rest)
            }
            (Argument::OneOf(_) | Argument::MaybeOneOf(_), _) => (None, rest),
        };
        let text = value.and_then(|value| value.to_str());
        match name {
            "--torrc-file" => {
                let source = match value {
                    Some(path) if path.as_encoded_bytes() == b"-" => TorrcSource::Stdin,
                    path => TorrcSource::File(path.map(PathBuf::from).unwrap_or_default()),
                };
                match &self.torrc {
                    None => self.torrc = Some(source),
                    Some(_) => self.more_torrcs.push(source),
                }
            }
            "--defaults-torrc" => {
                if std::mem::replace(&mut self.defaults_torrc, value.map(PathBuf::from)).is_some() {
                    self.report.warn(
                        Some(&origin()),
                        format!("{word} is given more than once; the last counts"),
                    );
                }
            }
            "--allow-missing-torrc" => self.allow_missing_torrc = true,
            "--ignore-missing-torrc" => self.ignore_missing_torrc = true,
            "--hush" => self.quiet = self.quiet.max(Quiet::Hush),
            "--quiet" => self.quiet = Quiet::Silent,
            "--verify-config" => self.action = Action::VerifyConfig,
            "--version" => self.action = Action::Version,
            "--help" => self.action = Action::Help,
            "--list-torrc-options" => self.action = Action::ListTorrcOptions,
            "--list-deprecated-options" => self.action = Action::ListDeprecatedOptions,
            "--list-modules" => self.action = Action::ListModules,
            "--list-fingerprint" => match text {
                None | Some("rsa") if value.is_some() == text.is_some() => {
                    self.action = Action::ListFingerprint(FingerprintKind::Rsa);
                }
                Some("ed25519") => self.action = Action::ListFingerprint(FingerprintKind::Ed25519),
                _ => self.error(
                    "--list-fingerprint takes rsa (which is what it prints without) or ed25519"
                        .to_owned(),
                ),
            },
            "--dump-config" => match text {
                Some("short") => self.action = Action::DumpConfig(DumpKind::Short),
                Some("non-builtin") => {
                    self.report.warn(
                        Some(&origin()),
                        "non-builtin is deprecated; use short instead",
                    );
                    self.action = Action::DumpConfig(DumpKind::Short);
                }
                Some("full") => self.action = Action::DumpConfig(DumpKind::Full),
                _ => self.error("--dump-config takes short or full".to_owned()),
            },
            "--keygen-family" => {
                self.action = Action::KeygenFamily;
                self.family = value.map(PathBuf::from);
            }
            "--keygen" => {
                self.action = Action::Keygen;
                self.ignore_missing_torrc = true;
            }
            "--newpass" => self.keygen.new_passphrase = true,
            "--no-passphrase" => self.keygen.passphrase = PassphraseFrom::Nowhere,
            "--passphrase-fd" => match text.and_then(|text| text.parse::<i32>().ok()) {
                Some(fd) if fd >= 0 => self.keygen.passphrase = PassphraseFrom::Descriptor(fd),
                _ => self.error(format!(
                    "Invalid --passphrase-fd value \"{}\"",
                    text.unwrap_or_default()
                )),
            },
            "--master-key" => self.keygen.master_key = value.map(PathBuf::from),
            "--key-expiration" => match text {
                Some("sign") => self.action = Action::KeyExpiration,
                _ => self.error(
                    "No valid argument to --key-expiration found! Currently recognised arguments are: 'sign'"
                        .to_owned(),
                ),
            },
            "--format" => match text {
                Some("iso8601") => self.expiration_format = Some(ExpirationFormat::Iso8601),
                Some("timestamp") => self.expiration_format = Some(ExpirationFormat::Timestamp),
                _ => self.error(format!(
                    "Invalid --format value \"{}\"",
                    text.unwrap_or_default()
                )),
            },
            "--hash-password" => {
                self.action = Action::HashPassword;
                self.password = value.cloned();
            }
            "--nt-service" => {}
            _ => self.error(format!("{name} does nothing here")),
        }
        rest
    }

    /// `--Option value`, `--+Option value`, `--/Option`; the dashes may be one or none.
    fn take_option<'a>(&mut self, word: &str, rest: &'a [OsString]) -> &'a [OsString] {
        if FLAGS_OF_TOR.contains(&word) {
            self.error(format!("{word} is a flag of tor that Weft does not have; run tor with it, on the same DataDirectory"));
            return skip_value(rest);
        }
        let name = word.strip_prefix('-').unwrap_or(word);
        let name = name.strip_prefix('-').unwrap_or(name);
        let (command, name) = match (name.strip_prefix('+'), name.strip_prefix('/')) {
            (Some(name), _) => (Command::Append, name),
            (None, Some(name)) => (Command::Clear, name),
            (None, None) => (Command::Set, name),
        };
        if find::find(name, true).is_none() {
            match rest.is_empty() {
                true => self.no_value(word, unknown_word(word)),
                false => self.report.error_with_c_tor_message(
                    Some(&origin()),
                    unknown_word(word),
                    crate::settings::unknown_option_in_c_tor(name),
                ),
            }
            return skip_value(rest);
        }
        let (value, rest) = match (command, rest.split_first()) {
            (Command::Clear, _) => (String::new(), rest),
            (_, None) => {
                self.no_value(word, format!("{word} needs a value"));
                return rest;
            }
            (_, Some((value, rest))) => match value.to_str() {
                Some(value) => (value.to_owned(), rest),
                None => {
                    self.error(format!("the value of {word} is not UTF-8"));
                    return rest;
                }
            },
        };
        self.options.push(Line {
            key: name.to_owned(),
            value,
            command,
            origin: origin(),
            last_line: 0,
        });
        rest
    }
}

fn origin() -> Origin {
    Origin::whole("command line")
}

/// Leaves out what is likely the value of a flag that is not known.
fn skip_value(rest: &[OsString]) -> &[OsString] {
    match rest.split_first() {
        Some((value, rest)) if !value.as_encoded_bytes().starts_with(b"-") => rest,
        _ => rest,
    }
}

fn unknown_word(word: &str) -> String {
    let dashed = word.starts_with('-');
    let bare = word.trim_start_matches('-').trim_start_matches(['+', '/']);
    let flags = FLAGS.iter().map(|flag| flag.long.trim_start_matches('-'));
    let options = table::all()
        .filter(|known| known.is_settable())
        .map(|known| known.name);
    match find::nearest_of(bare, flags.chain(options)) {
        Some(nearest) if dashed => format!("unknown flag {word}; did you mean --{nearest}?"),
        Some(nearest) => format!("unknown word \"{word}\"; did you mean --{nearest}?"),
        None => format!(
            "unknown {} \"{word}\"; see --help",
            if dashed { "flag" } else { "word" }
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<CommandLine, String> {
        CommandLine::parse(words.iter().map(OsString::from)).map_err(|report| report.to_string())
    }

    #[test]
    fn flags_are_c_tors() {
        let line = parse(&[
            "-f",
            "/x",
            "--verify-config",
            "--hush",
            "--ignore-missing-torrc",
        ])
        .unwrap();
        assert_eq!(line.torrc, Some(TorrcSource::File("/x".into())));
        assert_eq!(
            (line.action, line.quiet),
            (Action::VerifyConfig, Quiet::Hush)
        );
        assert!(line.ignore_missing_torrc && !line.allow_missing_torrc);
        let action = |words: &[&str]| parse(words).map(|line| line.action);
        assert_eq!(
            action(&["--list-fingerprint"]),
            Ok(Action::ListFingerprint(FingerprintKind::Rsa))
        );
        assert_eq!(
            action(&["--list-fingerprint", "--hush"]),
            Ok(Action::ListFingerprint(FingerprintKind::Rsa))
        );
        assert_eq!(
            action(&["--list-fingerprint", "ed25519"]),
            Ok(Action::ListFingerprint(FingerprintKind::Ed25519))
        );
        assert!(action(&["--list-fingerprint", "dsa"]).is_err());
        assert_eq!(
            action(&["--dump-config", "full"]),
            Ok(Action::DumpConfig(DumpKind::Full))
        );
        assert!(action(&["--dump-config"]).is_err());
        assert_eq!(parse(&["-f", "-"]).unwrap().torrc, Some(TorrcSource::Stdin));
    }

    #[test]
    fn each_flag_asks_for_its_own() {
        for (word, action) in [
            ("--version", Action::Version),
            ("--help", Action::Help),
            ("--list-torrc-options", Action::ListTorrcOptions),
            ("--list-deprecated-options", Action::ListDeprecatedOptions),
            ("--list-modules", Action::ListModules),
        ] {
            assert_eq!(parse(&[word]).unwrap().action, action, "{word}");
        }
        let dump = |kind| parse(&["--dump-config", kind]).unwrap().action;
        assert_eq!(dump("short"), Action::DumpConfig(DumpKind::Short));
        assert_eq!(dump("non-builtin"), Action::DumpConfig(DumpKind::Short));
        for (words, quiet) in [
            (&["--quiet"][..], Quiet::Silent),
            (&["--hush"], Quiet::Hush),
            (&["--quiet", "--hush"], Quiet::Silent),
            (&[], Quiet::No),
        ] {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            assert_eq!(CommandLine::quiet_of(&words), quiet);
            assert_eq!(CommandLine::parse(words).unwrap().quiet, quiet);
        }
    }

    #[test]
    fn keygen_takes_its_passphrase_from_where_it_is_asked_to() {
        let line = parse(&["--keygen", "--newpass", "--passphrase-fd", "3"]).unwrap();
        assert_eq!(line.action, Action::Keygen);
        assert!(line.keygen.new_passphrase && line.ignore_missing_torrc);
        assert_eq!(line.keygen.passphrase, PassphraseFrom::Descriptor(3));
        let line = parse(&["--no-passphrase", "--master-key", "/m", "--keygen"]).unwrap();
        assert_eq!(line.keygen.passphrase, PassphraseFrom::Nowhere);
        assert_eq!(line.keygen.master_key, Some("/m".into()));
        let line = parse(&["--key-expiration", "sign", "--format", "timestamp"]).unwrap();
        assert_eq!(line.action, Action::KeyExpiration);
        assert_eq!(line.expiration_format, Some(ExpirationFormat::Timestamp));
    }

    #[test]
    fn any_option_can_be_set() {
        let line = parse(&[
            "--ORPort",
            "9001",
            "-+Log",
            "info stdout",
            "--/Address",
            "nickname",
            "a",
        ])
        .unwrap();
        let shown: Vec<_> = line
            .options
            .iter()
            .map(|l| (l.key.as_str(), l.value.as_str(), l.command))
            .collect();
        assert_eq!(
            shown,
            [
                ("ORPort", "9001", Command::Set),
                ("Log", "info stdout", Command::Append),
                ("Address", "", Command::Clear),
                ("nickname", "a", Command::Set),
            ]
        );
    }

    #[test]
    fn a_misspelt_word_is_reported_with_its_neighbour() {
        for (words, want) in [
            (
                &["--verfy-config"][..],
                "unknown flag --verfy-config; did you mean --verify-config?",
            ),
            (
                &["--ORPrt", "1"],
                "unknown flag --ORPrt; did you mean --ORPort?",
            ),
            (
                &["--verfy"],
                "unknown flag --verfy; did you mean --verify-config?",
            ),
            (&["lba"], "unknown word \"lba\"; see --help"),
            (&["--ORPort"], "--ORPort needs a value"),
            (&["-f"], "-f needs a value"),
            (
                &["--library-versions"],
                "--library-versions is a flag of tor that Weft does not have",
            ),
            (&["--newpass"], "--newpass specified without --keygen!"),
            (
                &["--keygen", "--no-passphrase", "--passphrase-fd", "0"],
                "--no-passphrase specified with --passphrase-fd!",
            ),
            (
                &["--keygen", "--passphrase-fd", "x"],
                "Invalid --passphrase-fd value \"x\"",
            ),
            (
                &["--keygen", "--passphrase-fd", "-1"],
                "Invalid --passphrase-fd value \"-1\"",
            ),
            (
                &["--key-expiration"],
                "Currently recognised arguments are: 'sign'",
            ),
            (
                &["--format", "timestamp"],
                "--format specified without --key-expiration!",
            ),
        ] {
            let why = parse(words).unwrap_err();
            assert!(why.contains(want), "{why}");
        }
        assert_eq!(
            parse(&["--verfy-config", "--ORPrt", "1", "--huhs"])
                .unwrap_err()
                .lines()
                .count(),
            3
        );
    }
}
