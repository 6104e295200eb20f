//! The plan of a pack: rows in the order of what matters most, and what this machine leaves out.

use super::super::Timing;
use super::super::plan::{Place, Point, THIN, THIN_FEWER, Target};
use crate::bench::results::LeftOut;
use weft_lab::machine::Cpus;

/// Connection threads at full speed, in the order in which they are measured.
const THREADS: [u32; 5] = [1, 8, 4, 2, 6];
/// Connection threads over many links.
const THIN_THREADS: [u32; 3] = [1, 8, 4];
/// Connection threads of searches for a capacity.
const CAPACITY_THREADS: [u32; 2] = [1, 8];
/// Threads that answer onionskins.
const WORKERS: [u32; 3] = [1, 8, 4];
/// Connection threads in the private network (Engler and Goldberg 2021, Figure 7).
const NETWORK_THREADS: [u32; 6] = [3, 1, 0, 2, 4, 6];
/// Seconds in which a relay of several threads has spread a full load over them.
const SPREAD: f64 = super::super::SPREAD;
/// Cells per second each way with which the search for C tor's capacity begins: 20 MB/s. One thread of
/// Weft begins with four times as many, several threads with that for each.
const FIRST_RATE: f64 = 20e6 / 498.0;

/// Short timing, for a row that tries many rates.
const ROUND: Timing = Timing {
    warm_up: 1.5,
    seconds: 2.5,
    steps: 8,
};

/// One row.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) point: Point,
    pub(super) target: Target,
    pub(super) timing: Timing,
    /// Cells per second, or the rate with which a search begins.
    pub(super) rate: Option<f64>,
    /// Seconds that it takes, starting and ending included.
    pub(super) expected: f64,
}

/// Size of the private network: as many clients, entries and exits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Network {
    pub(super) clients: usize,
    pub(super) bytes_per_stream: u64,
    /// Cores of the target; the others have all other nodes.
    pub(super) cores: usize,
}

/// Seconds of warm-up and of the measuring window of most rows.
pub(super) fn seconds(quick: bool) -> (f64, f64) {
    if quick { (0.5, 1.0) } else { (2.0, 5.0) }
}

/// Circuits of each client, as in Engler and Goldberg 2021, Table 1.
pub(super) const STREAMS: usize = 10;

/// The rows that are measured, and those that are left out with their reasons.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    pub(super) rows: Vec<Row>,
    pub(super) left_out: Vec<LeftOut>,
    /// The network of the rows that have one.
    pub(super) network: Option<Network>,
}

impl Plan {
    /// The rows that make sense on this number of cores, with this number of files for each
    /// process.
    pub(super) fn new(cores: usize, files: u64, quick: bool) -> Plan {
        let mut plan = Plan::default();
        let (warm_up, seconds) = seconds(quick);
        let timing = |target: Target| Timing {
            warm_up: match target.busy_threads() > 1 && !quick {
                true => SPREAD,
                false => warm_up,
            },
            seconds,
            steps: 0,
        };
        let weft = |threads: &[u32]| -> Vec<Target> {
            let few = |n: &&u32| !quick || **n <= 2;
            threads
                .iter()
                .filter(few)
                .map(|n| Target::Weft(*n))
                .collect()
        };
        let tor_and = |threads: &[u32]| [vec![Target::Tor], weft(threads)].concat();
        let add = |plan: &mut Plan, point: Point, target: Target, rate: Option<f64>| {
            let timing = match point.is_in("capacity") {
                true => ROUND,
                false => timing(target),
            };
            let row = Row {
                expected: expected(&point, timing),
                timing,
                rate: rate.or(point.rate),
                point,
                target,
            };
            match obstacle(&row, cores, files) {
                None => plan.rows.push(row),
                Some(why) => plan.leave_out(&row.point, Some(target), &why),
            }
        };
        for target in tor_and(&THREADS) {
            add(&mut plan, Point::scaling(), target, None);
        }
        plan.add_network(cores, quick);
        let thin = if quick { THIN_FEWER } else { THIN };
        for target in weft(&THIN_THREADS) {
            add(&mut plan, Point::scaling_thin(thin), target, None);
        }
        match quick {
            true => plan.leave_out(&Point::capacity(), None, NOT_QUICK),
            false => {
                for target in tor_and(&CAPACITY_THREADS) {
                    let times = match target {
                        Target::Weft(threads) => 4.0 * f64::from(threads),
                        Target::Pipe | Target::Tor => 1.0,
                    };
                    let rate = Some(FIRST_RATE * times);
                    add(&mut plan, Point::capacity(), target, rate);
                }
            }
        }
        for workers in WORKERS
            .into_iter()
            .filter(|workers| !quick || *workers == 1)
        {
            add(&mut plan, Point::workers(workers), Target::Weft(1), None);
        }
        plan.left_out.extend([
            LeftOut::new(
                "several identities on 8 threads",
                "weft lab relay measures a relay of one identity",
            ),
            LeftOut::new(
                "a network in virtual time on 1 and 16 threads",
                "a network in virtual time has one thread",
            ),
        ]);
        plan
    }

