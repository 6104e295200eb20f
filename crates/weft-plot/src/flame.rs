//! Flame graphs of folded stacks, as SVG without a program in it: a box for each function, as wide as its samples,
//! on the box of its caller. A pointer over a box shows the whole name.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};

const WIDTH: f64 = 1200.0;
const ROW: f64 = 17.0;
const TOP: f64 = 44.0;
const MARGIN: f64 = 10.0;
/// A box that is narrower is left out, with all that is on it.
const NARROWEST: f64 = 0.4;
/// A letter's width.
const LETTER: f64 = 6.6;
/// Boxes on each other at most.
const DEEPEST: usize = 120;

/// A function in its place, with the samples that it and those on it have.
#[derive(Debug, Default)]
struct Place {
    samples: u64,
    above: BTreeMap<String, Place>,
}

/// A flame graph as SVG. A line has names from the outermost function to the innermost with `;` between them, a
/// space, and how many samples it has.
///
/// # Errors
///
/// A line has no number at its end, or no line has a sample.
pub fn flame_graph(title: &str, lines: &[String]) -> Result<String> {
    let mut root = Place::default();
    for line in lines {
        let (stack, count) = line
            .rsplit_once(' ')
            .with_context(|| format!("{line:?} is no stack with a number"))?;
        let count: u64 = count
            .parse()
            .with_context(|| format!("{line:?} does not end with a number"))?;
        root.samples += count;
        let mut place = &mut root;
        for name in stack.split(';').take(DEEPEST) {
            place = place.above.entry(name.to_owned()).or_default();
            place.samples += count;
        }
    }
    ensure!(root.samples > 0, "{title}: there are no samples");
    let mut boxes = String::new();
    let all = root.samples;
    let mut graph = Graph {
        scale: (WIDTH - 2.0 * MARGIN) / all as f64,
        all,
        deepest: 0,
        boxes: &mut boxes,
    };
    graph.draw(&root, MARGIN, 0);
    let height = TOP + ROW * graph.deepest as f64 + MARGIN;
    let title = escaped(title);
    Ok(format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"monospace\" font-size=\"11\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"{MARGIN}\" y=\"26\" font-family=\"sans-serif\" font-size=\"17\">{title}, {all} samples</text>\n\
         {boxes}</svg>\n"
    ))
}

/// A graph that is being drawn.
struct Graph<'a> {
    /// Pixels of a sample.
    scale: f64,
    all: u64,
    deepest: usize,
    boxes: &'a mut String,
}

impl Graph<'_> {
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
        let top = TOP + ROW * depth as f64;
        let percent = samples as f64 * 100.0 / self.all as f64;
        let whole = escaped(name);
        // Writing to a String cannot fail.
        let _ = write!(
            self.boxes,
            "<g><title>{whole}: {samples} samples, {percent:.1} %</title>\
             <rect x=\"{left:.1}\" y=\"{top}\" width=\"{:.1}\" height=\"{}\" fill=\"{}\"/>",
            (width - 0.5).max(0.2),
            ROW - 1.0,
            color(name),
        );
        let letters = ((width - 4.0) / LETTER) as usize;
        if letters >= 3 {
            let shown: String = match name.chars().count() > letters {
                false => name.to_owned(),
                true => name.chars().take(letters - 1).chain(['…']).collect(),
            };
            let _ = write!(
                self.boxes,
                "<text x=\"{:.1}\" y=\"{}\">{}</text>",
                left + 2.0,
                top + 12.0,
                escaped(&shown)
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
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_as_wide_as_their_samples() {
        let lines = ["main;a::f 3", "main;b<c>::g 1"].map(str::to_owned);
        let svg = flame_graph("Time & place", &lines).expect("a graph");
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
    }

    #[test]
    fn what_is_no_graph_is_refused() {
        assert!(flame_graph("nothing", &[]).is_err());
        for line in ["a;b", "a;b x", "a 0"] {
            assert!(flame_graph("bad", &[line.to_owned()]).is_err(), "{line}");
        }
    }

    #[test]
    fn a_deep_stack_is_cut() {
        let line = format!("{} 1", vec!["f"; 10_000].join(";"));
        let svg = flame_graph("deep", &[line]).expect("a graph");
        assert_eq!(svg.matches("<rect").count(), DEEPEST + 1);
    }
}
