//! Assigns nodes to the hosts of a topology.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context as _, Result, bail, ensure};
use weft_model::links::Topology;

pub(crate) use crate::nodes::AUTHORITY;
use crate::nodes::torrc::{Duty, path_lines};

/// ORPort of every relay, each on a separate host.
pub const OR_PORT: u16 = 9_001;
/// DirPort of the authority.
pub const DIR_PORT: u16 = 9_030;
/// SocksPort of every client.
pub const SOCKS_PORT: u16 = 9_050;
/// ControlPort of every client.
pub const CONTROL_PORT: u16 = 9_051;

/// Role of a host in the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A client, and its users.
    Client,
    /// The first relay of clients' circuits.
    Entry,
    /// The second relay.
    Middle,
    /// The last relay.
    Exit,
    /// The server that users contact; no node.
    Server,
    /// The directory authority.
    Authority,
}

/// A host and its role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The host's name.
    pub host: String,
    /// Its role.
    pub role: Role,
    /// The entry that a client has a link to.
    pub entry: Option<String>,
}

impl Role {
    fn of(host: &str) -> Result<Role> {
        Ok(match host.trim_end_matches(|c: char| c.is_ascii_digit()) {
            "client" => Role::Client,
            "entry" => Role::Entry,
            "middle" => Role::Middle,
            "exit" => Role::Exit,
            "server" => Role::Server,
            AUTHORITY => Role::Authority,
            _ => bail!(
                "the name of host {host} does not show what it is to run: hosts are called client, entry, middle \
                 or exit with a number or without, and server and {AUTHORITY}"
            ),
        })
    }
}

/// The first host of a role.
///
/// # Errors
///
/// There is none.
pub fn the(places: &[Place], role: Role) -> Result<&Place> {
    let mut places = places.iter();
    places
        .find(|place| place.role == role)
        .with_context(|| format!("there is no host for {role:?}"))
}

/// The role of each host.
///
/// # Errors
///
/// A name has no meaning, a role is missing or there twice, or a client has not one entry.
pub fn find(topology: &Topology) -> Result<Vec<Place>> {
    let mut places = Vec::new();
    for host in topology.hosts() {
        let name = topology.node_name(host.node());
        let role = Role::of(name)?;
        let mut entry = None;
        if role == Role::Client {
            let links = topology.links().iter();
            let neighbours = links.filter_map(|link| match link.ends {
                [one, other] if one == host.node() => Some(other),
                [one, other] if other == host.node() => Some(one),
                _ => None,
            });
            let mut entries = neighbours
                .map(|node| topology.node_name(node))
                .filter(|name| Role::of(name).is_ok_and(|role| role == Role::Entry));
            entry = entries.next().map(str::to_owned);
            ensure!(
                entry.is_some() && entries.next().is_none(),
                "host {name} needs a link to one host that is an entry"
            );
        }
        places.push(Place {
            host: name.to_owned(),
            role,
            entry,
        });
    }
    let count = |role| places.iter().filter(|place| place.role == role).count();
    for role in [Role::Middle, Role::Exit, Role::Server, Role::Authority] {
        ensure!(
            count(role) == 1,
            "the topology {} has {} hosts for {role:?}, and needs one",
            topology.name(),
            count(role)
        );
    }
    ensure!(
        count(Role::Client) > 0,
        "the topology {} has no client",
        topology.name()
    );
    Ok(places)
}

/// The duty of this place's node at the host's address, and the lines of its torrc that depend on
/// the other places; `None` for a server, which is no node.
///
/// # Errors
///
/// A role is missing.
pub fn duty(
    places: &[Place],
    place: &Place,
    address: Ipv4Addr,
) -> Result<Option<(Duty, Vec<String>)>> {
    let or = SocketAddr::from((address, OR_PORT));
    let duty = match place.role {
        Role::Server => return Ok(None),
        Role::Authority => authority(address),
        Role::Entry | Role::Middle => Duty::Relay { or, exit: None },
        Role::Exit => Duty::Relay {
            or,
            exit: Some(address),
        },
        Role::Client => {
            let entry = place
                .entry
                .as_deref()
                .context("a client without an entry")?;
            let [middle, exit] = [Role::Middle, Role::Exit].map(|role| the(places, role));
            let lines = path_lines(&[entry], &[&*middle?.host], &[&*exit?.host]);
            return Ok(Some((client(), lines)));
        }
    };
    Ok(Some((duty, Vec::new())))
}

/// The authority at this address.
pub fn authority(address: Ipv4Addr) -> Duty {
    let [or, dir] = [OR_PORT, DIR_PORT].map(|port| SocketAddr::from((address, port)));
    Duty::Authority { or, dir }
}

/// A client, whose ports are its host's own.
pub fn client() -> Duty {
    let [socks, control] =
        [SOCKS_PORT, CONTROL_PORT].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    Duty::Client {
        socks,
        control,
        multipath: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_model::links::builtin;

    #[test]
    fn roles_follow_from_names_and_entries_from_links() {
        let topology = builtin::topology("pahl-no-dropping")
            .expect("built in")
            .expect("well-formed");
        let places = find(&topology).expect("every host has a role");
        let entry = |name: &str| {
            let place = places
                .iter()
                .find(|place| place.host == name)
                .expect("a host");
            place.entry.clone()
        };
        assert_eq!(entry("client1").as_deref(), Some("entry1"));
        assert_eq!(entry("client8").as_deref(), Some("entry4"));
        assert_eq!(entry("middle"), None);
    }

    #[test]
    fn a_topology_that_is_no_network_is_refused() {
        let pair = builtin::topology("pair")
            .expect("built in")
            .expect("well-formed");
        let error = find(&pair).expect_err("no relays").to_string();
        assert!(error.contains("entry"), "{error}");
    }
}
