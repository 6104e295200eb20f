//! Output of a process: all of it in a file, and the end of it in memory.
//!
//! A program that cannot write to its log may drop it silently: C tor stops logging after the first
//! write that fails, so on a full disk it can end with status 1 and an empty log. Here it writes
//! into a pipe. The error that explains its end then includes what it printed about the disk, even
//! if the file has no room.

use std::fs::{self, File};
use std::io::{PipeReader, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context, Result, bail};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::statvfs::statvfs;

/// Bytes of the end that are kept in memory.
const TAIL: usize = 64 * 1024;
/// Lines of the end that are shown.
const SHOWN_LINES: usize = 30;

/// Standard output and standard error of one process, in the order in which it wrote them.
#[derive(Debug)]
pub(super) struct Output {
    path: PathBuf,
    sink: Arc<Mutex<Sink>>,
}

/// Where the pipe's bytes are written. Any thread that holds it may empty the pipe: so none has to wait for
/// the one that usually does.
#[derive(Debug)]
struct Sink {
    pipe: PipeReader,
    file: File,
    tail: Vec<u8>,
    /// Why the file is not whole.
    failure: Option<String>,
    ended: bool,
}

impl Output {
    /// Creates the file and what to give a process as its standard output and standard error.
    pub(super) fn create(path: &Path) -> Result<(Output, [Stdio; 2])> {
        let file = File::create(path).with_context(|| format!("creating {}", path.display()))?;
        let piped = || {
            let (reader, writer) = std::io::pipe()?;
            let (waiter, second) = (reader.try_clone()?, writer.try_clone()?);
            Ok::<_, std::io::Error>((reader, waiter, [writer.into(), second.into()]))
        };
        let (pipe, waiter, ends) = piped().context("making a pipe for a log")?;
        let sink = Arc::new(Mutex::new(Sink {
            pipe,
            file,
            tail: Vec::new(),
            failure: None,
            ended: false,
        }));
        let output = Output {
            path: path.to_owned(),
            sink: sink.clone(),
        };
        thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || {
                while wait(&waiter, PollTimeout::NONE) {
                    let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
                    sink.drain();
                    if sink.ended {
                        return;
                    }
                }
            })
            .context("starting a thread for a log")?;
        Ok((output, ends))
    }

    /// Everything so far; an error if the file does not hold all of it.
    pub(super) fn text(&self) -> Result<String> {
        if let Some(failure) = &self.settled().failure {
            bail!("{} is not whole: {failure}", self.path.display());
        }
        let bytes =
            fs::read(&self.path).with_context(|| format!("reading {}", self.path.display()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The last lines so far, and what should be known of them. Never empty.
    pub(super) fn last_lines(&self) -> String {
        let sink = self.settled();
        let text = String::from_utf8_lossy(&sink.tail);
        let lines: Vec<&str> = text.lines().collect();
        let mut shown = lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n");
        if shown.is_empty() {
            shown = format!("(it printed nothing; {})", room(&self.path));
        }
        if let Some(failure) = &sink.failure {
            shown.push_str(&format!(
                "\n({} is not whole: {failure}; {})",
                self.path.display(),
                room(&self.path)
            ));
        }
        shown
    }

    fn settled(&self) -> MutexGuard<'_, Sink> {
        let mut sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
        sink.drain();
        sink
    }
}

impl Sink {
    /// Takes what is in the pipe now.
    fn drain(&mut self) {
        let mut bytes = [0; 16 * 1024];
        while !self.ended && wait(&self.pipe, PollTimeout::ZERO) {
            let count = match self.pipe.read(&mut bytes) {
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    self.failure.get_or_insert(error.to_string());
                    0
                }
            };
            self.ended = count == 0;
            if self.failure.is_none()
                && let Err(error) = self.file.write_all(&bytes[..count])
            {
                self.failure = Some(error.to_string());
            }
            self.tail.extend_from_slice(&bytes[..count]);
            if self.tail.len() > 2 * TAIL {
                self.tail.drain(..self.tail.len() - TAIL);
            }
        }
    }
}

/// Waits until there is something to read, be it the end. False: not within the time.
fn wait(pipe: &PipeReader, time: PollTimeout) -> bool {
    let mut polled = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
    loop {
        match poll(&mut polled, time) {
            Ok(count) => return count > 0,
            Err(nix::errno::Errno::EINTR) => {}
            Err(_) => return false,
        }
    }
}

/// Free space of the file system, in words.
fn room(path: &Path) -> String {
    match statvfs(path) {
        Ok(stat) => format!(
            "its file system has {} MB and {} files to spare",
            stat.blocks_available().saturating_mul(stat.fragment_size()) / 1_000_000,
            stat.files_available(),
        ),
        Err(error) => format!("its file system cannot be asked: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Runs a shell script whose output goes to `path`.
    fn printed(path: &Path, script: &str) -> Output {
        let (output, [stdout, stderr]) = Output::create(path).expect("a pipe");
        let status = Command::new("sh")
            .args(["-c", script])
            .stdout(stdout)
            .stderr(stderr)
            .status();
        assert!(status.expect("sh runs").success());
        output
    }

    #[test]
    fn both_streams_are_kept_in_order_and_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let output = printed(&path, "echo one; echo two >&2; echo three");
        assert_eq!(output.text().expect("a log"), "one\ntwo\nthree\n");
        assert_eq!(output.last_lines(), "one\ntwo\nthree");
        assert_eq!(
            fs::read_to_string(&path).expect("the file"),
            "one\ntwo\nthree\n"
        );
    }

    #[test]
    fn only_the_end_of_much_is_shown_and_held() {
        let folder = tempfile::tempdir().expect("a folder");
        let script = "i=0; while [ $i -lt 40000 ]; do echo line $i; i=$((i+1)); done";
        let output = printed(&folder.path().join("log"), script);
        let shown = output.last_lines();
        assert_eq!(shown.lines().count(), SHOWN_LINES);
        assert!(shown.ends_with("line 39999"), "{shown}");
        assert_eq!(output.text().expect("a log").lines().count(), 40_000);
        assert!(output.settled().tail.len() <= 2 * TAIL);
    }

    #[test]
    fn what_a_full_disk_has_no_room_for_is_shown_all_the_same() {
        let output = printed(Path::new("/dev/full"), "echo no room");
        let shown = output.last_lines();
        assert!(shown.starts_with("no room\n"), "{shown}");
        assert!(shown.contains("No space left on device"), "{shown}");
        let error = output.text().expect_err("the file is not whole");
        assert!(error.to_string().contains("No space left"), "{error}");
    }

    #[test]
    fn silence_is_described_in_words() {
        let folder = tempfile::tempdir().expect("a folder");
        let output = printed(&folder.path().join("log"), "true");
        let shown = output.last_lines();
        assert!(
            shown.starts_with("(it printed nothing; its file system has "),
            "{shown}"
        );
    }
}
