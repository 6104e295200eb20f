//! Flame graphs of folded stacks.

use anyhow::{Context as _, Result};
use inferno::flamegraph::{self, Options};

/// A flame graph as SVG. A line has names from the outermost function to the innermost with `;` between them, a
/// space, and how many samples it has.
///
/// # Errors
///
/// No line has a sample.
pub fn flame_graph(title: &str, lines: &[String]) -> Result<String> {
    let mut options = Options::default();
    options.title = title.to_owned();
    options.deterministic = true;
    options.count_name = "samples".to_owned();
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut svg)
        .with_context(|| format!("drawing {title}"))?;
    String::from_utf8(svg).with_context(|| format!("drawing {title}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_in_it_and_nothing_is_no_graph() {
        let lines = ["main;a::f 3", "main;b<c>::g 1"].map(str::to_owned);
        let svg = flame_graph("Time & place", &lines).expect("a graph");
        assert!(svg.starts_with("<?xml"), "{svg}");
        for text in ["a::f", "b&lt;c&gt;::g", "Time &amp; place"] {
            assert!(svg.contains(text), "{text}");
        }
        assert!(flame_graph("nothing", &[]).is_err());
    }
}
