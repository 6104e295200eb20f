//! What was set: the value of every option, as lines are assigned to it one file after another
//! (C tor: src/lib/confmgt/confmgt.c, `config_assign`).

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]

use super::known::{self, Found, KNOWN, Kind, Known, TESTING_DEFAULTS};
use super::lexer::{Command, Line};
use super::report::{Origin, Report};
use super::value::{ListLine, Value};

#[derive(Clone, Debug)]
struct Setting {
    value: Value,
    /// Where it was set; `None`: it is the default.
    origin: Option<Origin>,
    /// Whether the next line replaces the list: it is of another file.
    fragile: bool,
}

/// The value of every option.
#[derive(Clone, Debug)]
pub struct Settings {
    /// In the order of [`KNOWN`].
    all: Vec<Setting>,
}

impl PartialEq for Settings {
    /// Where values were set does not matter.
    fn eq(&self, other: &Self) -> bool {
        self.all
            .iter()
            .map(|s| &s.value)
            .eq(other.all.iter().map(|s| &s.value))
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::new(false)
    }
}

impl Settings {
    /// Every option at its default; of a private network where `testing`.
    #[must_use]
    pub fn new(testing: bool) -> Self {
        let default = |known: &Known| {
            let parsed = known
                .default
                .and_then(|text| Value::parse(known.kind, text).ok());
            Setting {
                value: parsed.unwrap_or_else(|| match known.kind {
                    // Not set is not the same as cleared.
                    Kind::AutoBool | Kind::Count => Value::Auto(None),
                    kind => Value::cleared(kind),
                }),
                origin: None,
                fragile: false,
            }
        };
        let mut settings = Self {
            all: KNOWN.iter().map(default).collect(),
        };
        if testing {
            for (name, text) in TESTING_DEFAULTS {
                if let Some(index) = known::index_of(name)
                    && let Some(known) = KNOWN.get(index)
                    && let Ok(value) = Value::parse(known.kind, text)
                {
                    settings.put(index, value);
                }
            }
        }
        settings
    }

    /// Assigns the lines of one source (a file with what it includes, or the command line). What is
    /// wrong is added to `report`; every line is looked at.
    pub fn assign(&mut self, lines: &[Line], command_line: bool, report: &mut Report) {
        let mut seen = vec![false; KNOWN.len()];
        for line in lines {
            self.assign_line(line, command_line, &mut seen, report);
        }
        for setting in &mut self.all {
            setting.fragile = true;
        }
    }

    fn assign_line(
        &mut self,
        line: &Line,
        command_line: bool,
        seen: &mut [bool],
        report: &mut Report,
    ) {
        let origin = Some(&line.origin);
        let Some(Found {
            index,
            known,
            warning,
        }) = known::find(&line.key, command_line)
        else {
            let words = unknown_in_tors_words(&line.key);
            report.error_in_tors_words(origin, unknown_option(&line.key), words);
            return;
        };
        if let Some(warning) = warning {
            report.warn(origin, warning);
        }
        if let Some(why) = known::deprecation(known.name) {
            report.warn(origin, format!("{} is deprecated: {why}", known.name));
        }
        if line.value.is_empty() {
            if known.is_list() && line.command != Command::Clear {
                report.warn(
                    origin,
                    format!("{} has no value; the line is skipped", known.name),
                );
            } else {
                self.clear(index, known, &line.origin);
            }
            return;
        }
        if !known.is_list()
            && let Some(seen) = seen.get_mut(index)
            && std::mem::replace(seen, true)
        {
            report.warn(
                origin,
                format!("{} is set more than once; only the last counts", known.name),
            );
        }
        match known.kind {
            Kind::Obsolete => {
                report.warn(
                    None,
                    format!("{} is obsolete and does nothing; remove it", known.name),
                );
            }
            Kind::LinesVirtual => {
                report.error(
                    origin,
                    format!("{} is a list that cannot be set by this name", known.name),
                );
            }
            Kind::Lines => self.add_line(index, known, line),
            Kind::LinesOf(list) => {
                if let Some(index) = known::index_of(list) {
                    self.add_line(index, known, line);
                }
            }
            kind => match Value::parse(kind, &line.value) {
                Ok(value) => {
                    if let Some(setting) = self.all.get_mut(index) {
                        setting.value = value;
                        setting.origin = Some(line.origin.clone());
                    }
                }
                Err(why) => report.error(origin, format!("{}: {why}", known.name)),
            },
        }
    }

