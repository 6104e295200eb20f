//! Options of onion services.

options! {
    from super::circuits::END;

    /// The directory of an onion service.
    opens HiddenServiceDir: LinesOf(HiddenServiceOptions),
        lost(&[], "the onion service will NOT be started");

    /// The lines of an onion service.
    list HiddenServiceOptions: LinesVirtual, harmless("it is a list that other options fill");

    /// A port of the onion service above, and where its streams go.
    opens HiddenServicePort: LinesOf(HiddenServiceOptions),
        harmless("it only describes HiddenServiceDir, which has a warning of its own");

    /// The version of the onion service above.
    tunes HiddenServiceVersion: LinesOf(HiddenServiceOptions),
        harmless("it only describes HiddenServiceDir, which has a warning of its own");

    /// Streams to ports that the service above does not have are ignored, not refused.
    opens HiddenServiceAllowUnknownPorts: LinesOf(HiddenServiceOptions),
        harmless("it only describes HiddenServiceDir, which has a warning of its own");

    /// The group may read the directory of the service above.
    opens HiddenServiceDirGroupReadable: LinesOf(HiddenServiceOptions),
        harmless("it only describes HiddenServiceDir, which has a warning of its own");

    /// Streams that a circuit to the service above may have.
    protects HiddenServiceMaxStreams: LinesOf(HiddenServiceOptions),
        harmless("it only describes HiddenServiceDir, which has a warning of its own");

    /// Close the circuit that has more.
    protects HiddenServiceMaxStreamsCloseCircuit: LinesOf(HiddenServiceOptions),
        harmless("it only describes HiddenServiceDir, which has a warning of its own");

    /// Introduction points of the service above.
    tunes HiddenServiceNumIntroductionPoints: LinesOf(HiddenServiceOptions),
        harmless("it only describes HiddenServiceDir, which has a warning of its own");

    /// How the service above learns which circuit a stream has.
    publishes HiddenServiceExportCircuitID: LinesOf(HiddenServiceOptions),
        harmless("it only describes HiddenServiceDir, which has a warning of its own");

    /// The service above is an instance of an OnionBalance.
    tunes HiddenServiceOnionBalanceInstance: LinesOf(HiddenServiceOptions),
        harmless("it only describes HiddenServiceDir, which has a warning of its own");

    /// Limit the requests that each introduction point passes on.
    protects HiddenServiceEnableIntroDoSDefense: LinesOf(HiddenServiceOptions),
        harmless("it only describes HiddenServiceDir, which has a warning of its own");

    /// Requests per second that it passes on.
    protects HiddenServiceEnableIntroDoSRatePerSec: LinesOf(HiddenServiceOptions),
        harmless("it only describes HiddenServiceDir, which has a warning of its own");

    /// Requests that it passes on at once.
    protects HiddenServiceEnableIntroDoSBurstPerSec: LinesOf(HiddenServiceOptions),
        harmless("it only describes HiddenServiceDir, which has a warning of its own");

    /// Demand proof of work of clients when the service above is busy.
    protects HiddenServicePoWDefensesEnabled: LinesOf(HiddenServiceOptions),
        harmless("it only describes HiddenServiceDir, which has a warning of its own");

    /// Requests per second that the service above takes from its queue.
    protects HiddenServicePoWQueueRate: LinesOf(HiddenServiceOptions),
        harmless("it only describes HiddenServiceDir, which has a warning of its own");

    /// Requests that it takes at once.
    protects HiddenServicePoWQueueBurst: LinesOf(HiddenServiceOptions),
        harmless("it only describes HiddenServiceDir, which has a warning of its own");

    /// Compile the hash of proofs of work.
    tunes CompiledProofOfWorkHash: AutoBool = "auto",
        harmless("this node runs no onion services and visits none");

    /// Onion services of this node need not be anonymous.
    opens HiddenServiceNonAnonymousMode: Bool = "0",
        immutable, harmless("it only describes HiddenServiceDir, which has a warning of its own");

    /// Onion services of this node use circuits of one hop.
    opens HiddenServiceSingleHopMode: Bool = "0",
        immutable, harmless("it only describes HiddenServiceDir, which has a warning of its own");

    /// Relays that may be second hops of circuits of onion services.
    protects HSLayer2Nodes: RouterSet,
        harmless("this node runs no onion services and visits none");

    /// Relays that may be third hops of circuits of onion services.
    protects HSLayer3Nodes: RouterSet,
        harmless("this node runs no onion services and visits none");

    /// Keep to few second hops of circuits of onion services.
    protects VanguardsLiteEnabled: AutoBool = "auto",
        harmless("this node runs no onion services and visits none");

    /// The directory of keys for onion services that admit clients by key.
    names ClientOnionAuthDir: Path,
        lost(&[], "onion services will NOT be reachable, with these keys or without");

    /// Fetch descriptors of onion services.
    tunes FetchHidServDescriptors: Bool = "1",
        harmless("this node runs no onion services and visits none");

    /// Publish descriptors of onion services.
    publishes PublishHidServDescriptors: Bool = "1",
        harmless("this node runs no onion services and visits none");

    /// Bytes that descriptors of onion services may take on a relay that is their directory; 0: a fifth of
    /// MaxMemInQueues.
    protects MaxHSDirCacheBytes: Memory = "0";

    /// How long a relay must run to get the flag HSDir of this authority.
    tunes MinUptimeHidServDirectoryV2: Seconds = "96 hours", in_testing("0 minutes"),
        harmless("relays of a private network have the flags Fast and Stable, and Exit, Guard and HSDir for what they state");
}
