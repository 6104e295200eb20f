//! The times over which bytes of circuits are counted.

use std::time::Duration;

/// g: bytes of a circuit are counted over this time (Schrock 2017, 3.1).
pub const BIN: Duration = Duration::from_millis(100);

/// w: the rate of a circuit is the most of the bins of this time (Schrock 2017, 3.1).
pub const SECOND: Duration = Duration::from_secs(1);

/// The time between two statements to a circuit that asked (Schrock 2017, 3.1).
pub const INTERVAL: Duration = Duration::from_secs(5);

/// [`INTERVAL`] in bins: circuits that asked are spread over them.
pub(crate) const PHASES: usize = 50;

/// Rate in Mbit/s of a circuit that moved this number of bytes in a bin.
pub fn mbit_per_second(bytes: f64) -> f64 {
    bytes * 8.0 / BIN.as_secs_f64() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_phases_are_the_bins_of_an_interval() {
        assert_eq!(INTERVAL.as_millis(), BIN.as_millis() * PHASES as u128);
    }

    #[test]
    fn a_megabit_in_a_tenth_of_a_second_is_ten_a_second() {
        assert_eq!(mbit_per_second(125_000.0), 10.0);
    }
}
