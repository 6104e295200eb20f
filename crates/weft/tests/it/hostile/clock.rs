//! A machine whose wall clock jumps while circuits are up.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;
use std::thread;

use crate::hostile::circuit::Through;
use crate::hostile::process::{Folder, Weft, program};

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

/// The wall clock of one relay.
struct Clock {
    file: File,
}

impl Clock {
    /// Gives the programs that the command starts a separate clock, which is right at first.
    fn give(folder: &Folder, command: &mut Command) -> Self {
        let (source, library) = (folder.path("clock.c"), folder.path("clock.so"));
        fs::write(&source, include_str!("clock.c")).unwrap();
        // Rust links with it, so it is there.
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-shared", "-fPIC", "-o"]);
        compiler.arg(&library).arg(&source);
        let status = compiler.status().unwrap();
        assert!(status.success(), "{compiler:?}: {status}");
        let path = folder.path("clock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .open(&path)
            .unwrap();
        let clock = Clock { file };
        clock.set(0);
        command.env("WEFT_TEST_CLOCK", &path);
        command.env("LD_PRELOAD", Path::new(&library));
        clock
    }

    /// From now on it is this many seconds ahead.
    fn set(&self, ahead: i64) {
        self.file.write_all_at(&ahead.to_ne_bytes(), 0).unwrap();
    }
}

/// A relay with a separate clock.
fn start(threads: usize) -> (Weft, Clock) {
    let folder = Folder::new();
    folder.torrc(&format!("ConnectionThreads {threads}\nUseAllThreads 1"));
    let mut command = folder.command(program());
    let clock = Clock::give(&folder, &mut command);
    (Weft::run(command, folder, threads), clock)
}

#[test]
fn a_clock_that_jumps_ends_no_circuit_and_keeps_nobody_out() {
    // They wait more than they work.
    thread::scope(|scope| {
        for threads in [0, 2] {
            scope.spawn(move || jumps(threads));
        }
    });
}

/// A relay with this many connection threads, whose clock jumps.
fn jumps(threads: usize) {
    let (mut weft, clock) = start(threads);
    let mut bystander = Through::new(&weft);
    bystander.carries_data();
    let jumps = [
        (2 * HOUR, "forward"),
        (0, "backward"),
        // Certificates of that time are not valid yet when the clock is right again.
        (40 * DAY, "forward"),
        (0, "backward"),
        // A machine without a battery, before it asks for the time.
        (-20 * 365 * DAY, "backward"),
        (0, "forward"),
    ];
    for (ahead, direction) in jumps {
        let seen = weft.lines().len();
        clock.set(ahead);
        let line = weft.wait_after(seen, "Your system clock just jumped");
        assert!(
            line.contains("[warn]") && line.contains(direction),
            "{line}"
        );
        bystander.carries_data();
        // A peer with the right time finds the relay's certificates valid when its clock is near it.
        if (0..=2 * HOUR).contains(&ahead) {
            Through::new(&weft).carries_data();
        }
    }
    let lines = weft.lines();
    let jumps_logged = lines
        .iter()
        .filter(|line| line.contains("clock just jumped"));
    assert_eq!(jumps_logged.count(), jumps.len());
    weft.is_calm();
    weft.terminate();
}
