//! Our lines in a state file before a real C tor, and its lines before us.
//!
//! Starts Debian's `tor` with its network disabled; fails without it.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::testing::{TestNet, now};
use rand::SeedableRng as _;
use rand_chacha::ChaCha12Rng;
use weft_cell::identity::RsaIdentity;
use weft_path::{
    Bridge, BuildTimes, BuildTimesOptions, CbtParams, Hop, Outcome, PathOptions, Selector,
    StatedFamily, Usage,
};
use weft_testing::ctor::ended_cleanly;

/// No step takes longer on a machine that works.
const PATIENCE: Duration = Duration::from_secs(60);

/// A `tor`, killed when dropped.
struct CTor(Child);

impl Drop for CTor {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Lets C tor read a state file and write it again.
fn through_ctor(state: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::write(data.join("state"), state).unwrap();
    let torrc = directory.path().join("torrc");
    fs::write(
        &torrc,
        format!(
            "TestingTorNetwork 1\nDisableNetwork 1\nSocksPort 0\nDataDirectory {}\n\
             Log notice stdout\nDirAuthority a orport=1 \
             v3ident=E8A9C45EDE6D711294FADF8E7951F4DE6CA56B58 127.0.0.1:1 \
             7EA6EAD6FD83083C538F44038BBFA077587DD755\n",
            data.display()
        ),
    )
    .unwrap();
    let child = Command::new("tor")
        .args(["--defaults-torrc", "/dev/null", "-f"])
        .arg(&torrc)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("cannot run tor (install Debian's tor): {error}"));
    let mut tor = CTor(child);
    let stdout = BufReader::new(tor.0.stdout.take().unwrap());
    let (send, lines) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in stdout.lines().map_while(Result::ok) {
            let _ = send.send(line);
        }
    });
    let deadline = Instant::now() + PATIENCE;
    let mut log = Vec::new();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let line = lines
            .recv_timeout(left)
            .unwrap_or_else(|_| panic!("tor did not start: {log:#?}"));
        log.push(line);
        // The last line of its beginning: before, it may end by SIGTERM itself instead of cleanly.
        if log.last().unwrap().contains("Delaying directory fetches") {
            break;
        }
    }
    let pid = tor.0.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-TERM", &pid])
            .status()
            .unwrap()
            .success()
    );
    // Its output ends when it does.
    reader.join().unwrap();
    let status = tor.0.wait().unwrap();
    log.extend(lines.try_iter());
    let clean = ended_cleanly(status.success(), &log.join("\n"));
    assert!(clean, "{status}: {log:#?}");
    let warnings: Vec<&String> = log
        .iter()
        .filter(|line| line.contains("uard") || line.contains("build time"))
        .filter(|line| line.contains("[warn]") || line.contains("[err]"))
        .collect();
    assert!(warnings.is_empty(), "{warnings:#?}");
    fs::read_to_string(data.join("state")).unwrap()
}

/// The lines of a state file with this key, sorted.
fn lines<'a>(state: &'a str, key: &str) -> Vec<&'a str> {
    let mut lines: Vec<&str> = state
        .lines()
        .filter(|line| line.split(' ').next() == Some(key))
        .collect();
    lines.sort_unstable();
    lines
}

/// The lines that C tor keeps of these: a bridge that its torrc does not have becomes unlisted.
fn kept(state: &str, key: &str) -> Vec<String> {
    let lines = lines(state, key).into_iter();
    let kept = lines.map(|line| {
        let is_bridge = line.contains(" in=bridges ");
        let listing =
            |word: &&str| word.starts_with("listed=") || word.starts_with("unlisted_since=");
        let words = line.split(' ').filter(|word| !(is_bridge && listing(word)));
        words.collect::<Vec<_>>().join(" ")
    });
    kept.collect()
}

