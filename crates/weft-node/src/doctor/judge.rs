//! Findings derived from the facts, by arguments alone.

use std::cmp::Ordering;
use std::net::SocketAddr;
use std::time::Duration;

use weft_datadir::lock::Holder;

use super::facts::{Consensus, Facts, Listed, Unasked, stamp};
use super::finding::{Finding, Verdict};
use super::tried::Tried;
use crate::control::VERSION;

/// A clock that is off by more keeps a client from starting, and a relay from being listed (C tor's TIME_SKEW warnings: an
/// hour; certificates and consensuses need less).
const BAD_SKEW: u64 = 30 * 60;
/// Off by more is worth a look.
const SKEW: u64 = 60;
/// Remaining lifetime from which on a signing key that the relay cannot renew is reported.
const SIGNING_SOON: Duration = Duration::from_secs(5 * 86_400);
/// Files that a relay needs besides one connection for each relay of the network.
const FILES_BESIDES: u64 = 1000;
/// C tor's default of ConnLimit, which does for a client.
const FILES_OF_CLIENT: u64 = 1000;

/// The answers, in the order in which one would ask.
pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let mut all = Answers(Vec::new());
    machine(facts, &mut all);
    keys(facts, &mut all);
    moved(facts, &mut all);
    process(facts, &mut all);
    clock(facts, &mut all);
    consensus(facts, &mut all);
    relay(facts, &mut all);
    client(facts, &mut all);
    all.0
}

struct Answers(Vec<Finding>);

impl Answers {
    fn add(&mut self, about: &'static str, verdict: Verdict, text: impl Into<String>) {
        self.0.push(Finding {
            about,
            verdict,
            text: text.into(),
            advice: None,
        });
    }

    fn advise(
        &mut self,
        about: &'static str,
        verdict: Verdict,
        text: impl Into<String>,
        advice: impl Into<String>,
    ) {
        self.add(about, verdict, text);
        if let Some(last) = self.0.last_mut() {
            last.advice = Some(advice.into());
        }
    }
}

fn machine(facts: &Facts, all: &mut Answers) {
    match &facts.check {
        Ok(()) if facts.modes.is_empty() => all.add(
            "files",
            Verdict::Good,
            "the directories are this user's and private",
        ),
        Ok(()) => {}
        Err(why) => all.add("files", Verdict::Bad, why.clone()),
    }
    for wrong in &facts.modes {
        let path = wrong.path.display();
        all.advise(
            "files",
            Verdict::Warning,
            format!(
                "{path} has mode {:04o}, and should have {:04o}",
                wrong.mode, wrong.wanted
            ),
            format!(
                "chmod {:o} {path}; a start does the same to one that others can read",
                wrong.wanted
            ),
        );
    }
    if let Some(most) = facts.files {
        let relays = facts.consensus.as_ref().map_or(0, |of| of.relays as u64);
        let wanted = match facts.is_relay {
            true => relays.saturating_add(FILES_BESIDES),
            false => FILES_OF_CLIENT,
        };
        let text = match most {
            u64::MAX => "the process may have any number of files open".to_owned(),
            most => format!("the process may have {most} files open"),
        };
        match most < wanted {
            false => all.add("file limit", Verdict::Good, text),
            true => all.advise(
                "file limit",
                Verdict::Warning,
                format!("{text}, and needs some {wanted}: one for each relay and client that is connected"),
                "raise LimitNOFILE= of its unit, or `ulimit -n`, and restart it",
            ),
        }
    }
    let (most, total) = facts.memory;
    let mb = |bytes: u64| bytes >> 20;
    if facts.is_relay
        && let Some(total) = total
    {
        let text = format!(
            "cells and buffers may take {} MB of {} MB (MaxMemInQueues)",
            mb(most),
            mb(total)
        );
        match most < total {
            true => all.add("memory", Verdict::Good, text),
            false => all.advise(
                "memory",
                Verdict::Warning,
                text,
                "set MaxMemInQueues to two fifths of the memory",
            ),
        }
    }
    for program in &facts.programs {
        match &program.answer {
            Ok(()) => all.add("transports", Verdict::Good, format!("{} can be run", program.what)),
            Err(why) => all.advise(
                "transports",
                Verdict::Bad,
                format!("{}: {why}", program.what),
                "install the program, or correct its path in ClientTransportPlugin or ServerTransportPlugin",
            ),
        }
    }
}

