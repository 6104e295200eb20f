//! Ports of the relay, addresses, and proxies on the way to other relays.

options! {
    from super::files::END;

    /// Open nothing but control ports, and make no connection.
    protects DisableNetwork: Bool = "0";

    /// An address and port, or a port, where the relay accepts connections, with flags. Several
    /// lines may be given.
    opens ORPort: LinesOf(ORPortLines);

    /// As ORPort, left out of dumps.
    opens __ORPort: LinesOf(ORPortLines), hidden;

    /// The lines of ORPort.
    list ORPortLines: LinesVirtual;

    /// Never be a relay, even with an ORPort.
    protects ClientOnly: Bool = "0";

    /// An address or host name of this relay; without it, it is found out.
    publishes Address: Lines;

    /// Neither find out nor publish an IPv6 address.
    publishes AddressDisableIPv6: Bool = "0";

    /// The address that connections are opened from.
    names OutboundBindAddress: Lines;

    /// The address that connections to relays are opened from, in place of OutboundBindAddress.
    names OutboundBindAddressOR: Lines;

    /// The address that exit connections are opened from, in place of OutboundBindAddress.
    names OutboundBindAddressExit: Lines;

    /// The address that pluggable transports connect from.
    names OutboundBindAddressPT: Lines;

    /// Publish without having been reached from outside.
    opens AssumeReachable: Bool = "0";

    /// Publish the IPv6 address without having been reached at it; `auto`: as the test finds.
    opens AssumeReachableIPv6: AutoBool = "auto";

    /// Clients may extend circuits to private addresses.
    opens ExtendAllowPrivateAddresses: Bool = "0", in_testing("1");

    /// Put Ed25519 identities into EXTEND2 cells; `auto`: as the consensus has it.
    protects ExtendByEd25519ID: AutoBool = "auto";

    /// Give each circuit a connection of its own to the next relay (PCTLS), so that a lost packet of
    /// one does not hold up the others; `auto`: to relays to which lost packets hold up a connection.
    tunes ConnectionPerCircuit: AutoBool = "0", own;

    /// Connections to one relay past which circuits share all the same.
    protects MaxConnectionsPerRelay: PosInt = "64", whole(1, 65535), own;

    /// Announce `WeftAbra=1`, and state to clients that ask how scarce the relay's bandwidth is.
    opens AbraWeights: Bool = "0", own;

    /// Announce `WeftMtor=1`, and let tunnels of mTor end at this exit (docs/extensions/mtor.md).
    opens MultipathExit: Bool = "0", own;

    /// How long a link may be silent before it gets a PADDING cell.
    tunes KeepalivePeriod: Seconds = "5 minutes", at_least(1);

    /// Send padding on links; `auto`: where the peer does, and what a relay must leave.
    protects ConnectionPadding: AutoBool = "auto";

    /// Send less padding on links. A relay must leave it at 0.
    protects ReducedConnectionPadding: Bool = "0";

    /// Pad circuits. A relay must leave it at 1.
    protects CircuitPadding: Bool = "1";

    /// Pad circuits less. A relay must leave it at 0.
    protects ReducedCircuitPadding: Bool = "0";

    /// The HTTP proxy, by CONNECT, that connections to relays and directories take.
    names HTTPSProxy: Text;

    /// User and password for HTTPSProxy, separated by a colon.
    names HTTPSProxyAuthenticator: Text;

    /// The SOCKS4 proxy that connections to relays and directories take.
    names Socks4Proxy: Text;

    /// The SOCKS5 proxy that connections to relays and directories take.
    names Socks5Proxy: Text;

    /// The user name for Socks5Proxy.
    names Socks5ProxyUsername: Text;

    /// The password for Socks5Proxy.
    names Socks5ProxyPassword: Text;

    /// `haproxy` and the address of a proxy that connections to relays and directories take.
    names TCPProxy: Text;

    /// An HTTP proxy for directory requests without encryption.
    names HTTPProxy: Text,
        deprecated("It only applies to unencrypted connections to directory servers.");

    /// User and password for HTTPProxy, separated by a colon.
    names HTTPProxyAuthenticator: Text,
        deprecated("HTTPProxy is deprecated in favour of HTTPSProxy.");
}
