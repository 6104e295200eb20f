//! The environment variables by which a program is configured (pt-spec 3.2).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::transports::text::escape;

/// Environment variables that a program gets in addition to our own environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// The folder that it may keep its state in.
    pub state_folder: String,
    /// The transports that it must offer.
    pub transports: Vec<String>,
    /// The addresses from which it must connect (OutboundBindAddressPT).
    pub outbound_v4: Option<Ipv4Addr>,
    /// The IPv6 address from which it must connect.
    pub outbound_v6: Option<Ipv6Addr>,
    /// Whose transports they are.
    pub role: Role,
}

/// Variables for one side's program only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// A client's.
    Client {
        /// The proxy that it must connect by, as a URI.
        proxy: Option<String>,
    },
    /// A bridge's.
    Server {
        /// Where each transport must listen.
        listen: Vec<(String, String)>,
        /// Parameters of transports, each as `key=value`: a transport may have several.
        options: Vec<(String, String)>,
        /// Our ORPort.
        or_port: Option<SocketAddr>,
        /// Our extended ORPort, if it is open, and the file of its cookie.
        ext_or_port: Option<(SocketAddr, String)>,
    },
}

impl Environment {
    /// The variables, in C tor's order.
    #[must_use]
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let mut variables = vec![
            ("TOR_PT_STATE_LOCATION", self.state_folder.clone()),
            ("TOR_PT_MANAGED_TRANSPORT_VER", "1".to_owned()),
        ];
        let names = self.transports.join(",");
        match &self.role {
            Role::Client { proxy } => {
                variables.push(("TOR_PT_CLIENT_TRANSPORTS", names));
                variables.extend(proxy.clone().map(|uri| ("TOR_PT_PROXY", uri)));
            }
            Role::Server {
                listen,
                options,
                or_port,
                ext_or_port,
            } => {
                variables.push(("TOR_PT_SERVER_TRANSPORTS", names));
                variables.extend(or_port.map(|port| ("TOR_PT_ORPORT", port.to_string())));
                let listen = listen.iter().map(|(name, at)| format!("{name}-{at}"));
                let listen = listen.collect::<Vec<_>>().join(",");
                variables.push(("TOR_PT_SERVER_BINDADDR", listen));
                if !options.is_empty() {
                    let options = options
                        .iter()
                        .map(|(name, option)| format!("{name}:{}", escape(option, ":;\\")));
                    let options = options.collect::<Vec<_>>().join(";");
                    variables.push(("TOR_PT_SERVER_TRANSPORT_OPTIONS", options));
                }
                // Without an extended ORPort the variable is there, and empty: some programs want it.
                let (port, cookie) = match ext_or_port {
                    Some((port, cookie)) => (port.to_string(), Some(cookie.clone())),
                    None => (String::new(), None),
                };
                variables.push(("TOR_PT_EXTENDED_SERVER_PORT", port));
                variables.extend(cookie.map(|file| ("TOR_PT_AUTH_COOKIE_FILE", file)));
            }
        }
        variables.push(("TOR_PT_EXIT_ON_STDIN_CLOSE", "1".to_owned()));
        let bound = |address: IpAddr| match address {
            IpAddr::V4(v4) => ("TOR_PT_OUTBOUND_BIND_ADDRESS_V4", v4.to_string()),
            IpAddr::V6(v6) => ("TOR_PT_OUTBOUND_BIND_ADDRESS_V6", format!("[{v6}]")),
        };
        variables.extend(self.outbound_v4.map(|v4| bound(v4.into())));
        variables.extend(self.outbound_v6.map(|v6| bound(v6.into())));
        variables
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(role: Role) -> Vec<String> {
        let environment = Environment {
            state_folder: "/var/lib/tor/pt_state/".to_owned(),
            transports: vec!["obfs3".to_owned(), "obfs4".to_owned()],
            outbound_v4: Some(Ipv4Addr::new(192, 0, 2, 1)),
            outbound_v6: Some(Ipv6Addr::LOCALHOST),
            role,
        };
        let variables = environment.variables();
        variables.iter().map(|(k, v)| format!("{k}={v}")).collect()
    }

    #[test]
    fn a_bridge_s_program_gets_its_ports_and_options() {
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        let role = |ext_or_port| Role::Server {
            listen: vec![pair("obfs3", "0.0.0.0:0"), pair("obfs4", "[::]:443")],
            options: vec![pair("obfs4", "iat-mode=1"), pair("obfs4", "a=b;c:\\")],
            or_port: Some("127.0.0.1:9001".parse().unwrap()),
            ext_or_port,
        };
        let port = ("127.0.0.1:4000".parse().unwrap(), "/var/cookie".to_owned());
        assert_eq!(
            of(role(Some(port))),
            [
                "TOR_PT_STATE_LOCATION=/var/lib/tor/pt_state/",
                "TOR_PT_MANAGED_TRANSPORT_VER=1",
                "TOR_PT_SERVER_TRANSPORTS=obfs3,obfs4",
                "TOR_PT_ORPORT=127.0.0.1:9001",
                "TOR_PT_SERVER_BINDADDR=obfs3-0.0.0.0:0,obfs4-[::]:443",
                "TOR_PT_SERVER_TRANSPORT_OPTIONS=obfs4:iat-mode=1;obfs4:a=b\\;c\\:\\\\",
                "TOR_PT_EXTENDED_SERVER_PORT=127.0.0.1:4000",
                "TOR_PT_AUTH_COOKIE_FILE=/var/cookie",
                "TOR_PT_EXIT_ON_STDIN_CLOSE=1",
                "TOR_PT_OUTBOUND_BIND_ADDRESS_V4=192.0.2.1",
                "TOR_PT_OUTBOUND_BIND_ADDRESS_V6=[::1]",
            ]
        );
        let without = of(role(None));
        assert!(without.contains(&"TOR_PT_EXTENDED_SERVER_PORT=".to_owned()));
        assert!(
            !without
                .iter()
                .any(|v| v.starts_with("TOR_PT_AUTH_COOKIE_FILE"))
        );
    }

    #[test]
    fn a_client_s_program_gets_its_proxy() {
        let proxy = Some("socks5://127.0.0.1:9050".to_owned());
        let variables = of(Role::Client { proxy });
        assert!(variables.contains(&"TOR_PT_CLIENT_TRANSPORTS=obfs3,obfs4".to_owned()));
        assert!(variables.contains(&"TOR_PT_PROXY=socks5://127.0.0.1:9050".to_owned()));
        assert!(!variables.iter().any(|v| v.starts_with("TOR_PT_SERVER")));
    }
}