fn keys(facts: &Facts, all: &mut Answers) {
    match &facts.keys {
        None => {}
        Some(Err(why)) => all.add("keys", Verdict::Bad, why.clone()),
        Some(Ok(keys)) => {
            let soon = match keys.renewed_before {
                // It should be done by then.
                Some(slop) => slop.saturating_sub(slop / 4),
                None => SIGNING_SOON,
            };
            let text = format!("the relay is {}", keys.fingerprint);
            let left = keys
                .signing_expires
                .map(|end| end.duration_since(facts.now));
            let (verdict, text) = match left {
                Some(Ok(left)) if left > soon => return all.add("keys", Verdict::Good, text),
                Some(Ok(left)) => {
                    let hours = left.as_secs() / 3600;
                    let text = format!("{text}; its signing key runs out in {hours} hours");
                    (Verdict::Warning, text)
                }
                Some(Err(_)) => (Verdict::Bad, format!("{text}; its signing key has run out")),
                None => (Verdict::Bad, format!("{text}; it has no signing key")),
            };
            match (keys.renewed_before, facts.runs()) {
                (None, _) => all.advise(
                    "keys",
                    verdict,
                    text,
                    "make a new one with `weft --keygen` where the master key is, and copy ed25519_signing_secret_key and \
                     ed25519_signing_cert from there",
                ),
                (Some(_), true) => all.advise(
                    "keys",
                    verdict,
                    text,
                    "a relay that runs renews it by itself: look at its log",
                ),
                (Some(_), false) if facts.moved.is_none() => {
                    all.advise("keys", verdict, text, "start the relay, which renews it");
                }
                (Some(_), false) => all.add("keys", verdict, text),
            }
        }
    }
}

/// A relay that runs elsewhere must not be started here.
fn moved(facts: &Facts, all: &mut Answers) {
    match (&facts.moved, facts.runs()) {
        (None, _) => {}
        (Some(why), false) => all.add("moved", Verdict::Bad, why.clone()),
        // By C tor, which does not know of the mark.
        (Some(why), true) => all.advise(
            "moved",
            Verdict::Bad,
            format!("it runs here, and {why}"),
            "end it here, unless it was ended there",
        ),
    }
}

fn process(facts: &Facts, all: &mut Answers) {
    const ABOUT: &str = "process";
    match &facts.holder {
        Ok(Holder::Nobody) => {
            let text = "it does not run: no process has the DataDirectory's lock";
            match facts.moved {
                None => all.advise(
                    ABOUT,
                    Verdict::Bad,
                    text,
                    "start it, and look at its log if it ends",
                ),
                Some(_) => all.add(ABOUT, Verdict::Bad, text),
            }
        }
        Ok(Holder::Process(id)) => {
            all.add(ABOUT, Verdict::Good, format!("it runs, as process {id}"));
        }
        Ok(Holder::Unseen) => all.add(
            ABOUT,
            Verdict::Good,
            "it runs, as a process whose id is not seen from here",
        ),
        Err(why) => all.add(
            ABOUT,
            Verdict::Unknown,
            format!("it is not known whether it runs: {why}"),
        ),
    }
    for port in &facts.ports {
        let what = &port.tried.what;
        match (&port.tried.answer, port.may_hibernate) {
            (Ok(()), _) => all.add("ports", Verdict::Good, format!("{what} answers")),
            (Err(why), false) => all.advise(
                "ports",
                Verdict::Bad,
                format!("{what} does not answer here: {why}"),
                "send the process SIGHUP if torrc was changed, and look at its log",
            ),
            (Err(why), true) => all.advise(
                "ports",
                Verdict::Warning,
                format!("{what} does not answer here: {why}. It is closed while the node hibernates (AccountingMax)"),
                "its log has when it began to hibernate; if it did not, send it SIGHUP if torrc was changed",
            ),
        }
    }
    match &facts.node {
        None => {}
        Some(Err(why)) => all.add(
            "control port",
            Verdict::Unknown,
            format!("the running node was not asked: {why}"),
        ),
        Some(Ok(values)) => {
            if let Some(phase) = values.get("status/bootstrap-phase") {
                let verdict = match () {
                    () if phase.contains("PROGRESS=100") => Verdict::Good,
                    () if phase.starts_with("WARN") => Verdict::Bad,
                    () => Verdict::Warning,
                };
                all.add("bootstrap", verdict, phase.clone());
            }
        }
    }
}

