//! What is logged and counted, and where it can be seen.

options! {
    from super::lifetimes::END;

    /// Severities, domains and a destination: `notice stdout`, `[OR]info file /var/log/weft`.
    Log: Lines, of_process;

    /// Show each line's domain.
    LogMessageDomains: Bool = "0", of_process;

    /// The step that times in the log are rounded to: a divisor or a multiple of a second.
    LogTimeGranularity: Millis = "1 second", at_least(1), of_process;

    /// Addresses and names that are scrubbed from the log: `1` all, `relay` those seen as a relay,
    /// `0` none.
    SafeLogging: Text = "1", of_process;

    /// A tag behind the name in the system's log.
    SyslogIdentityTag: Text, immutable, of_process;

    /// Empty log files at start.
    TruncateLogFile: Bool = "0", of_process;

    /// Log protocol violations of others as warnings.
    ProtocolWarnings: Bool = "0";

    /// How often a line on how the node is doing is logged, at least every 30 minutes; 0: never.
    HeartbeatPeriod: Seconds = "6 hours";

    /// An address and port where counters can be fetched, for Prometheus.
    MetricsPort: LinesOf(MetricsPortLines), of_process;

    /// As MetricsPort, left out of dumps.
    __MetricsPort: LinesOf(MetricsPortLines), hidden, of_process;

    /// The lines of MetricsPort.
    MetricsPortLines: LinesVirtual, of_process;

    /// Addresses that may fetch counters; without a line, nobody may.
    MetricsPortPolicy: Lines, of_process;

    /// Log with the heartbeat how often the main thread's event loop returned.
    MainloopStats: Bool = "0";

    /// Publish how long cells wait.
    CellStatistics: Bool = "0";

    /// Publish how much padding is sent.
    PaddingStatistics: Bool = "1";

    /// Publish directory requests by country.
    DirReqStatistics: Bool = "1";

    /// Publish which way connections are used.
    ConnDirectionStatistics: Bool = "0";

    /// Publish clients by country.
    EntryStatistics: Bool = "0";

    /// Publish exit traffic by port.
    ExitPortStatistics: Bool = "0";

    /// Publish traffic of onion services.
    HiddenServiceStatistics: Bool = "1";

    /// How long C tor remembers how relays behaved.
    RephistTrackTime: Seconds = "24 hours",
        harmless("only authorities remember how relays behaved, and forget them by the weight of their runs");
}
