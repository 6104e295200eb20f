//! What simulations are given, and where their results go.

use std::path::PathBuf;

use anyhow::{Error, Result};
use clap::Args;
use weft_plot::Folder;
use weft_sim::network::Network;
use weft_sim::{parallel, read, synth};

use super::output::Format;

/// Relays of the synthetic network that is taken where no document is named: about as many as the
/// network had in 2021.
const SYNTHETIC: u32 = 6500;

/// The networks of the documents, with their names; a synthetic one if none is named.
pub(super) fn networks(paths: &[PathBuf], seed: u64) -> Result<Vec<(String, Network)>> {
    if paths.is_empty() {
        let network = synth::network(SYNTHETIC, seed)?;
        return Ok(vec![("a synthetic network".to_owned(), network)]);
    }
    let mut networks = Vec::new();
    read::documents::<Error>(paths, &mut |document| {
        let network = read::parse(&document.text, &document.name)?;
        networks.push((document.name, network));
        Ok(())
    })?;
    Ok(networks)
}

/// The arguments that all simulations have.
#[derive(Debug, Args)]
pub(super) struct Common {
    /// Everything random is a function of it.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// Threads; they change no number [default: as many as there are cores].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// What to print.
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub(super) format: Format,
    /// Make this folder, with results as JSON and CSV, and plots; nothing is overwritten.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl Common {
    pub(super) fn threads(&self) -> usize {
        self.threads.map_or_else(parallel::cores, usize::from)
    }

    /// The new folder, if one is asked for. To be called before the simulation.
    pub(super) fn folder(&self) -> Result<Option<Folder>> {
        self.out.as_deref().map(Folder::create).transpose()
    }
}
