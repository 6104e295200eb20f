//! What controllers do with a running client: circuits over relays of their choice, streams put on them,
//! led elsewhere and ended, names mapped.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use base64ct::{Base64Unpadded, Encoding as _};
use weft_testnet::control::{Control, Fingerprint};
use weft_testnet::traffic::{Direction, Far, Request, transfer};
use weft_testnet::up::{Kind, Plan, Up};

use crate::control::weft;

const PATIENCE: Duration = Duration::from_secs(180);

/// Bytes that are asked for, from a server that sends them.
fn request(bytes: u64) -> Request {
    Request {
        direction: Direction::Down,
        bytes,
        seed: 9,
    }
}

/// The relays that a client knows, by their nicknames.
fn relays(control: &mut Control) -> Result<BTreeMap<String, Fingerprint>> {
    let mut relays = BTreeMap::new();
    let all = control.info("ns/all")?;
    for line in all.lines().filter_map(|line| line.strip_prefix("r ")) {
        let mut words = line.split(' ');
        let name = words.next().context("a name")?;
        let id = Base64Unpadded::decode_vec(words.next().context("an identity")?);
        let id = id.map_err(|error| anyhow::anyhow!("{line}: {error}"))?;
        relays.insert(name.to_owned(), Fingerprint::parse(&hex::encode(id))?);
    }
    Ok(relays)
}

/// The next event of a stream: its number, what happened, its circuit, and the rest.
fn stream_event(control: &mut Control, deadline: Instant) -> Result<[String; 4]> {
    loop {
        let event = control.event(deadline)?.context("no event came")?;
        let mut words = event.splitn(5, ' ').map(str::to_owned);
        if words.next().as_deref() != Some("STREAM") {
            continue;
        }
        let mut next = || words.next().context("too short an event");
        return Ok([next()?, next()?, next()?, next()?]);
    }
}

/// Waits until this happens to a stream; its circuit then, and the rest of the event. Events of other streams, of which
/// directories have some every few seconds, are no reason to wait longer.
fn until(control: &mut Control, stream: &str, wanted: &str) -> Result<(String, String)> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let event = stream_event(control, deadline);
        let [id, what, circuit, rest] =
            event.with_context(|| format!("waiting for stream {stream} to be {wanted}"))?;
        if id == stream && what == wanted {
            return Ok((circuit, rest));
        }
        // One that is detached waits for the controller again.
        ensure!(
            id != stream || !["DETACHED", "FAILED", "CLOSED"].contains(&what.as_str()),
            "stream {id} is {what} and not {wanted}: {rest}"
        );
    }
}

/// A stream that comes while streams are held: its number.
fn held(control: &mut Control) -> Result<String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let [id, what, circuit, rest] = stream_event(control, deadline)?;
        if what == "NEW" && !rest.contains("PURPOSE=DIR_") {
            ensure!(circuit == "0", "a new stream is on circuit {circuit}");
            return Ok(id);
        }
    }
}

/// The code with which a command is refused.
fn refused(control: &mut Control, command: &str) -> Result<String> {
    match control.command(command) {
        Ok(reply) => bail!("{command} was answered with {reply:?}"),
        Err(error) => {
            let printed = format!("{error:#}");
            let code = printed
                .rsplit(": ")
                .find_map(|part| part.get(..3).map(str::to_owned));
            code.with_context(|| format!("no code in {printed:?}"))
        }
    }
}

/// One client in a network of Weft and C tor, and its controller.
struct Led {
    network: Up,
    control: Control,
    relays: BTreeMap<String, Fingerprint>,
}

impl Led {
    fn start() -> Result<Self> {
        let network = Up::start(&Plan {
            relays_run: Kind::Mixed,
            exits_run: Kind::Mixed,
            progress: |line| eprintln!("{line}"),
            ..Plan::of_weft(weft())
        })?;
        let client = network.clients().first().context("a client")?;
        let mut control = client.controller()?;
        let relays = relays(&mut control)?;
        Ok(Self {
            network,
            control,
            relays,
        })
    }

    fn socks(&self) -> Result<SocketAddr> {
        Ok(self.network.clients().first().context("a client")?.socks())
    }

