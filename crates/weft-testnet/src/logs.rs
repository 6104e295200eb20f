//! Lines of a node's log that mean a failure.
//!
//! Every C tor of a private network runs with `ProtocolWarnings 1`, so that it warns about what a
//! peer does against the protocol instead of passing over it. Each warning counts, C tor's and a
//! target's, except those that a private network on loopback brings about by itself; each of these
//! stands here with its reason.

/// Parts of warnings that are not about any relay's behaviour.
const ALLOWED: &[(&str, &str)] = &[
    (
        "does not speak with DirCache 0",
        "a relay that is no directory logs that, and authorities list it all the same",
    ),
    (
        "You are running Tor as root",
        "tests run as root in containers",
    ),
    (
        "you disabled SafeLogging",
        "addresses on loopback are no secret, and needed to find out what happened",
    ),
    (
        "You have used DirAuthority",
        "a private network has its own authorities",
    ),
    ("TestingTorNetwork is set", "it is a testing network"),
    (
        "is giving Tor only an IP address",
        "the traffic server has no name",
    ),
    (
        "is very low",
        "voting intervals of seconds, so that a network starts in seconds",
    ),
    (
        "names other authorities than the Tor network's",
        "the same in Weft's words",
    ),
    (
        "status code 404 (\"Not found\") from server",
        "asked for a consensus before the first one exists",
    ),
    (
        "Failed to choose an exit server",
        "C tor's exits look for another one before a consensus lists one",
    ),
    (
        "No available nodes when trying to choose node",
        "the first consensuses list few relays",
    ),
    (
        "matches the configured _HSLayer2Nodes set",
        "C tor's clients choose guards of a second layer for onion services, of which few relays leave none now and then",
    ),
    // Authorities alone make and take diffs here, and fall back to whole consensuses.
    (
        "consensus diff",
        "a diff to a consensus that a slower authority did not have",
    ),
    ("[warn] Expected: ", "second line of the same"),
];

/// Parts of warnings of authorities about each other, and about their own arithmetic. Voting intervals are so short that they start
/// within different ones, and that on a busy machine a vote comes too late; then there is one
/// consensus less. No target is an authority, so none can bring this about.
const ALLOWED_OF_AUTHORITIES: &[&str] = &[
    "consensus",
    "Consensus",
    "valid-after time",
    "Rejected vote",
    "'s posted vote from",
    "response after uploading vote",
    "response after uploading signatures",
    "Unable to store signatures posted by",
    "We just marked ourself as down",
    "sr-state",
    "approved-routers'. That's ok.",
    // The weights of few relays, all of which are guards, do not fit the cases of dir-spec.
    "Bw Weight Failure for Case",
];

/// The warnings and errors in the log of an authority or of another node that are not explained by
/// the network being private.
pub(crate) fn unexplained(log: &str, authority: bool) -> Vec<&str> {
    let of_authorities = if authority {
        ALLOWED_OF_AUTHORITIES
    } else {
        &[]
    };
    let explained = |line: &str| {
        ALLOWED.iter().any(|(part, _)| line.contains(part))
            || of_authorities.iter().any(|part| line.contains(part))
    };
    log.lines()
        .filter(|line| line.contains("[warn]") || line.contains("[err]"))
        .filter(|line| !explained(line))
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
        let lines = unexplained(log, false);
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains("bad signature"));
        assert!(lines[1].contains("assertion"));
    }

    #[test]
    fn a_missed_vote_is_an_authoritys_own_affair() {
        let log = "Nov 21 01:00:00.000 [warn] We don't have enough votes to generate a consensus: 1 of 2\n\
                   Nov 21 01:00:01.000 [warn] Rejecting auth2's posted vote from 127.0.0.1 received at \
                   2026-11-21 01:00:01; our cutoff for received votes is 2026-11-21 01:00:00.\n";
        assert_eq!(unexplained(log, true).len(), 0);
        assert_eq!(unexplained(log, false).len(), 2);
    }
}
