//! Ports of the relay, addresses, and proxies on the way to other relays.

options! {
    from super::files::END;

    /// Open nothing but control ports, and make no connection.
    DisableNetwork: Bool = "0";

    /// An address and port, or a port, where the relay accepts connections, with flags. Several
    /// lines may be given.
    ORPort: LinesOf(ORPortLines);

    /// As ORPort, left out of dumps.
    __ORPort: LinesOf(ORPortLines), hidden;

    /// The lines of ORPort.
    ORPortLines: LinesVirtual;

    /// Never be a relay, even with an ORPort.
    ClientOnly: Bool = "0";

    /// An address or host name of this relay; without it, it is found out.
    Address: Lines;

    /// Neither find out nor publish an IPv6 address.
    AddressDisableIPv6: Bool = "0";

    /// The address that connections are opened from.
    OutboundBindAddress: Lines;

    /// The address that connections to relays are opened from, in place of OutboundBindAddress.
    OutboundBindAddressOR: Lines;

    /// The address that exit connections are opened from, in place of OutboundBindAddress.
    OutboundBindAddressExit: Lines;

    /// The address that pluggable transports connect from.
    OutboundBindAddressPT: Lines;

    /// Publish without having been reached from outside.
    AssumeReachable: Bool = "0";

    /// Publish the IPv6 address without having been reached at it; `auto`: as the test finds.
    AssumeReachableIPv6: AutoBool = "auto";

    /// Clients may extend circuits to private addresses.
    ExtendAllowPrivateAddresses: Bool = "0", in_testing("1");

    /// Put Ed25519 identities into EXTEND2 cells; `auto`: as the consensus has it.
    ExtendByEd25519ID: AutoBool = "auto";

    /// Give each circuit a connection of its own to the next relay (PCTLS), so that a lost packet of
    /// one does not hold up the others; `auto`: to relays to which lost packets hold up a connection.
    ConnectionPerCircuit: AutoBool = "0", own;

    /// Connections to one relay past which circuits share all the same.
    MaxConnectionsPerRelay: PosInt = "64", whole(1, 65535), own;

    /// Announce `WeftAbra=1`, and state to clients that ask how scarce the relay's bandwidth is.
    AbraWeights: Bool = "0", own;

    /// Announce `WeftMtor=1`, and let tunnels of mTor end at this exit (docs/extensions/mtor.md).
    MultipathExit: Bool = "0", own;

    /// How long a link may be silent before it gets a PADDING cell.
    KeepalivePeriod: Seconds = "5 minutes", at_least(1);

    /// Send padding on links; `auto`: where the peer does, and what a relay must leave.
    ConnectionPadding: AutoBool = "auto";

    /// Send less padding on links. A relay must leave it at 0.
    ReducedConnectionPadding: Bool = "0";

    /// Pad circuits. A relay must leave it at 1.
    CircuitPadding: Bool = "1";

    /// Pad circuits less. A relay must leave it at 0.
    ReducedCircuitPadding: Bool = "0";

    /// The HTTP proxy, by CONNECT, that connections to relays and directories take.
    HTTPSProxy: Text;

    /// User and password for HTTPSProxy, separated by a colon.
    HTTPSProxyAuthenticator: Text;

    /// The SOCKS4 proxy that connections to relays and directories take.
    Socks4Proxy: Text;

    /// The SOCKS5 proxy that connections to relays and directories take.
    Socks5Proxy: Text;

    /// The user name for Socks5Proxy.
    Socks5ProxyUsername: Text;

    /// The password for Socks5Proxy.
    Socks5ProxyPassword: Text;

    /// `haproxy` and the address of a proxy that connections to relays and directories take.
    TCPProxy: Text;

    /// An HTTP proxy for directory requests without encryption.
    HTTPProxy: Text,
        deprecated("It only applies to unencrypted connections to directory servers.");

    /// User and password for HTTPProxy, separated by a colon.
    HTTPProxyAuthenticator: Text,
        deprecated("HTTPProxy is deprecated in favour of HTTPSProxy.");
}
