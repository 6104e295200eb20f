//! Binding processes to processors.

use std::fs;

use anyhow::{Context, Result, bail};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// The processors of a list such as `0,2-3`.
///
/// # Errors
///
/// It is no such list.
pub fn parse(list: &str) -> Result<Vec<usize>> {
    let number = |text: &str| {
        text.trim()
            .parse::<usize>()
            .with_context(|| format!("{list:?} is no list of processors such as 0,2-3"))
    };
    let mut cpus = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last || last >= CpuSet::count() {
            bail!("{part:?} is no range of processors");
        }
        cpus.extend(first..=last);
    }
    Ok(cpus)
}

/// The processors of a relay and of what puts the load on it, from `0-3/4,5`.
///
/// # Errors
///
/// It is not two such lists with a slash between.
pub fn both(pin: &str) -> Result<(Vec<usize>, Vec<usize>)> {
    let (target, others) = pin
        .split_once('/')
        .context("--pin wants the relay's processors, a slash, the others'")?;
    Ok((parse(target)?, parse(others)?))
}

fn set(cpus: &[usize]) -> Result<CpuSet> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(*cpu)
            .with_context(|| format!("there is no processor {cpu}"))?;
    }
    Ok(set)
}

/// Binds the calling thread, and what it will start.
pub(crate) fn this_thread(cpus: &[usize]) -> Result<()> {
    if cpus.is_empty() {
        return Ok(());
    }
    sched_setaffinity(Pid::from_raw(0), &set(cpus)?)
        .with_context(|| format!("binding the generator to processors {cpus:?}"))
}

/// Binds every thread of a process.
pub(crate) fn process(pid: u32, cpus: &[usize]) -> Result<()> {
    if cpus.is_empty() {
        return Ok(());
    }
    let set = set(cpus)?;
    let folder = format!("/proc/{pid}/task");
    for entry in fs::read_dir(&folder).with_context(|| format!("listing {folder}"))? {
        let name = entry?.file_name();
        let Some(thread) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        match sched_setaffinity(Pid::from_raw(thread), &set) {
            // It has ended since.
            Err(nix::errno::Errno::ESRCH) => {}
            bound => {
                bound.with_context(|| format!("binding process {pid} to processors {cpus:?}"))?
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors() {
        assert_eq!(parse("0").expect("one"), [0]);
        assert_eq!(parse("0,2-4").expect("some"), [0, 2, 3, 4]);
        for wrong in ["", "a", "3-1", "1,", "0-999999999"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
