//! Options of bridges and pluggable transports.

options! {
    from super::onion::END;

    /// Connect to the network by bridges.
    UseBridges: Bool = "0",
        refused(&["0"], "connections would go to guards directly, not to bridges");

    /// A bridge to connect by.
    Bridge: Lines, refused(&[], "connections would go to guards directly, not to this bridge");

    /// Be a bridge.
    BridgeRelay: Bool = "0", refused(&["0"], "the bridge would be published as a public relay");

    /// How the bridge authority gives the bridge to users.
    BridgeDistribution: Text, harmless("it only describes bridges, which are refused");

    /// Publish the bridge's users by country.
    BridgeRecordUsageByCountry: Bool = "1",
        harmless("it only describes bridges, which are refused");

    /// Fetch descriptors of bridges from the bridge authority.
    UpdateBridgesFromAuthority: Bool = "0",
        harmless("it only describes bridges, which are refused");

    /// Drop the descriptors of bridges when the configuration changes.
    ReconfigDropsBridgeDescs: Bool = "0", harmless("it only describes bridges, which are refused");

    /// The password for the bridge authority's list of bridges.
    BridgePassword: Text, harmless("it only describes bridges, which are refused");

    /// A program of pluggable transports for a client.
    ClientTransportPlugin: Lines,
        harmless("only bridges use pluggable transports, and bridges are refused");

    /// A program of pluggable transports for a bridge.
    ServerTransportPlugin: Lines, lost(&[], "the pluggable transport will NOT be started");

    /// Where a pluggable transport listens.
    ServerTransportListenAddr: Lines,
        harmless("it only describes ServerTransportPlugin, which has a warning of its own");

    /// Parameters for a pluggable transport.
    ServerTransportOptions: Lines,
        harmless("it only describes ServerTransportPlugin, which has a warning of its own");

    /// A port where pluggable transports hand over connections.
    ExtORPort: LinesOf(ExtORPortLines),
        lost(&["0"], "the port will NOT be opened: no pluggable transport can use it");

    /// As ExtORPort, left out of dumps.
    __ExtORPort: LinesOf(ExtORPortLines),
        hidden, lost(&["0"], "the port will NOT be opened: no pluggable transport can use it");

    /// The lines of ExtORPort.
    ExtORPortLines: LinesVirtual, harmless("it is a list that other options fill");

    /// The file by which pluggable transports authenticate.
    ExtORPortCookieAuthFile: Path,
        harmless("it only describes the ExtORPort, which has a warning of its own");

    /// The group may read that file.
    ExtORPortCookieAuthFileGroupReadable: Bool = "0",
        harmless("it only describes the ExtORPort, which has a warning of its own");
}
