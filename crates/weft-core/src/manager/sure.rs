//! Results of an audit's checks.

/// Nothing, or what does not hold.
pub(super) fn sure(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}
