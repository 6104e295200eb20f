//! A real C tor directory authority on loopback, and a node's directory task beside it.

use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command as Process, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use tor_llcrypto::pk::rsa::RsaIdentity;
use weft_dir::authority::Authority;
use weft_dir::clock::SystemClock;
use weft_dir::command::{DirectoryOptions, Event};
use weft_dir::http::{self, Limits, Request, Response};
use weft_dir::task::Config;
use weft_dircache::DirectoryHandle;
use weft_dircache::server::Asker;

/// No step takes longer on a machine that works.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A `tor` that is an authority; killed when dropped.
pub(crate) struct CTor {
    child: Child,
    pub(crate) directory: tempfile::TempDir,
    pub(crate) authority: Authority,
}

impl Drop for CTor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Output of a program that must succeed.
fn output(program: &str, arguments: &[&str], stdin: &str) -> String {
    let mut child = Process::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("cannot run {program} (install Debian's tor): {error}"));
    child
        .stdin
        .take()
        .unwrap()
        .write_all(stdin.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// A port that nothing listens on.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// The hexadecimal fingerprint in the line of `text` that begins with `keyword`.
fn fingerprint(text: &str, keyword: &str) -> RsaIdentity {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(keyword))
        .unwrap();
    RsaIdentity::from_hex(&line.replace(' ', "")).unwrap()
}

/// True if this C tor is 0.4.9.12 or newer, which accepts descriptors without TAP keys unless its
/// torrc forbids it.
pub(crate) fn can_do_without_tap() -> bool {
    let options = output("tor", &["--list-torrc-options"], "");
    options.lines().any(|name| name == WITH_TAP)
}

/// The option with which it refuses them, as all before did.
const WITH_TAP: &str = "AuthDirSupport048Clients";

impl CTor {
    /// Starts the authority and waits until it answers.
    pub(crate) fn start() -> Self {
        Self::with_params("")
    }

    /// Starts an authority with these additional consensus parameters. It requires TAP keys.
    pub(crate) fn with_params(params: &str) -> Self {
        match can_do_without_tap() {
            true => Self::with(params, &format!("{WITH_TAP} 1\n")),
            false => Self::with(params, ""),
        }
    }