    fn add_line(&mut self, index: usize, known: &'static Known, line: &Line) {
        let Some(setting) = self.all.get_mut(index) else {
            return;
        };
        let added = ListLine {
            name: known.name,
            value: line.value.clone(),
            origin: line.origin.clone(),
        };
        let replaces = setting.fragile && line.command != Command::Append;
        setting.fragile = false;
        match &mut setting.value {
            Value::Lines(lines) if !replaces => lines.push(added),
            value => *value = Value::Lines(vec![added]),
        }
        setting.origin = Some(line.origin.clone());
    }

    fn clear(&mut self, index: usize, known: &Known, origin: &Origin) {
        let (index, kind) = match known.kind {
            Kind::LinesOf(list) => match known::index_of(list) {
                Some(index) => (index, Kind::LinesVirtual),
                None => return,
            },
            kind => (index, kind),
        };
        if let Some(setting) = self.all.get_mut(index) {
            setting.value = Value::cleared(kind);
            setting.origin = Some(origin.clone());
        }
    }

    /// Forgets what an option was set to: it holds nothing, or zero; or, where `default`, what it
    /// holds unless it is set. A key that nobody knows is left alone.
    pub(super) fn forget(&mut self, key: &str, default: bool, origin: &Origin) {
        let Some(Found { index, known, .. }) = known::find(key, false) else {
            return;
        };
        if !default {
            self.clear(index, known, origin);
            return;
        }
        let index = match known.kind {
            Kind::LinesOf(list) => known::index_of(list).unwrap_or(index),
            _ => index,
        };
        let testing = self.flag("TestingTorNetwork");
        if let Some(setting) = Self::new(testing).all.get(index)
            && let Some(own) = self.all.get_mut(index)
        {
            own.clone_from(setting);
        }
    }

    fn put(&mut self, index: usize, value: Value) {
        if let Some(setting) = self.all.get_mut(index) {
            setting.value = value;
        }
    }

    /// Every option with its value and where it was set, in the order of [`KNOWN`].
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static Known, &Value, Option<&Origin>)> {
        KNOWN
            .iter()
            .zip(&self.all)
            .map(|(known, s)| (known, &s.value, s.origin.as_ref()))
    }

    fn setting(&self, name: &str) -> Option<&Setting> {
        let found = known::index_of(name).and_then(|index| self.all.get(index));
        debug_assert!(found.is_some(), "no option is named {name}");
        found
    }

    /// Where an option was set; `None` where it has its default.
    #[must_use]
    pub fn origin(&self, name: &str) -> Option<&Origin> {
        self.setting(name)?.origin.as_ref()
    }

    /// An option's text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        match &self.setting(name)?.value {
            Value::Text(text) => text.as_deref(),
            _ => None,
        }
    }

    /// An option's number or amount, in its smallest unit.
    #[must_use]
    pub fn number(&self, name: &str) -> i64 {
        match self.setting(name).map(|s| &s.value) {
            Some(Value::Number(number)) => *number,
            _ => 0,
        }
    }

    /// An option's fraction.
    #[must_use]
    pub fn double(&self, name: &str) -> f64 {
        match self.setting(name).map(|s| &s.value) {
            Some(Value::Double(number)) => *number,
            _ => 0.0,
        }
    }

    /// Whether an option is 1.
    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        self.number(name) != 0
    }

    /// An option's number; `None`: auto.
    #[must_use]
    pub fn auto(&self, name: &str) -> Option<i64> {
        match self.setting(name).map(|s| &s.value) {
            Some(Value::Auto(number)) => *number,
            _ => None,
        }
    }

    /// An option's words.
    #[must_use]
    pub fn csv(&self, name: &str) -> &[String] {
        match self.setting(name).map(|s| &s.value) {
            Some(Value::Csv(words)) => words,
            _ => &[],
        }
    }

    /// An option's lines.
    #[must_use]
    pub fn lines(&self, name: &str) -> &[ListLine] {
        match self.setting(name).map(|s| &s.value) {
            Some(Value::Lines(lines)) => lines,
            _ => &[],
        }
    }

    /// Replaces a number that validation had to correct, so that dumps tell what is in force.
    pub(super) fn correct_number(&mut self, name: &str, number: i64) {
        if let Some(index) = known::index_of(name) {
            self.put(index, Value::Number(number));
        }
    }

    /// Replaces a fraction that validation had to correct.
    pub(super) fn correct_double(&mut self, name: &str, number: f64) {
        if let Some(index) = known::index_of(name) {
            self.put(index, Value::Double(number));
        }
    }

    /// Fills in the one line of a list that another option stands for.
    pub(super) fn correct_line(&mut self, name: &str, value: String) {
        if let Some(index) = known::index_of(name)
            && let Some(known) = KNOWN.get(index)
        {
            let line = ListLine {
                name: known.name,
                value,
                origin: Origin::whole("the defaults"),
            };
            self.put(index, Value::Lines(vec![line]));
        }
    }

    /// Replaces a text that validation filled in.
    pub(super) fn correct_text(&mut self, name: &str, text: &str) {
        if let Some(index) = known::index_of(name) {
            self.put(index, Value::Text(Some(text.to_owned())));
        }
    }
}

