//! Destinations that refuse, hang, reset, half-close, flood and trickle.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::edges::apps::{CONNECT, read_to_end, socks5};
use crate::edges::destinations::{Far, Hole, exit_sockets, flood_byte};
use crate::edges::net::{Net, Watch, shared, until};

/// States of sockets, as proc(5) numbers them.
const ESTABLISHED: &str = "01";
const SYN_SENT: &str = "02";

/// A stream that is open.
fn open(net: &Net, user: &str, far: &Far) -> Result<TcpStream> {
    let answer = socks5(net.client()?.socks(), user, CONNECT, far.address)?;
    ensure!(answer.code == 0, "{answer:?}");
    Ok(answer.stream)
}

#[test]
fn a_refusal_is_reported_as_one() {
    shared(|net| {
        let client = net.client()?;
        let nobody = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let mut watch = Watch::start(client)?;
        let mut answer = socks5(client.socks(), "refused", CONNECT, nobody)?;
        ensure!(answer.code == 5, "{answer:?}");
        ensure!(read_to_end(&mut answer.stream)?.0.is_empty());
        let target = nobody.to_string();
        watch.hears(
            &target,
            &["FAILED", "REASON=END", "REMOTE_REASON=CONNECTREFUSED"],
        )?;
        net.bystander("refused", 100_000)
    });
}

#[test]
fn a_destination_that_never_answers_is_given_up_and_nothing_is_left_of_it() {
    shared(|net| {
        let client = net.hasty()?;
        let hole = Hole::dig()?;
        let mut watch = Watch::start(client)?;
        let asking = {
            let (socks, to) = (client.socks(), hole.address);
            std::thread::spawn(move || socks5(socks, "hole", CONNECT, to))
        };
        until("an exit to try", || {
            Ok(exit_sockets(hole.address)? == [SYN_SENT])
        })?;
        net.bystander("hole", 100_000)?;
        let answer = asking.join().ok().context("a thread")??;
        ensure!(answer.code == 6, "{answer:?}");
        watch.hears(&hole.address.to_string(), &["FAILED", "REASON=TIMEOUT"])?;
        until("the exit to give up, too", || {
            Ok(exit_sockets(hole.address)?.is_empty())
        })
    });
}

/// The circuit has ended; what the destination does not take waits for it a quarter of a minute.
#[test]
fn a_destination_that_reads_nothing_is_left_when_the_circuit_has_gone() {
    shared(|net| {
        let left = Arc::new(AtomicBool::new(false));
        let far = Far::never_reads(Arc::clone(&left))?;
        let mut watch = Watch::start(net.client()?)?;
        let mut stream = open(net, "unread", &far)?;
        let opened = watch.hears(&far.address.to_string(), &["SUCCEEDED"])?;
        stream.set_write_timeout(Some(Duration::from_secs(1)))?;
        // As much as windows and queues take; the rest would wait for ever.
        while stream.write(&[1; 65_536]).is_ok() {}
        until("one connection of an exit, no more", || {
            Ok(exit_sockets(far.address)? == [ESTABLISHED])
        })?;
        net.bystander("unread", 100_000)?;
        let circuit = opened.split(' ').nth(3).context("no circuit")?;
        let mut control = net.client()?.controller()?;
        control.close_circuit_and_set(circuit)?;
        until("the exit to leave", || {
            Ok(exit_sockets(far.address)?.is_empty())
        })?;
        left.store(true, Ordering::SeqCst);
        net.bystander("unread", 100_000)
    });
}

#[test]
fn a_silent_destination_holds_up_no_stream_and_is_left_when_the_application_leaves() {
    shared(|net| {
        let ended = Arc::new(AtomicU64::new(0));
        let far = Far::is_silent(Arc::clone(&ended))?;
        let mut watch = Watch::start(net.client()?)?;
        let streams: Vec<TcpStream> = (0..20)
            .map(|_| open(net, "silent", &far))
            .collect::<Result<_>>()?;
        net.bystander("silent", 1_000_000)?;
        drop(streams);
        until("every connection to end", || {
            Ok(ended.load(Ordering::SeqCst) == 20)
        })?;
        watch.hears(&far.address.to_string(), &["CLOSED", "REASON=DONE"])?;
        Ok(())
    });
}

