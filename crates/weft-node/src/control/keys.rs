//! The keys of GETINFO, as `info/names` lists them.

/// Each key and its description, sorted by key. A key that ends with `*` takes an argument there.
pub(super) const KEYS: [(&str, &str); 126] = [
    (
        "accounting/bytes",
        "Number of bytes read/written so far in the accounting interval.",
    ),
    (
        "accounting/bytes-left",
        "Number of bytes left to write/read so far in the accounting interval.",
    ),
    ("accounting/enabled", "Is accounting currently enabled?"),
    ("accounting/hibernating", "Are we hibernating or awake?"),
    (
        "accounting/interval-end",
        "Time when the accounting period ends.",
    ),
    (
        "accounting/interval-start",
        "Time when the accounting period starts.",
    ),
    (
        "accounting/interval-wake",
        "Time to wake up in this accounting period.",
    ),
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
    ("bw-event-cache", "Cached BW events for a short interval."),
    (
        "circuit-pool",
        "List of current circuits with build time, round trip, weight and use. Weft's own.",
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
    (
        "consensus/*",
        "Information about and from the ns consensus.",
    ),
    (
        "consensus/fresh-until",
        "Time until which the consensus is the newest.",
    ),
    (
        "consensus/packages",
        "Recommended packages from the consensus.",
    ),
    (
        "consensus/valid-after",
        "Time from which the consensus may be used.",
    ),
    (
        "consensus/valid-until",
        "Time until which the consensus may be used.",
    ),
    ("current-time/*", "Current time."),
    ("current-time/local", "Current time on the local system."),
    ("current-time/utc", "Current UTC time."),
    (
        "desc/all-recent",
        "All non-expired, non-superseded router descriptors.",
    ),
    (
        "desc/download-enabled",
        "Do we try to download router descriptors?",
    ),
    ("desc/id/*", "Router descriptors by ID."),
    ("desc/name/*", "Router descriptors by nickname."),
    (
        "dir/server/*",
        "Router descriptors as retrieved from a DirPort.",
    ),
    (
        "dir/status-vote/current/consensus",
        "v3 Networkstatus consensus as retrieved from a DirPort.",
    ),
    (
        "dir/status-vote/current/consensus-microdesc",
        "v3 Microdescriptor consensus as retrieved from a DirPort.",
    ),
    (
        "dir/status/*",
        "v2 networkstatus docs as retrieved from a DirPort.",
    ),
    (
        "dormant",
        "Is Tor dormant (not building circuits because it's idle)?",
    ),
    (
        "downloads/bridge/*",
        "Download statuses for bridge descriptors, by bridge identity digest",
    ),
    (
        "downloads/bridge/<desc>",
        "Return a download status for a given bridge identity digest",
    ),
    (
        "downloads/bridge/bridges",
        "Return a list of configured bridge identity digests with download statuses",
    ),
    (
        "downloads/cert/*",
        "Download statuses for certificates, by id fingerprint and signing key",
    ),
    (
        "downloads/cert/fp/<fp>",
        "Download status for <fp> with the default signing key; corresponds to /fp/ URLs on directory server.",
    ),
    (
        "downloads/cert/fp/<fp>/<sk>",
        "Download status for <fp> with signing key <sk>; corresponds to /fp-sk/ URLs on directory server.",
    ),
    (
        "downloads/cert/fp/<fp>/sks",
        "List of signing keys for which specific download statuses are available for this id fingerprint",
    ),
    (
        "downloads/cert/fps",
        "List of authority fingerprints for which any download statuses exist",
    ),
    (
        "downloads/desc/*",
        "Download statuses for router descriptors, by descriptor digest",
    ),
    (
        "downloads/desc/<desc>",
        "Return a download status for a given descriptor digest",
    ),
    (
        "downloads/desc/descs",
        "Return a list of known router descriptor digests",
    ),
    (
        "downloads/networkstatus/*",
        "Download statuses for networkstatus objects",
    ),
    (
        "downloads/networkstatus/microdesc",
        "Download status for current-mode microdesc download",
    ),
    (
        "downloads/networkstatus/microdesc/bootstrap",
        "Download status for bootstrap-time microdesc download",
    ),
    (
        "downloads/networkstatus/microdesc/running",
        "Download status for run-time microdesc download",
    ),
    (
        "downloads/networkstatus/ns",
        "Download status for current-mode networkstatus download",
    ),
    (
        "downloads/networkstatus/ns/bootstrap",
        "Download status for bootstrap-time networkstatus download",
    ),
    (
        "downloads/networkstatus/ns/running",
        "Download status for run-time networkstatus download",
    ),
    ("entry-guards", "Which nodes are we using as entry guards?"),
    (
        "events/names",
        "Events that the controller can ask for with SETEVENTS.",
    ),
    (
        "exit-policy/default",
        "The default value appended to the configured exit policy.",
    ),
    ("exit-policy/full", "The entire exit policy of onion router"),
    ("exit-policy/ipv4", "IPv4 parts of exit policy"),
    ("exit-policy/ipv6", "IPv6 parts of exit policy"),
    (
        "exit-policy/reject-private/default",
        "The default rules appended to the configured exit policy by ExitPolicyRejectPrivate.",
    ),
    (
        "exit-policy/reject-private/relay",
        "The relay-specific rules appended to the configured exit policy by ExitPolicyRejectPrivate and/or ExitPolicyRejectLocalInterfaces.",
    ),
    ("extra-info/digest/*", "Extra-info documents by digest."),
    ("features/names", "What arguments can USEFEATURE take?"),
    ("fingerprint", "The relay's fingerprint."),
    (
        "info/names",
        "List of GETINFO options, types, and documentation.",
    ),
    ("ip-to-country/*", "Perform a GEOIP lookup"),
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
    ("net/listeners/*", "Bound addresses by type"),
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
    (
        "ns/purpose/*",
        "Brief summary of router status by purpose (v2 directory format).",
    ),
    (
        "onions/current",
        "Onion services owned by the current control connection.",
    ),
    (
        "onions/detached",
        "Onion services detached from the control connection.",
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
    ("sr/current", "Get current shared random value."),
    ("sr/previous", "Get previous shared random value."),
    ("stats/ntor/*", "NTor circuit handshake stats."),
    (
        "stats/ntor/assigned",
        "Assigned NTor circuit handshake stats.",
    ),
    (
        "stats/ntor/requested",
        "Requested NTor circuit handshake stats.",
    ),
    ("stats/tap/*", "TAP circuit handshake stats."),
    (
        "stats/tap/assigned",
        "Assigned TAP circuit handshake stats.",
    ),
    (
        "stats/tap/requested",
        "Requested TAP circuit handshake stats.",
    ),
    (
        "status/accepted-server-descriptor",
        "Whether an authority has taken our descriptor.",
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
        "status/clients-seen",
        "Breakdown of client countries seen by a bridge.",
    ),
    (
        "status/enough-dir-info",
        "Whether we have enough up-to-date directory information to build circuits.",
    ),
    (
        "status/fresh-relay-descs",
        "A fresh relay/ei descriptor pair for Tor's current state. Not stored.",
    ),
    (
        "status/good-server-descriptor",
        "Whether an authority has taken our descriptor.",
    ),
    (
        "status/reachability-succeeded",
        "Whether our ports were reached from outside.",
    ),
    (
        "status/reachability-succeeded/dir",
        "Whether our DirPort was reached from outside, which there is none of.",
    ),
    (
        "status/reachability-succeeded/or",
        "Whether our ORPort was reached from outside.",
    ),
    ("status/version/current", "Status of the current version."),
    (
        "status/version/recommended",
        "List of currently recommended versions.",
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
        assert!(KEYS.contains(&guards));
    }
}
