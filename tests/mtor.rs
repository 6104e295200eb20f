//! Tunnels of mTor between a Weft client and a Weft exit, through guards and middle relays of C tor, which see circuits like any
//! others (docs/extensions/mtor.md).

/// The module's name marks the tests that need `tor` and some minutes, for `cargo xtask test`.
mod private_network {
    use std::collections::{BTreeMap, BTreeSet};
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    use anyhow::{Context as _, Result, ensure};
    use weft_testnet::ports::Port;
    use weft_testnet::traffic::{Direction, Request, transfers};
    use weft_testnet::up::{Kind, More, Plan, Up};

    /// Ends what would otherwise hang; nothing is measured by it.
    const PATIENCE: Duration = Duration::from_secs(120);
    /// Circuits of a tunnel.
    const LEGS: usize = 3;
    /// The user name whose streams get tunnels.
    const USER: &str = "bulk";
    /// Bytes of each stream; five go each way: 200 MB in all.
    const BYTES: u64 = 20_000_000;
    const STREAMS: u64 = 5;
    /// Legs that are closed, one after another, while the tunnel carries streams.
    const CLOSED: usize = 4;
    /// Conflux sets that lose a leg, each way.
    const SETS: usize = 2;

    /// What C tor's relays warn of in so small a network of C tor alone, too.
    const BACK: [&str; 2] = [
        "Client asked me to extend back to the previous hop.",
        "connection_edge_process_relay_cell (away from origin) failed.",
    ];

    struct Net {
        up: Up,
        exit: Port,
        client: Port,
    }

    impl Net {
        fn start() -> Result<Net> {
            let (exit, client) = (Port::reserve()?, Port::reserve()?);
            let lines = |port: &Port| {
                vec![
                    format!("MetricsPort {}", port.address()),
                    "MetricsPortPolicy accept 127.0.0.1".to_owned(),
                ]
            };
            let (mut exits, mut clients) = (lines(&exit), lines(&client));
            exits.push("MultipathExit 1".to_owned());
            clients.push(format!("MultipathUsers {USER}"));
            clients.push(format!("MultipathCircuits {LEGS}"));
            clients.push("ConfluxEnabled 1".to_owned());
            let named = std::env::var_os("WEFT_BIN").map(PathBuf::from);
            let plan = Plan {
                relays: 5,
                relays_run: Kind::Tor,
                exits: 1,
                exits_run: Kind::Weft,
                clients: 1,
                clients_run: Kind::Weft,
                authority: Kind::Weft,
                more: More {
                    relays: vec![
                        "ProtocolWarnings 1".to_owned(),
                        "__DisablePredictedCircuits 1".to_owned(),
                    ],
                    exits,
                    clients,
                },
                verbose: std::env::var_os("WEFT_LAB_VERBOSE").is_some(),
                progress: |line| eprintln!("{line}"),
                ..Plan::of_weft(named.unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_weft"))))
            };
            let up = Up::start(&plan)?;
            Ok(Net { up, exit, client })
        }

        /// The circuits that are linked legs and have carried streams of this user.
        fn legs(&self, user: &str) -> Result<BTreeSet<String>> {
            let client = self.up.client("client0")?;
            let status = client.controller()?.info("circuit-status")?;
            let user = format!("SOCKS_USERNAME=\"{user}\"");
            let legs = status
                .lines()
                .filter(|line| line.contains(" PURPOSE=CONFLUX_LINKED") && line.contains(&user));
            let id = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
            Ok(legs.map(id).collect())
        }

        /// Streams go this way at once; what arrives is what was sent.
        fn carry(&self, user: &str, direction: Direction) -> Result<()> {
            let (socks, server) = (
                self.up.client("client0")?.socks(),
                self.up.server().address(),
            );
            let request = Request {
                direction,
                bytes: BYTES,
                seed: 0,
            };
            transfers(socks, user, server, request, STREAMS)
        }

        /// What circuits of the client carried while `during` ran, down and up, by its events, until these are `enough`.
        fn carried(
            &self,
            during: impl FnOnce() -> Result<()>,
            enough: impl Fn(&BTreeMap<String, [u64; 2]>) -> bool,
        ) -> Result<BTreeMap<String, [u64; 2]>> {
            let mut control = self.up.client("client0")?.controller()?;
            control.command("SETEVENTS CIRC_BW")?;
            during()?;
            let deadline = Instant::now() + PATIENCE;
            let mut carried: BTreeMap<String, [u64; 2]> = BTreeMap::new();
            while !enough(&carried)
                && let Some(event) = control.event(deadline)?
            {
                let value = |key: &str| event.split(' ').find_map(|word| word.strip_prefix(key));
                let bytes = |key| {
                    value(key)
                        .and_then(|value| value.parse().ok())
                        .unwrap_or(0_u64)
                };
                let circuit = carried
                    .entry(value("ID=").context("no ID")?.to_owned())
                    .or_default();
                circuit[0] += bytes("READ=");
                circuit[1] += bytes("WRITTEN=");
            }
            Ok(carried)
        }

        fn metric(port: &Port, sample: &str) -> Result<u64> {
            let mut socket = TcpStream::connect(port.address())?;
            socket.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
            let mut text = String::new();
            socket.read_to_string(&mut text)?;
            let sample = format!("{sample} ");
            let value = text.lines().find_map(|line| line.strip_prefix(&sample));
            Ok(value.with_context(|| format!("no {sample}"))?.parse()?)
        }
    }

