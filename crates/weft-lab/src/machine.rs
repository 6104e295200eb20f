//! The machine that measures, as far as it matters for the numbers.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use weft_testnet::programs::find;

/// Properties of the machine that numbers depend on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Its name in the results' file name: not the host's, but the processor's, or as given.
    pub name: String,
    /// The processor's model name.
    pub cpu: String,
    /// Cores that may be used; those that two threads share count once.
    pub cores: usize,
    /// Processors as the kernel counts them.
    pub logical_cpus: usize,
    /// All of it.
    pub memory_bytes: u64,
    /// Name and release.
    pub kernel: String,
    /// Of the first processor, if it has one.
    pub governor: Option<String>,
    /// The processor reports a hypervisor.
    pub virtual_machine: bool,
    /// Of the processor's abilities, those that relays use.
    pub cpu_flags: Vec<String>,
    /// Over 1, 5 and 15 minutes, before anything was started.
    pub load_average_before: String,
}

/// Processors that programs can be bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpus {
    /// One processor of each core, those that this process may use.
    pub cores: Vec<usize>,
}

impl Cpus {
    /// Processors of this machine that may be used.
    pub fn here() -> Cpus {
        let allowed = sched_getaffinity(Pid::from_raw(0)).ok();
        let is_allowed = |cpu: usize| match &allowed {
            Some(set) => set.is_set(cpu).unwrap_or(false),
            None => false,
        };
        let mut seen = BTreeSet::new();
        let cores: Vec<usize> = (0..CpuSet::count())
            .filter(|cpu| is_allowed(*cpu))
            .filter(|cpu| {
                let siblings =
                    format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
                // Where the kernel has no such file, each processor is a core.
                let siblings = line_of(&siblings).unwrap_or_else(|| cpu.to_string());
                seen.insert(siblings)
            })
            .collect();
        match cores.is_empty() {
            true => Cpus { cores: vec![0] },
            false => Cpus { cores },
        }
    }
}

impl Machine {
    /// This machine, as the kernel and the processor describe it.
    pub fn here(cpus: &Cpus, name: Option<&str>) -> Machine {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let mut lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
            let found = lines.find(|(key, _)| key.trim() == name);
            found.map(|(_, value)| value.trim().to_owned())
        };
        let cpu = field("model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
        // "Features" is what ARM calls them.
        let flags = field("flags").or(field("Features")).unwrap_or_default();
        let flags: Vec<&str> = flags.split_whitespace().collect();
        let interesting = ["aes", "sha_ni", "vaes", "avx2", "avx512f", "sha1", "sha2"];
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let memory = memory.lines().find_map(|line| {
            let rest = line.strip_prefix("MemTotal:")?;
            rest.split_whitespace().next()?.parse::<u64>().ok()
        });
        Machine {
            name: match name {
                Some(name) => slug(name),
                None => slug(&format!("{cpu} {} cores", cpus.cores.len())),
            },
            cores: cpus.cores.len(),
            logical_cpus: cpuinfo
                .lines()
                .filter(|line| line.starts_with("processor"))
                .count(),
            memory_bytes: memory.unwrap_or(0) * 1024,
            kernel: line_of("/proc/sys/kernel/osrelease")
                .map_or_else(String::new, |release| format!("Linux {release}")),
            governor: line_of("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            virtual_machine: flags.contains(&"hypervisor"),
            cpu_flags: interesting
                .into_iter()
                .filter(|flag| flags.contains(flag))
                .map(str::to_owned)
                .collect(),
            load_average_before: line_of("/proc/loadavg")
                .map(|line| {
                    line.split_whitespace()
                        .take(3)
                        .collect::<Vec<_>>()
                        .join(" ")
                })
                .unwrap_or_default(),
            cpu,
        }
    }

    /// All of its memory, in words.
    pub(crate) fn memory_in_words(&self) -> String {
        format!("{:.1} GB", self.memory_bytes as f64 * 1e-9)
    }
}

/// Versions of the measured programs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Versions {
    /// Weft's version, as it prints it.
    pub weft: Option<String>,
    /// C tor's version, as it prints it.
    pub tor: Option<String>,
    /// The compiler that is here.
    pub rustc: Option<String>,
    /// Of the checkout.
    pub commit: Option<String>,
    /// The checkout had changes that no commit has.
    pub dirty: bool,
    /// `weft` was built from the checkout for this run. Otherwise it was a given file, and the
    /// commit may be another than its own.
    pub built_here: bool,
}

impl Versions {
    /// Of the `weft` at this path, the `tor` that is installed, and a checkout of Weft's sources.
    pub fn here(weft: &Path, checkout: &Path, built_here: bool) -> Versions {
        let git = |words: &[&str]| {
            let output = Command::new("git")
                .current_dir(checkout)
                .args(words)
                .output()
                .ok()?;
            let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            output.status.success().then_some(text)
        };
        Versions {
            weft: first_line(Command::new(weft).arg("--version")),
            tor: find("tor").and_then(|tor| first_line(Command::new(tor).arg("--version"))),
            rustc: first_line(Command::new("rustc").arg("--version")),
            commit: git(&["rev-parse", "HEAD"]),
            // Results of earlier runs are no change to what is measured.
            dirty: git(&["status", "--porcelain", "--", ".", ":!bench/results"])
                .is_none_or(|changes| !changes.is_empty()),
            built_here,
        }
    }

    /// The checkout's commit, in words.
    pub(crate) fn commit_in_words(&self) -> String {
        let Some(commit) = &self.commit else {
            return "unknown".to_owned();
        };
        let short = commit.get(..10).unwrap_or(commit);
        match self.dirty {
            true => format!("{short} with changes"),
            false => short.to_owned(),
        }
    }

    /// Weft's version and commit.
    pub fn in_words(&self) -> String {
        let weft = self.weft.as_deref().unwrap_or("Weft");
        let Some(commit) = &self.commit else {
            return weft.to_owned();
        };
        format!(
            "{weft}, {} {}{}",
            match self.built_here {
                true => "commit",
                // Nobody knows where a given program comes from.
                false => "a given file, measured by commit",
            },
            commit.get(..10).unwrap_or(commit),
            if self.dirty { " with changes" } else { "" }
        )
    }
}

fn first_line(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().next()?.trim().trim_end_matches('.');
    Some(line.to_owned())
}

fn line_of(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// Small letters, digits and single hyphens: fit for the name of a file.
pub(crate) fn slug(text: &str) -> String {
    let mut slug = String::new();
    for c in text.replace("(R)", "").replace("(TM)", "").chars() {
        match c.to_ascii_lowercase() {
            c if c.is_ascii_alphanumeric() => slug.push(c),
            _ if !slug.is_empty() && !slug.ends_with('-') => slug.push('-'),
            _ => {}
        }
    }
    slug.truncate(60);
    slug.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_machines() {
        assert_eq!(
            slug("Intel(R) Xeon(R) CPU @ 2.30GHz, 2 cores"),
            "intel-xeon-cpu-2-30ghz-2-cores"
        );
        assert_eq!(slug("  Ærøskøbing/.. "), "r-sk-bing");
        assert_eq!(slug("../../etc"), "etc");
    }

    #[test]
    fn there_is_a_core_here() {
        assert!(!Cpus::here().cores.is_empty());
    }
}
