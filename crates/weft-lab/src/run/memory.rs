//! Checks that this machine has the memory that a scenario is estimated to need.

use std::fs;

use anyhow::{Result, ensure};

/// Refuses a scenario that needs more memory than is free here. It does not refuse if the system
/// does not report its memory.
///
/// # Errors
///
/// With the estimate and what to do.
pub(crate) fn check(scenario: &str, bytes: u64, at_once: usize) -> Result<()> {
    match available() {
        Some(available) => fits(scenario, bytes, at_once, available),
        None => Ok(()),
    }
}

fn fits(scenario: &str, bytes: u64, at_once: usize, available: u64) -> Result<()> {
    let all = bytes.saturating_mul(at_once as u64);
    let advice = match available / bytes.max(1) {
        0 => "give it fewer relays or clients, or use a larger machine".to_owned(),
        fit => format!("use --threads {fit}"),
    };
    let jobs = match at_once {
        1 => String::new(),
        _ => format!(" ({} for each of {at_once} jobs at once)", amount(bytes)),
    };
    ensure!(
        all <= available,
        "{scenario} needs about {} of memory{jobs}, and this machine has {} free: {advice}",
        amount(all),
        amount(available)
    );
    Ok(())
}

/// A number of bytes, for people.
pub(super) fn amount(bytes: u64) -> String {
    match bytes as f64 {
        bytes if bytes >= 1e9 => format!("{:.1} GB", bytes / 1e9),
        bytes => format!("{:.0} MB", bytes / 1e6),
    }
}

/// Memory that the kernel calls available, or the limit of this process's control group if that is
/// less.
fn available() -> Option<u64> {
    let memory = fs::read_to_string("/proc/meminfo").ok()?;
    let kibibytes = memory.lines().find_map(|line| {
        let rest = line.strip_prefix("MemAvailable:")?;
        rest.split_whitespace().next()?.parse::<u64>().ok()
    })?;
    let free = kibibytes.saturating_mul(1024);
    Some(group_limit().map_or(free, |limit| free.min(limit)))
}

fn group_limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let limit = fs::read_to_string(format!("/sys/fs/cgroup{own}/memory.max")).ok()?;
    limit.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_with_the_estimate_and_a_way_out() {
        let gigabyte = 1_000_000_000;
        assert!(fits("a.toml", 2 * gigabyte, 4, 8 * gigabyte).is_ok());
        let fewer = fits("a.toml", 3 * gigabyte, 4, 8 * gigabyte).expect_err("12 GB");
        let fewer = fewer.to_string();
        for words in [
            "a.toml needs about 12.0 GB",
            "3.0 GB for each of 4",
            "--threads 2",
        ] {
            assert!(fewer.contains(words), "{words} in {fewer}");
        }
        let none = fits("a.toml", 9 * gigabyte, 1, 8 * gigabyte).expect_err("9 GB");
        assert!(
            none.to_string().contains("fewer relays or clients"),
            "{none}"
        );
        assert!(available().is_some_and(|bytes| bytes > 0));
    }
}
