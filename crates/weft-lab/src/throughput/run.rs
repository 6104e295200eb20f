//! The experiment itself: the network, and the runs in it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use weft_load::bulk::{Circuits, Place};
use weft_testnet::network::{Config, Network, Program, Target, TargetOptions};
use weft_testnet::ports::Port;
use weft_testnet::process::Usage;

use super::meter::Meter;
use super::options::Options;
use super::results::{Results, Run, SCHEMA, StreamTimes};
use super::streams::{self, Load, Sink};
use super::which::Which;
use crate::experiment::{Progress, Session, rotating_turns};
use crate::relay::pin;

/// Failures in a row that end the experiment: the next run would fail, too.
const FAILURES: usize = 3;

/// Seconds from one consensus to the next, as in Engler and Goldberg 2021, 5.2.
const VOTING_INTERVAL: u32 = 40;

/// Makes the runs, and keeps the results after each.
///
/// # Errors
///
/// The network does not start. A run that fails is among the results.
pub(super) fn throughput(options: &Options, session: &mut Session<'_>) -> Result<Results> {
    let mut runner = Runner::start(options, session)?;
    runner.perform(session)?;
    Ok(runner.results)
}

/// Additional lines of a target's torrc.
fn torrc(metrics: &Port) -> Vec<String> {
    vec![
        format!("MetricsPort {}", metrics.address()),
        "MetricsPortPolicy accept 127.0.0.1".to_owned(),
        // No rate that matters. Bytes on loopback count as any others in testing networks.
        "BandwidthRate 2000 MBytes".to_owned(),
        "BandwidthBurst 2000 MBytes".to_owned(),
        // As in Engler and Goldberg 2021, 5.2: the directory of so restless a network is no part of this.
        "DirCache 0".to_owned(),
    ]
}

struct Runner<'a> {
    options: &'a Options,
    network: Network,
    /// The targets' MetricsPorts.
    metrics: Vec<(Which, Port)>,
    results: Results,
}

