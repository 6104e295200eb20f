//! Weft as a client: what a user does with its SOCKS port, through unmodified C tor relays.

/// The module's name marks the tests that need `tor` and some minutes, for `cargo xtask test`.
mod private_network {
    use std::path::PathBuf;
    use std::sync::{Mutex, MutexGuard, PoisonError};
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    use anyhow::ensure;
    use weft_load::surf::{Surf, first_byte, surf};
    use weft_testnet::control::Control;
    use weft_testnet::network::{Config, Network, Program};
    use weft_testnet::traffic::{Direction, Server};

    const PATIENCE: Duration = Duration::from_secs(180);

    fn weft(threads: u32) -> Program {
        let named = std::env::var_os("WEFT_BIN").map(PathBuf::from);
        let path = named.unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_weft")));
        Program::weft(&path, Some(threads)).expect("weft is there")
    }

    /// The one network of C tor relays; each test has it to itself.
    fn network() -> MutexGuard<'static, Option<Network>> {
        static NETWORK: Mutex<Option<Network>> = Mutex::new(None);
        let mut network = NETWORK.lock().unwrap_or_else(PoisonError::into_inner);
        if network.is_none() {
            let config = Config {
                authorities: 1,
                guards: 2,
                exits: 2,
                clients: 1,
                ..Config::default()
            };
            *network = Some(Network::start(config, Vec::new()).expect("the network starts"));
        }
        network
    }

    /// A client of this name starts from nothing, and moves bytes both ways.
    fn moves(name: &str, threads: u32, streams: usize, bytes: u64) {
        let mut network = network();
        let network = network.as_mut().expect("a network");
        let run = |network: &mut Network| -> anyhow::Result<()> {
            let server = Server::start()?;
            let first = first_byte(network, name, &weft(threads), &server, PATIENCE)?;
            eprintln!("{name}: first byte from nothing after {first:.2?}");
            for direction in [Direction::Down, Direction::Up] {
                let proxy = network.proxy(name)?;
                let load = Surf {
                    streams,
                    bytes,
                    direction,
                    seed: 5,
                };
                let surfed = surf(proxy.socks(), &server, load, &[proxy.node()])?;
                eprintln!(
                    "{name} {direction:?}: {streams} streams of {bytes} bytes, {:.0} Mbit/s, {:.2} CPU s per GB",
                    surfed.megabits_per_second(),
                    surfed.cpu_per_gigabyte(0),
                );
            }
            network.check()?;
            network.stop_proxy(name)
        };
        run(network).unwrap_or_else(|error| panic!("{error:#}"));
    }

    /// Circuits over C tor's relays are measured by a stream that their exits refuse, and C tor's relays are not asked for their
    /// weights: nobody complains.
    #[test]
    fn round_trips_of_circuits_over_c_tor_are_measured() {
        let name = "measuring";
        let mut network = network();
        let network = network.as_mut().expect("a network");
        let run = |network: &mut Network| -> anyhow::Result<()> {
            let server = Server::start()?;
            first_byte(network, name, &weft(1), &server, PATIENCE)?;
            let socket = network.proxy(name)?.node().control_socket();
            let mut control = Control::connect(&socket)?;
            control.command("SETCONF CircuitAcceptance=both CircuitSelection=abra")?;
            // Circuits are measured when they are built: others are wanted.
            control.command("SIGNAL NEWNYM")?;
            let end = Instant::now() + PATIENCE;
            loop {
                let pool = control.info("circuit-pool")?;
                let measured = pool.lines().filter(|line| line.contains(" RTT_MS="));
                // Circuits of a conflux set are measured by their links, and have no weight.
                if measured.count() >= 3 && pool.contains(" WEIGHT=0 STATED=0 ") {
                    eprintln!("{pool}");
                    let stated =
                        |line: &str| line.contains(" STATED=") && !line.contains("=0 STATED=0 ");
                    ensure!(!pool.lines().any(stated), "{pool}");
                    break;
                }
                ensure!(Instant::now() < end, "nothing is measured: {pool}");
                sleep(Duration::from_millis(100));
            }
            let load = Surf {
                streams: 20,
                bytes: 20_000,
                direction: Direction::Down,
                seed: 5,
            };
            let proxy = network.proxy(name)?;
            surf(proxy.socks(), &server, load, &[proxy.node()])?;
            network.check()?;
            let warnings = network.warnings()?;
            ensure!(warnings.is_empty(), "{warnings:#?}");
            network.stop_proxy(name)
        };
        run(network).unwrap_or_else(|error| panic!("{error:#}"));
    }

    #[test]
    fn a_few_streams_carry_much_on_one_thread() {
        moves("bulk", 1, 8, 5_000_000);
    }

    #[test]
    fn a_few_streams_carry_much_on_two_threads() {
        moves("bulk2", 2, 8, 5_000_000);
    }

    #[test]
    fn many_streams_carry_little() {
        moves("many", 1, 100, 20_000);
    }
}
