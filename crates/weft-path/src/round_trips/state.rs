//! Round-trip times in the state file: lines `CircuitRoundTrips` with up to a hundred each, in microseconds, oldest first. C tor
//! keeps such lines, as it does all that it does not know.

use super::{REMEMBERED, RoundTrips};

const KEY: &str = "CircuitRoundTrips";
/// Times on a line.
const ON_LINE: usize = 100;

impl RoundTrips {
    /// The key of the state file that holds round-trip times; all its lines are replaced together.
    pub const STATE_KEYS: [&'static str; 1] = [KEY];

    /// Reads lines of the state file, keys and values; others than those of round-trip times do not count. False: they
    /// are damaged, and nothing was learnt from them.
    pub fn load<'a>(&mut self, lines: impl IntoIterator<Item = (&'a str, &'a str)>) -> bool {
        let mut times = Vec::new();
        for (key, value) in lines {
            if !key.eq_ignore_ascii_case(KEY) {
                continue;
            }
            for word in value.split(',') {
                match word.trim().parse::<u32>() {
                    Ok(time) if time > 0 && times.len() < REMEMBERED => times.push(time),
                    _ => return false,
                }
            }
        }
        self.times = times.into();
        self.recent.clear();
        self.changed = false;
        self.estimate();
        true
    }

    /// The lines for the state file, keys and values, if there is something new since this was asked last.
    pub fn state_lines(&mut self) -> Option<Vec<(&'static str, String)>> {
        std::mem::take(&mut self.changed).then(|| self.all_state_lines())
    }

    /// The lines for the state file, keys and values, even if there is nothing new.
    #[must_use]
    pub fn all_state_lines(&self) -> Vec<(&'static str, String)> {
        let words: Vec<String> = self.times.iter().map(u32::to_string).collect();
        let lines = words.chunks(ON_LINE).map(|line| (KEY, line.join(",")));
        lines.collect()
    }
}