/// The same as C tor says it; controllers find the option in it (Stem's `load_conf`).
pub(super) fn unknown_in_tors_words(key: &str) -> String {
    format!("Failed to parse/validate config: Unknown option '{key}'.  Failing.")
}

fn unknown_option(key: &str) -> String {
    match known::nearest(key) {
        Some(name) => format!("unknown option \"{key}\"; did you mean {name}?"),
        None => format!("unknown option \"{key}\""),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::torrc::lexer::lex;

    /// Assigns texts one after another, as files are.
    fn assign(texts: &[&str]) -> (Settings, Report) {
        let mut report = Report::default();
        let mut settings = Settings::default();
        for (number, text) in texts.iter().enumerate() {
            let lines = lex(text.as_bytes(), &format!("f{number}").into(), &mut report);
            settings.assign(&lines, false, &mut report);
        }
        (settings, report)
    }

    fn values<'a>(settings: &'a Settings, name: &str) -> Vec<&'a str> {
        settings
            .lines(name)
            .iter()
            .map(|l| l.value.as_str())
            .collect()
    }

    #[test]
    fn every_default_can_be_read() {
        for known in &KNOWN {
            if let Some(text) = known.default {
                assert!(Value::parse(known.kind, text).is_ok(), "{}", known.name);
            }
        }
        assert!(Settings::new(true).flag("ExtendAllowPrivateAddresses"));
        assert!(!Settings::new(false).flag("ExtendAllowPrivateAddresses"));
    }

    #[test]
    fn the_last_single_value_counts_and_lists_grow() {
        let (settings, report) =
            assign(&["Nickname a\nNickname b\nAddress 1.2.3.4\nADDRESS 1.2.3.5"]);
        assert_eq!(settings.text("Nickname"), Some("b"));
        assert_eq!(values(&settings, "Address"), ["1.2.3.4", "1.2.3.5"]);
        assert_eq!(report.messages().len(), 1);
        assert!(report.messages()[0].text.contains("more than once"));
    }

    #[test]
    fn a_later_file_replaces_a_list_unless_it_says_plus() {
        let (settings, _) = assign(&[
            "Log notice stdout\nLog info stderr",
            "Log warn stdout\nLog err stderr",
        ]);
        assert_eq!(values(&settings, "Log"), ["warn stdout", "err stderr"]);
        let (settings, _) = assign(&["Log notice stdout", "+Log warn stdout\nLog err stderr"]);
        assert_eq!(
            values(&settings, "Log"),
            ["notice stdout", "warn stdout", "err stderr"]
        );
        let (settings, _) = assign(&["Log notice stdout", "/Log"]);
        assert!(settings.lines("Log").is_empty());
    }

    #[test]
    fn port_lines_of_both_names_share_a_list() {
        let (settings, _) = assign(&["ORPort 1\n__ORPort 2", "+ORPort 3"]);
        assert_eq!(values(&settings, "ORPortLines"), ["1", "2", "3"]);
        let (settings, _) = assign(&["ORPort 1\n__ORPort 2", "/__ORPort x"]);
        assert!(settings.lines("ORPortLines").is_empty());
    }

    #[test]
    fn an_empty_value_clears_a_single_value_and_skips_a_list() {
        let (settings, report) = assign(&[
            "Nickname a\nLog notice stdout\nExitRelay 1",
            "Nickname\nLog\nExitRelay",
        ]);
        assert_eq!(settings.text("Nickname"), None);
        assert_eq!(settings.auto("ExitRelay"), Some(0));
        assert_eq!(settings.lines("Log").len(), 1);
        assert_eq!(report.messages().len(), 1);
    }

    #[test]
    fn everything_wrong_is_told_at_once() {
        let (_, report) =
            assign(&["Nicknme a\nBandwidthRate lots\n\nORPortLines 1\nExitRelay maybe"]);
        let told = report.to_string();
        assert_eq!(
            told.lines().collect::<Vec<_>>(),
            [
                "f0:1: unknown option \"Nicknme\"; did you mean Nickname?",
                "f0:2: BandwidthRate: \"lots\" does not start with a number",
                "f0:4: ORPortLines is a list that cannot be set by this name",
                "f0:5: ExitRelay: \"maybe\" is neither 0 nor 1 nor auto",
            ]
        );
    }
}
