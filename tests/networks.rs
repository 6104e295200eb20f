//! Networks of Weft, of C tor and of both, whose clients find their own way: bytes go down and up, and
//! hashes are equal.

/// The module's name marks the tests that need `tor` and some minutes, for `cargo xtask test`.
mod private_network {
    use std::path::PathBuf;
    use std::sync::{Mutex, PoisonError};

    use weft_lab::surf::{Surf, surf};
    use weft_lab::traffic::Direction;
    use weft_lab::up::{Kind, Plan, Up};

    /// One network at a time.
    static TURN: Mutex<()> = Mutex::new(());

    /// Three relays, two exits, two clients.
    fn plan(authority: Kind, relays: Kind, clients: Kind) -> Plan {
        let named = std::env::var_os("WEFT_BIN").map(PathBuf::from);
        Plan {
            relays_run: relays,
            exits_run: relays,
            clients: 2,
            clients_run: clients,
            authority,
            verbose: std::env::var_os("WEFT_LAB_VERBOSE").is_some(),
            progress: |line| eprintln!("{line}"),
            ..Plan::of_weft(named.unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_weft"))))
        }
    }

    /// Starts it, moves a few large and many small streams each way through each client, ends it.
    fn carries(authority: Kind, relays: Kind, clients: Kind) {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let run = || -> anyhow::Result<()> {
            let mut network = Up::start(&plan(authority, relays, clients))?;
            eprintln!("up after {:.1?}", network.took());
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
            }
            network.check()?;
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