    /// Starts an authority with these additional consensus parameters and lines of torrc.
    pub(crate) fn with(params: &str, lines: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).to_string_lossy().into_owned();
        let (or_port, dir_port) = (free_port(), free_port());
        fs::create_dir(path("keys")).unwrap();
        let keys = |name: &str| path("keys") + "/" + name;
        output(
            "tor-gencert",
            &[
                "--create-identity-key",
                "-m",
                "12",
                "-a",
                &format!("127.0.0.1:{dir_port}"),
                "--passphrase-fd",
                "0",
                "-i",
                &keys("authority_identity_key"),
                "-s",
                &keys("authority_signing_key"),
                "-c",
                &keys("authority_certificate"),
            ],
            "passphrase\n",
        );
        let v3_ident = fingerprint(
            &fs::read_to_string(keys("authority_certificate")).unwrap(),
            "fingerprint ",
        );
        let zero = "F".repeat(40);
        let listed = output(
            "tor",
            &[
                "--list-fingerprint",
                "--orport",
                "1",
                "--DataDirectory",
                &path(""),
                "--Nickname",
                "auth",
                "--dirauthority",
                &format!("x 127.0.0.1:1 {zero}"),
                "-f",
                "/dev/null",
                "--defaults-torrc",
                "/dev/null",
                "--ignore-missing-torrc",
                "--hush",
            ],
            "",
        );
        let identity = fingerprint(&listed, "auth ");
        let torrc = format!(
            "TestingTorNetwork 1\nAssumeReachable 1\nAddressDisableIPv6 1\nShutdownWaitLength 0\n\
             DataDirectory {}\nNickname auth\nAddress 127.0.0.1\nORPort 127.0.0.1:{or_port} IPv4Only\n\
             DirPort 127.0.0.1:{dir_port}\nSocksPort 0\nControlPort 0\nContactInfo nobody\n\
             AuthoritativeDirectory 1\nV3AuthoritativeDirectory 1\nExitRelay 0\n\
             TestingV3AuthInitialVotingInterval 10\nTestingV3AuthInitialVoteDelay 2\nTestingV3AuthInitialDistDelay 2\n\
             V3AuthVotingInterval 20\nV3AuthVoteDelay 4\nV3AuthDistDelay 4\n\
             TestingDirAuthVoteGuard *\nAuthDirMaxServersPerAddr 0\nAuthDirTestReachability 0\nTestingMinExitFlagThreshold 0\n\
             ConsensusParams KISTSchedRunInterval=9 circwindow=777 {params}\n\
             DirAuthority auth orport={or_port} no-v2 v3ident={} 127.0.0.1:{dir_port} {}\n\
             Log notice file {}\n{lines}",
            path(""),
            hex::encode_upper(v3_ident.as_bytes()),
            hex::encode_upper(identity.as_bytes()),
            path("log"),
        );
        fs::write(path("torrc"), torrc).unwrap();
        let child = Process::new("tor")
            .args(["-f", &path("torrc"), "--defaults-torrc", "/dev/null"])
            .stdout(Stdio::null())
            .spawn()
            .expect("cannot run tor: install Debian's tor");
        let dir_addr = SocketAddr::from((Ipv4Addr::LOCALHOST, dir_port));
        let authority = Authority {
            nickname: "auth".into(),
            dir_addr,
            identity,
            v3_ident: Some(v3_ident),
            bridge: false,
        };
        let tor = Self {
            child,
            directory,
            authority,
        };
        let begun = Instant::now();
        while std::net::TcpStream::connect(dir_addr).is_err() {
            assert!(
                begun.elapsed() < PATIENCE,
                "tor does not listen: {}",
                tor.log()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        tor
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    pub(crate) fn ask(&self, request: Request) -> Response {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let limits = Limits::with_stall(Duration::from_secs(30));
        runtime
            .block_on(http::fetch(
                self.authority.dir_addr,
                &http::Route::default(),
                &request,
                limits,
                &SystemClock::default(),
            ))
            .unwrap()
    }

    /// Text of a document that it must have.
    pub(crate) fn get(&self, path: &str) -> String {
        let response = self.ask(Request::get(path.into()));
        assert_eq!(response.status, 200, "{path}: {}", response.reason);
        String::from_utf8(response.body).unwrap()
    }

    /// Uploads `body`.
    pub(crate) fn post(&self, body: &str) -> Response {
        self.ask(Request::Post {
            path: "/tor/",
            reason: "test",
            body: body.as_bytes().to_vec(),
        })
    }

    /// Settings of a node in its network.
    pub(crate) fn options(&self, cache: &Path) -> DirectoryOptions {
        DirectoryOptions {
            assume_reachable: true,
            ..DirectoryOptions::new(vec![self.authority.clone()], cache.to_path_buf(), true)
        }
    }
}

/// A node's directory task and its events.
pub(crate) struct Node {
    pub(crate) handle: DirectoryHandle,
    pub(crate) events: mpsc::Receiver<Event>,
    pub(crate) seen: Vec<Event>,
}

impl Node {
    /// Serves the directory to all who connect.
    pub(crate) fn listen(&self, listener: TcpListener) {
        let dir_port = self.handle.dir_port();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let peer = stream.peer_addr().unwrap().ip();
                let asker = Asker::direct(peer, None);
                dir_port.serve(stream, asker);
            }
        });
    }

    pub(crate) fn start(options: DirectoryOptions) -> Self {
        let (sender, events) = mpsc::channel();
        let config = Config {
            options,
            state: Vec::new(),
            seed: [3; 32],
            circuits: std::sync::Arc::new(weft_dir::circuits::NoCircuits),
        };
        let sink = Box::new(move |event| {
            let _ = sender.send(event);
        });
        Self {
            handle: DirectoryHandle::start(config, None, sink).unwrap(),
            events,
            seen: Vec::new(),
        }
    }

    /// Waits for an event that `pick` wants.
    pub(crate) fn wait<T>(&mut self, what: &str, pick: impl Fn(&Event) -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            let left = PATIENCE.saturating_sub(begun.elapsed());
            let event = self
                .events
                .recv_timeout(left)
                .unwrap_or_else(|_| panic!("waited in vain for {what}: {:?}", self.seen));
            let picked = pick(&event);
            self.seen.push(event);
            if let Some(picked) = picked {
                return picked;
            }
        }
    }
}