fn clock(facts: &Facts, all: &mut Answers) {
    let clocks = match &facts.clocks {
        Ok(clocks) => clocks,
        Err(Unasked::Offline) => return,
        Err(why) => {
            let why = match why {
                Unasked::NetworkDisabled | Unasked::Offline => "DisableNetwork is set",
                Unasked::UsesBridges => {
                    "a connection to one shows that this machine uses Tor, which bridges hide (UseBridges)"
                }
                Unasked::IsBridge => {
                    "a connection to one shows that this machine, a bridge, uses Tor"
                }
            };
            let text = format!("the authorities were not asked for the time, because {why}");
            return all.add("clock", Verdict::Unknown, text);
        }
    };
    let mut skews: Vec<i64> = clocks
        .iter()
        .filter_map(|(_, skew)| *skew.as_ref().ok()?)
        .collect();
    skews.sort_unstable();
    // One that lies does not decide.
    let Some(skew) = skews.get(skews.len() / 2) else {
        let whys = clocks.iter().filter_map(|(name, answer)| {
            let why = answer.as_ref().err()?;
            Some(format!("{name}: {why}"))
        });
        let whys: Vec<String> = whys.collect();
        return all.advise(
            "clock",
            Verdict::Unknown,
            format!("no authority stated its time{}{}", separator(&whys), whys.join("; ")),
            "if others cannot be reached either, look at the way out: firewall, proxy, name of the network",
        );
    };
    let how = match skew {
        0 => "right to the second".to_owned(),
        skew if *skew > 0 => format!("{skew} seconds ahead of"),
        skew => format!("{} seconds behind", skew.unsigned_abs()),
    };
    let text = match skew {
        0 => format!("the clock is {how}, by {} authorities", skews.len()),
        _ => format!("the clock is {how} that of {} authorities", skews.len()),
    };
    let advice = "set it, best by NTP (timedatectl set-ntp true)";
    match skew.unsigned_abs() {
        off if off <= SKEW => all.add("clock", Verdict::Good, text),
        off if off <= BAD_SKEW => all.advise("clock", Verdict::Warning, text, advice),
        _ => all.advise("clock", Verdict::Bad, text, advice),
    }
}

fn separator(of: &[String]) -> &'static str {
    match of {
        [] => "",
        _ => ": ",
    }
}

fn consensus(facts: &Facts, all: &mut Answers) {
    let Some(consensus) = &facts.consensus else {
        return all.advise(
            "consensus",
            match facts.runs() {
                true => Verdict::Warning,
                false => Verdict::Unknown,
            },
            "none is kept: the node has not read the network's list of relays yet",
            "wait a minute after its first start; then look at its log for `Problem bootstrapping`",
        );
    };
    let now = stamp(facts.now);
    let [after, fresh, until] = &consensus.times;
    let text = format!("of {after} UTC, with {} relays", consensus.relays);
    match () {
        () if now < *after => all.advise(
            "consensus",
            Verdict::Bad,
            format!("{text}: it begins in the future of this machine's clock ({now})"),
            "set the clock, best by NTP",
        ),
        () if consensus.has_ended(facts.now) && !facts.is_relay => all.advise(
            "consensus",
            Verdict::Warning,
            format!("{text}: it ended at {until}, and it is {now} now. A client that is idle for a day fetches none"),
            "it fetches one when it is used; if it does not, look at its log, at the way out, and at the clock",
        ),
        () if consensus.has_ended(facts.now) => all.advise(
            "consensus",
            Verdict::Bad,
            format!("{text}: it ended at {until}, and it is {now} now"),
            "a node that runs fetches a newer one: look at its log, at the way out, and at the clock",
        ),
        () if now > *fresh => all.add("consensus", Verdict::Good, format!("{text}; a newer one is due")),
        () => all.add("consensus", Verdict::Good, text),
    }
    version(consensus, all);
}

