//! guard-spec, sentence by sentence.

mod bridges;
mod path_bias;
mod selection;
mod state;
mod world;
