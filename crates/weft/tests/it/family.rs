//! `weft family add`: relays get the key of a family, exchanged with C tor.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("defaults"), "").unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes the torrc NAME of a relay, with these lines.
    fn relay(&self, name: &str, lines: &str) {
        let data = self.path(&format!("{name}.data"));
        let text = format!(
            "ORPort 127.0.0.1:9001\nContactInfo x\nExitRelay 0\nDataDirectory {}\n{lines}",
            data.display()
        );
        fs::write(self.path(name), text).unwrap();
    }

    /// A file of a relay's KeyDirectory.
    fn key(&self, relay: &str, name: &str) -> PathBuf {
        self.path(&format!("{relay}.data/keys/{name}"))
    }

    fn run(&self, program: &str, words: &[&str]) -> Result<String, String> {
        let output = Command::new(program)
            .args(words)
            .current_dir(self.folder.path())
            .env("HOME", self.folder.path())
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        match output.status.success() {
            true => Ok(text(output.stdout)),
            false => Err(text(output.stdout) + &text(output.stderr)),
        }
    }

    /// Starts tor as this relay, which connects to nobody, and ends it once it is up.
    fn tor_starts(&self, relay: &str, line: &str) -> Result<(), String> {
        self.relay(relay, &format!("Nickname x\nDisableNetwork 1\n{line}\n"));
        let mut tor = Command::new("tor")
            .args(["-f", relay, "--defaults-torrc", "defaults"])
            .current_dir(self.folder.path())
            .env("HOME", self.folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = String::new();
        let lines = BufReader::new(tor.stdout.take().unwrap()).lines();
        // Until it is up, or has ended.
        for line in lines.map_while(Result::ok) {
            log.push_str(&line);
            if line.contains("Delaying directory fetches") {
                break;
            }
        }
        let is_up = tor.try_wait().unwrap().is_none() && log.contains("Delaying directory fetches");
        // It may have ended.
        let _ = tor.kill();
        tor.wait().unwrap();
        if is_up { Ok(()) } else { Err(log) }
    }

    /// `weft family add` with these words.
    fn add(&self, words: &[&str]) -> Result<String, String> {
        let begin = ["family", "add", "--defaults-torrc", "defaults"];
        self.run(env!("CARGO_BIN_EXE_weft"), &[&begin, words].concat())
    }
}