    /// Waits until it is so.
    fn until(what: &str, mut so: impl FnMut() -> Result<bool>) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !so()? {
            ensure!(Instant::now() < deadline, "waited in vain: {what}");
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Closes legs of this user, one after another, while there are so many and its streams are carried; returns how many.
    fn close_legs(
        net: &Net,
        user: &str,
        direction: Direction,
        legs: usize,
        most: usize,
    ) -> Result<usize> {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let streams = scope.spawn(|| {
                let carried = net.carry(user, direction);
                over.store(true, Ordering::Relaxed);
                carried
            });
            let mut closed = 0;
            let mut control = net.up.client("client0")?.controller()?;
            while closed < most && !over.load(Ordering::Relaxed) {
                let found = net.legs(user)?;
                if let Some(leg) = found.first().filter(|_| found.len() >= legs) {
                    control.command(&format!("CLOSECIRCUIT {leg}"))?;
                    closed += 1;
                }
                thread::sleep(Duration::from_millis(200));
            }
            let ended = streams.join();
            ended.unwrap_or_else(|_| anyhow::bail!("the streams' thread panicked"))?;
            Ok(closed)
        })
    }

    fn run() -> Result<()> {
        let mut net = Net::start()?;
        for (way, direction) in [Direction::Down, Direction::Up].into_iter().enumerate() {
            let enough = |carried: &BTreeMap<String, [u64; 2]>| {
                let whole: u64 = carried.values().map(|bytes| bytes[way]).sum();
                // On a busy machine one leg may be much slower than the others.
                let legs = carried.values().filter(|bytes| bytes[way] > BYTES / 200);
                whole >= STREAMS * BYTES && legs.count() >= LEGS
            };
            let carried = net.carried(|| net.carry(USER, direction), enough)?;
            eprintln!("{direction:?}: {carried:?}");
            ensure!(enough(&carried), "{carried:?}");
        }
        // Legs close one after another, and streams arrive whole all the same.
        let mut closed = 0;
        for direction in [Direction::Down, Direction::Up] {
            closed += close_legs(&net, USER, direction, LEGS, CLOSED)?;
        }
        // So it is with conflux sets, whose legs are not replaced.
        for direction in [Direction::Down, Direction::Up] {
            for set in 0..SETS {
                let user = format!("{direction:?} {set}");
                let one = close_legs(&net, &user, direction, 2, 1)?;
                eprintln!("conflux, {user}: {one} leg closed");
            }
        }
        ensure!(closed > 0, "no leg could be closed in time");
        let lost = |port| Net::metric(port, "weft_tunnels_total{event=\"lost\"}");
        until("the closed legs to be replaced", || {
            let replaced = Net::metric(
                &net.client,
                "weft_client_tunnel_legs_total{event=\"replaced\"}",
            )?;
            Ok(replaced >= closed as u64)
        })?;
        ensure!(lost(&net.exit)? == 0 && lost(&net.client)? == 0);
        let without = "weft_client_tunnels_total{event=\"without\"}";
        ensure!(Net::metric(&net.client, without)? == 0);
        net.up.check()?;
        let mut warnings = net.up.warnings()?;
        warnings.retain(|line| !BACK.iter().any(|part| line.contains(part)));
        ensure!(warnings.is_empty(), "{}", warnings.join("\n"));
        Ok(())
    }

    #[test]
    fn a_tunnel_through_c_tors_relays_loses_nothing_when_its_legs_close() {
        run().unwrap_or_else(|error| panic!("{error:#}"));
    }
}
