//! Waiting times of cells, by deciles of circuits (`cell-*`; C tor
//! `rep_hist_buffer_stats_add_circ`, `rep_hist_format_buffer_stats`).

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use rand::Rng;

use crate::extrainfo::dirreq::sample;

/// Circuits that are kept in a day, a sample of them where there are more; and open ones with known
/// cells.
const MOST: usize = 1 << 17;
/// Groups of circuits, by how many cells they carried.
const SHARES: usize = 10;
/// Longest delay between the reports about a circuit's two queues, which come from different
/// threads.
const APART: Duration = Duration::from_secs(2);

/// The name of a circuit that comes from elsewhere: any numbers that no other open circuit has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CircuitName(pub u16, pub u32, pub u32);

/// Cells that left a queue of a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePart {
    /// When the first of them left.
    pub since: SystemTime,
    /// Number of cells.
    pub cells: u64,
    /// Sum of their waiting times.
    pub waited: Duration,
    /// The circuit has ended.
    pub over: bool,
}

/// Cells of one circuit in a day, or in its lifetime.
#[derive(Clone, Copy, Debug, PartialEq)]
struct CircuitCells {
    processed: u32,
    queued: f64,
    waited: f64,
}

impl CircuitCells {
    /// A circuit with `processed` cells that left the queues of both directions, after `waited` in
    /// all, in an interval of `length`. `None`: no cell did, or it lived for less than a second.
    fn new(processed: u64, waited: Duration, length: Duration) -> Option<Self> {
        let length = length.as_secs();
        if processed == 0 || length == 0 {
            return None;
        }
        let millis = waited.as_secs_f64() * 1000.0;
        let processed = u32::try_from(processed).unwrap_or(u32::MAX);
        Some(Self {
            processed,
            // Of the two queues of a circuit.
            queued: millis / Duration::from_secs(length).as_secs_f64() / 1000.0 / 2.0,
            waited: millis / f64::from(processed),
        })
    }
}

/// A circuit of this day whose result is not known yet.
#[derive(Clone, Copy, Debug)]
struct Open {
    since: SystemTime,
    cells: u64,
    waited: Duration,
    ended: Option<SystemTime>,
}

impl Open {
    fn result(self, now: SystemTime) -> Option<CircuitCells> {
        let end = self.ended.unwrap_or(now);
        // A clock that was set back leaves no time.
        let length = end.duration_since(self.since).unwrap_or_default();
        CircuitCells::new(self.cells, self.waited, length)
    }
}

/// Circuits of a day.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cells {
    circuits: Vec<CircuitCells>,
    count: u64,
    open: BTreeMap<CircuitName, Open>,
}

impl Cells {
    /// Cells left a queue of a circuit, or the circuit has ended.
    pub(crate) fn note(&mut self, circuit: CircuitName, part: QueuePart, now: SystemTime) {
        if self.open.len() >= MOST && !self.open.contains_key(&circuit) {
            return;
        }
        let open = self.open.entry(circuit).or_insert(Open {
            since: part.since,
            cells: 0,
            waited: Duration::ZERO,
            ended: None,
        });
        open.since = open.since.min(part.since);
        open.cells = open.cells.saturating_add(part.cells);
        open.waited = open.waited.saturating_add(part.waited);
        if part.over && open.ended.is_none() {
            open.ended = Some(now);
        }
    }

    /// Adds the circuits that have ended, all of whose cells were reported.
    pub(crate) fn settle(&mut self, now: SystemTime, rng: &mut impl Rng) {
        let complete = |ended: SystemTime| match now.duration_since(ended) {
            Ok(since) => since >= APART,
            // The clock was set back.
            Err(_) => true,
        };
        let over = |_: &CircuitName, open: &mut Open| open.ended.is_some_and(complete);
        let ended: Vec<Open> = self
            .open
            .extract_if(.., over)
            .map(|(_, open)| open)
            .collect();
        for open in ended {
            self.add(open.result(now), rng);
        }
    }

    fn add(&mut self, circuit: Option<CircuitCells>, rng: &mut impl Rng) {
        let Some(circuit) = circuit else {
            return;
        };
        self.count += 1;
        sample(&mut self.circuits, MOST, self.count, circuit, rng);
    }

    /// The lines of a day that ended now; cells of open circuits are counted, too.
    pub(crate) fn lines(mut self, end: &str, now: SystemTime, rng: &mut impl Rng) -> String {
        for open in std::mem::take(&mut self.open).into_values() {
            self.add(open.result(now), rng);
        }
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

    const START: SystemTime = SystemTime::UNIX_EPOCH;
    const SECOND: Duration = Duration::from_secs(1);

    fn rng() -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64(1)
    }

    /// The lines, which are made an hour after the start.
    fn lines(cells: Cells) -> String {
        cells.lines("x", START + 3600 * SECOND, &mut rng())
    }