/// Checks the version against those of C tor that the consensus recommends: the version that Weft
/// follows should be one of them.
fn version(consensus: &Consensus, all: &mut Answers) {
    // `0.4.9.11 (Weft-1.0.0)`.
    let own = VERSION.split(' ').next().unwrap_or(VERSION);
    let listed = || consensus.versions.split(',');
    let newest = listed().max_by_key(|version| numbers(version));
    let Some(newest) = newest.filter(|newest| !newest.is_empty()) else {
        return;
    };
    let recommended = listed().any(|version| version == own);
    let text = format!(
        "Weft {} speaks as C tor {own} does",
        env!("CARGO_PKG_VERSION")
    );
    match (recommended, numbers(own).cmp(&numbers(newest))) {
        (true, _) => all.add(
            "version",
            Verdict::Good,
            format!("{text}, which the consensus recommends"),
        ),
        (false, Ordering::Greater | Ordering::Equal) => all.add(
            "version",
            Verdict::Good,
            format!(
                "{text}, which is newer than all that the consensus recommends (up to {newest})"
            ),
        ),
        (false, Ordering::Less) => all.advise(
            "version",
            Verdict::Warning,
            format!("{text}; the consensus recommends up to {newest}, and no longer that one"),
            "see whether there is a newer Weft",
        ),
    }
}

/// `0.4.9.11-dev`: its numbers.
fn numbers(version: &str) -> Vec<u32> {
    let plain = version.split('-').next().unwrap_or_default();
    let numbers = plain.trim().split('.').map(str::parse);
    numbers.collect::<Result<_, _>>().unwrap_or_default()
}

fn relay(facts: &Facts, all: &mut Answers) {
    if !facts.is_relay {
        return;
    }
    let listed = facts.consensus.as_ref().and_then(|of| of.listed.as_ref());
    reachable(facts, listed, all);
    match listed {
        // Authorities of bridges keep their list to themselves.
        _ if facts.is_bridge => {}
        Some(listed) => flags(facts, listed, all),
        None => unlisted(facts, all),
    }
    floods(facts, all);
}

fn reachable(facts: &Facts, listed: Option<&Listed>, all: &mut Answers) {
    const ABOUT: &str = "reachable";
    let node = facts.node.as_ref().and_then(|node| node.as_ref().ok());
    let by_node = |key: &str| node.and_then(|values| values.get(key)).map(String::as_str);
    let consensus = facts.consensus.as_ref();
    let valid = consensus.filter(|consensus| !consensus.has_ended(facts.now));
    let running = listed.filter(|listed| listed.flags.contains(&"Running"));
    if let (Some(consensus), Some(listed)) = (valid, running) {
        let after = &consensus.times[0];
        let at = places(listed.or_ports.iter().copied());
        let text = format!("the authorities reach it{at}, by the consensus of {after} UTC");
        return all.add(ABOUT, Verdict::Good, text);
    }
    let mut at = places(facts.own.iter().filter_map(|own| own.address));
    if let Some(address) = by_node("address").filter(|_| at.is_empty()) {
        at = format!(" at {address}");
    }
    let reached = by_node("status/reachability-succeeded/or");
    match reached {
        // A node that assumes it, and one that does not know its own address, answer the same.
        Some("1") if !facts.assumes && !at.is_empty() => {
            all.add(ABOUT, Verdict::Good, format!("it was reached from outside{at}"));
        }
        _ if facts.assumes => {
            let text = format!("it is assumed that others reach it{at} (AssumeReachable)");
            return all.add(ABOUT, Verdict::Unknown, text);
        }
        _ if at.is_empty() => return no_address(facts, node.is_some(), all),
        Some(_) => all.advise(
            ABOUT,
            Verdict::Bad,
            format!("nobody has reached it from outside{at} yet"),
            "wait some minutes after a start; then look at the firewall, at port forwarding, and at Address",
        ),
        None => all.add(
            ABOUT,
            Verdict::Unknown,
            format!("whether others reach it{at} is known to the authorities, once they list it, and to the node, by its control port"),
        ),
    }
    let refused = facts
        .own
        .iter()
        .filter(|_| facts.scope.network && facts.runs());
    for own in refused {
        // Routers often do not lead back what a machine behind them sends to their own address.
        if let Err(why) = &own.answer {
            all.add(
                "own address",
                Verdict::Unknown,
                format!(
                    "from this machine {} does not answer with the relay's keys: {why}",
                    own.what
                ),
            );
        }
    }
}

