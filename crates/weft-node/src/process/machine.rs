//! What the machine gives this process: cores and memory.

use std::fs;

/// 2^20 bytes.
const MB: u64 = 1 << 20;
/// 2^30 bytes.
const GB: u64 = 1 << 30;

/// Cores that this process may use: its processor set (`sched_getaffinity`), less what a cgroup
/// quota takes away; at least 1.
pub fn usable_cores() -> usize {
    // The standard library asks for exactly these two on Linux.
    std::thread::available_parallelism().map_or(1, usize::from)
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

/// What MaxMemInQueues means (C tor's `compute_real_max_mem_in_queues`), in bytes.
///
/// `configured` 0 asks for the default: of `memory` (see [`total_memory`]) 40 % from 8 GB on and
/// 75 % below, between 256 MB and 8 GB; 8 GB where the memory is unknown. A relay uses at least
/// 64 MB.
pub fn max_mem_in_queues(configured: u64, is_relay: bool, memory: Option<u64>) -> u64 {
    if configured == 0 {
        let most = if cfg!(target_pointer_width = "64") {
            8 * GB
        } else {
            2 * GB
        };
        let bytes = match memory {
            None => most,
            Some(ram) => {
                let share = if ram >= 8 * GB {
                    ram / 5 * 2
                } else {
                    ram / 4 * 3
                };
                share.clamp(GB / 4, most)
            }
        };
        if is_relay {
            crate::notice!(
                "{}MaxMemInQueues is set to {} MB. You can override this by setting \
                 MaxMemInQueues by hand.",
                if memory.is_some() {
                    "Based on detected system memory, "
                } else {
                    ""
                },
                bytes / MB
            );
        }
        return bytes;
    }
    let (least, unwarned) = if is_relay {
        (64 * MB, 256 * MB)
    } else {
        (0, 64 * MB)
    };
    if configured < least {
        tracing::warn!(
            "MaxMemInQueues must be at least {} MB on servers for now. Ideally, have it as large \
             as you can afford.",
            least / MB
        );
        return least;
    }
    if configured < unwarned {
        tracing::warn!(
            "MaxMemInQueues is set to a low value; if your {} doesn't work, this may be the \
             reason why.",
            if is_relay { "relay" } else { "client" }
        );
    }
    configured
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_cores_and_memory() {
        assert!(usable_cores() >= 1);
        assert!(total_memory().unwrap() > 64 * MB);
    }

    #[test]
    fn meminfo_is_in_kilobytes() {
        let text = "MemFree: 5 kB\nMemTotal:       16303428 kB\nX: 1 kB\n";
        assert_eq!(mem_total(text), Some(16_303_428 * 1024));
        assert_eq!(mem_total("MemTotal: many kB\n"), None);
        assert_eq!(mem_total(""), None);
        assert_eq!(mem_total("MemTotal: 18446744073709551615 kB"), None);
    }

    #[test]
    fn defaults_are_c_tors() {
        assert_eq!(max_mem_in_queues(0, true, None), 8 * GB);
        assert_eq!(max_mem_in_queues(0, true, Some(64 * GB)), 8 * GB);
        assert_eq!(max_mem_in_queues(0, true, Some(10 * GB)), 4 * GB);
        assert_eq!(max_mem_in_queues(0, true, Some(4 * GB)), 3 * GB);
        assert_eq!(max_mem_in_queues(0, true, Some(100 * MB)), 256 * MB);
        assert_eq!(max_mem_in_queues(MB, true, None), 64 * MB);
        assert_eq!(max_mem_in_queues(100 * MB, true, None), 100 * MB);
        assert_eq!(max_mem_in_queues(MB, false, None), MB);
    }
}