impl<'a> Runner<'a> {
    fn start(options: &'a Options, session: &mut Session<'_>) -> Result<Runner<'a>> {
        weft_testnet::process::raise_file_limit();
        let sizes = options.sizes;
        let machine = session.machine();
        let versions = session.versions(Some(&options.weft));
        let mut metrics = Vec::new();
        let mut targets = Vec::new();
        for which in &options.targets {
            let port = Port::reserve()?;
            let target = Target::new(&which.nickname(), options.program(*which)?);
            targets.push(target.options(TargetOptions {
                more: torrc(&port),
                ..TargetOptions::default()
            }));
            metrics.push((*which, port));
        }
        let config = Config {
            guards: sizes.entries,
            exits: sizes.exits,
            clients: sizes.clients,
            relays: match options.weft_around {
                true => Some(Program::weft(&options.weft, None)?),
                false => None,
            },
            voting_interval: VOTING_INTERVAL,
            stop: session.stop(),
            patience: Duration::from_secs(180) + Duration::from_secs(1) * sizes.nodes() as u32,
            ..Config::default()
        };
        // Nodes inherit the processors of the thread that starts them.
        pin::this_thread(&options.other_cpus)?;
        let network = Network::start(config, targets)?;
        Ok(Runner {
            options,
            network,
            metrics,
            results: Results {
                schema: SCHEMA,
                started_at: session.started_at().to_owned(),
                finished: false,
                machine,
                versions,
                scale: options.scale,
                setting: options.setting.clone(),
                sizes,
                targets: options.targets.clone(),
                repetitions: options.repetitions,
                seed: options.seed,
                weft_around: options.weft_around,
                asked: options.rule,
                rule: options.rule,
                summaries: Vec::new(),
                runs: Vec::new(),
            },
        })
    }

    fn perform(&mut self, session: &mut Session<'_>) -> Result<()> {
        let stop = session.stop();
        let targets = &self.options.targets;
        let mut failures = 0;
        for turn in rotating_turns(self.options.repetitions, targets.len()) {
            let Some(target) = targets.get(turn.subject).copied() else {
                continue;
            };
            if stop.is_requested() {
                return Ok(());
            }
            let mut progress = Progress {
                done: turn.done(),
                step: format!("run {} of {}: {target}", turn.number, turn.of),
                detail: String::new(),
            };
            session.progress(&progress);
            let run = self.one(target, turn.repetition, stop.flag(), &mut |fraction| {
                progress.done = turn.done() + fraction / turn.of as f64;
                progress.detail = format!("{:.0} %", fraction * 100.0);
                session.progress(&progress);
            });
            match &run.failure {
                None => failures = 0,
                Some(why) => {
                    failures += 1;
                    session.note(&format!("{target}, repetition {}: {why}", turn.repetition));
                }
            }
            self.results.runs.push(run);
            self.results.sum_up();
            session.keep(&self.results)?;
            if failures == FAILURES {
                session.note(&format!(
                    "{FAILURES} runs in a row failed: the experiment ends here"
                ));
                return Ok(());
            }
        }
        self.results.finished = true;
        session.keep(&self.results)
    }

    /// One run; what goes wrong is in it.
    fn one(
        &mut self,
        target: Which,
        repetition: u32,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(f64),
    ) -> Run {
        let mut run = Run {
            target,
            repetition,
            failure: None,
            seconds: 0.0,
            bytes: Vec::new(),
            streams: Vec::new(),
            cpu_s: 0.0,
            busiest_thread_s: 0.0,
            peak_rss_bytes: 0,
            others_cpu_s: 0.0,
        };
        if let Err(error) = self.fill(&mut run, stop, progress) {
            run.failure = Some(format!("{error:#}"));
        }
        run
    }

    fn fill(
        &mut self,
        run: &mut Run,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(f64),
    ) -> Result<()> {
        let program = self.options.program(run.target)?;
        let nickname = run.target.nickname();
        let metrics = self.metrics.iter().find(|(which, _)| *which == run.target);
        let metrics = metrics
            .context("a target without a MetricsPort")?
            .1
            .address();
        self.network.restart(&nickname, program)?;
        let pid = self.network.target(&nickname)?.node().pid();
        let pid = pid.context("the target is not running")?;
        pin::process(pid, &self.options.target_cpus)?;
        let sizes = self.options.sizes;
        let load = Load {
            streams: sizes.circuits(),
            bytes: sizes.bytes_per_stream,
            seed: self.options.seed.wrapping_add(u64::from(run.repetition)),
        };
        let circuits = Circuits::build(&self.network, &nickname, Place::Middle, load.streams)?;
        let sink = Sink::start(load)?;
        let streams = streams::open(&circuits.proxies(), sink.address())
            .with_context(|| circuits.troubles())?;
        if stop.load(Ordering::SeqCst) {
            bail!("stopped");
        }

        let before = Moment::now(&self.network, &nickname)?;
        let zero = Instant::now();
        let meter = Meter::start(metrics, Some(pid), zero)?;
        let payload = sizes.payload() as f64;
        let sent = streams::send(streams, load, &sink, stop, &mut |arrived| {
            progress(arrived as f64 / payload);
        });
        let arrivals = sink.end(sent);
        run.seconds = zero.elapsed().as_secs_f64();
        // Also of a run that failed.
        run.bytes = meter.end()?;
        let arrivals = arrivals.with_context(|| circuits.troubles())?;
        let after = Moment::now(&self.network, &nickname)?;
        let since = |moment: Instant| moment.saturating_duration_since(zero).as_secs_f64();
        run.streams = arrivals
            .iter()
            .map(|one| StreamTimes {
                first_byte_s: since(one.first),
                last_byte_s: since(one.last),
            })
            .collect();
        run.seconds = run
            .streams
            .iter()
            .map(|one| one.last_byte_s)
            .fold(0.0, f64::max);
        let used = after.target.since(&before.target);
        run.cpu_s = used.cpu.as_secs_f64();
        let threads = used.threads.iter().map(|thread| thread.cpu.as_secs_f64());
        run.busiest_thread_s = threads.fold(0.0, f64::max);
        run.peak_rss_bytes = used.peak_rss;
        run.others_cpu_s = after.others.saturating_sub(before.others).as_secs_f64();
        Ok(())
    }
}

/// Usage until one moment.
struct Moment {
    target: Usage,
    /// Processor time of all other nodes that carry the streams, and of this program.
    others: Duration,
}

impl Moment {
    fn now(network: &Network, target: &str) -> Result<Moment> {
        let relays = network.guards().iter().chain(network.exits());
        let nodes = relays.map(|relay| relay.node());
        let nodes = nodes.chain(network.clients().iter().map(|client| client.node()));
        let mut others = Usage::of(std::process::id())?.cpu;
        for node in nodes {
            others += node.usage()?.cpu;
        }
        Ok(Moment {
            target: network.target(target)?.node().usage()?,
            others,
        })
    }
}
