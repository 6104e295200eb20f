//! `report.html` and the page of a comparison: each is one file without external resources.
//!
//! Plots are images in the page: an SVG that is one cannot run scripts, load anything, or have ids that clash
//! with those of another.

use std::fmt::{self, Write as _};
use std::path::Path;

use anyhow::Result;
use base64ct::{Base64, Encoding as _};
use weft_plot::{Folder, KEPT};
use weft_stats::Spread;

use super::compare::{Change, ComparedTable, Comparison, Verdict};
use super::model::{Plot, Run, Setting, Table, Values};
use super::{read, text};

/// The name of the report in its folder.
pub(crate) const PAGE: &str = "report.html";

/// Nothing is loaded from anywhere, and no script runs.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";
const STYLE: &str = include_str!("style.css");

/// Writes the report of a run into its folder, with the plots that are there.
///
/// # Errors
///
/// The system refuses.
pub(crate) fn write_page(run: &Run, folder: &Folder) -> Result<()> {
    folder.write(PAGE, page(run, folder.path()))
}

impl Run {
    /// Its report, HTML, with the plots of this folder.
    #[must_use]
    pub fn page(&self, folder: &Path) -> String {
        page(self, folder)
    }
}

impl Comparison {
    /// As a page of its own, HTML.
    #[must_use]
    pub fn page(&self) -> String {
        comparison(self)
    }
}

/// The report of a run whose files are in this folder.
fn page(run: &Run, folder: &Path) -> String {
    let mut body = String::new();
    header(&mut body, run);
    body += "<h2>Results</h2>\n";
    if run.tables.is_empty() {
        body += "<p class=\"note\">The numbers are in the files below.</p>\n";
    } else {
        body += "<p class=\"note\">Means of the repetitions with half of their 95 % confidence intervals (Student's t); under \
                 them how many repetitions there are, and the least and the most.</p>\n";
    }
    for one in &run.tables {
        table(&mut body, one);
    }
    if !run.notes.is_empty() {
        body += "<h2>Notes</h2>\n<ul>\n";
        for note in &run.notes {
            put(&mut body, format_args!("<li>{}</li>\n", escape(note)));
        }
        body += "</ul>\n";
    }
    if !run.plots.is_empty() {
        body += "<h2>Plots</h2>\n";
    }
    for one in &run.plots {
        plot(&mut body, one, folder);
    }
    body += "<h2>How it was measured</h2>\n";
    if !run.command.is_empty() {
        put(
            &mut body,
            format_args!(
                "<p>This command repeats it:</p>\n<pre>{}</pre>\n",
                escape(&run.command)
            ),
        );
    }
    settings(&mut body, &run.settings);
    machine(&mut body, run);
    files(&mut body, run);
    document(&run.title, &body)
}

/// The page of a comparison.
fn comparison(comparison: &Comparison) -> String {
    let mut body = String::new();
    let (title, experiment) = match comparison.runs.first() {
        Some(named) => (named.run.title.as_str(), named.run.experiment.as_str()),
        None => ("", ""),
    };
    put(
        &mut body,
        format_args!(
            "<header>\n<p class=\"name\">weft lab · {}</p>\n<h1>{}: {} runs compared</h1>\n</header>\n",
            escape(experiment),
            escape(title),
            comparison.runs.len()
        ),
    );
    for warning in &comparison.warnings {
        banner(&mut body, "partial", "WARNING", warning);
    }
    body += "<h2>The runs</h2>\n<div class=\"scroll\"><table class=\"wide\">\n<thead><tr><th>run</th><th>began</th><th>took</th><th>Weft</th>\
             <th>machine</th></tr></thead>\n<tbody>\n";
    for (number, named) in comparison.runs.iter().enumerate() {
        let run = &named.run;
        let base = if number == 0 { " (base)" } else { "" };
        put(
            &mut body,
            format_args!(
                "<tr><th>{}{base}</th><td data-head=\"began\">{}</td><td data-head=\"took\">{}</td>\
                 <td data-head=\"Weft\">{}, commit {}</td><td data-head=\"machine\">{}</td></tr>\n",
                escape(&named.name),
                escape(&text::moment(&run.started_at)),
                text::duration(run.seconds),
                escape(run.versions.weft.as_deref().unwrap_or("unknown")),
                escape(&run.versions.commit_in_words()),
                escape(&run.machine.cpu)
            ),
        );
    }
    body += "</tbody>\n</table></div>\n<h2>What differs</h2>\n";
    differing(&mut body, comparison);
    body += "<h2>Results</h2>\n<p class=\"note\">Means of the repetitions with half of their 95 % confidence intervals. \
             Differences are from the first run, with the 95 % interval of the ratio of the means.</p>\n";
    for one in &comparison.tables {
        compared(&mut body, one, comparison);
    }
    document(&format!("{title}: comparison"), &body)
}

