//! GETINFO (control-spec 3.9; C tor: control_getinfo.c).

use std::net::IpAddr;
use std::time::SystemTime;

use nix::unistd::{User, geteuid};
use time::OffsetDateTime;
use weft_client::MapSource;
use weft_config::{DumpKind, dump};
use weft_core::controller::Handled;
use weft_counts::accounting::iso_time as iso_time_of;
use weft_datadir::torrc::Torrc;

use super::backend::{Backend, Descriptors, DocumentKind, RelaySelector, SIGNALS};
use super::fields::Fields;
use super::keys::KEYS;
use super::reply::Reply;
use super::view::{NodeView, iso_time};
use super::{downloads, events, settings};

/// The result for one key.
enum Answer {
    Value(String),
    /// 552, with this text or the default one.
    Unknown(Option<String>),
    /// 551: the key exists, and its value is not available.
    Failed(&'static str),
}

/// Handles GETINFO. `version` is the version that controllers see.
pub(super) async fn get<B: Backend>(
    backend: &B,
    node: &NodeView,
    version: &str,
    keys: &[&str],
) -> Reply {
    let (mut found, mut unknown) = (Reply::default(), Reply::default());
    for key in keys {
        match answer(backend, node, version, key).await {
            Answer::Value(value) => found.add_value(key, &value),
            Answer::Unknown(text) => {
                let text = text.unwrap_or_else(|| format!("Unrecognized key \"{key}\""));
                unknown.add(552, text);
            }
            Answer::Failed(why) => return Reply::line(551, why),
        }
        if let Some(refusal) = found.if_too_long() {
            return refusal;
        }
    }
    if !unknown.is_empty() {
        return unknown;
    }
    found.add(250, "OK");
    found
}

fn bit(value: bool) -> Answer {
    Answer::Value(if value { "1" } else { "0" }.to_owned())
}

fn lines(all: impl IntoIterator<Item = String>) -> Answer {
    let all: Vec<String> = all.into_iter().collect();
    // A single line stays on the line of its key; several become data lines.
    let more = if all.len() > 1 { "\n" } else { "" };
    Answer::Value(all.join("\n") + more)
}

async fn answer<B: Backend>(backend: &B, node: &NodeView, version: &str, key: &str) -> Answer {
    if let Some(answer) = from_view(node, version, key) {
        return answer;
    }
    match key {
        "circuit-status" => lines(
            backend
                .circuits()
                .await
                .iter()
                .map(|c| c.fields().into_text()),
        ),
        "circuit-pool" => lines(backend.circuits().await.iter().map(|c| c.describe_pool())),
        "stream-status" => lines(backend.streams().await.iter().map(|s| s.describe())),
        "orconn-status" => {
            let links = backend.links().await;
            lines(links.iter().map(|l| format!("{} {}", l.target, l.status)))
        }
        "entry-guards" | "helper-nodes" => lines(backend.guards().await),
        "status/bootstrap-phase" => match backend.bootstrap().await.or(node.bootstrap.clone()) {
            Some(bootstrap) => Answer::Value(bootstrap.describe()),
            None => Answer::Value(
                "NOTICE BOOTSTRAP PROGRESS=0 TAG=starting SUMMARY=\"Starting\"".to_owned(),
            ),
        },
        "status/fresh-relay-descs" => match backend.fresh_descriptors().await {
            Ok(text) => Answer::Value(text),
            Err(why) => Answer::Failed(why),
        },
        "status/clients-seen" => Answer::Value(node.clients_seen.clone().unwrap_or_else(|| {
            let countries = backend.countries();
            weft_counts::extrainfo::nobody_seen(countries.knows(true) || countries.knows(false))
        })),
        "status/circuit-established" => bit(backend.readiness().await.0),
        "status/enough-dir-info" => bit(backend.readiness().await.1),
        "dormant" => bit(backend.is_dormant().await),
        "network-liveness" => {
            let live = backend.readiness().await.0;
            Answer::Value(if live { "up" } else { "down" }.to_owned())
        }
        "address-mappings/all"
        | "address-mappings/control"
        | "address-mappings/config"
        | "address-mappings/cache" => {
            let wanted = match key {
                "address-mappings/control" => Some(MapSource::Controller),
                "address-mappings/config" => Some(MapSource::Torrc),
                "address-mappings/cache" => Some(MapSource::LookUp),
                _ => None,
            };
            let maps = backend.maps().await.into_iter();
            let maps = maps.filter(|(.., source)| wanted.is_none_or(|wanted| wanted == *source));
            lines(maps.map(|(from, to, _)| {
                let mut fields = Fields::default();
                fields.word(from).word(to).word("NEVER");
                fields.into_text()
            }))
        }
        _ => match key.split_once('/') {
            Some(("ip-to-country", what)) => country(backend, what),
            Some(("downloads", what)) => {
                match downloads::answer(what, &*backend.downloads().await) {
                    Some(Ok(text)) => Answer::Value(text),
                    Some(Err(why)) => Answer::Failed(why),
                    None => Answer::Unknown(None),
                }
            }
            // Of no consensus C tor has an empty answer for every key.
            Some(("ns" | "consensus", _)) if !has_consensus(backend).await => {
                Answer::Value(String::new())
            }
            _ => match descriptors(backend, node, key).await {
                Some(answer) => answer,
                None => documents(backend, key).await,
            },
        },
    }
}

/// Keys of server descriptors and extra-info documents; `None`: it is none of these.
async fn descriptors<B: Backend>(backend: &B, node: &NodeView, key: &str) -> Option<Answer> {
    let none = || match keeps_descriptors(node) {
        true => Answer::Unknown(None),
        false => no_descriptors(key),
    };
    let (which, otherwise) = match key.split_once('/')? {
        ("extra-info", what) => {
            let unknown = || Answer::Unknown(None);
            let mut digest = [0; 20];
            match hex::decode_to_slice(what.strip_prefix("digest/")?, &mut digest) {
                Ok(()) => (Descriptors::ExtraInfo(digest), unknown()),
                Err(_) => return Some(unknown()),
            }
        }
        ("dir", what) => {
            let which = what.strip_prefix("server/")?.to_owned();
            (Descriptors::Servers(which), Answer::Failed(no_servers(key)))
        }
        ("desc", what) => match (what, what.split_once('/')) {
            // An empty list is a valid value.
            ("all-recent", _) => (
                Descriptors::Of(RelaySelector::All),
                Answer::Value(String::new()),
            ),
            ("all-recent-extrainfo-hack", _) => {
                (Descriptors::WithHistories, Answer::Value(String::new()))
            }
            (_, Some(("id", id))) => match id_of(id) {
                Some(which) => (Descriptors::Of(which), none()),
                None => return Some(none()),
            },
            (_, Some(("name", name))) => {
                let named = || RelaySelector::Nickname(name.to_owned());
                (Descriptors::Of(id_of(name).unwrap_or_else(named)), none())
            }
            _ => return None,
        },
        _ => return None,
    };
    let found = backend.descriptors(which).await;
    Some(found.map_or(otherwise, Answer::Value))
}

/// True if the node fetches server descriptors (`we_fetch_router_descriptors`).
fn keeps_descriptors(node: &NodeView) -> bool {
    node.options.is_relay() && node.options.directory.cache
}

async fn has_consensus<B: Backend>(backend: &B) -> bool {
    let until = backend.document(RelaySelector::All, DocumentKind::ValidUntil);
    until.await.is_some()
}

/// Keys of directory documents.
async fn documents<B: Backend>(backend: &B, key: &str) -> Answer {
    let (which, document) = match key {
        "ns/all" => (RelaySelector::All, DocumentKind::RouterStatus),
        "md/all" => (RelaySelector::All, DocumentKind::Microdescriptor),
        "dir/status-vote/current/consensus" => (RelaySelector::All, DocumentKind::ConsensusNs),
        "dir/status-vote/current/consensus-microdesc" => {
            (RelaySelector::All, DocumentKind::Consensus)
        }
        "consensus/valid-after" => (RelaySelector::All, DocumentKind::ValidAfter),
        "consensus/fresh-until" => (RelaySelector::All, DocumentKind::FreshUntil),
        "consensus/valid-until" => (RelaySelector::All, DocumentKind::ValidUntil),
        "sr/current" => (RelaySelector::All, DocumentKind::CurrentRandom),
        "sr/previous" => (RelaySelector::All, DocumentKind::PreviousRandom),
        "status/version/recommended" | "status/version/current" => {
            (RelaySelector::All, DocumentKind::Versions)
        }
        _ => {
            let prefixes = [
                ("ns/", DocumentKind::RouterStatus),
                ("md/", DocumentKind::Microdescriptor),
            ];
            let found = prefixes.iter().find_map(|(prefix, document)| {
                let rest = key.strip_prefix(prefix)?;
                if let Some(id) = rest.strip_prefix("id/") {
                    // `ns/id/` takes no nickname after the digits; `md/id/` ignores it.
                    let plain = *document != DocumentKind::RouterStatus || !id.contains(['~', '=']);
                    return Some((id_of(id).filter(|_| plain), *document));
                }
                let name = rest.strip_prefix("name/")?;
                let which = id_of(name).unwrap_or_else(|| RelaySelector::Nickname(name.to_owned()));
                Some((Some(which), *document))
            });
            match found {
                Some((Some(which), document)) => (which, document),
                Some((None, DocumentKind::RouterStatus)) => {
                    return Answer::Failed("Data not decodeable as hex");
                }
                Some((None, _)) | None => return Answer::Unknown(None),
            }
        }
    };
    let all = which == RelaySelector::All;
    match backend.document(which, document).await {
        Some(versions) if key == "status/version/current" => {
            // The consensus recommends versions of C tor, so that none applies to Weft.
            let none = versions.is_empty();
            Answer::Value(if none { "none recommended" } else { "unknown" }.to_owned())
        }
        None if key == "status/version/current" => Answer::Value("unknown".to_owned()),
        Some(text) => Answer::Value(text),
        None => match document {
            DocumentKind::Consensus | DocumentKind::ConsensusNs => Answer::Failed(
                "Could not open cached consensus. Make sure FetchUselessDescriptors is set to 1.",
            ),
            DocumentKind::ValidAfter | DocumentKind::FreshUntil | DocumentKind::ValidUntil => {
                Answer::Failed("No consensus available")
            }
            DocumentKind::Versions => Answer::Value("?".to_owned()),
            // A network of few authorities has none.
            DocumentKind::CurrentRandom | DocumentKind::PreviousRandom => {
                Answer::Value(String::new())
            }
            // An empty list is a valid value.
            DocumentKind::RouterStatus | DocumentKind::Microdescriptor if all => {
                Answer::Value(String::new())
            }
            DocumentKind::RouterStatus | DocumentKind::Microdescriptor => Answer::Unknown(None),
        },
    }
}

/// C tor's text for a `dir/server/…` key without descriptors on this node
/// (`dirserv_get_routerdescs`).
fn no_servers(key: &str) -> &'static str {
    let what = key.strip_prefix("dir/server/").unwrap_or_default();
    let known = ["authority", "all"].contains(&what) || what.starts_with("d/");
    match known || what.starts_with("fp/") {
        true => "Servers unavailable",
        false => "Key not recognized",
    }
}

