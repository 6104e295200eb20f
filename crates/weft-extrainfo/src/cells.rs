//! How long cells wait here, by deciles of circuits (`cell-*`; C tor `rep_hist_format_buffer_stats`).

use std::time::Duration;

use rand::Rng;

use crate::dirreq::sample;

/// Circuits that are kept in a day; a sample of them where there are more.
const MOST: usize = 1 << 17;
/// Groups of circuits, by how many cells they carried.
const SHARES: usize = 10;

/// What one circuit carried in a day, or while it lived.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CircuitCells {
    processed: u32,
    queued: f64,
    waited: f64,
}

impl CircuitCells {
    /// A circuit of which `processed` cells left the queues of both directions, after having waited for
    /// `waited` in all, in an interval of `length`. `None`: none did.
    #[must_use]
    pub fn new(processed: u64, waited: Duration, length: Duration) -> Option<Self> {
        if processed == 0 || length.is_zero() {
            return None;
        }
        let millis = waited.as_secs_f64() * 1000.0;
        let processed = u32::try_from(processed).unwrap_or(u32::MAX);
        Some(Self {
            processed,
            // Of the two queues of a circuit.
            queued: millis / length.as_secs_f64() / 1000.0 / 2.0,
            waited: millis / f64::from(processed),
        })
    }
}

/// Circuits of a day.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cells {
    circuits: Vec<CircuitCells>,
    count: u64,
}

impl Cells {
    pub(crate) fn add(&mut self, circuit: CircuitCells, rng: &mut impl Rng) {
        self.count += 1;
        sample(&mut self.circuits, MOST, self.count, circuit, rng);
    }

    /// The lines of a day that ended so.
    pub(crate) fn lines(mut self, end: &str) -> String {
        self.circuits
            .sort_by_key(|circuit| std::cmp::Reverse(circuit.processed));
        let number = self.circuits.len();
        let mut shares = [(0_u64, 0_u64, 0.0, 0.0); SHARES];
        for (at, circuit) in self.circuits.iter().enumerate() {
            if let Some((circuits, processed, queued, waited)) =
                shares.get_mut(at * SHARES / number)
            {
                *circuits += 1;
                *processed += u64::from(circuit.processed);
                *queued += circuit.queued;
                *waited += circuit.waited;
            }
        }
        let list = |of: fn((u64, u64, f64, f64)) -> String| shares.map(of).join(",");
        format!(
            "cell-stats-end {end}\n\
             cell-processed-cells {}\n\
             cell-queued-cells {}\n\
             cell-time-in-queue {}\n\
             cell-circuits-per-decile {}\n",
            list(|(circuits, processed, _, _)| (processed / circuits.max(1)).to_string()),
            list(|(circuits, _, queued, _)| format!("{:.2}", mean(queued, circuits))),
            list(|(circuits, _, _, waited)| format!("{:.0}", mean(waited, circuits))),
            self.count.div_ceil(SHARES as u64),
        )
    }
}

/// The mean of a share.
fn mean(sum: f64, circuits: u64) -> f64 {
    sum / f64::from(u32::try_from(circuits.max(1)).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng as _;
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn no_circuit_is_published_as_zeroes() {
        assert_eq!(
            Cells::default().lines("x"),
            "cell-stats-end x\ncell-processed-cells 0,0,0,0,0,0,0,0,0,0\n\
             cell-queued-cells 0.00,0.00,0.00,0.00,0.00,0.00,0.00,0.00,0.00,0.00\n\
             cell-time-in-queue 0,0,0,0,0,0,0,0,0,0\ncell-circuits-per-decile 0\n"
        );
    }

    /// C tor's own example (test_stats.c).
    #[test]
    fn circuits_are_published_as_in_c_tors_own_test() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut cells = Cells::default();
        let mut add = |mean, processed| {
            let circuit = CircuitCells {
                processed,
                queued: mean,
                waited: mean,
            };
            cells.add(circuit, &mut rng);
        };
        (20..30).for_each(|processed| add(2.0, processed));
        (20..30).for_each(|processed| add(3.5, processed));
        assert_eq!(
            cells.lines("x"),
            "cell-stats-end x\ncell-processed-cells 29,28,27,26,25,24,23,22,21,20\n\
             cell-queued-cells 2.75,2.75,2.75,2.75,2.75,2.75,2.75,2.75,2.75,2.75\n\
             cell-time-in-queue 3,3,3,3,3,3,3,3,3,3\ncell-circuits-per-decile 2\n"
        );
        let mut one = Cells::default();
        let circuit = CircuitCells {
            processed: 20,
            queued: 2.0,
            waited: 2.0,
        };
        one.add(circuit, &mut rng);
        let text = one.lines("x");
        assert!(
            text.contains("cell-processed-cells 20,0,0,0,0,0,0,0,0,0\n"),
            "{text}"
        );
        assert!(text.ends_with("cell-circuits-per-decile 1\n"), "{text}");
    }

    #[test]
    fn a_circuit_is_measured_as_by_c_tor() {
        // 20 cells that waited 40 ms in all in ten seconds: 2 ms each, and 0.002 cells in each queue.
        let circuit =
            CircuitCells::new(20, Duration::from_millis(40), Duration::from_secs(10)).unwrap();
        assert_eq!((circuit.processed, circuit.waited), (20, 2.0));
        assert!((circuit.queued - 0.002).abs() < 1e-9);
        assert_eq!(
            CircuitCells::new(0, Duration::ZERO, Duration::from_secs(1)),
            None
        );
        assert_eq!(CircuitCells::new(1, Duration::ZERO, Duration::ZERO), None);
    }

    #[test]
    fn busy_circuits_come_first() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut cells = Cells::default();
        for processed in 1..=20 {
            let second = Duration::from_secs(1);
            cells.add(
                CircuitCells::new(processed, second, second).unwrap(),
                &mut rng,
            );
        }
        let text = cells.lines("x");
        assert!(
            text.contains("cell-processed-cells 19,17,15,13,11,9,7,5,3,1\n"),
            "{text}"
        );
        assert!(text.ends_with("cell-circuits-per-decile 2\n"));
    }
}
