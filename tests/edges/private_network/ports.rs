//! Each port for applications, in a network that works.

use std::io::Write as _;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};

use anyhow::{Context, Result, ensure};
use weft_testnet::traffic::{Direction, Far, Request, transfer};

use crate::edges::apps::{
    CONNECT, RESOLVE, RESOLVE_PTR, To, dns, http_connect, read_to_end, socks4, socks5,
};
use crate::edges::net::{NAMES, Watch, shared};

const A: u16 = 1;
const PTR: u16 = 12;
const AAAA: u16 = 28;
const MX: u16 = 15;

#[test]
fn the_dns_port_looks_up_names_and_addresses() {
    shared(|net| {
        let port = net.listener("dns")?;
        ensure!(dns(port, "here.example", A)? == (0, vec![vec![127, 0, 0, 1]]));
        let six = Ipv6Addr::LOCALHOST.octets().to_vec();
        ensure!(dns(port, "six.example", AAAA)? == (0, vec![six]));
        let (code, names) = dns(port, "7.2.0.192.in-addr.arpa", PTR)?;
        ensure!(
            code == 0 && names == [b"\x05known\x07example\0".to_vec()],
            "{names:?}"
        );
        // No exit looks up addresses of its own network.
        let (code, names) = dns(port, "1.0.0.127.in-addr.arpa", PTR)?;
        ensure!(code != 0 && names.is_empty(), "{code} {names:?}");
        ensure!(dns(port, "gone.example", A)? == (3, vec![]), "NXDOMAIN");
        // There is the name, but nothing of this kind of it.
        let (code, found) = dns(port, "here.example", AAAA)?;
        ensure!(found.is_empty(), "{code} {found:?}");
        ensure!(
            dns(port, "here.example", MX)? == (4, vec![]),
            "not implemented"
        );
        Ok(())
    });
}

#[test]
fn socks5_resolves_names_and_addresses() {
    shared(|net| {
        let socks = net.client()?.socks();
        let answer = socks5(socks, "r", RESOLVE, To::Name("here.example", 0))?;
        ensure!(
            (answer.code, &*answer.address) == (0, "127.0.0.1"),
            "{answer:?}"
        );
        for name in ["known.example", "known6.example"] {
            let known = NAMES.iter().find(|(other, _)| *other == name);
            let address = SocketAddr::from((known.context("no such name")?.1, 0));
            let answer = socks5(socks, "r", RESOLVE_PTR, address)?;
            ensure!((answer.code, &*answer.address) == (0, name), "{answer:?}");
        }
        let here = SocketAddr::from(([127, 0, 0, 1], 0));
        let answer = socks5(socks, "r", RESOLVE_PTR, here)?;
        ensure!(answer.code == 4, "{answer:?}");
        let answer = socks5(socks, "r", RESOLVE, To::Name("gone.example", 0))?;
        ensure!(answer.code == 4, "{answer:?}");
        Ok(())
    });
}

#[test]
fn socks4a_connects_to_names_and_socks4_to_addresses() {
    shared(|net| {
        let (socks, server) = (net.client()?.socks(), net.up.server().address());
        for to in [To::Name("here.example", server.port()), To::Addr(server)] {
            let (code, _, mut stream) = socks4(socks, CONNECT, to)?;
            ensure!(code == 90, "{code}");
            speaks(&mut stream).with_context(|| format!("{to:?}"))?;
        }
        let (code, found, _) = socks4(socks, RESOLVE, To::Name("here.example", 0))?;
        ensure!((code, found.is_loopback()) == (90, true), "{code} {found}");
        let (code, _, _) = socks4(socks, CONNECT, To::Name("gone.example", 80))?;
        ensure!(code == 91, "{code}");
        Ok(())
    });
}

#[test]
fn the_http_tunnel_port_opens_tunnels_or_answers_why_not() {
    shared(|net| {
        let (port, server) = (net.listener("httptunnel")?, net.up.server().address());
        let (lines, mut stream) = http_connect(port, &format!("here.example:{}", server.port()))?;
        ensure!(lines[0].contains(" 200 "), "{lines:?}");
        speaks(&mut stream)?;
        let nobody = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        for (target, status, reason) in [
            (nobody.to_string(), "403", "end/CONNECTREFUSED"),
            ("gone.example:80".to_owned(), "503", "end/RESOLVEFAILED"),
        ] {
            let (lines, mut stream) = http_connect(port, &target)?;
            ensure!(lines[0].contains(&format!(" {status} ")), "{lines:?}");
            ensure!(
                lines.contains(&format!("Tor-Request-Failed: {reason}")),
                "{lines:?}"
            );
            ensure!(read_to_end(&mut stream)?.0.is_empty());
        }
        let mut stream = crate::edges::apps::connect(port)?;
        stream.write_all(b"GET http://here.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let (page, _) = read_to_end(&mut stream)?;
        let page = String::from_utf8(page)?;
        ensure!(page.starts_with("HTTP/1.0 405 "), "{page}");
        Ok(())
    });
}

#[test]
fn streams_reach_ipv6_by_address_and_by_name() {
    shared(|net| {
        let client = net.client()?;
        let listener = TcpListener::bind((Ipv6Addr::LOCALHOST, 0))?;
        let there = listener.local_addr()?;
        // By address: what comes out at the other end came from the exit's own ::1.
        let answer = socks5(client.socks(), "6", CONNECT, there)?;
        ensure!(answer.code == 0, "{answer:?}");
        let (mut accepted, from) = listener.accept()?;
        ensure!(from.ip() == IpAddr::V6(Ipv6Addr::LOCALHOST), "{from}");
        accepted.write_all(b"six")?;
        drop(accepted);
        let mut stream = answer.stream;
        ensure!(read_to_end(&mut stream)?.0 == b"six");
        // By a name that has no other address.
        let answer = socks5(
            client.socks(),
            "6",
            CONNECT,
            To::Name("six.example", there.port()),
        )?;
        ensure!(answer.code == 0, "{answer:?}");
        let (mut accepted, _) = listener.accept()?;
        accepted.write_all(b"named")?;
        drop(accepted);
        let mut stream = answer.stream;
        ensure!(read_to_end(&mut stream)?.0 == b"named");
        // A refusal there is reported as elsewhere.
        drop(listener);
        let mut watch = Watch::start(client)?;
        let answer = socks5(client.socks(), "6", CONNECT, there)?;
        ensure!(answer.code == 5, "{answer:?}");
        watch.hears(
            &there.to_string(),
            &["FAILED", "REMOTE_REASON=CONNECTREFUSED"],
        )?;
        Ok(())
    });
}

#[test]
fn hashes_are_equal_through_a_name() {
    shared(|net| {
        let server = net.up.server().address();
        for (direction, seed) in [(Direction::Down, 1), (Direction::Up, 2)] {
            let request = Request {
                direction,
                bytes: 1_000_000,
                seed,
            };
            let far = Far::Name("here.example", server.port());
            transfer(net.client()?.socks(), "name", far, request)?;
        }
        Ok(())
    });
}

/// The traffic server answers on this stream: a request for nothing is answered by the hash of
/// nothing (SHA-256, so 32 bytes).
fn speaks(stream: &mut std::net::TcpStream) -> Result<()> {
    use std::io::Read as _;
    let mut request = [0; 17];
    request[0] = b'D';
    stream.write_all(&request)?;
    let mut hash = [0; 32];
    stream.read_exact(&mut hash)?;
    ensure!(hash[..4] == [0xe3, 0xb0, 0xc4, 0x42], "{hash:02x?}");
    Ok(())
}
