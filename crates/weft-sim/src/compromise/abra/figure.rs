//! The plot of compromised circuits under ABRA (Schrock 2017, Figure 1).

use std::fmt::Write as _;

use weft_plot::{Curve, Figure, Look, Panel};

use super::pools::PoolPoint;
use super::replay::{Point, Quantiles};

/// Section 5.2's text on an adversary with 20 % of the network, medians, percent; all else is only in
/// its picture.
pub mod paper {
    /// Share of the network that belongs to the adversary.
    pub const FRACTION: f64 = 0.2;
    /// Circuits compromised if its relays are honest.
    pub const HONEST: f64 = 5.0;
    /// If they lie.
    pub const LYING: f64 = 7.0;
}

/// The three of both ways that are drawn, by the part of the network, in percent.
type Drawn = (f64, [Quantiles; 3]);

/// Figure 1 beside the paper's values. `network` describes what was simulated.
pub fn figure(points: &[Point], network: &str) -> Figure {
    let drawn = points.iter();
    let drawn = drawn.map(|one| (one.fraction * 100.0, [one.honest, one.lying, one.blind]));
    draw(&drawn.collect::<Vec<Drawn>>(), network)
}

/// Figure 1 for recorded choices, which `what` describes.
pub fn of_pools(points: &[PoolPoint], what: &str) -> Figure {
    let drawn = points.iter().filter_map(|one| {
        let percent = one.fraction? * 100.0;
        Some((percent, [one.honest, one.lying, one.blind]))
    });
    draw(&drawn.collect::<Vec<Drawn>>(), what)
}

fn draw(points: &[Drawn], network: &str) -> Figure {
    let at = |point: &Drawn| point.0;
    let line = |name: &str, look: Look, of: &dyn Fn(&Drawn) -> f64| Curve {
        name: name.to_owned(),
        look,
        points: points.iter().map(|point| (at(point), of(point))).collect(),
    };
    let range = |name: &str, look: Look, of: &dyn Fn(&Drawn) -> Quantiles| {
        let high = points.iter().map(|point| (at(point), of(point).high));
        let low = points.iter().rev().map(|point| (at(point), of(point).low));
        Curve {
            name: name.to_owned(),
            look: look.filled(),
            points: high.chain(low).collect(),
        }
    };
    // A value of the paper's text is a cross, as wide as a percent.
    let cross = |percent: f64| {
        let x = paper::FRACTION * 100.0;
        [
            vec![(x - 0.8, percent), (x + 0.8, percent)],
            vec![(x, percent - 0.8), (x, percent + 0.8)],
        ]
        .map(|points| Curve {
            name: "paper, text (5 and 7 %)".to_owned(),
            look: Look::grey(),
            points,
        })
    };
    let (honest, lying) = (Look::number(0), Look::number(1));
    let mut curves = vec![
        range("honest: 10th to 90th percentile", honest, &|point| {
            point.1[0]
        }),
        range("lying: 10th to 90th percentile", lying, &|point| point.1[1]),
        line("honest: median", honest.dashed(), &|point| {
            point.1[0].median
        }),
        line("lying: median", lying.dashed(), &|point| point.1[1].median),
        line(
            "any circuit of the pool: median",
            Look::number(2),
            &|point| point.1[2].median,
        ),
    ];
    curves.extend([paper::HONEST, paper::LYING].into_iter().flat_map(cross));
    Figure {
        title: "Circuits compromised under ABRA (Schrock 2017, Figure 1)".to_owned(),
        subtitle: network.to_owned(),
        panels: vec![Panel::of_curves(
            "What clients choose",
            "% of the network that is the adversary's",
            "% of choices",
            curves,
        )],
        columns: 1,
        footer: vec![
            "Percentiles over adversaries, whose relays are drawn at random. Lying relays report a weight of 0 when choices are made again."
                .to_owned(),
        ],
        whiskers: None,
        same_scale: false,
        legend: true,
    }
}

/// A line for each part of the network.
pub fn csv(points: &[Point]) -> String {
    let mut text = "fraction".to_owned();
    for what in ["honest", "lying", "tiny", "blind", "formula"] {
        let _ = write!(text, ",{what}_p10,{what}_p50,{what}_p90,{what}_mean");
    }
    text.push('\n');
    for point in points {
        let _ = write!(text, "{}", point.fraction);
        for one in point.columns() {
            let _ = write!(
                text,
                ",{},{},{},{}",
                one.low, one.median, one.high, one.mean
            );
        }
        text.push('\n');
    }
    text
}

/// CSV of recorded choices. The fraction is empty for the adversary that was in the network when
/// they were recorded.
pub fn pools_csv(points: &[PoolPoint]) -> String {
    let mut text = "fraction".to_owned();
    for what in ["honest", "lying", "tiny", "blind", "chosen"] {
        let _ = write!(text, ",{what}_p10,{what}_p50,{what}_p90,{what}_mean");
    }
    text.push('\n');
    for point in points {
        text += &point
            .fraction
            .map_or_else(String::new, |part| part.to_string());
        let all = [
            point.honest,
            point.lying,
            point.tiny,
            point.blind,
            point.chosen,
        ];
        for one in all {
            let (low, high) = (one.low, one.high);
            let _ = write!(text, ",{low},{},{high},{}", one.median, one.mean);
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figure_and_the_table_are_whole() {
        let point = |fraction: f64| {
            let of = |percent: f64| Quantiles {
                low: percent * 0.5,
                median: percent,
                high: percent * 1.5,
                mean: percent,
            };
            Point {
                fraction,
                honest: of(fraction * 25.0),
                lying: of(fraction * 35.0),
                tiny: of(fraction * 35.0),
                blind: of(fraction * 25.0),
                formula: of(fraction * 25.0),
            }
        };
        let points = [0.0, 0.1, 0.2, 0.5].map(point);
        let svg = figure(&points, "a network").svg().expect("a plot");
        for words in ["a network", "lying: median", "paper, text"] {
            assert!(svg.contains(words), "{words}");
        }
        assert!(csv(&points).starts_with("fraction,honest_p10"));
        assert_eq!(csv(&points).lines().count(), 5);
    }
}
