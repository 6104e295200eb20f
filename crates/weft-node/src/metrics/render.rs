//! The text of snapshots.

use std::sync::Arc;

use weft_core::controller::FamilyCounts;

use super::snapshot::Snapshot;
use super::text::Text;
use super::{tor, weft};

/// The text of the snapshots of all identities. `open` is the number of connections to the MetricsPort, which the first has.
pub(super) fn render(snapshots: &[Arc<Snapshot>], open: FamilyCounts) -> String {
    let mut text = Text::default();
    for (index, snapshot) in snapshots.iter().enumerate() {
        let open = match index {
            0 => open,
            _ => FamilyCounts::default(),
        };
        text.begin(snapshot.identity);
        tor::write(&mut text, snapshot, open);
        weft::write(&mut text, snapshot);
    }
    text.finish()
}
