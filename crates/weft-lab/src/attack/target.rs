//! The relay that is attacked: started for it, alone on loopback.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use weft_authority::AuthorityKeys;
use weft_testnet::network::keys_by_tor_gencert;
use weft_testnet::ports::Port;
use weft_testnet::process::Usage;
use weft_testnet::traffic::NameServer;

use super::microdescs;
use crate::relay::aim::Aim;
use crate::relay::program::Program;
use crate::relay::report::PAYLOAD_PER_CELL;
use crate::relay::start::{MIDDLE, Running};
use crate::relay::{self, Direction, Mode, pin};

/// The least MaxMemInQueues that torrc can ask for, in bytes.
pub(super) const LITTLE_MEMORY: u64 = 64 << 20;
/// File descriptors of a relay whose operator left the limit as it was.
const FEW_FILES: u32 = 1050;

/// Requirements of an attack on its target, besides an ORPort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// It is an exit to loopback, with a name server of the generator's.
    pub exit: bool,
    /// It has a DirPort: it is the authority of a private network, as other relays have none.
    pub dir_port: bool,
    /// It has a SocksPort.
    pub socks: bool,
    /// It has a ControlPort.
    pub control: bool,
    /// It has a MetricsPort.
    pub metrics: bool,
    /// MaxMemInQueues is [`LITTLE_MEMORY`].
    pub little_memory: bool,
    /// Resident memory must not grow by more than [`LITTLE_MEMORY`] and a tenth of it.
    pub bounded_memory: bool,
    /// It has [`FEW_FILES`] file descriptors.
    pub few_files: bool,
    /// It is a bridge.
    pub bridge: bool,
    /// Tunnels of mTor may end at it, if it is Weft.
    pub tunnels: bool,
    /// Its directory cache has [`microdescs::all`].
    pub microdescs: bool,
    /// Rules against floods of circuits and connections (dos-spec) are in force, as on the public network.
    pub dos_rules: bool,
}

impl Needs {
    /// An ORPort alone.
    pub const RELAY: Needs = Needs {
        exit: false,
        dir_port: false,
        socks: false,
        control: false,
        metrics: false,
        little_memory: false,
        bounded_memory: false,
        few_files: false,
        bridge: false,
        tunnels: false,
        microdescs: false,
        dos_rules: false,
    };
    /// An exit.
    pub const EXIT: Needs = Needs {
        exit: true,
        ..Needs::RELAY
    };
}

/// The ports that the target has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ports {
    pub(super) directory: Option<SocketAddr>,
    pub(super) socks: Option<SocketAddr>,
    pub(super) control: Option<SocketAddr>,
    pub(super) metrics: Option<SocketAddr>,
}

/// Names that the name server knows, for honest users: each is asked for once, so that no cache answers.
pub(super) const NAMES: usize = 2000;

/// The name of this number.
pub(super) fn name(number: usize) -> String {
    format!("honest-{number}.example")
}

/// Lines of an authority's torrc.
const AUTHORITY: &str = "AuthoritativeDirectory 1\n\
     V3AuthoritativeDirectory 1\n\
     V3AuthVotingInterval 20\n\
     V3AuthVoteDelay 2\n\
     V3AuthDistDelay 2\n\
     TestingV3AuthInitialVoteDelay 2\n\
     TestingV3AuthInitialDistDelay 2\n";

/// The keys of an authority with this DirPort.
fn make_authority_keys(program: &Program, keys: &Path, address: SocketAddr) -> Result<()> {
    match program {
        Program::Tor(_) => keys_by_tor_gencert(keys, address),
        _ => {
            let mut rng = rand::rng();
            AuthorityKeys::create(keys, address, SystemTime::now(), &mut rng)?;
            Ok(())
        }
    }
}

/// A target that runs until this is dropped.
pub(super) struct Target {
    running: Running,
    pub(super) aim: Aim,
    pub(super) ports: Ports,
    _names: Option<NameServer>,
    _folder: TempDir,
    _held: Vec<Port>,
}

