//! How much the node may carry.

/// Rates and bursts beyond this do not fit into a descriptor (ROUTER_MAX_DECLARED_BANDWIDTH).
pub(crate) const MAX_RATE: i64 = i32::MAX as i64;

options! {
    from super::network::END;

    /// Bytes per second that the node may receive, and as many that it may send.
    BandwidthRate: Memory = "1 GB", at_most(MAX_RATE);

    /// Bytes that may be received, or sent, at once.
    BandwidthBurst: Memory = "1 GB", at_most(MAX_RATE);

    /// As BandwidthRate, for relayed traffic alone; 0: no limit of its own.
    RelayBandwidthRate: Memory = "0", at_most(MAX_RATE);

    /// As BandwidthBurst, for relayed traffic alone; 0: RelayBandwidthRate.
    RelayBandwidthBurst: Memory = "0", at_most(MAX_RATE);

    /// The descriptor claims no more than this.
    MaxAdvertisedBandwidth: Memory = "1 GB", at_most(MAX_RATE);

    /// Bytes per second of each connection to what the consensus does not list; 0: as the consensus
    /// has it.
    PerConnBWRate: Memory = "0", at_most(MAX_RATE);

    /// Bytes at once of each such connection; 0: as the consensus has it.
    PerConnBWBurst: Memory = "0", at_most(MAX_RATE);

    /// Traffic with private addresses counts, too.
    CountPrivateBandwidth: Bool = "0", in_testing("1");

    /// How often C tor refills its token buckets.
    TokenBucketRefillInterval: Millis = "100 msec",
        whole(1, 1000), immutable, harmless("bandwidth is given out continuously");

    /// How much traffic a period of accounting may have.
    AccountingMax: Memory = "0 bytes";

    /// How AccountingMax counts the two directions: `max`, `sum`, `in` or `out`.
    AccountingRule: Text = "max";

    /// When a period of accounting starts, by local time: `month DAY HH:MM`, `week DAY HH:MM` or `day HH:MM`; without it,
    /// with the month.
    AccountingStart: Text;
}
