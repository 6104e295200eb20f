//! Running what the figures show.

use std::sync::Arc;

use super::compare::{FIGURE7_MORE, FIGURE7_SERIES, per_client};
use super::{Cost, Document, Point, Results, SalsaError, SalsaOptions, What, paper};
use crate::full::{self, GuardRule};
use crate::links::Class;
use crate::links::count::Tally;
use crate::links::exits::Exits;
use crate::links::full::Full;
use crate::links::run::{Plan, run};
use crate::links::salsa::{Model, Salsa};
use crate::links::{CircuitKind, LinksError, Paths};
use crate::network::{Flags, Network};
use crate::random::seed_for;
use crate::sample::scaled;

/// The classes of Figure 5, in its order.
pub(super) const CLASSES: [(&str, Exits); 6] = [
    ("web", Exits::One(Class::Web)),
    ("mixture", Exits::MEASURED),
    ("BitTorrent base", Exits::One(Class::BitTorrentBase)),
    ("BitTorrent extended", Exits::One(Class::BitTorrentExtended)),
    ("other file-sharing", Exits::One(Class::FileSharing)),
    ("various", Exits::One(Class::Various)),
];

/// The models of Figure 11, in its order.
pub(super) const MODELS: [&str; 3] = [
    "simple (SALSA)",
    "full, guards drawn\nfor each circuit",
    "full, guards\nas TorPS",
];

/// The series of Figure 11.
const FIGURE11_SERIES: &str = "external, directed";

/// The four series of Figures 4 and 8.
const KINDS: [(&str, CircuitKind, bool); 4] = [
    ("external, directed", CircuitKind::External, true),
    ("external, undirected", CircuitKind::External, false),
    ("internal, directed", CircuitKind::Internal, true),
    ("internal, undirected", CircuitKind::Internal, false),
];

/// Where Figure 8 is measured: to twice the capacity.
const DEMANDS: [u64; 11] = [
    25_000, 50_000, 96_000, 150_000, 200_000, 250_000, 290_000, 350_000, 400_000, 500_000, 600_000,
];

/// The million of Table 2.
const MILLION: u64 = 1_000_000;

/// One series at one place.
#[derive(Clone)]
struct Cell {
    what: What,
    series: String,
    at: f64,
    model: Model,
    circuits: u64,
    directed: bool,
    /// Of the network and of the circuits.
    scale: f64,
}

/// Runs all figures over all documents. `progress` is called with the completed share of the work,
/// and the next step.
///
/// # Errors
///
/// No document, or one that circuits cannot be drawn from. Parts for which a document has no data
/// (classes of exits where it has no exit policies) are skipped and named in [`Results::left_out`].
pub fn measure(
    documents: &[Document],
    options: &SalsaOptions,
    progress: &mut dyn FnMut(f64, &str),
) -> Result<Results, SalsaError> {
    if documents.is_empty() {
        return Err(SalsaError::NoDocument);
    }
    let mut results = Results::default();
    let cells = cells();
    let parts = (documents.len() * (cells.len() + 2)) as f64;
    let mut done = 0.0;
    // Memory is known of the whole process only, so the million goes first.
    for document in documents {
        progress(done / parts, "table2");
        done += 1.0;
        results.documents.push((
            document.name.clone(),
            document.network.relays.len(),
            exits(&document.network),
        ));
        results.cost.push(cost(document, options)?);
    }
    for document in documents {
        let named = |error| SalsaError::Links {
            document: document.name.clone(),
            error,
        };
        for cell in &cells {
            progress(done / parts, cell.what.name());
            done += 1.0;
            match tallies(document, cell, options) {
                Ok(tallies) => points(&mut results, document, cell, &tallies),
                Err(error @ (LinksError::NoPolicies(_) | LinksError::NoExits(_)))
                    if cell.model.exits != Exits::default() =>
                {
                    // Once for each document: the reason is the same for all classes.
                    let begins = format!("{}, exit classes: ", document.name);
                    if !results.left_out.iter().any(|why| why.starts_with(&begins)) {
                        results.left_out.push(format!("{begins}{error}"));
                    }
                }
                Err(error) => return Err(named(error)),
            }
        }
        progress(done / parts, What::Figure11.name());
        done += 1.0;
        models(&mut results, document, options)?;
    }
    Ok(results)
}

