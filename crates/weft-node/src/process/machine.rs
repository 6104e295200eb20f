//! What the machine gives this process: cores and memory.

use std::fs;

/// Cores that this process may use: its processor set (`sched_getaffinity`), less what a cgroup
/// quota takes away; at least 1.
pub fn usable_cores() -> usize {
    // The standard library asks for exactly these two on Linux.
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Asks the kernel for ordinary pages, not for huge ones behind the allocator's back: a relay's memory
/// is many small things that come and go, and a huge page stays as long as one of them does. At rest
/// it is a third less (docs/performance.md).
///
/// A kernel that does not know the request goes on as before.
pub fn keep_pages_small() {
    if let Err(error) = nix::sys::prctl::set_thp_disable(true) {
        tracing::debug!("Could not turn transparent huge pages off: {error}");
    }
}

/// Memory of the machine in bytes, or of this process's cgroup where that is less; `None` where
/// the system does not tell.
pub fn total_memory() -> Option<u64> {
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
            // "max" (no limit) is no number.
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