/// ` at ADDRESS and ADDRESS`; nothing, if there is none.
fn places(of: impl Iterator<Item = SocketAddr>) -> String {
    let all: Vec<String> = of.map(|at| at.to_string()).collect();
    match all.as_slice() {
        [] => String::new(),
        all => format!(" at {}", all.join(" and ")),
    }
}

/// No address was found at which others could reach the relay.
fn no_address(facts: &Facts, node_answers: bool, all: &mut Answers) {
    const ABOUT: &str = "reachable";
    const ADVICE: &str =
        "set Address to the address at which others reach this machine, or name it in ORPort";
    if facts.names_unread {
        let text = "the host that Address names was not looked up";
        return all.add(ABOUT, Verdict::Unknown, text);
    }
    match node_answers {
        // It may learn one from an authority.
        true => all.advise(
            ABOUT,
            Verdict::Unknown,
            "neither torrc nor this machine has an address that can be published, and the running node has none yet",
            ADVICE,
        ),
        false => all.advise(
            ABOUT,
            Verdict::Bad,
            "no address of this machine can be published",
            ADVICE,
        ),
    }
}

/// Flags that an operator asks for, and when the authorities give them (dir-spec 3.4.2).
const WANTED: [(&str, &str); 5] = [
    (
        "Fast",
        "its measured bandwidth is at least 100 KB/s, or more than that of an eighth of the relays",
    ),
    (
        "Stable",
        "its mean time between failures is that of the better half, or a week",
    ),
    (
        "Guard",
        "it is Fast, Stable and V2Dir, was up 98 % of the time for about eight days, and is among the faster quarter or has 2 MB/s",
    ),
    (
        "HSDir",
        "it is Fast and Stable, serves the directory, and has been up for four days",
    ),
    (
        "V2Dir",
        "it serves the directory (DirCache 1, and 300 MB of memory)",
    ),
];

fn flags(facts: &Facts, listed: &Listed, all: &mut Answers) {
    let text = format!(
        "with flags {}, weight {} ({:.3} % of all)",
        listed.flags.join(" "),
        listed.bandwidth,
        listed.part * 100.0
    );
    all.add("listed", Verdict::Good, text);
    let own = facts.own.iter().filter_map(|own| own.address);
    let elsewhere: Vec<String> = listed
        .or_ports
        .iter()
        .filter(|at| !own.clone().any(|own| own == **at))
        .map(ToString::to_string)
        .collect();
    if !elsewhere.is_empty() && !facts.own.is_empty() {
        all.advise(
            "listed",
            Verdict::Warning,
            format!("the consensus has it at {}, which is no address of this machine", elsewhere.join(" and ")),
            "if it was moved, wait for the next hour; if it still runs there, end one of the two: relays with the same keys harm each other",
        );
    }
    for (flag, text) in [
        (
            "BadExit",
            "the authorities keep clients from leaving the network here (BadExit)",
        ),
        (
            "MiddleOnly",
            "the authorities let it be in the middle of circuits alone (MiddleOnly)",
        ),
        (
            "StaleDesc",
            "its descriptor is older than 18 hours (StaleDesc)",
        ),
    ] {
        if listed.flags.contains(&flag) {
            all.advise(
                "listed",
                Verdict::Warning,
                text,
                "look at its log; of the first two the authorities tell why: bad-relays@lists.torproject.org",
            );
        }
    }
    for (flag, when) in WANTED {
        let expected = facts.is_cache || !matches!(flag, "HSDir" | "V2Dir" | "Guard");
        if expected && !listed.flags.contains(&flag) {
            all.add(
                "flags",
                Verdict::Good,
                format!("no {flag} yet: authorities give it when {when}"),
            );
        }
    }
    if facts.is_exit && !listed.flags.contains(&"Exit") {
        all.add(
            "flags",
            Verdict::Good,
            "no Exit: authorities give it to a policy with two of the ports 80, 443 and 6667 for at least a /8",
        );
    }
}

