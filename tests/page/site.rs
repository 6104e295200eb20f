//! A web site of one page with pictures, which a seed makes, and its server on loopback.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

/// Pictures in a row, and rows.
pub(crate) const COLUMNS: usize = 5;
pub(crate) const ROWS: usize = 4;
/// Pictures of the page.
pub(crate) const PICTURES: usize = COLUMNS * ROWS;
/// The size of each, in pixels; it is shown as large as it is.
pub(crate) const WIDTH: usize = 224;
pub(crate) const HEIGHT: usize = 192;
/// Between the pictures, and around them.
const GAP: usize = 8;
/// Above them is the heading.
const TOP: usize = 72;
/// The whole page.
pub(crate) const PAGE: (usize, usize) = (
    COLUMNS * (WIDTH + GAP) + GAP,
    TOP + ROWS * (HEIGHT + GAP) + GAP,
);

/// The most connections at once; one more is closed at once.
const CONNECTIONS: usize = 64;
/// Lines of a request.
const LINES: usize = 100;
/// How long one read or write may make no progress.
const STALL: Duration = Duration::from_secs(30);

/// The left upper corner of a picture on the page.
pub(crate) fn corner(picture: usize) -> (usize, usize) {
    (
        GAP + (picture % COLUMNS) * (WIDTH + GAP),
        TOP + (picture / COLUMNS) * (HEIGHT + GAP),
    )
}

/// A picture's pixels, red, green and blue, row after row: a colour of its own, and noise over it
/// that nothing compresses.
pub(crate) fn pixels(seed: u64, picture: usize) -> Vec<u8> {
    let mut rng = StdRng::seed_from_u64(seed.wrapping_mul(1000).wrapping_add(picture as u64));
    let colour = [(); 3].map(|()| rng.random_range(64..192u8));
    let noise = (0..WIDTH * HEIGHT * 3).map(|_| rng.random_range(0..64u8));
    let colours = colour.into_iter().cycle();
    colours
        .zip(noise)
        .map(|(base, noise)| base + noise)
        .collect()
}

/// The same as a file.
fn png(seed: u64, picture: usize) -> Result<Vec<u8>> {
    let size = |pixels: usize| u32::try_from(pixels).context("a large picture");
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, size(WIDTH)?, size(HEIGHT)?);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::Fast);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels(seed, picture))?;
    writer.finish()?;
    Ok(file)
}

fn page() -> String {
    let pictures: String = (0..PICTURES)
        .map(|picture| {
            let (left, top) = corner(picture);
            format!("<img src=\"/picture/{picture}.png\" style=\"left:{left}px;top:{top}px\">\n")
        })
        .collect();
    format!(
        "<!doctype html>\n<html><head><meta charset=\"utf-8\"><title>Pictures</title>\n\
         <link rel=\"icon\" href=\"data:,\">\n<style>\n\
         body {{ margin: 0; background: #fff; font: 18px sans-serif }}\n\
         h1 {{ position: absolute; left: {GAP}px; top: 8px; margin: 0 }}\n\
         img {{ position: absolute; width: {WIDTH}px; height: {HEIGHT}px }}\n\
         </style></head>\n<body><h1>Twenty pictures</h1>\n{pictures}</body></html>\n"
    )
}

/// What is wrong with a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Damage {
    /// Its file ends in the middle.
    CutOff,
    /// It is not there.
    Missing,
    /// One of its bits is another.
    Flipped,
}

/// A request that came.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// The client's address.
    pub(crate) from: IpAddr,
    /// The `Host` header.
    pub(crate) host: String,
    /// For what.
    pub(crate) path: String,
}

#[derive(Debug, Default)]
struct Shared {
    files: Vec<Vec<u8>>,
    damage: Mutex<Option<(usize, Damage)>>,
    asked: Mutex<Vec<Asked>>,
    open: AtomicUsize,
    most_open: AtomicUsize,
    stop: AtomicBool,
}

