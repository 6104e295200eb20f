//! `weft sim synth`: a synthetic network as a consensus document.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;

use anyhow::{Context as _, Result, anyhow};
use clap::Args;
use weft_cli::print;
use weft_sim::{synth, write};
use weft_stats::bounds::SEED;

/// Makes a synthetic network and writes it as a consensus document.
///
/// Shares of flags, bandwidths and exit policies are those of the network of August 2021; no relay in it
/// exists. Its signature is none.
#[derive(Debug, Args)]
pub(super) struct SynthArgs {
    /// Number of relays.
    #[arg(long, value_name = "N", default_value_t = 6500, value_parser = synth::RELAYS.parser())]
    relays: u32,
    /// Everything random is a function of it.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = SEED.parser())]
    seed: u64,
    /// Write there and not to standard output; a file that exists is left alone.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(super) fn main(args: &SynthArgs) -> Result<()> {
    let network = synth::network(args.relays, args.seed)?;
    let text = write::consensus(&network);
    let Some(path) = &args.out else {
        return print::print(&text);
    };
    let name = path.display();
    let mut file = fs::File::create_new(path).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => anyhow!("{name}: it is there already, and is not overwritten"),
        _ => anyhow!("{name}: cannot make it: {error}"),
    })?;
    let written = file.write_all(text.as_bytes());
    written.with_context(|| {
        // It is ours, and half of it is of no use.
        let _ = fs::remove_file(path);
        format!("{name}: cannot write it")
    })
}
