//! Shadow itself: where it is, and one simulation that it runs.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::network::CONFIGURATION;
use crate::guardian::Guardian;
use crate::programs::{check_program, find};

/// File of Shadow's output.
pub const LOG: &str = "shadow.log";
/// Error message for a machine without Shadow.
pub const MISSING: &str = "Shadow is not installed (https://shadow.github.io; docs/shadow.md has how to get it; --shadow FILE names one elsewhere)";
/// Interval at which the end and the progress are checked.
const LOOK: Duration = Duration::from_millis(200);
/// So much of the end of a log has its last line.
const TAIL: u64 = 16 << 10;

/// Runs the simulation in this folder to its end. Calls `at` with the simulated time now and then.
/// Returns `None` if it was stopped before its end; the inner error is Shadow's complaint.
///
/// # Errors
///
/// Shadow cannot be started.
pub fn simulate_in(
    program: &Path,
    folder: &Path,
    is_stopped: impl Fn() -> bool,
    mut at: impl FnMut(Duration),
) -> Result<Option<Result<(), String>>> {
    let log = folder.join(LOG);
    let mut shadow = Shadow::start(program, folder)?;
    let status = loop {
        if let Some(status) = shadow.ended()? {
            break status;
        }
        if is_stopped() {
            return Ok(None);
        }
        at(simulated(&end_of(&log)).unwrap_or_default());
        thread::sleep(LOOK);
    };
    Ok(Some(match status.success() {
        true => Ok(()),
        false => Err(format!(
            "Shadow ended with {status}; the end of {}: {}",
            log.display(),
            complaint(&end_of(&log))
        )),
    }))
}

/// Shadow, where its installer puts it.
pub fn installed() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/bin/shadow"));
    find("shadow").or(home.filter(|path| path.is_file()))
}

/// Shadow at this path.
///
/// # Errors
///
/// There is no such file.
pub fn program(path: &Path) -> Result<PathBuf> {
    check_program(path)?;
    // It runs in other folders.
    fs::canonicalize(path).with_context(|| format!("finding {}", path.display()))
}

/// Shadow that runs, with all that it runs. Dropped, it ends.
struct Shadow {
    child: std::process::Child,
    is_over: bool,
    _guardian: Guardian,
}

impl Shadow {
    fn start(program: &Path, folder: &Path) -> Result<Shadow> {
        let log = folder.join(LOG);
        let output = File::create(&log).with_context(|| format!("creating {}", log.display()))?;
        let errors = output.try_clone().context("a second way to the log")?;
        let mut guardian = Guardian::start(None)?;
        let child = Command::new(program)
            .arg(CONFIGURATION)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .process_group(0)
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        guardian.watch(child.id())?;
        Ok(Shadow {
            child,
            is_over: false,
            _guardian: guardian,
        })
    }

    fn ended(&mut self) -> Result<Option<ExitStatus>> {
        let status = self.child.try_wait().context("waiting for Shadow")?;
        self.is_over = status.is_some();
        Ok(status)
    }
}

impl Drop for Shadow {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        if let Ok(group) = i32::try_from(self.child.id()) {
            // It may have ended since.
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
        let _ = self.child.wait();
    }
}

/// The first line of what Shadow prints with `--version`.
pub fn version(shadow: &Path) -> Option<String> {
    let output = Command::new(shadow).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().next().map(|line| line.trim().to_owned())
}

/// The end of a file; empty if there is none.
fn end_of(path: &Path) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
        let mut bytes = Vec::new();
        file.take(TAIL).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

/// The simulated time of the last line that has one, seconds: `02:03:04.000000000`, with nine digits behind the point
/// where real time has six.
fn simulated(log: &str) -> Option<Duration> {
    log.lines().rev().find_map(|line| {
        line.split_whitespace().find_map(|word| {
            let (clock, digits) = word.split_once('.')?;
            let mut parts = clock.split(':').map(str::parse::<u32>);
            let (hours, minutes, seconds) = (parts.next()?, parts.next()?, parts.next()?);
            let (hours, minutes, seconds) = (hours.ok()?, minutes.ok()?, seconds.ok()?);
            let is_simulated = digits.len() == 9 && parts.next().is_none();
            let whole = f64::from(hours) * 3_600.0 + f64::from(minutes) * 60.0 + f64::from(seconds);
            is_simulated.then(|| Duration::from_secs_f64(whole))
        })
    })
}

/// The last line that is an error, or the last one.
fn complaint(log: &str) -> &str {
    let is_error = |line: &&str| line.contains("[ERROR]") || line.contains("Error");
    let mut lines = log.lines().rev();
    let found = lines.clone().find(is_error).or_else(|| lines.next());
    found.unwrap_or("it is empty")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulated_time_is_that_of_the_last_line() {
        let log = "00:00:01.123456 [7:shadow] n/a [INFO] [n/a] start\n\
                   00:00:02.123456 [7:shadow] 00:01:05.000000000 [INFO] [n/a] heartbeat\n** Starting\n";
        assert_eq!(simulated(log), Some(Duration::from_secs(65)));
        assert_eq!(simulated("00:00:01.123456 [7:shadow] n/a [INFO]"), None);
    }

    #[test]
    fn the_reason_of_an_end_is_the_last_error() {
        assert_eq!(complaint("a\n[ERROR] b\nc\n"), "[ERROR] b");
        assert_eq!(complaint("a\nc\n"), "c");
        assert_eq!(complaint(""), "it is empty");
    }
}
