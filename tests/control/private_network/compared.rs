//! The same questions to the control ports of Weft and of C tor, in one network: whatever C tor answers, Weft
//! answers, too.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use weft_testnet::network::Node;
use weft_testnet::up::{Kind, More, Plan, Up};

use crate::control::asking::{Asker, Reply};
use crate::control::weft;

/// How long the two may have different consensuses: each fetches its next when it likes, within a minute.
const PATIENCE: Duration = Duration::from_secs(240);

/// What the two nodes that are compared do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Client,
    Relay,
}

/// Keys that C tor answers and Weft does not, and why. Those that end with a slash are prefixes.
const MISSING: [(Option<Role>, &str, &str); 7] = [
    (None, "hs/", "there are no onion services yet"),
    (
        Some(Role::Relay),
        "desc-annotations/",
        "Weft notes of no descriptor where it comes from",
    ),
    (
        Some(Role::Relay),
        "downloads/desc/",
        "Weft does not show how fetches of descriptors go",
    ),
    (
        Some(Role::Relay),
        "dir/status-vote/current/consensus",
        "either may be the first to have it",
    ),
    // Listed by C tor, and answered by nothing in it.
    (None, "network-status", "C tor does not know it either"),
    (None, "desc-annotations/id/*", "as above"),
    (None, "config/nope", "C tor does not know it either"),
];

/// Keys that Weft answers and C tor does not.
const OWN: [&str; 1] = ["circuit-pool"];

/// Keys whose values are the same on two nodes of one kind in one network.
const SAME: [&str; 26] = [
    "accounting/bytes-left",
    "accounting/enabled",
    "accounting/interval-end",
    "address-mappings/all",
    "config-can-saveconf",
    "consensus/fresh-until",
    "consensus/packages",
    "consensus/valid-after",
    "consensus/valid-until",
    "desc/download-enabled",
    "dir/status-vote/current/consensus-microdesc",
    "dormant",
    "downloads/cert/fps",
    "events/names",
    "exit-policy/default",
    "exit-policy/reject-private/default",
    "exit-policy/reject-private/relay",
    "features/names",
    "ip-to-country/ipv4-available",
    "ip-to-country/127.0.0.1",
    "md/download-enabled",
    "ns/all",
    "onions/current",
    "signal/names",
    "status/clients-seen",
    "status/good-server-descriptor",
];

/// An option whose default is that of C tor 0.4.9.12; the C tor here may be older.
const NEWER: &str = "MinimalAcceptedServerVersion";

/// The same of clients: a relay of Weft's builds no circuits of its own.
const SAME_OF_CLIENTS: [&str; 2] = ["status/circuit-established", "status/enough-dir-info"];

/// Whether Weft may leave this key unanswered.
fn may_miss(role: Role, key: &str) -> bool {
    MISSING.iter().any(|(only, missing, _)| {
        only.is_none_or(|only| only == role)
            && (key == *missing || missing.ends_with('/') && key.starts_with(missing))
    })
}

/// The first words of the lines of a list.
fn first_words(lines: &[String]) -> BTreeSet<String> {
    let word = |line: &String| line.split(' ').next().unwrap_or_default().to_owned();
    lines.iter().map(word).collect()
}

/// Two nodes of one kind.
struct Pair {
    role: Role,
    weft: Asker,
    tor: Asker,
    /// Options whose lines differ between the two torrcs.
    differ: BTreeSet<String>,
    /// What is wrong.
    wrong: Vec<String>,
}

impl Pair {
    fn new(role: Role, weft: &Node, tor: &Node) -> Result<Self> {
        let lines = |node: &Node| -> Result<BTreeSet<String>> {
            let text = fs::read_to_string(node.torrc())?;
            Ok(text.lines().map(str::to_owned).collect())
        };
        let (ours, theirs) = (lines(weft)?, lines(tor)?);
        let differ = ours.symmetric_difference(&theirs);
        let option = |line: &String| {
            line.split(' ')
                .next()
                .unwrap_or_default()
                .to_ascii_lowercase()
        };
        Ok(Self {
            role,
            weft: Asker::connect(weft)?,
            tor: Asker::connect(tor)?,
            differ: differ.map(option).collect(),
            wrong: Vec::new(),
        })
    }

    fn both(&mut self, command: &str) -> Result<(Reply, Reply)> {
        Ok((self.weft.ask(command)?, self.tor.ask(command)?))
    }

    fn both_values(&mut self, key: &str) -> Result<(Vec<String>, Vec<String>)> {
        Ok((self.weft.value(key)?, self.tor.value(key)?))
    }

