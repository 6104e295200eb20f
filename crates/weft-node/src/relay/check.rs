//! Errors that make a start fail and can be found before anything is opened, written or changed.
//! `--verify-config` and every start run these checks.

use std::net::SocketAddr;
use std::path::Path;

use weft_config::Options;
use weft_config::options::{AppService, ListenAt};

use super::{StartError, exits};
use crate::process::{limits, user};
use weft_datadir::dir::{DirError, could_be_private};

/// Checks options against each other and against this machine.
///
/// # Errors
///
/// The first [`StartError`] that a start would end with. Errors that only binding, locking or
/// writing can show are left to the start.
pub fn check(options: &Options) -> Result<(), StartError> {
    if !options.is_relay() && !options.is_client() {
        return Err(StartError::NothingToDo);
    }
    limits::check_file_limit(u64::from(options.resources.conn_limit))?;
    let becomes_another = match &options.process.user {
        Some(name) => user::find(name)?.uid != nix::unistd::geteuid(),
        None => false,
    };
    check_ports(options)?;
    let needs_names = options.is_relay() && !options.exit.policy.rejects_all();
    if needs_names && !options.exit.dns.allow_broken_config {
        let network = weft_dir::params::Params::default();
        let dns = exits::dns_config(options, &network, 0);
        dns.servers().map_err(StartError::Dns)?;
    }
    // Another user's permissions are checked once the process is that user.
    if !becomes_another {
        check_directories(options).map_err(StartError::Directory)?;
    }
    Ok(())
}

/// True if two listeners cannot both have their port.
pub(super) fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let everywhere = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() == other.port()
        && one.is_ipv4() == other.is_ipv4()
        && (everywhere || one.ip() == other.ip())
}

/// Finds two listeners of different options on one TCP port.
fn check_ports(options: &Options) -> Result<(), StartError> {
    let mut seen: Vec<(&'static str, SocketAddr)> = Vec::new();
    for (name, addr) in tcp_ports(options) {
        let taken =
            |(other, at): &&(&'static str, SocketAddr)| *other != name && overlap(*at, addr);
        if let Some((other, at)) = seen.iter().find(taken) {
            return Err(StartError::SamePort {
                one: format!("{other} {at}"),
                other: format!("{name} {addr}"),
            });
        }
        seen.push((name, addr));
    }
    Ok(())
}

/// Every TCP port with a number that a start binds, by the option's name.
pub(super) fn tcp_ports(options: &Options) -> impl Iterator<Item = (&'static str, SocketAddr)> {
    let listening = |name, ports: &[weft_config::OrPort]| {
        let ports = ports.iter().filter(|port| port.listen);
        ports.map(|port| (name, port.to_bind())).collect::<Vec<_>>()
    };
    let local = |name, at: &ListenAt| match at {
        ListenAt::Tcp { address, port } => Some((name, SocketAddr::new(*address, port.to_bind()))),
        ListenAt::Unix(_) => None,
    };
    let apps = options.apps.ports.iter().filter_map(move |port| {
        let name = match port.service {
            AppService::Socks => "SocksPort",
            AppService::HttpTunnel => "HTTPTunnelPort",
            AppService::Transparent(_) => "TransPort",
            AppService::Natd => "NATDPort",
            // By UDP.
            AppService::Dns => return None,
        };
        local(name, &port.at)
    });
    let control = options.control.ports.iter();
    listening("ORPort", &options.network.or_ports)
        .into_iter()
        .chain(listening("MetricsPort", &options.metrics.ports))
        .chain(listening("ExtORPort", &options.bridge_relay.ext_or_ports))
        .chain(listening("DirPort", &options.directory.dir_ports))
        .chain(apps)
        .chain(control.filter_map(move |at| local("ControlPort", at)))
        .filter(|(_, addr)| addr.port() != 0)
}

/// Private directories of a node, and whether its group may read them.
pub(crate) fn directories(options: &Options) -> [(&Path, bool); 3] {
    let files = &options.files;
    [
        (&files.data_directory, files.data_directory_group_readable),
        (&files.key_directory, files.key_directory_group_readable),
        (&files.cache_directory, files.cache_directory_group_readable),
    ]
}

/// Looks at the directories that are there; a start makes those that are not.
fn check_directories(options: &Options) -> Result<(), DirError> {
    let directories = directories(options);
    directories
        .into_iter()
        .try_for_each(|(path, group)| could_be_private(path, group))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::relay::testing::options;

    fn fails(torrc: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let torrc = format!("DataDirectory {}/data\n{torrc}\n", folder.path().display());
        check(&options(&torrc)).unwrap_err().to_string()
    }

    #[test]
    fn what_a_start_would_fail_at_is_found_without_one() {
        assert!(fails("SocksPort 0").contains("neither an ORPort nor a SocksPort"));
        assert!(fails("User no-such-user").contains("no-such-user not found"));
        assert!(fails("ConnLimit 1000000000").contains("ConnLimit"));
        let exit = "ORPort 9001\nExitRelay 1\nServerDNSAllowBrokenConfig 0\n\
                    ServerDNSResolvConfFile /";
        assert!(fails(exit).contains("set ServerDNSAllowBrokenConfig 1"));
        for (torrc, one, other) in [
            (
                "ORPort 9001\nSocksPort 9001",
                "ORPort 0.0.0.0:9001",
                "SocksPort 127.0.0.1:9001",
            ),
            (
                "SocksPort 9050\nHTTPTunnelPort 9050",
                "SocksPort",
                "HTTPTunnelPort",
            ),
            (
                "SocksPort 9050\nControlPort 9050",
                "SocksPort",
                "ControlPort",
            ),
        ] {
            let error = fails(torrc);
            assert!(error.contains(one) && error.contains(other), "{error}");
        }
    }

    #[test]
    fn nothing_is_made_and_what_is_there_is_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let torrc = format!(
            "DataDirectory {}\nSocksPort 9050\nDNSPort 9050\n",
            data.display()
        );
        check(&options(&torrc)).unwrap();
        assert!(!data.exists());
        std::fs::write(&data, "a file").unwrap();
        std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(check(&options(&torrc)).is_err());
    }
}
