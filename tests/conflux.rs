//! Conflux between Weft and C tor: a client of one builds sets of two circuits, an exit of the other links them, and
//! streams go over both. Guards and middle relays are C tor's.

/// The module's name marks the tests that need `tor` and some minutes, for `cargo xtask test`.
mod private_network {
    use std::collections::HashMap;
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
    use std::path::PathBuf;
    use std::sync::{Mutex, PoisonError};
    use std::thread;
    use std::time::{Duration, Instant};

    use anyhow::{Context as _, Result, bail, ensure};
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
    use weft_testnet::control::{Control, Fingerprint};
    use weft_testnet::ports::Port;
    use weft_testnet::traffic::{Direction, Request, connect, transfer, transfers};
    use weft_testnet::up::{Client, Kind, More, Plan, Up};

    /// One network at a time.
    static TURN: Mutex<()> = Mutex::new(());

    /// Ends what would otherwise hang; nothing is measured by it.
    const PATIENCE: Duration = Duration::from_secs(120);

    /// Streams at once, each way, and the bytes of each: 100 MB in all.
    const STREAMS: u64 = 5;
    const BYTES: u64 = 10_000_000;

    /// What is carried before a leg closes: one leg takes it, since no SENDME shows another round trip by then.
    const FEW: usize = 9_000;
    /// How often a leg that carried nothing is closed until the stream arrives whole on the other.
    const TRIES: usize = 3;
    /// The least that circuits carry with these: CONNECTED or BEGIN, and messages of 498 bytes.
    const FEW_CARRIED: u64 = (1 + FEW.div_ceil(498) as u64) * 509;
    /// The most that a circuit carries until it is linked, down and up: EXTENDED2, EXTENDED2, CONFLUX_LINKED; EXTEND2,
    /// EXTEND2, CONFLUX_LINK, CONFLUX_LINKED_ACK.
    const LINKING: [u64; 2] = [3 * 509, 4 * 509];
    /// The same where legs shall have much under way.
    const MANY: usize = 1_000_000;
    /// What is sent in all, in either case: more than the kernel's buffers hold.
    const WHOLE_OF_FEW: usize = 2_000_000;
    const WHOLE_OF_MANY: usize = 40_000_000;

    fn whole(first: usize) -> usize {
        match first {
            FEW => WHOLE_OF_FEW,
            _ => WHOLE_OF_MANY,
        }
    }

    /// A network with one client, whose exits run one program.
    struct Net {
        up: Up,
        /// The MetricsPorts of exit and client, where Weft runs them.
        exit: Option<Port>,
        client: Option<Port>,
        /// Bytes that each circuit of the client has carried, down and up.
        carried: Carried,
    }

    /// A circuit that is a leg of a linked set.
    #[derive(Clone, Debug)]
    struct Leg {
        circuit: u32,
        set: String,
        relays: Vec<String>,
        path: Vec<Fingerprint>,
    }

