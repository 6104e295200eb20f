//! Resource usage of a process, read from `/proc`, and the limits of ours.
//!
//! The process's own user and system time, never the machine's counters: those of virtual machines
//! undercount.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

/// CPU time and memory of one process at one moment.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    /// User and system time of all threads, those that have ended included.
    pub cpu: Duration,
    /// The system time in it.
    pub system: Duration,
    /// Times that a living thread gave up its processor to wait.
    pub voluntary_switches: u64,
    /// Times that a processor was taken from a living thread.
    pub involuntary_switches: u64,
    /// Usage of each living thread, in the order of their ids (the main thread first).
    pub threads: Vec<ThreadUsage>,
    /// Resident memory, bytes.
    pub rss: u64,
    /// The most resident memory so far, bytes.
    pub peak_rss: u64,
}

/// CPU time of one thread.
#[derive(Clone, Debug)]
pub struct ThreadUsage {
    /// The kernel's id of the thread.
    pub id: u32,
    /// Its name, as the program chose it (at most 15 bytes).
    pub name: String,
    /// User and system time.
    pub cpu: Duration,
    /// The system time in it.
    pub system: Duration,
}

impl Usage {
    /// Reads the usage of process `pid`.
    pub fn of(pid: u32) -> Result<Usage> {
        let whole = stat(&format!("/proc/{pid}/stat"))?;
        let status = read(&format!("/proc/{pid}/status"))?;
        let folder = format!("/proc/{pid}/task");
        let mut threads = Vec::new();
        let (mut voluntary_switches, mut involuntary_switches) = (0, 0);
        for entry in fs::read_dir(&folder).with_context(|| format!("listing {folder}"))? {
            let name = entry
                .with_context(|| format!("listing {folder}"))?
                .file_name();
            let Some(id) = name.to_str().and_then(|id| id.parse().ok()) else {
                continue;
            };
            // A thread may end between the listing and the reading.
            if let Ok((name, cpu, system)) = stat(&format!("{folder}/{id}/stat")) {
                threads.push(ThreadUsage {
                    id,
                    name,
                    cpu,
                    system,
                });
            }
            // Unlike CPU time, the process's own status counts these for its main thread only.
            if let Ok(status) = read(&format!("{folder}/{id}/status")) {
                voluntary_switches += field(&status, "voluntary_ctxt_switches:").unwrap_or(0);
                involuntary_switches += field(&status, "nonvoluntary_ctxt_switches:").unwrap_or(0);
            }
        }
        threads.sort_by_key(|thread| thread.id);
        Ok(Usage {
            cpu: whole.1,
            system: whole.2,
            voluntary_switches,
            involuntary_switches,
            threads,
            rss: kibibytes(&status, "VmRSS:")?,
            peak_rss: kibibytes(&status, "VmHWM:")?,
        })
    }

    /// Usage since `earlier`. Memory is the current value.
    pub fn since(&self, earlier: &Usage) -> Usage {
        let before = |id| {
            let thread = earlier.threads.iter().find(|thread| thread.id == id);
            thread.map_or_else(Default::default, |thread| (thread.cpu, thread.system))
        };
        Usage {
            cpu: self.cpu.saturating_sub(earlier.cpu),
            system: self.system.saturating_sub(earlier.system),
            voluntary_switches: self
                .voluntary_switches
                .saturating_sub(earlier.voluntary_switches),
            involuntary_switches: self
                .involuntary_switches
                .saturating_sub(earlier.involuntary_switches),
            threads: self
                .threads
                .iter()
                .map(|thread| ThreadUsage {
                    cpu: thread.cpu.saturating_sub(before(thread.id).0),
                    system: thread.system.saturating_sub(before(thread.id).1),
                    ..thread.clone()
                })
                .collect(),
            ..*self
        }
    }
}

/// Lets this process have as many open files as the system allows: every link and stream takes one.
/// Where they do not suffice, opening a file fails.
pub fn raise_file_limit() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("reading {path} (has the process ended?)"))
}

/// Name, user + system time, and system time of a `stat` file (proc(5)): fields 2, 14 and 15.
fn stat(path: &str) -> Result<(String, Duration, Duration)> {
    let text = read(path)?;
    let parse = || {
        // The name stands in parentheses and may itself hold spaces and parentheses.
        let (_, rest) = text.split_once('(')?;
        let (name, rest) = rest.rsplit_once(')')?;
        let mut fields = rest.split_whitespace().skip(11);
        let user: u64 = fields.next()?.parse().ok()?;
        let system: u64 = fields.next()?.parse().ok()?;
        Some((name.to_owned(), user.checked_add(system)?, system))
    };
    let (name, cpu, system) =
        parse().with_context(|| format!("{path} is not as proc(5) has it: {text}"))?;
    let per_second = ticks_per_second()? as f64;
    let time = |ticks: u64| Duration::from_secs_f64(ticks as f64 / per_second);
    Ok((name, time(cpu), time(system)))
}

fn ticks_per_second() -> Result<i64> {
    nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK)
        .context("asking for the length of a clock tick")?
        .context("the length of a clock tick is unknown")
}

/// The number after the name of a field of a `status` file.
fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().parse().ok()
}

fn kibibytes(status: &str, field: &str) -> Result<u64> {
    let parse = || {
        let line = status.lines().find_map(|line| line.strip_prefix(field))?;
        let count: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(count * 1024)
    };
    parse().with_context(|| format!("no {field} in the process's status (has it ended?)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_work_is_seen_in_the_thread_that_did_it() {
        let pid = std::process::id();
        let before = Usage::of(pid).expect("our own usage");
        let worker = std::thread::Builder::new().name("worker".into());
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let (done, wait) = std::sync::mpsc::channel();
        let worker = worker
            .spawn(move || {
                let mut sum = 0u64;
                // By CPU time and not by the wall, so that a busy machine changes nothing.
                while thread_cpu() < Duration::from_millis(60) {
                    sum = std::hint::black_box(sum.wrapping_add(1));
                }
                done.send(()).expect("the test waits");
                let _ = receiver.recv();
            })
            .expect("a thread");
        wait.recv().expect("the worker works");
        let used = Usage::of(pid).expect("our own usage").since(&before);
        drop(sender);
        worker.join().expect("the worker ends");
        let thread = used.threads.iter().find(|thread| thread.name == "worker");
        let thread = thread.expect("the worker is listed");
        assert!(thread.cpu >= Duration::from_millis(40), "{thread:?}");
        // Each number is cut to whole ticks of 10 ms, user and system time apart.
        let ticks = Duration::from_millis(20);
        assert!(used.cpu + ticks >= thread.cpu, "{used:?}");
        assert!(used.rss > 0 && used.peak_rss >= used.rss / 2);
    }

    fn thread_cpu() -> Duration {
        let tid = nix::unistd::gettid();
        stat(&format!("/proc/self/task/{tid}/stat"))
            .expect("our own thread")
            .1
    }
}