/// All cells, in the order of the figures.
fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    let base = Cell {
        what: What::Figure4,
        series: String::new(),
        at: 0.0,
        model: Model::default(),
        circuits: paper::PRESENT_CIRCUITS,
        directed: true,
        scale: 1.0,
    };
    for (series, kind, directed) in KINDS {
        let model = Model {
            kind,
            ..Model::default()
        };
        for scale in paper::SCALES {
            cells.push(Cell {
                series: series.to_owned(),
                at: percent(scale),
                model,
                directed,
                scale,
                ..base.clone()
            });
        }
        for circuits in DEMANDS {
            cells.push(Cell {
                what: What::Figure8,
                series: series.to_owned(),
                at: circuits as f64,
                model,
                circuits,
                directed,
                ..base.clone()
            });
        }
        cells.push(Cell {
            what: What::Text,
            series: series.to_owned(),
            model,
            directed,
            ..base.clone()
        });
    }
    for (directed, direction) in [(true, "directed"), (false, "undirected")] {
        for (place, (_, exits)) in CLASSES.into_iter().enumerate() {
            cells.push(Cell {
                what: What::Figure5,
                series: direction.to_owned(),
                at: place as f64,
                model: Model {
                    exits,
                    ..Model::default()
                },
                directed,
                ..base.clone()
            });
        }
        cells.push(Cell {
            what: What::Text,
            series: format!("{}; {direction}", paper::LIVE.what),
            model: Model {
                kind: CircuitKind::Mixed,
                exits: Exits::MEASURED,
                ..Model::default()
            },
            directed,
            ..base.clone()
        });
    }
    for circuits_per_client in paper::CIRCUITS_PER_CLIENT {
        for scale in paper::SCALES {
            cells.push(Cell {
                what: What::Figure6,
                series: per_client(circuits_per_client.into()),
                at: percent(scale),
                model: Model {
                    circuits_per_client,
                    ..Model::default()
                },
                scale,
                ..base.clone()
            });
        }
    }
    cells.push(Cell {
        what: What::Figure7,
        series: FIGURE7_SERIES.to_owned(),
        ..base
    });
    cells
}

/// Draws and counts for a cell.
fn tallies(
    document: &Document,
    cell: &Cell,
    options: &SalsaOptions,
) -> Result<Vec<Tally>, LinksError> {
    // Every cell has its own draws.
    let place = format!(
        "{} {} {} {}",
        document.name,
        cell.what.name(),
        cell.series,
        cell.at
    );
    let seed = seed_for(options.seed, &place);
    let plan = Plan {
        circuits: ((cell.circuits as f64 * cell.scale).round() as u64).max(1),
        directed: cell.directed,
        repetitions: options.repetitions,
        seed,
        threads: options.threads,
    };
    let whole = &document.network;
    let part = scaled(whole, cell.scale).unwrap_or_else(|_| whole.clone());
    Ok(run(&Salsa::new(&part, &cell.model)?, &plan, || ())?.tallies)
}

/// Figure 11: the same circuits by three models.
fn models(
    results: &mut Results,
    document: &Document,
    options: &SalsaOptions,
) -> Result<(), SalsaError> {
    let links = |error| SalsaError::Links {
        document: document.name.clone(),
        error,
    };
    let simple = Salsa::new(&document.network, &Model::default()).map_err(links)?;
    let full = |guards: GuardRule| -> Result<Full, SalsaError> {
        let how = full::ModelOptions {
            guards,
            ..full::ModelOptions::default()
        };
        let model =
            full::Model::new(&document.network, None, &how).map_err(|error| SalsaError::Full {
                document: document.name.clone(),
                error,
            })?;
        Full::new(model, CircuitKind::External, 1, Arc::default()).map_err(links)
    };
    let fresh = full(GuardRule::Fresh)?;
    let torps = full(GuardRule::Torps { guards: 1 })?;
    let all: [&dyn Paths; 3] = [&simple, &fresh, &torps];
    for (place, paths) in all.into_iter().enumerate() {
        let plan = Plan {
            circuits: paper::PRESENT_CIRCUITS,
            directed: true,
            repetitions: options.repetitions,
            seed: seed_for(options.seed, &format!("{} figure11 {place}", document.name)),
            threads: options.threads,
        };
        let tallies = run(paths, &plan, || ()).map_err(links)?.tallies;
        results.points.push(Point {
            what: What::Figure11,
            document: document.name.clone(),
            series: FIGURE11_SERIES.to_owned(),
            at: place as f64,
            percent: tallies
                .iter()
                .map(|tally| tally.all.percent_shared())
                .collect(),
        });
    }
    Ok(())
}

