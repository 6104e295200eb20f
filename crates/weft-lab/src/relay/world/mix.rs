//! The live mix of one world.

use std::collections::VecDeque;

use super::plan::Plan;
use crate::relay::aim::Peer;
use crate::relay::live::Preset;
use crate::relay::live::mix::Mix;

/// The live mix of one world.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) mix: Mix,
    /// It has a rate.
    pub(super) has_started: bool,
    /// Circuits to be made again.
    pub(super) vacant: VecDeque<usize>,
}

impl Live {
    pub(super) fn new(preset: Preset, plan: &Plan) -> Live {
        let mut shape = preset.shape();
        if matches!(plan.peer, Peer::Pipe(_)) {
            // A pipe's links come in pairs that end together.
            shape.circuits_per_origin_link = f64::INFINITY;
            shape.circuits_per_hop_link = f64::INFINITY;
        }
        let links = (plan.origin_links, plan.next_hops);
        Live {
            mix: Mix::new(shape, plan.circuits, links, plan.seed),
            has_started: false,
            vacant: VecDeque::new(),
        }
    }
}
