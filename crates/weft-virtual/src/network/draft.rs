//! A network before its relays have keys and it has documents.

use weft_model::hosts::Net;
use weft_sim::network::Relay as Listed;

use crate::setup::{Background, Host, Server};

/// Hosts with what runs on them, before the relays have keys.
pub(super) struct Draft {
    pub(super) net: Net,
    pub(super) hosts: Vec<Host>,
    pub(super) relays: Vec<RelayDraft>,
    /// A host, and the place of its entry in [`crate::scenario::Scenario::clients`].
    pub(super) clients: Vec<(u32, usize)>,
    pub(super) servers: Vec<Server>,
    pub(super) background: Vec<Background>,
}

/// A relay as clients know it, and how it is set.
pub(super) struct RelayDraft {
    pub(super) host: u32,
    pub(super) listed: Listed,
    /// None: as the arm has it.
    pub(super) threads: Option<u16>,
    pub(super) limit: Option<(u64, u64)>,
}
