//! Resources that only one identity of a process can have: ports, sockets, directories, files,
//! keys.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use weft_cell::identity::{Ed25519Identity, RsaIdentity};
use weft_config::options::{AppService, ListenAt};
use weft_config::table::value::Value;
use weft_config::{Key, Options, Origin, keys};

use super::check::{check, tcp_ports};
use super::error::StartError;

/// Checks the options of the identities of one process, each with the name of its torrc: each as [`check`] does, and all
/// against each other.
///
/// # Errors
///
/// As [`check`], with the torrc named where there are several; or what two of them have and only one can have.
pub fn check_all(all: &[(&str, &Options)]) -> Result<(), StartError> {
    if let [(_, options)] = all {
        return check(options);
    }
    for (torrc, options) in all {
        check(options).map_err(|why| why.of(torrc))?;
    }
    check_together(all)
}

/// Finds what two identities have and only one can have: a port, a directory, a file.
pub(super) fn check_together(all: &[(&str, &Options)]) -> Result<(), StartError> {
    let claims: Vec<Vec<Claim>> = all
        .iter()
        .map(|(torrc, options)| claims(torrc, options))
        .collect();
    for (index, ours) in claims.iter().enumerate() {
        let theirs = claims.iter().skip(index + 1).flatten();
        for (other, own) in theirs.flat_map(|other| ours.iter().map(move |own| (other, own))) {
            if own.thing.excludes(&other.thing) {
                return Err(StartError::Shared {
                    what: own.thing.kind(),
                    one: own.to_string(),
                    other: other.to_string(),
                });
            }
        }
    }
    Ok(())
}

/// Finds two relays with the same keys: `all` are the identities of each, its torrc and its options.
pub(super) fn check_keys<'a>(
    all: impl Iterator<Item = ((RsaIdentity, Ed25519Identity), String, &'a Options)>,
) -> Result<(), StartError> {
    let mut seen: Vec<((RsaIdentity, Ed25519Identity), Claim)> = Vec::new();
    for ((rsa, ed), torrc, options) in all.filter(|((rsa, _), ..)| !rsa.is_zero()) {
        let path = options.files.key_directory.clone();
        let own = Claim {
            option: "KeyDirectory",
            thing: Thing::Directory(path),
            at: directory_at(&torrc, options, keys::KeyDirectory),
        };
        let same = |((other_rsa, other_ed), _): &&((RsaIdentity, Ed25519Identity), Claim)| {
            *other_rsa == rsa || *other_ed == ed
        };
        if let Some((_, other)) = seen.iter().find(same) {
            return Err(StartError::Shared {
                what: "identity keys",
                one: other.to_string(),
                other: own.to_string(),
            });
        }
        seen.push(((rsa, ed), own));
    }
    Ok(())
}

/// Something that only one identity of the process can have.
#[derive(Debug)]
enum Thing {
    Tcp(SocketAddr),
    Udp(SocketAddr),
    Socket(PathBuf),
    Directory(PathBuf),
    File(PathBuf),
    Descriptor(i32),
}

impl Thing {
    fn kind(&self) -> &'static str {
        match self {
            Self::Tcp(_) | Self::Udp(_) => "port",
            Self::Socket(_) => "socket",
            Self::Directory(_) => "directory",
            Self::File(_) => "file",
            Self::Descriptor(_) => "file descriptor",
        }
    }

    /// True if only one of the two claims can be granted.
    fn excludes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Tcp(one), Self::Tcp(other)) | (Self::Udp(one), Self::Udp(other)) => {
                super::check::overlap(*one, *other)
            }
            (Self::Descriptor(one), Self::Descriptor(other)) => one == other,
            (Self::Socket(one), Self::Socket(other))
            | (Self::Directory(one), Self::Directory(other))
            | (Self::File(one), Self::File(other)) => place(one) == place(other),
            _ => false,
        }
    }
}

/// A link may lead to what the other names.
fn place(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

impl fmt::Display for Thing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(addr) | Self::Udp(addr) => addr.fmt(f),
            Self::Socket(path) | Self::Directory(path) | Self::File(path) => path.display().fmt(f),
            Self::Descriptor(number) => number.fmt(f),
        }
    }
}

