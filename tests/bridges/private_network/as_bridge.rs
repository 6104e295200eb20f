//! A bridge of Weft: C tor clients reach the network through it, also by a pluggable transport, and it is known to the
//! authority of bridges and to nobody else.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use weft_testnet::control::Control;
use weft_testnet::network::Program;
use weft_testnet::ports::Port;
use weft_testnet::programs::find;
use weft_testnet::traffic::{Direction, Far, Request, transfer};
use weft_testnet::up::Up;

use super::node::{Node, PATIENCE, plan, weft, write_torrc};

/// A transport for both sides, whose bytes are not Tor's: each is XORed with a number. On a bridge it hands its
/// connections over to the extended ORPort.
const TRANSPORT: &str = include_str!("../transport.py");

/// Relays of C tor and one exit; each test adds what it needs.
fn network() -> Result<Up> {
    let network = Up::start(&plan(3, 0))?;
    eprintln!("up after {:.1?}", network.took());
    Ok(network)
}

/// Lines of a node of this network that runs beside it.
fn common(network: &Up, nickname: &str, folder: &Path, or: &Port) -> Result<String> {
    let of_others = network.relay_nodes().next().context("no relay")?.torrc();
    let of_others = fs::read_to_string(of_others)?;
    let authorities = of_others
        .lines()
        .filter(|line| line.starts_with("DirAuthority "));
    let mut torrc = format!(
        "TestingTorNetwork 1\nAddressDisableIPv6 1\nShutdownWaitLength 0\nNickname {nickname}\n\
         DataDirectory {}\nLog info stdout\nSafeLogging 0\nSocksPort 0\nORPort {} IPv4Only\nAddress 127.0.0.1\n\
         AssumeReachable 1\nExtendAllowPrivateAddresses 1\nContactInfo private network on loopback\n\
         ExitRelay 0\nControlSocket {}\n",
        folder.join("data").display(),
        or.address(),
        folder.join("control").display(),
    );
    for line in authorities {
        let _ = writeln!(torrc, "{line}");
    }
    Ok(torrc)
}

fn fetch(network: &Up, client: &str) -> Result<()> {
    let socks = network.client(client)?.socks();
    for (seed, direction) in [(1, Direction::Down), (2, Direction::Up)] {
        let request = Request {
            direction,
            bytes: 1_000_000,
            seed,
        };
        let far = network.server().address();
        let moved = transfer(socks, "user", Far::Addr(far), request)?;
        eprintln!("{client}: {direction:?} {:.1?}", moved.last_byte);
    }
    Ok(())
}

/// A C tor client that knows the network by this bridge alone.
fn by_bridge(line: &str) -> Vec<String> {
    vec!["UseBridges 1".to_owned(), format!("Bridge {line}")]
}

