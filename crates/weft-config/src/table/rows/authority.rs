//! The authority of a private network.

options! {
    from super::bridges::END;

    /// Be a directory authority; in private networks only.
    opens AuthoritativeDirectory: Bool = "0";

    /// Be one that votes on the consensus.
    opens V3AuthoritativeDirectory: Bool = "0";

    /// Be an authority of bridges.
    opens BridgeAuthoritativeDir: Bool = "0",
        lost(&["0"], "this node will NOT be an authority of bridges");

    /// Recommend versions.
    opens VersioningAuthoritativeDirectory: Bool = "0",
        lost(&["0"], "the consensus will NOT recommend versions");

    /// An address and port, or a port, where the directory answers HTTP without encryption. It needs DirCache. Only an
    /// authority's is advertised.
    opens DirPort: LinesOf(DirPortLines);

    /// As DirPort, left out of dumps.
    opens __DirPort: LinesOf(DirPortLines), hidden;

    /// The lines of DirPort.
    list DirPortLines: LinesVirtual;

    /// Which addresses may use the DirPort: rules as of ExitPolicy, whose ports do not count; all others may.
    protects DirPolicy: Lines;

    /// A page, in HTML, that the DirPort shows to people.
    names DirPortFrontPage: Path;

    /// Parameters of the consensus: `name=value` words.
    publishes ConsensusParams: Lines;

    /// The time from one consensus to the next.
    tunes V3AuthVotingInterval: Seconds = "1 hour", in_testing("5 minutes");

    /// The time for votes.
    tunes V3AuthVoteDelay: Seconds = "5 minutes", in_testing("20 seconds");

    /// The time for signatures.
    tunes V3AuthDistDelay: Seconds = "5 minutes", in_testing("20 seconds");

    /// Voting intervals that a consensus is valid for.
    tunes V3AuthNIntervalsValid: PosInt = "3";

    /// Sign by a second, older key, too.
    tunes V3AuthUseLegacyKey: Bool = "0",
        lost(&["0"], "consensuses will NOT be signed by a second key");

    /// Measured bandwidths of relays.
    names V3BandwidthsFile: Path;

    /// How long relays have been guards.
    names GuardfractionFile: Path,
        harmless("in C tor, too, a consensus has guard fractions only where three authorities vote on them");

    /// Relays that get the flag BadExit.
    protects AuthDirBadExit: Lines,
        lost(&[], "relays of these addresses and countries will NOT have the flag BadExit");

    /// Countries whose relays get the flag BadExit.
    protects AuthDirBadExitCCs: Csv = "",
        lost(&[""], "relays of these addresses and countries will NOT have the flag BadExit");

    /// Relays that do not get the flag Valid.
    protects AuthDirInvalid: Lines,
        lost(&[], "relays of these addresses and countries will NOT lack the flag Valid");

    /// Countries whose relays do not get the flag Valid.
    protects AuthDirInvalidCCs: Csv = "",
        lost(&[""], "relays of these addresses and countries will NOT lack the flag Valid");

    /// Relays that may be middle hops only.
    protects AuthDirMiddleOnly: Lines,
        lost(&[], "relays of these addresses and countries will NOT be middle hops only");

    /// Countries whose relays may be middle hops only.
    protects AuthDirMiddleOnlyCCs: Csv = "",
        lost(&[""], "relays of these addresses and countries will NOT be middle hops only");

    /// Relays that are rejected.
    protects AuthDirReject: Lines,
        lost(&[], "relays of these addresses and countries will NOT be rejected");

    /// Countries whose relays are rejected.
    protects AuthDirRejectCCs: Csv = "",
        lost(&[""], "relays of these addresses and countries will NOT be rejected");

    /// Vote on the flag BadExit.
    protects AuthDirListBadExits: Bool = "0",
        harmless("an authority of a private network gives no relay this flag");

    /// Vote on the flag MiddleOnly.
    protects AuthDirListMiddleOnly: Bool = "0",
        harmless("an authority of a private network gives no relay this flag");

    /// A relay with this much bandwidth always gets the flag Fast.
    tunes AuthDirFastGuarantee: Memory = "100 KB",
        harmless("relays of a private network have the flags Fast and Stable, and Exit, Guard and HSDir for what they state");

    /// A relay with this much bandwidth is fast enough for the flag Guard.
    tunes AuthDirGuardBWGuarantee: Memory = "2 MB",
        harmless("relays of a private network have the flags Fast and Stable, and Exit, Guard and HSDir for what they state");

    /// List IPv6 addresses of relays.
    tunes AuthDirHasIPv6Connectivity: Bool = "0";

    /// Relays of one address that get the flag Running.
    protects AuthDirMaxServersPerAddr: PosInt = "2",
        in_testing("0"),
        harmless("an authority of a private network lists each relay that publishes, until its descriptor is a day old");

    /// A relay keeps to one pair of RSA and Ed25519 identities.
    protects AuthDirPinKeys: Bool = "1",
        harmless("an authority of a private network never lists one identity with two others");

    /// Refuse requests when the rate limit is reached.
    protects AuthDirRejectRequestsUnderLoad: Bool = "1",
        harmless("an authority of a private network answers whatever the bandwidth");

    /// Take part in the shared random value.
    tunes AuthDirSharedRandomness: Bool = "1",
        harmless("an authority alone makes a consensus when relays come, not in the fixed rounds that shared randomness needs");

    /// Test the Ed25519 identities of relays.
    protects AuthDirTestEd25519LinkKeys: Bool = "1",
        harmless("an authority of a private network lists each relay that publishes, until its descriptor is a day old");

    /// Test whether relays can be reached.
    protects AuthDirTestReachability: Bool = "1",
        harmless("an authority of a private network lists each relay that publishes, until its descriptor is a day old");

    /// Relays that get the flag Guard.
    publishes AuthDirVoteGuard: RouterSet,
        harmless("C tor, too, follows it outside of private networks only; in these, TestingDirAuthVoteGuard does the same");

    /// The fraction of bandwidth below which a relay is too slow for the flag Guard.
    tunes AuthDirVoteGuardBwThresholdFraction: Double = "0.75",
        fraction(0.0, 1.0),
        harmless("relays of a private network have the flags Fast and Stable, and Exit, Guard and HSDir for what they state");

    /// A relay known for this long is known for long enough for the flag Guard.
    tunes AuthDirVoteGuardGuaranteeTimeKnown: Seconds = "8 days",
        harmless("relays of a private network have the flags Fast and Stable, and Exit, Guard and HSDir for what they state");

    /// A relay that is up this share of the time is up often enough for the flag Guard.
    tunes AuthDirVoteGuardGuaranteeWFU: Double = "0.98",
        harmless("relays of a private network have the flags Fast and Stable, and Exit, Guard and HSDir for what they state");

    /// A relay with this uptime always gets the flag Stable.
    tunes AuthDirVoteStableGuaranteeMinUptime: Seconds = "30 days",
        harmless("relays of a private network have the flags Fast and Stable, and Exit, Guard and HSDir for what they state");

    /// A relay with this mean time between failures always gets the flag Stable.
    tunes AuthDirVoteStableGuaranteeMTBF: Seconds = "5 days",
        harmless("relays of a private network have the flags Fast and Stable, and Exit, Guard and HSDir for what they state");

    /// Measured relays from which on those that are not measured do not count.
    tunes MinMeasuredBWsForAuthToIgnoreAdvertised: Int = "500",
        harmless("a bandwidth that V3BandwidthsFile does not have is what the relay claims");

    /// The oldest version of C tor that relays may have.
    protects MinimalAcceptedServerVersion: Text = "0.4.9.0-alpha-dev",
        harmless("an authority of a private network lists each relay that publishes, until its descriptor is a day old");

    /// Require TAP keys, as clients of C tor 0.4.8 do.
    tunes AuthDirSupport048Clients: Bool = "0";

    /// Versions of C tor that are recommended.
    publishes RecommendedVersions: Lines,
        harmless("it only describes VersioningAuthoritativeDirectory, which has a warning of its own");

    /// Versions of C tor that are recommended to clients.
    publishes RecommendedClientVersions: Lines,
        harmless("it only describes VersioningAuthoritativeDirectory, which has a warning of its own");

    /// Versions of C tor that are recommended to relays.
    publishes RecommendedServerVersions: Lines,
        harmless("it only describes VersioningAuthoritativeDirectory, which has a warning of its own");
}