fn unlisted(facts: &Facts, all: &mut Answers) {
    const ABOUT: &str = "listed";
    if !facts.publishes {
        return all.add(
            ABOUT,
            Verdict::Good,
            "not, as torrc has it: PublishServerDescriptor 0, or authorities that were not asked",
        );
    }
    match &facts.consensus {
        Some(of) => all.advise(
            ABOUT,
            Verdict::Warning,
            format!("the consensus of {} UTC does not list it", of.times[0]),
            "a relay is listed at the full hour or the one after it was found reachable. If it is not then, its log has what the \
             authorities answered to its descriptor",
        ),
        None => all.add(ABOUT, Verdict::Unknown, "no consensus is kept yet"),
    }
}

fn floods(facts: &Facts, all: &mut Answers) {
    let names = ["circuits", "connections"];
    let by_consensus = facts.consensus.as_ref().map(|of| of.floods);
    let states = names.into_iter().enumerate().map(|(at, name)| {
        let own = facts.floods.get(at).copied().flatten();
        let theirs = by_consensus.and_then(|of| of.get(at).copied());
        let (on, by) = match (own, theirs) {
            (Some(on), _) => (Some(on), "torrc"),
            (None, Some(on)) => (Some(on), "the consensus"),
            (None, None) => (None, "the consensus, which is not known yet"),
        };
        let how = match on {
            Some(true) => "are limited",
            Some(false) => "are not limited",
            None => "go",
        };
        (on, format!("{name} of one address {how} by {by}"))
    });
    let states: Vec<_> = states.collect();
    let texts: Vec<&str> = states.iter().map(|(_, text)| text.as_str()).collect();
    let text = format!(
        "{}; memory, files and onionskins are shared fairly among previous hops in any case",
        texts.join(", ")
    );
    match states.iter().any(|(on, _)| *on == Some(false)) {
        false => all.add("floods", Verdict::Good, text),
        true => all.advise(
            "floods",
            Verdict::Warning,
            text,
            "leave DoSCircuitCreationEnabled and DoSConnectionEnabled at auto, so that the consensus sets them, or set them to 1",
        ),
    }
}

fn client(facts: &Facts, all: &mut Answers) {
    if !facts.is_client {
        return;
    }
    let answers = |entry: &Tried| entry.answer.is_ok();
    for entry in &facts.entries {
        match (&entry.answer, facts.scope.network, entry.address) {
            (Ok(()), true, Some(at)) => {
                all.add(
                    "entry",
                    Verdict::Good,
                    format!("{} answers at {at}", entry.what),
                );
            }
            (Ok(()), ..) => all.add(
                "entry",
                Verdict::Unknown,
                format!("{}, not asked", entry.what),
            ),
            (Err(why), _, at) => {
                let at = at.map_or_else(String::new, |at| format!(" at {at}"));
                // Others take its place.
                let verdict = match facts.entries.iter().any(answers) {
                    true => Verdict::Warning,
                    false => Verdict::Bad,
                };
                all.add(
                    "entry",
                    verdict,
                    format!("{} does not answer{at}: {why}", entry.what),
                );
            }
        }
    }
    if facts.entries.is_empty() {
        all.add("entry", Verdict::Unknown, "no guard was used yet");
    }
}
