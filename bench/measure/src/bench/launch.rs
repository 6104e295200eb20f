//! One run of `weft lab relay`, in a process of its own.

use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use weft_lab::bench::report::Report;

/// How much longer than planned a run may take: to start its target, set up and end.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long it may take to end after SIGINT.
const FAREWELL: Duration = Duration::from_secs(30);

/// The result of a run.
pub(crate) struct Outcome {
    /// What it printed, complete or not.
    pub(crate) report: Option<Report>,
    /// Why it failed.
    pub(crate) failure: Option<String>,
    pub(crate) took: Duration,
}

/// Runs `weft` with these arguments, which ask for JSON. It gets SIGINT when `stop` becomes true,
/// and when it takes much longer than `planned`.
///
/// # Errors
///
/// It cannot be started, or not be waited for.
pub(crate) fn run(
    weft: &Path,
    words: &[String],
    planned: Duration,
    stop: &AtomicBool,
) -> Result<Outcome> {
    let began = Instant::now();
    let mut child = Command::new(weft)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {}", weft.display()))?;
    let stdout = child.stdout.take().map(|pipe| thread::spawn(|| read(pipe)));
    let stderr = child.stderr.take().map(|pipe| thread::spawn(|| read(pipe)));
    let status = wait(&mut child, began + planned + PATIENCE, stop)?;
    let text = |reader: Option<thread::JoinHandle<String>>| {
        reader
            .and_then(|reader| reader.join().ok())
            .unwrap_or_default()
    };
    let (stdout, stderr) = (text(stdout), text(stderr));
    let report: Option<Report> = serde_json::from_str(&stdout).ok();
    let complete = report.as_ref().is_some_and(|report| report.complete);
    let failure = (!status.success() || !complete).then(|| {
        let why = report.as_ref().and_then(|report| report.why.clone());
        why.unwrap_or_else(|| match stderr.trim() {
            "" => format!("it printed no report ({status})"),
            errors => errors.to_owned(),
        })
    });
    Ok(Outcome {
        report,
        failure,
        took: began.elapsed(),
    })
}

fn read(mut pipe: impl std::io::Read) -> String {
    let mut bytes = Vec::new();
    // What was read until then is of more use than an error.
    let _ = pipe.by_ref().take(16 << 20).read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn wait(
    child: &mut Child,
    deadline: Instant,
    stop: &AtomicBool,
) -> Result<std::process::ExitStatus> {
    let mut interrupted = None;
    loop {
        if let Some(status) = child.try_wait().context("waiting for weft lab")? {
            return Ok(status);
        }
        match interrupted {
            None if stop.load(Ordering::Relaxed) || Instant::now() >= deadline => {
                let pid = i32::try_from(child.id()).map(Pid::from_raw)?;
                // On a terminal it has had Ctrl-C too; a second does no harm.
                let _ = kill(pid, Signal::SIGINT);
                interrupted = Some(Instant::now());
            }
            Some(when) if when.elapsed() >= FAREWELL => child.kill().context("ending weft lab")?,
            _ => {}
        }
        thread::sleep(Duration::from_millis(20));
    }
}
