//! An axis: its range, linear or logarithmic, and its ticks.

/// One axis of a panel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Axis {
    low: f64,
    high: f64,
    is_log: bool,
}

/// The axes of a panel; none where there is nothing to be drawn.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scales {
    pub(crate) up: Option<Axis>,
    /// Of curves alone.
    pub(crate) across: Option<Axis>,
}

/// Room on a logarithmic axis, so that the least number is not at its end.
const ROOM: f64 = 0.8;
/// The least number of a logarithmic axis; the most is its inverse.
const LEAST: f64 = 1e-300;

impl Axis {
    /// From zero to a little above the most.
    pub(crate) fn linear(most: f64, above: f64) -> Axis {
        Axis {
            low: 0.0,
            high: (most * above).min(f64::MAX),
            is_log: false,
        }
    }

    /// Between two numbers, which need not be ends of it.
    pub(crate) fn between(low: f64, high: f64) -> Axis {
        Axis {
            low,
            high,
            is_log: false,
        }
    }

    /// From 1, 2 or 5 times a power of ten below the least, which is above zero, to one above the most.
    pub(crate) fn log(least: f64, most: f64) -> Axis {
        let [least, most] = [least, most].map(|number| number.clamp(LEAST, 1.0 / LEAST));
        let (low, decade) = parts(least * ROOM);
        let low = match low {
            low if low >= 5.0 => 5.0,
            low if low >= 2.0 => 2.0,
            _ => 1.0,
        } * decade;
        let (high, decade) = parts(most / ROOM);
        let high = match high {
            high if high <= 2.0 => 2.0,
            high if high <= 5.0 => 5.0,
            _ => 10.0,
        } * decade;
        Axis {
            low,
            high,
            is_log: true,
        }
    }

    pub(crate) fn is_log(self) -> bool {
        self.is_log
    }

    /// Position of a number: 0 at the beginning, 1 at the end. Numbers below the axis are at its
    /// beginning.
    pub(crate) fn part(self, number: f64) -> f64 {
        let scale = |number: f64| match self.is_log {
            true => number.log10(),
            false => number,
        };
        let number = number.max(self.low);
        let part = (scale(number) - scale(self.low)) / (scale(self.high) - scale(self.low));
        match part.is_finite() {
            true => part.clamp(0.0, 1.0),
            false => 0.0,
        }
    }

    /// Length of `much` on a linear axis, as a share of the axis.
    pub(crate) fn share(self, much: f64) -> f64 {
        let share = much / (self.high - self.low);
        if share.is_finite() { share } else { 0.0 }
    }

    /// Returns true if the axis reaches down to `number`.
    pub(crate) fn has(self, number: f64) -> bool {
        number >= self.low
    }

    /// Numbers to write at the axis, about `most` at most.
    pub(crate) fn ticks(self, most: usize) -> Vec<f64> {
        let most = most.max(2);
        if !self.is_log {
            let step = step(self.high / most as f64);
            let count = (self.high / step * (1.0 + 1e-9)) as usize;
            return (0..=count.min(100))
                .map(|tick| tick as f64 * step)
                .collect();
        }
        let fine = self.of_decades(&[1.0, 2.0, 5.0]);
        if fine.len() <= most {
            return fine;
        }
        let decades = self.of_decades(&[1.0]);
        let every = decades.len().div_ceil(most).max(1);
        decades.into_iter().step_by(every).collect()
    }

    /// Places of a logarithmic axis between those with numbers.
    pub(crate) fn minor(self) -> Vec<f64> {
        match self.is_log {
            true => self.of_decades(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]),
            false => Vec::new(),
        }
    }

    fn of_decades(self, factors: &[f64]) -> Vec<f64> {
        let (low, high) = (self.low.log10().floor(), self.high.log10().ceil());
        let decades = (low as i32..=high as i32).map(|power| 10f64.powi(power));
        let all = decades.flat_map(|decade| factors.iter().map(move |factor| factor * decade));
        let within = self.low * (1.0 - 1e-9)..=self.high * (1.0 + 1e-9);
        all.filter(|tick| within.contains(tick)).collect()
    }
}

/// A number above zero as a factor from 1 to 10 and a power of ten.
fn parts(number: f64) -> (f64, f64) {
    // The least normal number: below it a power of ten may be zero.
    let number = number.max(f64::MIN_POSITIVE * 1e3);
    let decade = 10f64.powf(number.log10().floor());
    (number / decade, decade)
}

