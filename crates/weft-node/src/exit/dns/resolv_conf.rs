//! Reads name servers from resolv.conf, with the grammar of C tor's resolver (libevent's evdns). A
//! `nameserver` may have a port: `192.0.2.1:5353` or `[2001:db8::1]:5353`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use weft_datadir::file;

/// The path of the system's file.
pub(crate) const SYSTEM: &str = "/etc/resolv.conf";
/// The port of name servers.
const PORT: u16 = 53;
/// Name servers that are used, at most.
const MAX_SERVERS: usize = 16;
/// Search domains that are used, at most (resolv.conf(5): 6, more in recent versions).
const MAX_SEARCH: usize = 6;
/// Bytes of the file that are read, at most.
const MAX_FILE: u64 = 1 << 20;

/// The contents of a resolv.conf.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResolvConf {
    /// The name servers, in order.
    pub servers: Vec<SocketAddr>,
    /// The search domains (used with ServerDNSSearchDomains).
    pub search: Vec<String>,
    /// Names with at least this many dots are looked up as they are first.
    pub ndots: Option<usize>,
}

impl ResolvConf {
    /// Parses the text of a resolv.conf. Malformed lines are ignored.
    #[must_use]
    pub(crate) fn parse(text: &str) -> Self {
        let mut conf = Self::default();
        for line in text.lines() {
            let line = line.split(['#', ';']).next().unwrap_or_default();
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                Some("nameserver") => {
                    let server = words.next().and_then(server);
                    if let Some(server) = server.filter(|_| conf.servers.len() < MAX_SERVERS) {
                        conf.servers.push(server);
                    }
                }
                // The last of the two counts.
                Some("search") => conf.search = words.take(MAX_SEARCH).map(str::to_owned).collect(),
                Some("domain") => conf.search = words.take(1).map(str::to_owned).collect(),
                Some("options") => {
                    let ndots = words.filter_map(|word| word.strip_prefix("ndots:"));
                    conf.ndots = ndots
                        .filter_map(|n| n.parse().ok())
                        .next_back()
                        .or(conf.ndots);
                }
                _ => {}
            }
        }
        conf
    }

    /// Reads a file. If it is missing or empty, or names no server, the name server of this machine is used
    /// (`configure_nameservers`). The second value is a warning for the operator.
    ///
    /// # Errors
    /// The file exists and cannot be read.
    pub(crate) fn read(path: &Path) -> Result<(Self, Option<String>), String> {
        let shown = path.display();
        let local = Self {
            servers: vec![SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT)],
            ..Self::default()
        };
        let text = file::contents(path, MAX_FILE)
            .map_err(|error| format!("Unable to parse '{shown}': {}", error.source))?
            .unwrap_or_default();
        if text.is_empty() {
            let why = format!(
                "Could not read your DNS config from '{shown}' - please investigate your DNS \
                 configuration. This is possibly a problem. Meanwhile, falling back to local DNS \
                 at 127.0.0.1."
            );
            return Ok((local, Some(why)));
        }
        let conf = Self::parse(&String::from_utf8_lossy(&text));
        if conf.servers.is_empty() {
            let why = format!(
                "Unable to find any nameservers in '{shown}'; falling back to local DNS at \
                 127.0.0.1."
            );
            let servers = local.servers;
            return Ok((Self { servers, ..conf }, Some(why)));
        }
        Ok((conf, None))
    }
}

/// Parses a name server's address, with or without a port. A zone (`fe80::1%eth0`) is not supported.
fn server(word: &str) -> Option<SocketAddr> {
    let addr = word.parse::<IpAddr>().ok();
    addr.map(|addr| SocketAddr::new(addr, PORT))
        .or_else(|| word.parse().ok())
        .filter(|server| server.port() != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_and_domains_are_found() {
        let conf = ResolvConf::parse(
            "# a comment\nnameserver 192.0.2.1 # the first\n nameserver\t2001:db8::1\n\
             nameserver 127.0.0.1:5353\nnameserver [::1]:5354\nnameserver fe80::1%eth0\n\
             nameserver nonsense\nnameserver\nnameserver 192.0.2.9:0\ndomain a.example\n\
             search b.example c.example ; more\noptions timeout:3 ndots:2 rotate\nsortlist x\n",
        );
        let servers: Vec<_> = conf.servers.iter().map(SocketAddr::to_string).collect();
        assert_eq!(
            servers,
            [
                "192.0.2.1:53",
                "[2001:db8::1]:53",
                "127.0.0.1:5353",
                "[::1]:5354"
            ]
        );
        assert_eq!(conf.search, ["b.example", "c.example"]);
        assert_eq!(conf.ndots, Some(2));
        assert_eq!(ResolvConf::parse("\r\n\0"), ResolvConf::default());
        let many = "nameserver 192.0.2.1\n".repeat(1000);
        assert_eq!(ResolvConf::parse(&many).servers.len(), MAX_SERVERS);
    }

    #[test]
    fn without_a_file_the_local_name_server_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("resolv.conf");
        let local: SocketAddr = "127.0.0.1:53".parse().unwrap();
        let (conf, why) = ResolvConf::read(&path).unwrap();
        assert_eq!(conf.servers, [local]);
        assert!(why.unwrap().contains("falling back"));
        std::fs::write(&path, "search a.example\n").unwrap();
        let (conf, why) = ResolvConf::read(&path).unwrap();
        assert_eq!((conf.servers, conf.search.len()), (vec![local], 1));
        assert!(why.is_some());
        std::fs::write(&path, "nameserver 127.0.0.1:1\n").unwrap();
        assert_eq!(ResolvConf::read(&path).unwrap().1, None);
        assert!(
            ResolvConf::read(folder.path()).is_err(),
            "a folder is no file"
        );
    }
}
