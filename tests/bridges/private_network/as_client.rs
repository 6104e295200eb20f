//! Weft as a client of bridges: bridges of C tor in a private network, directly and by transports.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use weft_testing::not_run;
use weft_testnet::ports::Port;
use weft_testnet::traffic::{Direction, Request, transfer};
use weft_testnet::up::Up;

use super::node::{Node, plan, weft};

/// Starts a node in a folder of this name, with its DataDirectory there.
fn start(program: &Path, parent: &Path, name: &str, torrc: &str) -> Result<Node> {
    let folder = parent.join(name);
    let data = folder.join("data");
    Node::start(
        program,
        &folder,
        &format!("{torrc}DataDirectory {}\n", data.display()),
    )
}

/// A network of C tor; each test has it to itself.
fn network() -> MutexGuard<'static, Option<Up>> {
    static NETWORK: Mutex<Option<Up>> = Mutex::new(None);
    let mut network = NETWORK.lock().unwrap_or_else(PoisonError::into_inner);
    if network.is_none() {
        *network = Some(Up::start(&plan(2, 1)).expect("the network starts"));
    }
    network
}

/// What every node of the network has in its torrc.
fn common(network: &Up) -> Result<String> {
    let torrc = fs::read_to_string(network.node("client0")?.torrc())?;
    let kept = ["DirAuthority ", "TestingTorNetwork ", "AddressDisableIPv6 "];
    let kept = |line: &&str| kept.iter().any(|key| line.starts_with(key));
    let lines: String = torrc
        .lines()
        .filter(kept)
        .map(|line| format!("{line}\n"))
        .collect();
    Ok(lines
        + "PathsNeededToBuildCircuits 0.5\nLog info stdout\nSafeLogging 0\nShutdownWaitLength 0\n")
}

/// A bridge of C tor: its line for a client, and the process.
fn bridge(network: &Up, parent: &Path, more: &str) -> Result<(SocketAddr, String, Node)> {
    let held = Port::reserve()?;
    let addr = held.address();
    let torrc = format!(
        "{}BridgeRelay 1\nORPort {addr} IPv4Only\nAddress 127.0.0.1\nAssumeReachable 1\nSocksPort 0\n\
         PublishServerDescriptor 0\nExitRelay 0\nExtendAllowPrivateAddresses 1\nContactInfo a test\n\
         BridgeDistribution none\nNickname bridge\n{more}",
        common(network)?
    );
    let tor = weft_testnet::programs::find("tor").context("tor is not installed")?;
    let mut node = start(&tor, parent, &format!("bridge{}", addr.port()), &torrc)?;
    node.wait_for("enough directory information to build circuits")?;
    let digits = node.fingerprint()?;
    Ok((addr, digits, node))
}

/// A client of Weft with these bridges: fetches something, and returns with every port that its process was connected to
/// as a client.
struct Fetched {
    client: Node,
    ports: BTreeSet<u16>,
}

fn fetch(network: &Up, parent: &Path, bridges: &str) -> Result<Fetched> {
    let held = Port::reserve()?;
    let socks = held.address();
    let torrc = format!(
        "{}SocksPort {socks}\nClientRejectInternalAddresses 0\nEnforceDistinctSubnets 0\n\
         UseBridges 1\n{bridges}",
        common(network)?
    );
    let mut client = start(&weft(), parent, &format!("client{}", socks.port()), &torrc)?;
    let (stop, id) = (Arc::new(AtomicBool::new(false)), client.id());
    let watcher = thread::spawn({
        let stop = stop.clone();
        move || {
            let mut seen = BTreeSet::new();
            while !stop.load(Ordering::Relaxed) {
                seen.extend(connected_to(id, socks.port()).unwrap_or_default());
                thread::sleep(Duration::from_millis(2));
            }
            seen
        }
    });
    let mut fetch = || -> Result<()> {
        client.wait_for("Bootstrapped 100%")?;
        for direction in [Direction::Down, Direction::Up] {
            let bytes = 300_000;
            let request = Request {
                direction,
                bytes,
                seed: 7,
            };
            transfer(socks, "bridges", network.server().address(), request)?;
        }
        Ok(())
    };
    let result = fetch();
    stop.store(true, Ordering::Relaxed);
    let ports = watcher.join().expect("the watcher ends");
    result.with_context(|| client.log())?;
    Ok(Fetched { client, ports })
}

