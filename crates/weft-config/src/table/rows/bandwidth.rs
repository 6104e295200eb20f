//! Bandwidth that the node may use.

/// Rates and bursts beyond this do not fit into a descriptor (ROUTER_MAX_DECLARED_BANDWIDTH).
pub(crate) const MAX_RATE: i64 = i32::MAX as i64;

options! {
    from super::network::END;

    /// Bytes per second that the node may receive, and as many that it may send.
    protects BandwidthRate: Memory = "1 GB", at_most(MAX_RATE);

    /// Bytes that may be received, or sent, at once.
    protects BandwidthBurst: Memory = "1 GB", at_most(MAX_RATE);

    /// As BandwidthRate, for relayed traffic alone; 0: no limit of its own.
    protects RelayBandwidthRate: Memory = "0", at_most(MAX_RATE);

    /// As BandwidthBurst, for relayed traffic alone; 0: RelayBandwidthRate.
    protects RelayBandwidthBurst: Memory = "0", at_most(MAX_RATE);

    /// The descriptor claims no more than this.
    publishes MaxAdvertisedBandwidth: Memory = "1 GB", at_most(MAX_RATE);

    /// Bytes per second of each connection to what the consensus does not list; 0: as the consensus
    /// has it.
    protects PerConnBWRate: Memory = "0", at_most(MAX_RATE);

    /// Bytes at once of each such connection; 0: as the consensus has it.
    protects PerConnBWBurst: Memory = "0", at_most(MAX_RATE);

    /// Traffic with private addresses counts, too.
    tunes CountPrivateBandwidth: Bool = "0", in_testing("1");

    /// How often C tor refills its token buckets.
    tunes TokenBucketRefillInterval: Millis = "100 msec",
        whole(1, 1000), immutable, harmless("bandwidth is given out continuously");

    /// How much traffic a period of accounting may have.
    protects AccountingMax: Memory = "0 bytes";

    /// How AccountingMax counts the two directions: `max`, `sum`, `in` or `out`.
    tunes AccountingRule: Text = "max";

    /// When a period of accounting starts, by local time: `month DAY HH:MM`, `week DAY HH:MM` or `day HH:MM`; without it,
    /// with the month.
    tunes AccountingStart: Text;
}