/// A step of 1, 2 or 5 times a power of ten, not below this.
fn step(least: f64) -> f64 {
    let (factor, decade) = parts(least);
    match factor {
        factor if factor <= 1.0 => decade,
        factor if factor <= 2.0 => 2.0 * decade,
        factor if factor <= 5.0 => 5.0 * decade,
        _ => 10.0 * decade,
    }
}

/// Returns true if a linear axis from zero would hide differences: all numbers are above zero, the
/// least is under a tenth of the most, and more than half of them would lie in the lowest quarter.
pub(crate) fn hides(numbers: &[f64]) -> bool {
    let most = numbers.iter().copied().fold(0.0, f64::max);
    let crowded = numbers.iter().filter(|number| **number < most / 4.0);
    numbers.iter().all(|number| *number > 0.0)
        && numbers.iter().any(|number| *number < most / 10.0)
        && crowded.count() * 2 > numbers.len()
}

/// A number beside an axis.
pub(crate) fn tick(number: f64) -> String {
    short(number, 9)
}

/// A number on a bar.
pub(crate) fn number_of(number: f64) -> String {
    match number.abs() {
        n if n >= 1e6 => short(number, 2),
        n if n >= 100.0 => format!("{number:.0}"),
        n if n >= 10.0 => format!("{number:.1}"),
        n if n >= 0.1 => format!("{number:.2}"),
        _ => short(number, 1),
    }
}

/// So many digits after the first, without zeros at the end.
fn short(number: f64, digits: usize) -> String {
    if number == 0.0 {
        return "0".to_owned();
    }
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    let power = number.abs().log10().floor() as i32;
    if (-4..6).contains(&power) {
        let decimals = usize::try_from(digits as i32 - power).unwrap_or(0);
        return trimmed(&format!("{number:.decimals$}"));
    }
    let text = format!("{number:.digits$e}");
    match text.split_once('e') {
        Some((factor, power)) => format!("{}e{power}", trimmed(factor)),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_1_2_or_5_of_something() {
        assert_eq!(
            Axis::linear(100.0, 1.0).ticks(5),
            [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]
        );
        assert_eq!(Axis::linear(0.3, 1.0).ticks(4).len(), 4);
        assert_eq!(Axis::linear(7.0, 1.0).ticks(4), [0.0, 2.0, 4.0, 6.0]);
    }

    #[test]
    fn a_logarithmic_axis_ends_at_1_2_or_5_of_something() {
        let axis = Axis::log(3.0, 450.0);
        assert_eq!((axis.low, axis.high), (2.0, 1000.0));
        assert_eq!(
            axis.ticks(20),
            [2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0]
        );
        assert_eq!(axis.ticks(4), [10.0, 100.0, 1000.0]);
        assert!((axis.part(20.0) - 1.0 / 2.699).abs() < 1e-3);
        assert_eq!(
            (axis.part(0.0), axis.part(-1.0), axis.part(1e9)),
            (0.0, 0.0, 1.0)
        );
        let wide = Axis::log(1e-9, 1e9);
        assert!(wide.ticks(5).len() <= 5, "{:?}", wide.ticks(5));
    }

    #[test]
    fn an_axis_of_any_number_has_ends() {
        for number in [f64::MIN_POSITIVE, 5e-324, 1e-300, 1.0, 1e300, f64::MAX] {
            for axis in [Axis::linear(number, 1.06), Axis::log(number, number)] {
                let part = axis.part(number);
                assert!((0.0..=1.0).contains(&part), "{number}: {axis:?}");
                assert!(axis.ticks(6).len() < 102, "{number}: {axis:?}");
            }
        }
    }

    #[test]
    fn differences_hide_where_most_lie_in_the_lowest_quarter() {
        assert!(hides(&[1.0, 2.0, 3.0, 100.0]));
        assert!(hides(&[9.0, 20.0, 24.0, 100.0]));
        assert!(!hides(&[11.0, 20.0, 24.0, 100.0]));
        assert!(!hides(&[1.0, 30.0, 35.0, 100.0]));
        // A logarithmic axis has no zero.
        assert!(!hides(&[0.0, 1.0, 2.0, 100.0]));
        assert!(!hides(&[]));
    }

    #[test]
    fn numbers_are_short_and_none_becomes_zero() {
        let numbers = [0.123, 4.2, 12.34, 1234.5, 0.0034, 0.0, 2.5e7].map(number_of);
        assert_eq!(
            numbers,
            ["0.12", "4.20", "12.3", "1234", "0.0034", "0", "2.5e7"]
        );
        let ticks = [0.1 + 0.2, 20.0, 2e-7, 1e6, 0.0005, 0.0].map(tick);
        assert_eq!(ticks, ["0.3", "20", "2e-7", "1e6", "0.0005", "0"]);
    }
}