#[test]
fn c_tor_clients_use_a_bridge_with_and_without_a_transport() {
    let run = || -> Result<()> {
        let Some(python) = find("python3") else {
            weft_testing::not_run!("a bridge with a transport: there is no python3");
            return Ok(());
        };
        let mut network = network()?;
        let folder = network.folder().join("bridge");
        let (or, place) = (Port::reserve()?, Port::reserve()?);
        fs::create_dir_all(&folder)?;
        let script = folder.join("transport.py");
        fs::write(&script, TRANSPORT)?;
        let program = format!("{} {}", python.display(), script.display());
        let torrc = format!(
            "{}BridgeRelay 1\nPublishServerDescriptor 0\nServerTransportPlugin xor exec {program}\n\
             ServerTransportListenAddr xor {}\nServerTransportOptions xor key=85\nExtORPort auto\n",
            common(&network, "bridge", &folder, &or)?,
            place.address(),
        );
        let mut bridge = Node::start(&weft(), &folder, &torrc)?;
        let registered = format!("Registered server transport 'xor' at '{}'", place.address());
        bridge.wait_for(&registered)?;
        let hashed = fs::read_to_string(folder.join("data/hashed-fingerprint"))?;
        ensure!(
            hashed.starts_with("bridge ") && hashed.len() == 48,
            "{hashed}"
        );
        let fingerprint = bridge.fingerprint()?;
        let line = format!("TransportProxy xor {}\n", place.address());
        let end = Instant::now() + PATIENCE;
        loop {
            // It is written some time after the transport is registered.
            let state = fs::read_to_string(folder.join("data/state"))?;
            if state.contains(&line) {
                break;
            }
            ensure!(Instant::now() < end, "{state}");
            sleep(Duration::from_millis(100));
        }

        let tor = Program::tor_of_its_own()?;
        let plain = by_bridge(&format!("{} {fingerprint}", or.address()));
        network.add_client("plain", &tor, &plain, PATIENCE)?;
        fetch(&network, "plain")?;
        let mut hidden = by_bridge(&format!("xor {} {fingerprint} key=85", place.address()));
        hidden.push(format!("ClientTransportPlugin xor exec {program}"));
        network.add_client("hidden", &tor, &hidden, PATIENCE)?;
        fetch(&network, "hidden")?;

        let mut control = Control::connect(&folder.join("control"))?;
        let documents = control
            .command("GETINFO status/fresh-relay-descs")?
            .join("\n");
        ensure!(
            documents.contains("\nbridge-distribution-request any"),
            "{documents}"
        );
        let line = format!("\ntransport xor {} shared=yes", place.address());
        ensure!(documents.contains(&line), "{documents}");
        let seen = control.command("GETINFO status/clients-seen")?.join("\n");
        ensure!(seen.contains("TimeStarted=\"20"), "{seen}");
        // Both clients are at one address, and came by different ways.
        bridge.signal(Signal::SIGUSR1)?;
        control.command("SIGNAL HEARTBEAT")?;
        bridge.wait_for("Since last heartbeat message, I have seen 2 unique clients.")?;
        // Another place, by SIGHUP: the program is started anew there.
        let other = Port::reserve()?;
        let torrc = torrc.replace(&place.address().to_string(), &other.address().to_string());
        write_torrc(&folder, &torrc)?;
        bridge.signal(Signal::SIGHUP)?;
        bridge.wait_for(&format!(
            "Registered server transport 'xor' at '{}'",
            other.address()
        ))?;
        // No authority has heard of it.
        for node in network.relay_nodes() {
            // C tor writes it a while after it has it.
            let file = node.folder().join("data/cached-microdesc-consensus");
            let end = Instant::now() + PATIENCE;
            while !file.exists() {
                ensure!(Instant::now() < end, "no {}", file.display());
                sleep(Duration::from_millis(100));
            }
            let known = fs::read_to_string(file)?;
            ensure!(!known.contains("r bridge "), "the consensus lists a bridge");
        }
        let log = bridge.end()?;
        // Of a private network, and of a test that root runs.
        let expected = ["DirAuthority", "TestingTorNetwork", "running Tor as root"];
        let unexpected = |line: &&str| {
            line.contains("[warn]") && !expected.iter().any(|text| line.contains(text))
        };
        let warnings: Vec<&str> = log.lines().filter(unexpected).collect();
        ensure!(warnings.is_empty(), "{warnings:?}");
        network.stop()
    };
    run().unwrap_or_else(|error| panic!("{error:#}"));
}

#[test]
fn a_c_tor_client_uses_a_bridge_by_obfs4() {
    let run = || -> Result<()> {
        let Some(obfs4) = find("obfs4proxy") else {
            weft_testing::not_run!("a bridge with obfs4: obfs4proxy is not installed");
            return Ok(());
        };
        let mut network = network()?;
        let folder = network.folder().join("obfs4");
        let or = Port::reserve()?;
        let obfs4 = obfs4.display();
        let torrc = format!(
            "{}BridgeRelay 1\nPublishServerDescriptor 0\nServerTransportPlugin obfs4 exec {obfs4}\n\
             ServerTransportOptions obfs4 iat-mode=0\nExtORPort auto\n",
            common(&network, "obfs4", &folder, &or)?,
        );
        let mut bridge = Node::start(&weft(), &folder, &torrc)?;
        bridge.wait_for("Registered server transport 'obfs4' at '")?;
        let mut control = Control::connect(&folder.join("control"))?;
        let documents = control.command("GETINFO status/fresh-relay-descs")?;
        // obfs4 HOST:PORT cert=…,iat-mode=0
        let line = documents
            .iter()
            .find_map(|line| line.strip_prefix("transport "));
        let mut words = line.context("no transport")?.split(' ');
        let (_, place, arguments) = (words.next(), words.next(), words.next());
        let place = place.context("no address")?;
        let arguments = arguments.context("no arguments")?.replace(',', " ");
        let fingerprint = bridge.fingerprint()?;
        let mut lines = by_bridge(&format!("obfs4 {place} {fingerprint} {arguments}"));
        lines.push(format!("ClientTransportPlugin obfs4 exec {obfs4}"));
        let tor = Program::tor_of_its_own()?;
        network.add_client("byobfs4", &tor, &lines, PATIENCE)?;
        fetch(&network, "byobfs4")?;
        // The port that it found is that of the next start.
        bridge.end()?;
        let mut bridge = Node::start(&weft(), &folder, &torrc)?;
        let port = place.rsplit(':').next().unwrap_or_default();
        bridge.wait_for("Registered server transport 'obfs4' at '")?;
        ensure!(
            bridge.log().contains(&format!(":{port}'")),
            "{}",
            bridge.log()
        );
        bridge.end()?;
        network.stop()
    };
    run().unwrap_or_else(|error| panic!("{error:#}"));
}

