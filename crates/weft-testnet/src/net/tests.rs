//! Testbeds with real packets. They need privileges; where those are missing, the tests report it.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weft_model::links::Topology;

use super::{Options, Testbed, clean, down, missing};
use crate::guardian::Guardian;

/// A testbed with a unique name; `None` if this machine can have none.
fn testbed(topology: &Topology) -> Testbed {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::SeqCst);
    let options = Options {
        name: Some(format!("test-{}-{number}", std::process::id())),
        seed: 1,
    };
    Testbed::start(topology.clone(), &options).unwrap()
}

/// Two hosts, and a link with these settings.
fn pair(settings: &str) -> Topology {
    let text = format!(
        "name = \"pair\"\nhosts = [\"client\", \"server\"]\n[[link]]\nends = [\"client\", \"server\"]\n{settings}"
    );
    Topology::parse("pair.toml", &text).unwrap()
}

fn udp(address: Ipv4Addr) -> UdpSocket {
    let socket = UdpSocket::bind((address, 0)).unwrap();
    let patience = Some(Duration::from_secs(2));
    socket.set_read_timeout(patience).unwrap();
    socket
}

/// The hosts of a pair, each with a UDP socket.
fn sockets(testbed: &Testbed) -> [UdpSocket; 2] {
    ["client", "server"].map(|name| {
        let host = testbed.host(name).unwrap();
        host.enter(|| udp(host.address())).unwrap()
    })
}

#[test]
fn a_delay_of_50_ms_is_kept_to_half_a_millisecond() {
    if let Some(missing) = missing() {
        return weft_testing::not_run!("{missing}");
    }
    let testbed = testbed(&pair("delay = \"50 ms\"\n"));
    let [client, server] = sockets(&testbed);
    let mut sent = 0;
    for (from, to) in [(&client, &server), (&server, &client)] {
        let to_address = to.local_addr().unwrap();
        // On a busy machine this process, or the emulator, waits for its turn: that delays some probes.
        let mut in_time = 0;
        while in_time < 20 {
            assert!(
                sent < 1_000,
                "{in_time} of {sent} probes took 50 to 50.5 ms"
            );
            let begun = Instant::now();
            from.send_to(b"probe", to_address).unwrap();
            to.recv(&mut [0; 16]).unwrap();
            let taken = begun.elapsed();
            assert!(taken >= Duration::from_millis(50), "early: {taken:?}");
            in_time += u32::from(taken <= Duration::from_micros(50_500));
            sent += 1;
        }
    }
    let snapshot = testbed.snapshot().unwrap();
    assert_eq!(snapshot.totals.delivered, sent);
    assert_eq!(snapshot.links[0].packets + snapshot.links[1].packets, sent);
}

/// The losses that the model's own test checks over many more packets are also those of real
/// packets: exactly the packets that the model loses are lost.
#[test]
fn exactly_those_packets_are_lost_that_the_seed_loses() {
    const PACKETS: u32 = 20_000;
    if let Some(missing) = missing() {
        return weft_testing::not_run!("{missing}");
    }
    let topology = pair("loss = \"0.1 %\"\n");
    let server = topology.host("server").unwrap().address();
    let mut model = weft_model::links::Network::new(topology.clone(), 1);
    let mut packet = [0; 32];
    packet[0] = 0x45;
    packet[16..20].copy_from_slice(&server.octets());
    let client = topology.hosts().next().unwrap();
    let arrives: Vec<bool> = (0..PACKETS)
        .map(|_| {
            let start = weft_model::links::Moment::START;
            let sent = model.send(start, client, &packet);
            model.deliver(start);
            sent.is_ok()
        })
        .collect();
    let lost = arrives.iter().filter(|arrives| !**arrives).count();
    assert!((5..=40).contains(&lost), "{lost}");

    let testbed = testbed(&topology);
    let [client, server] = sockets(&testbed);
    let address = server.local_addr().unwrap();
    for start in (0..PACKETS).step_by(50) {
        let batch = start..start + 50;
        for number in batch.clone() {
            client.send_to(&number.to_be_bytes(), address).unwrap();
        }
        for number in batch.filter(|number| arrives[*number as usize]) {
            let mut bytes = [0; 4];
            server.recv(&mut bytes).unwrap();
            assert_eq!(u32::from_be_bytes(bytes), number);
        }
    }
    let snapshot = testbed.snapshot().unwrap();
    assert_eq!(snapshot.links[0].dropped_by_loss, lost as u64);
}

