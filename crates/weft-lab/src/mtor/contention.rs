//! Web clients beside bulk clients that use one circuit, or several through slow relays (Yang and Li 2015, V.B).

use anyhow::Result;

use super::part::{BULK, BULK_MODEL, Common, Kind, Load, WEB, WEB_MODEL};
use super::relays::Relays;
use crate::comparison::Arm;

/// Number of nodes and users of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) relays: u32,
    pub(super) web: u32,
    pub(super) bulk: u32,
    pub(super) servers: u32,
}

impl Size {
    /// This part of the paper's network.
    pub(super) fn of(scale: f64, load: Load) -> Size {
        // The scale is bounded by the command, so this fits.
        let part = |of: u32, least: u32| ((f64::from(of) * scale).round() as u32).max(least);
        Size {
            relays: part(50, 20),
            web: part(990, 20),
            bulk: part(load.bulk(), 2),
            servers: part(200, 10),
        }
    }
}

/// As a scenario.
///
/// # Errors
///
/// The name of a file is no text.
pub(super) fn text(
    load: Load,
    size: Size,
    common: &Common,
    relays: &Relays,
    arms: &[Arm],
) -> Result<String> {
    let about = "web clients beside bulk clients, whose streams are on one circuit or on several";
    let lasts = common.warm_up + common.counted;
    let mut text = common.head(Kind::Contention(load), about, lasts);
    text += &common.network(relays)?;
    text += &common.others(size.web, WEB, WEB_MODEL, false);
    text += &common.others(size.bulk, BULK, BULK_MODEL, true);
    text += &format!("\n[[servers]]\ncount = {}\n", size.servers);
    text += &common.arms(arms);
    Ok(text)
}