#[test]
fn a_reset_ends_one_stream() {
    shared(|net| {
        let far = Far::resets()?;
        let mut watch = Watch::start(net.client()?)?;
        let ended = Arc::new(AtomicU64::new(0));
        let silent = Far::is_silent(ended)?;
        let mut neighbour = open(net, "reset", &silent)?;
        for _ in 0..5 {
            let mut stream = open(net, "reset", &far)?;
            stream.write_all(b"x")?;
            // What the kernel had not given to the exit when the reset came is lost.
            let (came, _) = read_to_end(&mut stream)?;
            ensure!(came.len() <= 1000 && came.iter().all(|byte| *byte == 7));
        }
        watch.hears(
            &far.address.to_string(),
            &["CLOSED", "REASON=END", "REMOTE_REASON=CONNRESET"],
        )?;
        net.bystander("reset", 100_000)?;
        neighbour.set_read_timeout(Some(Duration::from_millis(1)))?;
        let kind = neighbour.read(&mut [0]).err().map(|error| error.kind());
        ensure!(kind == Some(std::io::ErrorKind::WouldBlock), "{kind:?}");
        Ok(())
    });
}

#[test]
fn an_application_that_closes_one_way_loses_nothing() {
    shared(|net| {
        let bytes: Vec<u8> = (0..600_000).map(flood_byte).collect();
        // The destination: all of it arrives, then the end.
        let heard = Arc::new(AtomicU64::new(0));
        let far = Far::half_closes(bytes.clone(), Arc::clone(&heard))?;
        let mut stream = open(net, "half", &far)?;
        ensure!(read_to_end(&mut stream)?.0 == bytes);
        drop(stream);
        until("the destination to see the end", || {
            Ok(heard.load(Ordering::SeqCst) > 0)
        })?;
        // The application.
        let taken = Arc::new(Mutex::new(None));
        let far = Far::takes(Arc::clone(&taken))?;
        let mut stream = open(net, "half", &far)?;
        stream.write_all(&bytes)?;
        stream.shutdown(Shutdown::Write)?;
        until("the destination to have it", || {
            Ok(taken.lock().ok().context("a lock")?.is_some())
        })?;
        let taken = taken.lock().ok().context("a lock")?.take();
        ensure!(taken == Some(bytes), "other bytes arrived");
        ensure!(read_to_end(&mut stream)?.0.is_empty());
        net.bystander("half", 100_000)
    });
}

#[test]
fn a_flood_that_nobody_reads_waits_in_bounded_memory() {
    shared(|net| {
        const FLOODS: u64 = 10;
        let sent = Arc::new(AtomicU64::new(0));
        let far = Far::floods(Arc::clone(&sent))?;
        let before = net.memory()?;
        let streams: Vec<TcpStream> = (0..FLOODS)
            .map(|number| open(net, &format!("flood{}", number % 3), &far))
            .collect::<Result<_>>()?;
        // What is on its way finds its end: sockets, windows and queues are full.
        let mut last = 0;
        let mut still = 0;
        until("the floods to be held back", || {
            let now = sent.load(Ordering::SeqCst);
            still = if now == last { still + 1 } else { 0 };
            last = now;
            Ok(still == 50)
        })?;
        let each = last / FLOODS;
        eprintln!("{each} bytes of each flood are on their way");
        ensure!(each < 32 << 20, "{each} bytes were taken of each");
        for number in 0..3 {
            net.bystander(&format!("flood{number}"), 300_000)?;
        }
        net.grew_less(&before, 96 << 20)?;
        // When it is read at last, it is as it was sent.
        for mut stream in streams {
            let mut bytes = vec![0; 3_000_000];
            stream.read_exact(&mut bytes)?;
            let right = (0..)
                .map(flood_byte)
                .zip(&bytes)
                .all(|(one, other)| one == *other);
            ensure!(right, "other bytes came");
        }
        // They are left in the middle; nobody else notices.
        net.bystander("flood0", 300_000)
    });
}

#[test]
fn a_trickle_arrives_byte_by_byte() {
    shared(|net| {
        let bytes: Vec<u8> = (0..200).map(flood_byte).collect();
        let far = Far::trickles(bytes.clone())?;
        let mut stream = open(net, "trickle", &far)?;
        // It does not wait for more to come.
        let mut first = [1];
        stream.read_exact(&mut first)?;
        ensure!(first == [0]);
        net.bystander("trickle", 300_000)?;
        let (rest, end) = read_to_end(&mut stream)?;
        ensure!((rest.as_slice(), end) == (&bytes[1..], None));
        Ok(())
    });
}
