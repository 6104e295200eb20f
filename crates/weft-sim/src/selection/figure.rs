//! The plot of a comparison: latency and bandwidth of the circuits that each rule uses, and how round trips are distributed.

use weft_plot::{Curve, Figure, Look, Panel};
use weft_stats::quantile;

use super::{Report, Tuple};

/// Share of circuits that a panel shows: the few slowest would make the rest a line at its edge.
const SHOWN: f64 = 0.98;
const NAMES: [&str; 4] = ["build times", "round trips", "both", "no rule"];

impl Report {
    /// Distributions of latency and bandwidth by rule, and round trips beside the distribution that was fitted.
    #[must_use]
    pub fn figure(&self) -> Figure {
        let by_rule = |of: &dyn Fn(&Tuple) -> f64| {
            let end = self.end(of);
            let curve = |(number, name): (usize, &&str)| {
                let values = self.kept[number].iter().map(of);
                let points = Curve::distribution(values.collect());
                let look = match number {
                    3 => Look::grey().dashed(),
                    _ => Look::number(number),
                };
                Curve {
                    name: (*name).to_owned(),
                    look,
                    points: points.into_iter().filter(|(x, _)| *x <= end).collect(),
                }
            };
            NAMES.iter().enumerate().map(curve).collect::<Vec<_>>()
        };
        let share = "share of circuits";
        Figure {
            title: "Circuits chosen by build time and by round trip (Schrock 2017, Tables 1 and 2)"
                .to_owned(),
            subtitle: format!(
                "{} circuits; {:.0} % are to be used",
                self.circuits,
                self.options.quantile * 100.0
            ),
            panels: vec![
                Panel::of_curves("Latency", "ms", share, by_rule(&|tuple| tuple.latency_ms)),
                Panel::of_curves(
                    "Bandwidth",
                    "Mbit/s",
                    share,
                    by_rule(&|tuple| tuple.bandwidth_mbit),
                ),
                Panel::of_curves(
                    "Round trips of all circuits",
                    "ms",
                    share,
                    self.round_trips(),
                ),
            ],
            columns: 1,
            footer: vec![format!(
                "Curves end where {:.0} % of all circuits are shown.",
                SHOWN * 100.0
            )],
            whiskers: None,
            same_scale: false,
            legend: true,
        }
    }

    fn end(&self, of: &dyn Fn(&Tuple) -> f64) -> f64 {
        let all: Vec<f64> = self.kept[3].iter().map(of).collect();
        quantile(&all, SHOWN).unwrap_or(f64::INFINITY)
    }

    fn round_trips(&self) -> Vec<Curve> {
        let end = self.end(&|tuple| tuple.rtt_ms);
        let measured = Curve::distribution(self.kept[3].iter().map(|tuple| tuple.rtt_ms).collect());
        let mut curves = vec![Curve {
            name: "measured".to_owned(),
            look: Look::number(3),
            points: measured.into_iter().filter(|(x, _)| *x <= end).collect(),
        }];
        if let Some(fit) = &self.gev {
            let gev = fit.gev();
            let at = |step: u32| end * f64::from(step) / 200.0;
            curves.push(Curve {
                name: "fitted (generalized extreme value)".to_owned(),
                look: Look::number(4).dashed(),
                points: (0..=200)
                    .map(at)
                    .map(|time| (time, gev.cdf(time)))
                    .collect(),
            });
        }
        curves
    }
}
