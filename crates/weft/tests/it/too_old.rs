//! A node that is too old for its network: it logs that and ends, as C tor does.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::SystemTime;

use crate::testing::{TestAuthority, TestConsensus, secs};

/// Starts a node whose cache has this consensus, and waits until it ends: its status, and its output.
fn run(kind: &str, consensus: TestConsensus) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    let authority = TestAuthority::new_at(1, SystemTime::now());
    let id = hex::encode_upper(authority.id().as_bytes());
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::set_permissions(&data, Permissions::from_mode(0o700)).unwrap();
    fs::write(data.join("cached-certs"), &authority.cert).unwrap();
    let text = consensus.signed_by(&[&authority]);
    fs::write(data.join("cached-microdesc-consensus"), text).unwrap();
    let torrc = folder.path().join("torrc");
    let text = format!(
        "TestingTorNetwork 1\nAssumeReachable 1\nPublishServerDescriptor 0\nExitRelay 0\n\
         Address 127.0.0.1\nContactInfo nobody\nLog notice stdout\nDataDirectory {}\n\
         DirAuthority none orport=1 v3ident={id} 127.0.0.1:1 {id}\n{kind}\n",
        data.display()
    );
    fs::write(&torrc, text).unwrap();
    // A node that does not end by itself is ended: 124.
    let output = Command::new("timeout")
        .args(["-k", "5", "60"])
        .arg(Path::new(env!("CARGO_BIN_EXE_weft")))
        .args(["--defaults-torrc", "/dev/null", "-f"])
        .arg(&torrc)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8(printed).unwrap();
    (output.status.code(), printed)
}

fn consensus() -> TestConsensus {
    TestConsensus {
        valid_after: SystemTime::now() - secs(60),
        ..TestConsensus::default()
    }
}

#[test]
fn clients_and_relays_end_when_the_network_requires_what_they_lack() {
    let client = "SocksPort auto";
    let relay = "SocksPort 0\nORPort 127.0.0.1:auto IPv4Only";
    for (kind, of, consensus) in [
        (
            client,
            "clients",
            TestConsensus {
                required_of_clients: "Link=4 Relay=63",
                ..consensus()
            },
        ),
        (
            relay,
            "relays",
            TestConsensus {
                required: "HSDir=2 Link=4 Relay=63",
                ..consensus()
            },
        ),
    ] {
        let (status, printed) = run(kind, consensus);
        assert_eq!(status, Some(1), "{printed}");
        let why = format!(
            "the network requires protocols of {of} that this version of Weft does not speak: \
             Relay=63."
        );
        assert!(printed.contains(&format!("[err] {why}")), "{printed}");
        assert!(printed.contains(&format!("weft: {why}")), "{printed}");
    }
}
