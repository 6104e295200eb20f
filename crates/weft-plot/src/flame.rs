//! Flame graphs of folded stacks, as SVG without a program in it: a box for each function, as wide as its samples,
//! on the box of its caller. A pointer over a box shows the whole name.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::figure::Drawn;
use crate::style::Style;
use crate::text::{FAMILY, fit, of_xml, width_of};

/// A box that is narrower is left out, with all that is on it.
const NARROWEST: f64 = 0.4;
/// Boxes on each other at most.
const DEEPEST: usize = 120;
/// Letters, and the height of a box, for a screen and for a paper.
const SIZES: [(f64, f64); 2] = [(11.0, 17.0), (10.0, 14.0)];
/// The width for a screen.
const WIDTH: f64 = 1200.0;

/// Folded stacks to be drawn as a flame graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlameGraph {
    /// Title: the program or thread that was sampled.
    pub title: String,
    /// Names from the outermost function to the innermost with `;` between them, a space, and how many samples it has.
    pub lines: Vec<String>,
}

/// A function in its place, with the samples that it and those on it have.
#[derive(Debug, Default)]
struct Place {
    samples: u64,
    above: BTreeMap<String, Place>,
}

impl FlameGraph {
    fn folded(&self) -> Result<Place> {
        let mut root = Place::default();
        for line in &self.lines {
            let (stack, count) = line
                .rsplit_once(' ')
                .with_context(|| format!("{line:?} is no stack with a number"))?;
            let count: u64 = count
                .parse()
                .with_context(|| format!("{line:?} does not end with a number"))?;
            let add = |samples: &mut u64| {
                *samples = samples.checked_add(count)?;
                Some(())
            };
            add(&mut root.samples).context("there are more samples than can be counted")?;
            let mut place = &mut root;
            for name in stack.split(';').take(DEEPEST) {
                place = place.above.entry(name.to_owned()).or_default();
                // No more than all of them.
                place.samples += count;
            }
        }
        ensure!(root.samples > 0, "{}: there are no samples", self.title);
        Ok(root)
    }

    /// The graph as SVG, with the text for its caption.
    ///
    /// # Errors
    ///
    /// A line has no number at its end, or no line has a sample.
    pub fn draw(&self, style: Style) -> Result<Drawn> {
        let root = self.folded()?;
        let all = root.samples;
        let head = format!("{}, {all} samples", self.title);
        let (width, margin, top, (letters, row), caption) = match style {
            Style::Screen => (WIDTH, 10.0, 44.0, SIZES[0], String::new()),
            Style::Paper { .. } => {
                let of = "Each box is a function, as wide as its samples, under its caller";
                (
                    style.width(),
                    0.0,
                    0.0,
                    SIZES[1],
                    format!("{head}.\n{of}.\n"),
                )
            }
        };
        let mut graph = Graph {
            scale: (width - 2.0 * margin) / all as f64,
            all,
            top,
            letters,
            row,
            deepest: 0,
            boxes: String::new(),
        };
        graph.draw(&root, margin, 0);
        let height = top + row * graph.deepest as f64 + margin;
        let (shown_width, shown_height) = match style {
            Style::Screen => (width.to_string(), height.to_string()),
            Style::Paper { .. } => (style.length(width), style.length(height)),
        };
        let title = match style {
            Style::Screen => format!(
                "<text x=\"{margin}\" y=\"26\" font-size=\"17\">{}</text>\n",
                escaped(&head)
            ),
            Style::Paper { .. } => String::new(),
        };
        let svg = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{shown_width}\" height=\"{shown_height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"{FAMILY}\" font-size=\"{letters}\">\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
             {title}{}</svg>\n",
            graph.boxes
        );
        Ok(Drawn { svg, caption })
    }
}

/// A graph that is being drawn.
struct Graph {
    /// Units of a sample.
    scale: f64,
    all: u64,
    top: f64,
    letters: f64,
    row: f64,
    deepest: usize,
    boxes: String,
}

