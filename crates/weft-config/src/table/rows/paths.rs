//! Relays that a client builds circuits through, and those that it can connect to.

options! {
    from super::control::END;

    /// Relays that may be exits: fingerprints, nicknames, networks and countries.
    protects ExitNodes: RouterSet;

    /// Relays that may be first hops.
    protects EntryNodes: RouterSet;

    /// Relays that may be middle hops.
    protects MiddleNodes: RouterSet;

    /// Relays to avoid.
    protects ExcludeNodes: RouterSet;

    /// Relays to avoid as exits.
    protects ExcludeExitNodes: RouterSet;

    /// Never use ExcludeNodes, even for what cannot be done otherwise.
    protects StrictNodes: Bool = "0";

    /// Relays of which a circuit uses one at most.
    protects NodeFamily: Lines;

    /// A circuit uses one relay at most of each /16 (IPv6: /32).
    protects EnforceDistinctSubnets: Bool = "1", in_testing("0");

    /// Countries of IPv4 addresses.
    names GeoIPFile: Path = "/usr/share/tor/geoip";

    /// Countries of IPv6 addresses.
    names GeoIPv6File: Path = "/usr/share/tor/geoip6";

    /// Avoid relays of unknown country, too; `auto`: where ExcludeNodes names countries.
    protects GeoIPExcludeUnknown: AutoBool = "auto";

    /// Ports whose streams want relays with the flag Stable.
    tunes LongLivedPorts: Csv = "21,22,706,1863,5050,5190,5222,5223,6523,6667,6697,8300";

    /// Keep to few first hops.
    protects UseEntryGuards: Bool = "1";

    /// Guards that are used at once; 0: as the consensus has it.
    protects NumEntryGuards: PosInt = "0";

    /// Guards that are asked for directory documents; 0: as the consensus has it.
    protects NumDirectoryGuards: PosInt = "0";

    /// Guards that are preferred; 0: as the consensus has it.
    protects NumPrimaryGuards: PosInt = "0";

    /// How long a guard is kept; 0: as the consensus has it.
    protects GuardLifetime: Seconds = "0 minutes";

    /// Weigh guards by how long they have been guards.
    tunes UseGuardFraction: AutoBool = "auto", harmless("no consensus has guard fractions any more");

    /// Connect to relays by IPv4.
    tunes ClientUseIPv4: Bool = "1";

    /// Connect to relays by IPv6.
    tunes ClientUseIPv6: Bool = "1";

    /// Prefer IPv6 where both can be reached.
    tunes ClientPreferIPv6ORPort: AutoBool = "auto";

    /// Rules for the addresses and ports that the firewall lets through.
    protects ReachableAddresses: Lines;

    /// As ReachableAddresses, in its place, for ORPorts.
    protects ReachableORAddresses: Lines;

    /// As ReachableAddresses, for DirPorts, which clients never use.
    protects ReachableDirAddresses: Lines, deprecated("It has no effect.");

    /// Prefer the IPv6 addresses of DirPorts.
    tunes ClientPreferIPv6DirPort: AutoBool = "auto",
        deprecated("It has no effect."), harmless("it has no effect in C tor either");

    /// The firewall lets only FirewallPorts through.
    protects FascistFirewall: Bool = "0";

    /// The ports of FascistFirewall; 443 and 80 unless set.
    protects FirewallPorts: Csv = "";

    /// Circuits through a guard before it is judged by those that fail; negative: as the consensus
    /// has it.
    tunes PathBiasCircThreshold: Int = "-1";

    /// Below this share of circuits that succeed, a notice is logged; negative: as the consensus has
    /// it.
    tunes PathBiasNoticeRate: Double = "-1", fraction(0.0, 1.0), or_negative;

    /// Below this share of circuits that succeed, a warning is logged; negative: as the consensus
    /// has it.
    tunes PathBiasWarnRate: Double = "-1", fraction(0.0, 1.0), or_negative;

    /// Below this share of circuits that succeed, the guard is suspicious; negative: as the
    /// consensus has it.
    tunes PathBiasExtremeRate: Double = "-1", fraction(0.0, 1.0), or_negative;

    /// Drop suspicious guards; `auto`: as the consensus has it.
    protects PathBiasDropGuards: AutoBool = "0";

    /// Circuits after which counts are halved; negative: as the consensus has it.
    tunes PathBiasScaleThreshold: Int = "-1";

    /// Uses of circuits before a guard is judged by those that fail; negative: as the consensus has
    /// it.
    tunes PathBiasUseThreshold: Int = "-1";

    /// Below this share of uses that succeed, a notice is logged; negative: as the consensus has it.
    tunes PathBiasNoticeUseRate: Double = "-1", fraction(0.0, 1.0), or_negative;

    /// Below this share of uses that succeed, the guard is suspicious; negative: as the consensus
    /// has it.
    tunes PathBiasExtremeUseRate: Double = "-1", fraction(0.0, 1.0), or_negative;

    /// Uses after which counts are halved; negative: as the consensus has it.
    tunes PathBiasScaleUseThreshold: Int = "-1";
}