/// The ports that a process is connected to, but for those of its applications.
fn connected_to(process: u32, own: u16) -> Result<BTreeSet<u16>> {
    let mut sockets = BTreeSet::new();
    for entry in fs::read_dir(format!("/proc/{process}/fd"))? {
        let Ok(target) = fs::read_link(entry?.path()) else {
            continue;
        };
        let target = target.to_string_lossy().into_owned();
        if let Some(inode) = target.strip_prefix("socket:[") {
            sockets.insert(inode.trim_end_matches(']').to_owned());
        }
    }
    let mut ports = BTreeSet::new();
    for line in fs::read_to_string(format!("/proc/{process}/net/tcp"))?
        .lines()
        .skip(1)
    {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, local, remote, state, ..] = words[..] else {
            continue;
        };
        let port =
            |addr: &str| -> Option<u16> { u16::from_str_radix(addr.split_once(':')?.1, 16).ok() };
        let inode = words.get(9).copied().unwrap_or_default();
        const LISTEN: &str = "0A";
        if sockets.contains(inode) && state != LISTEN && port(local) != Some(own) {
            ports.extend(port(remote));
        }
    }
    Ok(ports)
}

fn run(test: impl FnOnce(&Up, &Path) -> Result<()>) {
    let network = network();
    let network = network.as_ref().expect("a network");
    let folder = tempfile::tempdir().expect("a folder");
    if let Err(error) = test(network, folder.path()) {
        panic!("{error:#}");
    }
}

#[test]
fn a_client_of_a_c_tor_bridge_connects_to_nothing_else() {
    run(|network, folder| {
        let (addr, digits, _bridge) = bridge(network, folder, "")?;
        let line = format!("Bridge {addr} {digits}\n");
        let fetched = fetch(network, folder, &line)?;
        ensure!(fetched.ports == [addr.port()].into(), "{:?}", fetched.ports);
        let log = fetched.client.log();
        ensure!(
            log.contains("new bridge descriptor 'bridge' (fresh)"),
            "{log}"
        );
        let expected = [
            "TestingTorNetwork is set",
            "names other authorities than the Tor network's",
            "running Tor as root",
            "giving Tor only an IP address",
        ];
        let expected = |line: &&str| expected.iter().any(|known| line.contains(known));
        let mut warnings = log.lines().filter(|line| line.contains("[warn]"));
        ensure!(warnings.all(|line| expected(&line)), "{log}");
        let state = format!("Guard in=bridges rsa_id={digits} bridge_addr={addr} nickname=bridge ");
        let mut client = fetched.client;
        client.end()?;
        let saved = client.file("state")?;
        ensure!(saved.contains(&state), "{saved}");
        Ok(())
    });
}

#[test]
fn a_bridge_without_a_fingerprint_is_who_answers_and_a_dead_one_does_no_harm() {
    run(|network, folder| {
        let (addr, digits, _bridge) = bridge(network, folder, "")?;
        let held = Port::reserve()?;
        let dead = held.address();
        let lines = format!(
            "Bridge {dead} 0123456789ABCDEF0123456789ABCDEF01234567\nBridge {addr}\n\
             Bridge nobody 127.0.0.1:1 k=v\n"
        );
        let fetched = fetch(network, folder, &lines)?;
        let allowed: BTreeSet<u16> = [addr.port(), dead.port()].into();
        ensure!(fetched.ports.is_subset(&allowed), "{:?}", fetched.ports);
        let log = fetched.client.log();
        ensure!(
            log.contains(&format!("Learned fingerprint {digits} for bridge {addr}")),
            "{log}"
        );
        let missing = "there is no configured transport called \"nobody\"";
        ensure!(log.contains(missing), "{log}");
        Ok(())
    });
}

/// What a bridge's line of this test's transport has for the program.
const ARGS: &str = "one=1;2 two=\\x";

