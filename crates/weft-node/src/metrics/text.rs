//! Prometheus' text format, version 0.0.4, as C tor writes it (prometheus.c): a HELP and a TYPE
//! line for each family, then one line for each sample.
//!
//! Written here because the `prometheus-client` crate writes OpenMetrics: it names every counter
//! `…_total` and ends the text with `# EOF`, and so cannot write C tor's `tor_relay_traffic_bytes`.

use std::fmt::{Display, Write as _};

/// The type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A value that only grows.
    Counter,
    /// A value that may grow and shrink.
    Gauge,
}

/// A writer of the format.
#[derive(Debug, Default)]
pub(super) struct Text {
    text: String,
    /// The family of the next samples.
    family: &'static str,
}

impl Text {
    /// Begins a family. `help` is one line.
    pub(super) fn family(&mut self, family: &'static str, kind: Kind, help: &'static str) {
        self.family = family;
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(self.text, "# HELP {family} {help}\n# TYPE {family} {kind}");
    }

    /// Adds a sample to the family, with its labels.
    pub(super) fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(self.family);
        for (index, (name, of)) in labels.iter().enumerate() {
            self.text.push(if index == 0 { '{' } else { ',' });
            let _ = write!(self.text, "{name}=\"");
            for c in of.chars() {
                match c {
                    '"' => self.text.push_str("\\\""),
                    '\\' => self.text.push_str("\\\\"),
                    '\n' => self.text.push_str("\\n"),
                    c => self.text.push(c),
                }
            }
            self.text.push('"');
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{close} {value}");
    }

    /// Adds a family of one sample without labels.
    pub(super) fn single(
        &mut self,
        family: &'static str,
        kind: Kind,
        help: &'static str,
        value: impl Display,
    ) {
        self.family(family, kind, help);
        self.sample(&[], value);
    }

    /// The whole text.
    pub(super) fn finish(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_and_samples_are_c_tors_lines() {
        let mut text = Text::default();
        text.family("a_total", Kind::Counter, "Total number of a");
        text.sample(&[("type", "b"), ("c", "quote \" back \\ line \n")], 3);
        text.sample(&[], 4);
        text.single("g", Kind::Gauge, "G", 0.5);
        assert_eq!(
            text.finish(),
            "# HELP a_total Total number of a\n# TYPE a_total counter\n\
             a_total{type=\"b\",c=\"quote \\\" back \\\\ line \\n\"} 3\na_total 4\n\
             # HELP g G\n# TYPE g gauge\ng 0.5\n"
        );
    }
}