    fn path(&self, names: &[&str]) -> Result<Vec<Fingerprint>> {
        let relay = |name: &&str| self.relays.get(*name).cloned();
        let path: Option<Vec<_>> = names.iter().map(relay).collect();
        path.with_context(|| format!("{names:?} are not all in {:?}", self.relays))
    }

    /// Circuits over these relays, by nickname.
    fn circuits(&mut self, paths: &[&[&str]]) -> Result<Vec<u32>> {
        let paths: Result<Vec<_>> = paths.iter().map(|names| self.path(names)).collect();
        self.control.build_circuits(&paths?)
    }

    /// Fetches something; meanwhile the controller does something.
    fn fetch<T: Send>(
        &mut self,
        from: Far<'_>,
        bytes: u64,
        meanwhile: impl FnOnce(&mut Control) -> Result<T>,
    ) -> Result<(T, Result<()>)> {
        let socks = self.socks()?;
        thread::scope(|scope| {
            let fetching =
                scope.spawn(move || transfer(socks, "held", from, request(bytes)).map(drop));
            let done = meanwhile(&mut self.control)?;
            let fetched = fetching
                .join()
                .map_err(|_| anyhow::anyhow!("it panicked"))?;
            Ok((done, fetched))
        })
    }
}

/// Streams are held, and put on circuits over both exits, of Weft and of C tor.
fn attach(led: &mut Led) -> Result<()> {
    let server = led.network.server().address();
    let paths: [&[&str]; 2] = [
        &["relay0", "relay1", "exit0"],
        &["relay1", "relay2", "exit1"],
    ];
    let circuits = led.circuits(&paths)?;
    led.control.command("SETCONF __LeaveStreamsUnattached=1")?;
    led.control.command("SETEVENTS STREAM")?;
    for circuit in &circuits {
        let (found, fetched) = led.fetch(server.into(), 200_000, |control| {
            let stream = held(control)?;
            control.command(&format!("ATTACHSTREAM {stream} {circuit}"))?;
            Ok(until(control, &stream, "SUCCEEDED")?.0)
        })?;
        fetched?;
        ensure!(found == circuit.to_string(), "{found} is not {circuit}");
    }
    // A circuit that goes further; its streams leave in the middle where that is asked for.
    let last = circuits.last().context("a circuit")?;
    led.control.command("SETEVENTS CIRC")?;
    let more = led.path(&["exit0"])?;
    let more = more.first().context("a relay")?;
    led.control
        .command(&format!("EXTENDCIRCUIT {last} ${more}"))?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let event = led.control.event(deadline)?.context("it is not extended")?;
        if event.starts_with(&format!("CIRC {last} BUILT ")) {
            break;
        }
    }
    let all = led.control.info("circuit-status")?;
    let line = all
        .lines()
        .find(|line| line.starts_with(&format!("{last} ")));
    ensure!(
        line.is_some_and(|line| line.matches('$').count() == 4),
        "four hops are not in {line:?}"
    );
    led.control.command("SETEVENTS STREAM")?;
    for hop in ["", " HOP=3"] {
        let (_, fetched) = led.fetch(server.into(), 50_000, |control| {
            let stream = held(control)?;
            control.command(&format!("ATTACHSTREAM {stream} {last}{hop}"))?;
            until(control, &stream, "SUCCEEDED")
        })?;
        fetched?;
    }
    // Without one, the client chooses.
    let (_, fetched) = led.fetch(server.into(), 50_000, |control| {
        let stream = held(control)?;
        for (command, code) in [
            (format!("ATTACHSTREAM {stream} 99999"), "552"),
            ("ATTACHSTREAM 99999 0".to_owned(), "552"),
            (format!("ATTACHSTREAM {stream} {last} HOP=1"), "551"),
            (format!("ATTACHSTREAM {stream} {last} HOP=9"), "551"),
        ] {
            let found = refused(control, &command)?;
            ensure!(found == code, "{command}: {found}");
        }
        control.command(&format!("ATTACHSTREAM {stream} 0"))?;
        until(control, &stream, "SUCCEEDED")
    })?;
    fetched
}

