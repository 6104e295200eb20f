//! Lifetimes of keys.

use std::time::Duration;

use crate::report::Report;
use crate::settings::Settings;
use crate::table::keys;

/// Key lifetimes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyOptions {
    /// `OfflineMasterKey`: the master secret is not here, and is never made.
    pub offline_master_key: bool,
    /// `SigningKeyLifetime`.
    pub signing_key_lifetime: Duration,
    /// `TestingSigningKeySlop`: a signing key is renewed this long before it ends.
    pub signing_key_slop: Duration,
    /// `TestingLinkCertLifetime`.
    pub link_cert_lifetime: Duration,
    /// `TestingLinkKeySlop`.
    pub link_key_slop: Duration,
    /// `TestingAuthKeyLifetime`.
    pub auth_key_lifetime: Duration,
    /// `TestingAuthKeySlop`.
    pub auth_key_slop: Duration,
}

/// Checks them.
pub(crate) fn check(settings: &Settings, report: &mut Report) {
    for (lifetime, slop) in [
        (keys::SigningKeyLifetime, keys::TestingSigningKeySlop),
        (keys::TestingLinkCertLifetime, keys::TestingAuthKeySlop),
        (keys::TestingAuthKeyLifetime, keys::TestingLinkKeySlop),
    ] {
        if settings.time(lifetime) < 2 * settings.time(slop) {
            report.error(
                settings.origin(lifetime),
                format!("{lifetime} is too short: it must be at least twice {slop}"),
            );
        }
    }
}

/// Reads them.
pub(crate) fn read(settings: &Settings) -> KeyOptions {
    KeyOptions {
        offline_master_key: settings.flag(keys::OfflineMasterKey),
        signing_key_lifetime: settings.time(keys::SigningKeyLifetime),
        signing_key_slop: settings.time(keys::TestingSigningKeySlop),
        link_cert_lifetime: settings.time(keys::TestingLinkCertLifetime),
        link_key_slop: settings.time(keys::TestingLinkKeySlop),
        auth_key_lifetime: settings.time(keys::TestingAuthKeyLifetime),
        auth_key_slop: settings.time(keys::TestingAuthKeySlop),
    }
}