/// The answer for keys of server descriptors where this node does not fetch any.
fn no_descriptors(key: &str) -> Answer {
    let (asked, _) = key.rsplit_once('/').unwrap_or((key, ""));
    let kind = asked.replacen("desc/", "md/", 1);
    Answer::Unknown(Some(format!(
        "We fetch microdescriptors, not router descriptors. You'll need to use {kind}/* instead \
         of {asked}/*."
    )))
}

/// Parses a fingerprint, with or without `$`; a nickname after it is ignored.
fn id_of(text: &str) -> Option<RelaySelector> {
    let text = text.strip_prefix('$').unwrap_or(text);
    let digits = text.get(..40)?;
    let rest = text.get(40..)?;
    if !rest.is_empty() && !rest.starts_with(['~', '=']) {
        return None;
    }
    let mut id = [0; 20];
    hex::decode_to_slice(digits, &mut id).ok()?;
    Some(RelaySelector::Id(id.into()))
}

/// Keys whose values the [`NodeView`] holds.
fn from_view(node: &NodeView, version: &str, key: &str) -> Option<Answer> {
    let options = &node.options;
    let value = |text: String| Some(Answer::Value(text));
    let path = |path: &Option<std::path::PathBuf>| {
        let path = path.as_ref();
        value(path.map_or_else(String::new, |path| path.display().to_string()))
    };
    match key {
        "version" => value(version.to_owned()),
        "config-file" => path(&node.torrc),
        "config-defaults-file" => path(&node.defaults_torrc),
        "config-text" => value(dump(&options.settings, &node.defaults, DumpKind::Short)),
        // As SAVECONF answers: a torrc that includes others is not replaced unless it must be.
        "config-can-saveconf" => {
            let torrc = node.torrc.as_deref().map(Torrc::read);
            let can = |torrc: Torrc| !torrc.includes_others();
            Some(bit(torrc.is_some_and(|torrc| torrc.is_ok_and(can))))
        }
        "config/names" => value(settings::names()),
        "config/defaults" => value(settings::defaults()),
        "info/names" => {
            let line = |name: &str, text: &str| format!("{name} -- {text}\n");
            value(
                KEYS.iter()
                    .map(|(name, text, _)| line(name, text))
                    .collect(),
            )
        }
        "events/names" => {
            // The last two are accepted for old controllers only, and not listed.
            let (listed, _) = events::EVENTS.split_at(events::EVENTS.len() - 2);
            value(
                listed
                    .iter()
                    .map(|(name, _)| *name)
                    .collect::<Vec<_>>()
                    .join(" "),
            )
        }
        "signal/names" => {
            let names: Vec<_> = SIGNALS.iter().map(|(_, name)| *name).collect();
            value(names.join(" "))
        }
        "features/names" => value("VERBOSE_NAMES EXTENDED_EVENTS".to_owned()),
        // Weft knows no relays of other purposes and does not read these lines of the consensus.
        "consensus/packages" => value(String::new()),
        _ if key.starts_with("ns/purpose/") || key.starts_with("dir/status/") => {
            value(String::new())
        }
        "status/good-server-descriptor" | "status/accepted-server-descriptor" => {
            Some(bit(node.accepted))
        }
        "status/reachability-succeeded/or" => Some(bit(node.reachable)),
        // There is no DirPort.
        "status/reachability-succeeded/dir" => Some(bit(true)),
        "status/reachability-succeeded" => value(format!("OR={} DIR=1", u8::from(node.reachable))),
        "bw-event-cache" => {
            let samples: Vec<String> = node
                .recent
                .iter()
                .map(|(r, w)| format!("{r},{w}"))
                .collect();
            value(samples.join(" "))
        }
        // Onion services are not supported yet.
        "onions/current" | "onions/detached" => value(String::new()),
        "desc/download-enabled" => Some(bit(keeps_descriptors(node))),
        "md/download-enabled" => {
            let serves = options.is_relay() && options.directory.cache;
            Some(bit(serves || options.is_client()))
        }
        "address" | "address/v4" => Some(address(node, true)),
        "address/v6" => Some(address(node, false)),
        "traffic/read" => value(node.read.to_string()),
        "traffic/written" => value(node.written.to_string()),
        "uptime" => value(node.started.elapsed().as_secs().to_string()),
        "process/pid" => value(std::process::id().to_string()),
        "process/uid" => value(geteuid().to_string()),
        "process/user" => {
            let user = User::from_uid(geteuid()).ok().flatten();
            value(user.map_or_else(String::new, |user| user.name))
        }
        "process/descriptor-limit" => value(node.max_files.to_string()),
        "limits/max-mem-in-queues" => value(node.max_queues.to_string()),
        "fingerprint" => Some(match &node.fingerprint {
            Some(fingerprint) => Answer::Value(fingerprint.clone()),
            None => Answer::Failed("Not running in server mode"),
        }),
        "current-time/utc" => value(iso_time(OffsetDateTime::now_utc(), 'T')),
        "current-time/local" => {
            value(crate::logging::local_iso(SystemTime::now()).replacen(' ', "T", 1))
        }
        _ => listeners(node, key)
            .or_else(|| accounting(node, key))
            .or_else(|| exit_policy(node, key))
            .or_else(|| handshakes(node, key)),
    }
}

