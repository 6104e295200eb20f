//! Differences between consensuses before a real C tor authority: what we make is what C tor makes, we take what C tor
//! sends, and C tor takes what we send.
//!
//! Starts Debian's `tor` as the only authority of a private network on loopback, and as a relay that fetches from us
//! by its directory client; fails without it.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::ctor::{self, CTor, Node, PATIENCE};
use weft_dir::clock::SystemClock;
use weft_dir::command::{DirectoryOptions, Event, Severity};
use weft_dir::consdiff::{self, ConsensusDigest};
use weft_dir::http::{self, Limits, Request, Response};

/// The answer of the directory at `address`.
fn ask(address: SocketAddr, path: &str) -> Response {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let request = Request::get(path.into());
    let limits = Limits::with_stall(Duration::from_secs(30));
    let clock = SystemClock::default();
    let route = http::Route::default();
    let fetched = http::fetch(address, &route, &request, limits, &clock);
    runtime.block_on(fetched).unwrap()
}

/// The text of a document, if the directory has it.
fn text(address: SocketAddr, path: &str) -> Option<String> {
    let answer = ask(address, path);
    (answer.status == 200).then(|| String::from_utf8(answer.body).unwrap())
}

/// Tries again and again until there is something.
fn wait<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// A `tor` that is a relay; killed when dropped.
struct Relay(Child);

impl Relay {
    fn start(tor: &CTor, directory: SocketAddr, data: &Path, or_port: u16) -> Self {
        let torrc = data.join("torrc");
        let ids = [tor.authority.v3_ident.unwrap(), tor.authority.identity]
            .map(|id| hex::encode_upper(id.as_bytes()));
        let [v3_ident, identity] = ids;
        let lines = format!(
            "TestingTorNetwork 1\nAssumeReachable 1\nAddressDisableIPv6 1\nShutdownWaitLength 0\n\
             DataDirectory {}\nNickname behind\nAddress 127.0.0.1\nORPort 127.0.0.1:{or_port} IPv4Only\n\
             SocksPort 0\nControlPort 0\nContactInfo nobody\nExitRelay 0\n\
             DirAuthority auth orport=1 no-v2 v3ident={v3_ident} {directory} {identity}\n\
             Log info file {}\n",
            data.display(),
            data.join("log").display(),
        );
        fs::write(&torrc, lines).unwrap();
        let child = Command::new("tor")
            .arg("-f")
            .arg(&torrc)
            .args(["--defaults-torrc", "/dev/null"])
            .stdout(Stdio::null())
            .spawn()
            .expect("cannot run tor: install Debian's tor");
        Self(child)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn diffs_are_c_tors_and_each_takes_the_others() {
    let tor = CTor::start();
    let directory = tempfile::tempdir().unwrap();
    let mut node = Node::start(DirectoryOptions {
        dir_cache: true,
        ..tor.options(&directory.path().join("weft"))
    });
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let ours = listener.local_addr().unwrap();
    let theirs = tor.authority.dir_addr;
    node.listen(listener);

    // A C tor relay gets its first consensus from us, and ends.
    let path = |flavour: &str| format!("/tor/status-vote/current/consensus{flavour}");
    wait("our consensus", || text(ours, &path("-microdesc")));
    let data = directory.path().join("tor");
    fs::create_dir(&data).unwrap();
    let or_port = ctor::free_port();
    let relay = Relay::start(&tor, ours, &data, or_port);
    let cached = data.join("cached-microdesc-consensus");
    let before = wait("C tor's consensus", || {
        let text = fs::read_to_string(&cached).ok()?;
        text.ends_with("-----END SIGNATURE-----\n").then_some(text)
    });
    drop(relay);

    // In the meantime there are two more, and in both flavours we serve what C tor serves, byte by byte.
    let valid_after = |text: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("valid-after "));
        line.unwrap().to_string()
    };
    for flavour in ["-microdesc", ""] {
        let base = wait("a base", || text(ours, &path(flavour)));
        let from = ConsensusDigest::of(&base);
        let by_path = format!("{}/diff/{}", path(flavour), from.hex());
        let mut seen = vec![valid_after(&base)];
        let begun = Instant::now();
        let mut compared = 0;
        while compared < 2 {
            assert!(begun.elapsed() < PATIENCE, "{seen:?}");
            std::thread::sleep(Duration::from_millis(200));
            let (Some(our), Some(their)) = (text(ours, &by_path), text(theirs, &by_path)) else {
                continue;
            };
            let target = |diff: &str| diff.lines().nth(1).unwrap().to_string();
            if target(&our) != target(&their) {
                continue;
            }
            assert_eq!(our, their, "{flavour}");
            let made = consdiff::apply(&base, from, &our).unwrap();
            if !seen.contains(&valid_after(&made)) {
                seen.push(valid_after(&made));
                compared += 1;
            }
        }
    }

    // The C tor relay, which is that far behind, takes our diff.
    let by_path = format!(
        "{}/diff/{}",
        path("-microdesc"),
        ConsensusDigest::of(&before).hex()
    );
    wait("a diff from C tor's consensus", || text(ours, &by_path));
    let log = data.join("log");
    fs::remove_file(&log).unwrap();
    let relay = Relay::start(&tor, ours, &data, or_port);
    let log = wait("C tor to apply a diff", || {
        let log = fs::read_to_string(&log).unwrap_or_default();
        log.contains("Applied consensus diff (size ").then_some(log)
    });
    assert!(!log.contains("Could not apply consensus diff"), "{log}");
    // It says so before it writes the file.
    wait("C tor to keep what it made", || {
        (fs::read_to_string(&cached).ok()? != before).then_some(())
    });
    drop(relay);

    // And we have taken C tor's all the time.
    node.wait("a diff of C tor's", |event| match event {
        Event::Message(Severity::Info, text) => text
            .starts_with("Applied consensus diff (size ")
            .then_some(()),
        _ => None,
    });
    node.handle.shutdown();
    for event in node.events.try_iter().chain(node.seen) {
        assert!(
            !matches!(event, Event::Message(Severity::Warn, _)),
            "{event:?}"
        );
    }
}
