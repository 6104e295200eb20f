//! A relay's directory and a client's directory before a real C tor authority: what we serve is
//! what C tor serves, and what either serves makes a client's network.
//!
//! Starts Debian's `tor` as the only authority of a private network on loopback; fails without it.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant, SystemTime};

use crate::ctor::{CTor, Node, PATIENCE};
use crate::testing;
use base64ct::{Base64Unpadded, Encoding as _};
use weft_dir::cache;
use weft_dir::client::{ClientDirectory, ClientOptions, DirServer, Network, PlainStreams};
use weft_dir::clock::SystemClock;
use weft_dir::command::{Command, DirectoryOptions, Event, Severity};
use weft_dir::http::{self, Limits, Request, Response};
use weft_dir::microdesc;

/// A client's network from a directory at `source`, or from the cache alone.
fn client(tor: &CTor, source: Option<SocketAddr>, cache: &Path) -> Arc<Network> {
    let server = source.map(|address| DirServer {
        nickname: "source".into(),
        rsa: tor.authority.identity,
        ed25519: None,
        or_addrs: vec![],
        dir_addr: Some(address),
        weight: 1.0,
        authority: true,
    });
    let options = ClientOptions::new(
        vec![tor.authority.clone()],
        server.into_iter().collect(),
        Some(cache.to_path_buf()),
        true,
    );
    let (sender, events) = mpsc::channel();
    let sink = Box::new(move |event| {
        let _ = sender.send(event);
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let clock = Arc::new(SystemClock::default());
        let streams = Arc::new(PlainStreams::default());
        let (directory, handle) = ClientDirectory::new(options, [4; 32], streams, clock, sink);
        let task = tokio::spawn(directory.run());
        let mut network = handle.network();
        let complete = |network: &Option<Arc<Network>>| {
            network.as_ref().is_some_and(|network| {
                network.netdir.relays().count() == network.consensus.relays().count()
            })
        };
        let found = tokio::time::timeout(PATIENCE, network.wait_for(complete))
            .await
            .unwrap_or_else(|_| panic!("no network: {:?}", events.try_iter().collect::<Vec<_>>()))
            .unwrap()
            .clone();
        drop(handle);
        task.await.unwrap();
        let warnings: Vec<Event> = events
            .try_iter()
            .filter(|event| matches!(event, Event::Message(Severity::Warn, _)))
            .collect();
        assert!(warnings.is_empty(), "{warnings:?}");
        found.unwrap()
    })
}

/// The answer of the directory at `address`.
fn ask(address: SocketAddr, path: &str, since: Option<SystemTime>) -> Response {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let request = Request::Get {
        path: path.into(),
        if_modified_since: since,
        diff_from: None,
    };
    let limits = Limits::with_stall(Duration::from_secs(30));
    let clock = SystemClock::default();
    let route = http::Route::default();
    let fetched = http::fetch(address, &route, &request, limits, &clock);
    runtime.block_on(fetched).unwrap()
}

