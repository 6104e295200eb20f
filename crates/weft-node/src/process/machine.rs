//! The cores and the memory that this process may use.

use std::fs;
use std::time::{Duration, Instant};

/// The number of cores that this process may use, by its processor set (`sched_getaffinity`) and its
/// cgroup's quota; at least 1.
pub(crate) fn usable_cores() -> usize {
    // On Linux the standard library considers exactly these two.
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Number of idle cores of the machine. Low-priority work ("nice") gives way, so it counts as idle
/// time.
#[derive(Debug, Default)]
pub(crate) struct IdleCores {
    last: Option<(Duration, Instant)>,
}

impl IdleCores {
    /// In the mean since it was asked the last time; `None` the first time, and where the system does not report it.
    pub(crate) fn since_last(&mut self, now: Instant) -> Option<f64> {
        let ticks = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok()??;
        let stat = fs::read_to_string("/proc/stat").ok()?;
        let idle = idle_time(&stat, u32::try_from(ticks).ok()?)?;
        let (before, at) = self.last.replace((idle, now))?;
        let elapsed = now.checked_duration_since(at)?.as_secs_f64();
        (elapsed > 0.0).then(|| idle.saturating_sub(before).as_secs_f64() / elapsed)
    }
}

/// The time that all cores together have been idle, waited for disks or worked with low priority, by the first line of
/// /proc/stat: `cpu`, then user, nice, system, idle, iowait, in ticks.
fn idle_time(stat: &str, ticks: u32) -> Option<Duration> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let mut fields = line.split_ascii_whitespace().map(str::parse::<u64>);
    let mut next = || fields.next()?.ok();
    let (_, nice, _, idle, waiting) = (next()?, next()?, next()?, next()?, next()?);
    let sum = nice.checked_add(idle)?.checked_add(waiting)?;
    Some(Duration::from_millis(
        sum.checked_mul(1000)? / u64::from(ticks.max(1)),
    ))
}

/// Turns transparent huge pages off for this process: a relay allocates many small objects, and a huge
/// page stays in memory as long as one of them does. An idle relay uses a third less memory without them
/// (docs/performance.md).
///
/// Has no effect on a kernel that does not support the request.
pub(crate) fn keep_pages_small() {
    if let Err(error) = nix::sys::prctl::set_thp_disable(true) {
        tracing::debug!("Could not turn transparent huge pages off: {error}");
    }
}

/// The memory of the machine, or of this process's cgroup if that is less, in bytes; `None` if the
/// system does not report it.
pub(crate) fn total_memory() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| mem_total(&text));
    let group = fs::read_to_string("/proc/self/cgroup")
        .ok()
        .and_then(|text| cgroup_limit(&text));
    match (machine, group) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// MemTotal of /proc/meminfo, in bytes.
fn mem_total(meminfo: &str) -> Option<u64> {
    let rest = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kb: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kb.checked_mul(1024)
}

/// `memory.max` (version 2) of the cgroup named in /proc/self/cgroup and of those above it.
fn cgroup_limit(cgroup: &str) -> Option<u64> {
    let path = cgroup.lines().find_map(|line| line.strip_prefix("0::"))?;
    std::path::Path::new(path.trim_start_matches('/'))
        .ancestors()
        .filter_map(|dir| {
            let file = std::path::Path::new("/sys/fs/cgroup")
                .join(dir)
                .join("memory.max");
            // "max" (no limit) does not parse.
            fs::read_to_string(file).ok()?.trim().parse().ok()
        })
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_cores_and_memory() {
        assert!(usable_cores() >= 1);
        assert!(total_memory().unwrap() > 64 << 20);
    }

    #[test]
    fn idle_time_is_what_a_relay_could_have() {
        let stat = "cpu  100 30 200 4000 70 0 5 0 0 0\ncpu0 1 1 1 1 1\n";
        assert_eq!(idle_time(stat, 100), Some(Duration::from_secs(41)));
        for broken in [
            "",
            "cpu 1 2 3",
            "cpux 1 2 3 4 5",
            "cpu  1 2 3 18446744073709551615 9",
        ] {
            assert_eq!(idle_time(broken, 100), None, "{broken}");
        }
        let (mut idle, now) = (IdleCores::default(), Instant::now());
        assert_eq!(idle.since_last(now), None, "since when");
        assert!(idle.since_last(now + Duration::from_secs(3600)).unwrap() < 1.0);
        assert_eq!(idle.since_last(now), None, "a clock that went back");
    }

    #[test]
    fn meminfo_is_in_kilobytes() {
        let text = "MemFree: 5 kB\nMemTotal:       16303428 kB\nX: 1 kB\n";
        assert_eq!(mem_total(text), Some(16_303_428 * 1024));
        assert_eq!(mem_total("MemTotal: many kB\n"), None);
        assert_eq!(mem_total(""), None);
        assert_eq!(mem_total("MemTotal: 18446744073709551615 kB"), None);
    }
}
