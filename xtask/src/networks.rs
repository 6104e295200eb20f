//! Tests of `tests/` that share a private network or a port: one process for each module, in which its tests take
//! turns, and several of these at a time. A network takes many seconds and starts many nodes, so each test cannot
//! have its own.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::tested::{Ended, Run, reason};
use crate::{interrupt, machine};

/// Name of the program of `tests/`.
pub(crate) const PROGRAM: &str = "networks";

/// In the command line of the shells that end what a test started, if it does not (`weft_testnet::guardian`).
const GUARDIAN: &str = "weft-lab-guardian";
/// Longest time for one test. Stem's own suite is the longest test and ends itself after 400 s, so
/// this only ends tests that hang.
const LIMIT: Duration = Duration::from_secs(600);

/// Longest wait for the rest of a process's output after it has ended.
const PIPE: Duration = Duration::from_secs(5);

/// Runs the tests of each module, as many modules at once as there are cores.
pub(crate) fn run(program: &Path, run: &Run) -> Result<Vec<Ended>> {
    let modules = modules(program, run)?;
    let next = AtomicUsize::new(0);
    let worker = || -> Result<Vec<Ended>> {
        let mut ended = Vec::new();
        while !interrupt::asked()
            && let Some(names) = modules.get(next.fetch_add(1, Ordering::Relaxed))
        {
            ended.extend(module(program, names, run)?);
        }
        Ok(ended)
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let results: Vec<Result<Vec<Ended>>> = thread::scope(|scope| {
        let running: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        let ended = running.into_iter().map(|worker| {
            worker
                .join()
                .unwrap_or_else(|_| Err(anyhow::anyhow!("running networks panicked")))
        });
        ended.collect()
    });
    Ok(results
        .into_iter()
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .flatten()
        .collect())
}

/// The names of the tests by module, the module with most first.
fn modules(program: &Path, run: &Run) -> Result<Vec<Vec<String>>> {
    let output = Command::new(program)
        .args(["--list", "--format", "terse"])
        .output()
        .with_context(|| format!("listing the tests of {}", program.display()))?;
    ensure!(
        output.status.success(),
        "{} does not list its tests: {}\n{}",
        program.display(),
        output.status,
        String::from_utf8_lossy(&output.stderr).trim_end()
    );
    let list = String::from_utf8_lossy(&output.stdout);
    let modules = by_module(&list, &run.networks, &run.names);
    ensure!(
        !modules.is_empty() || !run.names.is_empty(),
        "{} has no tests of private networks",
        program.display()
    );
    Ok(modules)
}

/// The names in a list of libtest's that are in modules of these names, by module.
fn by_module(list: &str, of: &[&str], names: &[String]) -> Vec<Vec<String>> {
    let mut modules: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for name in list.lines().filter_map(|line| line.strip_suffix(": test")) {
        let wanted = names.is_empty() || names.iter().any(|part| name.contains(part.as_str()));
        let module = of.iter().find_map(|of| {
            let (module, _) = name.split_once(&format!("::{of}::"))?;
            Some((module, *of))
        });
        if let Some(module) = module.filter(|(module, _)| wanted && *module != "page") {
            modules.entry(module).or_default().push(name.to_owned());
        }
    }
    let mut modules: Vec<Vec<String>> = modules.into_values().collect();
    modules.sort_by_key(|names| std::cmp::Reverse(names.len()));
    modules
}

/// Runs these tests, one after the other, in one process; after one that does not end, the others in another process.
fn module(program: &Path, names: &[String], run: &Run) -> Result<Vec<Ended>> {
    let mut ended = Vec::new();
    let mut left = names;
    while !left.is_empty() && !interrupt::asked() {
        let mut tests = Command::new(program);
        tests
            .current_dir(machine::root().join("crates/weft"))
            .args(["--exact", "--test-threads", "1"])
            .args(left)
            .envs(run.variables.iter().map(|(name, value)| (name, value)));
        let Printed {
            text,
            seconds,
            ending,
        } = printed(&mut tests, LIMIT)?;
        let results: BTreeMap<&str, Verdict> = text.lines().filter_map(result).collect();
        // libtest runs them in the order in which it lists them.
        let hangs = left
            .iter()
            .position(|name| !results.contains_key(name.as_str()));
        let (tried, later) = match (&ending, hangs) {
            (Ending::Hangs(_), Some(at)) => left.split_at(at + 1),
            _ => (left, &left[..0]),
        };
        for name in tried {
            let failure = match results.get(name.as_str()) {
                Some(Verdict::Passed) => None,
                // Another test starts it, in a separate process.
                Some(Verdict::Ignored) => continue,
                Some(Verdict::Failed) => Some(printed_by(name, &text).to_owned()),
                None => Some(match &ending {
                    Ending::Hangs(what) => what.clone(),
                    Ending::Ended(how) => format!("{how}\n{text}"),
                }),
            };
            let test = Ended {
                name: format!("weft::{PROGRAM} {name}"),
                seconds: seconds.get(name).copied().unwrap_or(0.0),
                failure,
            };
            if let Some(output) = &test.failure {
                println!("  {} FAILED:{}", test.name, reason(output));
            }
            ended.push(test);
        }
        left = later;
    }
    Ok(ended)
}

/// Output of a process of tests.
struct Printed {
    text: String,
    /// Seconds that each test took, by name.
    seconds: BTreeMap<String, f64>,
    ending: Ending,
}

/// The end of a process of tests.
enum Ending {
    /// By itself: its status, and what it wrote to its standard error.
    Ended(String),
    /// It was killed because a test took too long: the processes that this one had then.
    Hangs(String),
}

/// Starts tests and reads what they print, until they end or one of them takes longer than `limit`.
fn printed(tests: &mut Command, limit: Duration) -> Result<Printed> {
    let mut child = tests
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {}", tests.get_program().display()))?;
    let output = child.stdout.take().context("a test has no output")?;
    let mut errors = child.stderr.take().context("a test has no errors")?;
    // Processes that a killed test leaves may keep the pipes open, so nobody waits for the threads.
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    let (sender, all) = mpsc::channel();
    thread::spawn(move || {
        let mut text = Vec::new();
        let _ = errors.read_to_end(&mut text);
        let _ = sender.send(String::from_utf8_lossy(&text).into_owned());
    });
    let (mut text, mut seconds) = (String::new(), BTreeMap::new());
    let mut since = Instant::now();
    loop {
        let line = match lines.recv_timeout(limit.saturating_sub(since.elapsed())) {
            Ok(line) => String::from_utf8_lossy(&line).into_owned(),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                let processes = end(&mut child)?;
                println!("  a test does not end:\n{processes}");
                return Ok(Printed {
                    text,
                    seconds,
                    ending: Ending::Hangs(format!(
                        "{processes}\nIt did not end within {limit:?}: it was killed. Above are its processes."
                    )),
                });
            }
        };
        if let Some((name, _)) = result(&line) {
            let taken = since.elapsed().as_secs_f64();
            since = Instant::now();
            println!("  {taken:>6.1} s {line}");
            seconds.insert(name.to_owned(), taken);
        }
        text.push_str(&line);
        text.push('\n');
    }
    let status = child.wait().context("waiting for tests")?;
    let errors = all.recv_timeout(PIPE).unwrap_or_default();
    Ok(Printed {
        text,
        seconds,
        ending: Ending::Ended(format!("{status}\n{errors}")),
    })
}

