//! The plots.

use weft_plot::{Curve, Figure, Group, Kind, Look, Panel, Series, Value};

use super::compare::FIGURE7_SERIES;
use super::measure::{CLASSES, MODELS};
use super::paper;
use super::{Results, What};
use crate::over::whiskers;

impl Results {
    /// A plot of each figure that was run, by the names of their files.
    pub fn plots(&self) -> Vec<(&'static str, Figure)> {
        plots(self)
    }
}

fn plots(results: &Results) -> Vec<(&'static str, Figure)> {
    let all = [
        (What::Figure4, figure4(results)),
        (What::Figure5, figure5(results)),
        (What::Figure6, figure6(results)),
        (What::Figure7, figure7(results)),
        (What::Figure8, figure8(results)),
        (What::Figure11, figure11(results)),
    ];
    all.into_iter()
        .filter(|(what, _)| results.of(*what).next().is_some())
        .map(|(what, figure)| (what.name(), figure))
        .collect()
}

fn figure4(results: &Results) -> Figure {
    let mut panel = by_scale(results, What::Figure4);
    let shadow = |at: f64| {
        let places = [1.0, 10.0, 25.0].into_iter().zip(paper::FIGURE4);
        let here = places.into_iter().find(|(place, _)| *place == at);
        here.map(|(_, reported)| Value::exact(reported.low))
    };
    panel.series.push(Series {
        name: "Shadow (paper; external, directed)".to_owned(),
        look: Look::grey(),
        values: panel.groups.iter().map(|group| shadow(group.at)).collect(),
    });
    figure(
        results,
        What::Figure4,
        "Shared links by scale of the network (Pahl et al. 2023, Figure 4)",
        "96,000 active circuits and all relays at 100 %; both scaled",
        panel,
        "",
    )
}

fn figure5(results: &Results) -> Figure {
    let groups = CLASSES.iter().zip(paper::FIGURE5_EXITS);
    let mut panel = panel(Kind::Bars, "", "shared links, %");
    panel.groups = groups
        .enumerate()
        .map(|(place, ((name, _), _))| Group {
            at: place as f64,
            label: name.replacen(' ', "\n", 1),
        })
        .collect();
    panel.series = of_series(results, What::Figure5, &panel.groups);
    panel.series.insert(
        0,
        Series {
            name: "paper (directed)".to_owned(),
            look: Look::grey(),
            values: paper::FIGURE5
                .iter()
                .map(|reported| Some(Value::exact(reported.low)))
                .collect(),
        },
    );
    figure(
        results,
        What::Figure5,
        "Shared links by class of traffic (Pahl et al. 2023, Figure 5)",
        "96,000 active circuits, as if the whole network served one class alone; external",
        panel,
        "",
    )
}

fn figure6(results: &Results) -> Figure {
    figure(
        results,
        What::Figure6,
        "Shared links by circuits of each client (Pahl et al. 2023, Figure 6)",
        "One guard for each client; external, directed",
        by_scale(results, What::Figure6),
        "Paper: 4 % with one, 5 % with 64 at 100 %.",
    )
}

fn figure7(results: &Results) -> Figure {
    let mut panel = panel(Kind::Bars, "active circuits on a link", "links, % of all");
    panel.groups = results
        .places(What::Figure7)
        .into_iter()
        .filter(|at| *at <= 8.0)
        .map(|at| Group {
            at,
            label: format!("{at}"),
        })
        .collect();
    let all = of_series(results, What::Figure7, &panel.groups);
    let all = all
        .into_iter()
        .filter(|series| series.name == FIGURE7_SERIES);
    let values: Vec<Option<Value>> = all.flat_map(|series| series.values).collect();
    // One bar for each number of circuits: the axis is that of two series beside each other.
    panel.series = vec![Series {
        name: "links by their circuits (1: not shared)".to_owned(),
        look: Look::number(0),
        values,
    }];
    figure(
        results,
        What::Figure7,
        "Circuits on a link (Pahl et al. 2023, Figure 7)",
        "96,000 active circuits; external, directed",
        panel,
        "Paper: 3.5 % of two circuits, 0.3 % of more.",
    )
}

