//! Options of bridges and pluggable transports.

options! {
    from super::onion_services::END;

    /// Connect to the network by bridges.
    UseBridges: Bool = "0";

    /// A bridge to connect by: perhaps a transport, an address and port, perhaps a fingerprint, and perhaps the
    /// transport's arguments `k=v`.
    Bridge: Lines;

    /// Be a bridge.
    BridgeRelay: Bool = "0";

    /// How the bridge authority gives the bridge to users: none, any, https, email, settings.
    BridgeDistribution: Text;

    /// Publish the bridge's users by country.
    BridgeRecordUsageByCountry: Bool = "1";

    /// Fetch descriptors of bridges from the bridge authority.
    UpdateBridgesFromAuthority: Bool = "0",
        harmless("bridges are asked for their descriptors themselves, by which no authority learns of them");

    /// Drop the descriptors of bridges when the configuration changes.
    ReconfigDropsBridgeDescs: Bool = "0";

    /// The password for the bridge authority's list of bridges.
    BridgePassword: Text, harmless("it only describes authorities of bridges, which Weft cannot be");

    /// What reaches bridges by pluggable transports: their names, `exec` and a program with its arguments, or `socks4` or
    /// `socks5` and the address and port of a proxy that runs already.
    ClientTransportPlugin: Lines;

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