    fn part(cells: u64, waited: Duration, over: bool) -> QueuePart {
        QueuePart {
            since: START,
            cells,
            waited,
            over,
        }
    }

    #[test]
    fn no_circuit_is_published_as_zeroes() {
        assert_eq!(
            lines(Cells::default()),
            "cell-stats-end x\ncell-processed-cells 0,0,0,0,0,0,0,0,0,0\n\
             cell-queued-cells 0.00,0.00,0.00,0.00,0.00,0.00,0.00,0.00,0.00,0.00\n\
             cell-time-in-queue 0,0,0,0,0,0,0,0,0,0\ncell-circuits-per-decile 0\n"
        );
    }

    /// C tor's own example (test_stats.c).
    #[test]
    fn circuits_are_published_as_in_c_tors_own_test() {
        let mut rng = rng();
        let mut cells = Cells::default();
        let circuit = |mean, processed| {
            Some(CircuitCells {
                processed,
                queued: mean,
                waited: mean,
            })
        };
        (20..30).for_each(|processed| cells.add(circuit(2.0, processed), &mut rng));
        (20..30).for_each(|processed| cells.add(circuit(3.5, processed), &mut rng));
        assert_eq!(
            lines(cells),
            "cell-stats-end x\ncell-processed-cells 29,28,27,26,25,24,23,22,21,20\n\
             cell-queued-cells 2.75,2.75,2.75,2.75,2.75,2.75,2.75,2.75,2.75,2.75\n\
             cell-time-in-queue 3,3,3,3,3,3,3,3,3,3\ncell-circuits-per-decile 2\n"
        );
        let mut one = Cells::default();
        one.add(circuit(2.0, 20), &mut rng);
        let text = lines(one);
        assert!(
            text.contains("cell-processed-cells 20,0,0,0,0,0,0,0,0,0\n"),
            "{text}"
        );
        assert!(text.ends_with("cell-circuits-per-decile 1\n"), "{text}");
    }

    #[test]
    fn a_circuit_is_measured_as_by_c_tor() {
        // 20 cells that waited 40 ms in all in ten seconds: 2 ms each, and 0.002 cells in each queue.
        let circuit = CircuitCells::new(20, Duration::from_millis(40), 10 * SECOND).unwrap();
        assert_eq!((circuit.processed, circuit.waited), (20, 2.0));
        assert!((circuit.queued - 0.002).abs() < 1e-9);
        assert_eq!(CircuitCells::new(0, Duration::ZERO, SECOND), None);
        let short = Duration::from_millis(999);
        assert_eq!(CircuitCells::new(1, Duration::ZERO, short), None);
    }

    #[test]
    fn what_both_queues_of_a_circuit_did_is_one_circuits() {
        let (one, two) = (CircuitName(0, 1, 0), CircuitName(1, 1, 0));
        let mut cells = Cells::default();
        let mut note = |name, cells_now, millis, over, at| {
            let part = part(cells_now, Duration::from_millis(millis), over);
            cells.note(name, part, START + at * SECOND);
        };
        note(one, 5, 10, false, 5);
        note(two, 1, 0, false, 5);
        note(one, 5, 0, true, 10);
        // Of the other queue, from another thread.
        note(one, 10, 30, false, 11);
        cells.settle(START + 11 * SECOND, &mut rng());
        assert_eq!(cells.circuits, []);
        cells.settle(START + 12 * SECOND, &mut rng());
        let ended = CircuitCells::new(20, Duration::from_millis(40), 10 * SECOND);
        assert_eq!(cells.circuits, [ended.unwrap()]);
        // The other one is open, and counted when the day ends.
        let text = lines(cells);
        assert!(
            text.contains("cell-processed-cells 20,0,0,0,0,1,0"),
            "{text}"
        );
        assert!(text.contains("cell-circuits-per-decile 1\n"), "{text}");
    }

    #[test]
    fn open_circuits_are_bounded() {
        let mut cells = Cells::default();
        for number in 0..u32::try_from(MOST).unwrap() + 10 {
            cells.note(CircuitName(0, number, 0), part(1, SECOND, false), START);
        }
        assert_eq!(cells.open.len(), MOST);
        cells.note(CircuitName(0, 0, 0), part(1, SECOND, true), START);
        assert!(cells.open[&CircuitName(0, 0, 0)].ended.is_some());
    }

    #[test]
    fn busy_circuits_come_first() {
        let mut rng = rng();
        let mut cells = Cells::default();
        for processed in 1..=20 {
            cells.add(CircuitCells::new(processed, SECOND, SECOND), &mut rng);
        }
        let text = lines(cells);
        assert!(
            text.contains("cell-processed-cells 19,17,15,13,11,9,7,5,3,1\n"),
            "{text}"
        );
        assert!(text.ends_with("cell-circuits-per-decile 2\n"));
    }
}