/// A held stream is led to another target; others are ended, before and while they carry bytes.
fn redirect_and_close(led: &mut Led) -> Result<()> {
    let server = led.network.server().address();
    let port = server.port();
    let nowhere = Far::Name("nowhere.example", 1);
    let (_, fetched) = led.fetch(nowhere, 50_000, |control| {
        let stream = held(control)?;
        control.command(&format!("REDIRECTSTREAM {stream} {} {port}", server.ip()))?;
        control.command(&format!("ATTACHSTREAM {stream} 0"))?;
        let (_, target) = until(control, &stream, "SUCCEEDED")?;
        ensure!(target.starts_with(&server.to_string()), "led to {target}");
        Ok(())
    })?;
    fetched?;

    let (_, fetched) = led.fetch(server.into(), 50_000, |control| {
        let stream = held(control)?;
        control.command(&format!("CLOSESTREAM {stream} 1"))?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let [id, what, _, _] = stream_event(control, deadline)?;
            if id == stream && ["FAILED", "CLOSED"].contains(&what.as_str()) {
                return Ok(());
            }
        }
    })?;
    ensure!(fetched.is_err(), "a stream that was closed carried bytes");

    // More than fits into all buffers of the way.
    let long = 200_000_000;
    for by_circuit in [false, true] {
        let (_, fetched) = led.fetch(server.into(), long, |control| {
            let stream = held(control)?;
            control.command(&format!("ATTACHSTREAM {stream} 0"))?;
            let (circuit, _) = until(control, &stream, "SUCCEEDED")?;
            match by_circuit {
                true => control.close_circuit_and_set(&circuit)?,
                false => drop(control.command(&format!("CLOSESTREAM {stream} 6"))?),
            }
            until(control, &stream, "CLOSED")
        })?;
        ensure!(fetched.is_err(), "a stream that was closed went on");
    }
    let found = refused(&mut led.control, "CLOSESTREAM 99999 1")?;
    ensure!(found == "552", "CLOSESTREAM of nothing: {found}");
    Ok(())
}

/// Names and addresses stand for others.
fn map(led: &mut Led) -> Result<()> {
    let server = led.network.server().address();
    let control = &mut led.control;
    control.command("RESETCONF __LeaveStreamsUnattached")?;
    control.command("SETEVENTS")?;
    control.command(&format!("MAPADDRESS mapped.example={}", server.ip()))?;
    let socks = led.socks()?;
    let name = Far::Name("mapped.example", server.port());
    transfer(socks, "mapped", name, request(50_000))?;
    // Chosen addresses stand for it as well, and are the same when asked for again.
    for asked in [".", "0.0.0.0", "::"] {
        let command = format!("MAPADDRESS {asked}={}", server.ip());
        let reply = led.control.command(&command)?;
        let chosen = reply.first().and_then(|line| line.split_once('='));
        let (chosen, _) = chosen.with_context(|| format!("{command}: {reply:?}"))?;
        let again = led.control.command(&command)?;
        ensure!(again == reply, "{again:?} is not {reply:?}");
        let bare = chosen.trim_start_matches('[').trim_end_matches(']');
        let far = match bare.parse() {
            Ok(ip) => Far::Addr(SocketAddr::new(ip, server.port())),
            Err(_) => Far::Name(bare, server.port()),
        };
        transfer(socks, "virtual", far, request(50_000))
            .with_context(|| format!("{chosen} stands for {}", server.ip()))?;
    }
    Ok(())
}

/// What controllers read of the directory is what the authority made.
fn documents(led: &mut Led) -> Result<()> {
    let control = &mut led.control;
    let consensus = control.info("dir/status-vote/current/consensus-microdesc")?;
    ensure!(
        consensus.starts_with("\nnetwork-status-version 3 microdesc")
            || consensus.starts_with("network-status-version 3 microdesc")
    );
    for (name, relay) in &led.relays {
        let status = control.info(&format!("ns/id/{relay}"))?;
        ensure!(status.contains(&format!("r {name} ")), "{status}");
        ensure!(
            status.contains("\ns ") && status.contains("\nw Bandwidth="),
            "{status}"
        );
        let microdesc = control.info(&format!("md/id/${relay}"))?;
        ensure!(microdesc.contains("\nntor-onion-key "), "{microdesc}");
        ensure!(control.info(&format!("md/name/{name}"))? == microdesc);
    }
    let all = control.info("md/all")?;
    ensure!(all.matches("\nntor-onion-key ").count() == led.relays.len());
    ensure!(control.info("desc/all-recent")?.is_empty());
    let code = refused(control, "GETINFO desc/name/exit0")?;
    ensure!(code == "552", "{code}");
    Ok(())
}

