//! Ports for applications of this machine, and what their streams may do.

options! {
    from super::logs::END;

    /// A port, an address and port or `unix:` and a path where applications connect by SOCKS, with flags;
    /// 0: none.
    SocksPort: LinesOf(SocksPortLines);

    /// As SocksPort, left out of dumps.
    __SocksPort: LinesOf(SocksPortLines), hidden;

    /// The lines of SocksPort.
    SocksPortLines: LinesVirtual;

    /// As SocksPort, for HTTP CONNECT.
    HTTPTunnelPort: LinesOf(HTTPTunnelPortLines);

    /// As HTTPTunnelPort, left out of dumps.
    __HTTPTunnelPort: LinesOf(HTTPTunnelPortLines), hidden;

    /// The lines of HTTPTunnelPort.
    HTTPTunnelPortLines: LinesVirtual;

    /// As SocksPort, for DNS by UDP.
    DNSPort: LinesOf(DNSPortLines);

    /// As DNSPort, left out of dumps.
    __DNSPort: LinesOf(DNSPortLines), hidden;

    /// The lines of DNSPort.
    DNSPortLines: LinesVirtual;

    /// A port for connections that the firewall redirects.
    TransPort: LinesOf(TransPortLines);

    /// As TransPort, left out of dumps.
    __TransPort: LinesOf(TransPortLines), hidden;

    /// The lines of TransPort.
    TransPortLines: LinesVirtual;

    /// How the firewall redirects connections to TransPort: `default` (REDIRECT) or `TPROXY`.
    TransProxyType: Text = "default";

    /// A port for connections that natd redirects.
    NATDPort: LinesOf(NATDPortLines);

    /// As NATDPort, left out of dumps.
    __NATDPort: LinesOf(NATDPortLines), hidden;

    /// The lines of NATDPort.
    NATDPortLines: LinesVirtual;

    /// Addresses that may use the ports of applications; where no rule matches, they may.
    SocksPolicy: Lines;

    /// Refuse SOCKS requests for addresses, which the application looked up elsewhere.
    SafeSocks: Bool = "0";

    /// Log whether each SOCKS request leaked its name.
    TestSocks: Bool = "0";

    /// How long a stream waits for a circuit.
    SocksTimeout: Seconds = "2 minutes";

    /// The group may use the sockets of SocksPort.
    UnixSocksGroupWritable: Bool = "0";

    /// Ports whose streams are warned of, since they are sent in the clear.
    WarnPlaintextPorts: Csv = "23,109,110,143";

    /// Ports whose streams are refused, since they are sent in the clear.
    RejectPlaintextPorts: Csv = "";

    /// Accept names with characters that host names do not have.
    AllowNonRFC953Hostnames: Bool = "0";

    /// Refuse streams to private addresses.
    ClientRejectInternalAddresses: Bool = "1", in_testing("0");

    /// Give names that are looked up virtual addresses.
    AutomapHostsOnResolve: Bool = "0";

    /// The ends of names that AutomapHostsOnResolve is about; `.`: all names.
    AutomapHostsSuffixes: Csv = ".onion,.exit";
}
