//! Two relays in one process (`weft -f A -f B`), each a client as well, in a network of C tor.

mod private_network {
    use std::fs;
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpStream};
    use std::path::{Path, PathBuf};
    use std::process::{Child, Command, ExitStatus, Stdio};
    use std::sync::PoisonError;
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    use anyhow::{Context as _, Result, bail, ensure};
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;
    use weft_testnet::control::{Attacher, Fingerprint};
    use weft_testnet::traffic::{Direction, Request, transfer};
    use weft_testnet::up::{Kind, Plan, Up};

    use crate::networks::private_network::TURN;

    const PATIENCE: Duration = Duration::from_secs(120);
    const NAMES: [&str; 2] = ["left", "right"];

    /// The process. Killed when dropped.
    struct Both {
        child: Child,
        log: PathBuf,
    }

    impl Both {
        /// Starts it, in a folder of its own. `network`: the lines that every relay of the network has.
        fn start(folder: &Path, network: &str) -> Result<Both> {
            let log = folder.join("log");
            let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
            for name in NAMES {
                let data = folder.join(name);
                let torrc = folder.join(format!("{name}.torrc"));
                let text = format!(
                    "{network}Nickname {name}\nDataDirectory {}\nORPort 127.0.0.1:auto IPv4Only\nAddress 127.0.0.1\n\
                     AssumeReachable 1\nExtendAllowPrivateAddresses 1\nContactInfo {name}\nSocksPort 127.0.0.1:auto\nExitRelay 0\n\
                     ShutdownWaitLength 20\n",
                    data.display()
                );
                fs::write(&torrc, text)?;
                command.arg("-f").arg(torrc);
            }
            // Of the process: in one torrc.
            let torrc = folder.join("right.torrc");
            let text = fs::read_to_string(&torrc)?;
            let process = "ConnectionThreads 2\nUseAllThreads 1\nNumCPUs 1\nMetricsPort 127.0.0.1:auto\n\
                           MetricsPortPolicy accept 127.0.0.1\n";
            fs::write(&torrc, format!("{text}{process}"))?;
            fs::write(folder.join("defaults"), "")?;
            let child = command
                .arg("--defaults-torrc")
                .arg(folder.join("defaults"))
                .stdin(Stdio::null())
                .stdout(fs::File::create(&log)?)
                .spawn()?;
            Ok(Both { child, log })
        }

        fn log(&self) -> String {
            fs::read_to_string(&self.log).unwrap_or_default()
        }

        /// Waits for so many lines with these words; the first of them.
        fn wait_for(&self, words: &str, count: usize) -> Result<String> {
            until(&format!("{count} lines with {words:?}"), || {
                let log = self.log();
                let mut lines = log.lines().filter(|line| line.contains(words));
                let first = lines.next().map(str::to_owned);
                Ok(first.filter(|_| lines.count() + 1 >= count))
            })
            .with_context(|| self.log())
        }

        fn signal(&self, signal: Signal) -> Result<()> {
            Ok(kill(
                Pid::from_raw(i32::try_from(self.child.id())?),
                signal,
            )?)
        }

        /// The port of this kind that was opened.
        fn port(&self, kind: &str) -> Result<SocketAddr> {
            let words = format!("{kind} listener connection (ready) on ");
            let line = self.wait_for(&words, 1)?;
            let (_, at) = line.split_once(&words).context("no address")?;
            Ok(at.trim().parse()?)
        }

        /// What the MetricsPort answers.
        fn metrics(&self) -> Result<String> {
            let mut stream = TcpStream::connect(self.port("Opened Metrics")?)?;
            stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            Ok(text)
        }

        /// Waits for its end.
        fn end(&mut self) -> Result<ExitStatus> {
            until("the process has ended", || Ok(self.child.try_wait()?))
        }
    }

    impl Drop for Both {
        fn drop(&mut self) {
            // Both fail when it has ended, which is what is wanted.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    /// Asks until there is an answer.
    fn until<T>(what: &str, mut ask: impl FnMut() -> Result<Option<T>>) -> Result<T> {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(answer) = ask()? {
                return Ok(answer);
            }
            ensure!(Instant::now() < end, "it never came: {what}");
            sleep(Duration::from_millis(200));
        }
    }

    /// The bytes that an identity's links have read.
    fn bytes_read(metrics: &str, name: &str) -> Result<f64> {
        let sample = format!("tor_relay_traffic_bytes{{direction=\"read\",identity=\"{name}\"}} ");
        let mut values = metrics
            .lines()
            .filter_map(|line| line.strip_prefix(&*sample));
        Ok(values.next().context(sample.clone())?.trim().parse()?)
    }

    /// Who this relay is.
    fn fingerprint(folder: &Path, name: &str) -> Result<Fingerprint> {
        let text = fs::read_to_string(folder.join(name).join("fingerprint"))?;
        let (_, digits) = text.trim().split_once(' ').context("no fingerprint")?;
        Fingerprint::parse(digits)
    }

    #[test]
    fn a_client_of_c_tor_goes_through_both_relays_of_one_process_which_are_clients_as_well() {
        const BYTES: u64 = 2_000_000;
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let run = || -> Result<()> {
            let mut network = Up::start(&Plan {
                relays: 2,
                relays_run: Kind::Tor,
                exits: 1,
                exits_run: Kind::Tor,
                clients_run: Kind::Tor,
                authority: Kind::Tor,
                progress: |line| eprintln!("{line}"),
                ..Plan::of_weft(PathBuf::from(env!("CARGO_BIN_EXE_weft")))
            })?;
            let relay = network.relay_nodes().next().context("no relay")?;
            let torrc = fs::read_to_string(relay.torrc())?;
            let common = ["TestingTorNetwork ", "AddressDisableIPv6 ", "DirAuthority "];
            let lines = torrc.lines();
            let lines = lines.filter(|line| common.iter().any(|name| line.starts_with(name)));
            let common: String = lines.map(|line| format!("{line}\n")).collect();
            let folder = tempfile::tempdir()?;
            let mut both = Both::start(folder.path(), &common)?;
            let client = network.client("client0")?;
            let mut control = client.controller()?;
            // The client has a consensus that lists both, and their descriptors.
            for name in NAMES {
                until(&format!("{name} is listed"), || {
                    let known = control.info(&format!("ns/name/{name}"));
                    let known = known.is_ok_and(|text| text.contains("Running"));
                    Ok((known && control.info(&format!("md/name/{name}")).is_ok()).then_some(()))
                })
                .with_context(|| both.log())?;
            }
            // An exit refuses streams that come from a relay that it does not know.
            let exit = network.node("exit0")?;
            until("the exit knows both", || {
                Ok(exit.knows(&NAMES).then_some(()))
            })?;
            control.command("SETCONF __LeaveStreamsUnattached=1")?;
            let attacher = Attacher::with(client.controller()?)?;
            let exit = Fingerprint::parse(&network.fingerprint("exit0")?)?;
            let [left, right] = NAMES;
            for (turn, [entry, middle]) in [[left, right], [right, left]].into_iter().enumerate() {
                let path = vec![
                    fingerprint(folder.path(), entry)?,
                    fingerprint(folder.path(), middle)?,
                    exit.clone(),
                ];
                let built = control
                    .build_circuits(&[path])
                    .with_context(|| both.log())?;
                let user = built.first().context("no circuit")?.to_string();
                let before = both.metrics()?;
                for (seed, direction) in [(7, Direction::Down), (8, Direction::Up)] {
                    let request = Request {
                        direction,
                        bytes: BYTES,
                        seed,
                    };
                    let far = network.server().address();
                    transfer(client.socks(), &user, far, request)
                        .with_context(|| format!("{:?}", attacher.troubles()))?;
                }
                let after = until("the circuit's bytes are counted", || {
                    let after = both.metrics()?;
                    let mut all = true;
                    for name in NAMES {
                        // What went down and what went up.
                        let moved = bytes_read(&after, name)? - bytes_read(&before, name)?;
                        all &= moved > 2.0 * BYTES as f64;
                    }
                    Ok(all.then_some(after))
                })?;
                eprintln!(
                    "{entry}, {middle}: {} and {} bytes read",
                    bytes_read(&after, entry)?,
                    bytes_read(&after, middle)?
                );
                // Each reads its torrc again, and goes on.
                both.signal(Signal::SIGHUP)?;
                for name in NAMES {
                    both.wait_for(&format!("{name}: Received reload signal"), turn + 1)?;
                }
            }
            // Each has a client of its own, and both carry bytes at once.
            let far = network.server().address();
            std::thread::scope(|scope| {
                let carries = |(seed, name)| {
                    let socks = both.port(&format!("{name}: Opened Socks"))?;
                    for direction in [Direction::Down, Direction::Up] {
                        let request = || Request {
                            direction,
                            bytes: BYTES,
                            seed,
                        };
                        until(&format!("{name} carries bytes"), || {
                            let moved = transfer(socks, name, far, request());
                            Ok(moved.inspect_err(|why| eprintln!("{name}: {why:#}")).ok())
                        })?;
                    }
                    Ok::<_, anyhow::Error>(())
                };
                let running = (9..)
                    .zip(NAMES)
                    .map(|one| scope.spawn(move || carries(one)));
                let running: Vec<_> = running.collect();
                let mut ended = running.into_iter().map(|one| one.join());
                ended.try_for_each(|result| result.unwrap_or_else(|_| bail!("it panicked")))
            })
            .with_context(|| both.log())?;
            both.signal(Signal::SIGINT)?;
            // Who is connected has some time; a second one ends that.
            for name in NAMES {
                both.wait_for(&format!("{name}: Interrupt: we have stopped"), 1)?;
            }
            both.signal(Signal::SIGINT)?;
            let status = both.end()?;
            let log = both.log();
            ensure!(status.success(), "{status}: {log}");
            for name in NAMES {
                ensure!(log.contains(&format!("{name}: Exiting.")), "{log}");
            }
            let complaints: Vec<_> = log
                .lines()
                .filter(|line| line.contains("[err]") || line.contains("panicked"))
                .collect();
            ensure!(complaints.is_empty(), "{complaints:#?}");
            drop((control, attacher));
            network.check()?;
            network.stop()
        };
        run().unwrap_or_else(|error| panic!("{error:#}"));
    }
}
