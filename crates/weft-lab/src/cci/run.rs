//! The experiment itself: one network after another, and the cells in each.

use std::time::Duration;

use anyhow::{Context as _, Result};
use weft_load::flows::overlay::{drive, serve};
use weft_model::traffic::Record;
use weft_testnet::net;
use weft_testnet::network::Program;
use weft_testnet::overlay::{Cast, Overlay};
use weft_testnet::stop::Stop;

use super::options::Options;
use super::plan::Network;
use super::results::{Cell, Client, Results};
use super::scenario::{Arm, Scenario, Traffic, consensus_params};
use crate::experiment::{Progress, Session};

/// Failed starts in a row that end the experiment: the next network would not start either.
const FAILURES: usize = 3;

/// Approximate duration of a network's start, for the estimate of the remaining time.
const START: Duration = Duration::from_secs(12);

/// Measures all cells, and keeps the results after each network.
///
/// # Errors
///
/// Results cannot be kept. A cell that cannot be measured is among the results, with the reason.
pub(super) fn cci(options: &Options, session: &mut Session<'_>) -> Result<Results> {
    let networks = options.choice.networks();
    let mut results = Results {
        seed: options.seed,
        seconds: options.cell.as_secs_f64(),
        warm_up_s: options.warm_up.as_secs_f64(),
        repetitions: options.choice.repetitions,
        ..Results::empty(session, Some(&options.weft))
    };
    let mut clock = Clock::new(options, &networks);
    let mut failures = 0;
    for network in &networks {
        if session.stop().is_requested() {
            return Ok(results);
        }
        let before = results.runs.len();
        let outcome = one_network(options, network, session, &mut results, &mut clock);
        if session.stop().is_requested() {
            // An interrupted network is no failure.
            results.sum_up();
            session.keep(&results)?;
            return Ok(results);
        }
        match outcome {
            Ok(()) => failures = 0,
            Err(error) => {
                let why = format!("{error:#}");
                session.note(&format!("{}: {why}", in_words(network)));
                let measured = results.runs.len() - before;
                let missing = network.cells.iter().skip(measured);
                let missing = missing.map(|&cell| Cell::failed(network, cell, &why));
                results.runs.extend(missing);
                failures = if measured == 0 { failures + 1 } else { 0 };
            }
        }
        results.sum_up();
        session.keep(&results)?;
        if failures == FAILURES {
            session.note(&format!(
                "{FAILURES} networks in a row did not start: giving up"
            ));
            return Ok(results);
        }
    }
    results.finished = true;
    Ok(results)
}

fn in_words(network: &Network) -> String {
    let control = match network.congestion_control {
        true => "with",
        false => "without",
    };
    format!(
        "repetition {}, {} {control} congestion control, links of {}",
        network.repetition, network.arm, network.links
    )
}

/// Progress of the whole.
struct Clock {
    whole: Duration,
    done: Duration,
}

impl Clock {
    fn new(options: &Options, networks: &[Network]) -> Clock {
        let cells = networks.iter().flat_map(Network::turns);
        let cells: Duration = cells.map(|(_, is_new)| takes(options, is_new)).sum();
        let starts = u32::try_from(networks.len()).unwrap_or(u32::MAX);
        Clock {
            whole: cells.saturating_add(START.saturating_mul(starts)),
            done: Duration::ZERO,
        }
    }

    fn progress(&self, session: &mut Session<'_>, step: String, detail: String) {
        session.progress(&Progress {
            done: self.done.as_secs_f64() / self.whole.as_secs_f64().max(1e-9),
            step,
            detail,
        });
    }
}

/// Duration of a cell; `is_new`: it is the first of its scenario.
fn takes(options: &Options, is_new: bool) -> Duration {
    match is_new {
        true => options.cell.saturating_add(options.warm_up),
        false => options.cell,
    }
}

