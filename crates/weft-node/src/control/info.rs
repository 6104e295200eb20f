//! GETINFO (control-spec 3.9; C tor: control_getinfo.c).

use std::time::SystemTime;

use nix::unistd::{User, geteuid};
use time::OffsetDateTime;

use super::backend::{Backend, Document, SIGNALS, Which};
use super::reply::Reply;
use super::view::{NodeView, iso_time};
use super::{events, settings};
use crate::torrc::{DumpKind, dump};

/// What can be asked for, and what it is; a `*` stands for more. Sorted.
const KEYS: [(&str, &str); 60] = [
    (
        "address",
        "IP address of this Tor host, if we can guess it.",
    ),
    ("address-mappings/all", "Current address mappings."),
    ("address-mappings/cache", "Current cached DNS replies."),
    (
        "address-mappings/config",
        "Current address mappings from configuration.",
    ),
    (
        "address-mappings/control",
        "Current address mappings from controller.",
    ),
    (
        "address/v4",
        "IPv4 address of this Tor host, if we can guess it.",
    ),
    (
        "address/v6",
        "IPv6 address of this Tor host, if we can guess it.",
    ),
    (
        "circuit-status",
        "List of current circuits originating here.",
    ),
    (
        "config-can-saveconf",
        "Is it possible to save the configuration to the \"torrc\" file?",
    ),
    (
        "config-defaults-file",
        "Current location of the defaults file.",
    ),
    ("config-file", "Current location of the \"torrc\" file."),
    (
        "config-text",
        "Return the string that would be written by a saveconf command.",
    ),
    ("config/*", "Current configuration values."),
    (
        "config/defaults",
        "List of default values for configuration options. See also config/names",
    ),
    (
        "config/names",
        "List of configuration options, types, and documentation.",
    ),
    ("current-time/local", "Current time on the local system."),
    ("current-time/utc", "Current UTC time."),
    (
        "desc/download-enabled",
        "Do we try to download router descriptors?",
    ),
    ("desc/id/*", "Router descriptors by ID."),
    ("desc/name/*", "Router descriptors by nickname."),
    (
        "dir/status-vote/current/consensus-microdesc",
        "v3 Microdescriptor consensus.",
    ),
    (
        "dormant",
        "Is Tor dormant (not building circuits because it's idle)?",
    ),
    ("entry-guards", "Which nodes are we using as entry guards?"),
    (
        "events/names",
        "Events that the controller can ask for with SETEVENTS.",
    ),
    ("features/names", "What arguments can USEFEATURE take?"),
    ("fingerprint", "The relay's fingerprint."),
    (
        "info/names",
        "List of GETINFO options, types, and documentation.",
    ),
    (
        "limits/max-mem-in-queues",
        "Actual limit on memory in queues",
    ),
    ("md/all", "All known microdescriptors."),
    (
        "md/download-enabled",
        "Do we try to download microdescriptors?",
    ),
    ("md/id/*", "Microdescriptors by ID"),
    ("md/name/*", "Microdescriptors by name"),
    ("net/listeners/control", "Bound addresses of control ports"),
    ("net/listeners/dir", "Bound addresses of directory ports"),
    ("net/listeners/dns", "Bound addresses of DNS ports"),
    (
        "net/listeners/extor",
        "Bound addresses of extended OR ports",
    ),
    (
        "net/listeners/httptunnel",
        "Bound addresses of HTTP tunnel ports",
    ),
    ("net/listeners/metrics", "Bound addresses of metrics ports"),
    ("net/listeners/natd", "Bound addresses of NATD ports"),
    ("net/listeners/or", "Bound addresses of OR ports"),
    ("net/listeners/socks", "Bound addresses of SOCKS ports"),
    (
        "net/listeners/trans",
        "Bound addresses of transparent ports",
    ),
    (
        "network-liveness",
        "Current opinion on whether the network is live",
    ),
    (
        "ns/all",
        "Brief summary of router status (v2 directory format)",
    ),
    (
        "ns/id/*",
        "Brief summary of router status by ID (v2 directory format).",
    ),
    (
        "ns/name/*",
        "Brief summary of router status by nickname (v2 directory format).",
    ),
    ("orconn-status", "A list of current OR connections."),
    ("process/descriptor-limit", "File descriptor limit."),
    (
        "process/pid",
        "Process id belonging to the main tor process.",
    ),
    ("process/uid", "User id running the tor process."),
    (
        "process/user",
        "Username under which the tor process is running.",
    ),
    (
        "signal/names",
        "Signal names recognized by the SIGNAL command",
    ),
    (
        "status/bootstrap-phase",
        "The last bootstrap phase status event that Tor sent.",
    ),
    (
        "status/circuit-established",
        "Whether we think client functionality is working.",
    ),
    (
        "status/enough-dir-info",
        "Whether we have enough directory information to build circuits.",
    ),
    ("stream-status", "List of current streams."),
    ("traffic/read", "Bytes read since the process was started."),
    (
        "traffic/written",
        "Bytes written since the process was started.",
    ),
    ("uptime", "Uptime of the Tor daemon in seconds."),
    ("version", "The current version of Tor."),
];

/// How a question ends.
enum Answer {
    /// With this.
    Value(String),
    /// There is no such thing; perhaps with something better to say than that.
    Unknown(Option<String>),
    /// It is known what is meant, but there is nothing to tell (551).
    Failed(&'static str),
}

/// The whole command.
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
    // One line stands in the reply's own; a controller reads both.
    let more = if all.len() > 1 { "\n" } else { "" };
    Answer::Value(all.join("\n") + more)
}

