//! As much YAML as a configuration of Shadow has.

use std::fmt::Write as _;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Yaml {
    Text(String),
    Number(u64),
    Switch(bool),
    /// Lines as they are.
    Block(String),
    List(Vec<Yaml>),
    Map(Vec<(String, Yaml)>),
}

impl Yaml {
    pub(super) fn text(text: impl Into<String>) -> Yaml {
        Yaml::Text(text.into())
    }

    /// A map of these keys, which are plain words.
    pub(super) fn map<const N: usize>(entries: [(&str, Yaml); N]) -> Yaml {
        let entries = entries.into_iter();
        Yaml::Map(
            entries
                .map(|(key, value)| (key.to_owned(), value))
                .collect(),
        )
    }

    /// The document of a map.
    pub(super) fn document(&self) -> String {
        let mut text = String::new();
        self.write(&mut text, 0);
        text.trim_start().to_owned()
    }

    /// Behind a key or a hyphen, at this depth.
    fn write(&self, text: &mut String, depth: usize) {
        match self {
            Yaml::Text(value) => {
                let _ = writeln!(text, " {}", quoted(value));
            }
            Yaml::Number(value) => {
                let _ = writeln!(text, " {value}");
            }
            Yaml::Switch(value) => {
                let _ = writeln!(text, " {value}");
            }
            Yaml::Block(lines) => {
                text.push_str(" |\n");
                for line in lines.lines() {
                    let _ = writeln!(text, "{:indent$}{line}", "", indent = 2 * depth);
                }
            }
            Yaml::List(values) if values.is_empty() => text.push_str(" []\n"),
            Yaml::List(values) => {
                text.push('\n');
                for value in values {
                    let _ = write!(text, "{:indent$}-", "", indent = 2 * depth);
                    value.write_in_list(text, depth + 1);
                }
            }
            Yaml::Map(entries) if entries.is_empty() => text.push_str(" {}\n"),
            Yaml::Map(entries) => {
                text.push('\n');
                for (key, value) in entries {
                    let _ = write!(text, "{:indent$}{key}:", "", indent = 2 * depth);
                    value.write(text, depth + 1);
                }
            }
        }
    }

    /// Behind a hyphen: the first entry of a map is on its line.
    fn write_in_list(&self, text: &mut String, depth: usize) {
        let mut value = String::new();
        self.write(&mut value, depth);
        match self {
            Yaml::Map(entries) if !entries.is_empty() => {
                let _ = write!(text, " {}", value.trim_start());
            }
            _ => text.push_str(&value),
        }
    }
}

/// Between double quotes, as JSON and YAML both read it.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_yaml_reads_them() {
        let yaml = Yaml::map([
            ("name", Yaml::text("it's \"x\"")),
            ("count", Yaml::Number(3)),
            ("none", Yaml::List(Vec::new())),
            ("graph", Yaml::Block("one [\n  two\n]\n".to_owned())),
            (
                "all",
                Yaml::List(vec![
                    Yaml::text("a"),
                    Yaml::map([
                        ("on", Yaml::Switch(true)),
                        ("args", Yaml::List(vec![Yaml::text("-f")])),
                    ]),
                ]),
            ),
        ]);
        let text = "name: \"it's \\\"x\\\"\"\ncount: 3\nnone: []\ngraph: |\n  one [\n    two\n  ]\nall:\n  - \"a\"\n  - on: true\n    \
                    args:\n      - \"-f\"\n";
        assert_eq!(yaml.document(), text);
    }
}