/// A thing that an identity has, with the option that gives it, and the line of that.
#[derive(Debug)]
struct Claim {
    option: &'static str,
    thing: Thing,
    at: String,
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({})", self.option, self.thing, self.at)
    }
}

/// Resources that an identity claims for itself. Those of the process are not included.
fn claims(torrc: &str, options: &Options) -> Vec<Claim> {
    let mut claims = Vec::new();
    let mut claim = |option, thing, at| claims.push(Claim { option, thing, at });
    let files = &options.files;
    for (key, path) in [
        (keys::DataDirectory, &files.data_directory),
        (keys::KeyDirectory, &files.key_directory),
        (keys::CacheDirectory, &files.cache_directory),
    ] {
        let at = directory_at(torrc, options, key);
        claim(key.name(), Thing::Directory(path.clone()), at);
    }
    let port = |option, addr: SocketAddr| line_at(torrc, options, option, &addr.port().to_string());
    for (option, addr) in tcp_ports(options).filter(|(option, _)| *option != METRICS) {
        claim(option, Thing::Tcp(addr), port(option, addr));
    }
    const LISTEN: &str = "ServerTransportListenAddr";
    let listen = options.bridge_relay.listen.iter();
    for addr in listen.filter_map(|(_, addr)| addr.parse::<SocketAddr>().ok()) {
        claim(LISTEN, Thing::Tcp(addr), port(LISTEN, addr));
    }
    let apps = options.apps.ports.iter().map(|port| {
        let option = match port.service {
            AppService::Dns => "DNSPort",
            AppService::HttpTunnel => "HTTPTunnelPort",
            AppService::Transparent(_) => "TransPort",
            AppService::Natd => "NATDPort",
            AppService::Socks => "SocksPort",
        };
        (option, &port.at)
    });
    let control = options.control.ports.iter();
    for (option, at) in apps.chain(control.map(|at| ("ControlSocket", at))) {
        match at {
            ListenAt::Unix(socket) => {
                let path = &socket.path;
                let at = line_at(torrc, options, option, &path.display().to_string());
                claim(option, Thing::Socket(path.clone()), at);
            }
            ListenAt::Tcp { address, port: of } if option == "DNSPort" && of.to_bind() != 0 => {
                let addr = SocketAddr::new(*address, of.to_bind());
                claim(option, Thing::Udp(addr), port(option, addr));
            }
            // Among the TCP ports.
            ListenAt::Tcp { .. } => {}
        }
    }
    let control = &options.control;
    let ext_or = Some(&options.bridge_relay.cookie_file);
    let has_ext_or = !options.bridge_relay.ext_or_ports.is_empty();
    for (key, path) in [
        (keys::CookieAuthFile, control.cookie_file.as_ref()),
        (keys::ControlPortWriteToFile, control.write_to_file.as_ref()),
        (keys::ExtORPortCookieAuthFile, ext_or.filter(|_| has_ext_or)),
    ] {
        if let Some(path) = path {
            let at = option_at(torrc, options, key).unwrap_or_else(|| by_default(torrc));
            claim(key.name(), Thing::File(path.clone()), at);
        }
    }
    if let Some(fd) = control.owning_fd {
        let at = option_at(torrc, options, keys::__OwningControllerFD);
        let at = at.unwrap_or_else(|| by_default(torrc));
        claim("__OwningControllerFD", Thing::Descriptor(fd), at);
    }
    claims
}

/// The one port of the process.
const METRICS: &str = "MetricsPort";

fn by_default(torrc: &str) -> String {
    format!("{torrc}, by default")
}

/// A line of a torrc; of a file that it includes, or that all have, with the torrc's name.
fn named(torrc: &str, origin: &Origin) -> String {
    // With RunAsDaemon the torrc's path has become absolute.
    match Path::new(torrc).ends_with(&*origin.source) {
        true => origin.to_string(),
        false => format!("{torrc}, by {origin}"),
    }
}

