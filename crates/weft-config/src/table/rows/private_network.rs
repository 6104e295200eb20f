//! Options that only private networks change.

options! {
    from super::authority::END;

    /// This is a private network: other defaults (the column "in private networks"), and the options
    /// here may be changed.
    opens TestingTorNetwork: Bool = "0", immutable;

    /// The defaults of private networks are in force.
    tunes ___UsingTestNetworkDefaults: Bool = "0", in_testing("1"), hidden;

    /// How long bandwidth is observed before it is published.
    tunes TestingMinTimeToReportBandwidth: Seconds = "1 day", in_testing("0 seconds"), testing_only;

    /// How long a directory request may stand still.
    tunes TestingDirConnectionMaxStall: Seconds = "5 minutes",
        at_least(5), in_testing("30 seconds"), testing_only;

    /// How long a relay waits before it fetches its first consensus.
    tunes TestingServerConsensusDownloadInitialDelay: FirstSeconds = "0", in_testing("0"), testing_only;

    /// Relays that get the flag Exit: fingerprints, or `*`.
    tunes TestingDirAuthVoteExit: RouterSet;

    /// No other relay gets it.
    tunes TestingDirAuthVoteExitIsStrict: Bool = "0";

    /// Relays that get the flag Guard: fingerprints, or `*`.
    tunes TestingDirAuthVoteGuard: RouterSet;

    /// No other relay gets it.
    tunes TestingDirAuthVoteGuardIsStrict: Bool = "0";

    /// Relays that get the flag HSDir: fingerprints, or `*`.
    tunes TestingDirAuthVoteHSDir: RouterSet;

    /// No other relay gets it.
    tunes TestingDirAuthVoteHSDirIsStrict: Bool = "0";

    /// How long an authority takes all relays for running.
    tunes TestingAuthDirTimeToLearnReachability: Seconds = "30 minutes",
        in_testing("0 minutes"), testing_only,
        harmless("an authority of a private network lists each relay that publishes, until its descriptor is a day old");

    /// The bandwidth that the flag Exit needs at least.
    tunes TestingMinExitFlagThreshold: Memory = "0",
        harmless("relays of a private network have the flags Fast and Stable, and Exit, Guard and HSDir for what they state");

    /// The bandwidth that the flag Fast needs at least.
    tunes TestingMinFastFlagThreshold: Memory = "0",
        harmless("relays of a private network have the flags Fast and Stable, and Exit, Guard and HSDir for what they state");

    /// As V3AuthVotingInterval, until there is a consensus.
    tunes TestingV3AuthInitialVotingInterval: Seconds = "30 minutes",
        in_testing("150 seconds"), testing_only,
        harmless("an authority alone makes its consensuses when relays have come, not at fixed times");

    /// As V3AuthVoteDelay, until there is a consensus.
    tunes TestingV3AuthInitialVoteDelay: Seconds = "5 minutes",
        in_testing("20 seconds"), testing_only;

    /// As V3AuthDistDelay, until there is a consensus.
    tunes TestingV3AuthInitialDistDelay: Seconds = "5 minutes",
        in_testing("20 seconds"), testing_only;

    /// How much later than at midnight voting intervals start.
    tunes TestingV3AuthVotingStartOffset: Seconds = "0",
        testing_only,
        harmless("an authority alone makes its consensuses when relays have come, not at fixed times");

    /// How long a relay waits before it fetches descriptors.
    tunes TestingServerDownloadInitialDelay: FirstSeconds = "0", in_testing("0"), testing_only;

    /// How long a client waits before it fetches descriptors.
    tunes TestingClientDownloadInitialDelay: FirstSeconds = "0", in_testing("0"), testing_only;

    /// How long a client waits before it fetches its first consensus.
    tunes TestingClientConsensusDownloadInitialDelay: FirstSeconds = "0", in_testing("0"), testing_only;

    /// How long a client waits before it asks bridges again.
    tunes TestingBridgeDownloadInitialDelay: FirstSeconds = "10800",
        in_testing("10"), testing_only;

    /// How long a client waits before it asks bridges for the first time.
    tunes TestingBridgeBootstrapDownloadInitialDelay: FirstSeconds = "0",
        in_testing("0"), testing_only;

    /// How long a client gathers descriptors to ask for.
    tunes TestingClientMaxIntervalWithoutRequest: Seconds = "10 minutes",
        at_least(1), in_testing("5 seconds"), testing_only;

    /// Send controllers CONN_BW events.
    tunes TestingEnableConnBwEvent: Bool = "0", in_testing("1"), testing_only;

    /// Send controllers CELL_STATS events.
    tunes TestingEnableCellStatsEvent: Bool = "0", in_testing("1"), testing_only;

    /// Be an exit for bandwidth scanners: circuits get the consensus' parameters for two hops.
    opens __SbwsExit: Bool = "0";
}
