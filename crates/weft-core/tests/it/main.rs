//! Relays and origins of the crate in worlds made by the tests: state machines, no sockets.
//!
//! One program, so that this crate is linked once for all of its integration tests; a new file is a
//! module here.

mod abra;
mod circpad;
mod circuits;
mod extensions;
mod far_end;
mod half_closed;
mod introduction;
mod ledger;
mod legs;
mod link_padding;
mod link_roles;
mod links;
mod moves;
mod mtor;
mod origin;
mod ownership;
mod pair;
mod per_circuit;
mod probe;
mod queues;
mod relay_commands;
mod relays_or_clients;
mod rendezvous;
mod shares;
mod stream_rules;
mod streams;
mod tunnels;
mod tunnels_bad_input;
mod tunnels_hostile;
mod world;