/// A process and all that it started, by their ids, each with its state and command line.
fn family(process: u32) -> Vec<(u32, String)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let all: Vec<(u32, u32, String)> = entries
        .filter_map(|entry| {
            let id = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            // `id (name) state parent …`
            let (_, rest) = stat.rsplit_once(')')?;
            let mut words = rest.split_whitespace();
            let (state, parent) = (words.next()?, words.next()?.parse().ok()?);
            let line = fs::read(entry.path().join("cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            Some((id, parent, format!("{state} {line}")))
        })
        .collect();
    let mut family = vec![process];
    let mut at = 0;
    while let Some(of) = family.get(at).copied() {
        let children = all.iter().filter(|(_, parent, _)| *parent == of);
        family.extend(children.map(|(id, _, _)| *id));
        at += 1;
    }
    let of_family = all.into_iter().filter(|(id, _, _)| family.contains(id));
    of_family.map(|(id, _, line)| (id, line)).collect()
}

/// Kills a test that does not end, with all that it started; the result lists them, as what it waits for is among them.
fn end(test: &mut Child) -> Result<String> {
    let family = family(test.id());
    let guards = |line: &str| line.contains(GUARDIAN);
    for (id, line) in &family {
        // Some have ended by now. A guardian ends by itself, when it has removed the folder of its test.
        if !guards(line)
            && let Ok(id) = i32::try_from(*id)
        {
            let _ = kill(Pid::from_raw(id), Signal::SIGKILL);
        }
    }
    test.wait().context("waiting for tests")?;
    let lines = family.iter().map(|(id, line)| {
        let line: String = line.chars().take(160).collect();
        format!("{id} {line}")
    });
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

/// The section that libtest prints about a failed test after all tests have run.
fn printed_by<'a>(name: &str, text: &'a str) -> &'a str {
    let title = format!("---- {name} stdout ----");
    let Some((_, section)) = text.split_once(&title) else {
        return text;
    };
    let ends = ["\n---- ", "\nfailures:\n"].map(|end| section.find(end));
    let end = ends.into_iter().flatten().min().unwrap_or(section.len());
    section.get(..end).unwrap_or(section).trim()
}