fn cast(options: &Options, network: &Network) -> Result<Cast> {
    let weft = Program::weft(&options.weft, None)?;
    let program = match network.arm {
        Arm::Tor => Program::tor_of_its_own()?,
        Arm::Weft | Arm::WeftPctls | Arm::WeftAuto => weft.clone(),
    };
    Ok(Cast {
        program,
        weft,
        relays: network.arm.torrc(),
        clients: network.arm.torrc(),
        params: consensus_params(network.congestion_control),
    })
}

/// Starts a network and measures its cells.
fn one_network(
    options: &Options,
    network: &Network,
    session: &mut Session<'_>,
    results: &mut Results,
    clock: &mut Clock,
) -> Result<()> {
    let step = in_words(network);
    clock.progress(session, step.clone(), "starting".to_owned());
    let stop = session.stop();
    let testbed = net::Options {
        name: Some("cci".to_owned()),
        seed: options.seed,
    };
    let links = options.links(network.links)?;
    let cast = cast(options, network)?;
    let mut overlay = Overlay::start(&links, &testbed, &cast, options.patience, &stop)?;
    // Ends before the network.
    let _server = serve(&overlay)?;
    clock.done += START;
    let first = overlay.client_hosts().next().map(str::to_owned);
    let times = overlay.build_times(&first.context("no client")?, options.circuits)?;
    results.add_builds(network, &times);
    for (cell, is_new) in network.turns() {
        let (scenario, traffic) = cell;
        clock.progress(session, step.clone(), format!("{scenario}, {traffic}"));
        let seed = options
            .seed
            .wrapping_add(u64::from(network.repetition) << 32);
        if is_new {
            prepare(options, &mut overlay, cell, seed, &stop)?;
        }
        let (cell, records) = one_cell(options, network, &overlay, cell, seed, &stop)?;
        if stop.is_requested() {
            return Ok(());
        }
        overlay.check()?;
        results.runs.push(cell);
        results.add_records(results.runs.len() - 1, records);
        clock.done += takes(options, is_new);
    }
    Ok(())
}

/// Gives the links the settings of a scenario, and lets TCP and circuits get used to them: the same traffic for a
/// while, then new circuits.
fn prepare(
    options: &Options,
    overlay: &mut Overlay,
    (scenario, traffic): (Scenario, Traffic),
    seed: u64,
    stop: &Stop,
) -> Result<()> {
    overlay.change(options.links(scenario)?)?;
    if options.warm_up.is_zero() {
        return Ok(());
    }
    let users = traffic.users(overlay.client_hosts());
    drive(overlay, &users, options.warm_up, seed.wrapping_add(1), stop)?;
    overlay.renew_circuits(options.patience, stop)
}

/// Measures one cell.
fn one_cell(
    options: &Options,
    network: &Network,
    overlay: &Overlay,
    (scenario, traffic): (Scenario, Traffic),
    seed: u64,
    stop: &Stop,
) -> Result<(Cell, Vec<Record>)> {
    let users = traffic.users(overlay.client_hosts());
    let (before, links_before) = (overlay.load()?, overlay.testbed().snapshot()?);
    let records = drive(overlay, &users, options.cell, seed, stop)?;
    let (after, links_after) = (overlay.load()?, overlay.testbed().snapshot()?);
    let bytes: u64 = records.iter().map(|record| record.times.down.bytes).sum();
    let cpu = after.cpu.saturating_sub(before.cpu);
    let delivered = links_after.totals.delivered - links_before.totals.delivered;
    let late = links_after.lateness.late_packets - links_before.lateness.late_packets;
    let clients = users.iter().map(|user| {
        let own = records.iter().filter(|record| record.client == user.host);
        Client::of(&user.host, &user.model_name, own, options.cell)
    });
    let cell = Cell {
        clients: clients.collect(),
        relays_cpu_s: Some(cpu.as_secs_f64()),
        bytes,
        relays_rss_bytes: Some(after.rss),
        relays_sockets: Some(after.sockets),
        emulator_cpu_s: Some((links_after.cpu.saturating_sub(links_before.cpu)).as_secs_f64()),
        late_packets_share: Some(late as f64 / delivered.max(1) as f64),
        ..Cell::new(network, (scenario, traffic))
    };
    Ok((cell, records))
}
