//! Measures the same transfers over the tunnels of py-ipv8 with ipv8-rust-tunnels, if these are
//! installed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::Deserialize;
use weft_stats::Summary;
use weft_testnet::guardian::Guardian;
use weft_testnet::programs::find;
use weft_testnet::stop::Stop;

use super::results::{TunnelRole, Tunnels, ci95};

/// Script that runs the nodes.
const SCRIPT: &str = include_str!("tunnels.py");
/// Longest time for the nodes to find each other, and for one transfer.
const PATIENCE: Duration = Duration::from_secs(90);
/// Interval at which a requested end is noticed.
const BEAT: Duration = Duration::from_millis(100);
/// 10⁶ bytes of a transfer at most: tunnels are slower.
const MOST_MEGABYTES: u64 = 40;

/// A Python that has the packages.
#[derive(Clone, Debug)]
pub(super) struct Python {
    path: PathBuf,
    versions: String,
}

impl Python {
    /// This Python, or the one that is installed; an error shows what to do.
    pub(super) fn find(given: Option<&Path>) -> Result<Python> {
        let path = match given {
            Some(path) => path.to_owned(),
            None => find("python3").context("the program python3 is not installed")?,
        };
        let words = "import ipv8, ipv8_rust_tunnels\n\
                     from importlib.metadata import version\n\
                     print('pyipv8', version('pyipv8') + ', ipv8-rust-tunnels', version('ipv8-rust-tunnels'))";
        let output = Command::new(&path)
            .args(["-c", words])
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("starting {}", path.display()))?;
        ensure!(
            output.status.success(),
            "{} lacks packages: {} -m pip install pyipv8 ipv8-rust-tunnels",
            path.display(),
            path.display()
        );
        let versions = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Ok(Python { path, versions })
    }
}

/// The script's output for one transfer.
#[derive(Clone, Debug, Deserialize)]
struct Line {
    hops: usize,
    circuits: usize,
    mbit: f64,
    roles: Vec<RoleLine>,
}

#[derive(Clone, Debug, Deserialize)]
struct RoleLine {
    role: String,
    cpu_s_per_gb: f64,
}

/// Measurements to make.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub(super) python: Python,
    pub(super) hops: Vec<usize>,
    pub(super) circuits: Vec<usize>,
    pub(super) megabytes: u64,
    pub(super) repetitions: u32,
    pub(super) seed: u64,
}

/// A process that is ended when this is dropped, its children with it.
struct Process {
    child: Child,
    guardian: Guardian,
}