/// A program of pluggable transports: a SOCKS5 proxy that writes down what it is asked with.
#[test]
#[ignore = "a_client_reaches_its_bridge_by_a_program_of_the_tests_own starts it"]
fn a_transport_of_the_tests_own() {
    let state = std::env::var("TOR_PT_STATE_LOCATION").expect("a client starts it");
    fs::create_dir_all(&state).unwrap();
    // It ends when its client does (TOR_PT_EXIT_ON_STDIN_CLOSE).
    thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    println!(
        "\nVERSION 1\nCMETHOD plain socks5 {}",
        listener.local_addr().unwrap()
    );
    println!("CMETHODS DONE");
    for stream in listener.incoming() {
        let state = state.clone();
        thread::spawn(move || serve(stream.unwrap(), Path::new(&state)).unwrap());
    }
}

fn serve(mut client: TcpStream, state: &Path) -> Result<()> {
    let read = |client: &mut TcpStream, count: usize| -> Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        client.read_exact(&mut bytes)?;
        Ok(bytes)
    };
    let methods = read(&mut client, 2)?[1];
    let offered = read(&mut client, usize::from(methods))?;
    ensure!(offered.contains(&2), "{offered:?}");
    client.write_all(&[5, 2])?;
    let name = read(&mut client, 2)?[1];
    let mut args = read(&mut client, usize::from(name))?;
    let length = read(&mut client, 1)?[0];
    args.push(b'|');
    args.extend(read(&mut client, usize::from(length))?);
    fs::write(state.join("args"), &args)?;
    client.write_all(&[1, 0])?;
    let request = read(&mut client, 10)?;
    let [5, 1, 0, 1, a, b, c, d, high, low] = request[..] else {
        bail!("{request:?}");
    };
    let target = (Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low]));
    let bridge = TcpStream::connect(target)?;
    client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0])?;
    let (from, to) = (client.try_clone()?, bridge.try_clone()?);
    thread::spawn(move || pass(from, to));
    pass(bridge, client);
    Ok(())
}

fn pass(mut from: TcpStream, mut to: TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Both);
}

#[test]
fn a_client_reaches_its_bridge_by_a_program_of_the_tests_own() {
    run(|network, folder| {
        let (addr, digits, _bridge) = bridge(network, folder, "")?;
        let program = std::env::current_exe()?;
        let lines = format!(
            "Bridge plain {addr} {digits} {ARGS}\n\
             ClientTransportPlugin broken exec /bin/sh -c exit\n\
             Bridge broken 127.0.0.1:1\n\
             ClientTransportPlugin plain exec {} --exact bridges::private_network::as_client::a_transport_of_the_tests_own \
             --ignored --nocapture\n",
            program.display()
        );
        let fetched = fetch(network, folder, &lines)?;
        ensure!(
            !fetched.ports.contains(&addr.port()),
            "it went there directly"
        );
        ensure!(fetched.ports.len() == 1, "{:?}", fetched.ports);
        let kept = fetched.client.file("cached-bridge-descriptors")?;
        ensure!(kept.starts_with("router "), "{kept}");
        let args = fetched.client.file("pt_state/args")?;
        ensure!(args == "one=1\\;2;two=\\\\x|\0", "{args:?}");
        let log = fetched.client.log();
        for phase in ["1% (conn_pt)", "2% (conn_done_pt)", "10% (conn_done)"] {
            ensure!(log.contains(&format!("Bootstrapped {phase}")), "{log}");
        }
        Ok(())
    });
}

#[test]
fn a_client_reaches_a_c_tor_bridge_by_obfs4() {
    let Some(obfs4) = weft_testnet::programs::find("obfs4proxy") else {
        return not_run!("obfs4proxy is not installed");
    };
    run(|network, folder| {
        let held = Port::reserve()?;
        let listen = held.address();
        let more = format!(
            "ServerTransportPlugin obfs4 exec {}\nServerTransportListenAddr obfs4 {listen}\n\
             ExtORPort auto\n",
            obfs4.display()
        );
        let (addr, digits, bridge) = bridge(network, folder, &more)?;
        let known = bridge.file("pt_state/obfs4_bridgeline.txt")?;
        let (_, cert) = known.split_once(" cert=").context("no certificate")?;
        let lines = format!(
            "Bridge obfs4 {listen} {digits} cert={}\n\
             ClientTransportPlugin obfs4 exec {}\n",
            cert.trim(),
            obfs4.display()
        );
        let fetched = fetch(network, folder, &lines)?;
        ensure!(
            !fetched.ports.contains(&addr.port()),
            "it went there directly"
        );
        ensure!(fetched.ports.len() == 1, "{:?}", fetched.ports);
        Ok(())
    });
}
