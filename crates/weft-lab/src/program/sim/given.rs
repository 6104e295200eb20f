//! Inputs of simulations, and the destination of their results.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Error, Result, bail, ensure};
use clap::Args;
use weft_plot::{Folder, Style};
use weft_sim::network::Network;
use weft_sim::{parallel, read, synth};
use weft_stats::bounds::SEED;

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

/// The network of the one document; a synthetic one if none is named.
pub(super) fn network(path: Option<&PathBuf>, seed: u64) -> Result<(String, Network)> {
    let all = networks(path.map_or(&[], std::slice::from_ref), seed)?;
    let name = || path.map_or_else(String::new, |path| path.display().to_string());
    match <[_; 1]>::try_from(all) {
        Ok([one]) => Ok(one),
        Err(all) => bail!(
            "{}: it holds {} documents, and this is about one: name that one",
            name(),
            all.len()
        ),
    }
}

/// A file that is read line by line. A folder is none.
pub(super) fn file(path: &Path) -> Result<BufReader<File>> {
    let name = path.display();
    let file = File::open(path).with_context(|| format!("{name}: cannot open it"))?;
    let about = file
        .metadata()
        .with_context(|| format!("{name}: cannot read it"))?;
    ensure!(!about.is_dir(), "{name}: it is a folder, not a file");
    Ok(BufReader::new(file))
}

/// The arguments that all simulations have.
#[derive(Debug, Args)]
pub(super) struct Common {
    /// Everything random is a function of it.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = SEED.parser())]
    pub(super) seed: u64,
    /// Threads; they change no number [default: as many as there are cores].
    #[arg(long, value_name = "N", value_parser = parallel::THREADS.parser())]
    threads: Option<usize>,
    /// Output at the end.
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub(super) format: Format,
    /// Make this folder, with results as JSON and CSV, and plots; nothing is overwritten.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    style: Style,
}

impl Common {
    pub(super) fn threads(&self) -> usize {
        self.threads.unwrap_or_else(parallel::cores)
    }

    /// The new folder, if one is asked for. To be called before the simulation.
    pub(super) fn folder(&self) -> Result<Option<Folder>> {
        let Some(path) = &self.out else {
            ensure!(
                self.style == Style::default(),
                "--style is for plots: name the folder that they are to be in by --out"
            );
            return Ok(None);
        };
        Ok(Some(Folder::create(path)?.with_style(self.style)))
    }
}