/// `accounting/WHAT` (getinfo_helper_accounting).
fn accounting(node: &NodeView, key: &str) -> Option<Answer> {
    let view = &node.accounting;
    let pair = |(read, written): (u64, u64)| Answer::Value(format!("{read} {written}"));
    let (start, wake, end) = view.interval;
    let time = |moment| Answer::Value(iso_time_of(moment));
    Some(match key.strip_prefix("accounting/")? {
        "enabled" => bit(view.enabled),
        "hibernating" if node.exiting => Answer::Value("exiting".to_owned()),
        "hibernating" => Answer::Value(view.phase.name().to_ascii_lowercase()),
        "bytes" => pair(view.bytes),
        "bytes-left" => pair(view.left),
        "interval-start" => time(start),
        "interval-wake" => time(wake),
        "interval-end" => time(end),
        _ => return None,
    })
}

/// `stats/KIND/WHAT`: onionskins of relays since the start.
fn handshakes(node: &NodeView, key: &str) -> Option<Answer> {
    let what = key.strip_prefix("stats/")?;
    let counts = node.handshakes.unwrap_or_default();
    // TAP is not supported.
    let kind = match what.split_once('/') {
        Some(("ntor", _)) => counts.ntor,
        Some(("tap", _)) => Handled::default(),
        _ => return None,
    };
    let count = match what.split_once('/') {
        Some((_, "assigned")) => kind.processed,
        Some((_, "requested")) => kind.processed.saturating_add(kind.dropped),
        _ => return Some(Answer::Failed("Unrecognized handshake type")),
    };
    Some(Answer::Value(count.to_string()))
}

