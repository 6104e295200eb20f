//! Durations as seconds with six decimals, for serde.

use std::time::Duration;

use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

/// Seconds, to the microsecond.
pub(crate) fn of(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e6
}

fn to_duration<E: serde::de::Error>(seconds: f64) -> Result<Duration, E> {
    let time = Duration::try_from_secs_f64(seconds).map_err(E::custom)?;
    // Not every double is a multiple of a microsecond.
    let micros = time.as_nanos().saturating_add(500) / 1000;
    u64::try_from(micros)
        .map(Duration::from_micros)
        .map_err(E::custom)
}

pub(crate) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    of(*time).serialize(to)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    to_duration(f64::deserialize(from)?)
}

/// Serializes a time that may be missing.
pub(crate) mod optional {
    use super::*;

    #[allow(
        clippy::ref_option,
        reason = "serde hands over a reference to the field"
    )]
    pub(crate) fn serialize<S: Serializer>(
        time: &Option<Duration>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        time.map(of).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Duration>, D::Error> {
        Option::<f64>::deserialize(from)?
            .map(to_duration)
            .transpose()
    }
}
