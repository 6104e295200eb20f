//! An authority with its threads and files.

use std::sync::atomic::{AtomicUsize, Ordering};

use weft_dir::descriptor::Moment;

use super::rules::*;
use super::*;
use crate::server::{Surroundings, Tester};

#[tokio::test]
async fn under_load_only_relays_are_answered_at_the_dirport() {
    for (reject, expected) in [(true, "503 Directory busy"), (false, "200 OK")] {
        let mut authority = authority_with(AuthorityConfig {
            reject_under_load: reject,
            ..config()
        });
        post(&mut authority, &at_address(2));
        authority.tick(now() + secs(4)).unwrap();
        let server = AuthorityServer::new(authority, Arc::new(ManualClock::new(now())));
        server.set_busy(true);
        let ask = async |peer: [u8; 4], limited| {
            let (mut ours, theirs) = tokio::io::duplex(1 << 20);
            let server = server.clone();
            let serving = tokio::spawn(async move {
                let asker = Asker::direct(peer.into(), None);
                server.serve_limited(theirs, asker, limited).await;
            });
            let request = format!("GET {MICRODESC} HTTP/1.0\r\n\r\n");
            ours.write_all(request.as_bytes()).await.unwrap();
            ours.shutdown().await.unwrap();
            let mut answer = Vec::new();
            ours.read_to_end(&mut answer).await.unwrap();
            drop(ours);
            serving.await.unwrap();
            status_line(&answer)
        };
        let stranger = ask([10, 0, 0, 9], true).await;
        assert!(stranger.contains(expected), "{stranger}");
        assert!(ask([10, 0, 0, 2], true).await.contains("200 OK"), "a relay");
        assert!(
            ask([10, 0, 0, 9], false).await.contains("200 OK"),
            "a circuit"
        );
        server.set_busy(false);
        assert!(ask([10, 0, 0, 9], true).await.contains("200 OK"));
    }
}

/// A whole authority with threads: relays are tested by threads of its own, and what it learns outlives it.
#[test]
fn an_authority_tests_relays_and_keeps_what_it_knows_in_files() {
    let folder = tempfile::tempdir().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = asked.clone();
    let tester: Tester = Arc::new(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
        true
    });
    let started = SystemTime::now();
    let signing = KeyPair::from(KEYS.signing.as_key().clone());
    let cert = TestAuthority::new_at(3, started).cert;
    let keys = AuthorityKeys::new(signing, cert, started).unwrap();
    let mut authority = PrivateAuthority::new(with_tests(|_| {}), keys, None);
    let body = crate::testing::relay_at(2, started)
        .sign(&Moment {
            published: started,
            ..moment()
        })
        .unwrap()
        .upload_body();
    assert_eq!(authority.post(&body, FROM, started).status, 200);
    let surroundings = Surroundings {
        allowed: Arc::new(|_| true),
        log: Arc::new(|_, _| {}),
        tester: Some(tester),
        folder: Some(folder.path().to_owned()),
    };
    let handle = server::AuthorityHandle::start(authority, Vec::new(), surroundings).unwrap();
    for _ in 0..600 {
        if handle
            .server
            .authority()
            .history
            .write(started)
            .contains("\nR ")
        {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(handle);
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    let id = hex::encode_upper(relay(2).rsa_id().as_bytes());
    let stability = std::fs::read_to_string(folder.path().join("router-stability")).unwrap();
    assert!(
        stability.contains(&format!("\nR {id}\n+MTBF 0 0.00000 S=")),
        "{stability}"
    );
    // The next one knows both, and a torn last line hurts nobody.
    let pins = folder.path().join("key-pinning-journal");
    let text = std::fs::read_to_string(&pins).unwrap();
    std::fs::write(&pins, text.trim_end()).unwrap();
    let storage = storage::Storage::new(folder.path().to_owned());
    let mut next = authority_with(config());
    let log = storage.load(&mut next, SystemTime::now()).unwrap();
    assert!(log[0].1.starts_with("Loaded 1 entries"), "{log:?}");
    assert_eq!(next.history.write(started).matches("\nR ").count(), 1);
    let rsa = relay(2).rsa_id();
    let other = described(3).keys.ed_identity;
    assert!(next.pins.contradicts(&rsa, &other));
    std::fs::write(folder.path().join("router-stability"), "nonsense").unwrap();
    let log = storage.load(&mut next, SystemTime::now()).unwrap();
    assert!(log[1].1.contains("cannot read router-stability"), "{log:?}");
}
