//! The authority of a private network.

options! {
    from super::bridges::END;

    /// Be a directory authority; in private networks only.
    AuthoritativeDirectory: Bool = "0";

    /// Be one that votes on the consensus.
    V3AuthoritativeDirectory: Bool = "0";

    /// Be an authority of bridges.
    BridgeAuthoritativeDir: Bool = "0",
        lost(&["0"], "this node will NOT be an authority of bridges");

    /// Recommend versions.
    VersioningAuthoritativeDirectory: Bool = "0",
        harmless("an authority of a private network recommends no versions");

    /// An address and port, or a port, where the directory answers HTTP without encryption. It needs DirCache. Only an
    /// authority's is advertised.
    DirPort: LinesOf(DirPortLines);

    /// As DirPort, left out of dumps.
    __DirPort: LinesOf(DirPortLines), hidden;

    /// The lines of DirPort.
    DirPortLines: LinesVirtual;

    /// Which addresses may use the DirPort: rules as of ExitPolicy, whose ports do not count; all others may.
    DirPolicy: Lines;

    /// A page, in HTML, that the DirPort shows to people.
    DirPortFrontPage: Path;

    /// Parameters of the consensus: `name=value` words.
    ConsensusParams: Lines;

    /// The time from one consensus to the next.
    V3AuthVotingInterval: Seconds = "1 hour", in_testing("5 minutes");

    /// The time for votes.
    V3AuthVoteDelay: Seconds = "5 minutes", in_testing("20 seconds");

    /// The time for signatures.
    V3AuthDistDelay: Seconds = "5 minutes", in_testing("20 seconds");

    /// Voting intervals that a consensus is valid for.
    V3AuthNIntervalsValid: PosInt = "3";

    /// Sign by a second, older key, too.
    V3AuthUseLegacyKey: Bool = "0", lost(&["0"], "votes will NOT be signed by the legacy key");

    /// Measured bandwidths of relays.
    V3BandwidthsFile: Path;

    /// How long relays have been guards.
    GuardfractionFile: Path,
        harmless("an authority of a private network gives flags by fixed rules");

    /// Relays that get the flag BadExit.
    AuthDirBadExit: Lines, lost(&[], "the authority will NOT call these relays bad exits");

    /// Countries whose relays get the flag BadExit.
    AuthDirBadExitCCs: Csv = "", lost(&[], "the authority will NOT call these relays bad exits");

    /// Relays that do not get the flag Valid.
    AuthDirInvalid: Lines, lost(&[], "the authority will NOT call these relays invalid");

    /// Countries whose relays do not get the flag Valid.
    AuthDirInvalidCCs: Csv = "", lost(&[], "the authority will NOT call these relays invalid");

    /// Relays that may be middle hops only.
    AuthDirMiddleOnly: Lines,
        lost(&[], "the authority will NOT restrict these relays to the middle");

    /// Countries whose relays may be middle hops only.
    AuthDirMiddleOnlyCCs: Csv = "",
        lost(&[], "the authority will NOT restrict these relays to the middle");

    /// Relays that are rejected.
    AuthDirReject: Lines, lost(&[], "the authority will NOT reject these relays");

    /// Countries whose relays are rejected.
    AuthDirRejectCCs: Csv = "", lost(&[], "the authority will NOT reject these relays");

    /// Vote on the flag BadExit.
    AuthDirListBadExits: Bool = "0",
        harmless("an authority of a private network gives flags by fixed rules");

    /// Vote on the flag MiddleOnly.
    AuthDirListMiddleOnly: Bool = "0",
        harmless("an authority of a private network gives flags by fixed rules");

    /// A relay with this much bandwidth always gets the flag Fast.
    AuthDirFastGuarantee: Memory = "100 KB",
        harmless("an authority of a private network gives flags by fixed rules");

    /// A relay with this much bandwidth is fast enough for the flag Guard.
    AuthDirGuardBWGuarantee: Memory = "2 MB",
        harmless("an authority of a private network gives flags by fixed rules");

    /// Test relays by IPv6, too.
    AuthDirHasIPv6Connectivity: Bool = "0",
        harmless("an authority of a private network gives flags by fixed rules");

    /// Relays of one address that get the flag Running.
    AuthDirMaxServersPerAddr: PosInt = "2",
        in_testing("0"), lost(&["0"], "the authority will NOT limit relays for each address");

    /// A relay keeps to one pair of RSA and Ed25519 identities.
    AuthDirPinKeys: Bool = "1",
        harmless("an authority of a private network has no others to vote with and few to serve");

    /// Refuse requests when the rate limit is reached.
    AuthDirRejectRequestsUnderLoad: Bool = "1",
        harmless("an authority of a private network has no others to vote with and few to serve");

    /// Take part in the shared random value.
    AuthDirSharedRandomness: Bool = "1", harmless("only onion services need shared randomness");

    /// Test the Ed25519 identities of relays.
    AuthDirTestEd25519LinkKeys: Bool = "1",
        lost(&["0"], "the authority will NOT test relays' link keys");

    /// Test whether relays can be reached.
    AuthDirTestReachability: Bool = "1",
        lost(&["0"], "the authority will NOT test whether relays can be reached");

    /// Relays that get the flag Guard.
    AuthDirVoteGuard: RouterSet,
        harmless("an authority of a private network gives flags by fixed rules");

    /// The fraction of bandwidth below which a relay is too slow for the flag Guard.
    AuthDirVoteGuardBwThresholdFraction: Double = "0.75",
        harmless("an authority of a private network gives flags by fixed rules");

    /// A relay known for this long is known for long enough for the flag Guard.
    AuthDirVoteGuardGuaranteeTimeKnown: Seconds = "8 days",
        harmless("an authority of a private network gives flags by fixed rules");

    /// A relay that is up this share of the time is up often enough for the flag Guard.
    AuthDirVoteGuardGuaranteeWFU: Double = "0.98",
        harmless("an authority of a private network gives flags by fixed rules");

    /// A relay with this uptime always gets the flag Stable.
    AuthDirVoteStableGuaranteeMinUptime: Seconds = "30 days",
        harmless("an authority of a private network gives flags by fixed rules");

    /// A relay with this mean time between failures always gets the flag Stable.
    AuthDirVoteStableGuaranteeMTBF: Seconds = "5 days",
        harmless("an authority of a private network gives flags by fixed rules");

    /// Measured relays from which on those that are not measured do not count.
    MinMeasuredBWsForAuthToIgnoreAdvertised: Int = "500",
        harmless("an authority of a private network gives flags by fixed rules");

    /// The oldest version of C tor that relays may have.
    MinimalAcceptedServerVersion: Text = "0.4.8.0-alpha-dev",
        lost(&[], "the authority will accept older relays, too");

    /// Versions of C tor that are recommended.
    RecommendedVersions: Lines,
        harmless("an authority of a private network recommends no versions");

    /// Versions of C tor that are recommended to clients.
    RecommendedClientVersions: Lines,
        harmless("an authority of a private network recommends no versions");

    /// Versions of C tor that are recommended to relays.
    RecommendedServerVersions: Lines,
        harmless("an authority of a private network recommends no versions");
}
