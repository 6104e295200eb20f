//! The text of a snapshot.

use weft_core::controller::FamilyCounts;

use super::snapshot::Snapshot;
use super::text::Text;
use super::{tor, weft};

/// The text of a snapshot. `open` is the number of connections to the MetricsPort.
pub(super) fn render(snapshot: &Snapshot, open: FamilyCounts) -> String {
    let mut text = Text::default();
    tor::write(&mut text, snapshot, open);
    weft::write(&mut text, snapshot);
    text.finish()
}
