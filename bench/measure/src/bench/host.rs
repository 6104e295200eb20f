//! Resources that a machine offers to programs: processors, caches, memory nodes, files.

use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use nix::sys::resource::{Resource, getrlimit};
use serde::{Deserialize, Serialize};
use weft_lab::machine::Cpus;

/// The limits of this machine, as far as they matter for a plan or for numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Host {
    /// One processor of each core that may be used.
    pub(crate) cores: Vec<usize>,
    /// Processors' worth of time that the cgroup allows, if it sets a limit.
    pub(crate) cgroup_cpus: Option<f64>,
    /// Caches of the first of those processors.
    pub(crate) caches: Vec<String>,
    /// Processors of each memory node.
    pub(crate) memory_nodes: Vec<String>,
    /// Open files that a process may have (`ulimit -Hn`).
    pub(crate) open_files: u64,
}

impl Host {
    pub(crate) fn here() -> Host {
        let cores = Cpus::here().cores;
        let cache = format!(
            "/sys/devices/system/cpu/cpu{}/cache",
            cores.first().unwrap_or(&0)
        );
        let read = |folder: &Path, name: &str| line(&folder.join(name)).unwrap_or_default();
        Host {
            caches: folders(Path::new(&cache), "index")
                .iter()
                .map(|folder| {
                    let [level, kind, size, cpus] =
                        ["level", "type", "size", "shared_cpu_list"].map(|name| read(folder, name));
                    format!("L{level} {} {size}, processors {cpus}", kind.to_lowercase())
                })
                .collect(),
            memory_nodes: folders(Path::new("/sys/devices/system/node"), "node")
                .iter()
                .map(|folder| read(folder, "cpulist"))
                .collect(),
            cgroup_cpus: cgroup_cpus(),
            open_files: getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(_, hard)| hard),
            cores,
        }
    }

    /// Processors that programs are bound to: no more than the cgroup gives time for.
    pub(crate) fn cpus(&self) -> Cpus {
        let most = self.cgroup_cpus.map_or(usize::MAX, |cpus| cpus as usize);
        let cores = self.cores.iter().copied();
        Cpus {
            cores: cores.take(most.max(1)).collect(),
        }
    }

    /// In lines, for people.
    pub(crate) fn lines(&self) -> Vec<String> {
        let used = self.cpus().cores.len();
        let cores = match self.cgroup_cpus {
            Some(limit) if used < self.cores.len() => format!(
                "{} cores, of which {used} are used: the cgroup allows the time of {limit}",
                self.cores.len()
            ),
            _ if used == 1 => "1 core".to_owned(),
            _ => format!("{used} cores"),
        };
        vec![
            format!("{cores}; {} files for each process", self.open_files),
            format!("Memory nodes: {}.", list(&self.memory_nodes, " | ")),
            format!("Caches: {}.", list(&self.caches, "; ")),
        ]
    }
}

/// Fails where no program of the pack could run.
///
/// # Errors
///
/// It names the thing that is missing, and the command that mends it.
pub(super) fn check() -> Result<()> {
    ensure!(
        Path::new("/proc/self/stat").exists(),
        "/proc is not mounted here: processor time is read from it (mount -t proc proc /proc)"
    );
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| TcpStream::connect(listener.local_addr()?))
        .map(drop)
        .context("127.0.0.1 does not work here, and all traffic is on it (ip link set lo up)")
}

fn list(items: &[String], between: &str) -> String {
    match items.is_empty() {
        true => "unknown".to_owned(),
        false => items.join(between),
    }
}

/// The numbered folders of this name, in order.
fn folders(parent: &Path, name: &str) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let mut found: Vec<(usize, std::path::PathBuf)> = entries
        .filter_map(|entry| {
            let file = entry.file_name();
            let number = file.to_str()?.strip_prefix(name)?.parse().ok()?;
            Some((number, entry.path()))
        })
        .collect();
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

fn line(path: &Path) -> Option<String> {
    fs::read_to_string(path)
        .ok()
        .map(|text| text.trim().to_owned())
}

/// The least that this process's cgroup or one above it allows.
fn cgroup_cpus() -> Option<f64> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let places = own.lines().filter_map(place);
    let limits = places.flat_map(|(root, path)| {
        let inside = path.trim_start_matches('/').to_owned();
        let folders: Vec<_> = Path::new(&inside).ancestors().map(Path::to_owned).collect();
        folders.into_iter().filter_map(move |folder| {
            let folder = Path::new(root).join(folder);
            line(&folder.join("cpu.max"))
                .and_then(|text| of_cpu_max(&text))
                .or_else(|| {
                    let quota = line(&folder.join("cpu.cfs_quota_us"))?;
                    of_cpu_max(&format!(
                        "{quota} {}",
                        line(&folder.join("cpu.cfs_period_us"))?
                    ))
                })
        })
    });
    limits.min_by(f64::total_cmp)
}

/// Mount point and path of a line of /proc/self/cgroup that limits processors: `0::/a` of version 2, or
/// the controller `cpu` of version 1.
fn place(text: &str) -> Option<(&'static str, &str)> {
    let mut fields = text.splitn(3, ':');
    let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    match controllers {
        "" => Some(("/sys/fs/cgroup", path)),
        names if names.split(',').any(|name| name == "cpu") => Some(("/sys/fs/cgroup/cpu", path)),
        _ => None,
    }
}

/// Processors of a quota and a period; `None`: there is no limit.
fn of_cpu_max(text: &str) -> Option<f64> {
    let (quota, period) = text.split_once(' ')?;
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_a_number_of_processors() {
        assert_eq!(of_cpu_max("max 100000"), None);
        assert_eq!(of_cpu_max("250000 100000"), Some(2.5));
        // Version 1: no limit.
        assert_eq!(of_cpu_max("-1 100000"), None);
        assert_eq!(of_cpu_max(""), None);
    }

    #[test]
    fn both_versions_of_cgroups_are_found() {
        assert_eq!(place("0::/a/b"), Some(("/sys/fs/cgroup", "/a/b")));
        assert_eq!(
            place("2:cpu,cpuacct:/a"),
            Some(("/sys/fs/cgroup/cpu", "/a"))
        );
        assert_eq!(place("4:memory:/a"), None);
        assert_eq!(place("nothing"), None);
    }

    #[test]
    fn a_cgroup_with_less_time_than_processors_decides() {
        let host = |cgroup_cpus| Host {
            cores: vec![0, 2, 4, 6],
            cgroup_cpus,
            ..Host::default()
        };
        assert_eq!(host(None).cpus().cores, [0, 2, 4, 6]);
        assert_eq!(host(Some(2.5)).cpus().cores, [0, 2]);
        assert_eq!(host(Some(0.5)).cpus().cores, [0]);
        let lines = host(Some(2.5)).lines();
        assert!(
            lines[0].starts_with("4 cores, of which 2 are used"),
            "{lines:?}"
        );
    }
}