/// Where an option is set.
fn option_at<T>(torrc: &str, options: &Options, key: Key<T>) -> Option<String> {
    let origin = options.settings.origin(key)?;
    Some(named(torrc, origin))
}

/// Where a directory is set: those that have no option of their own are in the DataDirectory.
fn directory_at(torrc: &str, options: &Options, key: Key<String>) -> String {
    option_at(torrc, options, key)
        .or_else(|| option_at(torrc, options, keys::DataDirectory))
        .unwrap_or_else(|| by_default(torrc))
}

/// The line of an option whose value has `part`: a port's number, or the path of a socket.
fn line_at(torrc: &str, options: &Options, option: &str, part: &str) -> String {
    let lines = options
        .settings
        .iter()
        .filter_map(|(_, value, _)| match value {
            Value::Lines(lines) => Some(lines),
            _ => None,
        });
    let mut lines = lines
        .flatten()
        .filter(|line| line.name.trim_start_matches("__") == option);
    let has = |value: &str| {
        let mut words = value.split([' ', '\t', ':', '"']);
        words.any(|word| word == part) || value.contains(&format!(":{part}"))
    };
    match lines.find(|line| has(&line.value)).map(|line| &line.origin) {
        Some(origin) => named(torrc, origin),
        None => by_default(torrc),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use weft_config::{CommandLine, MemoryHost, load};

    const A: &str = "ORPort 9001\nContactInfo x\nExitRelay 0\nControlPort 127.0.0.1:9051\n\
                     DNSPort 127.0.0.1:53\nControlSocket /run/a/control\nCookieAuthentication 1\n";
    const B: &str = "ORPort 9002\nContactInfo x\nExitRelay 0\nControlPort 127.0.0.2:9051\n\
                     SocksPort 127.0.0.1:53\nCookieAuthentication 1\n";

    fn options(torrc: &str, text: &str) -> Options {
        let host = MemoryHost::new().with_file(torrc, text);
        let line = CommandLine::parse(["-f", torrc].map(Into::into)).unwrap();
        load(&line, &host).unwrap().options
    }

    fn together(first: &str, second: &str) -> Result<(), String> {
        let (a, b) = (options("/a", first), options("/b", second));
        check_all(&[("/a", &a), ("/b", &b)]).map_err(|why| why.to_string())
    }

    #[test]
    fn what_only_one_identity_can_have_is_found_and_both_lines_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let with = |name: &str, torrc: &str| {
            let data = folder.path().join(name);
            format!("{torrc}DataDirectory {}\n", data.display())
        };
        together(&with("a", A), &with("b", B)).unwrap();
        let data = folder.path().join("a").display().to_string();
        for (name, more, error) in [
            ("a", "", format!("directory: DataDirectory {data} (/a:8) and DataDirectory {data} (/b:7)")),
            (
                "b",
                &*format!("KeyDirectory {data}/keys\n"),
                format!("directory: KeyDirectory {data}/keys (/a:8) and KeyDirectory {data}/keys (/b:7)"),
            ),
            (
                "b",
                "ORPort 127.0.0.1:9001\n",
                "port: ORPort 0.0.0.0:9001 (/a:1) and ORPort 127.0.0.1:9001 (/b:7)".to_owned(),
            ),
            (
                "b",
                "SocksPort 9051\n",
                "port: ControlPort 127.0.0.1:9051 (/a:4) and SocksPort 127.0.0.1:9051 (/b:7)".to_owned(),
            ),
            (
                "b",
                "DNSPort 53\n",
                "port: DNSPort 127.0.0.1:53 (/a:5) and DNSPort 127.0.0.1:53 (/b:7)".to_owned(),
            ),
            (
                "b",
                "ControlSocket /run/a/control\n",
                "socket: ControlSocket /run/a/control (/a:6) and ControlSocket /run/a/control (/b:7)".to_owned(),
            ),
            (
                "b",
                &*format!("CookieAuthFile {data}/control_auth_cookie\n"),
                format!(
                    "file: CookieAuthFile {data}/control_auth_cookie (/a, by default) and CookieAuthFile \
                     {data}/control_auth_cookie (/b:7)"
                ),
            ),
        ] {
            let found = together(&with("a", A), &with(name, &format!("{B}{more}"))).unwrap_err();
            assert_eq!(found, format!("two identities cannot have the same {error}"));
        }
        // An error in one torrc alone names that torrc.
        let found = together(&with("a", A), &with("b", "SocksPort 0\n")).unwrap_err();
        assert!(
            found.starts_with("/b: there is neither an ORPort"),
            "{found}"
        );
    }

    #[test]
    fn a_link_to_another_identity_s_directory_is_that_directory() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(path("a/data")).unwrap();
        std::fs::set_permissions(path("a/data"), std::fs::Permissions::from_mode(0o700)).unwrap();
        std::os::unix::fs::symlink(path("a"), path("b")).unwrap();
        let with = |name: &str, torrc: &str| {
            format!("{torrc}DataDirectory {}/data\n", path(name).display())
        };
        let found = together(&with("a", A), &with("b", B)).unwrap_err();
        assert!(found.contains("directory: DataDirectory"), "{found}");
    }

    #[test]
    fn what_all_have_from_the_command_line_is_named_so() {
        let line = [
            "-f",
            "/a",
            "-f",
            "/b",
            "--ORPort",
            "9001",
            "--ContactInfo",
            "x",
        ];
        let line = CommandLine::parse(line.map(Into::into)).unwrap();
        let host = MemoryHost::new()
            .with_file("/a", "DataDirectory /one\n")
            .with_file("/b", "DataDirectory /two\n");
        let all = weft_config::load_all(&line, &host).unwrap();
        let options = ["/a", "/b"]
            .into_iter()
            .zip(all.iter().map(|one| &one.options));
        let options: Vec<_> = options.collect();
        let found = check_together(&options).unwrap_err().to_string();
        let by = |torrc| format!("ORPort 0.0.0.0:9001 ({torrc}, by command line)");
        assert!(
            found.contains(&by("/a")) && found.contains(&by("/b")),
            "{found}"
        );
    }

    #[test]
    fn one_controller_s_descriptor_is_one_identity_s() {
        let of = |torrc: &str, data: &str| {
            let text = format!("DataDirectory {data}\n__OwningControllerFD 7\n");
            options(torrc, &text)
        };
        let (a, b) = (of("/a", "/x"), of("/b", "/y"));
        let found = check_together(&[("/a", &a), ("/b", &b)]).unwrap_err();
        assert_eq!(
            found.to_string(),
            "two identities cannot have the same port: SocksPort 127.0.0.1:9050 (/a, by default) and SocksPort \
             127.0.0.1:9050 (/b, by default)"
        );
        let own = claims("/a", &a).into_iter();
        let own = own.filter(|claim| matches!(claim.thing, Thing::Descriptor(_)));
        let own: Vec<String> = own.map(|claim| claim.to_string()).collect();
        assert_eq!(own, ["__OwningControllerFD 7 (/a:2)"]);
        assert!(Thing::Descriptor(7).excludes(&Thing::Descriptor(7)));
    }

    #[test]
    fn two_relays_with_the_same_keys_are_found_and_clients_have_none() {
        let (a, b) = (
            options("/a", "ORPort 1\nDataDirectory /x\n"),
            options("/b", "ORPort 2\nDataDirectory /y\nKeyDirectory /z\n"),
        );
        let ids = |number: u8| {
            (
                RsaIdentity::from([number; 20]),
                Ed25519Identity::from([number; 32]),
            )
        };
        let check = |one, other| {
            let all = [(one, "/a".to_owned(), &a), (other, "/b".to_owned(), &b)];
            check_keys(all.into_iter()).map_err(|why| why.to_string())
        };
        check(ids(1), ids(2)).unwrap();
        check(ids(0), ids(0)).unwrap();
        for other in [ids(1), (ids(1).0, ids(2).1), (ids(2).0, ids(1).1)] {
            assert_eq!(
                check(ids(1), other).unwrap_err(),
                "two identities cannot have the same identity keys: KeyDirectory /x/keys (/a:2) and KeyDirectory /z (/b:3)"
            );
        }
    }
}
