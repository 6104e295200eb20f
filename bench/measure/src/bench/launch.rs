//! One run of `weft lab relay` or `weft lab throughput`, in a separate process.

use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use weft_lab::relay::report::Report;
use weft_testnet::guardian::Guardian;

/// Time that a run may take beyond the planned: to start its target, set up and end.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time that it may take to end after SIGINT.
const FAREWELL: Duration = Duration::from_secs(30);

/// The result of a run.
pub(crate) struct Outcome {
    /// Its report, complete or not.
    pub(crate) report: Option<Report>,
    /// Why it failed.
    pub(crate) failure: Option<String>,
    pub(crate) took: Duration,
}

/// A program to be run.
pub(crate) struct Launch<'a> {
    pub(crate) weft: &'a Path,
    pub(crate) words: &'a [String],
    /// When it gets SIGINT.
    pub(crate) deadline: Instant,
    /// Its folder for temporary files; `None`: the system's.
    pub(crate) temporary: Option<&'a Path>,
    /// It gets SIGINT when this becomes true.
    pub(crate) stop: &'a AtomicBool,
}

/// Latest end of a run that takes this long when all goes well.
pub(crate) fn patience(planned: Duration) -> Instant {
    Instant::now() + planned + PATIENCE
}

/// Exit status and output of a program.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) took: Duration,
}

/// Runs `weft` with arguments that ask for JSON.
///
/// # Errors
///
/// It cannot be started, or not be waited for.
pub(crate) fn run(launch: &Launch<'_>) -> Result<Outcome> {
    let ended = end(launch)?;
    let report: Option<Report> = serde_json::from_str(&ended.stdout).ok();
    let complete = report.as_ref().is_some_and(|report| report.complete);
    let failure = (!ended.status.success() || !complete).then(|| {
        let why = report.as_ref().and_then(|report| report.why.clone());
        why.unwrap_or_else(|| match ended.stderr.trim() {
            "" => format!("it printed no report ({})", ended.status),
            errors => errors.to_owned(),
        })
    });
    Ok(Outcome {
        report,
        failure,
        took: ended.took,
    })
}

/// Runs `weft` to its end. It ends with this process, whatever ends that.
///
/// # Errors
///
/// As of [`run`].
pub(crate) fn end(launch: &Launch<'_>) -> Result<Ended> {
    let began = Instant::now();
    let mut guardian = Guardian::start(None)?;
    let mut command = Command::new(launch.weft);
    if let Some(folder) = launch.temporary {
        command.env("TMPDIR", folder);
    }
    let mut child = command
        .args(launch.words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .with_context(|| format!("starting {}", launch.weft.display()))?;
    let watched = guardian.watch(child.id());
    let stdout = child.stdout.take().map(|pipe| thread::spawn(|| read(pipe)));
    let stderr = child.stderr.take().map(|pipe| thread::spawn(|| read(pipe)));
    let status = wait(&mut child, launch.deadline, launch.stop)?;
    watched.and_then(|()| guardian.forget(child.id()))?;
    let text = |reader: Option<thread::JoinHandle<String>>| {
        reader
            .and_then(|reader| reader.join().ok())
            .unwrap_or_default()
    };
    Ok(Ended {
        status,
        stdout: text(stdout),
        stderr: text(stderr),
        took: began.elapsed(),
    })
}

fn read(mut pipe: impl std::io::Read) -> String {
    let mut bytes = Vec::new();
    // The text read until then is of more use than an error.
    let _ = pipe.by_ref().take(16 << 20).read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn wait(child: &mut Child, deadline: Instant, stop: &AtomicBool) -> Result<ExitStatus> {
    let mut interrupted = None;
    loop {
        if let Some(status) = child.try_wait().context("waiting for weft lab")? {
            return Ok(status);
        }
        match interrupted {
            None if stop.load(Ordering::Relaxed) || Instant::now() >= deadline => {
                let pid = i32::try_from(child.id()).map(Pid::from_raw)?;
                let _ = kill(pid, Signal::SIGINT);
                interrupted = Some(Instant::now());
            }
            Some(when) if when.elapsed() >= FAREWELL => child.kill().context("ending weft lab")?,
            _ => {}
        }
        thread::sleep(Duration::from_millis(20));
    }
}
