//! Files that programs read which start a node: lines of the log with ports, the cookie, files of a
//! run.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::running::{self, Bench, Running};

/// The port at the end of the next line with this.
fn port(weft: &mut Running, text: &str) -> u16 {
    let line = weft.wait_for(text);
    let digits = line.trim_end_matches('.').rsplit([':', ' ']).next();
    digits.unwrap().parse().unwrap()
}

/// Content of a file, as soon as it exists.
fn read(path: &Path) -> Vec<u8> {
    let deadline = Instant::now() + running::PATIENCE;
    loop {
        match fs::read(path) {
            Ok(bytes) => return bytes,
            Err(error) => assert!(Instant::now() < deadline, "{}: {error}", path.display()),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Electron-Cash and Stem take the port of the second line, bisq2 that of the third; `SocksPort 0` is what launchers
/// begin with before they add services or ports.
#[test]
fn a_launcher_finds_the_ports_in_c_tor_s_lines_and_nothing_of_a_run_stays() {
    let bench = Bench::new();
    let (cookie, ports) = (bench.path("cookie"), bench.path("ports"));
    bench.torrc(&format!(
        "{}SocksPort 0\nControlPort auto\nCookieAuthentication 1\nCookieAuthFile {}\n\
         ControlPortWriteToFile {}\n",
        bench.log_line("log"),
        cookie.display(),
        ports.display()
    ));
    let mut weft = bench.start();
    weft.seen = 0;
    weft.wait_for("Opening Control listener on 127.0.0.1:0");
    let chosen = port(&mut weft, "Control listener listening on port ");
    let opened = "Opened Control listener connection (ready) on 127.0.0.1:";
    assert_eq!(port(&mut weft, opened), chosen);
    let written = format!("PORT=127.0.0.1:{chosen}\n");
    assert_eq!(read(&ports), written.as_bytes());

    let mut stream = BufReader::new(TcpStream::connect(("127.0.0.1", chosen)).unwrap());
    let patience = Some(running::PATIENCE);
    stream.get_ref().set_read_timeout(patience).unwrap();
    let mut ask = |command: String| {
        let text = format!("{command}\r\n");
        stream.get_mut().write_all(text.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_line(&mut answer).unwrap();
        answer.trim_end().to_owned()
    };
    let secret: String = read(&cookie)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(ask(format!("AUTHENTICATE {secret}")), "250 OK");
    assert_eq!(ask("SETCONF SocksPort=auto".to_owned()), "250 OK");
    let chosen = port(&mut weft, "Socks listener listening on port ");
    let opened = "Opened Socks listener connection (ready) on 127.0.0.1:";
    assert_eq!(port(&mut weft, opened), chosen);
    assert_ne!(chosen, 0);

    assert!(cookie.exists() && ports.exists());
    weft.terminate();
    assert!(!cookie.exists() && !ports.exists());
}

/// A node that offers a cookie that nobody can read would keep its controller out for ever.
#[test]
fn a_cookie_that_cannot_be_written_ends_the_start() {
    let bench = Bench::new();
    bench.torrc(&format!(
        "{}ControlPort auto\nCookieAuthentication 1\nCookieAuthFile {}\n",
        bench.log_line("log"),
        bench.path("none/cookie").display()
    ));
    let mut weft = bench.spawn();
    let why = weft.wait_for("none/cookie");
    assert!(why.contains("set CookieAuthentication 0"), "{why}");
    assert_eq!(weft.child.wait().unwrap().code(), Some(1));
}