/// The server. Ends when dropped.
#[derive(Debug)]
pub(crate) struct Site {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Site {
    /// Makes the pictures of a seed and serves them on a free port.
    pub(crate) fn start(seed: u64) -> Result<Site> {
        let files = (0..PICTURES).map(|picture| png(seed, picture));
        let shared = Arc::new(Shared {
            files: files.collect::<Result<_>>()?,
            ..Shared::default()
        });
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("starting the web server")?;
        let address = listener.local_addr()?;
        let serving = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("web server".into())
            .spawn(move || accept(&listener, &serving))?;
        Ok(Site {
            address,
            shared,
            thread: Some(thread),
        })
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Bytes of all pictures.
    pub(crate) fn bytes(&self) -> usize {
        self.shared.files.iter().map(Vec::len).sum()
    }

    /// From now on something is wrong with one picture, or with none.
    pub(crate) fn damage(&self, damage: Option<(usize, Damage)>) {
        *lock(&self.shared.damage) = damage;
    }

    /// What was asked for since the last time that this was asked, and how many connections there
    /// were at once.
    pub(crate) fn take_asked(&self) -> (Vec<Asked>, usize) {
        let asked = std::mem::take(&mut *lock(&self.shared.asked));
        (asked, self.shared.most_open.swap(0, Ordering::SeqCst))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        // Wakes the accepting thread; if that fails it has ended already.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock<T>(what: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    while let Ok((stream, peer)) = listener.accept() {
        if shared.stop.load(Ordering::SeqCst) {
            return;
        }
        let open = shared.open.fetch_add(1, Ordering::SeqCst) + 1;
        let serving = Arc::clone(shared);
        let spawned = (open <= CONNECTIONS).then(|| {
            std::thread::Builder::new()
                .name("web".into())
                .spawn(move || {
                    // A browser that leaves has got what it wants.
                    let _ = serve(&stream, peer.ip(), &serving);
                    serving.open.fetch_sub(1, Ordering::SeqCst);
                })
        });
        if !matches!(spawned, Some(Ok(_))) {
            shared.open.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Answers one request; each has a connection of its own, and so a stream of its own.
fn serve(stream: &TcpStream, from: IpAddr, shared: &Shared) -> Result<()> {
    stream.set_read_timeout(Some(STALL))?;
    stream.set_write_timeout(Some(STALL))?;
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next().context("no request")??;
    let path = first.split(' ').nth(1).context("no path")?.to_owned();
    let mut host = String::new();
    for _ in 0..LINES {
        let line = lines.next().context("no end of the head")??;
        if line.is_empty() {
            break;
        }
        if let Some(("host", value)) = line.to_ascii_lowercase().split_once(": ") {
            host = value.to_owned();
        }
    }
    // Connections that bring nothing, which browsers open ahead of need, do not count.
    let open = shared.open.load(Ordering::SeqCst);
    shared.most_open.fetch_max(open, Ordering::SeqCst);
    let asked = Asked {
        from,
        host,
        path: path.clone(),
    };
    lock(&shared.asked).push(asked);
    let (status, kind, body) = answer(&path, shared);
    let mut stream = stream;
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nConnection: close\r\n\r\n",
        body.len()
    )?;
    let damage = *lock(&shared.damage);
    if let Some((picture, Damage::CutOff)) = damage
        && path == format!("/picture/{picture}.png")
    {
        stream.write_all(body.get(..body.len() / 2).unwrap_or_default())?;
        return Ok(());
    }
    stream.write_all(&body)?;
    ensure!(!body.is_empty(), "an empty answer");
    Ok(())
}

fn answer(path: &str, shared: &Shared) -> (&'static str, &'static str, Vec<u8>) {
    if path == "/" {
        return ("200 OK", "text/html; charset=utf-8", page().into_bytes());
    }
    let number = path
        .strip_prefix("/picture/")
        .and_then(|rest| rest.strip_suffix(".png"))
        .and_then(|number| number.parse::<usize>().ok());
    let damage = *lock(&shared.damage);
    let file = number.and_then(|number| Some((number, shared.files.get(number)?)));
    match file {
        Some((number, _)) if damage == Some((number, Damage::Missing)) => {}
        Some((number, file)) => {
            let mut file = file.clone();
            if damage == Some((number, Damage::Flipped))
                && let Some(byte) = file.get_mut(40_000)
            {
                *byte ^= 0x10;
            }
            return ("200 OK", "image/png", file);
        }
        None => {}
    }
    ("404 Not Found", "text/plain", b"not here\n".to_vec())
}
