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
    families: Vec<Family>,
    /// The place of the family of the next samples.
    current: usize,
    /// The last label of every sample, where the process has several identities.
    identity: Option<&'static str>,
}

/// A family's lines.
#[derive(Debug)]
struct Family {
    name: &'static str,
    text: String,
}

impl Text {
    /// Begins the samples of one of several identities; they are placed behind those of others of
    /// the same family.
    pub(super) fn begin(&mut self, identity: Option<&'static str>) {
        self.identity = identity;
        self.current = 0;
    }

    /// Begins a family. `help` is one line.
    pub(super) fn family(&mut self, family: &'static str, kind: Kind, help: &'static str) {
        // Identities have them in the same order: it is the next one, mostly.
        let next = self.current + 1;
        if let Some(place) = (next..self.families.len())
            .chain(0..next.min(self.families.len()))
            .find(|place| (self.families.get(*place)).is_some_and(|known| known.name == family))
        {
            self.current = place;
            return;
        }
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        self.current = self.families.len();
        self.families.push(Family {
            name: family,
            text: format!("# HELP {family} {help}\n# TYPE {family} {kind}\n"),
        });
    }

    /// Adds a sample to the family, with its labels.
    pub(super) fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        let Some(Family { name, text }) = self.families.get_mut(self.current) else {
            return;
        };
        text.push_str(name);
        let own = self.identity.map(|name| ("identity", name));
        let labels: Vec<(&str, &str)> = labels.iter().copied().chain(own).collect();
        for (index, (name, of)) in labels.iter().enumerate() {
            text.push(if index == 0 { '{' } else { ',' });
            // Writing to a string cannot fail, here and below.
            let _ = write!(text, "{name}=\"");
            for c in of.chars() {
                match c {
                    '"' => text.push_str("\\\""),
                    '\\' => text.push_str("\\\\"),
                    '\n' => text.push_str("\\n"),
                    c => text.push(c),
                }
            }
            text.push('"');
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(text, "{close} {value}");
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
        self.families
            .into_iter()
            .map(|family| family.text)
            .collect()
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

    #[test]
    fn the_samples_of_several_identities_are_together_in_their_family() {
        let mut text = Text::default();
        for (name, value) in [("a", 1), ("b", 2)] {
            text.begin(Some(name));
            text.single("g", Kind::Gauge, "G", value);
            if name == "b" {
                text.single("only", Kind::Gauge, "O", 5);
            }
            text.family("f", Kind::Counter, "F");
            text.sample(&[("type", "x")], value + 2);
        }
        assert_eq!(
            text.finish(),
            "# HELP g G\n# TYPE g gauge\ng{identity=\"a\"} 1\ng{identity=\"b\"} 2\n\
             # HELP f F\n# TYPE f counter\nf{type=\"x\",identity=\"a\"} 3\nf{type=\"x\",identity=\"b\"} 4\n\
             # HELP only O\n# TYPE only gauge\nonly{identity=\"b\"} 5\n"
        );
    }
}
