//! `weft lab net topology`: topologies that are built in, and those that are drawn.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Error, Result, ensure};
use clap::{Args, Subcommand};
use weft_path::Countries as AddressCountries;
use weft_sim::network::{Flags, Network, Relay};
use weft_sim::random::{Generator, generator};
use weft_sim::sample::sampled;
use weft_sim::{read, synth};
use weft_stats::bounds::{Bounds, SEED};
use weft_testnet::net::{Access, Countries, CountryId, Rate, builtin, star, unknown_topology};

/// Relays of the synthetic network from which relays are drawn where no consensus is named.
const SYNTHETIC: u32 = 6_500;
/// Bits per second of a relay at least: C tor refuses to be a relay with less than 75 KiB/s.
const LEAST_RELAY: u64 = 75 * 1_024 * 8;
/// Bits per second of the server and the authority.
const SERVER: u64 = 1_000_000_000;
/// Bits per second of a client, up and down, where no graph has its country's.
const CLIENT: [u64; 2] = [10_000_000, 50_000_000];

/// Hosts of a kind: more than one machine runs.
const HOSTS: Bounds<u16> = Bounds::new(1, 1_000);
/// Clients, or none.
const CLIENTS: Bounds<u16> = Bounds::new(0, HOSTS.most());

/// Prints a topology as TOML, or the names of those that are built in.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct TopologyArgs {
    /// Name of a built-in topology.
    name: Option<String>,
    #[command(subcommand)]
    drawn: Option<Drawn>,
}

#[derive(Debug, Subcommand)]
enum Drawn {
    Countries(CountriesArgs),
    Random(RandomArgs),
}

/// Prints a topology of hosts at countries, with the rates and delays of a graph such as Shadow's.
///
/// The graph is Shadow's topology of 2018, or another GraphML of its form. Between two hosts is what the graph has
/// between their countries: latency, one way, jitter and loss. Each host has an access line with the rates of its
/// country, up and down. Without --hosts and --countries there is one host in each country.
#[derive(Debug, Args)]
struct CountriesArgs {
    /// The graph: GraphML, plain, .xz, .gz or .zst.
    #[arg(long, value_name = "FILE")]
    graph: PathBuf,
    /// So many hosts, at countries that are drawn: each once before any a second time.
    #[arg(long, value_name = "N", value_parser = HOSTS.parser())]
    hosts: Option<u16>,
    /// The countries, such as us,de,de: a host for each, or those that --hosts draws from.
    #[arg(long, value_name = "CODES", value_delimiter = ',', num_args = 1)]
    countries: Vec<String>,
    /// Seed of the drawing.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = SEED.parser())]
    seed: u64,
}

/// Prints a random topology: relays with the rates of a consensus, clients, a server, an authority.
///
/// Relays are drawn as `weft sim links --scale` draws them, and a relay's access line has the rate that the consensus
/// gives as its weight, up and down. Their hosts are called entry1, middle1, exit1 and so on by their flags. Without
/// --graph all hosts are around one switch, each at a delay from 5 to 45 ms, and clients have 10 Mbit/s up and 50
/// down. With it they are at countries, and clients have the rates of theirs.
#[derive(Debug, Args)]
struct RandomArgs {
    /// A consensus document, plain, .xz, .gz or .zst [default: a synthetic one of 6500 relays].
    #[arg(long, value_name = "FILE")]
    consensus: Option<PathBuf>,
    /// Number of relays.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = HOSTS.parser())]
    relays: u16,
    /// Number of relays with the flag Exit [default: their share].
    #[arg(long, value_name = "N", value_parser = HOSTS.parser())]
    exits: Option<u16>,
    /// Number of clients.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = CLIENTS.parser())]
    clients: u16,
    /// A graph of countries, as `weft lab net topology countries` reads it.
    #[arg(long, value_name = "FILE")]
    graph: Option<PathBuf>,
    /// The countries that hosts are drawn at, such as de,de,us: one that is there twice gets twice as many
    /// [default: all of the graph].
    #[arg(
        long,
        value_name = "CODES",
        value_delimiter = ',',
        num_args = 1,
        requires = "graph"
    )]
    countries: Vec<String>,
    /// A table of countries, such as /usr/share/tor/geoip: relays are at those of their addresses.
    #[arg(long, value_name = "FILE", requires = "graph")]
    geoip: Option<PathBuf>,
    /// Seed of the drawing.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = SEED.parser())]
    seed: u64,
}

/// The text that the arguments ask for.
pub(super) fn text(args: &TopologyArgs) -> Result<String> {
    match (&args.drawn, &args.name) {
        (Some(Drawn::Countries(args)), _) => countries(args),
        (Some(Drawn::Random(args)), _) => random(args),
        (None, Some(name)) => {
            let text = builtin::text(name).with_context(|| unknown_topology(name))?;
            Ok(text.to_owned())
        }
        (None, None) => Ok(builtin::names().fold(String::new(), |list, name| list + name + "\n")),
    }
}

fn countries(args: &CountriesArgs) -> Result<String> {
    let graph = graph(&args.graph)?;
    let mut rng = generator(args.seed, 0, 0);
    let among = among(&graph, &args.countries)?;
    let places = match args.hosts {
        Some(count) => graph.draw(&among, count.into(), &mut rng),
        None => among,
    };
    let mut hosts: Vec<(Access, CountryId)> = Vec::with_capacity(places.len());
    let mut counts = BTreeMap::new();
    for country in places {
        let count = counts.entry(country).or_insert(0);
        *count += 1;
        let host = format!("{}{count}", graph.code(country));
        let [up, down] = graph.rates(country).context("a country without rates")?;
        hosts.push((Access { host, up, down }, country));
    }
    let topology = graph.topology("countries", &hosts)?;
    Ok(format!("{}{topology}", head()))
}