    fn leave_out(&mut self, point: &Point, target: Option<Target>, why: &str) {
        let what = match target {
            Some(target) => format!("{point}, {target}"),
            None => point.to_string(),
        };
        self.left_out.push(LeftOut::new(&what, why));
    }

    /// Rows in a private network: each of the target's threads and the main thread has a core, and the nodes
    /// around have as many at least.
    fn add_network(&mut self, cores: usize, quick: bool) {
        let words = "the middle of a private network";
        if quick {
            self.left_out.push(LeftOut::new(words, NOT_QUICK));
            return;
        }
        let of = |threads: u32| threads.max(1) as usize;
        let fits = |threads: &&u32| cores >= 2 * of(**threads);
        let most = NETWORK_THREADS.iter().filter(fits).map(|n| of(*n)).max();
        let Some(target_cores) = most else {
            self.left_out.push(LeftOut::new(words, &needs(2, cores)));
            return;
        };
        let around = cores - target_cores;
        let clients = around.clamp(2, 32);
        let circuits = clients * STREAMS;
        let payload = around as f64 * AROUND_RATE * 6.0;
        let network = Network {
            clients,
            bytes_per_stream: (payload / circuits as f64) as u64,
            cores: target_cores,
        };
        self.network = Some(network);
        let point = Point::network(circuits, network.nodes());
        let all = NETWORK_THREADS.map(Target::Weft);
        for target in [Target::Tor].into_iter().chain(all) {
            if let Target::Weft(threads) = target
                && cores < 2 * of(threads)
            {
                let why = needs(2 * of(threads), cores);
                self.leave_out(&point, Some(target), &why);
                continue;
            }
            let rate = match target {
                Target::Tor | Target::Pipe => TOR_RATE,
                Target::Weft(_) => around as f64 * AROUND_RATE,
            };
            self.rows.push(Row {
                point: point.clone(),
                target,
                timing: Timing {
                    warm_up: 1.0,
                    seconds: 3.0,
                    steps: 0,
                },
                rate: None,
                expected: payload / rate.min(around as f64 * AROUND_RATE) + BETWEEN,
            });
        }
    }
}

const NOT_QUICK: &str = "not a part of --quick";
/// Payload in bytes per second that the nodes around the target carry for each core that they have.
const AROUND_RATE: f64 = 50e6;
/// Payload in bytes per second that C tor carries.
const TOR_RATE: f64 = 120e6;
/// Seconds that a target takes to start, and its circuits to be built.
const BETWEEN: f64 = 4.0;

impl Network {
    pub(super) fn nodes(self) -> usize {
        3 * self.clients + 3
    }

    /// Seconds until it stands.
    pub(super) fn start(self) -> f64 {
        20.0 + 0.3 * self.nodes() as f64
    }

    /// The words of `--pin`.
    pub(super) fn pin(self, cpus: &Cpus) -> String {
        let list = |cpus: &[usize]| {
            let words: Vec<String> = cpus.iter().map(usize::to_string).collect();
            words.join(",")
        };
        let (target, others) = cpus.cores.split_at(self.cores.min(cpus.cores.len()));
        format!("{}/{}", list(target), list(others))
    }
}

fn needs(cores: usize, has: usize) -> String {
    format!("needs {cores} cores, {has} may be used")
}

