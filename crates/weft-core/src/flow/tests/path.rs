//! Vegas on a simulated path: a bottleneck with a queue, and a way there and back.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::super::*;
use super::{digest, sendme};

/// A circuit over one bottleneck. Its sender always has something to send.
struct Path {
    sender: CircuitFlow,
    receiver: CircuitFlow,
    now: Instant,
    /// Time that the bottleneck takes for a cell.
    per_cell: Duration,
    /// One way, without any queue.
    delay: Duration,
    /// When the bottleneck has sent all that it holds.
    free_at: Instant,
    sent: u64,
    /// SENDMEs under way: when they arrive, and for which cell.
    sendmes: VecDeque<(Instant, u64)>,
}

impl Path {
    fn new(cells_per_second: u32, delay: Duration, params: &CcParams) -> Self {
        let now = Instant::now();
        Path {
            sender: CircuitFlow::vegas(params, params.sendme_inc),
            receiver: CircuitFlow::vegas(params, params.sendme_inc),
            now,
            per_cell: Duration::from_secs(1) / cells_per_second,
            delay,
            free_at: now,
            sent: 0,
            sendmes: VecDeque::new(),
        }
    }

    /// Lets time pass; returns how many cells arrived, and the longest queue seen, in cells.
    fn run(&mut self, time: Duration) -> (u64, u64) {
        let end = self.now + time;
        let (mut acknowledged, mut longest) = (0, 0);
        while self.now < end {
            while self.sender.room() > 0 {
                self.send();
            }
            longest = longest.max(self.queue());
            let (at, cell) = self.sendmes.pop_front().expect("it never stands still");
            self.now = at;
            self.sender
                .sendme(&sendme(cell), 1, false, at)
                .expect("an honest SENDME");
            acknowledged += u64::from(CcParams::default().sendme_inc);
        }
        (acknowledged, longest)
    }

    fn send(&mut self) {
        self.sent += 1;
        let cell = self.sent;
        self.sender.note_sent(|| digest(cell), self.now);
        self.free_at = self.free_at.max(self.now) + self.per_cell;
        let arrives = self.free_at + self.delay;
        if self.receiver.note_received(0).unwrap() {
            self.sendmes.push_back((arrives + self.delay, cell));
        }
    }

    /// Cells that wait at the bottleneck.
    fn queue(&self) -> u64 {
        let wait = self.free_at.saturating_duration_since(self.now);
        u64::try_from(wait.as_nanos() / self.per_cell.as_nanos()).unwrap()
    }
}

#[test]
fn it_fills_the_path_and_keeps_the_queue_short() {
    // 2,000 cells/s (1 MB/s) and 200 ms: the path holds 400 cells.
    let mut path = Path::new(2000, Duration::from_millis(100), &CcParams::default());
    path.run(Duration::from_secs(10));
    assert!(!path.sender.in_slow_start());
    let (cells, longest) = path.run(Duration::from_secs(10));
    assert!(cells > 19_500, "{cells} of 20,000 cells");
    // Above alpha it does not grow, and above delta it falls at once.
    assert!((100..330).contains(&longest), "a queue of {longest} cells");
}

#[test]
fn it_backs_off_when_the_bottleneck_narrows_and_grows_when_it_widens() {
    let mut path = Path::new(4000, Duration::from_millis(50), &CcParams::default());
    path.run(Duration::from_secs(20));
    let wide = path.sender.window();
    path.per_cell *= 4;
    path.run(Duration::from_secs(20));
    let narrow = path.sender.window();
    let (cells, longest) = path.run(Duration::from_secs(10));
    assert!(narrow < wide, "{narrow} after {wide}");
    assert!(cells > 9_700, "{cells} of 10,000 cells");
    assert!(longest < 330, "a queue of {longest} cells");
    path.per_cell /= 4;
    path.run(Duration::from_secs(60));
    assert!(path.sender.window() > narrow + 100);
    let (cells, _) = path.run(Duration::from_secs(10));
    assert!(cells > 38_000, "{cells} of 40,000 cells");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// On paths of many kinds, most of the bottleneck is used and what waits there is bounded.
    #[test]
    fn it_suits_paths_of_many_kinds(
        cells_per_second in 200..20_000u32,
        delay_ms in 5..250u64,
    ) {
        let delay = Duration::from_millis(delay_ms);
        let mut path = Path::new(cells_per_second, delay, &CcParams::default());
        path.run(Duration::from_secs(60));
        let (cells, longest) = path.run(Duration::from_secs(20));
        let full = u64::from(cells_per_second) * 20;
        prop_assert!(cells * 10 >= full * 8, "{} of {} cells", cells, full);
        prop_assert!(longest < 400, "a queue of {} cells", longest);
    }
}
