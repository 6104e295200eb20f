//! Where this program was built: the checkout, and Weft beside it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// The top of the checkout.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// The weft that was named, or the one that was built together with this program.
pub(crate) fn weft(named: Option<&Path>) -> Result<PathBuf> {
    let path = match named {
        Some(path) => path.to_owned(),
        None => std::env::current_exe()
            .context("finding this program")?
            .with_file_name("weft"),
    };
    path.canonicalize().with_context(|| {
        format!(
            "there is no program at {}; `cargo xtask` builds Weft, `--weft FILE` names another",
            path.display()
        )
    })
}
