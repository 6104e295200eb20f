//! Headless Chromium, which looks at a page once.

use std::fs::File;
use std::io::BufReader;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use weft_testnet::guardian::Guardian;
use weft_testnet::programs::find;

/// How long a page may take.
const PATIENCE: Duration = Duration::from_secs(90);

/// What a browser shows, red, green and blue, row after row.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Picture {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pixels: Vec<[u8; 3]>,
}

impl Picture {
    pub(crate) fn read(path: &Path) -> Result<Picture> {
        let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
        let mut decoder = png::Decoder::new(BufReader::new(file));
        decoder.set_transformations(png::Transformations::normalize_to_color8());
        let mut reader = decoder.read_info()?;
        let size = reader.output_buffer_size().context("a large screenshot")?;
        let mut bytes = vec![0; size];
        let info = reader.next_frame(&mut bytes)?;
        let samples = info.color_type.samples();
        ensure!(samples >= 3, "a screenshot without colours");
        let pixels = bytes
            .chunks_exact(samples)
            .filter_map(|pixel| pixel.first_chunk().copied());
        Ok(Picture {
            width: info.width as usize,
            height: info.height as usize,
            pixels: pixels.collect(),
        })
    }

    pub(crate) fn at(&self, x: usize, y: usize) -> Option<[u8; 3]> {
        self.pixels.get(y * self.width + x).copied()
    }

    /// Where two pictures of one size differ.
    pub(crate) fn differences(&self, other: &Picture) -> Vec<(usize, usize)> {
        let pairs = self.pixels.iter().zip(&other.pixels).enumerate();
        pairs
            .filter(|(_, (one, other))| one != other)
            .map(|(at, _)| (at % self.width, at / self.width))
            .collect()
    }
}

/// How a browser finds the server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way<'a> {
    /// This name is 127.0.0.1, and there are no others.
    Direct(&'a str),
    /// It knows no names, and asks the SOCKS port at this address for everything.
    Socks(std::net::SocketAddr),
}

/// Opens a page in a browser that has never been used, and returns what it shows when all of it has
/// come.
pub(crate) fn look(
    folder: &Path,
    url: &str,
    way: Way<'_>,
    size: (usize, usize),
) -> Result<Picture> {
    let chromium = find("chromium")
        .context("the program `chromium` is not installed (Debian: apt-get install chromium)")?;
    let profile = tempfile::tempdir_in(folder)?;
    let shot: PathBuf = profile.path().join("screenshot.png");
    let printed = profile.path().join("printed");
    let log = File::create(&printed)?;
    let rules = match way {
        Way::Direct(name) => vec![format!(
            "--host-resolver-rules=MAP {name} 127.0.0.1, MAP * ~NOTFOUND"
        )],
        // Whatever is looked up on this machine is not found, and nothing goes past the proxy.
        Way::Socks(port) => vec![
            format!("--proxy-server=socks5://{port}"),
            "--proxy-bypass-list=<-loopback>".to_owned(),
            format!(
                "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE {}",
                port.ip()
            ),
        ],
    };
    let mut child = Command::new(chromium)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
        ])
        .args([
            "--no-first-run",
            "--no-default-browser-check",
            "--disable-sync",
        ])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
        ])
        .args([
            "--disable-default-apps",
            "--disable-extensions",
            "--disable-breakpad",
        ])
        .args(["--hide-scrollbars", "--force-device-scale-factor=1"])
        .args(["--force-color-profile=srgb", "--disable-dev-shm-usage"])
        .arg(format!(
            "--user-data-dir={}",
            profile.path().join("profile").display()
        ))
        .arg(format!("--window-size={},{}", size.0, size.1))
        .arg(format!("--screenshot={}", shot.display()))
        .args(rules)
        .arg(url)
        .env("HOME", profile.path())
        .env("DBUS_SESSION_BUS_ADDRESS", "disabled:")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0)
        .spawn()
        .context("starting chromium")?;
    // Ends whatever is left of the browser, also when we end first.
    let mut guardian = Guardian::start(None)?;
    guardian.watch(child.id())?;
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if Instant::now() >= deadline {
            break None;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    drop(guardian);
    child.wait()?;
    let printed = std::fs::read_to_string(&printed).unwrap_or_default();
    match status {
        Some(status) if status.success() && shot.exists() => Picture::read(&shot),
        Some(status) => bail!("chromium showed nothing ({status}):\n{printed}"),
        None => bail!("chromium did not show {url} in {PATIENCE:?}:\n{printed}"),
    }
}
