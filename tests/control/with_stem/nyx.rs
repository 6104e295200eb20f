//! nyx (by `tests/stem/run_nyx.py`), in a terminal of tmux, on a client and on a relay: each of its pages is opened, and none has an error.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use anyhow::{Context as _, Result, ensure};
use weft_testing::not_run;
use weft_testnet::network::Node;
use weft_testnet::programs::find;
use weft_testnet::up::{More, Plan, Up};

use crate::control::asking::{Asker, listener};
use crate::control::weft;

const NYX: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/stem/run_nyx.py");

/// How long a page may take to show what it is to show.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a page may lack something before it is drawn again.
const REDRAW: Duration = Duration::from_secs(3);

/// What errors look like: of the node, of nyx, of Python.
const ERRORS: [&str; 8] = [
    "[ERR]",
    "[WARN]",
    "_ERR]",
    "_WARN]",
    "Traceback",
    "Exception",
    "Error:",
    "Unable to",
];

/// A terminal with nyx in it.
struct Terminal {
    tmux: PathBuf,
    folder: tempfile::TempDir,
}

impl Terminal {
    /// Starts nyx with these arguments.
    fn start(tmux: &Path, python: &Path, port: &str) -> Result<Self> {
        let terminal = Self {
            tmux: tmux.to_owned(),
            folder: tempfile::tempdir()?,
        };
        let path = |name: &str| terminal.folder.path().join(name);
        // Its status is written last: it has ended when that is there.
        let line = format!(
            "HOME='{}' '{}' '{NYX}' -i {port} 2>'{}'; echo $? >'{}'",
            terminal.folder.path().display(),
            python.display(),
            path("stderr").display(),
            path("status").display()
        );
        let size = ["-x", "180", "-y", "60"];
        terminal.tmux(
            ["-f", "/dev/null", "new-session", "-d"]
                .into_iter()
                .chain(size)
                .chain([&*line]),
        )?;
        Ok(terminal)
    }

    /// Runs a command of tmux, in a server of this test's own.
    fn tmux<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<String> {
        let output = Command::new(&self.tmux)
            .arg("-u")
            .arg("-S")
            .arg(self.folder.path().join("tmux"))
            .args(args)
            .env_remove("TMUX")
            .output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "tmux: {errors}");
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn press(&self, keys: &[&str]) -> Result<()> {
        self.tmux(["send-keys"].iter().chain(keys)).map(drop)
    }

    /// What is on the screen once all of `wanted` is. Threads of nyx draw at the same time now and then, and mix what
    /// they draw; another width has everything drawn again.
    fn shows(&self, wanted: &[&str]) -> Result<String> {
        let deadline = Instant::now() + PATIENCE;
        let mut widths = ["181", "180"].iter().cycle();
        let mut drawn = Instant::now();
        loop {
            if drawn.elapsed() > REDRAW {
                let width = widths.next().copied().unwrap_or_default();
                self.tmux(["resize-window", "-x", width, "-y", "60"])?;
                drawn = Instant::now();
            }
            let screen = self.tmux(["capture-pane", "-p"]);
            let screen = screen.with_context(|| self.stderr())?;
            let wrong = ERRORS.iter().find(|error| screen.contains(**error));
            ensure!(wrong.is_none(), "an error is on the screen:\n{screen}");
            let missing = wanted.iter().find(|wanted| !screen.contains(**wanted));
            let Some(missing) = missing else {
                return Ok(screen);
            };
            ensure!(
                Instant::now() < deadline,
                "{missing:?} is not on the screen:\n{screen}\n{}",
                self.stderr()
            );
            thread::sleep(Duration::from_millis(200));
        }
    }

    fn stderr(&self) -> String {
        fs::read_to_string(self.folder.path().join("stderr")).unwrap_or_default()
    }

    /// Quits nyx, which must end well and have complained of nothing.
    fn quit(&self) -> Result<()> {
        let status = self.folder.path().join("status");
        self.press(&["q"])?;
        thread::sleep(Duration::from_millis(500));
        // The second one confirms the first; it may have ended by then.
        let _ = self.press(&["q"]);
        let deadline = Instant::now() + PATIENCE;
        let read = || fs::read_to_string(&status).unwrap_or_default();
        while !read().ends_with('\n') {
            ensure!(
                Instant::now() < deadline,
                "it does not end: {}",
                self.stderr()
            );
            thread::sleep(Duration::from_millis(100));
        }
        let (status, errors) = (read(), self.stderr());
        ensure!(
            status.trim() == "0" && errors.is_empty(),
            "status {status}: {errors}"
        );
        Ok(())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Without a session the server has ended.
        let _ = self.tmux(["kill-server"]);
    }
}

