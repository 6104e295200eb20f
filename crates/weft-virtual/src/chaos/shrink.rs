//! A round that fails is made smaller: what it fails without does not matter.

use super::round::{Fault, FaultKind, Round, Sharing};

/// The smallest round that was found to fail. `fails` runs one, and may say no when there was enough of it.
pub fn shrink(round: &Round, mut fails: impl FnMut(&Round) -> bool) -> Round {
    let mut best = round.clone();
    loop {
        let before = best.clone();
        fewer_faults(&mut best, &mut fails);
        fewer_clients(&mut best, &mut fails);
        fewer_relays(&mut best, &mut fails);
        simpler(&mut best, &mut fails);
        shorter(&mut best, &mut fails);
        if best == before {
            return best;
        }
    }
}

/// Takes a candidate that fails, too.
fn take(best: &mut Round, candidate: Round, fails: &mut impl FnMut(&Round) -> bool) -> bool {
    let is_better = candidate != *best && fails(&candidate);
    if is_better {
        *best = candidate;
    }
    is_better
}

/// Delta debugging: drops halves of the faults, then quarters, and so on.
fn fewer_faults(best: &mut Round, fails: &mut impl FnMut(&Round) -> bool) {
    let mut size = best.faults.len().next_power_of_two();
    while size > 0 {
        let mut first = 0;
        while first < best.faults.len() {
            let end = (first + size).min(best.faults.len());
            let mut candidate = best.clone();
            candidate.faults.drain(first..end);
            if !take(best, candidate, fails) {
                first = end;
            }
        }
        size /= 2;
    }
}

fn fewer_clients(best: &mut Round, fails: &mut impl FnMut(&Round) -> bool) {
    for client in (0..best.clients.len()).rev() {
        if best.clients.len() > 1 {
            let node = best.relays.len() + client;
            take(best, without(best, node), fails);
        }
    }
}

fn fewer_relays(best: &mut Round, fails: &mut impl FnMut(&Round) -> bool) {
    for relay in (2..best.relays.len()).rev() {
        if best.relays.len() > 3 {
            take(best, without(best, relay), fails);
        }
    }
    for relay in 0..best.relays.len() {
        let mut candidate = best.clone();
        if let Some(one) = candidate.relays.get_mut(relay) {
            (one.threads, one.limit) = (1, None);
        }
        take(best, candidate, fails);
    }
}

/// The round without a node, whose number those behind it move up to.
fn without(round: &Round, node: usize) -> Round {
    let mut round = round.clone();
    let relays = round.relays.len();
    let moved = |other: usize| match other.cmp(&node) {
        std::cmp::Ordering::Less => Some(other),
        std::cmp::Ordering::Equal => None,
        std::cmp::Ordering::Greater => Some(other - 1),
    };
    // A client's number among clients changes if it is a client that is dropped.
    let moved_client = |client: usize| match node < relays {
        true => Some(client),
        false => Some(moved(relays + client)? - relays),
    };
    let paths = std::mem::take(&mut round.paths).into_iter();
    let paths = paths
        .filter_map(|(one, other, delay, loss)| Some((moved(one)?, moved(other)?, delay, loss)));
    round.paths = paths.collect();
    let unlisted = std::mem::take(&mut round.unlisted).into_iter();
    let unlisted = unlisted.filter_map(|(one, other)| Some((moved(one)?, moved(other)?)));
    round.unlisted = unlisted.collect();
    let faults = std::mem::take(&mut round.faults).into_iter();
    let faults = faults.filter_map(|fault| {
        let kind = match fault.kind {
            FaultKind::Dies { relay, silent } => FaultKind::Dies {
                relay: moved(relay)?,
                silent,
            },
            FaultKind::Cut { one, other } => FaultKind::Cut {
                one: moved(one)?,
                other: moved(other)?,
            },
            FaultKind::DeafUser { client } => FaultKind::DeafUser {
                client: moved_client(client)?,
            },
            FaultKind::Disk { client, step, how } => FaultKind::Disk {
                client: moved_client(client)?,
                step,
                how,
            },
            FaultKind::Restarts { client, damaged } => FaultKind::Restarts {
                client: moved_client(client)?,
                damaged,
            },
            FaultKind::Hangs { node } => FaultKind::Hangs { node: moved(node)? },
            FaultKind::Memory { node, percent } => FaultKind::Memory {
                node: moved(node)?,
                percent,
            },
            FaultKind::Hostile {
                node,
                attack,
                count,
            } => FaultKind::Hostile {
                node: moved(node)?,
                attack,
                count,
            },
            FaultKind::Forges {
                node,
                messages,
                count,
            } => FaultKind::Forges {
                node: moved(node)?,
                messages,
                count,
            },
            FaultKind::Late { node, most } => FaultKind::Late {
                node: moved(node)?,
                most,
            },
            FaultKind::Moves { relay } => FaultKind::Moves {
                relay: moved(relay)?,
            },
            FaultKind::Jump { node, mono, wall } => FaultKind::Jump {
                node: moved(node)?,
                mono,
                wall,
            },
            other @ (FaultKind::Breaks { .. } | FaultKind::DeafServer { .. }) => other,
        };
        Some(Fault { kind, ..fault })
    });
    round.faults = faults.collect();
    match node.checked_sub(relays) {
        None => drop(round.relays.remove(node)),
        Some(client) => drop(round.clients.remove(client)),
    }
    round
}

/// Leaves out what makes a network less plain.
fn simpler(best: &mut Round, fails: &mut impl FnMut(&Round) -> bool) {
    let changes: [fn(&mut Round); 19] = [
        |round| round.costs = [0; 3],
        |round| round.loss = 0,
        |round| round.paths.clear(),
        |round| round.sharing = Sharing::All,
        |round| round.reno = false,
        |round| round.conflux = false,
        |round| round.common_entry = false,
        |round| {
            round.legs = 0;
            for client in &mut round.clients {
                client.tunnels = false;
            }
        },
        |round| round.servers = 1,
        |round| round.abra = false,
        |round| round.any_previous = false,
        |round| round.unlisted.clear(),
        |round| round.clients.iter_mut().for_each(|one| one.names = false),
        |round| round.clients.iter_mut().for_each(|one| one.refused = false),
        |round| round.clients.iter_mut().for_each(|one| one.held = false),
        |round| round.clients.iter_mut().for_each(|one| one.one_hop = false),
        |round| round.clients.iter_mut().for_each(|one| one.rests = 0),
        |round| round.clients.iter_mut().for_each(|one| one.files = 0),
        |round| (round.clients.iter_mut()).for_each(|one| one.traffic.timeout = None),
    ];
    for change in changes {
        let mut candidate = best.clone();
        change(&mut candidate);
        let servers = candidate.servers;
        // A fault of a host that is no more.
        candidate.faults.retain(
            |fault| !matches!(fault.kind, FaultKind::DeafServer { server } if server >= servers),
        );
        take(best, candidate, fails);
    }
}

/// Users stop earlier, and faults are shorter.
fn shorter(best: &mut Round, fails: &mut impl FnMut(&Round) -> bool) {
    for tenths in [1, 2, 5, 8] {
        let mut candidate = best.clone();
        candidate.lasts = best.lasts * tenths / 10;
        candidate.faults.retain(|fault| fault.at <= candidate.lasts);
        if take(best, candidate, fails) {
            break;
        }
    }
    for number in 0..best.faults.len() {
        let mut candidate = best.clone();
        if let Some(fault) = candidate.faults.get_mut(number) {
            fault.lasts = (fault.lasts / 4).max(1);
        }
        take(best, candidate, fails);
    }
}
