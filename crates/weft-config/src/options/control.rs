//! Controllers: addresses of their ports, and authentication (config.c,
//! `warn_nonlocal_controller_ports`; control_auth.c, `decode_hashed_passwords`).

use std::path::{Path, PathBuf};

use base64ct::{Base64, Encoding as _};

use crate::host::Host;
use crate::options::client_ports::{Grammar, ListenAt, read_ports};
use crate::report::Report;
use crate::settings::Settings;
use crate::table::key::Key;
use crate::table::keys;

/// Where controllers connect, and how they authenticate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControlOptions {
    /// `ControlPort` and `ControlSocket`.
    pub ports: Vec<ListenAt>,
    /// `CookieAuthentication`: the file that the secret is written to.
    pub cookie_file: Option<PathBuf>,
    /// `CookieAuthFileGroupReadable`.
    pub cookie_group_readable: bool,
    /// `HashedControlPassword` and `__HashedControlSessionPassword`: salt, count and digest, as
    /// `--hash-password` writes them, without `16:`.
    pub hashed_passwords: Vec<[u8; 29]>,
    /// `ControlPortWriteToFile`.
    pub write_to_file: Option<PathBuf>,
    /// `ControlPortFileGroupReadable`.
    pub file_group_readable: bool,
    /// `__OwningControllerProcess`: the node ends when this process does.
    pub owning_process: Option<u32>,
    /// `__OwningControllerFD`: a connection to a controller that this process has inherited, as which it ends.
    pub owning_fd: Option<i32>,
}

/// Reads them.
pub(crate) fn read(
    settings: &Settings,
    host: &dyn Host,
    data_directory: &Path,
    report: &mut Report,
) -> ControlOptions {
    let mut hashed_passwords = Vec::new();
    for key in [
        keys::HashedControlPassword,
        keys::__HashedControlSessionPassword,
    ] {
        for line in settings.lines(key) {
            match hashed_password(&line.value) {
                Some(hash) => hashed_passwords.push(hash),
                None => report.error(
                    Some(&line.origin),
                    format!(
                        "{key}: this is not a hashed password; make one with \"tor \
                         --hash-password\""
                    ),
                ),
            }
        }
    }
    let path = |key: Key<String>| settings.text(key).and_then(|text| host.expand(text));
    let cookie_file = settings.flag(keys::CookieAuthentication).then(|| {
        path(keys::CookieAuthFile).unwrap_or_else(|| data_directory.join("control_auth_cookie"))
    });
    let mut listen = Vec::new();
    for (option, key, paths) in [
        ("ControlPort", keys::ControlPortLines, false),
        ("ControlSocket", keys::ControlSocket, true),
    ] {
        let grammar = Grammar {
            option,
            service: None,
            paths,
            group_writable: settings.flag(keys::ControlSocketsGroupWritable),
        };
        let parsed = read_ports(grammar, key, settings, host, report);
        listen.extend(parsed.into_iter().map(|(at, _)| at));
    }
    let open = hashed_passwords.is_empty() && cookie_file.is_none();
    listen.retain(|at| is_safe(at, open, settings, report));
    ControlOptions {
        ports: listen,
        cookie_file,
        cookie_group_readable: settings.flag(keys::CookieAuthFileGroupReadable),
        hashed_passwords,
        write_to_file: path(keys::ControlPortWriteToFile).filter(|path| *path != PathBuf::new()),
        file_group_readable: settings.flag(keys::ControlPortFileGroupReadable),
        owning_process: owning_process(settings, report),
        owning_fd: owning_fd(settings, report),
    }
}

/// The process that the node belongs to.
fn owning_process(settings: &Settings, report: &mut Report) -> Option<u32> {
    const KEY: Key<String> = keys::__OwningControllerProcess;
    let text = settings.text(KEY)?;
    let process = text.trim().parse().ok().filter(|process| *process > 0);
    if process.is_none() {
        report.error(
            settings.origin(KEY),
            format!("{KEY}: \"{text}\" is not a process"),
        );
    }
    process
}

/// The connection that the node belongs to.
fn owning_fd(settings: &Settings, report: &mut Report) -> Option<i32> {
    const KEY: Key<u64> = keys::__OwningControllerFD;
    let number = settings.number64(KEY);
    if number == u64::MAX {
        return None;
    }
    let fd = i32::try_from(number).ok();
    if fd.is_none() {
        report.error(
            settings.origin(KEY),
            format!("{KEY}: {number} is not a file descriptor"),
        );
    }
    fd
}

/// Returns true if a control port may be opened: never to other machines without a password
/// (`warn_nonlocal_controller_ports`).
fn is_safe(at: &ListenAt, open: bool, settings: &Settings, report: &mut Report) -> bool {
    let origin = settings.origin(keys::ControlPortLines);
    match at {
        ListenAt::Unix(unix) => {
            if unix.world_writable && open {
                report.warn(
                    settings.origin(keys::ControlSocket),
                    format!(
                        "ControlSocket {} is WorldWritable and asks for no password: every user \
                         of this machine can reconfigure the node",
                        unix.path.display()
                    ),
                );
            }
            true
        }
        ListenAt::Tcp { address, .. } if address.is_loopback() => {
            if open {
                report.warn(
                    origin,
                    "ControlPort is open, but no authentication is set: every program of this \
                     machine can reconfigure the node. Set CookieAuthentication 1 or a \
                     HashedControlPassword",
                );
            }
            true
        }
        ListenAt::Tcp { address, .. } if open => {
            report.warn(
                origin,
                format!(
                    "ControlPort on {address} would let programs of other machines reconfigure \
                     the node without so much as a password: it is not opened. Set \
                     CookieAuthentication 1 or a HashedControlPassword"
                ),
            );
            false
        }
        ListenAt::Tcp { address, .. } => {
            report.warn(
                origin,
                format!(
                    "ControlPort on {address} is reached from other machines, and what is sent \
                     there is not encrypted; better listen on 127.0.0.1 and use a tunnel"
                ),
            );
            true
        }
    }
}

/// `16:` and 58 hexadecimal digits, or 29 bytes in base64.
fn hashed_password(text: &str) -> Option<[u8; 29]> {
    let text = text.trim();
    let bytes = match text.strip_prefix("16:") {
        Some(digits) => hex::decode(digits).ok()?,
        None => Base64::decode_vec(text).ok()?,
    };
    bytes.try_into().ok()
}