    /// The end of a stream whose leg closed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum End {
        /// All bytes arrived.
        Whole,
        /// It ended before; what arrived is right.
        Early,
    }

    /// What circuits of a client carry, by its events.
    struct Carried {
        control: Control,
        bytes: HashMap<u32, [u64; 2]>,
        /// Which circuits and streams ended, and why: what a failure is explained by.
        ends: Vec<String>,
    }

    impl Carried {
        fn watch(client: &Client) -> Result<Carried> {
            let mut control = client.controller()?;
            control.command("SETEVENTS CIRC STREAM CIRC_BW")?;
            Ok(Carried {
                control,
                bytes: HashMap::new(),
                ends: Vec::new(),
            })
        }

        /// Reads events until `enough`, and those that came with the last of them: they come once a second.
        fn until(&mut self, enough: impl Fn(&HashMap<u32, [u64; 2]>) -> bool) -> Result<()> {
            let deadline = Instant::now() + PATIENCE;
            while !enough(&self.bytes) {
                let event = self.control.event(deadline)?;
                let event = event.with_context(|| format!("circuits carried {:?}", self.bytes))?;
                self.add(&event)?;
            }
            self.so_far()
        }

        /// Reads the events that have come.
        fn so_far(&mut self) -> Result<()> {
            self.control.info("version")?;
            while let Some(event) = self.control.event(Instant::now())? {
                self.add(&event)?;
            }
            Ok(())
        }

        fn add(&mut self, event: &str) -> Result<()> {
            if !event.contains("CIRC_BW ") {
                if event.contains("REASON=") {
                    self.ends.push(event.to_owned());
                }
                return Ok(());
            }
            let number = |key: &str| {
                let value = event.split(' ').find_map(|word| word.strip_prefix(key));
                value.and_then(|value| value.parse::<u64>().ok())
            };
            let circuit = number("ID=").and_then(|id| u32::try_from(id).ok());
            let bytes = self.bytes.entry(circuit.context("no ID")?).or_default();
            bytes[0] += number("READ=").unwrap_or(0);
            bytes[1] += number("WRITTEN=").unwrap_or(0);
            Ok(())
        }

        /// What a circuit has carried.
        fn of(&self, circuit: u32) -> [u64; 2] {
            self.bytes.get(&circuit).copied().unwrap_or_default()
        }
    }

    /// What C tor's relays warn of in so small a network of C tor alone, too: C tor's circuits come back to a relay.
    const BACK: [&str; 2] = [
        "Client asked me to extend back to the previous hop.",
        "connection_edge_process_relay_cell (away from origin) failed.",
    ];

    /// What C tor's exit says when C tor's client, on a busy machine, links a third leg to a set of two.
    const THREE_LEGS: [&str; 2] = [
        "conflux_validate_legs(): Bug: Number of legs is above maximum of 2 allowed: 3",
        "conflux_log_set(): Bug: ",
    ];

    fn index(direction: Direction) -> usize {
        match direction {
            Direction::Down => 0,
            Direction::Up => 1,
        }
    }

    impl Net {
        fn start(exit: Kind, client: Kind) -> Result<Net> {
            let port_of = |kind| match kind {
                Kind::Weft => Port::reserve().map(Some),
                Kind::Tor | Kind::Mixed => Ok(None),
            };
            let lines = |port: &Option<Port>| match port {
                Some(port) => vec![
                    format!("MetricsPort {}", port.address()),
                    "MetricsPortPolicy accept 127.0.0.1".to_owned(),
                ],
                // So that it warns of what the other does against the protocol.
                None => vec!["ProtocolWarnings 1".to_owned()],
            };
            let (exit_port, client_port) = (port_of(exit)?, port_of(client)?);
            let mut clients = lines(&client_port);
            clients.push("ConfluxEnabled 1".to_owned());
            // Relays of C tor try circuits of their own, which in so small a network come back to them, and warn of that.
            let alone = "__DisablePredictedCircuits 1".to_owned();
            let (mut relays, mut exits) = (lines(&None), lines(&exit_port));
            relays.push(alone.clone());
            if exit == Kind::Tor {
                exits.push(alone);
            }
            let named = std::env::var_os("WEFT_BIN").map(PathBuf::from);
            let plan = Plan {
                // Legs have guards and middle relays of their own, and one of them will be ended.
                relays: 5,
                relays_run: Kind::Tor,
                // C tor's exits warn when they find no other. Weft's exit has a MetricsPort.
                exits: match exit {
                    Kind::Weft => 1,
                    Kind::Tor | Kind::Mixed => 2,
                },
                exits_run: exit,
                clients: 1,
                clients_run: client,
                authority: Kind::Weft,
                more: More {
                    relays,
                    exits,
                    clients,
                },
                verbose: std::env::var_os("WEFT_LAB_VERBOSE").is_some(),
                progress: |line| eprintln!("{line}"),
                ..Plan::of_weft(named.unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_weft"))))
            };
            let up = Up::start(&plan)?;
            let client = up.client("client0")?;
            let carried = Carried::watch(client)?;
            // What these carried until now is not known.
            let is_leg = |line: &&str| line.contains(" PURPOSE=CONFLUX_");
            let id = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
            let mut control = client.controller()?;
            let before = control.info("circuit-status")?;
            let before: Vec<String> = before.lines().filter(is_leg).map(id).collect();
            for circuit in &before {
                // The other leg of its set may have closed it.
                let _ = control.command(&format!("CLOSECIRCUIT {circuit}"));
            }
            until("the first sets to be closed", || {
                let status = control.info("circuit-status")?;
                Ok(!status.lines().any(|line| before.contains(&id(line))))
            })?;
            Ok(Net {
                up,
                exit: exit_port,
                client: client_port,
                carried,
            })
        }

        fn client(&self) -> Result<&Client> {
            self.up.client("client0")
        }

        /// The legs of linked sets.
        fn legs(&self) -> Result<Vec<Leg>> {
            let status = self.client()?.controller()?.info("circuit-status")?;
            Ok(status.lines().filter_map(leg).collect())
        }

        /// The legs of the set that a stream to this address is on; none: it is on a circuit.
        fn legs_of(&self, far: SocketAddr) -> Result<Vec<Leg>> {
            let streams = self.client()?.controller()?.info("stream-status")?;
            let to = format!(" {far}");
            let line = streams.lines().find(|line| line.contains(&to));
            let circuit = line.and_then(|line| line.split(' ').nth(2)?.parse().ok());
            let circuit: u32 = circuit.with_context(|| format!("no stream{to}: {streams}"))?;
            let mut legs = self.legs()?;
            let set = legs.iter().find(|leg| leg.circuit == circuit);
            let set = set.map(|leg| leg.set.clone());
            legs.retain(|leg| Some(&leg.set) == set.as_ref());
            Ok(legs)
        }

        /// Waits until a set is linked that no stream has used.
        fn wait_for_a_set(&self) -> Result<()> {
            until("a set to be linked", || {
                let status = self.client()?.controller()?.info("circuit-status")?;
                let fresh = status
                    .lines()
                    .filter(|line| !line.contains("SOCKS_USERNAME="));
                let legs: Vec<Leg> = fresh.filter_map(leg).collect();
                let twice = |one: &Leg| legs.iter().filter(|leg| leg.set == one.set).count() >= 2;
                Ok(legs.iter().any(twice))
            })
        }

        /// Bytes go down and up over several streams, by both legs of one set.
        ///
        /// On a machine that is short of time a set ends now and then, in networks of C tor alone, too: another one is tried,
        /// unless Weft's exit has found a fault.
        fn carries(&mut self) -> Result<()> {
            for direction in [Direction::Down, Direction::Up] {
                for attempt in 1.. {
                    let Err(error) = self.carry(direction, attempt) else {
                        break;
                    };
                    let is_over = format!("{error:#}").contains("the stream ended");
                    let faults = self.faults_of_exit();
                    if attempt == TRIES || !is_over || !faults.is_empty() {
                        return Err(error.context(format!("try {attempt}; {faults}")));
                    }
                    eprintln!("again, after: {error:#}\n{}", self.what_happened());
                }
            }
            Ok(())
        }

        /// What Weft's exit has counted that must not be.
        fn faults_of_exit(&self) -> String {
            let counted = self.exit.as_ref().map(|port| metrics(port.address()));
            let counted = counted.and_then(Result::ok).unwrap_or_default();
            let is_fault = |line: &&str| {
                let named = ["event=\"lost\"", "event=\"overflowed\"", "protocol"];
                let counts = !line.starts_with('#') && !line.ends_with(" 0");
                counts && named.iter().any(|name| line.contains(name))
            };
            counted
                .lines()
                .filter(is_fault)
                .collect::<Vec<_>>()
                .join("\n")
        }

        fn carry(&mut self, direction: Direction, attempt: usize) -> Result<()> {
            let (socks, server) = (self.client()?.socks(), self.up.server().address());
            self.wait_for_a_set()?;
            let user = format!("bulk {direction:?} {attempt}");
            // Streams that begin at the same moment may each take a set; later ones take that of the first.
            let seed = STREAMS;
            let first = Request {
                direction,
                bytes: 1,
                seed,
            };
            transfer(socks, &user, server, first)?;
            let begun = Instant::now();
            let all = Request {
                direction,
                bytes: BYTES,
                seed: 0,
            };
            transfers(socks, &user, server, all, STREAMS)?;
            let rate = (STREAMS * BYTES) as f64 * 8e-6 / begun.elapsed().as_secs_f64();
            let way = index(direction);
            let mut sets: HashMap<String, Vec<u32>> = HashMap::new();
            for leg in self.legs()? {
                sets.entry(leg.set).or_default().push(leg.circuit);
            }
            // All of it went over sets, whose legs the client reports each second. C tor puts most streams of a user, and not
            // always all, on one.
            let by_sets = |bytes: &HashMap<u32, [u64; 2]>| -> Vec<Vec<u64>> {
                let of = |leg| bytes.get(leg).map_or(0, |bytes| bytes[way]);
                sets.values()
                    .map(|legs| legs.iter().map(of).collect())
                    .collect()
            };
            let most = |bytes: &HashMap<u32, [u64; 2]>| {
                let by_sets = by_sets(bytes).into_iter();
                by_sets.max_by_key(|legs| legs.iter().sum::<u64>())
            };
            let all = |bytes: &HashMap<u32, [u64; 2]>| by_sets(bytes).iter().flatten().sum::<u64>();
            self.carried.until(|bytes| all(bytes) >= STREAMS * BYTES)?;
            let used = most(&self.carried.bytes).context("no set")?;
            eprintln!("{direction:?}: {rate:.0} Mbit/s, legs carried {used:?} bytes");
            // An exit that clients ask for throughput uses all legs. Clients are asked for the least delay: they
            // use the leg of the shortest round trip, which need not be another in so short a time.
            let both = used.iter().filter(|bytes| **bytes > 100_000).count() == 2;
            ensure!(both || direction == Direction::Up, "one leg: {used:?}");
            Ok(())
        }

        /// A stream of which some bytes have arrived waits while `meanwhile` closes a leg; its end, and the set.
        fn stream(
            &mut self,
            user: &str,
            direction: Direction,
            first: usize,
            meanwhile: impl FnOnce(&mut Net, &[Leg]) -> Result<Option<Leg>>,
        ) -> Result<Option<(End, Leg)>> {
            let far = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let address = far.local_addr()?;
            let app = connect(self.client()?.socks(), user, address)?;
            let (far, _) = far.accept()?;
            for stream in [&app, &far] {
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
            }
            let (source, sink) = match direction {
                Direction::Down => (far, app),
                Direction::Up => (app, far),
            };
            let (go_on, wait) = std::sync::mpsc::channel();
            thread::scope(|scope| {
                // Dropped at the end, whatever it is, so that the sender ends, too.
                let (mut sink, go_on) = (Pattern::of(sink), go_on);
                scope.spawn(move || send(source, first, &wait));
                sink.take(first)?;
                ensure!(sink.at == first, "the stream ended after {} bytes", sink.at);
                let legs = self.legs_of(address)?;
                let closed = meanwhile(self, &legs);
                // The sender may have given up already.
                let _ = go_on.send(());
                let Some(closed) = closed? else {
                    return Ok(None);
                };
                sink.take(whole(first))?;
                let end = match sink.at == whole(first) {
                    true => End::Whole,
                    false => End::Early,
                };
                Ok(Some((end, closed)))
            })
        }

        /// Whether the stream of a set, one of whose legs has closed, ended as the set did.
        fn is_consistent(&self, end: End, closed: &Leg) -> Result<()> {
            let left = match end {
                End::Whole => 1,
                End::Early => 0,
            };
            let what = format!("{end:?}: {left} legs of {} to be there", closed.set);
            until(&what, || {
                let legs = self.legs()?;
                let legs = legs.iter().filter(|leg| leg.set == closed.set);
                Ok(legs.count() == left)
            })
        }

        /// Closes a leg. When another circuit over the same relays is built, the exit has received its DESTROY.
        fn close(&self, leg: &Leg) -> Result<Leg> {
            let close = format!("CLOSECIRCUIT {}", leg.circuit);
            self.client()?.controller()?.command(&close)?;
            self.follow(leg)?;
            Ok(leg.clone())
        }

        /// Builds a circuit over a leg's relays: what was sent on their links before has arrived. (C tor sends a DESTROY
        /// that it has nothing else to send with much later.)
        fn follow(&self, leg: &Leg) -> Result<()> {
            let mut control = self.client()?.controller()?;
            for circuit in control.build_circuits(std::slice::from_ref(&leg.path))? {
                control.command(&format!("CLOSECIRCUIT {circuit}"))?;
            }
            Ok(())
        }

        /// A leg closes with much under way: the set ends, and with it the stream, unless the leg carried nothing then.
        fn loses_a_busy_leg(&mut self, direction: Direction) -> Result<()> {
            for which in 0..2 {
                let user = format!("busy {direction:?} {which}");
                let end = self.with_a_set(&user, direction, MANY, |net, legs| {
                    let closed = net.close(&legs[which])?;
                    net.follow(&legs[1 - which])?;
                    Ok(Some(closed))
                })?;
                eprintln!("{direction:?}, busy, leg {which} closed: {end:?}");
            }
            Ok(())
        }

        /// The same with few bytes carried and none under way. A leg that carried nothing closes, and the stream arrives
        /// whole on the other; the leg that carried closes, and all ends.
        fn loses_a_quiet_leg(&mut self, direction: Direction) -> Result<()> {
            for unused in [true, false] {
                let wanted = if unused { End::Whole } else { End::Early };
                // What a leg carries besides streams may come between the count and its end.
                let mut ends = Vec::new();
                while ends.len() < TRIES && ends.last() != Some(&wanted) {
                    let user = format!("quiet {direction:?} {unused} {}", ends.len());
                    ends.push(self.closes_a_quiet_leg(&user, direction, unused)?);
                }
                eprintln!("{direction:?}, quiet, unused {unused}: {ends:?}");
                ensure!(ends.last() == Some(&wanted), "{ends:?} without {wanted:?}");
            }
            Ok(())
        }

        fn closes_a_quiet_leg(
            &mut self,
            user: &str,
            direction: Direction,
            unused: bool,
        ) -> Result<End> {
            self.with_a_set(user, direction, FEW, |net, legs| {
                let way = index(direction);
                let ids: Vec<u32> = legs.iter().map(|leg| leg.circuit).collect();
                // Not one message less: it may be on the other leg.
                let enough = FEW_CARRIED + 2 * LINKING[way];
                net.carried.until(|bytes| {
                    let of = |id| bytes.get(id).map_or(0, |bytes| bytes[way]);
                    ids.iter().map(of).sum::<u64>() >= enough
                })?;
                eprintln!(
                    "{user}: {:?}",
                    ids.iter().map(|id| net.carried.of(*id)).collect::<Vec<_>>()
                );
                let is_idle = |leg: &&Leg| {
                    let [down, up] = net.carried.of(leg.circuit);
                    down <= LINKING[0] && up <= LINKING[1]
                };
                let idle: Vec<&Leg> = legs.iter().filter(is_idle).collect();
                match (unused, idle.first()) {
                    (true, Some(leg)) => net.close(leg).map(Some),
                    (false, Some(idle)) => {
                        let mut used = legs.iter();
                        let used = used.find(|leg| leg.circuit != idle.circuit);
                        net.close(used.context("a leg")?).map(Some)
                    }
                    // The two ends used one each.
                    (_, None) => Ok(None),
                }
            })
        }

        /// The middle relay of a leg ends in mid-transfer.
        fn loses_a_middle_relay(&mut self, direction: Direction) -> Result<()> {
            let user = format!("middle {direction:?}");
            let end = self.with_a_set(&user, direction, MANY, |net, legs| {
                // One that is the middle relay of its leg alone.
                let ways = [(&legs[0], &legs[1]), (&legs[1], &legs[0])];
                let found = ways.into_iter().find_map(|(lost, kept)| {
                    let middle = lost.relays.get(1)?;
                    let is_elsewhere = kept.relays.contains(middle)
                        || middle.starts_with("exit")
                        || middle == "authority";
                    (!is_elsewhere).then_some((middle, lost, kept))
                });
                let Some((middle, lost, kept)) = found else {
                    return Ok(None);
                };
                net.up.kill(middle)?;
                net.follow(kept)?;
                Ok(Some(lost.clone()))
            })?;
            eprintln!("{direction:?}, a middle relay has ended: {end:?}");
            Ok(())
        }

        /// Tries sets until `meanwhile` has closed a leg of one, and returns the end of the stream on it.
        fn with_a_set(
            &mut self,
            user: &str,
            direction: Direction,
            first: usize,
            mut meanwhile: impl FnMut(&mut Net, &[Leg]) -> Result<Option<Leg>>,
        ) -> Result<End> {
            for attempt in 0..20 {
                self.wait_for_a_set()?;
                let user = format!("{user} {attempt}");
                let mut seen = Vec::new();
                let ended = self.stream(&user, direction, first, |net, legs| {
                    seen = legs.to_vec();
                    match legs.len() {
                        2 => meanwhile(net, legs),
                        _ => Ok(None),
                    }
                });
                let ended = ended.with_context(|| user.clone())?;
                if let Some((end, closed)) = &ended {
                    self.is_consistent(*end, closed).with_context(|| user)?;
                }
                // A client has ten sets at most.
                let mut control = self.client()?.controller()?;
                for leg in seen {
                    // It may have gone.
                    let _ = control.command(&format!("CLOSECIRCUIT {}", leg.circuit));
                }
                if let Some((end, _)) = ended {
                    return Ok(end);
                }
            }
            bail!("no set of two legs of which one could be closed");
        }

        /// Weft's counters.
        fn metrics(&self) -> Result<()> {
            for (port, is_exit) in [(&self.exit, true), (&self.client, false)] {
                let Some(port) = port else {
                    continue;
                };
                let text = metrics(port.address())?;
                let value = |name: &str, label: &str| -> Result<u64> {
                    let sample = format!("{name}{{{label}}} ");
                    let value = text.lines().find_map(|line| line.strip_prefix(&sample));
                    let value = value.with_context(|| format!("no {sample}"))?;
                    Ok(value.parse()?)
                };
                let events = ["made", "closed", "broken", "lost", "overflowed"];
                let messages = ["link", "linked", "switch", "reordered"];
                let event =
                    |event: &str| value("weft_tunnels_total", &format!("event=\"{event}\""));
                let message = |message: &str| {
                    value(
                        "weft_tunnel_messages_total",
                        &format!("message=\"{message}\""),
                    )
                };
                let counts: Vec<String> = events
                    .iter()
                    .map(|one| Ok(format!("{one} {}", event(one)?)))
                    .chain(
                        messages
                            .iter()
                            .map(|one| Ok(format!("{one} {}", message(one)?))),
                    )
                    .collect::<Result<_>>()?;
                let counts = counts.join(", ");
                eprintln!("{}: {counts}", if is_exit { "exit" } else { "client" });
                ensure!(message("linked")? >= 2 * 2 && message("switch")? > 0);
                ensure!(event("broken")? > 0 && event("closed")? > 0);
                ensure!(event("lost")? == 0 && event("overflowed")? == 0);
                ensure!(!is_exit || message("link")? >= message("linked")?);
            }
            Ok(())
        }

        /// What explains a failure: the last ends of circuits and streams at the client, and all warnings.
        fn what_happened(&mut self) -> String {
            let _ = self.carried.so_far();
            let ends = &self.carried.ends;
            let mut lines = ends[ends.len().saturating_sub(20)..].to_vec();
            match self.up.warnings() {
                Ok(warnings) => lines.extend(warnings),
                Err(error) => lines.push(format!("no logs: {error:#}")),
            }
            // What Weft's exit counted: which of its rules ended a set.
            let counted = self.exit.as_ref().map(|port| metrics(port.address()));
            let counted = counted.and_then(Result::ok).unwrap_or_default();
            let of_tunnels = |line: &&str| {
                let named = ["tunnel", "protocol", "conflux"];
                let counts = !line.starts_with('#') && !line.ends_with(" 0");
                counts && named.iter().any(|name| line.contains(name))
            };
            lines.extend(counted.lines().filter(of_tunnels).map(str::to_owned));
            lines.join("\n")
        }

        fn nobody_complains(&mut self) -> Result<()> {
            self.up.check()?;
            let mut warnings = self.up.warnings()?;
            warnings.retain(|line| !BACK.iter().any(|part| line.contains(part)));
            if self.exit.is_none() && self.client.is_none() {
                warnings.retain(|line| !THREE_LEGS.iter().any(|part| line.contains(part)));
            }
            ensure!(warnings.is_empty(), "{}", warnings.join("\n"));
            Ok(())
        }
    }

    /// A line of `circuit-status`, if it is of a leg of a linked set.
    fn leg(line: &str) -> Option<Leg> {
        let words: Vec<&str> = line.split(' ').collect();
        if !words.contains(&"PURPOSE=CONFLUX_LINKED") || words.get(1) != Some(&"BUILT") {
            return None;
        }
        let set = words
            .iter()
            .find_map(|word| word.strip_prefix("CONFLUX_ID="));
        let relays = words.get(2)?.split(',');
        let (path, names): (Vec<_>, Vec<_>) = relays
            .filter_map(|relay| {
                let (identity, name) = relay.strip_prefix('$')?.split_once('~')?;
                Some((Fingerprint::parse(identity).ok()?, name.to_owned()))
            })
            .unzip();
        Some(Leg {
            circuit: words.first()?.parse().ok()?,
            set: set?.to_owned(),
            relays: names,
            path,
        })
    }

    /// Asks again and again until it is so.
    fn until(what: &str, mut so: impl FnMut() -> Result<bool>) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !so()? {
            ensure!(Instant::now() < deadline, "waited in vain: {what}");
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// What a MetricsPort answers.
    fn metrics(port: SocketAddr) -> Result<String> {
        let mut socket = TcpStream::connect(port)?;
        socket.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
        let mut text = String::new();
        socket.read_to_string(&mut text)?;
        Ok(text)
    }

    /// Bytes of a block of every stream.
    const BLOCK: usize = 64 * 1024;

    /// A block of every stream, by its number: no place is like another.
    fn block(number: usize) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK];
        ChaCha8Rng::seed_from_u64(number as u64).fill_bytes(&mut bytes);
        bytes
    }

    /// Sends the first bytes, then waits for a word, then sends the rest, for as long as somebody takes it. Where much
    /// is to be under way, it does not wait.
    fn send(mut to: TcpStream, first: usize, wait: &std::sync::mpsc::Receiver<()>) {
        let whole = whole(first);
        let mut bytes = Vec::with_capacity(whole + BLOCK);
        for number in 0..whole.div_ceil(BLOCK) {
            bytes.extend_from_slice(&block(number));
        }
        bytes.truncate(whole);
        let (now, later) = bytes.split_at(first);
        if to.write_all(now).is_err() {
            return;
        }
        if first == FEW {
            let _ = wait.recv();
        }
        // The stream may have ended. If not, it stays open until the other end has all.
        if to.write_all(later).is_ok() {
            let _ = to.read(&mut [0]);
        }
    }

    /// Bytes that arrive, each compared with what must be there.
    struct Pattern {
        from: TcpStream,
        at: usize,
        /// The block that `at` is in.
        block: Vec<u8>,
    }

    impl Pattern {
        fn of(from: TcpStream) -> Pattern {
            Pattern {
                from,
                at: 0,
                block: block(0),
            }
        }

        /// Reads until this place, or the end.
        fn take(&mut self, place: usize) -> Result<()> {
            let mut buffer = vec![0; 16 * 1024];
            while self.at < place {
                let within = self.at % BLOCK;
                let most = buffer.len().min(place - self.at).min(BLOCK - within);
                let read = match self.from.read(&mut buffer[..most]) {
                    Ok(0) => return Ok(()),
                    Ok(read) => read,
                    Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                        return Ok(());
                    }
                    Err(error) => {
                        return Err(error).with_context(|| format!("after {} bytes", self.at));
                    }
                };
                let expected = &self.block[within..within + read];
                if buffer[..read] != *expected {
                    let wrong = (0..read)
                        .find(|at| buffer[*at] != expected[*at])
                        .unwrap_or(0);
                    bail!(
                        "byte {} is wrong: lost, twice or out of order",
                        self.at + wrong
                    );
                }
                self.at += read;
                if self.at.is_multiple_of(BLOCK) {
                    self.block = block(self.at / BLOCK);
                }
            }
            Ok(())
        }
    }

    fn run(exit: Kind, client: Kind) {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut net = Net::start(exit, client).unwrap_or_else(|error| panic!("{error:#}"));
        let mut all = || -> Result<()> {
            net.carries()?;
            for direction in [Direction::Down, Direction::Up] {
                net.loses_a_quiet_leg(direction)?;
                net.loses_a_busy_leg(direction)?;
            }
            net.loses_a_middle_relay(Direction::Down)?;
            net.metrics()?;
            // C tor may take long to end in good order on a busy machine; the network is ended when it is dropped.
            net.nobody_complains()
        };
        if let Err(error) = all() {
            panic!("{error:#}\n{}", net.what_happened());
        }
    }

    #[test]
    fn c_tor_clients_run_conflux_through_a_weft_exit() {
        run(Kind::Weft, Kind::Tor);
    }

    #[test]
    fn weft_clients_run_conflux_through_a_c_tor_exit() {
        run(Kind::Tor, Kind::Weft);
    }

    #[test]
    fn weft_clients_run_conflux_through_a_weft_exit() {
        run(Kind::Weft, Kind::Weft);
    }

    /// What the tests above hold Weft to.
    #[test]
    fn c_tor_runs_conflux_so_alone() {
        run(Kind::Tor, Kind::Tor);
    }
}
