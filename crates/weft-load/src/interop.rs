//! Requirements on a target among C tor nodes, as scenarios that a test names and runs.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use weft_testnet::network::{Network, Program, Relay};
use weft_testnet::traffic::{self, Direction, Far, NameServer, Request, transfer};

use crate::bulk::{self, Circuits, Load, Phase, Place};
use weft_cli::print::note;

/// Longest delay of a controller's event after the change that it reports.
const EVENT: Duration = Duration::from_secs(10);

/// Runs a load, fails unless all of it arrived whole, and prints in a line what it cost.
pub fn moves(
    network: &Network,
    nickname: &str,
    program: &Program,
    load: Load,
) -> Result<[Phase; 2]> {
    let phases = bulk::run(network, nickname, load)?;
    for phase in &phases {
        let wanted = load.bytes * load.circuits as u64;
        ensure!(
            phase.bytes() == wanted,
            "{} bytes were moved and not {wanted}",
            phase.bytes()
        );
        note(format_args!(
            "{} as {:?} {:?}: {} MB over {} circuits, {:.0} Mbit/s, {:.2} CPU s per GB, first byte {:.0?}, RSS {} MB",
            program.name(),
            load.place,
            phase.direction,
            phase.bytes() / 1_000_000,
            load.circuits,
            phase.megabits_per_second(),
            phase.cpu_per_gigabyte(),
            phase.median_first_byte(),
            phase.used.rss / 1_000_000,
        ));
    }
    Ok(phases)
}

/// The target is in the consensus exactly once, running, under the identity that it began with, and
/// the authorities' descriptor of it is its own: signed for that identity, with its port, and with a
/// `platform` that begins with `platform`. Waits for the descriptor of a target that has just
/// started.
pub fn is_listed(
    network: &Network,
    nickname: &str,
    platform: &str,
    patience: Duration,
) -> Result<()> {
    let target = network.target(nickname)?;
    let deadline = Instant::now() + patience;
    loop {
        match listing(network, target, platform) {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() >= deadline => {
                return Err(error)
                    .with_context(|| format!("waited {patience:?} for {nickname} to be listed"));
            }
            Err(_) => thread::sleep(Duration::from_millis(500)),
        }
    }
}

fn listing(network: &Network, target: &Relay, platform: &str) -> Result<()> {
    let (nickname, fingerprint) = (target.node().nickname(), target.fingerprint());
    let mut authority = network.authority_control()?;
    let statuses = authority.info("ns/all")?;
    let entries = statuses
        .lines()
        .filter(|line| line.split(' ').nth(1) == Some(nickname) && line.starts_with("r "));
    ensure!(
        entries.count() == 1,
        "the consensus has not exactly one relay named {nickname}:\n{statuses}"
    );
    let status = authority.info(&format!("ns/id/{fingerprint}"))?;
    let flags = status
        .lines()
        .find(|line| line.starts_with("s "))
        .unwrap_or_default();
    for flag in ["Running", "Valid"] {
        ensure!(
            flags.split(' ').any(|word| word == flag),
            "{nickname} has no flag {flag}: {flags}"
        );
    }
    let descriptor = authority.info(&format!("desc/id/{fingerprint}"))?;
    let line = |keyword: &str| {
        let found = descriptor
            .lines()
            .find_map(|line| line.strip_prefix(keyword)?.strip_prefix(' '));
        found.with_context(|| format!("the descriptor has no {keyword} line:\n{descriptor}"))
    };
    let router = format!(
        "{nickname} {} {} ",
        target.or_port().ip(),
        target.or_port().port()
    );
    ensure!(
        line("router")?.starts_with(&router),
        "router {} is not {router}",
        line("router")?
    );
    let digits: String = line("fingerprint")?.split(' ').collect();
    ensure!(
        digits == fingerprint.to_string(),
        "fingerprint {digits} is not {fingerprint}"
    );
    ensure!(
        line("platform")?.starts_with(platform),
        "platform {} is not {platform}",
        line("platform")?
    );
    for keyword in [
        "ntor-onion-key",
        "master-key-ed25519",
        "proto",
        "extra-info-digest",
    ] {
        line(keyword)?;
    }
    Ok(())
}