fn random(args: &RandomArgs) -> Result<String> {
    let (source, network) = match &args.consensus {
        Some(path) => (path.display().to_string(), consensus(path)?),
        None => {
            let network = synth::network(SYNTHETIC, args.seed)?;
            ("a synthetic consensus".to_owned(), network)
        }
    };
    let sample = sampled(&network, args.relays.into(), args.exits.map(usize::from))
        .with_context(|| format!("cannot draw relays from {source}"))?;
    let mut rng = generator(args.seed, 0, 0);
    let (hosts, relays) = hosts(&sample, args.clients)?;
    let topology = match &args.graph {
        None => star("random", &hosts, &mut rng)?,
        Some(path) => {
            let graph = graph(path)?;
            let places = places(args, &graph, &relays, hosts.len(), &mut rng)?;
            let mut placed: Vec<(Access, CountryId)> = hosts.into_iter().zip(places).collect();
            for (access, country) in &mut placed {
                if access.host.starts_with("client") {
                    let rates = graph.rates(*country);
                    [access.up, access.down] = rates.context("a country without rates")?;
                }
            }
            graph.topology("random", &placed)?
        }
    };
    Ok(format!("{}{topology}", head()))
}

/// The line before a topology that is drawn: the command by which it is made again.
fn head() -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./,=:".contains(c);
    let words = std::env::args()
        .skip(1)
        .map(|word| match word.contains(|c| !is_plain(c)) {
            false => word,
            true => format!("{word:?}"),
        });
    format!("# weft lab {}\n", words.collect::<Vec<_>>().join(" "))
}

/// The hosts in order, relays first, and the relays of the first of them.
fn hosts(sample: &Network, clients: u16) -> Result<(Vec<Access>, Vec<&Relay>)> {
    let rate = |bits: u64| Rate::from_bits(bits).context("no rate");
    let mut hosts = Vec::new();
    let mut relays = Vec::new();
    for role in ["entry", "middle", "exit"] {
        let of_role = sample.relays.iter().filter(|relay| role_of(relay) == role);
        for (number, relay) in (1..).zip(of_role) {
            // A weight is measured in kilobytes per second.
            let bits = relay.bandwidth.saturating_mul(8_000);
            let up = rate(bits.clamp(LEAST_RELAY, 100_000_000_000))?;
            let host = format!("{role}{number}");
            hosts.push(Access { host, up, down: up });
            relays.push(relay);
        }
    }
    for name in ["server", "authority"] {
        let up = rate(SERVER)?;
        let host = name.to_owned();
        hosts.push(Access { host, up, down: up });
    }
    let [up, down] = CLIENT.map(rate);
    let (up, down) = (up?, down?);
    for number in 1..=clients {
        let host = format!("client{number}");
        hosts.push(Access { host, up, down });
    }
    Ok((hosts, relays))
}

/// Main role of a relay: exits are scarce, then guards.
fn role_of(relay: &Relay) -> &'static str {
    match relay.flags {
        flags if flags.has(Flags::EXIT) && !flags.has(Flags::BAD_EXIT) => "exit",
        flags if flags.has(Flags::GUARD) => "entry",
        _ => "middle",
    }
}

/// The countries of this number of hosts, the relays first.
fn places(
    args: &RandomArgs,
    graph: &Countries,
    relays: &[&Relay],
    hosts: usize,
    rng: &mut Generator,
) -> Result<Vec<CountryId>> {
    let among = among(graph, &args.countries)?;
    let mut places = graph.draw(&among, hosts, rng);
    let Some(path) = &args.geoip else {
        return Ok(places);
    };
    let shown = path.display();
    let table = fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
    let table = AddressCountries::parse(&table, "").with_context(|| shown.to_string())?;
    for (place, relay) in places.iter_mut().zip(relays) {
        let code = table.of(IpAddr::V4(relay.address));
        // One that the table or the graph does not know stays where it was drawn.
        if let Ok(country) = graph.find(&String::from_utf8_lossy(&code)) {
            *place = country;
        }
    }
    Ok(places)
}

/// The countries of these codes, all of the graph if there are none.
fn among(graph: &Countries, codes: &[String]) -> Result<Vec<CountryId>> {
    if codes.is_empty() {
        return Ok(graph.ids().collect());
    }
    let found = codes
        .iter()
        .map(|code| -> Result<CountryId> { Ok(graph.find(code)?) });
    found.collect::<Result<_>>().context("--countries")
}

fn graph(path: &Path) -> Result<Countries> {
    let text = document(path, "graph")?;
    let text = String::from_utf8_lossy(&text);
    Countries::parse(&text).with_context(|| format!("{} is no graph of countries", path.display()))
}

fn consensus(path: &Path) -> Result<Network> {
    let text = document(path, "consensus")?;
    Ok(read::parse(&text, &path.display().to_string())?)
}

/// A file, unpacked if it is packed.
fn document(path: &Path, what: &str) -> Result<Vec<u8>> {
    let shown = path.display();
    ensure!(!path.is_dir(), "{shown} is a folder: name one {what}");
    let mut texts = Vec::new();
    read::documents::<Error>(&[path.to_owned()], &mut |document| {
        ensure!(
            texts.is_empty(),
            "{shown} is an archive: unpack it, and name one {what}"
        );
        texts.push(document.text);
        Ok(())
    })?;
    texts.pop().with_context(|| format!("{shown} is empty"))
}
