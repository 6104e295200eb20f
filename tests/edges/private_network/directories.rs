//! Directories that lie, clients that know no authority, and a guard that disappears.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, ensure};
use weft_testnet::network::Program;
use weft_testnet::process::Usage;
use weft_testnet::traffic::{Direction, Request, transfer};

use crate::edges::apps::{CONNECT, read_to_end, socks5};
use crate::edges::destinations::Far;
use crate::edges::lies::{Liar, Lie};
use crate::edges::net::{CLIENT, Net, PATIENCE, Watch, shared, until, weft, weft_path};

/// A relay of the test's own, which nobody lists. Killed when dropped.
struct Outsider {
    child: Child,
    folder: tempfile::TempDir,
}

impl Outsider {
    /// It takes `directory` for the authority's DirPort.
    fn start(net: &Net, directory: SocketAddr) -> Result<Outsider> {
        let folder = tempfile::tempdir()?;
        let torrc = std::fs::read_to_string(net.up.node("exit0")?.torrc())?;
        let authority = torrc.lines().find(|line| line.starts_with("DirAuthority "));
        let authority = authority.context("no DirAuthority")?;
        let (words, fingerprint) = authority.rsplit_once(' ').context("no fingerprint")?;
        let (words, _port) = words.rsplit_once(' ').context("no DirPort")?;
        let text = format!(
            "TestingTorNetwork 1\nAddressDisableIPv6 1\nPublishServerDescriptor 0\n\
             AssumeReachable 1\nNickname outsider\nContactInfo nobody\nExitRelay 0\n\
             SafeLogging 0\nSocksPort 0\nAddress 127.0.0.1\nORPort 127.0.0.1:auto IPv4Only\n\
             DataDirectory {}\nLog info file {}\n{words} {directory} {fingerprint}\n",
            folder.path().join("data").display(),
            folder.path().join("log").display(),
        );
        let path = folder.path().join("torrc");
        std::fs::write(&path, text)?;
        let child = Command::new(weft_path())
            .args(["--defaults-torrc", "/dev/null", "-f"])
            .arg(&path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Outsider { child, folder })
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.path().join("log")).unwrap_or_default()
    }

    /// Whether it has a consensus.
    fn knows(&self) -> bool {
        ["cached-consensus", "cached-microdesc-consensus"]
            .iter()
            .any(|name| self.path().join("data").join(name).exists())
    }
}

impl Drop for Outsider {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn directories_that_lie_are_logged_and_cost_little_memory() {
    shared(|net| {
        let torrc = std::fs::read_to_string(net.up.node("authority")?.torrc())?;
        let port = torrc.lines().find_map(|line| line.strip_prefix("DirPort "));
        let port = port.and_then(|words| words.split(' ').next());
        let authority: SocketAddr = port.context("no DirPort")?.parse()?;
        let lies = [
            (Lie::Forged, "do not verify"),
            (Lie::Truncated, "malformed"),
            (Lie::CutOff, "cut off"),
            (Lie::Enormous, "is larger than"),
            (Lie::Bomb, "decompressed body is larger than"),
            (Lie::Nonsense, "not HTTP"),
        ];
        let relays: Vec<(Lie, &str, Liar, Outsider)> = lies
            .into_iter()
            .map(|(lie, words)| {
                let liar = Liar::start(authority, lie, 1)?;
                let relay = Outsider::start(net, liar.address)?;
                Ok((lie, words, liar, relay))
            })
            .collect::<Result<_>>()?;
        for (lie, words, liar, relay) in &relays {
            until("a log line about the lie", || {
                Ok(relay.log().contains(words))
            })
            .with_context(|| format!("{lie:?}: {}", relay.log()))?;
            ensure!(liar.sent.load(Ordering::SeqCst) == 1);
            // The next answer is the authority's.
            until("a consensus", || Ok(relay.knows()))
                .with_context(|| format!("{lie:?}: {}", relay.log()))?;
            let used = Usage::of(relay.child.id())?;
            eprintln!("{lie:?}: at most {} MB", used.peak_rss / 1_000_000);
            ensure!(
                used.peak_rss < 200 << 20,
                "{lie:?}: {} bytes",
                used.peak_rss
            );
        }
        Ok(())
    });
}

/// The authority has ended before they start: all that they know is from relays' caches.
#[test]
fn clients_start_from_relays_alone_and_live_without_their_guard() {
    let run = || -> Result<()> {
        let mut net = Net::start()?;
        let fallbacks = net.up.fallback_dirs()?;
        ensure!(fallbacks.len() == 5, "{fallbacks:?}");
        net.caches_are_full()?;
        net.up.kill("authority")?;
        for (name, program) in [("weft0", weft()?), ("tor0", Program::tor_of_its_own()?)] {
            net.up.add_client(name, &program, &fallbacks, PATIENCE)?;
            for (direction, seed) in [(Direction::Down, 3), (Direction::Up, 4)] {
                let request = Request {
                    direction,
                    bytes: 2_000_000,
                    seed,
                };
                let (socks, server) = (net.up.client(name)?.socks(), net.up.server().address());
                transfer(socks, "caches", server, request).context(name)?;
            }
            eprintln!("{name} knows the network from relays alone");
        }
        loses_its_guard(&mut net)
    };
    run().unwrap_or_else(|error| panic!("{error:#}"));
}

/// The first hop of the stream's circuit vanishes: that stream ends, and others find another guard. A conflux set could go
/// on by its other leg: the stream's circuit is none.
fn loses_its_guard(net: &mut Net) -> Result<()> {
    let far = Far::is_silent(std::sync::Arc::default())?;
    let mut watch = Watch::start(net.client()?)?;
    let mut control = net.client()?.controller()?;
    control.command("SETCONF ConfluxEnabled=0")?;
    // Sets that were ready before are used first.
    let mut users = (0..10).map(|number| format!("guarded{number}"));
    let (user, mut answer, line) = loop {
        let user = users.next().context("there are sets still")?;
        let answer = socks5(net.client()?.socks(), &user, CONNECT, far.address)?;
        ensure!(answer.code == 0, "{answer:?}");
        let opened = watch.hears(&far.address.to_string(), &["SUCCEEDED"])?;
        let circuit = opened.split(' ').nth(3).context("no circuit")?;
        let status = control.info("circuit-status")?;
        let mut lines = status.lines();
        let line = lines.find(|line| line.starts_with(&format!("{circuit} ")));
        let line = line.context("no circuit of this number")?;
        if !line.contains("CONFLUX_ID=") {
            break (user, answer, line.to_owned());
        }
        drop(answer);
        watch.hears(&far.address.to_string(), &["CLOSED"])?;
    };
    let path = line.split(' ').nth(2).context("no path")?;
    let guard = path.split(',').next().and_then(|hop| hop.split_once('~'));
    let (_, guard) = guard.context("no guard")?;
    eprintln!("{guard}, the guard of {path}, disappears");
    net.up.kill(guard)?;
    let (rest, _) = read_to_end(&mut answer.stream)?;
    ensure!(rest.is_empty());
    watch.hears(&far.address.to_string(), &["CLOSED", "REASON=DESTROY"])?;
    net.bystander(&user, 300_000)?;
    net.bystander("another", 300_000)?;
    until("the guard to count as unreachable", || {
        let guards = net.client()?.controller()?.info("entry-guards")?;
        let lost = guards.lines().find(|line| line.contains(guard));
        Ok(lost.is_none_or(|line| !line.ends_with(" up")))
    })?;
    ensure!(net.up.client(CLIENT)?.node().pid().is_some());
    Ok(())
}