    fn report(&mut self, what: String) {
        self.wrong.push(format!("{:?}: {what}", self.role));
    }

    /// Waits until both have one consensus, the certificate that it takes to check it and, as relays, this relay's
    /// descriptor: a node whose first fetch came too early tries again only after some seconds, and knows little until then.
    fn same_consensus(&mut self, relay: &str) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut answers = Vec::new();
            for key in ["downloads/cert/fps", "consensus/valid-after"] {
                let (ours, theirs) = self.both(&format!("GETINFO {key}"))?;
                let nothing = [format!("{key}="), "OK".to_owned()];
                let known = theirs.code == 250 && theirs.lines != nothing;
                answers.push((known && ours == theirs, ours, theirs));
            }
            if self.role == Role::Relay {
                let (ours, theirs) = self.both(&format!("GETINFO desc/id/{relay}"))?;
                answers.push((ours.code == 250 && theirs.code == 250, ours, theirs));
            }
            if answers.iter().all(|(same, _, _)| *same) {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "{:?}: no consensus that both have: {answers:?}",
                self.role
            );
            thread::sleep(Duration::from_millis(500));
        }
    }

    /// Every line of C tor's list is in Weft's. Spaces do not count: C tor's built-in authorities have some in
    /// their fingerprints.
    fn lists(&mut self, key: &str) -> Result<()> {
        let (ours, theirs) = self.both_values(key)?;
        let squeezed = |line: &String| line.replace(' ', "");
        let ours: BTreeSet<String> = ours.iter().map(squeezed).collect();
        ensure!(theirs.len() > 350, "{key}: {theirs:?}");
        for line in theirs.iter().filter(|line| !line.starts_with(NEWER)) {
            if !ours.contains(&squeezed(line)) {
                self.report(format!("{key} has no line {line:?}"));
            }
        }
        Ok(())
    }

    /// GETINFO of everything that one of the two lists, and of more.
    fn keys(&mut self, relay: (&str, &str)) -> Result<()> {
        let (ours, theirs) = self.both_values("info/names")?;
        for name in first_words(&theirs).difference(&first_words(&ours)) {
            if !may_miss(self.role, name) && !name.starts_with("hs/") {
                self.report(format!("info/names has no {name}"));
            }
        }
        let names = first_words(&[ours, theirs].concat());
        let mut keys: BTreeSet<String> = names
            .into_iter()
            .filter(|name| !name.contains(['*', '<']))
            .collect();
        keys.extend(self.instances(relay)?);
        for key in keys {
            let (ours, theirs) = self.both(&format!("GETINFO {key}"))?;
            let (had, has) = (theirs.code == 250, ours.code == 250);
            let wrong = match (had, has) {
                (true, true) => false,
                (true, false) => !may_miss(self.role, &key),
                (false, true) => !OWN.contains(&key.as_str()) && !may_miss(self.role, &key),
                (false, false) => ours != theirs && !may_miss(self.role, &key),
            };
            if wrong {
                self.report(format!("{key}: {ours:?}, and C tor {theirs:?}"));
            }
        }
        Ok(())
    }

    /// Keys with an argument, good and bad, and keys that nothing lists.
    fn instances(&mut self, (id, nickname): (&str, &str)) -> Result<Vec<String>> {
        let other = "AB".repeat(20);
        let authorities = self.tor.value("downloads/cert/fps")?;
        let authority = authorities
            .first()
            .context("C tor has no certificate")?
            .clone();
        let mut keys = Vec::new();
        for prefix in ["ns", "md", "desc"] {
            for what in [
                &format!("id/{id}"),
                &format!("id/${id}"),
                &format!("id/{other}"),
                "id/nope",
                &format!("name/{nickname}"),
                "name/nope",
                "nope",
            ] {
                keys.push(format!("{prefix}/{what}"));
            }
        }
        for what in [
            &authority,
            &format!("{authority}/sks"),
            &format!("{authority}/{other}"),
            &format!("{authority}/nope"),
            &other,
            &format!("{other}/sks"),
            &format!("{other}/{other}"),
            "nope",
            "nope/sks",
        ] {
            keys.push(format!("downloads/cert/fp/{what}"));
        }
        for kind in [
            "or",
            "dir",
            "socks",
            "trans",
            "natd",
            "dns",
            "control",
            "extor",
            "httptunnel",
            "metrics",
            "nope",
        ] {
            keys.push(format!("net/listeners/{kind}"));
        }
        for key in [
            &format!("desc-annotations/id/{id}"),
            &format!("extra-info/digest/{other}"),
            &format!("dir/server/fp/{id}"),
            &format!("dir/server/d/{other}"),
            "dir/server/all",
            "dir/server/authority",
            "dir/server/nope",
            "dir/status/all",
            "downloads/nope/x",
            "downloads/cert/nope",
            "downloads/networkstatus/nope",
            &format!("downloads/desc/{other}"),
            "downloads/desc/nope",
            &format!("downloads/bridge/{other}"),
            "downloads/bridge/nope",
            "ip-to-country/127.0.0.1",
            "ip-to-country/[::1]",
            "ip-to-country/nope",
            "ip-to-country/ipv4-available",
            "ip-to-country/ipv6-available",
            "consensus/valid-after",
            "consensus/valid-until",
            "consensus/fresh-until",
            "consensus/packages",
            "consensus/nope",
            "ns/purpose/general",
            "ns/purpose/bridge",
            "stats/ntor/nope",
            "stats/nope/assigned",
            "status/good-server-descriptor",
            "status/accepted-server-descriptor",
            "status/reachability-succeeded",
            "status/reachability-succeeded/or",
            "status/reachability-succeeded/dir",
            "status/nope",
            "exit-policy/nope",
            "address-mappings/nope",
            "current-time/nope",
            "config/nope",
            "helper-nodes",
            "fingerprint",
            "desc/all-recent-extrainfo-hack",
            "nope",
        ] {
            keys.push(key.to_owned());
        }
        Ok(keys)
    }

    /// Values that are the same on both, once both have the same consensus.
    fn values(&mut self, relay: (&str, &str)) -> Result<()> {
        let (id, nickname) = relay;
        let more = [
            format!("md/id/{id}"),
            format!("md/name/{nickname}"),
            format!("ns/id/{id}"),
            format!("ns/name/{nickname}"),
        ];
        let keys = SAME.iter().copied().chain(more.iter().map(String::as_str));
        let mut keys: Vec<&str> = keys.collect();
        if self.role == Role::Client {
            keys.extend(SAME_OF_CLIENTS);
        }
        let deadline = Instant::now() + PATIENCE;
        let mut different = Vec::new();
        while !keys.is_empty() && Instant::now() < deadline {
            different.clear();
            let mut still = Vec::new();
            for key in keys {
                let (ours, mut theirs) = self.both(&format!("GETINFO {key}"))?;
                if self.role == Role::Relay && key.starts_with("ns/") {
                    // Of the server descriptors that they fetch, C tor's relays know policies.
                    theirs.lines.retain(|line| !line.starts_with("p "));
                }
                if ours != theirs {
                    still.push(key);
                    different.push(format!("{key} is {ours:?}, and in C tor {theirs:?}"));
                }
            }
            keys = still;
            thread::sleep(Duration::from_millis(500));
        }
        for one in different {
            self.report(one);
        }
        // What is counted differs, how it is written does not.
        for key in [
            "downloads/networkstatus/microdesc",
            "downloads/networkstatus/microdesc/bootstrap",
            "downloads/networkstatus/microdesc/running",
            "downloads/networkstatus/ns/running",
        ] {
            let (ours, theirs) = self.both_values(key)?;
            if first_words(&ours) != first_words(&theirs) {
                self.report(format!("{key} is {ours:?}, and in C tor {theirs:?}"));
            }
        }
        Ok(())
    }

    /// SETEVENTS of every event, USEFEATURE of every feature.
    fn events(&mut self) -> Result<()> {
        let (_, events) = self.both_values("events/names")?;
        let names = events.first().context("no events")?.clone();
        for name in names
            .split(' ')
            .chain(["EXTENDED", "AUTHDIR_NEWDESCS", "PT_LOG", "NOPE"])
        {
            let (ours, theirs) = self.both(&format!("SETEVENTS {name}"))?;
            // Events of before may come first.
            if ours.code != theirs.code {
                self.report(format!("SETEVENTS {name}: {ours:?}, and C tor {theirs:?}"));
            }
        }
        for command in [
            "SETEVENTS",
            "USEFEATURE VERBOSE_NAMES",
            "USEFEATURE NOPE",
            "NOPE",
        ] {
            let (ours, theirs) = self.both(command)?;
            if ours != theirs {
                self.report(format!("{command}: {ours:?}, and C tor {theirs:?}"));
            }
        }
        Ok(())
    }

    /// GETCONF of every option of C tor's.
    fn options(&mut self) -> Result<()> {
        let names = first_words(&self.tor.value("config/names")?);
        ensure!(names.len() > 350, "only {} options", names.len());
        for name in names.iter().map(String::as_str).chain(["Nope", "nickname"]) {
            let plain = name.strip_suffix("Lines").unwrap_or(name);
            let differs = self.differ.contains(&plain.to_ascii_lowercase()) || plain == NEWER;
            let (ours, theirs) = self.both(&format!("GETCONF {name}"))?;
            let same = match differs {
                true => ours.code == theirs.code,
                false => ours == theirs,
            };
            if !same {
                self.report(format!("GETCONF {name}: {ours:?}, and C tor {theirs:?}"));
            }
        }
        Ok(())
    }

    /// Links have the nicknames of their relays.
    fn links(&mut self, nicknames: &BTreeMap<String, String>) -> Result<()> {
        let (ours, theirs) = self.both_values("orconn-status")?;
        let mut named = 0;
        for (whose, lines) in [("Weft", &ours), ("C tor", &theirs)] {
            for line in lines {
                let (target, status) = line.split_once(' ').unwrap_or((line, ""));
                let Some((id, nickname)) = target.split_once('~') else {
                    // A client's, or a relay's that no consensus lists.
                    continue;
                };
                let known = nicknames.get(id.trim_start_matches('$'));
                if known.is_none_or(|known| known != nickname)
                    || !["CONNECTED", "LAUNCHED", "NEW"].contains(&status)
                {
                    self.report(format!("{whose} has the link {line:?}"));
                }
                named += usize::from(whose == "Weft");
            }
        }
        if named == 0 {
            self.report(format!(
                "orconn-status names nobody: {ours:?}, and C tor {theirs:?}"
            ));
        }
        Ok(())
    }
}

