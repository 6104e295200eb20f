use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use weft_model::traffic::records::{Outcome, Summary};
use weft_model::traffic::{FailureKind, Model, Pause, Plan, Schedule};
use weft_testnet::stop::Stop;

use super::*;
use crate::proxy::{Behaviour, TestProxy};

fn loopback() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

fn repeat(down: u64, up: u64, pause: Pause) -> Model {
    Model::Repeat {
        plan: Plan {
            up: Schedule::AtOnce(up),
            ..Plan::download(down)
        },
        pause,
    }
}

fn clients(count: usize, model: &Model, server: SocketAddr) -> Vec<FlowClient> {
    let client = |number| FlowClient {
        name: format!("client{number}"),
        model_name: "test".to_owned(),
        model: model.clone(),
        start: Duration::ZERO,
        proxy: None,
        servers: vec![server],
    };
    (0..count).map(client).collect()
}

fn settings(millis: u64) -> FlowSettings {
    FlowSettings {
        duration: Duration::from_millis(millis),
        seed: 9,
        threads: 2,
    }
}

#[test]
fn two_hundred_clients_move_checked_bytes_on_two_threads() {
    let server = FlowServer::start(loopback()).expect("a server");
    // A pause that outlasts the test: one stream for each.
    let pause = Pause::Fixed(Duration::from_secs(3600));
    let clients = clients(200, &repeat(100_000, 20_000, pause), server.address());
    let records = run(&clients, settings(60_000), &Stop::default()).expect("it runs");
    let summary = Summary::of(&records);
    assert_eq!((summary.streams, summary.failed), (200, 0));
    assert_eq!(summary.complete, 200);
    assert_eq!(summary.down_bytes, 200 * 100_000);
    assert_eq!(summary.up_bytes, 200 * 20_000);
    let mut by_client: BTreeMap<&str, u32> = BTreeMap::new();
    for record in &records {
        *by_client.entry(&record.client).or_default() += 1;
        assert!(record.time_to_first_byte() <= record.time_to_last_byte());
        assert!(record.round_trip().is_some());
    }
    assert!(by_client.values().all(|count| *count == 1));
}

#[test]
fn what_is_open_at_the_end_is_a_record_too() {
    let server = FlowServer::start(loopback()).expect("a server");
    let slow = Model::Repeat {
        plan: Plan {
            down: Schedule::Steady {
                bytes: 1_000_000,
                chunk: 1000,
                every: Duration::from_secs(3600),
            },
            ..Plan::download(0)
        },
        pause: Pause::None,
    };
    let clients = clients(1, &slow, server.address());
    let records = run(&clients, settings(500), &Stop::default()).expect("it runs");
    let [record] = records.as_slice() else {
        panic!("one stream: {records:?}");
    };
    assert_eq!(record.outcome, Outcome::Unfinished);
    assert_eq!(record.times.down.bytes, 1000);
}

#[test]
fn a_server_that_refuses_or_lies_is_a_failure_and_not_an_error() {
    let gone = TcpListener::bind(loopback()).expect("a listener");
    let refusing = gone.local_addr().expect("an address");
    drop(gone);
    let liar = TcpListener::bind(loopback()).expect("a listener");
    let lying = liar.local_addr().expect("an address");
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = liar.accept() {
            let mut request = [0; 16];
            let _ = stream.read_exact(&mut request);
            let _ = stream.write_all(b"!wrong bytes");
            // Until the client leaves.
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    let model = repeat(1000, 0, Pause::None);
    for (server, kind) in [
        (refusing, FailureKind::Connect),
        (lying, FailureKind::Corrupt),
    ] {
        let clients = clients(1, &model, server);
        let records = run(&clients, settings(300), &Stop::default()).expect("it runs");
        assert!(!records.is_empty() && records.len() < 3, "{records:?}");
        for record in records {
            assert!(
                matches!(&record.outcome, Outcome::Failed(failure) if failure.kind == kind),
                "{record:?}"
            );
        }
    }
}

#[test]
fn each_client_has_its_own_name_at_the_proxy() {
    let server = FlowServer::start(loopback()).expect("a server");
    let proxy = TestProxy::start(Behaviour::Connect).expect("a proxy");
    let pause = Pause::Fixed(Duration::from_secs(3600));
    let mut clients = clients(3, &repeat(50_000, 1000, pause), server.address());
    for client in &mut clients {
        client.proxy = Some(proxy.addr());
    }
    let records = run(&clients, settings(60_000), &Stop::default()).expect("it runs");
    assert_eq!(Summary::of(&records).complete, 3, "{records:?}");
    let asked = proxy.asked();
    let names = asked.iter().filter_map(|one| one.credentials.as_deref());
    let names = names.filter_map(|credentials| Some(credentials.split_once(':')?.0));
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    assert_eq!(names, ["client0-0", "client1-0", "client2-0"]);
}

#[test]
fn a_stop_ends_it_at_once() {
    let server = FlowServer::start(loopback()).expect("a server");
    let clients = clients(1, &Model::bulk(), server.address());
    let stop = Stop::default();
    stop.flag().store(true, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(run(&clients, settings(60_000), &stop).expect("it runs"), []);
}

#[test]
fn no_clients_are_an_error() {
    let error = run(&[], settings(1), &Stop::default()).expect_err("none");
    assert!(error.to_string().contains("no traffic clients"));
}