/// Adds the points of a cell to the results.
fn points(results: &mut Results, document: &Document, cell: &Cell, tallies: &[Tally]) {
    let mut push = |series: String, at: f64, number: &dyn Fn(&Tally) -> f64| {
        results.points.push(Point {
            what: cell.what,
            document: document.name.clone(),
            series,
            at,
            percent: tallies.iter().map(number).collect(),
        });
    };
    match cell.what {
        What::Figure7 => {
            for circuits in 1..=8 {
                push(cell.series.clone(), circuits as f64, &|tally| {
                    let links = tally.by_circuits.get(&circuits).copied().unwrap_or(0);
                    share(links, tally.all.links)
                });
            }
            push(FIGURE7_MORE.to_owned(), 3.0, &|tally| {
                let links = tally.by_circuits.range(3..).map(|(_, links)| links).sum();
                share(links, tally.all.links)
            });
        }
        What::Text if cell.series.starts_with(paper::LIVE.what) => {
            push(cell.series.clone(), 0.0, &|tally| {
                tally.all.percent_shared()
            });
        }
        What::Text => {
            let [guard_middle, middle_exit] = paper::POSITIONS.map(|reported| reported.what);
            push(format!("{guard_middle}; {}", cell.series), 0.0, &|tally| {
                tally.guard_middle.percent_shared()
            });
            push(format!("{middle_exit}; {}", cell.series), 0.0, &|tally| {
                tally.middle_exit.percent_shared()
            });
            if cell.model.kind == CircuitKind::External && cell.directed {
                let [any, one, two] = paper::SHARED_CIRCUITS.map(|reported| reported.what);
                let of = |tally: &Tally, chosen: &dyn Fn([u64; 3]) -> u64| {
                    let all = tally.circuits_by_shared;
                    share(chosen(all), all.iter().sum())
                };
                push(format!("{any}; {}", cell.series), 0.0, &|tally| {
                    of(tally, &|[_, one, two]| one + two)
                });
                push(format!("{one}; {}", cell.series), 0.0, &|tally| {
                    of(tally, &|[_, one, _]| one)
                });
                push(format!("{two}; {}", cell.series), 0.0, &|tally| {
                    of(tally, &|[_, _, two]| two)
                });
            }
        }
        _ => push(cell.series.clone(), cell.at, &|tally| {
            tally.all.percent_shared()
        }),
    }
}

/// A million circuits on one thread.
fn cost(document: &Document, options: &SalsaOptions) -> Result<Cost, SalsaError> {
    let plan = Plan {
        circuits: MILLION,
        directed: true,
        repetitions: 1,
        seed: options.seed,
        threads: 1,
    };
    let runs = Salsa::new(&document.network, &Model::default())
        .and_then(|paths| run(&paths, &plan, || ()))
        .map_err(|error| SalsaError::Links {
            document: document.name.clone(),
            error,
        })?;
    Ok(Cost {
        document: document.name.clone(),
        seconds: runs.elapsed.as_secs_f64(),
        peak_rss_bytes: peak_rss_bytes(),
    })
}

/// Relays that external circuits can end at.
fn exits(network: &Network) -> usize {
    let is_exit = |flags: Flags| flags.has(Flags::EXIT) && !flags.has(Flags::BAD_EXIT);
    network
        .relays
        .iter()
        .filter(|relay| is_exit(relay.flags))
        .count()
}

fn percent(scale: f64) -> f64 {
    (scale * 100.0).round()
}

fn share(part: u64, whole: u64) -> f64 {
    match whole {
        0 => 0.0,
        _ => part as f64 * 100.0 / whole as f64,
    }
}

/// The most memory of this process so far, where the system has Linux's `/proc`.
fn peak_rss_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}