impl Target {
    /// Starts the program with what the attack needs. `cpus` are the processors that it may use; none:
    /// all.
    pub(super) fn start(
        program: &Program,
        needs: Needs,
        cpus: &[usize],
        patience: Duration,
    ) -> Result<Target> {
        let folder = tempfile::Builder::new()
            .prefix("weft-attack-")
            .tempdir()
            .context("making a folder for the target")?;
        let mut held = Vec::new();
        let mut port = |wanted: bool| -> Result<Option<SocketAddr>> {
            if !wanted {
                return Ok(None);
            }
            let port = Port::reserve()?;
            let address = port.address();
            held.push(port);
            Ok(Some(address))
        };
        let ports = Ports {
            directory: port(needs.dir_port)?,
            socks: port(needs.socks)?,
            control: port(needs.control)?,
            metrics: port(needs.metrics)?,
        };
        let mut torrc = String::new();
        let mut names = None;
        if needs.exit {
            let known: Vec<(String, Ipv4Addr)> = (0..NAMES)
                .map(|number| (name(number), Ipv4Addr::LOCALHOST))
                .collect();
            let known: Vec<(&str, Ipv4Addr)> = known
                .iter()
                .map(|(name, address)| (name.as_str(), *address))
                .collect();
            // C tor asks name servers at port 53 alone.
            let server = match program {
                Program::Tor(_) => NameServer::start_for_tor(&known)?,
                _ => NameServer::start(&known)?,
            };
            let file = folder.path().join("resolv.conf");
            fs::write(&file, server.resolv_conf())
                .with_context(|| format!("writing {}", file.display()))?;
            names = Some(server);
            torrc += &format!(
                "ExitRelay 1\n\
                 ExitPolicyRejectPrivate 0\n\
                 ExitPolicy accept 127.0.0.0/8:*\n\
                 ExitPolicy accept *:*\n\
                 RefuseUnknownExits 0\n\
                 ServerDNSResolvConfFile {}\n",
                file.display()
            );
        } else {
            torrc += MIDDLE.strip_suffix("SocksPort 0\n").unwrap_or(MIDDLE);
        }
        let mut line = |name: &str, address: Option<SocketAddr>, more: &str| {
            if let Some(address) = address {
                torrc += &format!("{name} {address}\n{more}");
            }
        };
        line("DirPort", ports.directory, AUTHORITY);
        line("ControlPort", ports.control, "CookieAuthentication 1\n");
        line(
            "MetricsPort",
            ports.metrics,
            "MetricsPortPolicy accept 127.0.0.0/8\n",
        );
        match ports.socks {
            Some(address) => line("SocksPort", Some(address), ""),
            None => torrc += "SocksPort 0\n",
        }
        if needs.little_memory {
            torrc += &format!("MaxMemInQueues {} MB\n", LITTLE_MEMORY >> 20);
        }
        if needs.bridge {
            torrc += "BridgeRelay 1\n";
        }
        if needs.tunnels && matches!(program, Program::Weft(..)) {
            torrc += "MultipathExit 1\n";
        }
        if needs.dos_rules {
            torrc += "DoSCircuitCreationEnabled 1\n";
        }
        let prepare = |data: &Path| {
            if needs.microdescs {
                microdescs::write(data)?;
            }
            match ports.directory {
                None => Ok(()),
                Some(address) => make_authority_keys(program, &data.join("keys"), address),
            }
        };
        let files = needs.few_files.then_some(FEW_FILES);
        let running = Running::start(program, None, patience, &torrc, files, prepare)?;
        pin::process(running.pid(), cpus)?;
        let aim = running.aim().context("the target is no relay")?;
        Ok(Target {
            running,
            aim,
            ports,
            _names: names,
            _folder: folder,
            _held: held,
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// An error, with the end of its log, if it has ended.
    pub(super) fn check(&mut self) -> Result<()> {
        self.running.check()
    }

    /// Resources that it holds now.
    pub(super) fn held(&self) -> Result<Held> {
        Held::of(self.pid())
    }

    /// Its log so far.
    pub(super) fn log(&self) -> String {
        self.running.log()
    }

    /// Size of its log, in bytes.
    pub(super) fn log_bytes(&self) -> u64 {
        self.running.log_bytes()
    }
}

/// The lines of a log above `notice`, without their times, and how often each came.
pub(super) fn complaints(log: &str) -> BTreeMap<String, u64> {
    let mut complaints = BTreeMap::new();
    for line in log.lines() {
        let worth = ["[warn]", "[err]", "panicked"];
        if worth.iter().any(|word| line.contains(word)) {
            let text = line.split_once('[').map_or(line, |(_, rest)| rest);
            *complaints.entry(format!("[{text}")).or_default() += 1;
        }
    }
    complaints
}

/// Resources that a process holds at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Held {
    /// Resident memory, bytes.
    pub rss_bytes: u64,
    /// Open file descriptors.
    pub files: u64,
    /// User and system time so far, seconds.
    pub cpu_s: f64,
}

impl Held {
    /// Of this process.
    pub(super) fn of(pid: u32) -> Result<Held> {
        let usage = Usage::of(pid)?;
        let folder = format!("/proc/{pid}/fd");
        let files = fs::read_dir(&folder).with_context(|| format!("listing {folder}"))?;
        Ok(Held {
            rss_bytes: usage.rss,
            files: files.count() as u64,
            cpu_s: usage.cpu.as_secs_f64(),
        })
    }

    /// The most of both.
    pub(super) fn max(self, other: Held) -> Held {
        Held {
            rss_bytes: self.rss_bytes.max(other.rss_bytes),
            files: self.files.max(other.files),
            cpu_s: self.cpu_s.max(other.cpu_s),
        }
    }
}
/// Honest circuits that carry cells through the target at a fixed rate, in 10⁶ bits of payload a second. The
/// caller chooses how many, how long and with which seed.
pub(super) fn honest_load(aim: Aim, pid: u32, mbits: f64) -> relay::Options {
    relay::Options {
        target: relay::Target::Relay(aim, Some(pid)),
        mode: Mode::Cells,
        live: None,
        capacity: None,
        counters: false,
        workers: None,
        direction: Direction::Download,
        circuits: 1,
        links: 2,
        window: None,
        rate: Some(mbits * 1e6 / 8.0 / PAYLOAD_PER_CELL as f64),
        warm_up: Duration::ZERO,
        seconds: Duration::ZERO,
        threads: 1,
        target_cpus: Vec::new(),
        generator_cpus: Vec::new(),
        patience: Duration::ZERO,
        own_ip: std::net::Ipv4Addr::LOCALHOST.into(),
        seed: 0,
    }
}
