//! The experiment in virtual time: each cell a network of its own, in this process.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use weft_model::traffic::Record;
use weft_testnet::overlay::place::{Role, find};
use weft_virtual::{Files, World};

use super::options::Options;
use super::plan::Network;
use super::results::{Cell, Client, Results, Testbed};
use super::scenario::{Arm, Scenario, Traffic};
use crate::experiment::{Progress, Session};
use crate::jobs::{Jobs, Meter};

/// Clients have built their circuits by then.
const SETTLE: Duration = Duration::from_secs(10);
/// From the order to build new circuits to the first stream. Circuits are nearly always ready by then. A longer pause
/// would make TCP shrink its windows.
const RENEWAL: Duration = Duration::from_secs(1);
/// Virtual time that the world runs between checks for Ctrl-C.
const SLICE: Duration = Duration::from_millis(100);

/// One cell.
#[derive(Clone, Debug)]
struct Task {
    number: usize,
    network: Network,
    cell: (Scenario, Traffic),
    /// Build times of its circuits are kept.
    has_builds: bool,
}

/// The results of one cell.
struct Measured {
    cell: Cell,
    records: Vec<Record>,
    builds: Vec<Duration>,
}

/// Measures all cells, as many at once as this machine has cores.
///
/// # Errors
///
/// Results cannot be kept. A cell that cannot be measured is among the results, with the reason.
pub(super) fn cci(options: &Options, session: &mut Session<'_>) -> Result<Results> {
    let mut tasks = Vec::new();
    for network in options.choice.networks() {
        for (place, &cell) in network.cells.iter().enumerate() {
            tasks.push(Task {
                number: tasks.len(),
                network: network.clone(),
                cell,
                has_builds: place == 0,
            });
        }
    }
    let mut results = Results {
        seed: options.seed,
        seconds: options.cell.as_secs_f64(),
        warm_up_s: options.warm_up.as_secs_f64(),
        repetitions: options.choice.repetitions,
        testbed: Testbed::Virtual,
        ..Results::empty(session, None)
    };
    let stop = session.stop();
    let jobs = Jobs {
        jobs: &tasks,
        duration: SETTLE + options.warm_up + RENEWAL + options.cell,
        threads: thread::available_parallelism().map_or(1, NonZeroUsize::get),
        stop: &stop,
    };
    let mut done: BTreeMap<usize, (Task, Result<Measured>)> = BTreeMap::new();
    let mut kept = Instant::now();
    jobs.run(
        |task, meter| measure(options, task, meter),
        |clock, finished| {
            if let Some((task, outcome)) = finished {
                done.insert(task.number, (task, outcome));
                if kept.elapsed() > SETTLE {
                    gather(&mut results, &done);
                    session.keep(&results)?;
                    kept = Instant::now();
                }
            }
            session.progress(&Progress {
                done: clock.done(),
                step: format!("{} of {} cells done", clock.finished, tasks.len()),
                detail: format!(
                    "{:.0} of {:.0} s of virtual time",
                    clock.at.as_secs_f64(),
                    clock.whole.as_secs_f64()
                ),
            });
            Ok(())
        },
    )?;
    // A job that Ctrl-C interrupted is no failure.
    let is_whole = |(_, outcome): &(Task, Result<Measured>)| outcome.is_ok();
    if stop.is_requested() {
        done.retain(|_, one| is_whole(one));
    }
    gather(&mut results, &done);
    results.finished = !stop.is_requested();
    Ok(results)
}

/// Puts what there is into the results, in the order of cells.
fn gather(results: &mut Results, done: &BTreeMap<usize, (Task, Result<Measured>)>) {
    results.runs.clear();
    results.builds.clear();
    results.records.clear();
    for (task, outcome) in done.values() {
        match outcome {
            Ok(measured) => {
                results.runs.push(measured.cell.clone());
                let run = results.runs.len() - 1;
                results.add_records(run, measured.records.clone());
                results.add_builds(&task.network, &measured.builds);
            }
            Err(error) => {
                let why = format!("{error:#}");
                let failed = Cell::failed(&task.network, task.cell, &why);
                results.runs.push(failed);
            }
        }
    }
    results.sum_up();
}

