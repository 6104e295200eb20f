//! Networks of Weft, of C tor and of both, whose clients find their own way: bytes go down and up, and
//! hashes are equal.

mod identities;

/// The module's name marks the tests that need `tor` and some minutes, for `cargo xtask test`.
mod private_network {
    use std::collections::BTreeSet;
    use std::net::Ipv4Addr;
    use std::path::{Path, PathBuf};
    use std::sync::{Mutex, PoisonError};
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    use anyhow::{Context, Result, ensure};
    use weft_load::surf::{Surf, surf};
    use weft_testing::not_run;
    use weft_testnet::control::Control;
    use weft_testnet::traffic::{Direction, Far, NameServer, Request, resolve, transfer};
    use weft_testnet::up::{Client, Kind, More, Plan, Up};

    /// One network at a time.
    pub(crate) static TURN: Mutex<()> = Mutex::new(());

    /// Three relays, two exits, two clients.
    fn plan(authority: Kind, relays: Kind, clients: Kind, resolv_conf: Option<&Path>) -> Plan {
        let named = std::env::var_os("WEFT_BIN").map(PathBuf::from);
        Plan {
            relays_run: relays,
            exits_run: relays,
            clients: 2,
            clients_run: clients,
            authority,
            more: More {
                exits: resolv_conf
                    .map(|path| format!("ServerDNSResolvConfFile {}", path.display()))
                    .into_iter()
                    .chain(["ServerDNSDetectHijacking 0".to_owned()])
                    .collect(),
                ..More::default()
            },
            verbose: std::env::var_os("WEFT_LAB_VERBOSE").is_some(),
            progress: |line| eprintln!("{line}"),
            ..Plan::of_weft(named.unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_weft"))))
        }
    }

    /// What the exits' name server knows.
    const SERVER: (&str, Ipv4Addr) = ("server.example", Ipv4Addr::LOCALHOST);
    const KNOWN: (&str, Ipv4Addr) = ("known.example", Ipv4Addr::new(192, 0, 2, 7));

    /// Names by way of an exit: looked up, connected to, and not there.
    fn looks_up(client: &Client, port: u16) -> Result<()> {
        let socks = client.socks();
        let found = resolve(socks, "dns", KNOWN.0).context("looking a name up")?;
        ensure!(found == KNOWN.1, "{} is {found}", KNOWN.0);
        for (seed, direction) in [(3, Direction::Down), (4, Direction::Up)] {
            let request = Request {
                direction,
                bytes: 300_000,
                seed,
            };
            let far = Far::Name(SERVER.0, port);
            transfer(socks, "dns", far, request).context("a stream by name")?;
        }
        let gone = resolve(socks, "dns", "gone.example");
        ensure!(gone.is_err(), "a relay that has ended was found: {gone:?}");
        Ok(())
    }

    /// The flag HSDir is of relays that announce the protocol: all but Weft's authority.
    fn relays_have_the_flag_hsdir(network: &Up) -> Result<()> {
        let client = network.client("client0")?.node().folder();
        let path = client.join("data/cached-microdesc-consensus");
        let consensus = std::fs::read_to_string(&path)
            .with_context(|| format!("reading {}", path.display()))?;
        for (nickname, program) in network.relays() {
            let entry = consensus.split_once(&format!("\nr {nickname} "));
            let (_, entry) = entry.with_context(|| format!("{nickname} is not listed"))?;
            let flags = entry.lines().find_map(|line| line.strip_prefix("s "));
            let flags = flags.with_context(|| format!("{nickname} has no flags"))?;
            let has = flags.split(' ').any(|flag| flag == "HSDir");
            let should = !(program.is_weft() && nickname == "authority");
            ensure!(
                has == should,
                "{nickname}, run by {}: {flags}",
                program.name()
            );
        }
        Ok(())
    }

    /// Starts it, moves a few large and many small streams each way through each client, looks names
    /// up, ends it.
    fn carries(authority: Kind, relays: Kind, clients: Kind) {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let run = || -> Result<()> {
            let known = [SERVER, KNOWN];
            let names = match relays {
                Kind::Weft => Some(NameServer::start(&known)?),
                _ => NameServer::start_for_tor(&known)
                    .inspect_err(|why| not_run!("{authority:?}, {relays:?}, {clients:?}: no names are looked up, since {why:#}"))
                    .ok(),
            };
            let folder = tempfile::tempdir()?;
            let path = folder.path().join("resolv.conf");
            if let Some(names) = &names {
                std::fs::write(&path, names.resolv_conf())?;
            }
            let path = names.as_ref().map(|_| path.as_path());
            let mut network = Up::start(&plan(authority, relays, clients, path))?;
            eprintln!("up after {:.1?}", network.took());
            relays_have_the_flag_hsdir(&network)?;
            for client in network.clients() {
                for (streams, bytes) in [(2, 5_000_000), (30, 20_000)] {
                    for direction in [Direction::Down, Direction::Up] {
                        let load = Surf {
                            streams,
                            bytes,
                            direction,
                            seed: 11,
                        };
                        let moved = surf(client.socks(), network.server(), load, &[])?;
                        eprintln!(
                            "{} {direction:?}: {streams} streams of {bytes} bytes, {:.0} Mbit/s",
                            client.node().nickname(),
                            moved.megabits_per_second()
                        );
                    }
                }
                if names.is_some() {
                    looks_up(client, network.server().address().port())?;
                }
            }
            network.check()?;
            network.stop()
        };
        run().unwrap_or_else(|error| panic!("{error:#}"));
    }

    /// Every node has the sandbox; none misses a system call, also while torrc is read again.
    #[test]
    fn weft_in_the_sandbox() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let run = || -> Result<()> {
            let names = NameServer::start(&[SERVER, KNOWN])?;
            let folder = tempfile::tempdir()?;
            let path = folder.path().join("resolv.conf");
            std::fs::write(&path, names.resolv_conf())?;
            let mut plan = plan(Kind::Weft, Kind::Weft, Kind::Weft, Some(&path));
            let more = &mut plan.more;
            for lines in [&mut more.relays, &mut more.exits, &mut more.clients] {
                lines.push("Sandbox 1".to_owned());
            }
            for line in [
                "MetricsPort 127.0.0.1:auto",
                "MetricsPortPolicy accept 127.0.0.1",
            ] {
                more.relays.push(line.to_owned());
            }
            let mut network = Up::start(&plan)?;
            for turn in 0..2 {
                for client in network.clients() {
                    for direction in [Direction::Down, Direction::Up] {
                        let load = Surf {
                            streams: 10,
                            bytes: 100_000,
                            direction,
                            seed: 12,
                        };
                        surf(client.socks(), network.server(), load, &[])?;
                    }
                    looks_up(client, network.server().address().port())?;
                }
                let clients = network.clients().iter().map(Client::node);
                let nodes = network.relay_nodes().chain(clients);
                for pid in nodes.filter_map(|node| node.pid()).filter(|_| turn == 0) {
                    let pid = nix::unistd::Pid::from_raw(i32::try_from(pid)?);
                    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGHUP)?;
                }
            }
            network.check()?;
            let warnings = network.warnings()?;
            ensure!(warnings.is_empty(), "{warnings:#?}");
            network.stop()
        };
        run().unwrap_or_else(|error| panic!("{error:#}"));
    }

    /// A client of C tor slept while two consensuses came. It takes the difference from Weft's relays, as there are no others,
    /// and has the newest.
    #[test]
    fn a_c_tor_client_that_is_two_consensuses_behind_applies_a_diff() {
        const PATIENCE: Duration = Duration::from_secs(150);
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let run = || -> Result<()> {
            let mut network = Up::start(&plan(Kind::Tor, Kind::Weft, Kind::Tor, None))?;
            let (behind, awake) = (network.client("client0")?, network.client("client1")?);
            let log = behind.node().folder().join("directory.log");
            let (mut behind, mut awake) = (behind.controller()?, awake.controller()?);
            // Of one form only, so they are in the order of time.
            let newest = |control: &mut Control| control.info("consensus/valid-after");
            behind.command("SETCONF DisableNetwork=1")?;
            let asleep_with = newest(&mut behind)?;
            let in_time = || Instant::now() + PATIENCE;
            let end = in_time();
            let mut since = BTreeSet::new();
            while since.len() < 2 {
                ensure!(Instant::now() < end, "after {asleep_with}: {since:?}");
                sleep(Duration::from_millis(500));
                let now = newest(&mut awake)?;
                if now > asleep_with {
                    since.insert(now);
                }
            }
            behind.command(&format!(
                "SETCONF Log=\"[dir]info file {}\" DisableNetwork=0",
                log.display()
            ))?;
            let end = in_time();
            let applied = loop {
                let text = std::fs::read_to_string(&log).unwrap_or_default();
                let mut lines = text.lines();
                match lines.find(|line| line.contains("Applied consensus diff")) {
                    Some(line) => break line.to_owned(),
                    None => ensure!(Instant::now() < end, "no diff in {text}"),
                }
                sleep(Duration::from_millis(100));
            };
            eprintln!("{applied}");
            let end = in_time();
            while !since.contains(&newest(&mut behind)?) {
                ensure!(Instant::now() < end, "{:?}", newest(&mut behind)?);
                sleep(Duration::from_millis(100));
                since.insert(newest(&mut awake)?);
            }
            network.check()?;
            let mut warnings = network.warnings()?;
            // A defect of C tor's (0.4.9.11): a connection that was about to be opened is, after DisableNetwork.
            let opened = "Bug: Tried to open a socket with DisableNetwork set";
            if warnings.iter().any(|line| line.contains(opened)) {
                warnings.retain(|line| !(line.starts_with("client0: ") && line.contains("Bug: ")));
            }
            ensure!(warnings.is_empty(), "{warnings:#?}");
            drop((behind, awake));
            network.stop()
        };
        run().unwrap_or_else(|error| panic!("{error:#}"));
    }

    #[test]
    fn weft_alone() {
        carries(Kind::Weft, Kind::Weft, Kind::Weft);
    }

    #[test]
    fn c_tor_clients_through_weft_relays() {
        carries(Kind::Weft, Kind::Weft, Kind::Tor);
    }

    #[test]
    fn weft_clients_through_c_tor_relays_by_c_tor_s_consensus() {
        carries(Kind::Tor, Kind::Tor, Kind::Weft);
    }

    #[test]
    fn c_tor_alone_by_weft_s_consensus() {
        carries(Kind::Weft, Kind::Tor, Kind::Tor);
    }

    #[test]
    fn both_by_turns() {
        carries(Kind::Weft, Kind::Mixed, Kind::Mixed);
    }
}
