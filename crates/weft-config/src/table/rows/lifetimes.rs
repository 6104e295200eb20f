//! Lifetimes of keys.

options! {
    from super::dos::END;

    /// The master identity key is not on this machine.
    OfflineMasterKey: Bool = "0";

    /// How long a signing key is good for.
    SigningKeyLifetime: Seconds = "30 days";

    /// How long before its end a signing key is replaced.
    TestingSigningKeySlop: Seconds = "1 day", testing_only;

    /// How long a link certificate is good for.
    TestingLinkCertLifetime: Seconds = "2 days", testing_only;

    /// How long before its end a link certificate is replaced.
    TestingLinkKeySlop: Seconds = "3 hours", testing_only;

    /// How long a link authentication key is good for.
    TestingAuthKeyLifetime: Seconds = "2 days", testing_only;

    /// How long before its end a link authentication key is replaced.
    TestingAuthKeySlop: Seconds = "3 hours", testing_only;

    /// How long C tor's TLS certificate is good for.
    SSLKeyLifetime: Seconds = "0",
        harmless("nobody looks at this lifetime: link keys are renewed by the schedule of the certificates that vouch for them");
}
