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
    VersioningAuthoritativeDirectory: Bool = "0";

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
    V3AuthUseLegacyKey: Bool = "0", needs_restart;

    /// Measured bandwidths of relays.
    V3BandwidthsFile: Path;

    /// How long relays have been guards.
    GuardfractionFile: Path,
        harmless("in C tor, too, a consensus has guard fractions only where three authorities vote on them");

    /// Relays that get the flag BadExit.
    AuthDirBadExit: Lines;

    /// Countries whose relays get the flag BadExit.
    AuthDirBadExitCCs: Csv = "";

    /// Relays that do not get the flag Valid.
    AuthDirInvalid: Lines;

    /// Countries whose relays do not get the flag Valid.
    AuthDirInvalidCCs: Csv = "";

    /// Relays that may be middle hops only.
    AuthDirMiddleOnly: Lines;

    /// Countries whose relays may be middle hops only.
    AuthDirMiddleOnlyCCs: Csv = "";

    /// Relays that are rejected.
    AuthDirReject: Lines;

    /// Countries whose relays are rejected.
    AuthDirRejectCCs: Csv = "";

    /// Vote on the flag BadExit.
    AuthDirListBadExits: Bool = "0";

    /// Vote on the flag MiddleOnly.
    AuthDirListMiddleOnly: Bool = "0";

    /// A relay with this much bandwidth always gets the flag Fast.
    AuthDirFastGuarantee: Memory = "100 KB";

    /// A relay with this much bandwidth is fast enough for the flag Guard.
    AuthDirGuardBWGuarantee: Memory = "2 MB";

    /// Test relays by IPv6, too.
    AuthDirHasIPv6Connectivity: Bool = "0";

    /// Relays of one address that get the flag Running.
    AuthDirMaxServersPerAddr: PosInt = "2",
        in_testing("0");

    /// A relay keeps to one pair of RSA and Ed25519 identities.
    AuthDirPinKeys: Bool = "1";

    /// Refuse requests when the rate limit is reached.
    AuthDirRejectRequestsUnderLoad: Bool = "1";

    /// Take part in the shared random value.
    AuthDirSharedRandomness: Bool = "1",
        harmless("an authority alone makes a consensus when relays come, not in the fixed rounds that shared randomness needs");

    /// Test the Ed25519 identities of relays.
    AuthDirTestEd25519LinkKeys: Bool = "1";

    /// Test whether relays can be reached.
    AuthDirTestReachability: Bool = "1";

    /// Relays that get the flag Guard.
    AuthDirVoteGuard: RouterSet,
        harmless("C tor, too, follows it outside of private networks only; in these, TestingDirAuthVoteGuard does the same");

    /// The fraction of bandwidth below which a relay is too slow for the flag Guard.
    AuthDirVoteGuardBwThresholdFraction: Double = "0.75",
        fraction(0.0, 1.0);

    /// A relay known for this long is known for long enough for the flag Guard.
    AuthDirVoteGuardGuaranteeTimeKnown: Seconds = "8 days";

    /// A relay that is up this share of the time is up often enough for the flag Guard.
    AuthDirVoteGuardGuaranteeWFU: Double = "0.98";

    /// A relay with this uptime always gets the flag Stable.
    AuthDirVoteStableGuaranteeMinUptime: Seconds = "30 days";

    /// A relay with this mean time between failures always gets the flag Stable.
    AuthDirVoteStableGuaranteeMTBF: Seconds = "5 days";

    /// Measured relays from which on those that are not measured do not count.
    MinMeasuredBWsForAuthToIgnoreAdvertised: Int = "500";

    /// The oldest version of C tor that relays may have.
    MinimalAcceptedServerVersion: Text = "0.4.9.0-alpha-dev";

    /// Require TAP keys, as clients of C tor 0.4.8 do.
    AuthDirSupport048Clients: Bool = "0";

    /// Versions of C tor that are recommended.
    RecommendedVersions: Lines;

    /// Versions of C tor that are recommended to clients.
    RecommendedClientVersions: Lines;

    /// Versions of C tor that are recommended to relays.
    RecommendedServerVersions: Lines;
}
