//! Bandwidth that the node may use.

use weft_counts::accounting::{Config as AccountingConfig, Rule, Start};

use crate::report::Report;
use crate::settings::Settings;
use crate::table::keys;
use crate::table::rows::bandwidth::MAX_RATE;

/// Least bandwidth of a public relay, in bytes per second (RELAY_REQUIRED_MIN_BANDWIDTH).
const MIN_RELAY_BANDWIDTH: i64 = 75 << 10;

/// Bandwidth that the relay may use; rates in bytes per second, bursts in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BandwidthOptions {
    /// `BandwidthRate`: everything that the node sends, or receives.
    pub rate: u64,
    /// `BandwidthBurst`.
    pub burst: u64,
    /// `RelayBandwidthRate`: traffic that it relays for others (`None`: only `rate` limits).
    pub relay_rate: Option<u64>,
    /// `RelayBandwidthBurst`; set exactly when `relay_rate` is.
    pub relay_burst: Option<u64>,
    /// `MaxAdvertisedBandwidth`: the descriptor claims no more than this.
    pub max_advertised: u64,
    /// `CountPrivateBandwidth`: traffic to private addresses counts too.
    pub count_private: bool,
    /// `PerConnBWRate`: of each connection to a peer that is not a known relay (`None`: by
    /// consensus).
    pub per_connection_rate: Option<u64>,
    /// `PerConnBWBurst`.
    pub per_connection_burst: Option<u64>,
    /// `AccountingMax`, `AccountingRule` and `AccountingStart`.
    pub accounting: AccountingConfig,
}

impl BandwidthOptions {
    /// The rate that the descriptor gives as "bandwidth-avg" (relay_get_effective_bwrate).
    #[must_use]
    pub fn effective_rate(&self) -> u64 {
        self.relay_rate
            .unwrap_or(u64::MAX)
            .min(self.rate)
            .min(self.max_advertised)
    }

    /// The burst that the descriptor gives as "bandwidth-burst" (relay_get_effective_bwburst).
    #[must_use]
    pub fn effective_burst(&self) -> u64 {
        self.relay_burst.unwrap_or(u64::MAX).min(self.burst)
    }
}

/// Replaces "2 GB", which is one byte too much, by the most that is allowed.
pub(crate) fn correct_limits(settings: &mut Settings) {
    let capped = [
        keys::BandwidthRate,
        keys::BandwidthBurst,
        keys::MaxAdvertisedBandwidth,
        keys::RelayBandwidthRate,
        keys::RelayBandwidthBurst,
        keys::PerConnBWRate,
        keys::PerConnBWBurst,
    ];
    for key in capped {
        if settings.number(key) == MAX_RATE + 1 {
            settings.correct_number(key, MAX_RATE);
        }
    }
}

/// `RelayBandwidthRate` and `RelayBandwidthBurst`; 0: not set.
fn relay_limits(settings: &Settings) -> (i64, i64) {
    (
        settings.number(keys::RelayBandwidthRate),
        settings.number(keys::RelayBandwidthBurst),
    )
}

/// Checks them, and fills in what one of them has from another.
pub(crate) fn check(settings: &mut Settings, is_relay: bool, report: &mut Report) {
    let (relay_rate, relay_burst) = relay_limits(settings);
    if relay_rate > 0 && relay_burst == 0 {
        settings.correct_number(keys::RelayBandwidthBurst, relay_rate);
    }
    if relay_burst > 0 && relay_rate == 0 {
        settings.correct_number(keys::RelayBandwidthRate, relay_burst);
    }
    let (relay_rate, relay_burst) = relay_limits(settings);
    if is_relay {
        let relay_rate_is_set = relay_rate != 0;
        for (key, least, is_set) in [
            (keys::BandwidthRate, MIN_RELAY_BANDWIDTH, true),
            (keys::MaxAdvertisedBandwidth, MIN_RELAY_BANDWIDTH / 2, true),
            (
                keys::RelayBandwidthRate,
                MIN_RELAY_BANDWIDTH,
                relay_rate_is_set,
            ),
        ] {
            let value = settings.number(key);
            if value < least && is_set {
                report.error(
                    settings.origin(key),
                    format!("{key} is {value} bytes per second; a relay needs at least {least}"),
                );
            }
        }
    }
    if relay_rate > relay_burst {
        report.error(
            settings.origin(keys::RelayBandwidthBurst),
            "RelayBandwidthBurst must be at least RelayBandwidthRate",
        );
    }
    // Relayed traffic is part of all traffic.
    if relay_rate > settings.number(keys::BandwidthRate) {
        settings.correct_number(keys::BandwidthRate, relay_rate);
    }
    if relay_burst > settings.number(keys::BandwidthBurst) {
        settings.correct_number(keys::BandwidthBurst, relay_burst);
    }
    if settings.number(keys::BandwidthRate) > settings.number(keys::BandwidthBurst) {
        report.error(
            settings.origin(keys::BandwidthBurst),
            "BandwidthBurst must be at least BandwidthRate",
        );
    }
}

/// Limit of the relay's traffic in an accounting period.
fn accounting(settings: &Settings, report: &mut Report) -> AccountingConfig {
    let rule = settings.text(keys::AccountingRule);
    let rule = rule.map_or(Some(Rule::default()), Rule::parse);
    let rule = rule.unwrap_or_else(|| {
        // C tor's words.
        report.error(
            settings.origin(keys::AccountingRule),
            "AccountingRule must be 'sum', 'max', 'in', or 'out'",
        );
        Rule::default()
    });
    let start = settings.text(keys::AccountingStart).map(Start::parse);
    let start = match start.transpose() {
        Ok(start) => start.unwrap_or_default(),
        Err(why) => {
            report.error(
                settings.origin(keys::AccountingStart),
                format!("AccountingStart: {why}"),
            );
            Start::default()
        }
    };
    let rate = settings.amount_or_none(keys::RelayBandwidthRate);
    AccountingConfig {
        max: settings.amount(keys::AccountingMax),
        rule,
        start,
        rate: rate.unwrap_or_else(|| settings.amount(keys::BandwidthRate)),
        avoid_disk_writes: settings.flag(keys::AvoidDiskWrites),
    }
}

/// Reads them.
pub(crate) fn read(settings: &Settings, report: &mut Report) -> BandwidthOptions {
    BandwidthOptions {
        rate: settings.amount(keys::BandwidthRate),
        burst: settings.amount(keys::BandwidthBurst),
        relay_rate: settings.amount_or_none(keys::RelayBandwidthRate),
        relay_burst: settings.amount_or_none(keys::RelayBandwidthBurst),
        max_advertised: settings.amount(keys::MaxAdvertisedBandwidth),
        count_private: settings.flag(keys::CountPrivateBandwidth),
        per_connection_rate: settings.amount_or_none(keys::PerConnBWRate),
        per_connection_burst: settings.amount_or_none(keys::PerConnBWBurst),
        accounting: accounting(settings, report),
    }
}
