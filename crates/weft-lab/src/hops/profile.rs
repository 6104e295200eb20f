//! A sampling profiler within a process: SIGPROF after so much processor time, and the stack of the thread that used
//! it.
//!
//! A node that is started by the hidden `weft lab profiled-node` has a thread that waits at a socket for orders:
//! `start` and `stop`, the answer to which are the samples. Until `start` nothing is armed, so that a profile spans
//! what the experiment measures and no more; other nodes have none of this.
//!
//! The profiler counts samples of the same functions together, and keeps the places in them of the first alone. So
//! for functions that the compiler has put into others the first sample of a stack stands for all of it: no share is
//! too large or too small by that in the mean, but it varies more.

use std::backtrace::Backtrace;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use pprof::{ProfilerGuard, ProfilerGuardBuilder};

use super::name::qualified;

/// Samples in a second of processor time; the kernel may take fewer (at most as many as its clock has ticks).
pub const FREQUENCY: i32 = 997;
/// The thread that takes the orders: its own work is no part of the profile.
const THREAD: &str = "profiler";
/// Longest time for a process to name the functions of its samples.
const PATIENCE: Duration = Duration::from_secs(120);

/// Samples by stack. A stack is the names of thread and functions, outermost first, with `;` between them, as flame
/// graphs are made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Folded(BTreeMap<String, u64>);

impl Folded {
    /// Adds samples of a stack.
    pub fn add(&mut self, stack: &str, count: u64) {
        let entry = self.0.entry(stack.to_owned()).or_default();
        *entry = entry.saturating_add(count);
    }

    /// Adds the samples of another.
    pub fn merge(&mut self, other: &Folded) {
        for (stack, count) in &other.0 {
            self.add(stack, *count);
        }
    }

    /// Number of samples.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.0.values().sum()
    }

    /// Each stack and its samples. The functions of a stack are innermost first, without the thread.
    pub fn stacks(&self) -> impl Iterator<Item = (Vec<&str>, u64)> {
        self.0.iter().map(|(stack, count)| {
            let mut names: Vec<&str> = stack.split(';').skip(1).collect();
            names.reverse();
            (names, *count)
        })
    }

    /// A line for each stack: it, a space, its samples.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.0
            .iter()
            .map(|(stack, count)| format!("{stack} {count}"))
    }

    /// Adds such a line.
    ///
    /// # Errors
    ///
    /// It has no number at its end.
    pub fn add_line(&mut self, line: &str) -> Result<()> {
        let (stack, count) = line
            .rsplit_once(' ')
            .with_context(|| format!("{line:?} is no stack with a number"))?;
        let count = count
            .parse()
            .with_context(|| format!("{line:?} does not end with a number"))?;
        self.add(stack, count);
        Ok(())
    }
}

/// A profiler at work. A process has at most one.
pub struct Sampler(ProfilerGuard<'static>);

impl std::fmt::Debug for Sampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sampler")
    }
}

impl Sampler {
    /// Starts it.
    ///
    /// # Errors
    ///
    /// One is at work already, or the system refuses.
    pub fn start() -> Result<Sampler> {
        let guard = ProfilerGuardBuilder::default()
            .frequency(FREQUENCY)
            .build()
            .context("starting the profiler")?;
        Ok(Sampler(guard))
    }

    /// Ends it. Finding the names of the functions takes a while.
    ///
    /// # Errors
    ///
    /// The samples cannot be read.
    pub fn finish(self) -> Result<Folded> {
        let report = self.0.report().build().context("reading the samples")?;
        let mut folded = Folded::default();
        for (frames, count) in report.data {
            if frames.thread_name == THREAD {
                continue;
            }
            let mut stack = plain(&frames.thread_name);
            for frame in frames.frames.iter().rev() {
                // The last is the function itself, those before it were put into it by the compiler.
                for symbol in frame.iter().rev() {
                    let file = symbol.filename.as_deref().and_then(Path::to_str);
                    stack.push(';');
                    stack.push_str(&plain(&qualified(&symbol.name(), file)));
                }
            }
            folded.add(&stack, u64::try_from(count).unwrap_or(0));
        }
        Ok(folded)
    }
}

/// Without what separates the parts of a line.
fn plain(name: &str) -> String {
    name.replace(';', ",").replace(['\n', '\r'], " ")
}

/// True if this program has the names of its functions; installed programs are stripped of them.
#[inline(never)]
fn has_names() -> bool {
    Backtrace::force_capture().to_string().contains("has_names")
}

