//! Options of bridges and pluggable transports.

options! {
    from super::onion_services::END;

    /// Connect to the network by bridges.
    opens UseBridges: Bool = "0";

    /// A bridge to connect by: perhaps a transport, an address and port, perhaps a fingerprint, and perhaps the
    /// transport's arguments `k=v`.
    opens Bridge: Lines;

    /// Be a bridge.
    opens BridgeRelay: Bool = "0";

    /// How the bridge authority gives the bridge to users: none, any, https, email, settings.
    publishes BridgeDistribution: Text;

    /// Publish the bridge's users by country.
    publishes BridgeRecordUsageByCountry: Bool = "1";

    /// Fetch descriptors of bridges from the bridge authority.
    tunes UpdateBridgesFromAuthority: Bool = "0",
        harmless("bridges are asked for their descriptors themselves, by which no authority learns of them");

    /// Drop the descriptors of bridges when the configuration changes.
    tunes ReconfigDropsBridgeDescs: Bool = "0";

    /// The password for the bridge authority's list of bridges.
    names BridgePassword: Text, harmless("it only describes authorities of bridges, which Weft cannot be");

    /// What reaches bridges by pluggable transports: their names, `exec` and a program with its arguments, or `socks4` or
    /// `socks5` and the address and port of a proxy that runs already.
    names ClientTransportPlugin: Lines;

    /// A program of pluggable transports for a bridge: the names of its transports, `exec`, and the program with its
    /// arguments.
    names ServerTransportPlugin: Lines;

    /// Where a pluggable transport listens: its name, an address and port.
    opens ServerTransportListenAddr: Lines;

    /// Parameters for a pluggable transport: its name, then each as `k=v`.
    names ServerTransportOptions: Lines;

    /// A port where pluggable transports hand over connections.
    opens ExtORPort: LinesOf(ExtORPortLines);

    /// As ExtORPort, left out of dumps.
    opens __ExtORPort: LinesOf(ExtORPortLines), hidden;

    /// The lines of ExtORPort.
    list ExtORPortLines: LinesVirtual;

    /// The file by which pluggable transports authenticate.
    names ExtORPortCookieAuthFile: Path;

    /// The group may read that file.
    opens ExtORPortCookieAuthFileGroupReadable: Bool = "0";
}