/// Why a row makes no sense here.
fn obstacle(row: &Row, cores: usize, files: u64) -> Option<String> {
    let cpus = Cpus {
        cores: (0..cores).collect(),
    };
    // A generator that shares the target's cores measures both together.
    if Place::of(row.target, &row.point, &cpus, true).pin.is_none() {
        let workers = row.point.workers.map(|workers| workers as usize);
        let busy = workers.unwrap_or_else(|| row.target.busy_threads());
        return Some(needs(busy + 1, cores));
    }
    // The generator has a socket for each link, and one that listens for each of the relays that it plays.
    let wanted = row.point.links as u64 * 3 / 2 + 200;
    (wanted > files)
        .then(|| format!("takes {wanted} open files, and a process may have {files} (ulimit -Hn)"))
}

/// Seconds that a row takes, by experience.
fn expected(point: &Point, timing: Timing) -> f64 {
    let around = 1.5 + point.circuits as f64 / 2500.0 + point.links as f64 / 500.0;
    let round = timing.warm_up + timing.seconds;
    around
        + match point.is_in("capacity") {
            true => (round + 1.0) * f64::from(timing.steps),
            false => round,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(plan: &Plan) -> Vec<String> {
        let rows = plan.rows.iter();
        rows.map(|row| format!("{}, {}", row.point, row.target))
            .collect()
    }

    #[test]
    fn what_matters_most_comes_first_and_all_of_it_takes_less_than_eight_minutes() {
        let plan = Plan::new(16, 1 << 20, false);
        let names = names(&plan);
        assert!(
            names[0].starts_with("300 circuits over 30 links, download"),
            "{names:?}"
        );
        let at = |words: &str| names.iter().position(|name| name.contains(words));
        let order = [
            "(pack), weft:8",
            "private network",
            "at 10 MB/s",
            "(capacity)",
            "onionskins",
        ];
        let order = order.map(|words| at(words).unwrap_or_else(|| panic!("{words} in {names:?}")));
        assert!(order.is_sorted(), "{order:?}");
        // 6 at full speed, 7 in the network, 3 thin, 3 capacities, 3 of onionskins.
        assert_eq!(names.len(), 22);
        assert_eq!(plan.left_out.len(), 2, "{:?}", plan.left_out);
        let network = plan.network.expect("it has one");
        let seconds: f64 = plan.rows.iter().map(|row| row.expected).sum();
        assert!(seconds + network.start() < 470.0, "{seconds}");
        let cpus = Cpus {
            cores: (0..16).collect(),
        };
        assert_eq!(network.pin(&cpus), "0,1,2,3,4,5/6,7,8,9,10,11,12,13,14,15");
    }

    #[test]
    fn few_cores_have_few_rows_and_the_others_their_reason() {
        let two = Plan::new(2, 1 << 20, false);
        assert!(names(&two).iter().all(|name| !name.contains("weft:8")));
        let why = |plan: &Plan, what: &str| {
            let mut found = plan.left_out.iter().filter(|out| out.what.contains(what));
            found.next().map(|out| out.why.clone())
        };
        assert_eq!(
            why(&two, "(pack), weft:8").as_deref(),
            Some("needs 9 cores, 2 may be used")
        );
        assert_eq!(
            why(&two, "network of 9 nodes, weft:3").as_deref(),
            Some("needs 6 cores, 2 may be used")
        );
        let one = Plan::new(1, 1 << 20, false);
        assert!(one.rows.is_empty(), "{:?}", names(&one));
        assert_eq!(
            why(&one, "(pack), tor").as_deref(),
            Some("needs 2 cores, 1 may be used")
        );
    }

    #[test]
    fn few_files_leave_out_many_links() {
        let plan = Plan::new(16, 1024, false);
        let names = names(&plan);
        assert!(
            names.iter().all(|name| !name.contains("2000 links")),
            "{names:?}"
        );
        assert!(
            plan.left_out
                .iter()
                .any(|out| out.why.contains("and a process may have 1024"))
        );
    }

    #[test]
    fn quick_takes_less_than_half_a_minute() {
        let plan = Plan::new(2, 1 << 20, true);
        let seconds: f64 = plan.rows.iter().map(|row| row.expected).sum();
        assert!(!plan.rows.is_empty() && seconds < 30.0, "{seconds}");
        assert!(plan.left_out.iter().any(|out| out.why == NOT_QUICK));
    }
}