/// Opens each page, and asks the node something on the last.
fn pages(tmux: &Path, python: &Path, node: &Node, wanted: [&[&str]; 2]) -> Result<()> {
    let port = listener(node, "Control")?;
    let version = Asker::connect(node)?.value("version")?.join("");
    let terminal = Terminal::start(tmux, python, &port.to_string())?;
    let [head, connections] = wanted;
    let torrc = format!("Tor Configuration File ({})", node.torrc().display());
    let show = [
        [&["page 1 / 5", "Bandwidth (limit:", "Events ("][..], head].concat(),
        [&["page 2 / 5", "Connections ("][..], connections].concat(),
        vec!["page 3 / 5", "Tor Configuration (", "BandwidthRate", "1 GB"],
        vec!["page 4 / 5", &torrc, "TestingTorNetwork 1"],
        vec!["page 5 / 5", "Control Interpreter"],
    ];
    for (number, wanted) in show.iter().enumerate() {
        if number > 0 {
            terminal.press(&["Right"])?;
        }
        let screen = terminal.shows(wanted)?;
        eprintln!(
            "{}, page {}:\n{}",
            node.nickname(),
            number + 1,
            screen.trim_end()
        );
    }
    terminal.press(&["Enter"])?;
    terminal.shows(&[">>>", "to stop"])?;
    terminal.press(&["GETINFO version", "Enter"])?;
    terminal.shows(&[&format!("version={version}")])?;
    // Where there are descriptors, `/info` ends Stem's interpreter at the first platform that is none of C tor's.
    match Asker::connect(node)?
        .value("desc/download-enabled")?
        .join("")
        == "1"
    {
        false => {
            terminal.press(&["/info relay0", "Enter"])?;
            terminal.shows(&["Router Status Entry:", "r relay0 "])?;
        }
        true => {
            terminal.press(&["GETINFO ns/name/relay0", "Enter"])?;
            terminal.shows(&["ns/name/relay0", "r relay0 "])?;
        }
    }
    terminal.press(&["Escape"])?;
    // Back on the first page: the log has had time to fill with what the others brought up.
    terminal.press(&["Right"])?;
    terminal.shows(&["page 1 / 5", "Events ("])?;
    terminal.quit()
}

#[test]
fn every_page_of_nyx_shows_a_client_and_a_relay_without_an_error() {
    let python = env::var_os("WEFT_STEM_PYTHON").map(PathBuf::from);
    let has_nyx = |python: &PathBuf| {
        let tried = Command::new(python).args(["-c", "import nyx"]).output();
        tried.is_ok_and(|tried| tried.status.success())
    };
    let Some(python) = python.filter(has_nyx) else {
        not_run!(
            "WEFT_STEM_PYTHON names no Python with nyx; `cargo xtask test --only stem` gets it"
        );
        return;
    };
    let Some(tmux) = find("tmux") else {
        not_run!("there is no tmux here, in whose terminal nyx runs");
        return;
    };
    let run = || -> Result<()> {
        let control = ["ControlPort auto", "CookieAuthentication 1"].map(str::to_owned);
        let network = Up::start(&Plan {
            more: More {
                relays: control.to_vec(),
                ..More::default()
            },
            progress: |line| eprintln!("{line}"),
            ..Plan::of_weft(weft())
        })?;
        for (nickname, wanted) in [
            // A client's first page has no relay's flags; its circuits are on the second.
            (
                "client0",
                [
                    &["Relaying Disabled"][..],
                    &["Circuit ID:", "exit", "relay"],
                ],
            ),
            (
                "relay0",
                [&["relay0 - 127.0.0.1:", "flags: "][..], &["(INBOUND)"]],
            ),
        ] {
            let node = network.node(nickname)?;
            pages(&tmux, &python, node, wanted).with_context(|| nickname.to_owned())?;
        }
        network.stop()
    };
    run().unwrap_or_else(|error| panic!("{error:#}"));
}
