//! The long-term keys of a directory authority.

use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::control::Fingerprint;
use crate::programs::find;

/// Starts `tor-gencert`, which makes an authority's keys in `keys`.
pub(super) fn make_keys(keys: &Path, dir: SocketAddr) -> Result<Child> {
    let mut private = fs::DirBuilder::new();
    private.mode(0o700);
    private
        .create(keys)
        .with_context(|| format!("creating {}", keys.display()))?;
    let gencert = find("tor-gencert").context("tor-gencert is not installed (package tor)")?;
    let mut child = Command::new(gencert)
        .args([
            "--create-identity-key",
            "-m",
            "12",
            "-a",
            &dir.to_string(),
            "--passphrase-fd",
            "0",
        ])
        .current_dir(keys)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("starting tor-gencert")?;
    let mut passphrase = child.stdin.take().context("a pipe to tor-gencert")?;
    passphrase
        .write_all(b"private network\n")
        .context("telling tor-gencert a passphrase")?;
    Ok(child)
}

/// Waits until `tor-gencert` has made them.
pub(super) fn wait_for_keys(gencert: Child) -> Result<()> {
    let output = gencert
        .wait_with_output()
        .context("waiting for tor-gencert")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "tor-gencert: {}\n{complaint}",
        output.status
    );
    Ok(())
}

/// Makes an authority's keys in `keys`, as C tor's operators do.
pub fn keys_by_tor_gencert(keys: &Path, dir: SocketAddr) -> Result<()> {
    wait_for_keys(make_keys(keys, dir)?)
}

/// The fingerprint of an authority's v3 identity key, from its certificate (dir-spec 3.1).
pub(crate) fn v3_identity(keys: &Path) -> Result<String> {
    let path = keys.join("authority_certificate");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("fingerprint "));
    Ok(
        Fingerprint::parse(line.context("an authority certificate without a fingerprint")?)?
            .to_string(),
    )
}
