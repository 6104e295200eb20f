//! Lifetimes of a client's circuits, and waits for them.

options! {
    from super::paths::END;

    /// Learn from circuits how long to wait for one.
    tunes LearnCircuitBuildTimeout: Bool = "1";

    /// How long to wait for a circuit that is built, until it is learnt; 0: as the consensus has it.
    tunes CircuitBuildTimeout: Seconds = "0";

    /// Which circuits that are built are used: `cbt`, those that were built in time; `rtt`, those whose round trip is short
    /// (docs/extensions/circuit-rtt.md); `both`; `none`: all that are built before they are closed.
    tunes CircuitAcceptance: Text = "cbt", own;

    /// The share of circuits that is used, by the estimates; negative: as the consensus has it (of round trips, 0.8).
    tunes CircuitAcceptanceQuantile: Double = "-1", fraction(0.5, 0.99), or_negative, own;

    /// Which of the open circuits a stream gets: `default`, as in C tor; `abra`, by what relays state of their bandwidth;
    /// `abra-stay`, the same once that of `default` is scarce (docs/extensions/abra.md).
    tunes CircuitSelection: Text = "default", own;

    /// How long to wait for an exit's answer; 0: 10 seconds, then 15.
    tunes CircuitStreamTimeout: Seconds = "0", at_least(10), or_zero, clamped;

    /// How long circuits are kept ready after the last use; 0: as the consensus has it.
    tunes CircuitsAvailableTimeout: Seconds = "0";

    /// How long after its first stream a circuit gets new ones.
    tunes MaxCircuitDirtiness: Seconds = "10 minutes", whole(10, 30 * 24 * 3600), clamped;

    /// Circuits that are built at once.
    protects MaxClientCircuitsPending: PosInt = "32", whole(1, 1024);

    /// How often is checked whether a new circuit is needed.
    tunes NewCircuitPeriod: Seconds = "30 seconds";

    /// Hosts and domains whose streams keep to one exit.
    tunes TrackHostExits: Csv;

    /// How long they keep to it.
    tunes TrackHostExitsExpire: Seconds = "30 minutes";

    /// Two addresses or names: streams to the first go to the second.
    opens MapAddress: Lines;

    /// The network of virtual IPv4 addresses.
    tunes VirtualAddrNetworkIPv4: Text = "127.192.0.0/10";

    /// The network of virtual IPv6 addresses.
    tunes VirtualAddrNetworkIPv6: Text = "[FE80::]/10";

    /// Ignore answers of exits that resolve names to private addresses.
    protects ClientDNSRejectInternalAddresses: Bool = "1", in_testing("0");

    /// Spread streams over sets of circuits to one exit (conflux), as a client and as an exit; `auto`: as the consensus
    /// has it.
    tunes ConfluxEnabled: AutoBool = "auto";

    /// What exits aim at when they spread streams of ours: `latency`, `throughput`, or one of both with less memory here,
    /// `latency_lowmem`, `throughput_lowmem`.
    tunes ConfluxClientUX: Text = "throughput";

    /// Circuits of a tunnel of mTor, over which the streams of a port with `Multipath` are spread (docs/extensions/mtor.md).
    tunes MultipathCircuits: PosInt = "3", whole(1, 16), own;

    /// The guards of a tunnel's circuits: `distinct`, one for each as far as there are so many; `common`, one for all.
    tunes MultipathEntry: Text = "distinct", own;

    /// Middle relays of tunnels have less than this weight in the consensus.
    tunes MultipathMiddleBandwidth: Memory = "100 KBytes", own;

    /// User names: connections of applications that give one of them get tunnels, on any port.
    tunes MultipathUsers: Csv, own;

    /// In a testing network, use congestion control although its consensus has turned it off; elsewhere it is always used.
    tunes __AlwaysCongestionControl: Bool = "0";
}