#[test]
fn a_bulk_stream_arrives_whole_over_eight_links_with_loss() {
    const BYTES: usize = 8_000_000;
    if let Some(missing) = missing() {
        return weft_testing::not_run!("{missing}");
    }
    let hosts = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
    let mut text = format!(
        "name = \"chain\"\nhosts = {hosts:?}\n[defaults]\nrate = \"300 Mbit/s\"\ndelay = \"1 ms\"\n\
         loss = \"0.01 %\"\n"
    );
    for ends in hosts.windows(2) {
        text += &format!("[[link]]\nends = {ends:?}\n");
    }
    let testbed = testbed(&Topology::parse("chain.toml", &text).unwrap());
    let [first, last] = ["a", "i"].map(|name| testbed.host(name).unwrap());
    let address = SocketAddr::from((last.address(), 80));
    let listener = last.enter(|| TcpListener::bind(address)).unwrap().unwrap();
    let byte = |place: usize| (place.wrapping_mul(2_654_435_761) >> 7) as u8;
    let sender = thread::spawn(move || {
        let bytes: Vec<u8> = (0..BYTES).map(byte).collect();
        let (mut stream, from) = listener.accept().unwrap();
        stream.write_all(&bytes).unwrap();
        from
    });
    let mut stream = first
        .enter(|| TcpStream::connect(address))
        .unwrap()
        .unwrap();
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    assert_eq!(received.len(), BYTES);
    assert!(
        received
            .iter()
            .enumerate()
            .all(|(place, &found)| found == byte(place))
    );
    assert_eq!(sender.join().unwrap().ip(), first.address());
    let snapshot = testbed.snapshot().unwrap();
    assert!(snapshot.links.iter().all(|link| link.packets > 0));
}

#[test]
fn background_streams_fill_their_link_and_no_other() {
    if let Some(missing) = missing() {
        return weft_testing::not_run!("{missing}");
    }
    let text = "name = \"x\"\nhosts = [\"a\", \"b\", \"c\"]\n[defaults]\nrate = \"20 Mbit/s\"\n\
                [[link]]\nends = [\"a\", \"b\"]\nbackground = 4\n[[link]]\nends = [\"b\", \"c\"]\n";
    let testbed = testbed(&Topology::parse("x.toml", text).unwrap());
    let deadline = Instant::now() + Duration::from_secs(60);
    // From the second end to the first.
    while testbed.snapshot().unwrap().links[1].bytes < 1_000_000 {
        assert!(Instant::now() < deadline, "no background traffic");
        thread::sleep(Duration::from_millis(20));
    }
    let links = testbed.snapshot().unwrap().links;
    assert!(links[0].bytes < links[1].bytes / 5, "acknowledgements");
    assert_eq!(links[2].packets + links[3].packets, 0);
}