#[test]
fn what_we_serve_is_what_c_tor_serves_and_either_makes_a_network() {
    let tor = CTor::start();
    let directory = tempfile::tempdir().unwrap();
    let cache_directory = directory.path().join("relay");
    let mut node = Node::start(DirectoryOptions {
        dir_cache: true,
        download_extra_info: true,
        ..tor.options(&cache_directory)
    });
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let ours = listener.local_addr().unwrap();
    let theirs = tor.authority.dir_addr;
    node.listen(listener);
    let descriptor = testing::relay_at(21, SystemTime::now());
    node.handle
        .send(Command::Descriptor(Box::new(descriptor.clone())))
        .unwrap();
    node.wait("being listed", |event| match event {
        Event::Listed(flags) => *flags,
        _ => None,
    });

    // Microdescriptors follow the consensus that lists them; another consensus may come between.
    let begun = Instant::now();
    let (consensus, paths) = loop {
        let consensus = ask(ours, "/tor/status-vote/current/consensus-microdesc.z", None);
        let consensus = String::from_utf8(consensus.body).unwrap();
        let digests: Vec<&str> = consensus
            .lines()
            .filter_map(|line| line.strip_prefix("m "))
            .collect();
        assert!(!digests.is_empty(), "{consensus}");
        let path = format!("/tor/micro/d/{}.z", digests.join("-"));
        let all = ask(ours, &path, None);
        let text = String::from_utf8(all.body).unwrap();
        if microdesc::split(&text).count() == digests.len() {
            break (consensus, [path]);
        }
        assert!(begun.elapsed() < PATIENCE, "no microdescriptors");
        std::thread::sleep(Duration::from_millis(100));
    };
    let signer = |line: &str| line.split(' ').nth(2).unwrap().to_string();
    let line = consensus
        .lines()
        .find(|l| l.starts_with("directory-signature "));
    let signer = signer(line.unwrap());
    let [micro] = &paths;
    let other = "A".repeat(40);
    for path in [
        micro,
        "/tor/micro/d/AAAA",
        &format!("/tor/micro/d/{}", "A".repeat(43)),
        "/tor/keys/all.z",
        &format!("/tor/keys/fp/{signer}.z"),
        &format!("/tor/keys/fp/{other}"),
        &format!("/tor/keys/fp-sk/{other}-{other}"),
        "/tor/keys/nonsense",
        &format!("/tor/status-vote/current/consensus-microdesc/{other}.z"),
        &format!("/tor/status-vote/current/consensus-microdesc/diff/{other}/{other}"),
        &format!(
            "/tor/status-vote/current/consensus-microdesc/diff/{}",
            "A".repeat(64)
        ),
        "/tor/server/authority/x",
        &format!("/tor/server/fp/{other}"),
        "/tor/nonsense",
        "/",
        "/tor/robots.txt",
    ] {
        let (mine, its) = (ask(ours, path, None), ask(theirs, path, None));
        assert_eq!(
            (mine.status, &mine.reason),
            (its.status, &its.reason),
            "{path}"
        );
        let sorted = |body: Vec<u8>| {
            let text = String::from_utf8(body).unwrap();
            let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
            lines.sort_unstable();
            lines
        };
        assert_eq!(sorted(mine.body), sorted(its.body), "{path}");
    }
    // Descriptors follow the consensus of the flavour that lists them, which is not always that which the authority has
    // made of itself last.
    let begun = Instant::now();
    let texts = |path: &str| {
        let (mine, its) = (ask(ours, path, None), ask(theirs, path, None));
        let same = mine.status == 200 && its.status == 200;
        same.then(|| [mine, its].map(|answer| String::from_utf8(answer.body).unwrap()))
    };
    let compared = loop {
        let ns = ask(ours, "/tor/status-vote/current/consensus.z", None);
        let ns = String::from_utf8(ns.body).unwrap();
        let line = ns.lines().find(|line| line.starts_with("r auth "));
        let digest = line
            .and_then(|line| line.split(' ').nth(3))
            .map(|digest| hex::encode_upper(Base64Unpadded::decode_vec(digest).unwrap()));
        let both = digest.and_then(|digest| texts(&format!("/tor/server/d/{digest}.z")));
        if let Some([mine, its]) = both {
            assert_eq!(mine, its);
            let line = mine
                .lines()
                .find_map(|line| line.strip_prefix("extra-info-digest "));
            let digest = line.unwrap().split(' ').next().unwrap();
            if let Some([mine, its]) = texts(&format!("/tor/extra/d/{digest}")) {
                break [mine, its];
            }
        }
        assert!(begun.elapsed() < PATIENCE, "no descriptors");
        std::thread::sleep(Duration::from_millis(100));
    };
    let [mine, its] = compared;
    assert_eq!(mine, its);
    assert!(mine.starts_with("extra-info auth "), "{mine}");
    let all = String::from_utf8(ask(ours, "/tor/server/all.z", None).body).unwrap();
    assert!(
        all.contains("router auth ") && all.contains("router weft1 "),
        "{all}"
    );
    // Our own descriptor is that which the authority has of us.
    let fp = hex::encode_upper(descriptor.rsa_id().as_bytes());
    for path in [
        format!("/tor/server/fp/{fp}.z"),
        format!("/tor/extra/fp/{fp}"),
    ] {
        let mine = ask(ours, &path, None);
        assert_eq!(mine.status, 200, "{path}");
        assert_eq!(mine.body, ask(theirs, &path, None).body, "{path}");
    }
    let path = format!(
        "/tor/status-vote/current/consensus-microdesc/{}.z",
        &signer[..6]
    );
    assert_eq!(ask(ours, &path, None).status, 200);
    // Its time in whole seconds is not past that of a consensus of this very second.
    let later = SystemTime::now() + Duration::from_secs(60);
    assert_eq!(ask(ours, &path, Some(later)).status, 304);

    // A client finds the same network at the authority, at us, and in the cache files of all.
    for (source, name) in [(theirs, "by C tor"), (ours, "by Weft")] {
        let cache = directory.path().join(name);
        let network = client(&tor, Some(source), &cache);
        assert!(network.consensus.relay(&descriptor.rsa_id()).is_some());
        let again = client(&tor, None, &cache);
        assert_eq!(
            again.netdir.relays().count(),
            network.netdir.relays().count()
        );
    }
    node.handle.shutdown();
    client(&tor, None, &cache_directory);
    // A running C tor may write the files at different moments; these three belong together.
    let copy = directory.path().join("copy");
    std::fs::create_dir(&copy).unwrap();
    for name in [
        cache::CONSENSUS,
        cache::CERTS,
        cache::MICRODESCS,
        cache::MICRODESCS_NEW,
    ] {
        let from = tor.directory.path().join(name);
        if from.exists() {
            std::fs::copy(from, copy.join(name)).unwrap();
        }
    }
    client(&tor, None, &copy);
}