#[test]
fn a_bridge_s_descriptor_gets_to_the_authority_of_bridges_over_a_circuit() {
    let run = || -> Result<()> {
        let network = network()?;
        let tor = Program::tor_of_its_own()?;
        let tor_file = find("tor").context("no tor")?;
        // The authority: its own line needs its fingerprint.
        let folder = network.folder().join("bauth");
        let (or, dir) = (Port::reserve()?, Port::reserve()?);
        let line = |fingerprint: &str| {
            let (or, dir) = (or.number(), dir.address());
            format!("DirAuthority bauth orport={or} bridge {dir} {fingerprint}\n")
        };
        let torrc = format!(
            "{}DirPort {} IPv4Only\nAuthoritativeDirectory 1\nBridgeAuthoritativeDir 1\n\
             PathsNeededToBuildCircuits 0.5\n",
            common(&network, "bauth", &folder, &or)?,
            dir.address(),
        );
        let file = write_torrc(&folder, &(torrc.clone() + &line(&"F".repeat(40))))?;
        let fingerprint = tor.fingerprint(&file)?.to_string().replace(['$', ' '], "");
        let line = line(&fingerprint);
        let mut authority = Node::start(&tor_file, &folder, &(torrc + &line))?;
        authority.wait_for("Bootstrapped 100%")?;

        let folder = network.folder().join("published");
        let or = Port::reserve()?;
        let torrc = format!(
            "{}{line}BridgeRelay 1\nBridgeDistribution email\n",
            common(&network, "published", &folder, &or)?,
        );
        let mut bridge = Node::start(&weft(), &folder, &torrc)?;
        bridge.wait_for("1 of 1 authorities have it")?;
        let end = Instant::now() + PATIENCE;
        loop {
            let files = ["cached-descriptors", "cached-descriptors.new"];
            let read = |name| authority.file(name).unwrap_or_default();
            let known = files.map(read).concat();
            if let Some(at) = known.find("router published ") {
                ensure!(known.contains("@purpose bridge"), "{known}");
                ensure!(known[at..].contains("\nbridge-distribution-request email\n"));
                break;
            }
            ensure!(
                Instant::now() < end,
                "the authority has no descriptor:\n{known}"
            );
            sleep(Duration::from_millis(100));
        }
        // Over circuits, as all that comes later; a consensus is seconds old here.
        bridge.wait_for("Asking bauth over a circuit.")?;
        bridge.wait_for("Asking $")?;
        let before = bridge.log().matches("Asking $").count();
        let end = Instant::now() + PATIENCE;
        while bridge.log().matches("Asking $").count() < before + 2 {
            ensure!(Instant::now() < end, "no consensus is asked for");
            sleep(Duration::from_millis(100));
        }
        ensure!(
            !bridge
                .log()
                .contains("cannot ask over a circuit: relay 1 of the path"),
            "{}",
            bridge.log()
        );
        // It came from a relay, not from the bridge.
        let log = authority.log();
        ensure!(!log.contains("[warn] http"), "{log}");
        bridge.end()?;
        authority.end()?;
        network.stop()
    };
    run().unwrap_or_else(|error| panic!("{error:#}"));
}
