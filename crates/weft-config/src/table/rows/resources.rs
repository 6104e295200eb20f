//! Memory, threads, sockets.

options! {
    from super::bandwidth::END;

    /// Threads that own links; 0: all on the main thread; `auto`: as many as the process may use cores.
    tunes ConnectionThreads: Count = "auto", immutable, own, of_process;

    /// Give links to all ConnectionThreads at any load, even to those for which there is no core. Without it as many
    /// have links as the load needs.
    tunes UseAllThreads: Bool = "0", immutable, own, of_process;

    /// Threads that answer onionskins; 0: as many as there are cores, 16 at most.
    tunes NumCPUs: PosInt = "0", needs_restart, of_process;

    /// File descriptors that must be available.
    protects ConnLimit: PosInt = "1000", at_least(1), of_process;

    /// Bound the kernel's buffers of each socket by ConstrainedSockSize.
    tunes ConstrainedSockets: Bool = "0";

    /// Bytes of each of a socket's two buffers: from 2048 to 262144, in steps of 1024.
    tunes ConstrainedSockSize: Memory = "8192";

    /// Bytes that circuits, streams and links may hold, at least 64 MB on a relay; 0: by the
    /// machine's memory.
    protects MaxMemInQueues: Memory = "0", of_process;

    /// How long an onionskin may wait; 0: as the consensus has it.
    protects MaxOnionQueueDelay: Millis = "0";

    /// Do not close connections when sockets run out.
    protects DisableOOSCheck: Bool = "1", harmless("Weft bounds its sockets by rules of its own");

    /// Use OpenSSL's engines.
    tunes HardwareAccel: Bool = "0", immutable, harmless("there is no OpenSSL to configure");

    /// The OpenSSL engine to use.
    tunes AccelName: Text, immutable, harmless("there is no OpenSSL to configure");

    /// The directory of OpenSSL's engines.
    names AccelDir: Path, immutable, harmless("there is no OpenSSL to configure");
}
