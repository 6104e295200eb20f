//! `weft lab up`: that the examples which it prints work.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use weft_testing::not_run;

const BODY: &str = "what the server has\n";

fn is_here(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// A web server on loopback that answers every request with [`BODY`], and the address that each came from.
fn server() -> (u16, std::sync::mpsc::Receiver<SocketAddr>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let (sender, receiver) = std::sync::mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let from = stream.peer_addr();
            let mut request = [0; 1024];
            if stream.read(&mut request).is_err() {
                continue;
            }
            let answer = format!(
                "HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n{BODY}",
                BODY.len()
            );
            let _ = stream.write_all(answer.as_bytes());
            if from.is_ok_and(|from| sender.send(from).is_err()) {
                return;
            }
        }
    });
    (port, receiver)
}

/// A network that is up, ended when dropped.
struct Network(Child);

impl Drop for Network {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.0.id().cast_signed()), Signal::SIGTERM);
        let _ = self.0.wait();
    }
}

/// Starts a small network, and returns what it prints.
fn up(words: &[&str]) -> (Network, String) {
    let mut child = Command::new(crate::weft())
        .args(["lab", "up", "--relays", "2", "--exits", "1"])
        .args(words)
        .stdout(Stdio::piped())
        .spawn()
        .expect("weft");
    let out = child.stdout.take().expect("a pipe");
    let network = Network(child);
    let mut printed = String::new();
    for line in BufReader::new(out).lines() {
        printed += &(line.expect("a line") + "\n");
        if printed.contains("Ctrl-C here") {
            return (network, printed);
        }
    }
    panic!("the network is not up: {printed}");
}

/// The module's name marks the tests that need some of a minute, for `cargo xtask test`.
mod private_network {
    use super::*;

    fn each_example_works(words: &[&str]) {
        for program in ["curl", "torsocks"] {
            if !is_here(program) {
                not_run!("there is no {program}");
                return;
            }
        }
        let (network, printed) = up(words);
        let (port, requests) = server();
        let examples: Vec<&str> = printed
            .lines()
            .filter(|line| line.contains(" http://"))
            .collect();
        assert_eq!(examples.len(), 2, "{printed}");
        assert!(examples[1].trim().starts_with("torsocks "), "{printed}");
        for example in examples {
            let command = example
                .replace("PORT/", &format!("{port}/"))
                .replace("curl ", "curl --silent --show-error --max-time 60 ");
            let output = Command::new("sh")
                .args(["-c", &command])
                .output()
                .expect("sh");
            let (out, errors) = (
                String::from_utf8_lossy(&output.stdout).into_owned(),
                String::from_utf8_lossy(&output.stderr).into_owned(),
            );
            assert_eq!((out.as_str(), errors.as_str()), (BODY, ""), "{command}");
            // By way of the exit, not past Tor.
            let from = requests.recv().expect("a request").ip();
            assert_eq!(from.to_string(), "127.0.1.1", "{command}");
        }
        drop(network);
    }

    #[test]
    fn examples_of_a_network_of_weft_work() {
        each_example_works(&[]);
    }

    #[test]
    fn examples_of_a_network_with_c_tor_s_client_work() {
        each_example_works(&["--client-peer", "tor"]);
    }
}
