//! Options of the process on its machine.

options! {
    from super::private_network::END;

    /// The user to become once ports are bound.
    protects User: Text, immutable, of_process;

    /// Run in the background, without standard output.
    tunes RunAsDaemon: Bool = "0", immutable, of_process;

    /// How long a relay carries existing circuits after SIGINT.
    tunes ShutdownWaitLength: Seconds = "30 seconds";

    /// Keep the right to bind ports below 1024 after becoming User; `auto`: where torrc has one.
    protects KeepBindCapabilities: AutoBool = "auto", immutable, of_process;

    /// Keep all memory out of swap space.
    protects DisableAllSwap: Bool = "0", immutable, of_process;

    /// Other processes of the same user cannot attach.
    protects DisableDebuggerAttachment: Bool = "1", immutable, of_process;

    /// Restrict system calls.
    protects Sandbox: Bool = "0", immutable, of_process;

    /// Start no other program, and never gain privileges by one.
    protects NoExec: Bool = "0", immutable, of_process;

    /// A start ends dormancy.
    tunes DormantCanceledByStartup: Bool = "0";

    /// How long a client may be idle before it is dormant.
    tunes DormantClientTimeout: Seconds = "24 hours";

    /// Be dormant at the first start.
    tunes DormantOnFirstStartup: Bool = "0";

    /// Streams without traffic prevent dormancy.
    tunes DormantTimeoutDisabledByIdleStreams: Bool = "1";

    /// Become dormant after DormantClientTimeout.
    tunes DormantTimeoutEnabled: Bool = "1";
}
