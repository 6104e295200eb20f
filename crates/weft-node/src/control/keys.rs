//! The keys of GETINFO, as `info/names` lists them.

use weft_trust::{Limit, Payer};

/// Each key, its description and what bounds its value, sorted by key. A key that ends with `*` takes an argument there.
pub(crate) const KEYS: [(&str, &str, Limit); 126] = [
    (
        "accounting/bytes",
        "Number of bytes read/written so far in the accounting interval.",
        VALUE,
    ),
    (
        "accounting/bytes-left",
        "Number of bytes left to write/read so far in the accounting interval.",
        VALUE,
    ),
    (
        "accounting/enabled",
        "Is accounting currently enabled?",
        VALUE,
    ),
    (
        "accounting/hibernating",
        "Are we hibernating or awake?",
        VALUE,
    ),
    (
        "accounting/interval-end",
        "Time when the accounting period ends.",
        VALUE,
    ),
    (
        "accounting/interval-start",
        "Time when the accounting period starts.",
        VALUE,
    ),
    (
        "accounting/interval-wake",
        "Time to wake up in this accounting period.",
        VALUE,
    ),
    (
        "address",
        "IP address of this Tor host, if we can guess it.",
        VALUE,
    ),
    ("address-mappings/all", "Current address mappings.", TABLE),
    (
        "address-mappings/cache",
        "Current cached DNS replies.",
        TABLE,
    ),
    (
        "address-mappings/config",
        "Current address mappings from configuration.",
        TABLE,
    ),
    (
        "address-mappings/control",
        "Current address mappings from controller.",
        TABLE,
    ),
    (
        "address/v4",
        "IPv4 address of this Tor host, if we can guess it.",
        VALUE,
    ),
    (
        "address/v6",
        "IPv6 address of this Tor host, if we can guess it.",
        VALUE,
    ),
    (
        "bw-event-cache",
        "Cached BW events for a short interval.",
        TABLE,
    ),
    (
        "circuit-pool",
        "List of current circuits with build time, round trip, weight and use. Weft's own.",
        TABLE,
    ),
    (
        "circuit-status",
        "List of current circuits originating here.",
        TABLE,
    ),
    (
        "config-can-saveconf",
        "Is it possible to save the configuration to the \"torrc\" file?",
        VALUE,
    ),
    (
        "config-defaults-file",
        "Current location of the defaults file.",
        VALUE,
    ),
    (
        "config-file",
        "Current location of the \"torrc\" file.",
        VALUE,
    ),
    (
        "config-text",
        "Return the string that would be written by a saveconf command.",
        CONFIGURATION,
    ),
    ("config/*", "Current configuration values.", CONFIGURATION),
    (
        "config/defaults",
        "List of default values for configuration options. See also config/names",
        CONFIGURATION,
    ),
    (
        "config/names",
        "List of configuration options, types, and documentation.",
        CONFIGURATION,
    ),
    (
        "consensus/*",
        "Information about and from the ns consensus.",
        VALUE,
    ),
    (
        "consensus/fresh-until",
        "Time until which the consensus is the newest.",
        VALUE,
    ),
    (
        "consensus/packages",
        "Recommended packages from the consensus.",
        VALUE,
    ),
    (
        "consensus/valid-after",
        "Time from which the consensus may be used.",
        VALUE,
    ),
    (
        "consensus/valid-until",
        "Time until which the consensus may be used.",
        VALUE,
    ),
    ("current-time/*", "Current time.", VALUE),
    (
        "current-time/local",
        "Current time on the local system.",
        VALUE,
    ),
    ("current-time/utc", "Current UTC time.", VALUE),
    (
        "desc/all-recent",
        "All non-expired, non-superseded router descriptors.",
        DOCUMENTS,
    ),
    (
        "desc/download-enabled",
        "Do we try to download router descriptors?",
        VALUE,
    ),
    ("desc/id/*", "Router descriptors by ID.", DOCUMENTS),
    ("desc/name/*", "Router descriptors by nickname.", DOCUMENTS),
    (
        "dir/server/*",
        "Router descriptors as retrieved from a DirPort.",
        DOCUMENTS,
    ),
    (
        "dir/status-vote/current/consensus",
        "v3 Networkstatus consensus as retrieved from a DirPort.",
        DOCUMENTS,
    ),
    (
        "dir/status-vote/current/consensus-microdesc",
        "v3 Microdescriptor consensus as retrieved from a DirPort.",
        DOCUMENTS,
    ),
    (
        "dir/status/*",
        "v2 networkstatus docs as retrieved from a DirPort.",
        DOCUMENTS,
    ),
    (
        "dormant",
        "Is Tor dormant (not building circuits because it's idle)?",
        VALUE,
    ),
    (
        "downloads/bridge/*",
        "Download statuses for bridge descriptors, by bridge identity digest",
        TABLE,
    ),
    (
        "downloads/bridge/<desc>",
        "Return a download status for a given bridge identity digest",
        TABLE,
    ),
    (
        "downloads/bridge/bridges",
        "Return a list of configured bridge identity digests with download statuses",
        TABLE,
    ),
    (
        "downloads/cert/*",
        "Download statuses for certificates, by id fingerprint and signing key",
        TABLE,
    ),
    (
        "downloads/cert/fp/<fp>",
        "Download status for <fp> with the default signing key; corresponds to /fp/ URLs on directory server.",
        TABLE,
    ),
    (
        "downloads/cert/fp/<fp>/<sk>",
        "Download status for <fp> with signing key <sk>; corresponds to /fp-sk/ URLs on directory server.",
        TABLE,
    ),
    (
        "downloads/cert/fp/<fp>/sks",
        "List of signing keys for which specific download statuses are available for this id fingerprint",
        TABLE,
    ),
    (
        "downloads/cert/fps",
        "List of authority fingerprints for which any download statuses exist",
        TABLE,
    ),
    (
        "downloads/desc/*",
        "Download statuses for router descriptors, by descriptor digest",
        TABLE,
    ),
    (
        "downloads/desc/<desc>",
        "Return a download status for a given descriptor digest",
        TABLE,
    ),
    (
        "downloads/desc/descs",
        "Return a list of known router descriptor digests",
        TABLE,
    ),
    (
        "downloads/networkstatus/*",
        "Download statuses for networkstatus objects",
        TABLE,
    ),
    (
        "downloads/networkstatus/microdesc",
        "Download status for current-mode microdesc download",
        TABLE,
    ),
    (
        "downloads/networkstatus/microdesc/bootstrap",
        "Download status for bootstrap-time microdesc download",
        TABLE,
    ),
    (
        "downloads/networkstatus/microdesc/running",
        "Download status for run-time microdesc download",
        TABLE,
    ),
    (
        "downloads/networkstatus/ns",
        "Download status for current-mode networkstatus download",
        TABLE,
    ),
    (
        "downloads/networkstatus/ns/bootstrap",
        "Download status for bootstrap-time networkstatus download",
        TABLE,
    ),
    (
        "downloads/networkstatus/ns/running",
        "Download status for run-time networkstatus download",
        TABLE,
    ),
    (
        "entry-guards",
        "Which nodes are we using as entry guards?",
        TABLE,
    ),
    (
        "events/names",
        "Events that the controller can ask for with SETEVENTS.",
        CONFIGURATION,
    ),
    (
        "exit-policy/default",
        "The default value appended to the configured exit policy.",
        CONFIGURATION,
    ),
    (
        "exit-policy/full",
        "The entire exit policy of onion router",
        CONFIGURATION,
    ),
    (
        "exit-policy/ipv4",
        "IPv4 parts of exit policy",
        CONFIGURATION,
    ),
    (
        "exit-policy/ipv6",
        "IPv6 parts of exit policy",
        CONFIGURATION,
    ),
    (
        "exit-policy/reject-private/default",
        "The default rules appended to the configured exit policy by ExitPolicyRejectPrivate.",
        CONFIGURATION,
    ),
    (
        "exit-policy/reject-private/relay",
        "The relay-specific rules appended to the configured exit policy by ExitPolicyRejectPrivate and/or ExitPolicyRejectLocalInterfaces.",
        CONFIGURATION,
    ),
    (
        "extra-info/digest/*",
        "Extra-info documents by digest.",
        DOCUMENTS,
    ),
    (
        "features/names",
        "What arguments can USEFEATURE take?",
        CONFIGURATION,
    ),
    ("fingerprint", "The relay's fingerprint.", VALUE),
    (
        "info/names",
        "List of GETINFO options, types, and documentation.",
        CONFIGURATION,
    ),
    ("ip-to-country/*", "Perform a GEOIP lookup", VALUE),
    (
        "limits/max-mem-in-queues",
        "Actual limit on memory in queues",
        VALUE,
    ),
    ("md/all", "All known microdescriptors.", DOCUMENTS),
    (
        "md/download-enabled",
        "Do we try to download microdescriptors?",
        VALUE,
    ),
    ("md/id/*", "Microdescriptors by ID", DOCUMENTS),
    ("md/name/*", "Microdescriptors by name", DOCUMENTS),
    ("net/listeners/*", "Bound addresses by type", TABLE),
    (
        "net/listeners/control",
        "Bound addresses of control ports",
        TABLE,
    ),
    (
        "net/listeners/dir",
        "Bound addresses of directory ports",
        TABLE,
    ),
    ("net/listeners/dns", "Bound addresses of DNS ports", TABLE),
    (
        "net/listeners/extor",
        "Bound addresses of extended OR ports",
        TABLE,
    ),
    (
        "net/listeners/httptunnel",
        "Bound addresses of HTTP tunnel ports",
        TABLE,
    ),
    (
        "net/listeners/metrics",
        "Bound addresses of metrics ports",
        TABLE,
    ),
    ("net/listeners/natd", "Bound addresses of NATD ports", TABLE),
    ("net/listeners/or", "Bound addresses of OR ports", TABLE),
    (
        "net/listeners/socks",
        "Bound addresses of SOCKS ports",
        TABLE,
    ),
    (
        "net/listeners/trans",
        "Bound addresses of transparent ports",
        TABLE,
    ),
    (
        "network-liveness",
        "Current opinion on whether the network is live",
        VALUE,
    ),
    (
        "ns/all",
        "Brief summary of router status (v2 directory format)",
        DOCUMENTS,
    ),
    (
        "ns/id/*",
        "Brief summary of router status by ID (v2 directory format).",
        DOCUMENTS,
    ),
    (
        "ns/name/*",
        "Brief summary of router status by nickname (v2 directory format).",
        DOCUMENTS,
    ),
    (
        "ns/purpose/*",
        "Brief summary of router status by purpose (v2 directory format).",
        DOCUMENTS,
    ),
    (
        "onions/current",
        "Onion services owned by the current control connection.",
        TABLE,
    ),
    (
        "onions/detached",
        "Onion services detached from the control connection.",
        TABLE,
    ),
    ("orconn-status", "A list of current OR connections.", TABLE),
    ("process/descriptor-limit", "File descriptor limit.", VALUE),
    (
        "process/pid",
        "Process id belonging to the main tor process.",
        VALUE,
    ),
    ("process/uid", "User id running the tor process.", VALUE),
    (
        "process/user",
        "Username under which the tor process is running.",
        VALUE,
    ),
    (
        "signal/names",
        "Signal names recognized by the SIGNAL command",
        CONFIGURATION,
    ),
    ("sr/current", "Get current shared random value.", VALUE),
    ("sr/previous", "Get previous shared random value.", VALUE),
    ("stats/ntor/*", "NTor circuit handshake stats.", VALUE),
    (
        "stats/ntor/assigned",
        "Assigned NTor circuit handshake stats.",
        VALUE,
    ),
    (
        "stats/ntor/requested",
        "Requested NTor circuit handshake stats.",
        VALUE,
    ),
    ("stats/tap/*", "TAP circuit handshake stats.", VALUE),
    (
        "stats/tap/assigned",
        "Assigned TAP circuit handshake stats.",
        VALUE,
    ),
    (
        "stats/tap/requested",
        "Requested TAP circuit handshake stats.",
        VALUE,
    ),
    (
        "status/accepted-server-descriptor",
        "Whether an authority has taken our descriptor.",
        VALUE,
    ),
    (
        "status/bootstrap-phase",
        "The last bootstrap phase status event that Tor sent.",
        VALUE,
    ),
    (
        "status/circuit-established",
        "Whether we think client functionality is working.",
        VALUE,
    ),
    (
        "status/clients-seen",
        "Breakdown of client countries seen by a bridge.",
        VALUE,
    ),
    (
        "status/enough-dir-info",
        "Whether we have enough up-to-date directory information to build circuits.",
        VALUE,
    ),
    (
        "status/fresh-relay-descs",
        "A fresh relay/ei descriptor pair for Tor's current state. Not stored.",
        VALUE,
    ),
    (
        "status/good-server-descriptor",
        "Whether an authority has taken our descriptor.",
        VALUE,
    ),
    (
        "status/reachability-succeeded",
        "Whether our ports were reached from outside.",
        VALUE,
    ),
    (
        "status/reachability-succeeded/dir",
        "Whether our DirPort was reached from outside, which there is none of.",
        VALUE,
    ),
    (
        "status/reachability-succeeded/or",
        "Whether our ORPort was reached from outside.",
        VALUE,
    ),
    (
        "status/version/current",
        "Status of the current version.",
        VALUE,
    ),
    (
        "status/version/recommended",
        "List of currently recommended versions.",
        VALUE,
    ),
    ("stream-status", "List of current streams.", TABLE),
    (
        "traffic/read",
        "Bytes read since the process was started.",
        VALUE,
    ),
    (
        "traffic/written",
        "Bytes written since the process was started.",
        VALUE,
    ),
    ("uptime", "Uptime of the Tor daemon in seconds.", VALUE),
    ("version", "The current version of Tor.", VALUE),
];