/// Runs one cell.
fn measure(options: &Options, task: &Task, meter: &Meter<'_>) -> Result<Measured> {
    let (scenario, traffic) = task.cell;
    let topology = options.links(scenario)?;
    let mut files = Files::default();
    files.insert(TOPOLOGY, topology.to_string().into_bytes());
    let text = scenario_text(&topology, &task.network, traffic, options)?;
    let parsed = weft_virtual::Scenario::parse("cci", &text)?;
    let setup = parsed.setup(&files, 0, task.network.repetition, options.seed)?;
    let mut world = World::new(setup, Instant::now());
    let run = |world: &mut World, until: Duration| -> Result<()> {
        let mut at = world.now();
        while at < until {
            ensure!(!meter.is_stopped(), "it was stopped");
            at = until.min(at + SLICE);
            world.run_until(at);
            meter.at(at);
        }
        Ok(())
    };
    run(&mut world, SETTLE)?;
    let mut builds = Vec::new();
    if task.has_builds {
        builds = world.build_times();
        builds.truncate(options.circuits);
    }
    let mut begin = SETTLE;
    if !options.warm_up.is_zero() {
        run(&mut world, SETTLE + options.warm_up)?;
        world.restart(RENEWAL);
        begin += options.warm_up + RENEWAL;
    }
    run(&mut world, begin + options.cell)?;
    let sockets = world.sockets();
    let mut records = world.into_results().streams;
    if options.warm_up.is_zero() {
        // Users began when circuits were there.
        for record in &mut records {
            record.started = record.started.saturating_sub(begin);
        }
    }
    let places = find(&topology)?;
    let hosts = places.iter().filter(|place| place.role == Role::Client);
    let users = traffic.users(hosts.map(|place| place.host.as_str()));
    let clients = users.iter().map(|user| {
        let own = records.iter().filter(|record| record.client == user.host);
        Client::of(&user.host, &user.model_name, own, options.cell)
    });
    let cell = Cell {
        clients: clients.collect(),
        bytes: records.iter().map(|record| record.times.down.bytes).sum(),
        relays_sockets: Some(sockets as u64),
        ..Cell::new(&task.network, task.cell)
    };
    Ok(Measured {
        cell,
        records,
        builds,
    })
}

/// The file of the topology.
const TOPOLOGY: &str = "topology.toml";

/// The scenario of a cell: what runs on the hosts of its topology.
fn scenario_text(
    topology: &weft_model::links::Topology,
    network: &Network,
    traffic: Traffic,
    options: &Options,
) -> Result<String> {
    let places = find(topology)?;
    let whole = SETTLE + options.warm_up + RENEWAL + options.cell;
    let mut text = format!(
        "duration = \"{} s\"\ncongestion_control = {}\n[network]\ntopology = \"{TOPOLOGY}\"\n\
         [[arm]]\nname = \"{}\"\nconnection_per_circuit = \"{}\"\n",
        whole.as_secs_f64(),
        network.congestion_control,
        network.arm,
        match network.arm {
            Arm::Tor | Arm::Weft => "0",
            Arm::WeftPctls => "1",
            Arm::WeftAuto => "auto",
        },
    );
    let clients = places.iter().filter(|place| place.role == Role::Client);
    let users = traffic.users(clients.map(|place| place.host.as_str()));
    for place in &places {
        let host = &place.host;
        let added = match place.role {
            Role::Entry => write!(text, "[[relay]]\nhost = \"{host}\"\nroles = [\"guard\"]\n"),
            Role::Middle => write!(text, "[[relay]]\nhost = \"{host}\"\n"),
            Role::Exit => write!(text, "[[relay]]\nhost = \"{host}\"\nroles = [\"exit\"]\n"),
            Role::Server => write!(text, "[[servers]]\nhosts = [\"{host}\"]\n"),
            Role::Client => {
                let user = users.iter().find(|user| user.host == *host);
                let model = &user.context("a client without a user")?.model_name;
                let entry = place
                    .entry
                    .as_deref()
                    .context("a client without an entry")?;
                write!(
                    text,
                    "[[clients]]\nhosts = [\"{host}\"]\nentry = \"{entry}\"\nmodel = \"{model}\"\nstart = \"{} s\"\n",
                    SETTLE.as_secs()
                )
            }
            Role::Authority => Ok(()),
        };
        added.context("writing a scenario")?;
    }
    Ok(text)
}
