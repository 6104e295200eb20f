//! Which lines of a C tor log mean that something was wrong.
//!
//! Every C tor of a private network runs with `ProtocolWarnings 1`, so that it warns about what a
//! peer does against the protocol instead of passing over it. Each warning counts, except those
//! that a private network on loopback brings about by itself; each of these stands here with its
//! reason.

/// Parts of warnings that say nothing about any relay's behaviour.
const ALLOWED: &[(&str, &str)] = &[
    ("You are running Tor as root", "tests run as root in containers"),
    ("is very low", "voting intervals of seconds, so that a network starts in seconds"),
    ("TestingTorNetwork is set", "it is a testing network"),
    ("This may lead to", "second line of the same remark about short intervals"),
    ("http status 404", "asked for a consensus before the first one exists"),
    ("Tor needs an accurate clock", "loopback clocks are equal; printed together with the above"),
    ("Consensus with empty bandwidth", "nobody has measured a network of seconds"),
    ("non-loopback addresses", "every address is 127.0.0.1"),
    ("internal address", "every address is 127.0.0.1"),
];

/// The warnings and errors in a log that are not explained by the network being private.
pub fn unexplained(log: &str) -> Vec<&str> {
    log.lines()
        .filter(|line| line.contains("[warn]") || line.contains("[err]"))
        .filter(|line| !ALLOWED.iter().any(|(part, _)| line.contains(part)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protocol_warning_is_unexplained_and_an_explained_one_is_not() {
        let log = "Nov 21 01:00:00.000 [notice] Bootstrapped 100% (done): Done\n\
                   Nov 21 01:00:01.000 [warn] You are running Tor as root. You don't need to.\n\
                   Nov 21 01:00:02.000 [warn] Got a bad signature on a networkstatus vote\n\
                   Nov 21 01:00:03.000 [err] Bug: assertion failed\n";
        let lines = unexplained(log);
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains("bad signature"));
        assert!(lines[1].contains("assertion"));
    }
}
