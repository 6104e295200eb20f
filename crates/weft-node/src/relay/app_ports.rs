//! The ports of applications by number: their rules, and the queries of DNSPorts.
//!
//! Connections carry the number of their port, by which the client knows the port's flags. A number is
//! never given to another port, so that a stream that is older than the configuration keeps the flags it
//! was opened with.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use weft_apps::{AppRules, DnsPort};
use weft_config::Options;
use weft_config::options::{AppPort, AppService};

use super::listen_socket::ListenError;

/// Ports that one process ever has, by number: a reload with others than all these is refused.
const MAX_PORTS: usize = 4096;

/// The ports of applications.
///
/// Call [`number_all`](Self::number_all) with new options, open the listeners, then
/// [`follow`](Self::follow).
#[derive(Debug, Default)]
pub(super) struct AppPorts {
    /// Every port since the start, by number.
    known: Vec<AppPort>,
    /// The rules of the ports that are configured now.
    rules: BTreeMap<u32, Arc<AppRules>>,
    dns: BTreeMap<u32, DnsPort>,
}

impl AppPorts {
    /// Every port since the start, by number.
    pub(super) fn known(&self) -> &[AppPort] {
        &self.known
    }

    /// The ports of a configuration with their numbers, each once.
    ///
    /// # Errors
    ///
    /// There have been too many ports since the start.
    pub(super) fn number_all(
        &mut self,
        options: &Options,
    ) -> Result<Vec<(u32, AppPort)>, ListenError> {
        let mut numbered: Vec<(u32, AppPort)> = Vec::new();
        for port in &options.apps.ports {
            let number = self.number(port).ok_or_else(|| ListenError::Listen {
                at: port.at.to_string(),
                source: io::Error::other("too many ports have come and gone"),
            })?;
            if !numbered.iter().any(|(other, _)| *other == number) {
                numbered.push((number, port.clone()));
            }
        }
        Ok(numbered)
    }

    /// The number of a port, which is a new one if there never was this port.
    fn number(&mut self, port: &AppPort) -> Option<u32> {
        let known = self.known.iter().position(|known| known == port);
        let number = match known {
            Some(number) => number,
            None if self.known.len() < MAX_PORTS => {
                self.known.push(port.clone());
                self.known.len() - 1
            }
            None => return None,
        };
        u32::try_from(number).ok()
    }

    /// Applies the options to these ports; others have no rules any more, and their queries are dropped.
    pub(super) fn follow(&mut self, options: &Options, ports: &[(u32, AppPort)]) {
        self.rules = ports
            .iter()
            .map(|(number, port)| {
                let rules = AppRules::new(*number, port, &options.apps);
                (*number, Arc::new(rules))
            })
            .collect();
        let timeout = options.apps.timeout;
        let mut before = std::mem::take(&mut self.dns);
        for (number, rules) in &self.rules {
            if rules.service == AppService::Dns {
                let mut dns = before
                    .remove(number)
                    .unwrap_or_else(|| DnsPort::new(rules.clone(), timeout));
                dns.set_rules(rules.clone(), timeout);
                self.dns.insert(*number, dns);
            }
        }
    }

    /// The rules of a port.
    pub(super) fn rules(&self, number: u32) -> Option<Arc<AppRules>> {
        self.rules.get(&number).cloned()
    }

    /// The queries of a DNSPort.
    pub(super) fn dns(&mut self, number: u32) -> Option<&mut DnsPort> {
        self.dns.get_mut(&number)
    }

    /// All DNSPorts.
    pub(super) fn all_dns(&mut self) -> impl Iterator<Item = (u32, &mut DnsPort)> {
        self.dns.iter_mut().map(|(number, port)| (*number, port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::testing::options;

    #[test]
    fn a_port_keeps_its_number_and_other_flags_make_another_port() {
        let mut ports = AppPorts::default();
        let mut numbers = |torrc: &str| {
            let options = options(torrc);
            let numbered = ports.number_all(&options).unwrap();
            ports.follow(&options, &numbered);
            let first = ports.rules(numbered[0].0).unwrap();
            let numbers: Vec<u32> = numbered.iter().map(|(number, _)| *number).collect();
            (numbers, first)
        };
        assert_eq!(numbers("SocksPort auto\nDNSPort auto\n").0, [0, 1]);
        let torrc = "SocksPort auto IsolateDestAddr\nHTTPTunnelPort auto\nSafeSocks 1\n";
        let (others, first) = numbers(torrc);
        assert_eq!(others, [2, 3]);
        assert_eq!(first.listener, 2);
        assert!(first.safe_socks && first.flags.isolation.dest_addr);
        assert_eq!(
            numbers("SocksPort auto\n").0,
            [0],
            "it is the same port again"
        );
        assert_eq!(ports.known().len(), 4);
        assert!(!ports.known()[0].flags.isolation.dest_addr);
        assert!(ports.rules(3).is_none() && ports.dns(1).is_none());
    }
}
