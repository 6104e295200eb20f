//! What simulations are given, and where their results go.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Error, Result};
use weft_plot::{Figure, png};
use weft_sim::network::Network;
use weft_sim::{read, synth};

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

/// A new folder for results.
pub(super) struct Folder<'a>(&'a Path);

impl Folder<'_> {
    /// Makes it; one that is there is left alone.
    pub(super) fn create(path: &Path) -> Result<Folder<'_>> {
        fs::create_dir(path).with_context(|| {
            format!(
                "cannot make a new folder {} for the results (nothing is overwritten)",
                path.display()
            )
        })?;
        Ok(Folder(path))
    }

    /// Writes a file of data.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.0.join(name);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    }

    /// Writes a plot as SVG, and as PNG where that can be made.
    pub(super) fn plot(&self, name: &str, figure: &Figure) -> Result<()> {
        let svg = self.0.join(format!("{name}.svg"));
        self.write(&format!("{name}.svg"), &figure.svg()?)?;
        if let Err(why) = png(&svg, &self.0.join(format!("{name}.png"))) {
            eprintln!(
                "weft: the plot {} is there as SVG alone: {why:#}",
                svg.display()
            );
        }
        Ok(())
    }
}