#[test]
fn a_testbed_leaves_nothing_and_ends_what_runs_in_it() {
    if let Some(missing) = missing() {
        return weft_testing::not_run!("{missing}");
    }
    let testbed = testbed(&pair(""));
    let name = testbed.name().to_owned();
    let host = testbed.host("server").unwrap();
    let output = host.command("ip").args(["-4", "addr"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("inet 10.2.0.1/32"), "{text}");
    let mut program = host.command("sleep").arg("1000").spawn().unwrap();
    // Until it runs in the host, `ip` could fail to find the host instead of being ended.
    let own = format!("/proc/{}/ns/net", program.id());
    let here = std::fs::read_link("/proc/self/ns/net").unwrap();
    while std::fs::read_link(&own).unwrap() == here {
        thread::sleep(Duration::from_millis(5));
    }
    let path = format!("/run/netns/{}", host.namespace_name());
    assert!(std::path::Path::new(&path).exists());
    testbed.end().unwrap();
    assert!(!program.wait().unwrap().success());
    assert!(!std::path::Path::new(&path).exists());
    assert!(!std::path::Path::new("/run/weft-net").join(&name).exists());
    assert!(down(&name).unwrap_err().to_string().contains("is up"));
}

#[test]
fn a_name_is_taken_once_and_free_afterwards() {
    if let Some(missing) = missing() {
        return weft_testing::not_run!("{missing}");
    }
    let first = testbed(&pair(""));
    let options = Options {
        name: Some(first.name().to_owned()),
        seed: 1,
    };
    let error = Testbed::start(pair(""), &options).unwrap_err().to_string();
    assert!(
        error.contains(&format!("process {}", std::process::id())) && error.contains("--name"),
        "{error}"
    );
    drop(first);
    drop(Testbed::start(pair(""), &options).unwrap());
}

/// A guardian that has the lock while it removes namespaces; its testbed's process has ended.
#[test]
fn a_start_waits_for_a_testbed_that_is_still_being_removed() {
    if let Some(missing) = missing() {
        return weft_testing::not_run!("{missing}");
    }
    let name = format!("test-{}-ending", std::process::id());
    let folder = std::path::Path::new("/run/weft-net").join(&name);
    let mut ended = std::process::Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let options = Options {
        name: Some(name),
        seed: 1,
    };
    for process in [Some(ended.id()), None] {
        std::fs::create_dir_all(&folder).unwrap();
        let lock = std::fs::File::create(folder.join("lock")).unwrap();
        lock.lock().unwrap();
        if let Some(process) = process {
            std::fs::write(folder.join("process"), format!("{process}\n")).unwrap();
        }
        let folder = folder.clone();
        let guardian = thread::spawn(move || {
            thread::sleep(Duration::from_millis(200));
            // It fails where the new one takes the folder as soon as the lock's file is gone.
            let _ = std::fs::remove_dir_all(folder);
            drop(lock);
        });
        Testbed::start(pair(""), &options).unwrap().end().unwrap();
        guardian.join().unwrap();
    }
}

/// A folder with a list and no lock, as a testbed and its guardian leave it when both are killed.
#[test]
fn clean_removes_what_a_crash_left_and_touches_nothing_that_is_up() {
    if let Some(missing) = missing() {
        return weft_testing::not_run!("{missing}");
    }
    let up = testbed(&pair(""));
    let name = format!("test-{}-crashed", std::process::id());
    let folder = std::path::Path::new("/run/weft-net").join(&name);
    std::fs::create_dir_all(&folder).unwrap();
    let space = super::place::namespace(&name, "client");
    std::fs::write(folder.join("namespaces"), format!("{}\n", space.name)).unwrap();
    super::namespace::Namespace::create(std::slice::from_ref(&space)).unwrap();
    assert!(space.is_there());
    let cleaned = clean().unwrap();
    assert!(cleaned.removed.contains(&name), "{cleaned:?}");
    let own = (up.name().to_owned(), Some(std::process::id()));
    assert!(cleaned.up.contains(&own), "{cleaned:?}");
    assert!(!space.is_there() && !folder.exists());
    assert!(up.host("client").unwrap().namespace().is_there());
}

/// The guardian's part of an unplanned end.
#[test]
fn a_guardian_alone_removes_namespaces() {
    if let Some(missing) = missing() {
        return weft_testing::not_run!("{missing}");
    }
    let space = super::place::namespace(&format!("test-{}-guard", std::process::id()), "a");
    super::namespace::Namespace::create(std::slice::from_ref(&space)).unwrap();
    let mut guardian = Guardian::start(None).unwrap();
    guardian.watch_namespace(&space.name).unwrap();
    drop(guardian);
    assert!(!space.is_there());
}

#[test]
fn hosts_have_the_congestion_control_of_the_topology() {
    if let Some(missing) = missing() {
        return weft_testing::not_run!("{missing}");
    }
    let list = |which: &str| {
        let path = format!("/proc/sys/net/ipv4/tcp_{which}congestion_control");
        std::fs::read_to_string(path).unwrap()
    };
    let before = (list(""), list("allowed_"));
    let text = "name = \"tcp\"\nhosts = [\"client\"]\ntcp = \"reno\"\n";
    let testbed = testbed(&Topology::parse("tcp.toml", text).unwrap());
    let host = testbed.host("client").unwrap();
    assert_eq!(host.enter(|| list("")).unwrap().trim(), "reno");
    assert_eq!((list(""), list("allowed_")), before);

    let text = text.replace("reno", "none-such");
    let topology = Topology::parse("tcp.toml", &text).unwrap();
    let options = Options {
        name: Some(format!("test-{}-tcp", std::process::id())),
        seed: 1,
    };
    let error = Testbed::start(topology, &options).unwrap_err().to_string();
    assert!(
        error.contains("no congestion control \"none-such\""),
        "{error}"
    );
}
