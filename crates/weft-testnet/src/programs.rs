//! Where the programs are that are run here.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

/// Finds a program in `PATH` and, because relays' programs often live there, in the `sbin` folders.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

/// Refuses a path at which there is no file.
///
/// # Errors
///
/// There is none.
pub fn check_program(path: &Path) -> Result<()> {
    ensure!(path.is_file(), "there is no program at {}", path.display());
    Ok(())
}

/// The weft that nodes run: the one at this path, or the one beside this program.
///
/// # Errors
///
/// There is no such file.
pub fn weft_program(named: Option<&Path>) -> Result<PathBuf> {
    let path = match named {
        Some(path) => {
            check_program(path)?;
            path.to_owned()
        }
        None => {
            let this = env::current_exe().context("cannot find this program's own file")?;
            let weft = this.with_file_name("weft");
            ensure!(
                weft.is_file(),
                "there is no {}: nodes run the weft that is in one folder with weft-lab; install it there, or name \
                 another by --program",
                weft.display()
            );
            weft
        }
    };
    // Each node runs in its own folder.
    path.canonicalize()
        .with_context(|| format!("finding {}", path.display()))
}

/// The weft-lab in one folder with this weft: what runs a node with a profiler, a bare pipe, and users in Shadow.
///
/// # Errors
///
/// There is no such file.
pub fn lab_program(weft: &Path) -> Result<PathBuf> {
    let lab = weft.with_file_name("weft-lab");
    ensure!(
        lab.is_file(),
        "there is no {}: it has to be in one folder with {}, and of the same version",
        lab.display(),
        weft.display()
    );
    Ok(lab)
}
