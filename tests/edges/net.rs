//! The network that most tests share, and what they look at in it.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use weft_testnet::control::Control;
use weft_testnet::network::Program;
use weft_testnet::process::Usage;
use weft_testnet::traffic::{Direction, NameServer, Request, transfer};
use weft_testnet::up::{Client, More, Plan, Up};

/// Ends what would otherwise hang; nothing is measured by it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// The client that most tests use.
pub(crate) const CLIENT: &str = "client0";
/// A client that gives a stream up after ten seconds.
pub(crate) const HASTY: &str = "hasty";

/// What the exits' name server knows.
pub(crate) const NAMES: [(&str, IpAddr); 4] = [
    ("here.example", IpAddr::V4(Ipv4Addr::LOCALHOST)),
    ("six.example", IpAddr::V6(Ipv6Addr::LOCALHOST)),
    ("known.example", IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7))),
    (
        "known6.example",
        IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7)),
    ),
];

/// A network of Weft whose exits have a name server of their own.
pub(crate) struct Net {
    pub(crate) up: Up,
    // Both are there for as long as the network.
    _names: NameServer,
    _folder: tempfile::TempDir,
}

pub(crate) fn weft_path() -> PathBuf {
    let named = std::env::var_os("WEFT_BIN").map(PathBuf::from);
    named.unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_weft")))
}

pub(crate) fn weft() -> Result<Program> {
    Program::weft(&weft_path(), None)
}

impl Net {
    pub(crate) fn start() -> Result<Net> {
        let folder = tempfile::tempdir()?;
        let names = NameServer::start(&NAMES)?;
        let resolv_conf = folder.path().join("resolv.conf");
        std::fs::write(&resolv_conf, names.resolv_conf())?;
        let plan = Plan {
            more: More {
                exits: vec![
                    format!("ServerDNSResolvConfFile {}", resolv_conf.display()),
                    "ServerDNSDetectHijacking 0".to_owned(),
                    "IPv6Exit 1".to_owned(),
                    "OutboundBindAddressExit [::1]".to_owned(),
                ],
                clients: vec!["DNSPort auto".to_owned(), "HTTPTunnelPort auto".to_owned()],
                ..More::default()
            },
            verbose: std::env::var_os("WEFT_LAB_VERBOSE").is_some(),
            progress: |line| eprintln!("{line}"),
            ..Plan::of_weft(weft_path())
        };
        Ok(Net {
            up: Up::start(&plan)?,
            _names: names,
            _folder: folder,
        })
    }

    pub(crate) fn client(&self) -> Result<&Client> {
        self.up.client(CLIENT)
    }

    pub(crate) fn hasty(&self) -> Result<&Client> {
        self.up.client(HASTY)
    }

    /// The address of one of the client's listeners, by its name for controllers.
    pub(crate) fn listener(&self, kind: &str) -> Result<SocketAddr> {
        let listeners = self
            .client()?
            .controller()?
            .info(&format!("net/listeners/{kind}"))?;
        listeners
            .trim_matches('"')
            .parse()
            .with_context(|| format!("net/listeners/{kind} is {listeners:?}"))
    }

    /// A stream of the user's, beside whatever else is done in its name, arrives whole.
    pub(crate) fn bystander(&self, user: &str, bytes: u64) -> Result<()> {
        for direction in [Direction::Down, Direction::Up] {
            let request = Request {
                direction,
                bytes,
                seed: 99,
            };
            let server = self.up.server().address();
            transfer(self.client()?.socks(), user, server, request)
                .context("a bystander's stream")?;
        }
        Ok(())
    }

    /// Waits until every relay can serve clients everything: until each has a microdescriptor of all.
    pub(crate) fn caches_are_full(&self) -> Result<()> {
        let relays = self.up.relays().count();
        for node in self.up.relay_nodes() {
            let data = node.folder().join("data");
            until("a relay's cache to be full", || {
                let names = ["cached-microdescs", "cached-microdescs.new"];
                let texts = names.map(|name| std::fs::read(data.join(name)).unwrap_or_default());
                let known = texts
                    .concat()
                    .windows(11)
                    .filter(|at| at == b"\nonion-key\n")
                    .count();
                Ok(known >= relays || node.nickname() == "authority")
            })
            .with_context(|| node.nickname().to_owned())?;
        }
        Ok(())
    }

    /// Memory that the client and the exits have in use, in bytes.
    pub(crate) fn memory(&self) -> Result<HashMap<String, u64>> {
        let nodes = [CLIENT, "exit0", "exit1"].into_iter();
        nodes
            .map(|name| Ok((name.to_owned(), usage(&self.up, name)?.rss)))
            .collect()
    }

    /// Nothing has ended, and no node uses much more memory than before.
    pub(crate) fn grew_less(&self, before: &HashMap<String, u64>, most: u64) -> Result<()> {
        for (name, now) in self.memory()? {
            let before = before.get(&name).copied().unwrap_or(0);
            ensure!(
                now < before + most,
                "{name} grew from {before} to {now} bytes"
            );
        }
        Ok(())
    }
}

pub(crate) fn usage(up: &Up, nickname: &str) -> Result<Usage> {
    let pid = up.node(nickname)?.pid().context("it does not run")?;
    Usage::of(pid)
}

/// Runs a test on the network that all of them share.
pub(crate) fn shared(test: impl FnOnce(&Net) -> Result<()>) {
    static NET: OnceLock<Net> = OnceLock::new();
    let net = NET.get_or_init(|| {
        let start = || -> Result<Net> {
            let mut net = Net::start()?;
            let lines = ["SocksTimeout 5".to_owned()];
            net.up.add_client(HASTY, &weft()?, &lines, PATIENCE)?;
            Ok(net)
        };
        start().unwrap_or_else(|error| panic!("{error:#}"))
    });
    test(net).unwrap_or_else(|error| panic!("{error:#}"));
}

/// Asks again and again until it is so.
pub(crate) fn until(what: &str, mut so: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !so()? {
        ensure!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// What a controller hears of streams.
pub(crate) struct Watch {
    control: Control,
    heard: Vec<String>,
}

impl Watch {
    pub(crate) fn start(client: &Client) -> Result<Watch> {
        let mut control = client.controller()?;
        control.command("SETEVENTS STREAM")?;
        Ok(Watch {
            control,
            heard: Vec::new(),
        })
    }

    /// Waits for an event of a stream to `target` (a host and a port) that has all of these words.
    pub(crate) fn hears(&mut self, target: &str, words: &[&str]) -> Result<String> {
        let deadline = Instant::now() + PATIENCE;
        while let Some(event) = self.control.event(deadline)? {
            let in_event: Vec<&str> = event.split(' ').collect();
            let all = words.iter().all(|word| in_event.contains(word));
            if in_event.contains(&target) && all {
                return Ok(event);
            }
            self.heard.push(event);
        }
        bail!("no {words:?} of {target}, but:\n{}", self.heard.join("\n"));
    }
}