#[test]
fn c_tor_keeps_our_guards_and_build_times_and_we_keep_its() {
    let mut rng = ChaCha12Rng::seed_from_u64(1);
    let mut selector = Selector::new(PathOptions::default(), [], now());
    selector.set_netdir(&TestNet::alike(150).netdir(), now(), &mut rng);
    for round in 0..4 {
        let path = selector
            .path(&Usage::Internal { stable: true }, now(), &mut rng)
            .unwrap();
        let guard = path.guard.unwrap();
        let all = [
            Outcome::FirstHop,
            Outcome::Built,
            Outcome::Used,
            Outcome::UseSucceeded,
        ];
        for outcome in all.into_iter().take(1 + round) {
            selector.guard_outcome(guard, outcome, now(), &mut rng);
        }
        if round == 1 {
            // So that another guard is confirmed, too.
            selector.guard_outcome(guard, Outcome::GuardFailed, now(), &mut rng);
        }
        selector.forget(guard);
    }
    let guards = selector.state_lines().unwrap();
    let bridge = "in=bridges rsa_id=0123456789ABCDEF0123456789ABCDEF01234567 \
        bridge_addr=192.0.2.1:443 sampled_on=2026-11-11T03:04:05 sampled_idx=0 \
        sampled_by=0.4.9.11 unlisted_since=2026-11-18T06:46:23 listed=0";
    // A bridge of ours beside it, confirmed.
    let options = PathOptions {
        use_bridges: true,
        ..PathOptions::default()
    };
    let mut bridged = Selector::new(options, [bridge], now());
    let addr = "[2001:db8::1]:443".parse().unwrap();
    let ids = (RsaIdentity([7; 20]), [7; 32].into());
    let protocols = "Relay=1-4".parse().unwrap();
    let hop = Hop::of_bridge(addr, "ours".to_owned(), ids, [7; 32], &protocols);
    let ours = Bridge {
        addr,
        rsa: Some(hop.rsa),
        hop: Some(hop),
        family: StatedFamily::default(),
    };
    bridged.set_bridges(vec![ours], now(), &mut rng);
    let path = bridged.path(&Usage::Directory, now(), &mut rng).unwrap();
    let guard = path.guard.unwrap();
    bridged.guard_outcome(guard, Outcome::Built, now(), &mut rng);
    bridged.forget(guard);
    let bridges = bridged.state_lines().unwrap();
    assert_eq!(bridges.len(), 2);
    assert_eq!(bridges[0], bridge);
    assert!(bridges[1].contains("confirmed_on="), "{bridges:?}");
    let mut times = BuildTimes::new(BuildTimesOptions::default(), CbtParams::default());
    let start = Instant::now();
    for time in 0..150 {
        times.note_alive(start);
        times.note_built(Duration::from_millis(300 + time * 7 % 400), true);
    }
    times.note_abandoned(start, start);
    let built = times.state_lines().unwrap();

    let mut state = String::from("TorVersion Tor 0.4.9.11\nLastWritten 2026-11-21 01:00:00\n");
    for guard in guards.iter().chain(&bridges) {
        state += &format!("Guard {guard}\n");
    }
    for (key, value) in &built {
        state += &format!("{key} {value}\n");
    }
    let after = through_ctor(&state);
    for key in [
        "Guard",
        "TotalBuildTimes",
        "CircuitBuildAbandonedCount",
        "CircuitBuildTimeBin",
    ] {
        assert_eq!(kept(&after, key), kept(&state, key), "{key}");
        assert!(!lines(&after, key).is_empty(), "{key}");
    }

    // And back: C tor wrote our values.
    let values = |key: &'static str| {
        let found = lines(&after, key).into_iter();
        found.map(|line| line.split_once(' ').unwrap())
    };
    let mut again = BuildTimes::new(BuildTimesOptions::default(), CbtParams::default());
    let all = BuildTimes::STATE_KEYS.into_iter().flat_map(values);
    assert!(again.load(all, &mut rng));
    assert_eq!(again.timeout(), {
        // C tor's file has times as the middles of their bins only.
        let mut binned = BuildTimes::new(BuildTimesOptions::default(), CbtParams::default());
        let words = built.iter().map(|(key, value)| (*key, value.as_str()));
        assert!(binned.load(words, &mut rng));
        binned.timeout()
    });
    let ours = selector.guards();
    let mut theirs = Selector::new(
        PathOptions::default(),
        values("Guard").map(|(_, value)| value),
        now(),
    );
    theirs.set_netdir(&TestNet::alike(150).netdir(), now(), &mut rng);
    let primary = |infos: &[weft_path::GuardInfo]| -> Vec<RsaIdentity> {
        let infos = infos.iter().filter(|info| info.primary);
        infos.map(|info| info.rsa).collect()
    };
    assert_eq!(primary(&theirs.guards()), primary(&ours));
}
