//! Applications that talk nonsense to a SocksPort, and those that vanish.

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use socket2::SockRef;
use weft_testnet::up::Client;

use crate::edges::apps::{CONNECT, To, connect, greet5, read_to_end, request5};
use crate::edges::destinations::{Far, Hole};
use crate::edges::net::{CLIENT, shared, until};

/// Files that a client has open.
fn files(client: &Client) -> Result<usize> {
    let pid = client.node().pid().context("it does not run")?;
    Ok(std::fs::read_dir(format!("/proc/{pid}/fd"))?.count())
}

#[test]
fn garbage_is_answered_as_its_dialect_wants_it_and_closed() {
    shared(|net| {
        let client = net.client()?;
        let no_socks5: &[u8] = &[5, 1, 0];
        let long_name = [&[4, 1, 0, 80, 0, 0, 0, 1, 0][..], &[b'a'; 600]].concat();
        let bad_name = [no_socks5, &request5(CONNECT, To::Name("no name\n", 80))].concat();
        let onion = [no_socks5, &request5(CONNECT, To::Name("short.onion", 80))].concat();
        let ends: [(&str, &[u8], &[u8]); 12] = [
            ("no protocol", b"\0\0\0\0\0\0\0\0", b""),
            ("a browser", b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.0 501 "),
            ("TLS", b"\x16\x03\x01\x02\0\x01\0\x01\xfc", b""),
            ("SOCKS 6", &[6, 1, 0], b""),
            ("SOCKS 4 BIND", &[4, 2, 0, 80, 127, 0, 0, 1, 0], &[0, 91]),
            (
                "SOCKS 4 to port 0",
                &[4, 1, 0, 0, 127, 0, 0, 1, 0],
                &[0, 91],
            ),
            ("SOCKS 4 without end", &long_name, &[0, 91]),
            ("SOCKS 5 with no method that we have", &[5, 1, 9], &[5, 255]),
            (
                "SOCKS 5 UDP",
                &[5, 1, 0, 5, 3, 0, 1, 127, 0, 0, 1, 0, 80],
                &[5, 0, 5, 7],
            ),
            (
                "SOCKS 5 to no address",
                &[5, 1, 0, 5, 1, 0, 9, 0, 0],
                &[5, 0, 5, 8],
            ),
            ("SOCKS 5 to no name", &bad_name, &[5, 0, 5, 1]),
            ("an onion service", &onion, &[5, 0, 5]),
        ];
        for (what, sent, wanted) in ends {
            let mut stream = connect(client.socks())?;
            stream.write_all(sent)?;
            let (answer, _) = read_to_end(&mut stream).context(what)?;
            ensure!(
                answer.starts_with(wanted) && (answer.is_empty() == wanted.is_empty()),
                "{what}: {answer:?}"
            );
        }
        net.bystander("garbage", 100_000)
    });
}

#[test]
fn applications_that_vanish_leave_nothing() {
    shared(|net| {
        let client = net.client()?;
        // Its circuits are there already.
        net.bystander("vanish", 1000)?;
        let open = files(client)?;
        let before = net.memory()?;
        let hole = Hole::dig()?;
        let silent = Far::is_silent(std::sync::Arc::default())?;
        for round in 0..40 {
            for at in 0..5 {
                let to: SocketAddr = if at < 4 { hole.address } else { silent.address };
                let mut stream = connect(client.socks())?;
                match at {
                    0 => {}
                    1 => stream.write_all(&[5])?,
                    2 => greet5(&mut stream, "vanish")?,
                    // The exit is being asked, or is connected.
                    _ => {
                        greet5(&mut stream, "vanish")?;
                        stream.write_all(&request5(CONNECT, to.into()))?;
                    }
                }
                if round % 2 == 0 {
                    SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
                }
            }
        }
        net.bystander("vanish", 300_000)?;
        until("everything that they had to be closed", || {
            let now = files(client)?;
            Ok(now <= open + 4)
        })
        .with_context(|| format!("{} files, {open} before", files(client).unwrap_or(0)))?;
        let mut control = client.controller()?;
        until("their streams to end", || {
            let streams = control.info("stream-status")?;
            let waits = |target: SocketAddr| streams.contains(&format!(" {target}"));
            Ok(!waits(hole.address) && !waits(silent.address))
        })
        .with_context(|| control.info("stream-status").unwrap_or_default())?;
        net.grew_less(&before, 32 << 20)?;
        ensure!(net.up.node(CLIENT)?.pid().is_some());
        Ok(())
    });
}
