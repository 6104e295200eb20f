//! A network that Shadow simulates: what each host of a topology runs, and when. [`Network::write`] makes of it the
//! file that Shadow reads; the caller fills [`template`] with the files of the hosts.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use rand_chacha::ChaCha20Rng;
use weft_authority::AuthorityKeys;
use weft_datadir::keys::{KeyConfig, RelayKeys};
use weft_model::links::Topology;

use super::graph;
use super::yaml::Yaml;
use crate::network::Program;
use crate::nodes::torrc::authority_line;
use crate::overlay::place::OR_PORT;
use crate::programs::lab_program;

/// The file of the configuration.
pub const CONFIGURATION: &str = "shadow.yaml";
/// Where Shadow writes what hosts wrote.
pub const DATA: &str = "shadow.data";
/// The folder of folders, one for each host, in [`DATA`] and in [`template`].
pub const HOSTS: &str = "hosts";
/// Folder whose contents hosts start with.
pub(crate) const TEMPLATE: &str = "template";
/// Simulated time begins at the beginning of 2000.
pub const EPOCH: Duration = Duration::from_secs(946_684_800);
/// Seconds between the making of keys and the beginning of simulated time.
const KEYS_BEFORE: Duration = Duration::from_secs(43_200);
/// Seconds from one consensus to the next.
pub const INTERVAL: u32 = 60;
/// Exits refuse streams of relays that they do not know, and know all only by their second consensus.
pub const LEAST_SETTLE: Duration = Duration::from_secs(180);
/// From the last traffic to the end of the simulation, in which records are written.
pub const END: Duration = Duration::from_secs(5);
/// A name server that is never asked.
pub const RESOLV_CONF: (&str, &str) = ("resolv.conf", "nameserver 127.0.0.1\n");

/// Lines of all nodes. One processor each, so that a simulation is the same on every machine. Without the limit, nodes
/// would take that of the machine that simulates.
pub const ALL_LINES: &[&str] = &["NumCPUs 1", "MaxMemInQueues 1 GB"];
/// Lines that Weft has.
pub const WEFT_LINES: &[&str] = &["ServerDNSDetectHijacking 0"];
/// Lines of relays: they would ask the name servers of the machine that simulates.
pub const RELAY_LINES: &[&str] = &["ServerDNSResolvConfFile resolv.conf"];

/// Nodes do not start all in one instant: they would draw the same circuits.
pub fn apart(number: usize) -> Duration {
    Duration::from_millis(number as u64 % 997 * 7_919 % 997)
}

/// A process of a host.
#[derive(Clone, Debug)]
pub struct Process {
    path: String,
    args: Vec<String>,
    start: Duration,
    /// It ends by itself, with exit status 0; otherwise it runs until the end.
    ends: bool,
}

impl Process {
    /// A node, which runs until the end. The name of its torrc is relative to the folder of its host.
    pub fn node(program: &Program, torrc: &Path, start: Duration) -> Process {
        let command = program.command(torrc);
        let args = command.get_args();
        Process {
            path: command.get_program().to_string_lossy().into_owned(),
            args: args.map(|arg| arg.to_string_lossy().into_owned()).collect(),
            start,
            ends: false,
        }
    }

    /// A server for users' streams, which runs until the end.
    ///
    /// # Errors
    ///
    /// As of [`Process::lab`].
    pub fn flow_server(weft: &Path, listen: SocketAddr) -> Result<Process> {
        let args = ["flow-server", "--listen", &listen.to_string()].map(str::to_owned);
        Ok(Process {
            ends: false,
            ..Process::lab(weft, args, Duration::from_secs(1))?
        })
    }

    /// The weft-lab of a weft with these arguments, which ends by itself.
    ///
    /// # Errors
    ///
    /// There is no weft-lab beside that weft.
    pub fn lab(
        weft: &Path,
        args: impl IntoIterator<Item = String>,
        start: Duration,
    ) -> Result<Process> {
        Ok(Process {
            path: lab_program(weft)?.display().to_string(),
            args: args.into_iter().collect(),
            start,
            ends: true,
        })
    }

    fn yaml(&self) -> Yaml {
        let args = self.args.iter().cloned().map(Yaml::Text);
        Yaml::map([
            ("path", Yaml::text(&*self.path)),
            ("args", Yaml::List(args.collect())),
            ("start_time", time(self.start)),
            (
                "expected_final_state",
                match self.ends {
                    true => Yaml::map([("exited", Yaml::Number(0))]),
                    false => Yaml::text("running"),
                },
            ),
        ])
    }
}

