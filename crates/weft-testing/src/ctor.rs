//! A real C tor on loopback, alone: a relay that no authority knows, or what its options make it.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use base64ct::{Base64Unpadded, Encoding as _};
use tempfile::TempDir;
use weft_cell::identity::{Ed25519Identity, RsaIdentity};

/// Only a hang takes as long as this.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Warnings of C tor at its start in a test network.
const AT_START: [&str; 4] = [
    "You are running Tor as root",
    "You have used DirAuthority",
    "TestingTorNetwork is set",
    "Your log may contain sensitive information",
];

/// Returns true if C tor ended properly on SIGTERM: with success, or by an assertion after all was
/// written. C tor 0.4.9 frees the locks of its worker threads; on a busy machine a worker thread
/// that is just starting then asserts.
#[must_use]
pub fn ended_cleanly(success: bool, log: &str) -> bool {
    let ending = log.split_once("Catching signal TERM, exiting cleanly.");
    ending.is_some_and(|(_, after)| success || after.contains("compat_mutex_pthreads.c"))
}

/// A C tor process that dies with this value, or with the test.
pub struct CTor {
    process: Child,
    dir: TempDir,
}

/// Where a relay is reached, and its keys.
#[derive(Clone, Copy)]
pub struct Contact {
    /// Its ORPort.
    pub addr: SocketAddr,
    /// Its RSA identity.
    pub rsa: RsaIdentity,
    /// Its Ed25519 identity.
    pub ed25519: Ed25519Identity,
    /// Its public onion key.
    pub ntor: [u8; 32],
}

impl CTor {
    /// Starts it with these options and those that keep it on loopback.
    pub fn start(options: &str) -> Self {
        let dir = tempfile::tempdir().expect("no temporary directory");
        let torrc = dir.path().join("torrc");
        let text = format!(
            "DataDirectory {data}\n\
             Log notice file {log}\nLog [handshake,or,channel,protocol]info file {log}\n\
             ProtocolWarnings 1\n\
             TestingTorNetwork 1\nShutdownWaitLength 0\n\
             GeoIPFile /dev/null\nGeoIPv6File /dev/null\n\
             DirAuthority nobody orport=1 no-v2 v3ident={nobody} 127.0.0.1:1 {nobody}\n\
             __OwningControllerProcess {pid}\n{options}\n",
            data = dir.path().join("data").display(),
            log = dir.path().join("log").display(),
            nobody = "A".repeat(40),
            pid = std::process::id(),
        );
        fs::write(&torrc, text).expect("cannot write the torrc");
        let output = File::create(dir.path().join("output")).expect("cannot create a file");
        let process = Command::new("tor")
            .args(["--defaults-torrc", "/dev/null", "-f"])
            .arg(&torrc)
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("cannot share a file"))
            .stderr(output)
            .spawn()
            .expect("cannot run tor: install Debian's package `tor`");
        CTor { process, dir }
    }

    /// A relay on an IPv4 port of its choice, with these options more.
    pub fn relay_with(options: &str) -> Self {
        Self::start(&format!(
            "ORPort 127.0.0.1:auto IPv4Only\nAddress 127.0.0.1\nNickname ctor\n\
             ContactInfo nobody\nSocksPort 0\nExtendAllowPrivateAddresses 1\n\
             AssumeReachable 1\nPublishServerDescriptor 0\nExitRelay 0\n\
             ServerDNSDetectHijacking 0\nServerDNSAllowBrokenConfig 1\n{options}"
        ))
    }

    /// A relay that knows no IPv6.
    pub fn relay() -> Self {
        Self::relay_with("AddressDisableIPv6 1")
    }

    /// A relay with an IPv6 port, too.
    pub fn relay_with_ipv6() -> Self {
        Self::relay_with("ORPort [::1]:auto IPv6Only")
    }

    /// A file of the DataDirectory, once tor has written it.
    pub fn data(&mut self, file: &str) -> String {
        let path = self.dir.path().join("data").join(file);
        self.wait(file, |_| {
            Some(read(&path)).filter(|text| text.ends_with('\n'))
        })
    }

    /// All that it has logged so far.
    pub fn log(&self) -> String {
        read(&self.dir.path().join("output")) + &read(&self.dir.path().join("log"))
    }

    /// Waits until `done` finds what it looks for, perhaps in the log.
    pub fn wait<T>(&mut self, what: &str, done: impl Fn(&str) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let log = self.log();
            if let Some(found) = done(&log) {
                return found;
            }
            let ended = self.process.try_wait().expect("cannot ask for tor's end");
            assert!(
                ended.is_none() && Instant::now() < deadline,
                "tor never came to {what:?} ({ended:?}):\n{log}"
            );
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the log has a line with these words and returns what follows them.
    pub fn wait_for(&mut self, words: &str) -> String {
        self.wait(words, |log| {
            // The last line may not be whole yet.
            let (lines, _) = log.rsplit_once('\n')?;
            let mut found = lines.lines().filter_map(|line| line.split_once(words));
            found.next().map(|(_, rest)| rest.to_owned())
        })
    }

    /// Where a relay listens, once it does.
    pub fn or_port(&mut self) -> SocketAddr {
        self.listener("127.0.0.1:")
    }

    /// Where a relay listens on IPv6, once it does.
    pub fn or_port_ipv6(&mut self) -> SocketAddr {
        self.listener("[::1]:")
    }

    fn listener(&mut self, host: &str) -> SocketAddr {
        let words = format!("Opened OR listener connection (ready) on {host}");
        let port = self.wait_for(&words);
        let address = format!("{host}{}", port.trim());
        address.parse().expect("no address in tor's log")
    }

    /// A relay's identities, as it wrote them down.
    pub fn identity(&mut self) -> (RsaIdentity, Ed25519Identity) {
        let mut last = |file: &str| {
            let text = self.data(file);
            text.split_whitespace().last().unwrap_or("").to_owned()
        };
        let (mut rsa, mut ed) = ([0; 20], [0; 32]);
        hex::decode_to_slice(last("fingerprint"), &mut rsa).expect("no fingerprint");
        Base64Unpadded::decode(last("fingerprint-ed25519"), &mut ed).expect("no fingerprint");
        (rsa.into(), ed.into())
    }

    /// Waits until a relay accepts connections, and returns its address and keys.
    pub fn contact(&mut self) -> Contact {
        let addr = self.or_port();
        self.wait_for("Bootstrapped 0%");
        let (rsa, ed25519) = self.identity();
        // C tor's tagged file: 32 bytes each of tag, secret key and public key.
        let key = self.dir.path().join("data/keys/secret_onion_key_ntor");
        let key = fs::read(key).expect("no onion key");
        let ntor = key[64..96].try_into().expect("32 bytes");
        Contact {
            addr,
            rsa,
            ed25519,
            ntor,
        }
    }

    /// Fails if C tor logged a fault of its peer: it logs those as protocol violations, at the level that
    /// `ProtocolWarnings 1` makes a warning.
    pub fn assert_content(&self) {
        let log = self.log();
        let warnings: Vec<_> = log
            .lines()
            .filter(|line| line.contains("[warn]") || line.contains("[err]"))
            .filter(|line| !AT_START.iter().any(|words| line.contains(words)))
            .collect();
        assert!(warnings.is_empty(), "{warnings:#?}");
    }
}

impl Drop for CTor {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