/// ORCONN events have nicknames as well.
fn link_events(pair: &mut Pair, nicknames: &BTreeMap<String, String>) -> Result<()> {
    for (whose, asker) in [("Weft", &mut pair.weft), ("C tor", &mut pair.tor)] {
        asker.ask("SETEVENTS ORCONN")?;
        asker.ask("SETCONF DisableNetwork=1")?;
        asker.ask("SETCONF DisableNetwork=0")?;
        let named = asker.event(PATIENCE, |event| {
            let target = event.strip_prefix("650 ORCONN $")?.split(' ').next()?;
            let (id, nickname) = target.split_once('~')?;
            let known = nicknames.get(id).is_some_and(|known| known == nickname);
            (known && event.contains(" CONNECTED") && event.contains(" ID=")).then_some(())
        });
        named.with_context(|| format!("{whose}: no link with a nickname"))?;
        asker.ask("SETEVENTS")?;
    }
    Ok(())
}

#[test]
fn weft_answers_whatever_c_tor_answers() {
    let run = || -> Result<()> {
        let control = ["ControlPort auto", "CookieAuthentication 1"].map(str::to_owned);
        let network = Up::start(&Plan {
            relays_run: Kind::Mixed,
            exits_run: Kind::Mixed,
            clients: 2,
            clients_run: Kind::Mixed,
            more: More {
                relays: control.to_vec(),
                exits: control.to_vec(),
                ..More::default()
            },
            progress: |line| eprintln!("{line}"),
            ..Plan::of_weft(weft())
        })?;
        let mut listed = Asker::connect(network.node("client1")?)?;
        let nicknames = listed.relays()?;
        let relay = nicknames.iter().find(|(_, nickname)| *nickname == "relay0");
        let (id, nickname) = relay.context("relay0 is not listed")?;
        let mut wrong = Vec::new();
        for (role, weft, tor) in [
            (Role::Client, "client0", "client1"),
            (Role::Relay, "relay0", "relay1"),
            (Role::Relay, "exit0", "exit1"),
        ] {
            let (weft, tor) = (network.node(weft)?, network.node(tor)?);
            let mut pair = Pair::new(role, weft, tor)?;
            pair.same_consensus(id)?;
            pair.keys((id, nickname))?;
            pair.values((id, nickname))?;
            pair.events()?;
            pair.lists("config/names")?;
            pair.lists("config/defaults")?;
            pair.options()?;
            pair.links(&nicknames)?;
            if role == Role::Client {
                link_events(&mut pair, &nicknames)?;
            }
            wrong.append(&mut pair.wrong);
        }
        ensure!(
            wrong.is_empty(),
            "{} differ:\n{}",
            wrong.len(),
            wrong.join("\n")
        );
        network.stop()
    };
    run().unwrap_or_else(|error| panic!("{error:#}"));
}
