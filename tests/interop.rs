//! A target among unmodified C tor nodes: C tor clients move real bytes through it.
//!
//! The target is `weft`: the one that cargo has just built, or the one that `WEFT_BIN` names.
//! One private network serves all tests, which take turns; what Weft is restarted with changes from
//! test to test. The network's guardian ends it when this process ends.

/// The module's name marks the tests that need `tor` and some minutes, for `cargo xtask test`.
mod private_network {
    use std::fs::Permissions;
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, TcpStream};
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::PathBuf;
    use std::process::Command;
    use std::sync::{Mutex, PoisonError};
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    use anyhow::{Context as _, ensure};
    use tempfile::TempDir;
    use weft_lab::throughput::Results;
    use weft_load::bulk::{Load, Place};
    use weft_load::interop;
    use weft_load::surf::first_byte;
    use weft_testnet::control::Control;
    use weft_testnet::network::{Config, Network, Program, Target, TargetOptions};
    use weft_testnet::traffic::{NameServer, Server};

    /// Whose links and circuits are tested most.
    const TARGET: &str = "target";
    /// Tests its own reachability before it publishes.
    const SHY: &str = "shy";
    /// Made its identity keys itself.
    const FRESH: &str = "fresh";
    /// Its circuits do not share connections.
    const APART: &str = "apart";
    /// Lets streams leave.
    const EXIT: &str = "exit";
    /// States its weight to those who ask.
    const WEIGHING: &str = "weighing";

    /// A client of C tor that asked for a microdescriptor too early asks again after up to four minutes.
    const PATIENCE: Duration = Duration::from_secs(300);

    /// Each circuit of a full load: 200 MB in all, each way.
    const FULL: Load = Load {
        place: Place::Middle,
        circuits: 20,
        bytes: 10_000_000,
        seed: 1,
    };
    /// Enough to see that circuits work.
    const LIGHT: Load = Load {
        place: Place::Middle,
        circuits: 4,
        bytes: 500_000,
        seed: 2,
    };

    /// The program under test with this many connection threads, and how its `platform` begins.
    fn subject(threads: u32) -> (Program, &'static str) {
        let named = std::env::var_os("WEFT_BIN").map(PathBuf::from);
        let path = named.unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_weft")));
        let program = Program::weft(&path, Some(threads)).expect("weft is there");
        // Cells cross threads, whatever this machine has of cores.
        (program.with_option("UseAllThreads", "1"), "Weft ")
    }

    fn tor() -> Program {
        Program::tor().expect("tor is installed")
    }

    /// The one network, with what its targets need.
    struct Shared {
        network: Network,
        /// The name server of `EXIT`.
        names: NameServer,
        /// Where their `resolv.conf` is, and the control socket of `APART`.
        folder: TempDir,
    }

    impl Shared {
        /// All targets but one are in the first consensus: C tor's clients take minutes to learn of a later one.
        fn start() -> anyhow::Result<Self> {
            let (program, _) = subject(1);
            let known = (interop::SERVER_NAME, Ipv4Addr::LOCALHOST);
            let names = NameServer::start(&[known, interop::KNOWN_NAME])?;
            let folder = tempfile::Builder::new()
                .permissions(Permissions::from_mode(0o700))
                .tempdir()?;
            let resolv_conf = folder.path().join("resolv.conf");
            std::fs::write(&resolv_conf, names.resolv_conf())?;
            let with = |lines: Vec<String>, exit: bool| TargetOptions {
                exit,
                more: lines,
                ..TargetOptions::default()
            };
            // tor makes no keys where it does not know an option.
            let of_its_own =
                |name: &str| Target::new(name, program.clone()).keys_by(program.clone());
            let targets = vec![
                // Its keys are made by tor; clients must know what the program under test can do.
                Target::new(TARGET, program.clone()),
                of_its_own(FRESH),
                of_its_own(APART).options(with(
                    vec![
                        "ConnectionPerCircuit 1".to_owned(),
                        "MetricsPort 127.0.0.1:auto".to_owned(),
                        format!("ControlSocket {}", folder.path().join(APART).display()),
                        "MetricsPortPolicy accept 127.0.0.1".to_owned(),
                    ],
                    false,
                )),
                of_its_own(WEIGHING).options(with(vec!["AbraWeights 1".to_owned()], false)),
                Target::new(EXIT, program.clone()).options(with(
                    vec![
                        format!("ServerDNSResolvConfFile {}", resolv_conf.display()),
                        "ServerDNSDetectHijacking 0".to_owned(),
                    ],
                    true,
                )),
            ];
            let config = Config {
                patience: PATIENCE,
                ..Config::default()
            };
            Ok(Self {
                network: Network::start(config, targets)?,
                names,
                folder,
            })
        }
    }

    /// Runs a scenario on the one network, which each has to itself; afterwards no node may have logged a warning.
    fn shared(run: impl FnOnce(&mut Shared) -> anyhow::Result<()>) {
        static SHARED: Mutex<Option<Shared>> = Mutex::new(None);
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.is_none() {
            *shared = Some(Shared::start().expect("the private network starts"));
        }
        let shared = shared.as_mut().expect("a network");
        run(shared)
            .and_then(|()| interop::nobody_complains(&mut shared.network))
            .unwrap_or_else(|error| panic!("{error:#}"));
    }

    /// The same for what needs the network alone.
    fn scenario(run: impl FnOnce(&mut Network) -> anyhow::Result<()>) {
        shared(|shared| run(&mut shared.network));
    }

    fn a_full_load(place: Place, threads: u32) {
        scenario(|network| {
            let (program, _) = subject(threads);
            network.restart(TARGET, program.clone())?;
            interop::moves(network, TARGET, &program, Load { place, ..FULL })?;
            Ok(())
        });
    }

    #[test]
    fn as_middle_it_carries_a_full_load_without_connection_threads() {
        a_full_load(Place::Middle, 0);
    }

    #[test]
    fn as_middle_it_carries_a_full_load_on_one_thread() {
        a_full_load(Place::Middle, 1);
    }

    #[test]
    fn as_middle_it_carries_a_full_load_on_two_threads() {
        a_full_load(Place::Middle, 2);
    }

    #[test]
    fn as_middle_it_carries_a_full_load_on_four_threads() {
        a_full_load(Place::Middle, 4);
    }

    #[test]
    fn as_guard_it_carries_a_full_load_without_connection_threads() {
        a_full_load(Place::Guard, 0);
    }

    #[test]
    fn as_guard_it_carries_a_full_load_on_one_thread() {
        a_full_load(Place::Guard, 1);
    }

    #[test]
    fn as_guard_it_carries_a_full_load_on_two_threads() {
        a_full_load(Place::Guard, 2);
    }

    #[test]
    fn as_guard_it_carries_a_full_load_on_four_threads() {
        a_full_load(Place::Guard, 4);
    }

    #[test]
    fn as_middle_it_gives_each_circuit_a_connection_of_its_own() {
        shared(|shared| {
            let Shared {
                network, folder, ..
            } = shared;
            let (program, platform) = subject(1);
            interop::is_listed(network, APART, platform, PATIENCE)?;
            let circuits = 8;
            interop::moves(network, APART, &program, Load { circuits, ..LIGHT })?;
            let control = folder.path().join(APART);
            let metrics = Control::connect(&control)?.info("net/listeners/metrics")?;
            let mut socket = TcpStream::connect(metrics.trim_matches('"'))?;
            socket.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
            let mut text = String::new();
            socket.read_to_string(&mut text)?;
            let again = "weft_relay_connections_total{reason=\"circuit\"} ";
            let again = text.lines().find_map(|line| line.strip_prefix(again));
            let again: usize = again.expect("a counter").parse()?;
            // They lead to two exits; the first to each may have found a connection, or none.
            assert!(again >= circuits / 2, "{again}");
            Ok(())
        });
    }

    #[test]
    fn one_data_directory_is_one_relay_under_weft_and_c_tor() {
        scenario(|network| {
            let (program, platform) = subject(2);
            let turns = [(tor(), "Tor "), (program, platform), (tor(), "Tor ")];
            interop::takes_turns(network, TARGET, &turns, LIGHT, PATIENCE)
        });
    }

    #[test]
    fn it_is_listed_with_keys_of_its_own_making() {
        scenario(|network| {
            let (program, platform) = subject(1);
            interop::is_listed(network, FRESH, platform, PATIENCE)?;
            interop::moves(network, FRESH, &program, LIGHT)?;
            Ok(())
        });
    }

    #[test]
    fn it_publishes_after_finding_itself_reachable() {
        scenario(|network| {
            let (program, platform) = subject(1);
            let options = TargetOptions {
                assume_reachable: false,
                ..TargetOptions::default()
            };
            network.add(Target::new(SHY, program.clone()).options(options))?;
            interop::is_listed(network, SHY, platform, PATIENCE)?;
            network.wait_known()?;
            interop::moves(
                network,
                SHY,
                &program,
                Load {
                    place: Place::Guard,
                    ..LIGHT
                },
            )?;
            Ok(())
        });
    }

    #[test]
    fn as_exit_it_lets_streams_out() {
        shared(|shared| {
            let Shared { network, names, .. } = shared;
            let (program, platform) = subject(1);
            interop::is_listed(network, EXIT, platform, PATIENCE)?;
            let place = Place::Exit;
            interop::moves(network, EXIT, &program, Load { place, ..LIGHT })?;
            interop::lets_out(network, EXIT, names)?;
            for threads in [0, 2] {
                let (program, _) = subject(threads);
                network.restart(EXIT, program.clone())?;
                interop::moves(network, EXIT, &program, Load { place, ..LIGHT })?;
            }
            interop::moves(network, EXIT, &program, Load { place, ..FULL })?;
            Ok(())
        });
    }

    /// A relay that states its weight, among C tor's relays: they and C tor's authority and clients notice nothing, and a client
    /// of Weft's that asks gets its statements and nobody else's.
    #[test]
    fn it_states_its_weight_to_those_who_ask() {
        let asking = "asking";
        scenario(|network| {
            let (program, platform) = subject(1);
            interop::is_listed(network, WEIGHING, platform, PATIENCE)?;
            interop::moves(network, WEIGHING, &program, LIGHT)?;
            let server = Server::start()?;
            first_byte(network, asking, &program, &server, PATIENCE)?;
            let socket = network.proxy(asking)?.node().control_socket();
            let mut control = Control::connect(&socket)?;
            control.command("SETCONF CircuitSelection=abra")?;
            let guard = network.guards().first().context("a guard")?.fingerprint();
            let exit = network.exits().first().context("an exit")?.fingerprint();
            let middle = network.target(WEIGHING)?.fingerprint();
            let path = format!("EXTENDCIRCUIT 0 ${guard},${middle},${exit} purpose=general");
            let end = Instant::now() + PATIENCE;
            let circuit = loop {
                // The client may not know the relay yet.
                match control.command(&path) {
                    Ok(reply) => break reply.join("").replace("EXTENDED ", ""),
                    Err(error) => ensure!(Instant::now() < end, "{error:#}"),
                }
                sleep(Duration::from_millis(500));
            };
            loop {
                let pool = control.info("circuit-pool")?;
                let mut lines = pool.lines();
                let line = lines.find(|line| line.starts_with(&format!("{circuit} ")));
                let line = line.with_context(|| format!("circuit {circuit} is gone: {pool}"))?;
                if line.contains(" WEIGHT=0 STATED=1 ") {
                    eprintln!("{line}");
                    break;
                }
                ensure!(Instant::now() < end, "no statement came: {line}");
                sleep(Duration::from_millis(100));
            }
            network.stop_proxy(asking)
        });
    }

    #[test]
    fn the_throughput_experiment_measures_both_programs() {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("results");
        let run = || {
            Command::new(env!("CARGO_BIN_EXE_weft"))
                .args("lab throughput --target tor,weft:1 --repetitions 1 --data 2MiB".split(' '))
                .args("--clients 2 --entries 1 --exits 1 --streams 3 --format json".split(' '))
                .arg("--out")
                .arg(&out)
                .output()
                .expect("weft runs")
        };
        let output = run();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        let printed: Results = serde_json::from_slice(&output.stdout).expect("results");
        let written = Results::read(&out.join("results.json")).expect("a file");
        assert_eq!(printed, written);
        assert!(written.finished);
        for run in &written.runs {
            assert_eq!(run.streams.len(), 6, "{errors}");
            let moved = run.bytes.last().expect("readings").read - run.bytes[0].read;
            // Cells, their headers and TLS come on top.
            assert!(
                (6 << 21..7 << 21).contains(&moved),
                "{}: {moved}",
                run.target
            );
        }
        for file in [
            "figure7.svg",
            "figure8.svg",
            "figure9.svg",
            "bytes.csv",
            "streams.csv",
        ] {
            assert!(out.join(file).is_file(), "{file}");
        }
        let again = run();
        assert_eq!(again.status.code(), Some(1));
        let errors = String::from_utf8_lossy(&again.stderr);
        assert!(errors.contains("nothing is overwritten"), "{errors}");
    }
}