/// `ip-to-country/WHAT`.
fn country<B: Backend>(backend: &B, what: &str) -> Answer {
    match what {
        "ipv4-available" => return bit(backend.countries().knows(true)),
        "ipv6-available" => return bit(backend.countries().knows(false)),
        _ => {}
    }
    let bare = what
        .strip_prefix('[')
        .and_then(|what| what.strip_suffix(']'));
    let Ok(address) = bare.unwrap_or(what).parse::<IpAddr>() else {
        return Answer::Failed("Invalid address family");
    };
    let tables = backend.countries();
    if !tables.knows(address.is_ipv4()) {
        return Answer::Failed("GeoIP data not loaded");
    }
    let country = tables.of(address).map(char::from);
    Answer::Value(country.iter().collect())
}

/// `exit-policy/WHAT`.
fn exit_policy(node: &NodeView, key: &str) -> Option<Answer> {
    use weft_policy::{DEFAULT_EXIT_POLICY, Family, PRIVATE_NETS};
    let what = key.strip_prefix("exit-policy/")?;
    let families: &[Family] = match what {
        "default" => return Some(Answer::Value(DEFAULT_EXIT_POLICY.to_owned())),
        "reject-private/default" => {
            let nets: Vec<_> = PRIVATE_NETS
                .iter()
                .map(|net| format!("reject {net}:*"))
                .collect();
            return Some(Answer::Value(nets.join(",")));
        }
        "reject-private/relay" => return Some(own_rejected(node)),
        "full" => &[Family::V4, Family::V6],
        "ipv4" => &[Family::V4],
        "ipv6" => &[Family::V6],
        _ => return None,
    };
    let Some(policy) = &node.exit_policy else {
        return Some(Answer::Unknown(Some(
            "Not running in server mode".to_owned(),
        )));
    };
    if policy.rejects_all() {
        return Some(Answer::Value("reject *:*".to_owned()));
    }
    let entries = policy
        .entries()
        .iter()
        .filter(|e| families.contains(&e.family()));
    let rules: Vec<String> = entries.map(ToString::to_string).collect();
    Some(Answer::Value(rules.join("\n")))
}

