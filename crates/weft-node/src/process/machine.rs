//! The cores and the memory that this process may use.

use std::fs;

/// The number of cores that this process may use, by its processor set (`sched_getaffinity`) and its
/// cgroup's quota; at least 1.
pub(crate) fn usable_cores() -> usize {
    // On Linux the standard library considers exactly these two.
    std::thread::available_parallelism().map_or(1, usize::from)
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
    fn meminfo_is_in_kilobytes() {
        let text = "MemFree: 5 kB\nMemTotal:       16303428 kB\nX: 1 kB\n";
        assert_eq!(mem_total(text), Some(16_303_428 * 1024));
        assert_eq!(mem_total("MemTotal: many kB\n"), None);
        assert_eq!(mem_total(""), None);
        assert_eq!(mem_total("MemTotal: 18446744073709551615 kB"), None);
    }
}
