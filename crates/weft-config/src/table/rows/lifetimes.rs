//! Lifetimes of keys.

options! {
    from super::dos::END;

    /// The master identity key is not on this machine.
    protects OfflineMasterKey: Bool = "0";

    /// How long a signing key is good for.
    tunes SigningKeyLifetime: Seconds = "30 days";

    /// How long before its end a signing key is replaced.
    tunes TestingSigningKeySlop: Seconds = "1 day", testing_only;

    /// How long a link certificate is good for.
    tunes TestingLinkCertLifetime: Seconds = "2 days", testing_only;

    /// How long before its end a link certificate is replaced.
    tunes TestingLinkKeySlop: Seconds = "3 hours", testing_only;

    /// How long a link authentication key is good for.
    tunes TestingAuthKeyLifetime: Seconds = "2 days", testing_only;

    /// How long before its end a link authentication key is replaced.
    tunes TestingAuthKeySlop: Seconds = "3 hours", testing_only;

    /// How long C tor's TLS certificate is good for.
    tunes SSLKeyLifetime: Seconds = "0",
        harmless("nobody looks at this lifetime: link keys are renewed by the schedule of the certificates that vouch for them");
}
