//! Which lines of a C tor log mean that something was wrong.
//!
//! Every C tor of a private network runs with `ProtocolWarnings 1`, so that it warns about what a
//! peer does against the protocol instead of passing over it. Each warning counts, except those
//! that a private network on loopback brings about by itself; each of these stands here with its
//! reason.

/// Parts of warnings that say nothing about any relay's behaviour.
const ALLOWED: &[(&str, &str)] = &[
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
    ("approved-routers'. That's ok.", "a new authority"),
    // Authorities alone make and take diffs here, and fall back to whole consensuses.
    (
        "consensus diff",
        "a diff to a consensus that a slower authority did not have",
    ),
    ("[warn] Expected: ", "second line of the same"),
    ("sr-state", "a new authority has no shared-random state yet"),
];

/// Parts of warnings that count for nothing until the first common consensus. Voting intervals are
/// so short that authorities start within different ones, miss each other's first votes, and have
/// no consensus for those who ask.
const ALLOWED_AT_START: &[&str] = &[
    "status code 404 (\"Not found\") from server",
    "consensus",
    "Consensus",
    "valid-after time",
    "Rejected vote",
    "We just marked ourself as down",
];

/// The warnings and errors in a log that are not explained by the network being private. The first
/// `start` bytes of it were written before the network had its first common consensus.
pub fn unexplained(log: &str, start: usize) -> Vec<&str> {
    let mut at = 0;
    let mut found = Vec::new();
    for line in log.split_inclusive('\n') {
        let early = at < start;
        at += line.len();
        let matters = line.contains("[warn]") || line.contains("[err]");
        let explained = ALLOWED.iter().any(|(part, _)| line.contains(part))
            || (early && ALLOWED_AT_START.iter().any(|part| line.contains(part)));
        if matters && !explained {
            found.push(line.trim_end());
        }
    }
    found
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
        let lines = unexplained(log, 0);
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains("bad signature"));
        assert!(lines[1].contains("assertion"));
    }

    #[test]
    fn a_missed_vote_is_explained_at_the_start_and_not_later() {
        let vote = "Nov 21 01:00:00.000 [warn] We don't have enough votes to generate a consensus: 1 of 2\n";
        let log = vote.repeat(2);
        assert_eq!(unexplained(&log, vote.len()).len(), 1);
        assert_eq!(unexplained(&log, log.len()).len(), 0);
        assert_eq!(unexplained(&log, 0).len(), 2);
    }
}
