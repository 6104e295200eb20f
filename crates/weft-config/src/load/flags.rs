//! The flags of the command line that are not torrc options: C tor's, with their texts in `--help`,
//! the manual page and the completions of shells.

/// One flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flag {
    /// Its name, with dashes.
    pub long: &'static str,
    /// Its other name, with a dash.
    pub short: Option<&'static str>,
    /// Kind of its argument.
    pub argument: Argument,
    /// When it is used.
    pub purpose: Purpose,
    /// Help text.
    pub help: &'static str,
}

/// Kind of a flag's argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// Nothing.
    None,
    /// The name of a file.
    File,
    /// Any word.
    Word,
    /// One of these.
    OneOf(&'static [&'static str]),
    /// One of these, or nothing.
    MaybeOneOf(&'static [&'static str]),
}

impl Argument {
    /// Its name in help; empty where nothing follows.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::None => String::new(),
            Self::File => "FILE".to_owned(),
            Self::Word => "WORD".to_owned(),
            Self::OneOf(words) => words.join("|"),
            Self::MaybeOneOf(words) => format!("[{}]", words.join("|")),
        }
    }

    /// The words that may follow, where they are known.
    #[must_use]
    pub fn words(self) -> &'static [&'static str] {
        match self {
            Self::OneOf(words) | Self::MaybeOneOf(words) => words,
            Self::None | Self::File | Self::Word => &[],
        }
    }
}

/// When a flag is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// For running the node.
    Run,
    /// Instead of running it.
    Instead,
    /// It does nothing; C tor has it for other systems.
    Nothing,
}

const fn flag(long: &'static str, purpose: Purpose, help: &'static str) -> Flag {
    Flag {
        long,
        short: None,
        argument: Argument::None,
        purpose,
        help,
    }
}

impl Flag {
    const fn or(mut self, short: &'static str) -> Flag {
        self.short = Some(short);
        self
    }

    const fn takes(mut self, argument: Argument) -> Flag {
        self.argument = argument;
        self
    }
}

/// Every flag, in the order of help.
pub const FLAGS: [Flag; 24] = [
    flag(
        "--torrc-file",
        Purpose::Run,
        "read this torrc (- is standard input); without it /etc/tor/torrc, or else ~/.torrc. Given several times: one \
         identity for each, in one process",
    )
    .or("-f")
    .takes(Argument::File),
    flag(
        "--defaults-torrc",
        Purpose::Run,
        "read these settings before torrc",
    )
    .takes(Argument::File),
    flag(
        "--ignore-missing-torrc",
        Purpose::Run,
        "continue where the file of -f is missing",
    ),
    flag(
        "--allow-missing-torrc",
        Purpose::Run,
        "continue where it cannot be read",
    ),
    flag(
        "--hush",
        Purpose::Run,
        "log warnings and errors only, unless torrc has Log lines",
    ),
    flag(
        "--quiet",
        Purpose::Run,
        "log nothing, unless torrc has Log lines",
    ),
    flag("--nt-service", Purpose::Nothing, "").or("-nt-service"),
    flag(
        "--verify-config",
        Purpose::Instead,
        "check whether the configuration can be used",
    ),
    flag(
        "--dump-config",
        Purpose::Instead,
        "print the configuration: what differs from the defaults, or all of it",
    )
    .takes(Argument::OneOf(&["short", "full"])),
    flag(
        "--list-fingerprint",
        Purpose::Instead,
        "print the relay's nickname and fingerprint, making its keys where it has none",
    )
    .takes(Argument::MaybeOneOf(&["rsa", "ed25519"])),
    flag(
        "--keygen-family",
        Purpose::Instead,
        "make the key of a family of relays, WORD.secret_family_key, and print its FamilyId line",
    )
    .takes(Argument::Word),
    flag(
        "--keygen",
        Purpose::Instead,
        "make a signing key, and the master identity key where there is none, asking for its passphrase",
    ),
    flag(
        "--newpass",
        Purpose::Instead,
        "with --keygen: change the passphrase of the master identity key",
    ),
    flag(
        "--no-passphrase",
        Purpose::Instead,
        "with --keygen: do not ask for one; a new master identity key is not encrypted",
    ),
    flag(
        "--passphrase-fd",
        Purpose::Instead,
        "with --keygen: read the passphrase from this file descriptor",
    )
    .takes(Argument::Word),
    flag(
        "--master-key",
        Purpose::Instead,
        "with --keygen: the file of the master identity key",
    )
    .takes(Argument::File),
    flag(
        "--key-expiration",
        Purpose::Instead,
        "print how long the signing key is valid",
    )
    .takes(Argument::MaybeOneOf(&["sign"])),
    flag(
        "--format",
        Purpose::Instead,
        "with --key-expiration: how the time is printed",
    )
    .takes(Argument::OneOf(&["iso8601", "timestamp"])),
    flag(
        "--hash-password",
        Purpose::Instead,
        "print what HashedControlPassword wants",
    )
    .takes(Argument::Word),
    flag(
        "--list-torrc-options",
        Purpose::Instead,
        "print the name of every option",
    ),
    flag(
        "--list-deprecated-options",
        Purpose::Instead,
        "print the name of every deprecated option",
    ),
    flag(
        "--list-modules",
        Purpose::Instead,
        "print which parts of Tor this program has",
    ),
    flag("--version", Purpose::Instead, "print the version"),
    flag("--help", Purpose::Instead, "print this").or("-h"),
];
