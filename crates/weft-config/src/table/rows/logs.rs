//! Logs, counters, and access to them.

options! {
    from super::lifetimes::END;

    /// Severities, domains and a destination: `notice stdout`, `[OR]info file /var/log/weft`.
    names Log: Lines, of_process;

    /// Show each line's domain.
    tunes LogMessageDomains: Bool = "0", of_process;

    /// The step that times in the log are rounded to: a divisor or a multiple of a second.
    tunes LogTimeGranularity: Millis = "1 second", at_least(1), of_process;

    /// Addresses and names that are scrubbed from the log: `1` all, `relay` those seen as a relay,
    /// `0` none.
    protects SafeLogging: Text = "1", of_process;

    /// A tag behind the name in the system's log.
    names SyslogIdentityTag: Text, immutable, of_process;

    /// Empty log files at start.
    tunes TruncateLogFile: Bool = "0", of_process;

    /// Log protocol violations of others as warnings.
    tunes ProtocolWarnings: Bool = "0";

    /// How often a line on how the node is doing is logged, at least every 30 minutes; 0: never.
    tunes HeartbeatPeriod: Seconds = "6 hours";

    /// An address and port where counters can be fetched, for Prometheus.
    opens MetricsPort: LinesOf(MetricsPortLines), of_process;

    /// As MetricsPort, left out of dumps.
    opens __MetricsPort: LinesOf(MetricsPortLines), hidden, of_process;

    /// The lines of MetricsPort.
    list MetricsPortLines: LinesVirtual, of_process;

    /// Addresses that may fetch counters; without a line, nobody may.
    protects MetricsPortPolicy: Lines, of_process;

    /// Log with the heartbeat how often the main thread's event loop returned.
    tunes MainloopStats: Bool = "0";

    /// Publish how long cells wait.
    publishes CellStatistics: Bool = "0";

    /// Publish how much padding is sent.
    publishes PaddingStatistics: Bool = "1";

    /// Publish directory requests by country.
    publishes DirReqStatistics: Bool = "1";

    /// Publish which way connections are used.
    publishes ConnDirectionStatistics: Bool = "0";

    /// Publish clients by country.
    publishes EntryStatistics: Bool = "0";

    /// Publish exit traffic by port.
    publishes ExitPortStatistics: Bool = "0";

    /// Publish traffic of onion services.
    publishes HiddenServiceStatistics: Bool = "1";

    /// How long C tor remembers how relays behaved.
    tunes RephistTrackTime: Seconds = "24 hours",
        harmless("only authorities remember how relays behaved, and Weft's does not");
}