/// Listens for orders at this path, on a thread of its own, for as long as the process lives.
///
/// # Errors
///
/// The program has no names of functions, or the system refuses a socket or a thread.
pub fn serve(socket: &Path) -> Result<()> {
    ensure!(
        has_names(),
        "this program was stripped of the names of its functions, which a profile is made of: build both with `cargo build \
         --profile profiling --package weft --package weft-lab`, which are then target/profiling/weft and weft-lab"
    );
    // One of a process before us, which has ended: its folder is ours.
    let _ = fs::remove_file(socket);
    let listener = UnixListener::bind(socket).with_context(|| {
        format!(
            "listening for the profiler's orders at {}",
            socket.display()
        )
    })?;
    thread::Builder::new()
        .name(THREAD.into())
        .spawn(move || {
            for stream in listener.incoming().flatten() {
                let _ = obey(stream);
            }
        })
        .context("starting the profiler's thread")?;
    Ok(())
}

/// Takes the orders of one connection. When it ends, so does a profile that was begun.
fn obey(mut stream: UnixStream) -> Result<()> {
    let orders = BufReader::new(stream.try_clone().context("a second handle")?);
    let mut sampler = None;
    for order in orders.lines() {
        let outcome = match (order?.as_str(), sampler.take()) {
            ("start", None) => Sampler::start().map(|started| {
                sampler = Some(started);
                Folded::default()
            }),
            ("stop", Some(running)) => running.finish(),
            (order, _) => bail!("{order:?} is no order now"),
        };
        let mut answer = String::new();
        match outcome {
            Ok(folded) => {
                folded
                    .lines()
                    .for_each(|line| answer += &format!("{line}\n"));
                answer += "end\n";
            }
            Err(error) => answer += &format!("error {error:#}\n"),
        }
        stream.write_all(answer.as_bytes())?;
    }
    Ok(())
}

/// The profiler of another process.
#[derive(Debug)]
pub struct Remote {
    orders: UnixStream,
    answers: BufReader<UnixStream>,
}

impl Remote {
    /// Starts the profiler of the process that listens at this socket.
    ///
    /// # Errors
    ///
    /// Nobody listens, or it does not start.
    pub fn start(socket: &Path) -> Result<Remote> {
        let orders = UnixStream::connect(socket)
            .with_context(|| format!("reaching the profiler at {}", socket.display()))?;
        orders.set_read_timeout(Some(PATIENCE))?;
        let answers = BufReader::new(orders.try_clone().context("a second handle")?);
        let mut remote = Remote { orders, answers };
        remote.order("start")?;
        Ok(remote)
    }

    /// Ends it, and returns the samples.
    ///
    /// # Errors
    ///
    /// The process has ended, or cannot read its samples.
    pub fn stop(mut self) -> Result<Folded> {
        self.order("stop")
    }

    fn order(&mut self, order: &str) -> Result<Folded> {
        writeln!(self.orders, "{order}").context("ordering a profile")?;
        let deadline = Instant::now() + PATIENCE;
        let mut folded = Folded::default();
        loop {
            let mut line = String::new();
            let count = self
                .answers
                .read_line(&mut line)
                .context("reading a profile")?;
            ensure!(count > 0, "the process ended before it sent its profile");
            ensure!(Instant::now() < deadline, "the profile took too long");
            match line.trim_end() {
                "end" => return Ok(folded),
                line => match line.strip_prefix("error ") {
                    Some(why) => bail!("no profile: {why}"),
                    None => folded.add_line(line)?,
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_survive_their_lines() {
        let mut folded = Folded::default();
        folded.add("main;a::f;b::<T as U>::g", 3);
        folded.add("main;a::f", 1);
        folded.add("main;a::f", 1);
        let mut read = Folded::default();
        for line in folded.lines() {
            read.add_line(&line).expect("a line of ours");
        }
        assert_eq!(read, folded);
        assert_eq!(read.samples(), 5);
        let stacks: Vec<_> = read.stacks().collect();
        assert_eq!(
            stacks,
            [(vec!["a::f"], 2), (vec!["b::<T as U>::g", "a::f"], 3)]
        );
        for bad in ["", "stack", "stack x", "stack -1"] {
            assert!(Folded::default().add_line(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn separators_in_names_are_replaced() {
        assert_eq!(plain("f<[u8; 4]>"), "f<[u8, 4]>");
    }

    #[test]
    fn a_process_profiles_itself_by_order() {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("profile");
        serve(&socket).expect("it listens");
        let remote = Remote::start(&socket).expect("it starts");
        let second = Sampler::start();
        assert!(second.is_err(), "a process has one profiler");
        // By processor time, so that a busy machine changes nothing.
        let clock = nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID;
        let used = || Duration::from(clock.now().expect("a clock"));
        let end = used() + Duration::from_millis(300);
        while used() < end {
            std::hint::black_box(0);
        }
        let folded = remote.stop().expect("samples");
        assert!(folded.samples() > 0, "{folded:?}");
        assert!(Remote::start(&socket).is_ok(), "it starts again");
        assert!(Remote::start(&folder.path().join("none")).is_err());
    }
}
