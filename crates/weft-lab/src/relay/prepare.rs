//! Preparation of a run: the options checked, the sizes of everything, the target, an empty report.

use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use weft_testnet::ports::Port;
use weft_testnet::process::Usage;

use super::aim::Peer;
use super::capacity::{P99, RESOLUTION, STEPS};
use super::mode::Mode;
use super::options::{CIRCUITS, LINKS, Options, RATE, Target, WINDOW, is_private};
use super::program::Program;
use super::report::{Load, PAYLOAD_PER_CELL, Report, SCHEMA, Target as ReportTarget};
use super::start::Running;
use super::{live, pin, start};
use crate::args::LASTS;

/// Numbers of links, circuits and threads.
pub(super) struct Sizes {
    /// Links of ours to the target.
    pub(super) origins: usize,
    /// Links of the target's to us.
    pub(super) hops: usize,
    pub(super) circuits: usize,
    /// Of the generator.
    pub(super) threads: usize,
    /// The target is a bare pipe.
    pub(super) is_pipe: bool,
}

impl Sizes {
    /// Checks the options.
    pub(super) fn of(options: &Options) -> Result<Sizes> {
        let (origins, hops) = sides(options)?;
        let circuits = match options.mode {
            Mode::Cells | Mode::IdleCircuits => options.circuits,
            Mode::Onionskins | Mode::Links | Mode::IdleLinks => 0,
        };
        if let Target::Relay(aim, _) = &options.target {
            ensure!(
                is_private(aim.address),
                "{} is a public address: this puts a heavy load on a relay, so use it on a relay \
                 of your own, on loopback or in a private network",
                aim.address
            );
        }
        let is_pipe = matches!(options.target, Target::Start(Program::Pipe(_)));
        ensure!(
            !is_pipe || matches!(options.mode, Mode::Cells),
            "a bare pipe knows cells only: use --mode cells"
        );
        let counts = matches!(options.target, Target::Start(Program::Weft(..)));
        ensure!(
            !options.counters || counts,
            "--counters are those of a weft that is started: use --target weft"
        );
        let is_cells = options.mode == Mode::Cells;
        let is_relay = matches!(
            options.target,
            Target::Start(Program::Weft(..) | Program::Tor(_))
        );
        ensure!(
            options.workers.is_none() || is_relay,
            "--workers are those of a weft or tor that is started: use --target weft or tor"
        );
        ensure!(
            options.live.is_none() || is_cells,
            "--load live-… is a load of cells: use --mode cells"
        );
        if let Some(capacity) = &options.capacity {
            ensure!(
                is_cells,
                "--capacity looks for a rate of cells: use --mode cells"
            );
            P99.check("p99 bound", capacity.p99_ms)?;
            STEPS.check("capacity steps", capacity.steps)?;
            RESOLUTION.check("resolution", capacity.resolution)?;
        }
        // A pipe has one place to connect to, which belongs to one world.
        let mut threads = match is_pipe {
            true => 1,
            false => options.threads.max(1).min(origins),
        };
        if circuits > 0 {
            threads = threads.min(hops).min(circuits);
        }
        Ok(Sizes {
            origins,
            hops,
            circuits,
            threads,
            is_pipe,
        })
    }
}

/// Starts the program that is measured, or finds the one that runs.
pub(super) fn start_target(
    options: &Options,
    next_hop: Option<SocketAddr>,
    metrics: Option<&Port>,
) -> Result<(Option<Running>, Peer, Option<u32>)> {
    let mut torrc = start::MIDDLE.to_owned();
    if options.live.is_some() {
        torrc += live::TORRC;
    }
    if let Some(workers) = options.workers {
        torrc += &format!("NumCPUs {workers}\n");
    }
    if let Some(port) = metrics {
        torrc += &format!(
            "MetricsPort {}\nMetricsPortPolicy accept {}\n",
            port.address(),
            port.address().ip()
        );
    }
    // Programs started now inherit these processors; then we take our own.
    pin::this_thread(&options.target_cpus)?;
    let running = match &options.target {
        Target::Start(program) => Some(Running::start(
            program,
            next_hop,
            options.patience,
            &torrc,
            None,
            |_| Ok(()),
        )?),
        Target::Relay(..) => None,
    };
    pin::this_thread(&options.generator_cpus)?;
    let (peer, pid) = match (&running, &options.target) {
        (Some(running), _) => (running.peer, Some(running.pid())),
        (None, Target::Relay(aim, pid)) => {
            if let Some(pid) = pid {
                pin::process(*pid, &options.target_cpus)?;
                Usage::of(*pid).with_context(|| format!("there is no process {pid}"))?;
            }
            (Peer::Relay(*aim), *pid)
        }
        (None, Target::Start(_)) => bail!("the target was not started"),
    };
    Ok((running, peer, pid))
}

/// A report without what is to be measured.
pub(super) fn empty_report(
    options: &Options,
    sizes: &Sizes,
    peer: Peer,
    pid: Option<u32>,
    window: u64,
) -> Result<Report> {
    let program = match &options.target {
        Target::Start(program) => Some(program),
        Target::Relay(..) => None,
    };
    Ok(Report {
        schema: SCHEMA,
        started_at_s: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs()),
        target: ReportTarget {
            kind: program.map_or("attached", Program::kind).to_owned(),
            version: program.and_then(Program::version),
            threads: match program {
                Some(Program::Weft(_, threads)) => *threads,
                _ => None,
            },
            address: peer.address().to_string(),
            pid,
            cpus: options.target_cpus.clone(),
        },
        load: Load {
            mode: options.mode.name().to_owned(),
            live: options.live.map(|preset| preset.name().to_owned()),
            circuit_life_s: None,
            direction: options.direction.name().to_owned(),
            circuits: sizes.circuits,
            origin_links: sizes.origins,
            next_hop_links: sizes.hops,
            window: usize::try_from(window)?,
            rate_cells_per_s: options.rate,
            warm_up_s: options.warm_up.as_secs_f64(),
            seconds: options.seconds.as_secs_f64(),
            payload_bytes_per_cell: PAYLOAD_PER_CELL,
            generator_threads: sizes.threads,
            generator_cpus: options.generator_cpus.clone(),
        },
        ..Report::default()
    })
}

/// Numbers of links on each side. Checks the numbers of the options, too.
fn sides(options: &Options) -> Result<(usize, usize)> {
    LINKS.check("links", options.links)?;
    CIRCUITS.check("circuits", options.circuits)?;
    LASTS.check("seconds", options.seconds)?;
    options
        .rate
        .map(|rate| RATE.check("rate", rate))
        .transpose()?;
    let window = options.window;
    window
        .map(|cells| WINDOW.check("window", cells))
        .transpose()?;
    match options.mode {
        Mode::Cells | Mode::IdleCircuits => {
            ensure!(
                options.links > 1,
                "circuits need at least two links: one to the target, one from it"
            );
            Ok(match options.live {
                Some(preset) => preset.sides(options.links),
                None => (options.links.div_ceil(2), options.links / 2),
            })
        }
        Mode::Onionskins | Mode::Links | Mode::IdleLinks => Ok((options.links, 0)),
    }
}
