//! An onion service and a client of C tor. Only Weft's relays can be their introduction and rendezvous points.

/// The module's name marks the tests that need `tor` and some of a minute, for `cargo xtask test`.
mod private_network {
    use std::path::PathBuf;
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    use anyhow::{Context as _, Result, bail, ensure};
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;
    use weft_testnet::network::Program;
    use weft_testnet::traffic::{Direction, Far, Request, transfer};
    use weft_testnet::up::{Kind, More, Plan, Up};

    const PATIENCE: Duration = Duration::from_secs(120);
    /// Behind the first descriptors that are up, the others are, if they come.
    const SOON: Duration = Duration::from_secs(3);

    /// Weft's relays, among them all exits, and two of C tor's, which keep the service's descriptor.
    fn plan() -> Plan {
        let named = std::env::var_os("WEFT_BIN").map(PathBuf::from);
        Plan {
            relays: 4,
            relays_run: Kind::Mixed,
            exits: 4,
            clients: 0,
            more: More {
                exits: vec!["ServerDNSDetectHijacking 0".to_owned()],
                ..More::default()
            },
            verbose: std::env::var_os("WEFT_LAB_VERBOSE").is_some(),
            progress: |line| eprintln!("{line}"),
            ..Plan::of_weft(named.unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_weft"))))
        }
    }

    /// What Weft's relays have done, by the line that each logs when it is asked for its statistics.
    #[derive(Debug, Default)]
    struct Done {
        circuits: u64,
        introductions: u64,
        rendezvous: u64,
        rendezvous_cells: u64,
        padded: u64,
        padding_cells: u64,
    }

    fn done(network: &Up) -> Result<Done> {
        const LINE: &str = "Onion services: ";
        let weft: Vec<&str> = network
            .relays()
            .filter(|(_, program)| program.is_weft())
            .map(|(nickname, _)| nickname)
            .collect();
        let mut done = Done::default();
        for nickname in weft {
            let node = network.node(nickname)?;
            let pid = i32::try_from(node.pid().context("it has ended")?)?;
            kill(Pid::from_raw(pid), Signal::SIGUSR1)?;
            let end = Instant::now() + PATIENCE;
            let numbers: Vec<u64> = loop {
                let logs = node.logs()?;
                let mut lines = logs.iter().flat_map(|(_, text)| text.lines());
                if let Some((_, line)) = lines.find_map(|line| line.split_once(LINE)) {
                    let words = line.split(|c: char| !c.is_ascii_digit());
                    break words.filter_map(|word| word.parse().ok()).collect();
                }
                ensure!(Instant::now() < end, "{nickname} logs no statistics");
                sleep(Duration::from_millis(20));
            };
            let [circuits, introductions, rendezvous, cells, padded, padding] = numbers[..] else {
                bail!("{nickname}: {numbers:?}");
            };
            done.circuits += circuits;
            done.introductions += introductions;
            done.rendezvous += rendezvous;
            done.rendezvous_cells += cells;
            done.padded += padded;
            done.padding_cells += padding;
        }
        Ok(done)
    }

    #[test]
    fn a_c_tor_client_visits_a_c_tor_onion_service_by_way_of_weft_s_relays() {
        let run = || -> Result<()> {
            let mut network = Up::start(&plan())?;
            eprintln!("up after {:.1?}", network.took());
            let tor = Program::tor_of_its_own()?;
            let theirs: Vec<String> = network
                .relays()
                .filter(|(_, program)| !program.is_weft())
                .map(|(nickname, _)| network.fingerprint(nickname))
                .collect::<Result<_>>()?;
            ensure!(theirs.len() == 2, "{theirs:?}");
            // Not for introductions, meetings or on the way there. Directories of services are asked all the same, as
            // there are no others.
            let more = [
                format!("ExcludeNodes {}", theirs.join(",")),
                "ProtocolWarnings 1".to_owned(),
            ];
            network.add_client("service", &tor, &more, PATIENCE)?;
            network.add_client("visitor", &tor, &more, PATIENCE)?;
            let mut control = network.client("service")?.controller()?;
            control.command("SETEVENTS HS_DESC")?;
            let port = network.server().address().port();
            let onion =
                format!("ADD_ONION NEW:ED25519-V3 Flags=DiscardPK Port=80,127.0.0.1:{port}");
            let reply = control.command(&onion)?;
            let name = reply
                .iter()
                .find_map(|line| line.strip_prefix("ServiceID="));
            let name = format!("{}.onion", name.context("no service")?);
            let end = Instant::now() + PATIENCE;
            // Of this time period and of the next, at both directories.
            let mut uploaded = 0;
            while uploaded < 4 {
                let until = if uploaded < 2 {
                    end
                } else {
                    Instant::now() + SOON
                };
                match control.event(until)? {
                    Some(event) => uploaded += u32::from(event.contains(" UPLOADED ")),
                    None if uploaded < 2 => bail!("{uploaded} descriptors are up"),
                    None => break,
                }
            }
            eprintln!("the service has its descriptors up");
            let visitor = network.client("visitor")?.socks();
            for (seed, direction, bytes) in [
                (1, Direction::Down, 2_000_000),
                (2, Direction::Up, 2_000_000),
                (3, Direction::Down, 1000),
                (4, Direction::Up, 1000),
            ] {
                let request = Request {
                    direction,
                    bytes,
                    seed,
                };
                // Streams of another user are on a circuit of their own, with an introduction and a rendezvous of its own.
                let user = format!("user{}", seed / 2);
                let moved = transfer(visitor, &user, Far::Name(&name, 80), request)?;
                eprintln!("{direction:?} {bytes} bytes: {:.1?}", moved.last_byte);
            }
            // Threads report four times a second.
            sleep(Duration::from_secs(1));
            let done = done(&network)?;
            eprintln!("{done:?}");
            ensure!(done.circuits >= 3, "introduction circuits");
            ensure!(done.introductions >= 3, "introductions");
            ensure!(done.rendezvous >= 3, "rendezvous");
            // Two megabytes each way, in cells of 498 bytes.
            ensure!(done.rendezvous_cells > 8000, "cells of rendezvous");
            ensure!(done.padded >= 1 && done.padding_cells >= 1, "padding");
            network.check()?;
            let warnings = network.warnings()?;
            ensure!(warnings.is_empty(), "{}", warnings.join("\n"));
            drop(control);
            network.stop()
        };
        run().unwrap_or_else(|error| panic!("{error:#}"));
    }
}