/// The FamilyId line.
fn line(printed: &str) -> &str {
    let lines: Vec<&str> = printed
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    let [line] = lines[..] else {
        panic!("one line is not a comment in {printed}");
    };
    assert!(line.starts_with("FamilyId "), "{line}");
    line
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn relays_get_the_key_of_a_new_family_and_others_join_later() {
    let bench = Bench::new();
    for name in ["one", "two", "three"] {
        bench.relay(name, "");
    }
    let printed = bench.add(&["-f", "one", "-f", "two"]).unwrap();
    let made = line(&printed).to_owned();
    let key = bench.key("one", "family.secret_family_key");
    let bytes = fs::read(&key).unwrap();
    let shown = key.display();
    assert!(
        printed.contains(&format!("# one has the key now: {shown}\n")),
        "{printed}"
    );
    assert!(printed.contains("Add the line to one, two"), "{printed}");
    let of_two = bench.key("two", "family.secret_family_key");
    assert_eq!(fs::read(&of_two).unwrap(), bytes);
    assert_eq!((mode(&key), mode(&of_two)), (0o600, 0o600));
    let public = fs::read_to_string(bench.key("two", "family.public_family_id")).unwrap();
    assert_eq!(format!("FamilyId {public}"), format!("{made}\n"));

    // A third one, and the first again, which has it and names it.
    bench.relay("one", &format!("{made}\n"));
    let words = ["-f", "one", "-f", "three", "--key", key.to_str().unwrap()];
    let printed = bench.add(&words).unwrap();
    assert_eq!(line(&printed), made);
    assert!(printed.contains("# one has the key already"), "{printed}");
    assert!(printed.contains("Add the line to three, and"), "{printed}");
    let of_three = bench.key("three", "family.secret_family_key");
    assert_eq!(fs::read(&of_three).unwrap(), bytes);

    for relay in ["one", "three"] {
        bench.relay(relay, &format!("{made}\n"));
        let words = [
            "-f",
            relay,
            "--defaults-torrc",
            "defaults",
            "--verify-config",
        ];
        bench.run(env!("CARGO_BIN_EXE_weft"), &words).unwrap();
    }

    // Relays that share a directory, and a directory of families.
    bench.relay("four", "FamilyKeyDirectory families\n");
    bench.relay("five", "FamilyKeyDirectory families\n");
    let words = ["-f", "four", "-f", "five", "--name", "other"];
    let error = bench.add(&words).unwrap_err();
    assert!(error.contains("there is no directory"), "{error}");
    fs::create_dir(bench.path("families")).unwrap();
    let other = bench.add(&words).unwrap();
    assert_ne!(line(&other), made);
    assert!(bench.path("families/other.secret_family_key").exists());
    assert_eq!(fs::read_dir(bench.path("families")).unwrap().count(), 2);
}

#[test]
fn where_one_relay_cannot_have_the_key_none_gets_it() {
    let bench = Bench::new();
    for name in ["one", "two"] {
        bench.relay(name, "");
    }
    fs::write(bench.path("client"), "SocksPort 9050\nDataDirectory c\n").unwrap();
    fs::write(bench.path("wrong"), "ORPrt 9001\n").unwrap();
    fs::write(bench.path("no-key"), "nonsense").unwrap();
    let fails = |words: &[&str], why: &str| {
        let error = bench.add(&[&["-f", "one"], words].concat()).unwrap_err();
        assert!(error.contains(why), "{error}");
        assert!(!bench.key("one", "family.secret_family_key").exists());
    };
    fails(&["-f", "client"], "client is no relay's");
    fails(&["-f", "wrong"], "wrong: ");
    fails(&["-f", "wrong"], "did you mean ORPort?");
    fails(&["-f", "nowhere"], "nowhere");
    fails(&["--key", "nowhere"], "there is no such file");
    fails(&["--key", "no-key"], "no-key is not a family key");
    fails(&["--name", "../x"], "has no /");
    fails(&["--name", ""], "is not empty");
    // The second one has another family's key by that name.
    bench.add(&["-f", "two"]).unwrap();
    let before = fs::read(bench.key("two", "family.secret_family_key")).unwrap();
    fails(&["-f", "two"], "exists already; choose another name");
    let after = fs::read(bench.key("two", "family.secret_family_key")).unwrap();
    assert_eq!(before, after);
    let error = bench.add(&[]).unwrap_err();
    assert!(error.contains("--torrc-file"), "{error}");
}

#[test]
fn keys_are_exchanged_with_tor() {
    let bench = Bench::new();
    let made = bench.run("tor", &["--keygen-family", "theirs"]).unwrap();
    let theirs = made
        .lines()
        .find(|line| line.starts_with("FamilyId "))
        .unwrap();
    bench.relay("one", "");
    let key = "theirs.secret_family_key";
    let printed = bench.add(&["-f", "one", "--key", key]).unwrap();
    assert_eq!(line(&printed), theirs);
    assert_eq!(
        fs::read(bench.key("one", key)).unwrap(),
        fs::read(bench.path(key)).unwrap()
    );
    // tor does not start without the key of a family that it names.
    bench.relay("two", "");
    let printed = bench.add(&["-f", "two"]).unwrap();
    let ours = line(&printed);
    bench.tor_starts("two", ours).unwrap();
    let error = bench.tor_starts("two", theirs).unwrap_err();
    assert!(error.contains("FamilyID"), "{error}");
}
