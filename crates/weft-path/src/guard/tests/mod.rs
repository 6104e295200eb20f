//! guard-spec, sentence by sentence.

mod path_bias;
mod selection;
mod state;
mod world;
