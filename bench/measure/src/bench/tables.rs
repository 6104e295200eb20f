//! Results as tables in Markdown, and the pages that show them.
//!
//! A page has two markers; what is between them is made from a results file, which it names. A test
//! compares the pages with those files.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::bar::{Bar, Verdict};
use super::metrics;
use super::plan::Point;
use super::plots::{self, name};
use super::results::{Metric, Results};
use weft_plot::write_whole;
use weft_stats::Summary;

const BEGIN: &str = "<!-- results: ";
const END: &str = "<!-- end of results -->";
/// Marks of a pack's record.
const BEGIN_PACK: &str = "<!-- pack: ";
const END_PACK: &str = "<!-- end of pack -->";

/// The pages, from the top of the checkout. The book shows plots besides.
const README: &str = "bench/README.md";
const BOOK: &str = "docs/measurements.md";
/// The page with the claim that a pack's record is for.
const FRONT: &str = "README.md";
/// The book's copies of the plots: a book has only what is in its own folder.
const PLOTS: &str = "docs/measurements";

/// Rewrites the results on the pages, and the book's plots, from a results file in `bench/results`.
pub(crate) fn rewrite(file: &Path) -> Result<()> {
    let results = Results::read(file)?;
    let root = crate::checkout::root();
    let folder = root
        .join("bench/results")
        .canonicalize()
        .context("there are no results")?;
    let file = file.canonicalize().context("finding the results file")?;
    ensure!(
        file.parent() == Some(&folder),
        "{} is not in {}: the pages name results that are committed with them",
        file.display(),
        folder.display()
    );
    let name = file
        .file_name()
        .and_then(|name| name.to_str())
        .context("the results file has no name")?;
    let own = root.join(PLOTS);
    fs::create_dir_all(&own).with_context(|| format!("creating {}", own.display()))?;
    for (name, figure) in plots::figures(&results) {
        let path = own.join(format!("{name}.svg"));
        write_whole(&path, figure.svg()?)?;
    }
    let (markers, pages) = match results.pack {
        None => ((BEGIN, END), [README, BOOK]),
        Some(_) => ((BEGIN_PACK, END_PACK), [README, FRONT]),
    };
    for page in pages {
        let path = root.join(page);
        let old = fs::read_to_string(&path).with_context(|| format!("reading {page}"))?;
        let text = match page {
            _ if results.pack.is_none() => section(&results, page == BOOK),
            FRONT => claim(Some(&results)),
            _ => pack_section(Some(&results)),
        };
        let new = with_section(&old, markers, name, &text)
            .with_context(|| format!("rewriting {page}"))?;
        fs::write(&path, new).with_context(|| format!("writing {page}"))?;
        println!("{page} shows {name}.");
    }
    println!("The book's plots are in {PLOTS}.");
    Ok(())
}

/// A page with what is between its markers replaced.
fn with_section(
    page: &str,
    (begin, end): (&str, &str),
    name: &str,
    section: &str,
) -> Result<String> {
    let (before, rest) = page
        .split_once(begin)
        .context("it has no marker for results")?;
    let Some((_, after)) = rest.split_once(end) else {
        bail!("results have no end in it");
    };
    Ok(format!(
        "{before}{begin}{name} -->\n\n{section}\n{end}{after}"
    ))
}

/// Where the pack and its record are described.
const PACK_PAGE: &str = "bench/README.md#a-larger-machine";
/// Cores from which on a record shows how far all of them are used.
const CORES_FOR_CLAIM: usize = 8;

/// The claim that every core is used, as a record shows it. Without a record of enough cores: that it was not measured.
fn claim(results: Option<&Results>) -> String {
    let measured = results
        .filter(|results| results.machine.cores >= CORES_FOR_CLAIM && !results.options.quick);
    let found = measured.and_then(|results| {
        let point = Point::scaling();
        let of = |target: &str| results.summary(&point, target, metrics::goodput);
        let threads = results.targets(|other| *other == point);
        let threads = threads.iter().filter_map(|name| {
            let threads: u32 = name.strip_prefix("weft:")?.parse().ok()?;
            Some((threads, of(name)?.median))
        });
        let (most, goodput) = threads.filter(|(threads, _)| *threads > 1).max_by_key(|(threads, _)| *threads)?;
        Some(format!(
            "On {} cores ({}) {most} connection threads carry {:.1} times what one carries, and {:.1} times what C tor carries \
             ([numbers]({PACK_PAGE})).\n",
            results.machine.cores,
            results.machine.cpu,
            goodput / of("weft:1")?.median,
            goodput / of("tor")?.median,
        ))
    });
    found.unwrap_or_else(|| {
        format!(
            "How throughput grows with threads on eight cores or more is not measured; [a pack]({PACK_PAGE}) measures it.\n"
        )
    })
}