/// One DataDirectory, run by each program in turn, is one relay: after each start it is listed with
/// that program's descriptor, and circuits through it carry bytes.
pub fn takes_turns(
    network: &mut Network,
    nickname: &str,
    programs: &[(Program, &str)],
    load: Load,
    patience: Duration,
) -> Result<()> {
    for (program, platform) in programs {
        let turn = || format!("{} in its turn as {nickname}", program.name());
        takes_over(network, nickname, program, platform, patience).with_context(turn)?;
        moves(network, nickname, program, load).with_context(turn)?;
    }
    Ok(())
}

/// Lets a program take a target's DataDirectory over, and waits until clients know what it speaks: what
/// the one before it spoke they would ask it for in vain.
pub fn takes_over(
    network: &mut Network,
    nickname: &str,
    program: &Program,
    platform: &str,
    patience: Duration,
) -> Result<()> {
    if !program.is_weft() {
        // Authorities keep the one they have of two descriptors of the same second, and C
        // tor does not publish another then.
        thread::sleep(Duration::from_secs(2));
    }
    network.restart(nickname, program.clone())?;
    is_listed(network, nickname, platform, patience)?;
    network.wait_protocols(nickname)
}

/// The name that [`lets_out`] connects to; its address is 127.0.0.1.
pub const SERVER_NAME: &str = "server.example";
/// A name that [`lets_out`] looks up, and what it must find.
pub const KNOWN_NAME: (&str, Ipv4Addr) = ("known.example", Ipv4Addr::new(192, 0, 2, 7));

/// The target as an exit, whose name server is `names`: streams by address and by name move bytes,
/// names are looked up, and what does not work has its own reason.
pub fn lets_out(network: &Network, nickname: &str, names: &NameServer) -> Result<()> {
    let circuits = Circuits::build(network, nickname, Place::Exit, 1)?;
    let &(client, circuit) = circuits.circuits().first().context("no circuit")?;
    let (proxy, user) = (network.clients()[client].socks(), circuit.to_string());
    let server = circuits.server();

    let by_name = Far::Name(SERVER_NAME, server.port());
    for (seed, direction) in [(3, Direction::Down), (4, Direction::Up)] {
        let request = Request {
            direction,
            bytes: 300_000,
            seed,
        };
        transfer(proxy, &user, by_name, request)
            .with_context(|| circuits.troubles())
            .context("a stream by name")?;
    }

    let (name, address) = KNOWN_NAME;
    let found = traffic::resolve(proxy, &user, name).context("looking a name up")?;
    ensure!(found == IpAddr::V4(address), "{name} is {found}");
    let asked = names.asked();
    traffic::resolve(proxy, &user, name).context("looking a name up again")?;
    ensure!(names.asked() == asked, "what is known was asked again");

    let one = Request {
        direction: Direction::Down,
        bytes: 1,
        seed: 5,
    };
    let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let forbidden = SocketAddr::from(([192, 0, 2, 1], 80));
    for (far, reason) in [
        (Far::Addr(nobody), "CONNECTREFUSED"),
        (Far::Addr(forbidden), "EXITPOLICY"),
        (Far::Name("gone.example", 80), "RESOLVEFAILED"),
        (Far::Name("silent.example", 80), "RESOLVEFAILED"),
    ] {
        let result = transfer(proxy, &user, far, one);
        ensure!(result.is_err(), "{far} answered");
        // The application may hear of it before the controller does.
        let expected = format!("REMOTE_REASON={reason}");
        let deadline = Instant::now() + EVENT;
        while !circuits.troubles().contains(&expected) {
            ensure!(
                Instant::now() < deadline,
                "no {reason} for {far}: {}",
                circuits.troubles()
            );
            thread::sleep(Duration::from_millis(20));
        }
    }
    ensure!(
        traffic::resolve(proxy, &user, "gone.example").is_err(),
        "what is gone was found"
    );
    // Streams that fail leave others alone.
    transfer(proxy, &user, server, one).context("a stream after those that failed")?;
    Ok(())
}

/// No node, C tor or target, has complained about anything that the network's being private does not
/// explain.
pub fn nobody_complains(network: &mut Network) -> Result<()> {
    network.check()?;
    let warnings = network.warnings()?;
    if !warnings.is_empty() {
        bail!("nodes complain:\n{}", warnings.join("\n"));
    }
    Ok(())
}
