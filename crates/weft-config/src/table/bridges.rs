//! Options of bridges and pluggable transports.

options! {
    from super::onion::END;

    /// Connect to the network by bridges.
    UseBridges: Bool = "0",
        refused(&["0"], "connections would go to guards directly, not to bridges");

    /// A bridge to connect by.
    Bridge: Lines, refused(&[], "connections would go to guards directly, not to this bridge");

    /// Be a bridge.
    BridgeRelay: Bool = "0";

    /// How the bridge authority gives the bridge to users: none, any, https, email, settings.
    BridgeDistribution: Text;

    /// Publish the bridge's users by country.
    BridgeRecordUsageByCountry: Bool = "1";

    /// Fetch descriptors of bridges from the bridge authority.
    UpdateBridgesFromAuthority: Bool = "0",
        harmless("it only describes bridges, which are refused");

    /// Drop the descriptors of bridges when the configuration changes.
    ReconfigDropsBridgeDescs: Bool = "0", harmless("it only describes bridges, which are refused");

    /// The password for the bridge authority's list of bridges.
    BridgePassword: Text, harmless("it only describes authorities of bridges, which Weft cannot be");

    /// A program of pluggable transports for a client.
    ClientTransportPlugin: Lines,
        harmless("only bridges use pluggable transports, and bridges are refused");

    /// A program of pluggable transports for a bridge: the names of its transports, `exec`, and the program with its
    /// arguments.
    ServerTransportPlugin: Lines;

    /// Where a pluggable transport listens: its name, an address and port.
    ServerTransportListenAddr: Lines;

    /// Parameters for a pluggable transport: its name, then each as `k=v`.
    ServerTransportOptions: Lines;

    /// A port where pluggable transports hand over connections.
    ExtORPort: LinesOf(ExtORPortLines);

    /// As ExtORPort, left out of dumps.
    __ExtORPort: LinesOf(ExtORPortLines), hidden;

    /// The lines of ExtORPort.
    ExtORPortLines: LinesVirtual;

    /// The file by which pluggable transports authenticate.
    ExtORPortCookieAuthFile: Path;

    /// The group may read that file.
    ExtORPortCookieAuthFileGroupReadable: Bool = "0";
}
