//! Finds the privileges and devices that a testbed needs and this machine lacks.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use super::tun;

/// Bits of capability sets, from linux/capability.h.
const CAPABILITIES: [(u32, &str); 2] = [(12, "CAP_NET_ADMIN"), (21, "CAP_SYS_ADMIN")];

/// Fails with [`missing`].
pub(super) fn check() -> Result<()> {
    match missing() {
        Some(missing) => bail!("{missing}"),
        None => Ok(()),
    }
}

/// The first requirement of a testbed that this machine does not meet, with its remedy; `None` if
/// all are met.
#[must_use]
pub fn missing() -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let lacking = lacking(&status);
    if !lacking.is_empty() {
        return Some(format!(
            "a testbed makes network namespaces and devices, and this process lacks {}: run it as root \
             (`sudo weft lab net …`; in a container, with --cap-add NET_ADMIN --cap-add SYS_ADMIN)",
            lacking.join(" and ")
        ));
    }
    if !Path::new("/proc/self/ns/net").exists() {
        return Some("this kernel has no network namespaces (CONFIG_NET_NS)".to_owned());
    }
    let device = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(tun::DEVICE);
    if let Err(error) = device {
        return Some(format!(
            "{} cannot be opened ({error}), and a testbed needs TUN devices: `modprobe tun`; in a container, \
             start it with --device {}",
            tun::DEVICE,
            tun::DEVICE
        ));
    }
    let ip = Command::new("ip")
        .arg("-V")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match ip {
        Ok(status) if status.success() => None,
        _ => Some(
            "the program `ip` does not run, and a testbed sets up hosts with it: install Debian's package \
             `iproute2`"
                .to_owned(),
        ),
    }
}

/// The capabilities that are not in the effective set of this /proc/PID/status.
fn lacking(status: &str) -> Vec<&'static str> {
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .unwrap_or(0);
    let is_lacking = |&&(bit, _): &&(u32, &str)| effective >> bit & 1 == 0;
    let lacking = CAPABILITIES.iter().filter(is_lacking);
    lacking.map(|(_, name)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_capabilities_are_named() {
        let all = "Name:\tweft\nCapEff:\t000001ffffffffff\n";
        assert!(lacking(all).is_empty());
        let container = "CapEff:\t00000000a80425fb\n";
        assert_eq!(lacking(container), ["CAP_NET_ADMIN", "CAP_SYS_ADMIN"]);
        assert_eq!(lacking("CapEff:\t0000000000201000\n").len(), 0);
        assert_eq!(lacking("CapEff:\t0000000000001000\n"), ["CAP_SYS_ADMIN"]);
        assert_eq!(lacking("").len(), 2);
    }
}
