//! A client whose way into the network is a proxy, of each kind.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context as _, Result, ensure};
use weft_load::proxy::{Behaviour, TestProxy};
use weft_testnet::traffic::{Direction, Request, transfer};
use weft_testnet::up::{Client, Plan, Up};

use crate::edges::net::{PATIENCE, weft, weft_path};

#[test]
fn every_connection_of_a_client_goes_through_its_proxy() {
    run().unwrap_or_else(|error| panic!("{error:#}"));
}

fn run() -> Result<()> {
    let plan = Plan {
        clients: 0,
        progress: |line| eprintln!("{line}"),
        ..Plan::of_weft(weft_path())
    };
    let mut up = Up::start(&plan)?;
    for (name, protocol, secret) in [
        ("Socks4Proxy", "SOCKS4", None),
        ("Socks5Proxy", "SOCKS5", Some("me:secret")),
        ("HTTPSProxy", "HTTP", None),
    ] {
        let proxy = TestProxy::start(Behaviour::Connect)?;
        let mut lines = vec![format!("{name} {}", proxy.addr())];
        if secret.is_some() {
            lines.push("Socks5ProxyUsername me".to_owned());
            lines.push("Socks5ProxyPassword secret".to_owned());
        }
        let client = up.add_client(&name.to_lowercase(), &weft()?, &lines, PATIENCE)?;
        let socks = client.socks();
        let request = Request {
            direction: Direction::Down,
            bytes: 1_000_000,
            seed: 3,
        };
        transfer(socks, "far", up.server().address(), request)?;
        let client = up.client(&name.to_lowercase())?;
        // What it has open leads to the proxy, and to nobody else.
        let peers = connected_to(client)?;
        ensure!(!peers.is_empty(), "{name}: it has no connection");
        for peer in peers {
            ensure!(
                peer == proxy.addr(),
                "{name}: it has a connection to {peer}"
            );
        }
        // As many as it has reported to controllers.
        let asked = proxy.asked();
        for asked in &asked {
            ensure!(asked.protocol == protocol, "{asked:?}");
            ensure!(asked.credentials.as_deref() == secret, "{asked:?}");
        }
        let links = client.controller()?.info("orconn-status")?;
        let open = links.lines().filter(|line| line.contains("CONNECTED"));
        let open = open.count();
        ensure!(open > 0 && asked.len() >= open, "{name}: {links} {asked:?}");
    }
    up.stop()
}

/// The other ends of the TCP connections that a client has opened.
fn connected_to(client: &Client) -> Result<Vec<SocketAddr>> {
    let pid = client.node().pid().context("it does not run")?;
    let mut inodes = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))? {
        // A descriptor may be closed meanwhile.
        let Ok(link) = std::fs::read_link(entry?.path()) else {
            continue;
        };
        let link = link.to_string_lossy().into_owned();
        let socket = link.strip_prefix("socket:[");
        inodes.extend(
            socket
                .and_then(|rest| rest.strip_suffix(']'))
                .map(str::to_owned),
        );
    }
    let table = std::fs::read_to_string("/proc/net/tcp")?;
    let mut peers = Vec::new();
    for line in table.lines().skip(1) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, local, remote, state, _, _, _, _, _, inode, ..] = words[..] else {
            continue;
        };
        // ESTABLISHED and SYN_SENT.
        if !matches!(state, "01" | "02") || !inodes.iter().any(|own| own == inode) {
            continue;
        }
        let local = address(local)?;
        if local != client.socks() && local != client.control() {
            peers.push(address(remote)?);
        }
    }
    Ok(peers)
}

/// An address as the kernel's tables have it.
fn address(text: &str) -> Result<SocketAddr> {
    let (ip, port) = text.split_once(':').context("address:port")?;
    let ip = u32::from_str_radix(ip, 16)?.swap_bytes();
    let port = u16::from_str_radix(port, 16)?;
    Ok(SocketAddr::from((Ipv4Addr::from_bits(ip), port)))
}