/// A network, and how long it is simulated.
#[derive(Clone, Debug)]
pub struct Network<'a> {
    /// Hosts and links.
    pub topology: &'a Topology,
    /// Processes by their host's name.
    pub processes: BTreeMap<String, Vec<Process>>,
    /// Nothing is lost, and rates have no limit, before.
    pub calm: Duration,
    /// When the simulation ends.
    pub stop_at: Duration,
    /// Seed of everything random in the simulation.
    pub seed: u64,
    /// Threads of Shadow.
    pub parallelism: u32,
    /// No other simulation runs beside it.
    pub is_alone: bool,
}

impl Network<'_> {
    /// Writes the configuration into the folder of the simulation.
    ///
    /// # Errors
    ///
    /// There are too many hosts, or the system refuses.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let yaml = format!(
            "# Written by `weft lab`. Run `shadow {CONFIGURATION}` in this folder.\n{}",
            self.configuration()?.document()
        );
        write(&folder.join(CONFIGURATION), &yaml)
    }

    fn configuration(&self) -> Result<Yaml> {
        // Shadow's seed has 32 bits.
        let seed = (self.seed ^ (self.seed >> 32)) & u64::from(u32::MAX);
        let hosts = self.topology.hosts().map(|host| {
            let name = self.topology.node_name(host.node());
            let processes = self.processes.get(name).into_iter().flatten();
            (
                name.to_owned(),
                Yaml::map([
                    ("network_node_id", Yaml::Number(host.index() as u64)),
                    ("ip_addr", Yaml::text(host.address().to_string())),
                    (
                        "processes",
                        Yaml::List(processes.map(Process::yaml).collect()),
                    ),
                ]),
            )
        });
        let graph = Yaml::map([
            ("type", Yaml::text("gml")),
            ("inline", Yaml::Block(graph::gml(self.topology)?)),
        ]);
        let mut experimental = vec![
            ("runahead".to_owned(), time(graph::LEAST_LATENCY)),
            ("use_memory_manager".to_owned(), Yaml::Switch(false)),
        ];
        if !self.is_alone {
            // Each would take the same processors.
            experimental.push(("use_cpu_pinning".to_owned(), Yaml::Switch(false)));
        }
        Ok(Yaml::map([
            (
                "general",
                Yaml::map([
                    ("stop_time", time(self.stop_at)),
                    ("bootstrap_end_time", time(self.calm)),
                    ("seed", Yaml::Number(seed)),
                    ("parallelism", Yaml::Number(self.parallelism.into())),
                    ("template_directory", Yaml::text(TEMPLATE)),
                    ("data_directory", Yaml::text(DATA)),
                ]),
            ),
            ("experimental", Yaml::Map(experimental)),
            (
                "network",
                Yaml::map([("graph", graph), ("use_shortest_path", Yaml::Switch(false))]),
            ),
            ("hosts", Yaml::Map(hosts.collect())),
        ]))
    }
}

/// A time, exact.
fn time(time: Duration) -> Yaml {
    Yaml::Text(format!("{} us", time.as_micros()))
}

/// Makes the keys of the authority in this new DataDirectory. Returns the words of the `DirAuthority` line.
pub fn create_authority(
    data: &Path,
    nickname: &str,
    dir: SocketAddr,
    rng: &mut ChaCha20Rng,
) -> Result<String> {
    create_private(data)?;
    let identity = AuthorityKeys::create(&data.join("keys"), dir, keys_made(), rng)?;
    let fingerprint = create_relay(data, nickname, rng)?;
    let identity = identity.as_hex_upper();
    Ok(authority_line(OR_PORT, &identity, dir, &fingerprint))
}

/// Makes the keys of a relay in this DataDirectory. Returns its fingerprint.
pub fn create_relay(data: &Path, nickname: &str, rng: &mut ChaCha20Rng) -> Result<String> {
    create_private(data)?;
    let config = KeyConfig {
        nickname: nickname.to_owned(),
        ..KeyConfig::new(data)
    };
    Ok(RelayKeys::load_or_create(&config, keys_made(), rng)?.fingerprint())
}

fn keys_made() -> SystemTime {
    SystemTime::UNIX_EPOCH + (EPOCH - KEYS_BEFORE)
}

/// Writes a file; the error names it.
///
/// # Errors
///
/// The system refuses.
pub fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

/// Makes a folder that only its owner may read, with those above it.
pub fn create_private(folder: &Path) -> Result<()> {
    let mut private = DirBuilder::new();
    private.mode(0o700).recursive(true);
    let made = private.create(folder);
    made.with_context(|| format!("creating {}", folder.display()))
}

/// Where hosts have their files at the start, in the folder of a simulation.
pub fn template(simulation: &Path) -> PathBuf {
    simulation.join(TEMPLATE).join(HOSTS)
}
