//! A link that loses packets, real nodes and the kernel's TCP: what circuits that share a connection lose there, and what
//! `ConnectionPerCircuit` gives them after a reload.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use weft_load::flows::overlay::{User, drive, serve};
use weft_model::traffic::Model;
use weft_testing::not_run;
use weft_testnet::net::{Options, Topology};
use weft_testnet::network::Program;
use weft_testnet::overlay::{Cast, Overlay};
use weft_testnet::stop::Stop;

/// Users, each on a client of its own.
const USERS: usize = 6;
/// Time during which their streams are counted.
const COUNTED: Duration = Duration::from_secs(8);
/// In which the relays see at least six seconds with loss, after which `auto` acts.
const WATCHED: Duration = Duration::from_secs(10);
/// Ends tests that would otherwise hang; nothing is measured by it.
const PATIENCE: Duration = Duration::from_secs(120);

/// Clients, three relays in a row, CUBIC, and the link from the middle to the exit loses 3 %. A TCP connection gets some two
/// Mbit/s through it (Mathis et al. 1997), however many circuits it carries.
fn topology() -> Topology {
    let clients: Vec<String> = (1..=USERS)
        .map(|number| format!("client{number}"))
        .collect();
    let names = clients.iter().map(|name| format!("\"{name}\", "));
    let mut text = format!(
        "name = \"loss\"\n\
         tcp = \"cubic\"\n\
         hosts = [{}\"entry\", \"middle\", \"exit\", \"server\", \"authority\"]\n",
        names.collect::<String>()
    );
    let entry = clients.iter().map(|name| (&**name, "entry", ""));
    let others = [
        ("entry", "middle", "rate = \"50 Mbit/s\"\n"),
        ("middle", "exit", "delay = \"20 ms\"\nloss = \"3 %\"\n"),
        ("exit", "server", ""),
        ("middle", "authority", ""),
    ];
    for (one, other, settings) in entry.chain(others) {
        text += &format!("[[link]]\nends = [\"{one}\", \"{other}\"]\n{settings}");
    }
    Topology::parse("loss.toml", &text).unwrap()
}

/// Bytes that the users download in this time.
fn downloaded(network: &Overlay, duration: Duration, seed: u64) -> u64 {
    let users = network.client_hosts().map(|host| User {
        host: host.to_owned(),
        model_name: "bulk".to_owned(),
        model: Model::bulk(),
    });
    let users: Vec<User> = users.collect();
    assert_eq!(users.len(), USERS);
    let records = drive(network, &users, duration, seed, &Stop::default()).unwrap();
    records.iter().map(|record| record.times.down.bytes).sum()
}

/// Has all relays share connections by this from now on, as an operator does: torrc, then SIGHUP.
fn reload(network: &Overlay, sharing: &str) {
    for relay in ["entry", "middle", "exit"] {
        let node = network.node(relay).unwrap();
        let torrc = std::fs::read_to_string(node.torrc()).unwrap();
        let others = torrc
            .lines()
            .filter(|line| !line.starts_with("ConnectionPerCircuit"));
        let mut text: String = others.map(|line| format!("{line}\n")).collect();
        text += &format!("ConnectionPerCircuit {sharing}\n");
        std::fs::write(node.torrc(), text).unwrap();
        let reloads = || {
            let logs = node.logs().unwrap();
            let text: String = logs.into_iter().map(|(_, text)| text).collect();
            text.matches("Received reload signal").count()
        };
        let before = reloads();
        let pid = i32::try_from(node.pid().unwrap()).unwrap();
        kill(Pid::from_raw(pid), Signal::SIGHUP).unwrap();
        let begun = Instant::now();
        while reloads() == before {
            assert!(begun.elapsed() < PATIENCE, "{relay} does not reload");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn connections_of_their_own_carry_more_over_a_lossy_link() {
    if let Some(missing) = weft_testnet::net::missing() {
        return not_run!("{missing}");
    }
    let weft = Program::weft(crate::weft().as_ref(), Some(1)).unwrap();
    let cast = Cast {
        program: weft.clone(),
        weft,
        relays: vec!["ConnectionPerCircuit 0".to_owned()],
        clients: Vec::new(),
        // Only TCP bounds a circuit.
        params: vec!["cc_alg=0".to_owned()],
    };
    let testbed = Options {
        name: Some(format!("loss-{}", std::process::id())),
        seed: 1,
    };
    let (topology, stop) = (topology(), Stop::default());
    let mut network = Overlay::start(&topology, &testbed, &cast, PATIENCE, &stop).unwrap();
    let _server = serve(&network).unwrap();
    network.change(topology).unwrap();
    let shared = downloaded(&network, COUNTED, 1);
    assert!(shared > 0);

    // Circuits that share are on one to three connections: each relay of a pair may have opened one before it had the
    // other's. Six get two to six times as much.
    reload(&network, "auto");
    downloaded(&network, WATCHED, 2);
    network.renew_circuits(PATIENCE, &stop).unwrap();
    let auto = downloaded(&network, COUNTED, 3);
    eprintln!("shared: {shared} bytes, auto: {auto}");
    assert!(
        2 * auto > 3 * shared,
        "auto: {auto} bytes, shared: {shared}"
    );

    reload(&network, "1");
    network.renew_circuits(PATIENCE, &stop).unwrap();
    let own = downloaded(&network, COUNTED, 4);
    eprintln!("own: {own}");
    assert!(2 * own > 3 * shared, "own: {own} bytes, shared: {shared}");
    network.check().unwrap();
}