fn document(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{body}\
         <footer>Written by weft lab {}.</footer>\n</main>\n</body>\n</html>\n",
        escape(title),
        env!("CARGO_PKG_VERSION")
    )
}

fn header(body: &mut String, run: &Run) {
    put(
        body,
        format_args!(
            "<header>\n<p class=\"name\">weft lab · {}</p>\n<h1>{}</h1>\n",
            escape(&run.experiment),
            escape(&run.title)
        ),
    );
    if !run.question.is_empty() {
        put(
            body,
            format_args!("<p class=\"question\">{}</p>\n", escape(&run.question)),
        );
    }
    match (run.ending.warning(), run.passed) {
        (Some(why), _) => banner(body, "partial", "PARTIAL", why),
        (None, true) => banner(body, "complete", "COMPLETE", "Everything was measured."),
        (None, false) => banner(
            body,
            "missed",
            "BAR MISSED",
            "Everything was measured, and something does not meet its bar or failed.",
        ),
    }
    body.push_str("<dl class=\"facts\">\n");
    let seed = run.seed.map_or_else(String::new, |seed| seed.to_string());
    for (name, value) in [
        ("Began", text::moment(&run.started_at).as_str()),
        ("Took", &text::duration(run.seconds)),
        ("Seed", &seed),
        ("Weft", run.versions.weft.as_deref().unwrap_or_default()),
        ("Machine", &run.machine.cpu),
    ] {
        if !value.is_empty() {
            put(
                body,
                format_args!("<div><dt>{name}</dt><dd>{}</dd></div>\n", escape(value)),
            );
        }
    }
    body.push_str("</dl>\n</header>\n");
}

fn banner(body: &mut String, class: &str, word: &str, text: &str) {
    put(
        body,
        format_args!(
            "<p class=\"banner {class}\"><strong>{word}</strong> {}</p>\n",
            escape(text)
        ),
    );
}

fn table(body: &mut String, table: &Table) {
    put(body, format_args!("<h3>{}</h3>\n", escape(&table.title)));
    if !table.note.is_empty() {
        put(
            body,
            format_args!("<p class=\"note\">{}</p>\n", escape(&table.note)),
        );
    }
    body.push_str("<div class=\"scroll\"><table class=\"wide\">\n<thead><tr>");
    for label in &table.labels {
        put(body, format_args!("<th>{}</th>", escape(label)));
    }
    for metric in &table.metrics {
        put(
            body,
            format_args!("<th class=\"number\">{}</th>", escape(&metric.head())),
        );
    }
    body.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        body.push_str("<tr>");
        labels(body, &table.labels, &row.labels);
        for (metric, values) in table.metrics.iter().zip(&row.values) {
            put(
                body,
                format_args!(
                    "<td class=\"number\"{}>{}</td>",
                    head(&metric.head()),
                    cell(values)
                ),
            );
        }
        body.push_str("</tr>\n");
    }
    body.push_str("</tbody>\n</table></div>\n");
}

/// The labels of a row.
fn labels(body: &mut String, heads: &[String], labels: &[String]) {
    for (name, label) in heads.iter().zip(labels) {
        put(
            body,
            format_args!("<th{}>{}</th>", head(name), escape(label)),
        );
    }
}

/// The head of a cell's column, which a narrow window shows beside the cell.
fn head(text: &str) -> String {
    format!(" data-head=\"{}\"", escape(text))
}

