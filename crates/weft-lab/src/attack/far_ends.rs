//! Attacks by relays to which the target extends.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rand::Rng as _;
use weft_cell::{Cell, ChanCmd, RelayCmd};

use super::circuit::{Circuit, extend2};
use super::circuits::{create_many, extend_to_ourselves, listen};
use super::definition::{Attack, NO_LEAD};
use super::peer::{PATIENCE, Peer};
use super::probes::Want;
use super::scene::Scene;
use super::target::Needs;

pub(super) const CREATE_FAST_BACK: Attack = Attack {
    name: "create-fast-back",
    what: "A relay to which a bridge extends sends CREATE_FAST back, and asks for the descriptor",
    bound: "50 links a second",
    needs: Needs {
        bridge: true,
        ..Needs::RELAY
    },
    want: Want::Circuit,
    destination: None,
    lead: NO_LEAD,
    run: create_fast_back,
};

fn create_fast_back(scene: &Scene<'_>) -> Result<()> {
    let (listener, at) = listen(Ipv4Addr::LOCALHOST)?;
    let mut number = 0;
    scene.again(|| {
        number += 1;
        let mut client = scene.client(number)?;
        let (mut hop, _) = extend_to_ourselves(scene, &mut client, number, &listener, at, 1)?;
        scene.did(1);
        // A client answers with DESTROY, a closed link or silence.
        let refused = Circuit::create_fast_as(&mut hop, 1).map(|mut circuit| {
            let made = "the target made a circuit on a link that it had opened as a client";
            scene.breached(made.to_owned());
            let descriptor = descriptor(&mut hop, &mut circuit).unwrap_or_default();
            if let Some(line) = descriptor.lines().find(|line| line.starts_with("router ")) {
                scene.breached(format!("{made}, and gave its descriptor: {line}"));
            }
        });
        scene.pause(Duration::from_millis(20));
        refused
    });
    Ok(())
}

/// The answer to a request for the target's own descriptor.
fn descriptor(peer: &mut Peer, circuit: &mut Circuit) -> Result<String> {
    let request = b"GET /tor/server/authority HTTP/1.0\r\n\r\n";
    circuit.send(peer, RelayCmd::BEGIN_DIR, 1, &[])?;
    circuit.send(peer, RelayCmd::DATA, 1, request)?;
    let deadline = Instant::now() + PATIENCE;
    let mut text = Vec::new();
    loop {
        let message = circuit.next(peer, deadline)?;
        match message.command {
            RelayCmd::DATA => text.extend(message.data),
            RelayCmd::END => return String::from_utf8(text).context("the descriptor is not text"),
            _ => {}
        }
    }
}

pub(super) const UNLISTED_EXTENDS: Attack = Attack {
    name: "unlisted-extends",
    what: "EXTEND2 to one made-up relay at ever more addresses, and to others that never answer, for links that \
           stay open; the target has 1,050 files",
    bound: "200 links a second, 2,000 at a time, or half of the file limit",
    needs: Needs {
        few_files: true,
        ..Needs::RELAY
    },
    want: Want::Circuit,
    destination: None,
    lead: Duration::from_secs(5),
    run: unlisted_extends,
};

fn unlisted_extends(scene: &Scene<'_>) -> Result<()> {
    const AT_ONCE: u32 = 16;
    let most = scene.max_connections.min(2000);
    let (mut silent, mut linked) = (VecDeque::new(), VecDeque::new());
    let mut number = 0u32;
    scene.again(|| {
        let mut client = scene.client(0)?;
        let mut next = 1;
        while !scene.is_over() {
            let began = Instant::now();
            let mut asked = Vec::new();
            for mut circuit in create_many(scene, &mut client, next, AT_ONCE)? {
                number += 1;
                let [_, _, high, low] = number.to_be_bytes();
                let (listener, at) = listen(Ipv4Addr::new(127, 3, high, low))?;
                let identity = scene.identity(0);
                let (mut rsa, mut ed25519) = (identity.rsa, identity.ed25519);
                let answers = !number.is_multiple_of(4);
                if !answers {
                    client.rng.fill_bytes(&mut rsa.0);
                    client.rng.fill_bytes(&mut ed25519.0);
                }
                let data = extend2(rsa, ed25519, at, &[7; 84])?;
                let cell = circuit.cell(RelayCmd::EXTEND2, 0, &data, &mut client.rng)?;
                scene.send(&mut client, cell.as_bytes())?;
                asked.push((listener, circuit.id, answers));
            }
            next += AT_ONCE;
            let deadline = began + Duration::from_millis(300);
            while !asked.is_empty() && Instant::now() < deadline && !scene.is_over() {
                client.pump(Duration::from_millis(2))?;
                // A cell on such a circuit refuses the extension: its listener is dropped.
                while let Some(cell) = client.next_cell()? {
                    asked.retain(|(_, id, _)| *id != cell.circ_id());
                }
                let mut waiting = Vec::new();
                for (listener, id, answers) in asked {
                    match accept(&listener)? {
                        None => waiting.push((listener, id, answers)),
                        Some(socket) if answers => {
                            let tls = &scene.identity(0).tls;
                            linked.push_back(Peer::accept(socket, tls, scene.seed())?);
                            scene.did(1);
                            // A link stays without a circuit, too.
                            if id % 2 == 0 {
                                let destroy = Cell::new(id, ChanCmd::DESTROY);
                                scene.send(&mut client, destroy.as_bytes())?;
                            }
                        }
                        Some(socket) => {
                            silent.push_back(socket);
                            scene.did(1);
                        }
                    }
                }
                asked = waiting;
            }
            silent.drain(..silent.len().saturating_sub(most / 4));
            linked.drain(..linked.len().saturating_sub(most * 3 / 4));
            scene.pause(Duration::from_millis(80).saturating_sub(began.elapsed()));
        }
        Ok(())
    });
    Ok(())
}

/// A connection that has come to this listener.
fn accept(listener: &TcpListener) -> Result<Option<std::net::TcpStream>> {
    match listener.accept() {
        Ok((socket, _)) => Ok(Some(socket)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error.into()),
    }
}
