//! Waiting until something is ready: with a deadline, and saying for what.

use std::collections::HashSet;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use base64ct::{Base64Unpadded, Encoding as _};

use super::config::Config;
use super::node::Node;
use crate::control::{Control, Fingerprint};
use crate::stop::Stop;

/// Waits until a node's control port lists every wanted relay.
pub(super) fn wait_until_known(
    config: &Config,
    node: &mut Node,
    wanted: &[Fingerprint],
    known: impl Fn(&mut Control, &Fingerprint) -> bool,
) -> Result<()> {
    let what = format!("{} to know the network", node.nickname());
    let mut control: Option<Control> = None;
    wait(config, &what, || {
        node.check()?;
        let connected = match &mut control {
            Some(connected) => connected,
            None => match Control::connect(&node.control_socket()) {
                Ok(connected) => control.insert(connected),
                Err(error) => return Ok(Err(format!("{error:#}"))),
            },
        };
        let unknown = wanted
            .iter()
            .filter(|relay| !known(connected, relay))
            .count();
        Ok(match unknown {
            0 => Ok(()),
            some => Err(format!("{some} of {} relays are unknown", wanted.len())),
        })
    })
}

/// Waits until a node accepts connections on a port.
pub(super) fn wait_accepting(config: &Config, node: &mut Node, port: SocketAddr) -> Result<()> {
    let what = format!("{} to accept connections on {port}", node.nickname());
    wait(config, &what, || {
        node.check()?;
        Ok(TcpStream::connect(port)
            .map(drop)
            .map_err(|error| error.to_string()))
    })
}

/// Calls `ready` until it returns `Ok`, or fails when patience ends, repeating its last reason.
pub(super) fn wait(
    config: &Config,
    what: &str,
    ready: impl FnMut() -> Result<Result<(), String>>,
) -> Result<()> {
    wait_for(config.patience, &config.stop, config.progress, what, ready)
}

/// Like [`wait`], without a [`Config`].
pub(crate) fn wait_for(
    patience: Duration,
    stop: &Stop,
    progress: fn(&str),
    what: &str,
    mut ready: impl FnMut() -> Result<Result<(), String>>,
) -> Result<()> {
    let start = Instant::now();
    let mut reported = String::new();
    loop {
        let reason = match ready().with_context(|| format!("waiting for {what}"))? {
            Ok(()) => return Ok(()),
            Err(reason) => reason,
        };
        if stop.is_requested() {
            bail!("stopped while waiting for {what}");
        }
        if start.elapsed() > patience {
            bail!("waited {patience:?} for {what}: {reason}");
        }
        // A wait of less than a second is not reported.
        if reason != reported && start.elapsed() > Duration::from_secs(1) {
            progress(&format!("waiting for {what}: {reason}"));
            reported = reason;
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// The fingerprints of the running relays in router status entries (dir-spec 3.4.1).
pub(super) fn running_relays(statuses: &str) -> HashSet<Fingerprint> {
    let mut running = HashSet::new();
    let mut current = None;
    for line in statuses.lines() {
        let mut words = line.split(' ');
        match words.next() {
            Some("r") => current = words.nth(1).and_then(identity_from_base64),
            Some("s") if words.any(|flag| flag == "Running") => running.extend(current.take()),
            _ => {}
        }
    }
    running
}

/// The protocols of the relay with this nickname in a consensus.
pub(super) fn protocols_of<'a>(consensus: &'a str, nickname: &str) -> Option<&'a str> {
    let mut lines = consensus.lines();
    lines.find(|line| {
        let mut words = line.split(' ');
        words.next() == Some("r") && words.next() == Some(nickname)
    })?;
    lines
        .take_while(|line| !line.starts_with("r "))
        .find_map(|line| line.strip_prefix("pr "))
}

/// The 20 bytes of an identity as `r` lines write it: base64 without padding.
fn identity_from_base64(text: &str) -> Option<Fingerprint> {
    let identity = Base64Unpadded::decode_vec(text).ok()?;
    Fingerprint::parse(&hex::encode(identity)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUSES: &str = "\
r one AAAAAAAAAAAAAAAAAAAAAAAAAAE 2038-01-01 00:00:00 127.0.0.1 1 0
s Fast Guard Running Valid
w Bandwidth=0
r two //////////////////////////8 2038-01-01 00:00:00 127.0.0.1 2 0
s Valid
";

    #[test]
    fn only_relays_with_the_running_flag_count() {
        let running = running_relays(STATUSES);
        let one = Fingerprint::parse(&format!("{}01", "00".repeat(19))).expect("a fingerprint");
        assert_eq!(running, HashSet::from([one]));
    }

    #[test]
    fn protocols_are_those_of_the_relay_and_no_other() {
        let consensus =
            "r one A\ns Running\npr Link=4-5\nr two B\ns Running\nr three C\npr Link=5\n";
        assert_eq!(protocols_of(consensus, "one"), Some("Link=4-5"));
        assert_eq!(protocols_of(consensus, "two"), None);
        assert_eq!(protocols_of(consensus, "three"), Some("Link=5"));
        assert_eq!(protocols_of(consensus, "on"), None);
    }

    #[test]
    fn an_identity_is_read_from_base64_without_padding() {
        let all = identity_from_base64("//////////////////////////8").expect("an identity");
        assert_eq!(all.to_string(), "F".repeat(40));
        assert!(identity_from_base64("/").is_none());
        assert!(identity_from_base64("*").is_none());
    }
}
