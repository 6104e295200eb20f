//! `weft lab chaos --worst`: what a hostile client can make relays do and hold for each byte that it sends.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use serde::Serialize;
use weft_cli::say;
use weft_virtual::chaos::{Quantity, Round, Settings, climb};

use super::files;

/// Result of a search, with the moves that show it.
#[derive(Serialize)]
struct Worst<'a> {
    quantity: Quantity,
    ratio: f64,
    relay: usize,
    spent: u64,
    round: &'a Round,
}

/// Searches for each quantity, prints the worst, and writes it to a file. Returns true if
/// everything held on the way.
pub(super) fn find(settings: Settings, keep: &Path, base: Instant) -> Result<bool> {
    let mut holds = true;
    say!(
        "For each KiB that a hostile client sends, the worst of {} attempts costs a relay",
        settings.attempts
    );
    for quantity in Quantity::ALL {
        match climb(quantity, settings, base) {
            Ok(found) => {
                let role = ["guard", "exit", "middle relay"].get(found.relay);
                say!(
                    "  {:.2} {} (the {}; {} bytes sent, {} moves)",
                    found.ratio,
                    quantity.unit(),
                    role.unwrap_or(&"relay"),
                    found.spent,
                    found.round.faults.len().saturating_sub(1),
                );
                let worst = Worst {
                    quantity,
                    ratio: found.ratio,
                    relay: found.relay,
                    spent: found.spent,
                    round: &found.round,
                };
                files::write(&keep.join(format!("worst-{quantity}.json")), &worst)?;
            }
            Err(found) => {
                let (round, what) = *found;
                holds = false;
                let file = keep.join(format!("worst-{quantity}-fails.json"));
                files::write(&file, &round)?;
                say!("  {quantity}: something does not hold: {what}");
                say!(
                    "  Run it again:\n    cargo xtask chaos --replay {}",
                    file.display()
                );
            }
        }
    }
    Ok(holds)
}