impl Drop for Process {
    fn drop(&mut self) {
        let pid = self.child.id();
        if let Ok(group) = i32::try_from(pid) {
            // It may have ended.
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
        let _ = self.child.wait();
        let _ = self.guardian.forget(pid);
    }
}

/// Measures, and calls `each` after each transfer with how many there were. When `stop` is requested it returns what
/// there is.
pub(super) fn measure(
    order: &Order,
    stop: &Stop,
    mut each: impl FnMut(usize, usize),
) -> Result<Tunnels> {
    let folder = tempfile::Builder::new()
        .prefix("weft-lab-")
        .tempdir()
        .context("making a folder for the tunnels")?;
    let (script, log) = (folder.path().join("tunnels.py"), folder.path().join("log"));
    fs::write(&script, SCRIPT).with_context(|| format!("writing {}", script.display()))?;
    let megabytes = order.megabytes.min(MOST_MEGABYTES);
    let list = |numbers: &[usize]| {
        let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
        numbers.join(",")
    };
    let mut guardian = Guardian::start(Some(folder.path()))?;
    let mut child = Command::new(&order.python.path)
        .arg(&script)
        .args([list(&order.hops), list(&order.circuits)])
        .args([
            megabytes.to_string(),
            order.repetitions.to_string(),
            order.seed.to_string(),
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(File::create(&log).with_context(|| format!("creating {}", log.display()))?)
        .process_group(0)
        .spawn()
        .with_context(|| format!("starting {}", order.python.path.display()))?;
    let watched = guardian.watch(child.id());
    let printed = child.stdout.take().context("the output of Python")?;
    let process = Process { child, guardian };
    watched?;
    let (sender, receiver) = channel();
    thread::Builder::new()
        .name("tunnels".into())
        .spawn(move || {
            for line in BufReader::new(printed).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        })
        .context("starting a thread")?;
    let mut lines: Vec<Line> = Vec::new();
    let all = order.hops.len() * order.circuits.len() * order.repetitions as usize;
    let mut heard = Instant::now();
    while lines.len() < all && !stop.is_requested() {
        let why = || fs::read_to_string(&log).unwrap_or_default();
        match receiver.recv_timeout(BEAT) {
            Ok(line) => {
                let line = serde_json::from_str(&line)
                    .with_context(|| format!("the tunnels printed {line:?}"))?;
                lines.push(line);
                heard = Instant::now();
                each(lines.len(), all);
            }
            Err(RecvTimeoutError::Timeout) if heard.elapsed() < PATIENCE => {}
            Err(RecvTimeoutError::Timeout) => bail!("the tunnels do nothing: {}", why()),
            Err(RecvTimeoutError::Disconnected) => bail!("the tunnels ended: {}", why()),
        }
    }
    drop(process);
    Ok(Tunnels {
        versions: order.python.versions.clone(),
        megabytes,
        roles: roles(&lines),
    })
}

/// Transfers of the same hops and circuits together.
fn roles(lines: &[Line]) -> Vec<TunnelRole> {
    let mut cpu: BTreeMap<(usize, usize, &str), Vec<f64>> = BTreeMap::new();
    for line in lines {
        for role in &line.roles {
            cpu.entry((line.hops, line.circuits, &role.role))
                .or_default()
                .push(role.cpu_s_per_gb);
        }
    }
    cpu.into_iter()
        .filter_map(|((hops, circuits, role), cpu)| {
            let same = lines.iter();
            let same = same.filter(|line| (line.hops, line.circuits) == (hops, circuits));
            let mbit: Vec<f64> = same.map(|line| line.mbit).collect();
            let mbit_ci95 = ci95(&mbit);
            let measured = cpu.iter().copied().zip(mbit.iter().copied()).collect();
            let mbit = Summary::of(mbit)?;
            let cpu = Summary::of(cpu)?;
            Some(TunnelRole {
                hops,
                circuits,
                role: role.to_owned(),
                cpu_s_per_gb: cpu.median,
                cpu_s_per_gb_range: cpu,
                mbit: mbit.median,
                mbit_range: mbit,
                mbit_ci95,
                measured,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::bars::tunnel_bars;
    use super::*;

    fn line(hops: usize, mbit: f64, cpu: f64) -> Line {
        let text = format!(
            r#"{{"hops": {hops}, "circuits": 1, "mbit": {mbit}, "roles": [{{"role": "sink", "cpu_s_per_gb": {cpu}}}, {{"role": "exit", "cpu_s_per_gb": 1.5}}]}}"#
        );
        serde_json::from_str(&text).expect("a line of the script")
    }

    #[test]
    fn repetitions_of_the_tunnels_are_one() {
        let roles = roles(&[line(2, 100.0, 3.0), line(2, 300.0, 5.0)]);
        let found: Vec<_> = roles
            .iter()
            .map(|one| (one.hops, &*one.role, one.cpu_s_per_gb, one.mbit))
            .collect();
        assert_eq!(found, [(2, "exit", 1.5, 200.0), (2, "sink", 4.0, 200.0)]);
    }

    #[test]
    fn roles_are_compared_with_their_like() {
        let weft =
            super::super::aggregate::tests::roles_of(&[(2, "sink"), (2, "exit"), (1, "relay")]);
        let tunnels = roles(&[line(1, 50.0, 8.0), line(2, 100.0, 3.0)]);
        let bars: Vec<_> = tunnel_bars(&weft, &tunnels)
            .into_iter()
            .map(|bar| (bar.what, bar.found, bar.met))
            .collect();
        assert_eq!(bars.len(), 5, "{bars:?}");
        assert_eq!(bars[0].1, 200.0 / 50.0, "{bars:?}");
        assert!(
            bars.iter()
                .any(|bar| bar.0.contains("exit of 1 hop") && !bar.2)
        );
        assert!(
            bars.iter()
                .any(|bar| bar.0.contains("sink of 2 hops") && bar.1 == 1.5)
        );
    }

    #[test]
    fn a_python_that_is_not_there_is_an_error() {
        let error = Python::find(Some(Path::new("/nonexistent/python"))).expect_err("none");
        assert!(
            format!("{error:#}").contains("/nonexistent/python"),
            "{error:#}"
        );
    }
}