impl Graph {
    /// Draws all that is on a box which begins at `left`. The outermost functions are at the top.
    fn draw(&mut self, under: &Place, left: f64, depth: usize) {
        let mut left = left;
        for (name, one) in &under.above {
            let width = one.samples as f64 * self.scale;
            if width >= NARROWEST {
                self.draw_box(name, one.samples, (left, depth), width);
                self.draw(one, left, depth + 1);
            }
            left += width;
        }
    }

    fn draw_box(&mut self, name: &str, samples: u64, (left, depth): (f64, usize), width: f64) {
        self.deepest = self.deepest.max(depth + 1);
        let top = self.top + self.row * depth as f64;
        let percent = samples as f64 * 100.0 / self.all as f64;
        let whole = escaped(name);
        // Writing to a String cannot fail.
        let _ = write!(
            self.boxes,
            "<g><title>{whole}: {samples} samples, {percent:.1} %</title>\
             <rect x=\"{left:.1}\" y=\"{top}\" width=\"{:.1}\" height=\"{}\" fill=\"{}\"/>",
            (width - 0.5).max(0.2),
            self.row - 1.0,
            color(name),
        );
        let room = width - 4.0;
        // Fewer letters than three say nothing.
        if room >= width_of("mm…", self.letters) {
            let _ = write!(
                self.boxes,
                "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                left + 2.0,
                top + self.row * 0.72,
                escaped(&fit(name, self.letters, room))
            );
        }
        self.boxes.push_str("</g>\n");
    }
}

/// A warm colour that the name alone decides, so that a function looks the same in all graphs.
fn color(name: &str) -> String {
    let hash = name.bytes().fold(2_166_136_261u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(16_777_619)
    });
    let part = |shift: u32, range: u32| (hash >> shift) % range;
    format!(
        "rgb({},{},{})",
        215 + part(0, 40),
        130 + part(8, 90),
        70 + part(16, 50)
    )
}

fn escaped(text: &str) -> String {
    of_xml(text)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(title: &str, lines: &[&str]) -> FlameGraph {
        FlameGraph {
            title: title.to_owned(),
            lines: lines.iter().map(|line| (*line).to_owned()).collect(),
        }
    }

    #[test]
    fn functions_are_as_wide_as_their_samples() {
        let graph = graph("Time & place", &["main;a::f 3", "main;b<c>::g 1"]);
        let svg = graph.draw(Style::Screen).expect("a graph").svg;
        assert!(svg.starts_with("<?xml"), "{svg}");
        for text in [
            "main: 4 samples, 100.0 %",
            "a::f: 3 samples, 75.0 %",
            "b&lt;c&gt;::g: 1 samples, 25.0 %",
            "Time &amp; place, 4 samples",
            "x=\"10.0\" y=\"61\" width=\"884.5\"",
        ] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        let paper = graph
            .draw(Style::Paper { width_mm: 84.0 })
            .expect("a graph");
        assert!(!paper.svg.contains("Time &amp; place"), "{}", paper.svg);
        assert!(paper.svg.contains("width=\"84mm\""), "{}", paper.svg);
        assert!(paper.caption.starts_with("Time & place, 4 samples.\n"));
    }

    #[test]
    fn what_is_no_graph_is_refused() {
        assert!(graph("nothing", &[]).draw(Style::Screen).is_err());
        for line in ["a;b", "a;b x", "a 0"] {
            assert!(graph("bad", &[line]).draw(Style::Screen).is_err(), "{line}");
        }
        let most = format!("a {}", u64::MAX);
        assert!(graph("much", &[&most, &most]).draw(Style::Screen).is_err());
    }

    #[test]
    fn a_deep_stack_is_cut() {
        let line = format!("{} 1", vec!["f"; 10_000].join(";"));
        let svg = graph("deep", &[&line])
            .draw(Style::Screen)
            .expect("a graph")
            .svg;
        assert_eq!(svg.matches("<rect").count(), DEEPEST + 1);
    }
}
