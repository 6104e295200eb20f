//! How the process behaves on its machine.

options! {
    from super::private_network::END;

    /// The user to become once ports are bound.
    User: Text, immutable, of_process;

    /// Run in the background, without standard output.
    RunAsDaemon: Bool = "0", immutable, of_process;

    /// How long a relay carries existing circuits after SIGINT.
    ShutdownWaitLength: Seconds = "30 seconds";

    /// Keep the right to bind ports below 1024 after becoming User; `auto`: where torrc has one.
    KeepBindCapabilities: AutoBool = "auto", immutable, of_process;

    /// Keep all memory out of swap space.
    DisableAllSwap: Bool = "0", immutable, of_process;

    /// Other processes of the same user cannot attach.
    DisableDebuggerAttachment: Bool = "1", immutable, of_process;

    /// Restrict system calls.
    Sandbox: Bool = "0", immutable, of_process;

    /// Start no other program, and never gain privileges by one.
    NoExec: Bool = "0", immutable, of_process;

    /// A start ends dormancy.
    DormantCanceledByStartup: Bool = "0";

    /// How long a client may be idle before it is dormant.
    DormantClientTimeout: Seconds = "24 hours";

    /// Be dormant at the first start.
    DormantOnFirstStartup: Bool = "0";

    /// Streams without traffic prevent dormancy.
    DormantTimeoutDisabledByIdleStreams: Bool = "1";

    /// Become dormant after DormantClientTimeout.
    DormantTimeoutEnabled: Bool = "1";
}