const VALUE: Limit = Limit::new(
    "one line",
    Payer::Asker,
    &["getinfo_returns_values_or_a_552"],
);
const CONFIGURATION: Limit = Limit::new(
    "what torrc and the tables have",
    Payer::Asker,
    &["getinfo_returns_values_or_a_552"],
);
const TABLE: Limit = Limit::new(
    "a line for each circuit, stream, link, guard or port, whose numbers are bounded; a value of a peer ends no field",
    Payer::Asker,
    &["getinfo_returns_values_or_a_552", "no_value_ends_its_field"],
);
const DOCUMENTS: Limit = Limit::new(
    "documents that the node has verified and keeps: a consensus has {weft-dircache/src/answer.rs:MAX_BODY} bytes at most",
    Payer::Asker,
    &[
        "descriptors_of_a_directory_cache_are_shown",
        "without_a_consensus_keys_of_it_have_empty_values",
    ],
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_sorted() {
        assert!(KEYS.is_sorted_by(|a, b| a.0 < b.0));
    }

    #[test]
    fn descriptions_are_those_of_c_tor() {
        // control_getinfo.c
        let guards = ("entry-guards", "Which nodes are we using as entry guards?");
        assert!(KEYS.iter().any(|(key, text, _)| (*key, *text) == guards));
    }
}