/// A pack's record.
fn pack_section(results: Option<&Results>) -> String {
    let here = |claim: String| claim.replace("bench/README.md#", "#");
    let Some(results) = results else {
        return here(claim(None));
    };
    let mut parts = vec![
        here(claim(Some(results))),
        origin(results),
        bars(&results.bars),
    ];
    if plots::figures(results)
        .iter()
        .any(|(name, _)| *name == "scaling")
    {
        parts.push(format!(
            "![Goodput by connection threads](../{PLOTS}/scaling.svg)\n"
        ));
    }
    let columns = [
        Column("goodput, Mbit/s", metrics::goodput, 1e-6),
        Column("capacity, Mbit/s", metrics::capacity, 1e-6),
        Column("CPU s/GB", metrics::cpu_per_gb, 1.0),
        Column("p99, ms", metrics::p99, 1e-3),
        Column("onionskins/s", metrics::onionskins_per_s, 1.0),
        Column("busiest thread, %", metrics::busiest_thread, 100.0),
        Column("main thread, %", metrics::main_thread, 100.0),
        Column(
            "busiest of the generator, %",
            metrics::generator_busiest,
            100.0,
        ),
    ];
    parts.push(by_point(results, |point| point.mode != "network", &columns));
    let in_network = results.runs.iter().filter_map(|run| {
        let network = run.network.as_ref()?;
        let digits = |number: f64, digits: usize| format!("{number:.digits$}");
        Some(vec![
            run.point.to_string(),
            name(&run.target),
            digits(network.sustained_bits_per_s * 1e-6, 0),
            digits(network.cpu_s_per_gb, 2),
            digits(network.busiest_thread * 100.0, 0),
        ])
    });
    let heads = ["", "", "sustained, Mbit/s", "CPU s/GB", "busiest thread, %"];
    parts.push(table(heads.map(str::to_owned).into(), in_network.collect()));
    let no_result = results.runs.iter().filter_map(|run| {
        let why = match (&run.failure, &run.limit) {
            (Some(failure), _) => format!("failed: {}", failure.lines().next().unwrap_or_default()),
            (None, Some(limit)) => format!("no result: the limit was {limit}"),
            (None, None) => return None,
        };
        Some(vec![format!("{}, {}", run.point, name(&run.target)), why])
    });
    let left_out = results.pack.iter().flat_map(|pack| &pack.left_out);
    let left_out = left_out.map(|out| vec![out.what.clone(), out.why.clone()]);
    let rows: Vec<Vec<String>> = no_result.chain(left_out).collect();
    parts.push(table(
        ["not measured", "why"].map(str::to_owned).into(),
        rows,
    ));
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

/// The part of a page that shows results.
fn section(results: &Results, with_plots: bool) -> String {
    let mut parts = vec![origin(results), bars(&results.bars)];
    let plot = |name: &str, text: &str| match with_plots {
        true => format!("![{text}](measurements/{name}.svg)\n"),
        false => String::new(),
    };
    let drawn: Vec<&str> = plots::figures(results)
        .iter()
        .map(|(name, _)| *name)
        .collect();
    let mut add = |title: &str, file: &str, tables: Vec<String>| {
        let tables: Vec<String> = tables
            .into_iter()
            .filter(|table| !table.is_empty())
            .collect();
        if tables.is_empty() {
            return;
        }
        parts.push(format!("### {title}\n"));
        if with_plots && drawn.contains(&file) {
            parts.push(plot(file, title));
        }
        parts.extend(tables);
    };
    let (full, rated) = (Point::is_full_speed, Point::is_latency);
    let cpu = [Column("", metrics::cpu_per_gb, 1.0)];
    add(
        "CPU seconds per GB",
        "cpu",
        vec![by_target(results, full, &cpu)],
    );
    let goodput = [Column("", metrics::goodput, 1e-6)];
    add(
        "Goodput, Mbit/s",
        "throughput",
        vec![by_target(results, full, &goodput)],
    );
    let busy = [
        Column("relay", metrics::busy, 1.0),
        Column("generator", metrics::generator_busy, 1.0),
    ];
    add(
        "Processors kept busy",
        "",
        vec![by_target(results, full, &busy)],
    );
    let latency = [
        Column("p50", metrics::p50, 1e-3),
        Column("p90", metrics::p90, 1e-3),
        Column("p99", metrics::p99, 1e-3),
    ];
    add(
        "Latency of cells at 80 % of C tor's full speed, ms",
        "latency",
        vec![by_point(results, rated, &latency)],
    );
    let peak = [Column("peak RSS, MB", metrics::peak_rss, 1e-6)];
    let idle = [Column("kB for each", metrics::idle_bytes, 1e-3)];
    add(
        "Memory",
        "memory",
        vec![
            by_point(results, rated, &peak),
            by_point(results, |point| point.mode.starts_with("idle"), &idle),
        ],
    );
    let real = [
        Column("CPU s/GB", metrics::cpu_per_gb, 1.0),
        Column("user", metrics::user_per_gb, 1.0),
        Column("system", metrics::system_per_gb, 1.0),
        Column("p50, ms", metrics::p50, 1e-3),
        Column("p99, ms", metrics::p99, 1e-3),
        Column("relay busy", metrics::busy, 1.0),
        Column("generator busy", metrics::generator_busy, 1.0),
        Column("circuits made a second", metrics::circuits_made_per_s, 1.0),
    ];
    add(
        "Loads of real relays",
        "",
        vec![by_point(results, Point::is_real, &real)],
    );
    let capacity = [
        Column("Mbit/s", metrics::capacity, 1e-6),
        Column("p99, ms", metrics::p99, 1e-3),
        Column("relay busy", metrics::busy, 1.0),
        Column("generator busy", metrics::generator_busy, 1.0),
    ];
    add(
        "Capacity: the most with p99 under 50 ms",
        "",
        vec![by_point(
            results,
            |point| point.is_in("capacity"),
            &capacity,
        )],
    );
    let size = [
        Column("RSS, MB", metrics::rss, 1e-6),
        Column("peak RSS, MB", metrics::peak_rss, 1e-6),
        Column("CPU s/GB", metrics::cpu_per_gb, 1.0),
        Column("p99, ms", metrics::p99, 1e-3),
    ];
    add(
        "At size",
        "",
        vec![by_point(results, |point| point.is_in("size"), &size)],
    );
    let threads = [
        Column("CPU s/GB", metrics::cpu_per_gb, 1.0),
        Column("user", metrics::user_per_gb, 1.0),
        Column("system", metrics::system_per_gb, 1.0),
        Column("p99, ms", metrics::p99, 1e-3),
    ];
    add(
        "By connection threads, on all cores together with the generator",
        "",
        vec![by_point(results, |point| point.is_in("threads"), &threads)],
    );
    let onionskins = [
        Column("for each CPU second", metrics::onionskins_per_cpu_s, 1.0),
        Column("for each second", metrics::onionskins_per_s, 1.0),
    ];
    add(
        "Circuits made",
        "onionskins",
        vec![by_point(
            results,
            |point| point.mode == "onionskins",
            &onionskins,
        )],
    );
    parts.join("\n")
}

/// Where the numbers come from.
fn origin(results: &Results) -> String {
    let (machine, versions, options) = (&results.machine, &results.versions, &results.options);
    let mut text = format!(
        "| | |\n|---|---|\n| machine | {}, {} cores, {:.1} GB of memory{} |\n| kernel | {} |\n",
        machine.cpu,
        machine.cores,
        machine.memory_bytes as f64 / 1e9,
        if machine.virtual_machine {
            ", virtual"
        } else {
            ""
        },
        machine.kernel,
    );
    let mut row = |name: &str, value: &str| {
        if !value.is_empty() {
            // Writing into a string does not fail.
            let _ = writeln!(text, "| {name} | {value} |");
        }
    };
    row("governor", machine.governor.as_deref().unwrap_or_default());
    row("load average before", &machine.load_average_before);
    row("measured", &results.started_at);
    row("Weft", &results.weft());
    row("C tor", versions.tor.as_deref().unwrap_or_default());
    row("compiler", versions.rustc.as_deref().unwrap_or_default());
    row(
        "repetitions",
        &format!(
            "{}, of {} s each after {} s of warm-up",
            options.repetitions, options.seconds, options.warm_up
        ),
    );
    row("placement", &results.sharing.join("; "));
    let failed = results
        .runs
        .iter()
        .filter(|run| run.failure.is_some())
        .count();
    if !results.finished || failed > 0 {
        let end = if results.finished {
            ""
        } else {
            "the run was ended early; "
        };
        row("incomplete", &format!("{end}{failed} measurements failed"));
    }
    text
}

fn bars(bars: &[Bar]) -> String {
    let mut text = "### Bars\n\n| | bar | goal | measured | |\n|---|---|---|---|---|\n".to_owned();
    for bar in bars {
        let sign = if bar.at_least { "≥" } else { "≤" };
        let parts: Vec<String> = bar
            .parts
            .iter()
            .map(|part| {
                let what = match part.what.as_str() {
                    "" => String::new(),
                    what => format!("{what} "),
                };
                format!("{what}{}", range(&part.ratio))
            })
            .collect();
        let verdict = match (bar.verdict, &bar.note) {
            (Verdict::NotMeasurable, Some(note)) => note.clone(),
            (verdict, Some(note)) => format!("{verdict}: {note}"),
            (verdict, None) => verdict.to_string(),
        };
        let _ = writeln!(
            text,
            "| {} | {sign} {} | {sign} {} | {} | {verdict} |",
            bar.name,
            bar.bar,
            bar.goal,
            parts.join("; ")
        );
    }
    text
}

/// A number of each report, times a factor.
struct Column(&'static str, Metric, f64);

impl Column {
    fn cell(&self, results: &Results, point: &Point, target: &str) -> String {
        let summary = results.summary(point, target, self.1);
        summary.map_or_else(String::new, |summary| {
            range(&Summary {
                median: summary.median * self.2,
                min: summary.min * self.2,
                max: summary.max * self.2,
                ..summary
            })
        })
    }
}

/// A row for each point; for each target a column, in which several numbers are parted by slashes.
fn by_target(results: &Results, chosen: impl Fn(&Point) -> bool, columns: &[Column]) -> String {
    let (points, targets) = (results.points(&chosen), results.targets(&chosen));
    let rows = points.iter().map(|point| {
        let cells = targets.iter().map(|target| {
            let cells = columns
                .iter()
                .map(|column| column.cell(results, point, target));
            let cells: Vec<String> = cells.filter(|cell| !cell.is_empty()).collect();
            cells.join(" / ")
        });
        let what = format!(
            "{} circuits, {} links, {}",
            point.circuits, point.links, point.direction
        );
        [what].into_iter().chain(cells).collect()
    });
    let named: Vec<&str> = columns.iter().map(|column| column.0).collect();
    let heads = [named.join(" / ")].into_iter();
    table(
        heads
            .chain(targets.iter().map(|target| name(target)))
            .collect(),
        rows.collect(),
    )
}

/// A row for each target at each point, a column for each number.
fn by_point(results: &Results, chosen: impl Fn(&Point) -> bool, columns: &[Column]) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for point in results.points(&chosen) {
        for target in results.targets(|other| *other == point) {
            let cells: Vec<String> = columns
                .iter()
                .map(|column| column.cell(results, &point, &target))
                .collect();
            if cells.iter().any(|cell| !cell.is_empty()) {
                let what = match point.is_latency() {
                    true => point.direction.clone(),
                    false => point.to_string(),
                };
                rows.push([what, name(&target)].into_iter().chain(cells).collect());
            }
        }
    }
    let heads = ["", ""]
        .into_iter()
        .chain(columns.iter().map(|column| column.0));
    table(heads.map(str::to_owned).collect(), rows)
}

fn table(heads: Vec<String>, rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let ruler = format!("|{}\n", "---|".repeat(heads.len()));
    let rows: String = rows.iter().map(|row| line(row)).collect();
    format!("{}{ruler}{rows}", line(&heads))
}

/// A median with its range, if there is one.
fn range(summary: &Summary) -> String {
    let digits = match summary.median.abs() {
        n if n >= 100.0 => 0,
        n if n >= 10.0 => 1,
        _ => 2,
    };
    summary.show(|number| format!("{number:.digits$}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::testing::{self, results};

    #[test]
    fn tables_have_every_bar_and_target() {
        let text = section(&results(), true);
        for words in [
            "| CPU s/GB, weft ÷ the naive bare pipe, 20 circuits | ≤ 1.5 | ≤ 0.9 | download 1.17 (1.11–1.22)",
            "| needs 8 cores, has 2 |",
            "| 20 circuits, 4 links, download | 0.90 (0.90–0.90) | 4.10 (4.00–4.20) |",
            "### Latency of cells",
            "| download | C tor | 6.00 (6.00–6.00) | 20.0 (20.0–20.0) | 60.0 (60.0–60.0) |",
            "| 3000 idle links | Weft, 1 thread | 15.0 (15.0–15.0) |",
            "](measurements/memory.svg)",
            "| 4000 circuits over 2000 links, both at 10 MB/s | C tor | 4.10 (4.00–4.20) | 2.46",
            "| 12500 circuits over 2000 links, live-middle | Weft, 1 thread | 1.05 (1.00–1.10) |",
            "| 4000 circuits over 2000 links, both (capacity) | C tor |",
            "| 50000 circuits over 8000 links, both at 1 MB/s (size) | C tor | 120 (120–120) |",
            "| 300 circuits over 30 links, download (threads) | Weft, 8 threads |",
            "| cell latency p99 over those 2,000 links, ms | ≤ 5 | ≤ 2 | 1.00 (1.00–1.00) | met, goal too |",
        ] {
            assert!(text.contains(words), "{words}\nin\n{text}");
        }
        assert!(!section(&results(), false).contains(".svg"));
    }

    #[test]
    fn one_repetition_has_no_range() {
        let mut one = results();
        one.runs.retain(|run| run.repetition == 1);
        let text = section(&one, false);
        assert!(text.contains("| 0.90 | 4.00 | 1.00 |"), "{text}");
    }

    #[test]
    fn only_what_is_between_the_markers_changes() {
        let page = format!("a\n{BEGIN}none -->\nold\n{END}\nb\n");
        let markers = (BEGIN, END);
        let new = with_section(&page, markers, "r.json", "new\n").expect("a page");
        assert_eq!(new, format!("a\n{BEGIN}r.json -->\n\nnew\n\n{END}\nb\n"));
        let again = with_section(&new, markers, "r.json", "new\n");
        assert_eq!(again.expect("again"), new);
        assert!(with_section("no markers", markers, "r.json", "").is_err());
    }

    #[test]
    fn the_pages_show_the_results() {
        for page in [README, BOOK] {
            let text = fs::read_to_string(crate::checkout::root().join(page)).expect(page);
            let (_, rest) = text.split_once(BEGIN).expect("a marker");
            let (name, _) = rest.split_once(" -->").expect("the end of a marker");
            if name == "none" {
                continue;
            }
            let file = crate::checkout::root().join("bench/results").join(name);
            let results = Results::read(&file).expect("the results that the page names");
            let text_of = section(&results, page == BOOK);
            let made = with_section(&text, (BEGIN, END), name, &text_of).expect("a page");
            assert!(
                made == text,
                "{page} does not show {name}: cargo xtask bench --tables bench/results/{name}"
            );
        }
    }

    #[test]
    fn the_claim_waits_for_a_record_of_eight_cores() {
        assert!(claim(None).contains("is not measured"));
        assert!(claim(Some(&testing::pack(7))).contains("is not measured"));
        let mut quick = testing::pack(16);
        quick.options.quick = true;
        assert!(claim(Some(&quick)).contains("is not measured"));
        let found = claim(Some(&testing::pack(16)));
        assert!(
            found.starts_with("On 16 cores (Some Processor) 8 connection threads carry 6.0 times what one carries, and 24.0"),
            "{found}"
        );
    }

    #[test]
    fn a_record_of_a_pack_has_its_rows_and_what_is_missing() {
        let mut record = testing::pack(16);
        record.runs[0].limit = Some("the generator".to_owned());
        let text = pack_section(Some(&record));
        for words in [
            "| goodput with 8 threads ÷ (8 × one thread) | ≥ 0.85 | ≥ 0.95 | 0.75",
            "scaling.svg",
            "| 300 circuits over 30 links, download (pack) | Weft, 8 threads | 48000 |",
            "| 100 circuits in a private network of 33 nodes | Weft, 3 threads | 5000 | 2.00 | 97 |",
            "| 300 circuits over 30 links, download (pack), C tor | no result: the limit was the generator |",
        ] {
            assert!(text.contains(words), "{words}\nin\n{text}");
        }
    }

    #[test]
    fn the_pages_show_the_record_of_a_pack() {
        for page in [README, FRONT] {
            let text = fs::read_to_string(crate::checkout::root().join(page)).expect(page);
            let (_, rest) = text.split_once(BEGIN_PACK).expect("a marker");
            let (name, _) = rest.split_once(" -->").expect("the end of a marker");
            let record = match name {
                "none" => None,
                name => {
                    let file = crate::checkout::root().join("bench/results").join(name);
                    Some(Results::read(&file).expect("the record that the page names"))
                }
            };
            let shown = match page {
                FRONT => claim(record.as_ref()),
                _ => pack_section(record.as_ref()),
            };
            let made = with_section(&text, (BEGIN_PACK, END_PACK), name, &shown).expect("a page");
            assert!(made == text, "{page} does not show {name}:\n{made}");
        }
    }
}