fn figure8(results: &Results) -> Figure {
    let mut panel = panel(
        Kind::Curves,
        "active circuits, thousands",
        "shared links, %",
    );
    let places = results.places(What::Figure8);
    let mut curves = Vec::new();
    for (number, series) in results.series(What::Figure8).into_iter().enumerate() {
        let points = places.iter().filter_map(|at| {
            let over = results.over(What::Figure8, series, *at)?;
            Some((at / 1000.0, over.spread.mean))
        });
        curves.push(Curve {
            name: series.to_owned(),
            look: Look::number(number),
            points: points.collect(),
        });
    }
    let demands = [paper::PRESENT_CIRCUITS, paper::CAPACITY_CIRCUITS];
    let words = [
        "paper, present network: 3.7 to 6.9 %",
        "paper, at capacity: 8 to 16 %",
    ];
    let looks = [Look::number(4), Look::grey()];
    for (((circuits, reported), name), look) in demands
        .into_iter()
        .zip(paper::FIGURE8)
        .zip(words)
        .zip(looks)
    {
        // The rectangle of the paper.
        let (left, right) = (
            circuits as f64 / 1000.0 - 8.0,
            circuits as f64 / 1000.0 + 8.0,
        );
        curves.push(Curve {
            name: name.to_owned(),
            look,
            points: vec![
                (left, reported.low),
                (right, reported.low),
                (right, reported.high),
                (left, reported.high),
                (left, reported.low),
            ],
        });
    }
    panel.curves = curves;
    figure(
        results,
        What::Figure8,
        "Shared links by growing demand (Pahl et al. 2023, Figure 8)",
        "The whole network; rectangles are the paper's intervals at 96,000 and 290,000 active circuits",
        panel,
        "Lines are means over the documents.",
    )
}

fn figure11(results: &Results) -> Figure {
    let mut panel = panel(Kind::Bars, "", "shared links, %");
    let places = results.places(What::Figure11);
    panel.groups = places
        .into_iter()
        .filter_map(|at| {
            let name = MODELS.get(at as usize)?;
            Some(Group {
                at,
                label: (*name).to_owned(),
            })
        })
        .collect();
    panel.series = of_series(results, What::Figure11, &panel.groups);
    figure(
        results,
        What::Figure11,
        "Shared links by model of path selection (Pahl et al. 2023, Figure 11)",
        "96,000 active circuits; the paper found its SALSA where the modified Tor client was, and TorPS 0.2 points above",
        panel,
        "",
    )
}

/// Lines over scales.
fn by_scale(results: &Results, what: What) -> Panel {
    let mut panel = panel(Kind::Lines, "scale of the network, %", "shared links, %");
    panel.groups = results
        .places(what)
        .into_iter()
        .map(|at| Group {
            at,
            label: format!("{at}"),
        })
        .collect();
    panel.series = of_series(results, what, &panel.groups);
    panel
}

/// Every series of a figure over these groups, all documents together.
fn of_series(results: &Results, what: What, groups: &[Group]) -> Vec<Series> {
    let documents = documents(results, what).len();
    let value = |series: &str, at: f64| {
        let over = results.over(what, series, at)?;
        // A value from fewer documents has whiskers of another kind than the figure's, so it is
        // drawn without.
        Some(match over.documents == documents {
            true => over.value(),
            false => Value::exact(over.spread.mean),
        })
    };
    let all = results.series(what).into_iter().enumerate();
    all.map(|(number, series)| Series {
        name: series.to_owned(),
        look: Look::number(number),
        values: groups.iter().map(|group| value(series, group.at)).collect(),
    })
    .collect()
}

fn panel(kind: Kind, x_label: &str, y_label: &str) -> Panel {
    Panel::of_values(kind, "", x_label, y_label, Vec::new(), Vec::new())
}

/// Documents that a figure was run over. Some figures need exit policies, which not every document
/// has.
fn documents(results: &Results, what: What) -> Vec<&str> {
    let names = results.documents.iter().map(|(name, _, _)| &**name);
    let is_run = |name: &&str| results.of(what).any(|point| point.document == *name);
    names.filter(is_run).collect()
}

fn figure(
    results: &Results,
    what: What,
    title: &str,
    subtitle: &str,
    panel: Panel,
    more: &str,
) -> Figure {
    let documents = documents(results, what);
    let count = documents.len();
    let documents = match documents.as_slice() {
        all if all.len() <= 2 => all.join(", "),
        [first, .., last] => format!("{count} documents, {first} to {last}"),
        _ => String::new(),
    };
    let footer = [more, &documents]
        .into_iter()
        .filter(|line| !line.is_empty());
    Figure {
        title: title.to_owned(),
        subtitle: subtitle.to_owned(),
        panels: vec![panel],
        columns: 1,
        footer: footer.map(str::to_owned).collect(),
        whiskers: Some(whiskers(count)),
        same_scale: false,
        legend: true,
    }
}
