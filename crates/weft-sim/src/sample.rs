//! Smaller networks that look like a large one, as tornettools samples them (Pahl et al. 2023, 4.1.2).

use crate::network::{Flags, Network, Relay};

/// A scale that leaves nothing, or more than there is.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("scale {0}: it must be above 0 and at most 1")]
pub struct BadScale(pub f64);

/// Keeps this part of the relays.
///
/// Relays of one class (neither, guard, exit, both) are put in order of their bandwidth and divided into
/// as many groups, as even as can be, as the class may keep relays; of each group the median stays. So
/// classes keep their share and their distribution of bandwidth. At least one relay of each class that
/// there is stays. The weights of positions are those of the whole network.
///
/// # Errors
///
/// [`BadScale`].
pub fn scaled(network: &Network, scale: f64) -> Result<Network, BadScale> {
    if !(scale > 0.0 && scale <= 1.0) {
        return Err(BadScale(scale));
    }
    let mut classes: [Vec<usize>; 4] = Default::default();
    for (place, relay) in network.relays.iter().enumerate() {
        if let Some(class) = classes.get_mut(class(relay)) {
            class.push(place);
        }
    }
    let bandwidth = |place: &usize| network.relays.get(*place).map(|relay| relay.bandwidth);
    let mut kept: Vec<usize> = Vec::new();
    for class in &mut classes {
        if class.is_empty() {
            continue;
        }
        // Stable: relays of one bandwidth stay in the order of the document.
        class.sort_by_key(bandwidth);
        let groups = ((class.len() as f64 * scale).round() as usize).max(1);
        let (size, longer) = (class.len() / groups, class.len() % groups);
        let mut rest = class.as_slice();
        for group in 0..groups {
            let (members, behind) = rest.split_at(size + usize::from(group < longer));
            kept.extend(members.get(members.len() / 2));
            rest = behind;
        }
    }
    kept.sort_unstable();
    Ok(Network {
        relays: kept
            .into_iter()
            .filter_map(|place| network.relays.get(place).cloned())
            .collect(),
        valid_after: network.valid_after.clone(),
        weights: network.weights,
    })
}

fn class(relay: &Relay) -> usize {
    let exit = relay.flags.has(Flags::EXIT) && !relay.flags.has(Flags::BAD_EXIT);
    usize::from(relay.flags.has(Flags::GUARD)) + 2 * usize::from(exit)
}