async fn answer<B: Backend>(backend: &B, node: &NodeView, version: &str, key: &str) -> Answer {
    if let Some(simple) = simple(node, version, key) {
        return simple;
    }
    match key {
        "circuit-status" => lines(backend.circuits().await.iter().map(|c| c.describe())),
        "stream-status" => lines(backend.streams().await.iter().map(|s| s.describe())),
        "orconn-status" => {
            let links = backend.links().await;
            lines(links.iter().map(|l| format!("{} {}", l.target, l.status)))
        }
        "entry-guards" | "helper-nodes" => lines(backend.guards().await),
        "status/bootstrap-phase" => match backend.bootstrap().await {
            Some(bootstrap) => Answer::Value(bootstrap.describe()),
            None => Answer::Value(
                "NOTICE BOOTSTRAP PROGRESS=0 TAG=starting SUMMARY=\"Starting\"".to_owned(),
            ),
        },
        "status/circuit-established" => bit(backend.readiness().await.0),
        "status/enough-dir-info" => bit(backend.readiness().await.1),
        "network-liveness" => {
            let live = backend.readiness().await.0;
            Answer::Value(if live { "up" } else { "down" }.to_owned())
        }
        "address-mappings/all"
        | "address-mappings/control"
        | "address-mappings/config"
        | "address-mappings/cache" => {
            // Nothing is cached; what torrc maps is told with what controllers map.
            let none = matches!(key, "address-mappings/cache" | "address-mappings/config");
            let maps = if none {
                Vec::new()
            } else {
                backend.maps().await
            };
            let expiry = |until: Option<String>| until.unwrap_or_else(|| "NEVER".to_owned());
            lines(
                maps.into_iter()
                    .map(|(from, to, until)| format!("{from} {to} {}", expiry(until))),
            )
        }
        _ => documents(backend, key).await,
    }
}

/// Documents of relays.
async fn documents<B: Backend>(backend: &B, key: &str) -> Answer {
    let (which, document) = match key {
        "ns/all" => (Which::All, Document::RouterStatus),
        "md/all" => (Which::All, Document::Microdescriptor),
        "dir/status-vote/current/consensus-microdesc" => (Which::All, Document::Consensus),
        _ => {
            let prefixes = [
                ("ns/", Document::RouterStatus),
                ("md/", Document::Microdescriptor),
                ("desc/", Document::Descriptor),
            ];
            let found = prefixes.iter().find_map(|(prefix, document)| {
                let rest = key.strip_prefix(prefix)?;
                if let Some(id) = rest.strip_prefix("id/") {
                    return Some((id_of(id)?, *document));
                }
                let name = rest.strip_prefix("name/")?;
                Some((Which::Name(name.to_owned()), *document))
            });
            match found {
                Some(found) => found,
                None => return Answer::Unknown(None),
            }
        }
    };
    let all = which == Which::All;
    match backend.document(which, document).await {
        Some(text) => Answer::Value(text),
        None if document == Document::Consensus => Answer::Failed(
            "Could not open cached consensus. Make sure FetchUselessDescriptors is set to 1.",
        ),
        None if document == Document::Descriptor => {
            let instead = key.replacen("desc/", "md/", 1);
            let (kind, _) = instead.rsplit_once('/').unwrap_or((&instead, ""));
            let (asked, _) = key.rsplit_once('/').unwrap_or((key, ""));
            Answer::Unknown(Some(format!(
                "We fetch microdescriptors, not router descriptors. You'll need to use {kind}/* \
                 instead of {asked}/*."
            )))
        }
        None if all => Answer::Value(String::new()),
        None => Answer::Unknown(None),
    }
}

/// A fingerprint, with or without `$`, and a nickname behind it that does not count.
fn id_of(text: &str) -> Option<Which> {
    let text = text.strip_prefix('$').unwrap_or(text);
    let digits = text.get(..40)?;
    let rest = text.get(40..)?;
    if !rest.is_empty() && !rest.starts_with(['~', '=']) {
        return None;
    }
    let bytes = hex::decode(digits).ok()?;
    Some(Which::Id(bytes.try_into().ok()?))
}

/// What is known without asking.
fn simple(node: &NodeView, version: &str, key: &str) -> Option<Answer> {
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
        "config-can-saveconf" => Some(bit(node.torrc.is_some())),
        "config/names" => value(settings::names()),
        "config/defaults" => value(settings::defaults(&node.defaults)),
        "info/names" => {
            let line = |(name, text): &(&str, &str)| format!("{name} -- {text}\n");
            value(KEYS.iter().map(line).collect())
        }
        "events/names" => value(events::NAMES.join(" ")),
        "signal/names" => {
            let names: Vec<_> = SIGNALS.iter().map(|(_, name)| *name).collect();
            value(names.join(" "))
        }
        "features/names" => value("VERBOSE_NAMES EXTENDED_EVENTS".to_owned()),
        "dormant" => Some(bit(false)),
        "desc/download-enabled" => Some(bit(false)),
        "md/download-enabled" => Some(bit(options.is_client())),
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
        _ => listeners(node, key),
    }
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
    if !KEYS.iter().any(|(known, _)| *known == key) {
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
    fn keys_are_sorted() {
        assert!(KEYS.is_sorted_by(|a, b| a.0 < b.0));
    }

    #[test]
    fn relays_are_asked_for_by_their_fingerprints() {
        let digits = "AB".repeat(20);
        let id = Some(Which::Id([0xab; 20]));
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
