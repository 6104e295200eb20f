//! Settings: the value of every option, as lines are assigned to it one file after another (C tor:
//! src/lib/confmgt/confmgt.c, `config_assign`).

use std::time::Duration;

use crate::report::{Origin, Report};
use crate::table::find::{self, Found};
use crate::table::key::Key;
use crate::table::known::{Kind, Known};
use crate::table::value::{ListLine, Value};
use crate::table::{self, KNOWN, keys};
use crate::text::lexer::{Command, Line};

/// The value of one option.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) value: Value,
    /// Where it was set; `None`: it is the default.
    pub(crate) origin: Option<Origin>,
    /// True if the next line replaces the list: it is in another file.
    fragile: bool,
}

/// The value of every option.
#[derive(Clone, Debug)]
pub struct Settings {
    /// In the order of the table ([`KNOWN`]).
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
            let in_testing = known.in_testing.filter(|_| testing);
            let parsed = in_testing
                .or(known.default)
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
        Self {
            all: KNOWN.iter().map(default).collect(),
        }
    }

    /// Assigns the lines of one source (a file with its includes, or the command line). Errors are
    /// added to `report`; every line is checked.
    pub fn assign(&mut self, lines: &[Line], command_line: bool, report: &mut Report) {
        let mut seen = vec![false; KNOWN.len()];
        let mut before = None;
        for line in lines {
            self.assign_line(line, before, command_line, &mut seen, report);
            before = Some(line);
        }
        for setting in &mut self.all {
            setting.fragile = true;
        }
    }

    fn assign_line(
        &mut self,
        line: &Line,
        before: Option<&Line>,
        command_line: bool,
        seen: &mut [bool],
        report: &mut Report,
    ) {
        let origin = Some(&line.origin);
        let Some(Found {
            index,
            known,
            warning,
        }) = find::find(&line.key, command_line)
        else {
            let message = unknown_option_in_c_tor(&line.key);
            report.error_with_c_tor_message(origin, unknown_option(line, before), message);
            return;
        };
        if let Some(warning) = warning {
            report.warn(origin, warning);
        }
        if let Some(why) = known.deprecated {
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
                if let Some((index, _)) = table::by_name(list) {
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
            Kind::LinesOf(list) => match table::by_name(list) {
                Some((index, _)) => (index, Kind::LinesVirtual),
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
    pub(crate) fn forget(&mut self, key: &str, default: bool, origin: &Origin) {
        let Some(Found { index, known, .. }) = find::find(key, false) else {
            return;
        };
        if !default {
            self.clear(index, known, origin);
            return;
        }
        let index = match known.kind {
            Kind::LinesOf(list) => table::by_name(list).map_or(index, |(index, _)| index),
            _ => index,
        };
        let testing = self.flag(keys::TestingTorNetwork);
        if let Some(setting) = Self::new(testing).all.get(index)
            && let Some(own) = self.all.get_mut(index)
        {
            own.clone_from(setting);
        }
    }

    /// The option at this place of the table.
    pub(crate) fn at(&self, place: usize) -> Option<&Setting> {
        self.all.get(place)
    }

    /// Sets the option at this place of the table as it is set elsewhere.
    pub(crate) fn follow(&mut self, place: usize, setting: &Setting) {
        if let Some(own) = self.all.get_mut(place) {
            own.clone_from(setting);
        }
    }

    /// Every option with its value and where it was set, in C tor's order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Known, &Value, Option<&Origin>)> {
        table::indexed().filter_map(|(index, known)| {
            let setting = self.all.get(index)?;
            Some((known, &setting.value, setting.origin.as_ref()))
        })
    }

    fn value<T>(&self, key: Key<T>) -> Option<&Value> {
        self.all.get(key.index()).map(|setting| &setting.value)
    }

    /// Where an option was set; `None` where it has its default.
    #[must_use]
    pub fn origin<T>(&self, key: Key<T>) -> Option<&Origin> {
        self.all.get(key.index())?.origin.as_ref()
    }

    /// An option's text; `None` where there is none.
    #[must_use]
    pub fn text(&self, key: Key<String>) -> Option<&str> {
        match self.value(key)? {
            Value::Text(text) => text.as_deref(),
            _ => None,
        }
    }

    /// An option's number, or its amount in bytes.
    #[must_use]
    pub fn number(&self, key: Key<i64>) -> i64 {
        match self.value(key) {
            Some(Value::Number(number)) => *number,
            _ => 0,
        }
    }

    /// An option's number of 64 bits.
    pub(crate) fn number64(&self, key: Key<u64>) -> u64 {
        match self.value(key) {
            Some(Value::U64(number)) => *number,
            _ => 0,
        }
    }

    /// An option's amount.
    pub(crate) fn amount(&self, key: Key<i64>) -> u64 {
        u64::try_from(self.number(key)).unwrap_or(0)
    }

    /// An option's amount; `None`: 0.
    pub(crate) fn amount_or_none(&self, key: Key<i64>) -> Option<u64> {
        Some(self.amount(key)).filter(|amount| *amount > 0)
    }

    /// An option's number; `None`: 0, or negative.
    pub(crate) fn count_or_none(&self, key: Key<i64>) -> Option<u32> {
        u32::try_from(self.number(key))
            .ok()
            .filter(|number| *number > 0)
    }

    /// An option's length of time; `None`: 0.
    pub(crate) fn time_or_none(&self, key: Key<Duration>) -> Option<Duration> {
        Some(self.time(key)).filter(|time| !time.is_zero())
    }

    /// The texts of an option's lines.
    pub(crate) fn texts(&self, key: Key<Vec<ListLine>>) -> Vec<&str> {
        self.lines(key)
            .iter()
            .map(|line| line.value.as_str())
            .collect()
    }

    /// An option's length of time.
    #[must_use]
    pub fn time(&self, key: Key<Duration>) -> Duration {
        let Some(Value::Number(number)) = self.value(key) else {
            return Duration::ZERO;
        };
        let number = u64::try_from(*number).unwrap_or(0);
        match KNOWN.get(key.index()).map(|known| known.kind) {
            Some(Kind::Millis) => Duration::from_millis(number),
            _ => Duration::from_secs(number),
        }
    }

    /// An option's fraction.
    #[must_use]
    pub fn double(&self, key: Key<f64>) -> f64 {
        match self.value(key) {
            Some(Value::Double(number)) => *number,
            _ => 0.0,
        }
    }

    /// Returns true if an option is 1.
    #[must_use]
    pub fn flag(&self, key: Key<bool>) -> bool {
        matches!(self.value(key), Some(Value::Number(number)) if *number != 0)
    }

    /// Returns true if an option is 1; `None`: auto.
    #[must_use]
    pub fn auto_flag(&self, key: Key<Option<bool>>) -> Option<bool> {
        match self.value(key)? {
            Value::Auto(number) => number.map(|number| number != 0),
            _ => None,
        }
    }

    /// An option's number; `None`: auto.
    #[must_use]
    pub fn auto_number(&self, key: Key<Option<i64>>) -> Option<i64> {
        match self.value(key)? {
            Value::Auto(number) => *number,
            _ => None,
        }
    }

    /// An option's words.
    #[must_use]
    pub fn words(&self, key: Key<Vec<String>>) -> &[String] {
        match self.value(key) {
            Some(Value::Csv(words)) => words,
            _ => &[],
        }
    }

    /// An option's lines.
    #[must_use]
    pub fn lines(&self, key: Key<Vec<ListLine>>) -> &[ListLine] {
        match self.value(key) {
            Some(Value::Lines(lines)) => lines,
            _ => &[],
        }
    }

    fn put<T>(&mut self, key: Key<T>, value: Value) {
        if let Some(setting) = self.all.get_mut(key.index()) {
            setting.value = value;
        }
    }

    /// Replaces a number that validation had to correct, so that dumps show what is in force.
    pub(crate) fn correct_number(&mut self, key: Key<i64>, number: i64) {
        self.put(key, Value::Number(number));
    }

    /// Replaces a time that validation had to correct.
    pub(crate) fn correct_time(&mut self, key: Key<Duration>, time: Duration) {
        let unit = match KNOWN.get(key.index()).map(|known| known.kind) {
            Some(Kind::Millis) => Duration::from_millis(1),
            _ => Duration::from_secs(1),
        };
        let number = time.as_nanos() / unit.as_nanos();
        self.put(
            key,
            Value::Number(i64::try_from(number).unwrap_or(i64::MAX)),
        );
    }

    /// Replaces the value of any option that validation had to correct.
    pub(crate) fn correct(&mut self, known: &Known, value: Value) {
        if let Some((index, _)) = table::by_name(known.name)
            && let Some(setting) = self.all.get_mut(index)
        {
            setting.value = value;
        }
    }

    /// Fills in the one line of a list that another option stands for.
    pub(crate) fn correct_line(&mut self, key: Key<Vec<ListLine>>, value: String) {
        let line = ListLine {
            name: key.name(),
            value,
            origin: Origin::whole("the defaults"),
        };
        self.put(key, Value::Lines(vec![line]));
    }

    /// Replaces a text that validation filled in.
    pub(crate) fn correct_text(&mut self, key: Key<String>, text: &str) {
        self.put(key, Value::Text(Some(text.to_owned())));
    }
}

/// C tor's log line about an unknown option; controllers find the option in it (Stem's
/// `load_conf`).
pub(crate) fn unknown_option_in_c_tor(key: &str) -> String {
    format!("Failed to parse/validate config: Unknown option '{key}'.  Failing.")
}

fn unknown_option(line: &Line, before: Option<&Line>) -> String {
    let key = &line.key;
    let mut text = format!("unknown option \"{key}\"");
    if let Some(name) = find::nearest(key) {
        text.push_str(&format!("; did you mean {name}?"));
    }
    // The value above continues here, and nothing joins the lines.
    let is_open =
        |before: &&Line| before.value.ends_with(',') && before.origin.source == line.origin.source;
    if let Some(before) = before.filter(is_open) {
        let (option, number) = (&before.key, before.last_line);
        text.push_str(&format!(
            "; if it belongs to the value of {option}, end line {number} with a backslash"
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::lexer::lex;

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

    fn values(settings: &Settings, key: Key<Vec<ListLine>>) -> Vec<&str> {
        settings
            .lines(key)
            .iter()
            .map(|l| l.value.as_str())
            .collect()
    }

    #[test]
    fn private_networks_have_defaults_of_their_own() {
        assert!(Settings::new(true).flag(keys::ExtendAllowPrivateAddresses));
        assert!(!Settings::new(false).flag(keys::ExtendAllowPrivateAddresses));
    }

    #[test]
    fn the_last_single_value_counts_and_lists_grow() {
        let (settings, report) =
            assign(&["Nickname a\nNickname b\nAddress 1.2.3.4\nADDRESS 1.2.3.5"]);
        assert_eq!(settings.text(keys::Nickname), Some("b"));
        assert_eq!(values(&settings, keys::Address), ["1.2.3.4", "1.2.3.5"]);
        assert_eq!(report.messages().len(), 1);
        assert!(report.messages()[0].text.contains("more than once"));
    }

    #[test]
    fn a_later_file_replaces_a_list_unless_its_line_has_a_plus() {
        let (settings, _) = assign(&[
            "Log notice stdout\nLog info stderr",
            "Log warn stdout\nLog err stderr",
        ]);
        assert_eq!(values(&settings, keys::Log), ["warn stdout", "err stderr"]);
        let (settings, _) = assign(&["Log notice stdout", "+Log warn stdout\nLog err stderr"]);
        assert_eq!(
            values(&settings, keys::Log),
            ["notice stdout", "warn stdout", "err stderr"]
        );
        let (settings, _) = assign(&["Log notice stdout", "/Log"]);
        assert!(settings.lines(keys::Log).is_empty());
    }

    #[test]
    fn port_lines_of_both_names_share_a_list() {
        let (settings, _) = assign(&["ORPort 1\n__ORPort 2", "+ORPort 3"]);
        assert_eq!(values(&settings, keys::ORPortLines), ["1", "2", "3"]);
        let (settings, _) = assign(&["ORPort 1\n__ORPort 2", "/__ORPort x"]);
        assert!(settings.lines(keys::ORPortLines).is_empty());
    }

    #[test]
    fn an_empty_value_clears_a_single_value_and_skips_a_list() {
        let (settings, report) = assign(&[
            "Nickname a\nLog notice stdout\nExitRelay 1",
            "Nickname\nLog\nExitRelay",
        ]);
        assert_eq!(settings.text(keys::Nickname), None);
        assert_eq!(settings.auto_flag(keys::ExitRelay), Some(false));
        assert_eq!(settings.lines(keys::Log).len(), 1);
        assert_eq!(report.messages().len(), 1);
    }

    #[test]
    fn a_list_that_goes_on_in_the_next_line_lacks_a_backslash() {
        let (_, report) = assign(&["Nickname a\nExitNodes {de},{fr},\n{nl},{us}\n"]);
        assert_eq!(
            report.to_string(),
            "f0:3: unknown option \"{nl},{us}\"; if it belongs to the value of ExitNodes, end line 2 with a backslash"
        );
        let c_tor = report.c_tor_message();
        let unknown = "Failed to parse/validate config: Unknown option '{nl},{us}'.  Failing.";
        assert_eq!(c_tor, Some(unknown));
        let (_, report) = assign(&["ExitNodes {de}, \\\n {fr},\n# why\n{nl},{us}\n"]);
        assert!(report.to_string().contains("end line 2 with"), "{report}");
        // A comma in another file, or none.
        for texts in [
            &["ExitNodes {de},\n", "{nl},{us}\n"][..],
            &["ExitNodes {de}\n{nl},{us}\n"],
        ] {
            let (_, report) = assign(texts);
            assert!(report.to_string().ends_with("\"{nl},{us}\""), "{report}");
        }
    }

    #[test]
    fn everything_wrong_is_reported_at_once() {
        let (_, report) =
            assign(&["Nicknme a\nBandwidthRate lots\n\nORPortLines 1\nExitRelay maybe"]);
        let errors = report.to_string();
        assert_eq!(
            errors.lines().collect::<Vec<_>>(),
            [
                "f0:1: unknown option \"Nicknme\"; did you mean Nickname?",
                "f0:2: BandwidthRate: \"lots\" does not start with a number",
                "f0:4: ORPortLines is a list that cannot be set by this name",
                "f0:5: ExitRelay: \"maybe\" is neither 0 nor 1 nor auto",
            ]
        );
    }
}
