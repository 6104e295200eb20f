//! Exit policy and name lookups.

options! {
    from super::directory::END;

    /// Allow exit streams, as ExitPolicy has it; `auto`: only where an exit policy is set.
    opens ExitRelay: AutoBool = "auto";

    /// Rules for exit connections, `accept` or `reject`, address and ports; the first that matches
    /// decides.
    opens ExitPolicy: Lines;

    /// Allow the ports of well-known services in place of C tor's default policy.
    opens ReducedExitPolicy: Bool = "0";

    /// Allow exit connections by IPv6.
    opens IPv6Exit: Bool = "0";

    /// Reject private networks and the relay's own addresses, whatever ExitPolicy has.
    protects ExitPolicyRejectPrivate: Bool = "1", in_testing("0");

    /// Reject the addresses of this machine's interfaces, too.
    protects ExitPolicyRejectLocalInterfaces: Bool = "0";

    /// Close streams that a new exit policy forbids.
    tunes ReevaluateExitPolicy: Bool = "0";

    /// Refuse exit streams of circuits whose previous hop the consensus does not list; `auto`: as
    /// the consensus has it.
    protects RefuseUnknownExits: AutoBool = "auto";

    /// The file that names the name servers; the system's unless set.
    names ServerDNSResolvConfFile: Path;

    /// Start even if that file cannot be read.
    opens ServerDNSAllowBrokenConfig: Bool = "1";

    /// Look names up in the local domain, too.
    tunes ServerDNSSearchDomains: Bool = "0";

    /// Mix upper and lower case in queries, against forged answers.
    protects ServerDNSRandomizeCase: Bool = "1";

    /// Test whether name servers answer for names that do not exist.
    protects ServerDNSDetectHijacking: Bool = "1";

    /// Names that must exist: used to test whether name servers answer at all.
    tunes ServerDNSTestAddresses: Csv = "www.google.com,www.mit.edu,www.yahoo.com,www.slashdot.org";

    /// Look up names with characters that host names do not have.
    opens ServerDNSAllowNonRFC953Hostnames: Bool = "0";
}