/// Mean and interval; under them repetitions and range.
fn cell(values: &Values) -> String {
    let mut cell = spread(values.spread());
    if let Some(Spread { mean, n, .. }) = values.spread()
        && n > 1
    {
        cell += &format!("<span class=\"more\">n {n}");
        if let Some(summary) = values.summary() {
            cell += &format!(
                ", {} to {}",
                text::like(summary.min, mean),
                text::like(summary.max, mean)
            );
        }
        cell += "</span>";
    }
    cell
}

fn spread(spread: Option<Spread>) -> String {
    let text = text::spread(spread);
    match text.split_once(" ± ") {
        Some((mean, half)) => format!("{mean} <span class=\"interval\">± {half}</span>"),
        None => text,
    }
}

fn plot(body: &mut String, plot: &Plot, folder: &Path) {
    let name = escape(&plot.file);
    let Some(svg) = read::plot(folder, &plot.file) else {
        put(
            body,
            format_args!("<p class=\"note\">The plot {name} is not in the folder any more.</p>\n"),
        );
        return;
    };
    let mut caption = match plot.caption.is_empty() {
        true => String::new(),
        false => format!("{} ", escape(&plot.caption)),
    };
    // A plot for a paper does not show what its caption is for.
    let more = read::caption(folder, &plot.file).unwrap_or_default();
    for line in more.lines().filter(|line| !line.is_empty()) {
        put(&mut caption, format_args!("{}<br>\n", escape(line)));
    }
    let stem = plot.file.strip_suffix(".svg").unwrap_or(&plot.file);
    let others = [".png", ".pdf", KEPT].map(|end| format!("{stem}{end}"));
    let links = others.iter().filter(|other| folder.join(other).is_file());
    let links: String = links
        .map(|other| format!(", <a href=\"{0}\">{0}</a>", escape(other)))
        .collect();
    put(
        body,
        format_args!(
            "<figure>\n<div class=\"scroll\"><img alt=\"{}\" src=\"data:image/svg+xml;base64,{}\"></div>\n\
             <figcaption>{caption}<a href=\"{name}\">{name}</a>{links}</figcaption>\n</figure>\n",
            escape(match plot.caption.is_empty() {
                true => &plot.file,
                false => &plot.caption,
            }),
            Base64::encode_string(&svg)
        ),
    );
}

fn settings(body: &mut String, settings: &[Setting]) {
    if settings.is_empty() {
        return;
    }
    body.push_str(
        "<h3>Settings</h3>\n<p class=\"note\">Those in bold were given; the others are defaults, or were chosen by the \
         experiment.</p>\n<div class=\"scroll\"><table>\n<tbody>\n",
    );
    for setting in settings {
        let class = if setting.is_default { "" } else { " chosen" };
        put(
            body,
            format_args!(
                "<tr><th>{}</th><td class=\"value{class}\">{}</td></tr>\n",
                escape(&setting.name),
                escape(&setting.value)
            ),
        );
    }
    body.push_str("</tbody>\n</table></div>\n");
}

fn machine(body: &mut String, run: &Run) {
    let (machine, versions) = (&run.machine, &run.versions);
    let known = |version: &Option<String>| version.clone().unwrap_or_default();
    let rows = [
        ("processor", machine.cpu.clone()),
        (
            "cores",
            format!("{}, {} processors", machine.cores, machine.logical_cpus),
        ),
        ("memory", machine.memory_in_words()),
        ("kernel", machine.kernel.clone()),
        ("governor", known(&machine.governor)),
        (
            "virtual machine",
            if machine.virtual_machine { "yes" } else { "no" }.to_owned(),
        ),
        ("abilities", machine.cpu_flags.join(", ")),
        ("load average before", machine.load_average_before.clone()),
        ("Weft", versions.in_words()),
        ("C tor", known(&versions.tor)),
        ("compiler", known(&versions.rustc)),
    ];
    body.push_str("<h3>Machine and versions</h3>\n<div class=\"scroll\"><table>\n<tbody>\n");
    for (name, value) in rows {
        if !value.is_empty() {
            put(
                body,
                format_args!(
                    "<tr><th>{name}</th><td class=\"value\">{}</td></tr>\n",
                    escape(&value)
                ),
            );
        }
    }
    body.push_str("</tbody>\n</table></div>\n");
}