/// The network is switched off, and on again (DisableNetwork).
fn disable(led: &mut Led) -> Result<()> {
    let socks = led.socks()?;
    let server = led.network.server().address();
    let control = &mut led.control;
    control.command("SETCONF DisableNetwork=1")?;
    ensure!(
        std::net::TcpStream::connect(socks).is_err(),
        "{socks} is open"
    );
    ensure!(control.info("net/listeners/socks")?.is_empty());
    ensure!(!control.info("net/listeners/control")?.is_empty());
    for (key, wanted) in [
        ("circuit-status", ""),
        ("stream-status", ""),
        ("network-liveness", "down"),
        ("status/circuit-established", "0"),
        ("status/enough-dir-info", "0"),
    ] {
        let deadline = Instant::now() + PATIENCE;
        while control.info(key)? != wanted {
            ensure!(Instant::now() < deadline, "{key} is not {wanted:?}");
            thread::sleep(Duration::from_millis(50));
        }
    }
    let deadline = Instant::now() + PATIENCE;
    while !control.info("orconn-status")?.is_empty() {
        ensure!(Instant::now() < deadline, "links stay open");
        thread::sleep(Duration::from_millis(50));
    }
    ensure!(
        control
            .info("status/bootstrap-phase")?
            .contains("PROGRESS=100")
    );
    let phase = control.command("GETCONF DisableNetwork")?;
    ensure!(phase.first().is_some_and(|line| line == "DisableNetwork=1"));
    control.command("SETEVENTS STATUS_CLIENT NETWORK_LIVENESS")?;
    control.command("RESETCONF DisableNetwork")?;
    let deadline = Instant::now() + PATIENCE;
    while control.event(deadline)?.context("it stays down")? != "NETWORK_LIVENESS UP" {}
    control.command("SETEVENTS")?;
    transfer(socks, "again", server, request(50_000)).map(drop)
}

/// All guards are dropped and others drawn, with an event; so has the next consensus.
fn guards_and_consensus(led: &mut Led) -> Result<()> {
    let client = led.network.clients().first().context("a client")?;
    let mut listener = client.controller()?;
    listener.command("SETEVENTS NEWCONSENSUS GUARD BUILDTIMEOUT_SET")?;
    led.control.command("DROPTIMEOUTS")?;
    led.control.command("DROPGUARDS")?;
    let guards = led.control.info("entry-guards")?;
    ensure!(guards.contains(" never-connected"), "{guards}");
    let deadline = Instant::now() + 2 * PATIENCE;
    let (mut reset, mut new, mut consensus, mut listed) = (false, false, false, false);
    while !(reset && new && listed) {
        let event = listener.event(deadline)?;
        let event = event.with_context(|| format!("{reset} {new} {consensus} {listed}"))?;
        reset |= event.starts_with("BUILDTIMEOUT_SET RESET ");
        new |= event.starts_with("GUARD ENTRY $") && event.ends_with(" NEW");
        consensus |= event == "NEWCONSENSUS";
        // A line of the event's data, `r relay0 …`, less what stands where others have a code.
        listed |= consensus && event.starts_with("lay0 ");
    }
    Ok(())
}

#[test]
fn a_controller_leads_circuits_streams_and_names() {
    let run = || -> Result<()> {
        let mut led = Led::start()?;
        attach(&mut led).context("ATTACHSTREAM")?;
        redirect_and_close(&mut led).context("REDIRECTSTREAM and CLOSESTREAM")?;
        map(&mut led).context("MAPADDRESS")?;
        documents(&mut led).context("GETINFO")?;
        disable(&mut led).context("DisableNetwork")?;
        guards_and_consensus(&mut led).context("events")?;
        led.network.check()?;
        led.network.stop()
    };
    run().unwrap_or_else(|error| panic!("{error:#}"));
}
