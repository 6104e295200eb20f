//! Ports for applications of this machine, and what their streams may do.

options! {
    from super::logs::END;

    /// A port, an address and port or `unix:` and a path where applications connect by SOCKS, with flags;
    /// 0: none.
    opens SocksPort: LinesOf(SocksPortLines);

    /// As SocksPort, left out of dumps.
    opens __SocksPort: LinesOf(SocksPortLines), hidden;

    /// The lines of SocksPort.
    list SocksPortLines: LinesVirtual;

    /// As SocksPort, for HTTP CONNECT.
    opens HTTPTunnelPort: LinesOf(HTTPTunnelPortLines);

    /// As HTTPTunnelPort, left out of dumps.
    opens __HTTPTunnelPort: LinesOf(HTTPTunnelPortLines), hidden;

    /// The lines of HTTPTunnelPort.
    list HTTPTunnelPortLines: LinesVirtual;

    /// As SocksPort, for DNS by UDP.
    opens DNSPort: LinesOf(DNSPortLines);

    /// As DNSPort, left out of dumps.
    opens __DNSPort: LinesOf(DNSPortLines), hidden;

    /// The lines of DNSPort.
    list DNSPortLines: LinesVirtual;

    /// A port for connections that the firewall redirects.
    opens TransPort: LinesOf(TransPortLines);

    /// As TransPort, left out of dumps.
    opens __TransPort: LinesOf(TransPortLines), hidden;

    /// The lines of TransPort.
    list TransPortLines: LinesVirtual;

    /// How the firewall redirects connections to TransPort: `default` (REDIRECT) or `TPROXY`.
    opens TransProxyType: Text = "default";

    /// A port for connections that natd redirects.
    opens NATDPort: LinesOf(NATDPortLines);

    /// As NATDPort, left out of dumps.
    opens __NATDPort: LinesOf(NATDPortLines), hidden;

    /// The lines of NATDPort.
    list NATDPortLines: LinesVirtual;

    /// Addresses that may use the ports of applications; where no rule matches, they may.
    protects SocksPolicy: Lines;

    /// Refuse SOCKS requests for addresses, which the application looked up elsewhere.
    protects SafeSocks: Bool = "0";

    /// Log whether each SOCKS request leaked its name.
    tunes TestSocks: Bool = "0";

    /// How long a stream waits for a circuit.
    protects SocksTimeout: Seconds = "2 minutes";

    /// The group may use the sockets of SocksPort.
    opens UnixSocksGroupWritable: Bool = "0";

    /// Ports whose streams are warned of, since they are sent in the clear.
    protects WarnPlaintextPorts: Csv = "23,109,110,143";

    /// Ports whose streams are refused, since they are sent in the clear.
    protects RejectPlaintextPorts: Csv = "";

    /// Accept names with characters that host names do not have.
    opens AllowNonRFC953Hostnames: Bool = "0";

    /// Refuse streams to private addresses.
    protects ClientRejectInternalAddresses: Bool = "1", in_testing("0");

    /// Give names that are looked up virtual addresses.
    tunes AutomapHostsOnResolve: Bool = "0";

    /// The ends of names that AutomapHostsOnResolve is about; `.`: all names.
    tunes AutomapHostsSuffixes: Csv = ".onion,.exit";
}