fn files(body: &mut String, run: &Run) {
    body.push_str("<h3>Files</h3>\n<ul>\n");
    for name in &run.files {
        let what = match name.as_str() {
            "raw.jsonl" => ": every number of the tables, a JSON object on each line",
            "raw.csv" => ": the same as a table",
            "run.json" => ": all of this report as data, what <code>weft lab report</code> reads",
            "results.json" => ": the experiment's own results, with every detail",
            _ => "",
        };
        let name = escape(name);
        put(
            body,
            format_args!("<li><a href=\"{name}\">{name}</a>{what}</li>\n"),
        );
    }
    body.push_str("</ul>\n");
}

fn differing(body: &mut String, comparison: &Comparison) {
    if comparison.differing.is_empty() {
        body.push_str("<p>Nothing: settings, versions and machines are the same.</p>\n");
        return;
    }
    body.push_str("<div class=\"scroll\"><table>\n<thead><tr><th></th>");
    for named in &comparison.runs {
        put(body, format_args!("<th>{}</th>", escape(&named.name)));
    }
    body.push_str("</tr></thead>\n<tbody>\n");
    for one in &comparison.differing {
        put(body, format_args!("<tr><th>{}</th>", escape(&one.what)));
        for value in &one.values {
            put(
                body,
                format_args!("<td class=\"value\">{}</td>", escape(value)),
            );
        }
        body.push_str("</tr>\n");
    }
    body.push_str("</tbody>\n</table></div>\n");
}

fn compared(body: &mut String, table: &ComparedTable, comparison: &Comparison) {
    put(
        body,
        format_args!(
            "<h3>{}</h3>\n<div class=\"scroll\"><table class=\"wide\">\n<thead><tr>",
            escape(&table.title)
        ),
    );
    for label in &table.labels {
        put(body, format_args!("<th>{}</th>", escape(label)));
    }
    body.push_str("<th>metric</th>");
    for (number, named) in comparison.runs.iter().enumerate() {
        let name = escape(&named.name);
        put(body, format_args!("<th class=\"number\">{name}</th>"));
        if number > 0 {
            body.push_str("<th class=\"number\">difference</th>");
        }
    }
    body.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        body.push_str("<tr>");
        labels(body, &table.labels, &row.labels);
        put(
            body,
            format_args!("<th{}>{}</th>", head("metric"), escape(&row.metric)),
        );
        let changes = std::iter::once(None).chain(row.changes.iter().map(Some));
        let cells = comparison.runs.iter().zip(&row.cells).zip(changes);
        for ((named, values), change) in cells {
            put(
                body,
                format_args!(
                    "<td class=\"number\"{}>{}</td>",
                    head(&named.name),
                    spread(*values)
                ),
            );
            if let Some(change) = change {
                difference(body, change.as_ref());
            }
        }
        body.push_str("</tr>\n");
    }
    body.push_str("</tbody>\n</table></div>\n");
}

fn difference(body: &mut String, change: Option<&Change>) {
    let Some(change) = change else {
        put(
            body,
            format_args!(
                "<td class=\"number\"{}>{}</td>",
                head("difference"),
                text::NOTHING
            ),
        );
        return;
    };
    let class = match change.verdict {
        Verdict::Better => " better",
        Verdict::Worse => " worse",
        Verdict::Different | Verdict::NoClear | Verdict::Unknown => "",
    };
    put(
        body,
        format_args!(
            "<td class=\"number{class}\"{}>{}<span class=\"more\">{}</span></td>",
            head("difference"),
            text::percent(change),
            change.verdict.words()
        ),
    );
}

/// A string takes all that is written into it.
fn put(body: &mut String, text: fmt::Arguments<'_>) {
    let _ = body.write_fmt(text);
}

/// Text as HTML shows it, also within an attribute's quotation marks.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            // HTML has no form for control characters.
            c if c.is_control() && c != '\n' => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}