/// `exit-policy/reject-private/relay`: the addresses that are rejected because they are the relay's own.
fn own_rejected(node: &NodeView) -> Answer {
    if node.exit_policy.is_none() {
        return Answer::Unknown(Some("Not running in server mode".to_owned()));
    }
    let rule = |address: &IpAddr| match address {
        IpAddr::V4(address) => format!("reject {address}:*"),
        IpAddr::V6(address) => format!("reject6 [{address}]:*"),
    };
    let rules: Vec<String> = node.rejected.iter().map(rule).collect();
    Answer::Value(rules.join("\n"))
}

fn address(node: &NodeView, v4: bool) -> Answer {
    let found = node
        .addresses
        .iter()
        .find(|address| address.is_ipv4() == v4);
    match found {
        Some(address) => Answer::Value(address.to_string()),
        None => Answer::Failed("Address unknown"),
    }
}

/// `net/listeners/KIND`.
fn listeners(node: &NodeView, key: &str) -> Option<Answer> {
    let kind = key.strip_prefix("net/listeners/")?;
    if kind == "*" || !KEYS.iter().any(|(known, ..)| *known == key) {
        return None;
    }
    let bound = node.listeners.iter().filter(|(known, _)| *known == kind);
    let quoted: Vec<_> = bound.map(|(_, at)| format!("\"{at}\"")).collect();
    Some(Answer::Value(quoted.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_select_relays() {
        let digits = "AB".repeat(20);
        let id = Some(RelaySelector::Id([0xab; 20].into()));
        for text in [
            digits.clone(),
            format!("${digits}"),
            format!("${digits}~name"),
        ] {
            assert_eq!(id_of(&text), id, "{text}");
        }
        for text in ["", "$AB", &format!("{digits}x")] {
            assert_eq!(id_of(text), None, "{text}");
        }
    }
}
