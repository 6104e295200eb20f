//! `weft sim synth`: a synthetic network as a consensus document.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;
use weft_sim::{synth, write};

/// Makes a synthetic network and writes it as a consensus document.
///
/// Shares of flags, bandwidths and exit policies are those of the network of August 2021; no relay in it
/// exists. Its signature is none.
#[derive(Debug, Args)]
pub(super) struct SynthArgs {
    /// How many relays it has.
    #[arg(long, value_name = "N", default_value_t = 6500)]
    relays: u32,
    /// Everything random is a function of it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write there and not to standard output; a file that exists is left alone.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(super) fn main(args: &SynthArgs) -> Result<()> {
    let network = synth::network(args.relays, args.seed)?;
    let text = write::consensus(&network);
    let Some(path) = &args.out else {
        return super::output::print(&text);
    };
    let mut file = fs::File::create_new(path)
        .with_context(|| format!("{} is not overwritten", path.display()))?;
    file.write_all(text.as_bytes()).inspect_err(|_| {
        // It is ours, and half of it is of no use.
        let _ = fs::remove_file(path);
    })?;
    Ok(())
}
