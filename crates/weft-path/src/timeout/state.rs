//! Build times in C tor's state file: `TotalBuildTimes`, `CircuitBuildAbandonedCount`, and a
//! `CircuitBuildTimeBin` line for each bin that holds some.

use rand::Rng;
use rand::seq::SliceRandom as _;
use weft_planted::{Fault, planted};

use super::pareto::{histogram, middle};
use super::took::Took;
use super::{BuildTimes, REMEMBERED};

const TOTAL: &str = "TotalBuildTimes";
const ABANDONED: &str = "CircuitBuildAbandonedCount";
const IN_BIN: &str = "CircuitBuildTimeBin";

/// More than this, and the file was not written by a tor.
const MOST_LOADED: usize = 1_000_000;

impl BuildTimes {
    /// The keys of the state file that hold build times; all their lines are replaced together.
    pub const STATE_KEYS: [&'static str; 3] = [TOTAL, ABANDONED, IN_BIN];

    /// Reads lines of the state file, keys and values; others than those of build times do not
    /// count. False: they do not fit together, and nothing was learnt from them.
    ///
    /// The file does not have the order of circuits, so they are shuffled: otherwise the fast ones
    /// would be forgotten first.
    pub fn load<'a>(
        &mut self,
        lines: impl IntoIterator<Item = (&'a str, &'a str)>,
        rng: &mut impl Rng,
    ) -> bool {
        let (mut total, mut abandoned) = (0_usize, 0_usize);
        let mut bins: Vec<(u32, usize)> = Vec::new();
        for (key, value) in lines {
            if key.eq_ignore_ascii_case(TOTAL) {
                total = value.parse().unwrap_or(usize::MAX);
            } else if key.eq_ignore_ascii_case(ABANDONED) {
                abandoned = value.parse().unwrap_or(usize::MAX);
            } else if key.eq_ignore_ascii_case(IN_BIN) {
                let mut words = value.split_ascii_whitespace();
                let millis = words.next().and_then(|word| word.parse().ok());
                let count = words.next().and_then(|word| word.parse().ok());
                match (millis, count) {
                    (Some(millis), Some(count)) => bins.push((millis, count)),
                    _ => return false,
                }
            }
        }
        let built = bins
            .iter()
            .fold(0_usize, |sum, &(_, count)| sum.saturating_add(count));
        let fits = built.saturating_add(abandoned) == total;
        if total > MOST_LOADED || !fits && !planted(Fault::DamagedLineTrusted) {
            return false;
        }
        let mut times: Vec<Took> = Vec::with_capacity(total);
        for (millis, count) in bins {
            times.extend(std::iter::repeat_n(Took::Millis(millis.max(1)), count));
        }
        times.extend(std::iter::repeat_n(Took::Abandoned, abandoned));
        times.shuffle(rng);
        times.truncate(REMEMBERED);
        self.times = times.into();
        self.begin();
        self.estimate();
        true
    }

    /// The lines for the state file, keys and values, if there is something new since this was
    /// asked last.
    pub fn state_lines(&mut self) -> Option<Vec<(&'static str, String)>> {
        std::mem::take(&mut self.changed).then(|| self.all_state_lines())
    }

    /// The lines for the state file, keys and values, even if there is nothing new.
    #[must_use]
    pub fn all_state_lines(&self) -> Vec<(&'static str, String)> {
        let abandoned = self
            .times
            .iter()
            .filter(|took| **took == Took::Abandoned)
            .count();
        let mut lines = vec![(TOTAL, self.times.len().to_string())];
        if abandoned > 0 {
            lines.push((ABANDONED, abandoned.to_string()));
        }
        for (bin, count) in histogram(&self.times) {
            lines.push((IN_BIN, format!("{} {count}", middle(bin))));
        }
        lines
    }
}