/// Result of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    Failed,
    Ignored,
}

/// The test that a line of libtest's is about, and how it ended.
fn result(line: &str) -> Option<(&str, Verdict)> {
    let (name, rest) = line.strip_prefix("test ")?.split_once(" ... ")?;
    // The test's own output may precede the verdict.
    let verdict = match rest {
        _ if rest.ends_with("ok") => Verdict::Passed,
        _ if rest.ends_with("FAILED") => Verdict::Failed,
        _ if rest.starts_with("ignored") => Verdict::Ignored,
        _ => return None,
    };
    Some((name, verdict))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_libtest_s_is_read() {
        assert_eq!(result("test a::b ... ok"), Some(("a::b", Verdict::Passed)));
        assert_eq!(
            result("test a::b ... FAILED"),
            Some(("a::b", Verdict::Failed))
        );
        let ignored = "test a::b ... ignored, another starts it";
        assert_eq!(result(ignored), Some(("a::b", Verdict::Ignored)));
        assert_eq!(result("test result: ok. 3 passed"), None);
    }

    #[test]
    fn a_failed_test_has_what_it_printed_itself() {
        let text = "test a::b ... FAILED\ntest a::bc ... FAILED\n\nfailures:\n\n\
                    ---- a::b stdout ----\nfirst\n\n---- a::bc stdout ----\nsecond\n\n\n\
                    failures:\n    a::b\n    a::bc\n";
        assert_eq!(printed_by("a::b", text), "first");
        assert_eq!(printed_by("a::bc", text), "second");
        assert_eq!(printed_by("a::d", text), text);
    }

    #[test]
    fn tests_of_networks_are_listed_by_module_and_by_name() {
        let list = "a::private_network::x: test\nb::private_network::y: test\n\
                    b::private_network::z: test\nb::other: test\npage::private_network::p: test\n\
                    b::with_stem::s: test\n";
        let (networks, stem) = (["private_network"], ["with_stem"]);
        let all = by_module(list, &networks, &[]);
        assert_eq!(
            all,
            [
                vec!["b::private_network::y", "b::private_network::z"],
                vec!["a::private_network::x"]
            ]
        );
        let one = by_module(list, &networks, &["network::z".to_owned()]);
        assert_eq!(one, [vec!["b::private_network::z"]]);
        assert!(by_module(list, &networks, &["nothing".to_owned()]).is_empty());
        assert_eq!(by_module(list, &stem, &[]), [vec!["b::with_stem::s"]]);
    }

    fn shell(script: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]);
        shell
    }

    #[test]
    fn a_test_that_does_not_end_is_killed() {
        let printed = printed(&mut shell("exec sleep 1000"), Duration::ZERO).unwrap();
        assert_eq!(printed.text, "");
        let Ending::Hangs(what) = printed.ending else {
            panic!("it has ended");
        };
        assert!(what.contains("did not end within 0ns"), "{what}");
        // Its processes come first, each with its id.
        let (id, _) = what.split_once(' ').unwrap();
        assert!(id.parse::<u32>().is_ok(), "{what}");
    }

    /// A process has no command line while it is being started: it is ended once it has spoken.
    #[test]
    fn what_is_ended_is_listed_with_its_command_line() {
        let mut shell = shell("echo started; read line")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(shell.stdout.take().unwrap());
        assert_eq!(output.lines().next().unwrap().unwrap(), "started");
        let listed = end(&mut shell).unwrap();
        assert!(listed.contains("read line"), "{listed}");
    }

    #[test]
    fn tests_that_end_have_a_status_and_what_they_wrote() {
        let mut ends = shell("echo test a ... FAILED; echo why >&2; exit 101");
        let printed = printed(&mut ends, LIMIT).unwrap();
        let Ending::Ended(how) = printed.ending else {
            panic!("it was killed");
        };
        assert!(how.contains("101") && how.contains("why"), "{how}");
    }

    /// A program that is no test program lists nothing, and that is no success.
    #[test]
    fn a_program_that_lists_no_tests_is_an_error() {
        for program in ["/bin/false", "/bin/true"] {
            modules(Path::new(program), &Run::default()).unwrap_err();
        }
    }
}
