//! Where directory documents are from, and what is published.

options! {
    from super::scheduling::END;

    /// An authority to use in place of the network's own: name, flags, address, fingerprint.
    opens DirAuthority: Lines;

    /// As DirAuthority, but the bridge authority stays the network's own.
    opens AlternateDirAuthority: Lines;

    /// A bridge authority to use in place of the network's own.
    opens AlternateBridgeAuthority: Lines;

    /// A relay that a client may ask for its first consensus.
    opens FallbackDir: Lines;

    /// Use the network's own fallbacks where no FallbackDir is given.
    opens UseDefaultFallbackDirs: Bool = "1";

    /// How likely an authority is asked in place of a fallback.
    tunes DirAuthorityFallbackRate: Double = "0.1";

    /// Whether the descriptor is published: `1` or `v3` publish, `0` does not.
    publishes PublishServerDescriptor: Csv = "1";

    /// Put statistics into the extra-info document.
    publishes ExtraInfoStatistics: Bool = "1";

    /// Publish when the relay was overloaded.
    publishes OverloadStatistics: Bool = "1";

    /// Serve directory documents to clients.
    opens DirCache: Bool = "1";

    /// Accept descriptors with private addresses.
    opens DirAllowPrivateAddresses: Bool = "0", in_testing("1");

    /// The fraction of paths that must be known before circuits are built; negative: as the
    /// consensus has it.
    tunes PathsNeededToBuildCircuits: Double = "-1", fraction(0.25, 0.95), or_negative, clamped;

    /// How old a consensus may be of which the directory makes a diff; 0: as the consensus has it.
    tunes MaxConsensusAgeForDiffs: Seconds = "0 seconds";

    /// Fetch extra-info documents, too, and serve them.
    tunes DownloadExtraInfo: Bool = "0";

    /// Fetch directory documents; 0: fetch none.
    tunes FetchServerDescriptors: Bool = "1";

    /// Fetch directory documents as early as a cache does, and from the authorities.
    tunes FetchDirInfoEarly: Bool = "0";

    /// Fetch directory documents before caches do.
    tunes FetchDirInfoExtraEarly: Bool = "0";

    /// Fetch descriptors of relays that are not in use, too.
    tunes FetchUselessDescriptors: Bool = "0",
        harmless("documents that nothing uses are not fetched");

    /// Use microdescriptors in place of descriptors.
    tunes UseMicrodescriptors: AutoBool = "auto",
        harmless("clients always use microdescriptors, as C tor does unless this is 0");

    /// How long a client waits before it asks authorities, where it has fallbacks.
    tunes ClientBootstrapConsensusAuthorityDownloadInitialDelay: FirstSeconds = "6",
        in_testing("0");

    /// How long a client waits before it asks authorities, where it has no fallbacks.
    tunes ClientBootstrapConsensusAuthorityOnlyDownloadInitialDelay: FirstSeconds = "0",
        in_testing("0");

    /// How long a client waits before it asks fallbacks.
    tunes ClientBootstrapConsensusFallbackDownloadInitialDelay: FirstSeconds = "0",
        in_testing("0");

    /// How many consensuses a client fetches at once.
    tunes ClientBootstrapConsensusMaxInProgressTries: PosInt = "3";

    /// How much of descriptors that cannot be read is kept for inspection.
    protects MaxUnparseableDescSizeToLog: Memory = "10 MB",
        harmless("it has no effect in C tor either");

    /// Send all directory requests through circuits of three hops.
    protects __AllDirActionsPrivate: Bool = "0",
        hidden,
        refused(&["0"], "directory requests would go to guards by one hop, not anonymously");
}
