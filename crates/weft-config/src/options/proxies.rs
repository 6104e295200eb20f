//! The proxy that all connections to relays and directories go through: `Socks4Proxy`, `Socks5Proxy`,
//! `HTTPSProxy`, `TCPProxy`; and `HTTPProxy`, for requests to directories without encryption (config.c
//! `options_validate_cb`).

use std::net::SocketAddr;

use weft_proxy::{Credentials, HttpProxy, Protocol, Proxy, Secret};

use crate::host::Host;
use crate::report::Report;
use crate::settings::Settings;
use crate::table::key::Key;
use crate::table::keys;
use crate::text::address::{parse_address_port, split_host_port};

/// The protocol that a proxy option is about.
#[derive(Clone, Copy)]
enum Kind {
    Http,
    Socks4,
    Socks5,
    Haproxy,
}

/// The options and the port of each where none is given.
const PROXIES: [(Key<String>, Kind, u16); 4] = [
    (keys::HTTPSProxy, Kind::Http, 443),
    (keys::Socks4Proxy, Kind::Socks4, 1080),
    (keys::Socks5Proxy, Kind::Socks5, 1080),
    (keys::TCPProxy, Kind::Haproxy, 0),
];
/// The longest `HTTPSProxyAuthenticator`, in bytes.
const MAX_AUTHENTICATOR: usize = 511;

/// The proxy that is set.
pub(crate) fn proxy(settings: &Settings, host: &dyn Host, report: &mut Report) -> Option<Proxy> {
    let credentials = credentials(settings, report);
    let authenticator = settings.text(keys::HTTPSProxyAuthenticator);
    if authenticator.is_some_and(|text| text.len() > MAX_AUTHENTICATOR) {
        refuse(
            keys::HTTPSProxyAuthenticator,
            format!("HTTPSProxyAuthenticator is longer than {MAX_AUTHENTICATOR} bytes"),
            "HTTPSProxyAuthenticator is too long (>= 512 chars).",
            settings,
            report,
        );
    }
    let set: Vec<_> = PROXIES
        .into_iter()
        .filter_map(|(key, kind, port)| Some((key, kind, port, settings.text(key)?)))
        .collect();
    if let [_, (second, ..), ..] = set.as_slice() {
        refuse(
            *second,
            "only one of HTTPSProxy, Socks4Proxy, Socks5Proxy and TCPProxy can be set".to_owned(),
            "You have configured more than one proxy type. \
             (Socks4Proxy|Socks5Proxy|HTTPSProxy|TCPProxy)",
            settings,
            report,
        );
    }
    let (key, kind, port, text) = *set.first()?;
    if matches!(kind, Kind::Haproxy) {
        return match haproxy(text, host) {
            Ok(addr) => Some(Proxy {
                addr,
                protocol: Protocol::Haproxy,
            }),
            Err((why, c_tor)) => {
                let why = format!("{why}; write for example \"TCPProxy haproxy 127.0.0.1:8080\"");
                refuse(key, why, c_tor, settings, report);
                None
            }
        };
    }
    let Some(addr) = address(text, port, host) else {
        refuse(
            key,
            format!(
                "{key}: there is no such address or host; write for example \
                 \"{key} 127.0.0.1:{port}\" or \"{key} [::1]:{port}\""
            ),
            &format!("{key} failed to parse or resolve. Please fix."),
            settings,
            report,
        );
        return None;
    };
    let protocol = match kind {
        Kind::Socks4 => Protocol::Socks4(None),
        Kind::Socks5 => Protocol::Socks5(credentials),
        Kind::Http => Protocol::Http(authenticator.map(|text| Secret::new(text.to_owned()))),
        Kind::Haproxy => Protocol::Haproxy,
    };
    Some(Proxy { addr, protocol })
}

/// The address of a TCPProxy line, `haproxy HOST:PORT`; on error the problem, and C tor's words for
/// it.
fn haproxy(line: &str, host: &dyn Host) -> Result<SocketAddr, (&'static str, &'static str)> {
    let line = line.trim();
    let Some((protocol, text)) = line.split_once(' ') else {
        return Err((
            "TCPProxy has no address",
            "TCPProxy has no address/port. Please fix.",
        ));
    };
    if !protocol.eq_ignore_ascii_case("haproxy") {
        return Err((
            "TCPProxy: \"haproxy\" is the only protocol",
            "TCPProxy protocol is not supported. Currently the only supported protocol is 'haproxy'. \
             Please fix.",
        ));
    }
    // There is no default port.
    let found = address(text.trim_start(), 0, host).filter(|addr| addr.port() != 0);
    found.ok_or((
        "TCPProxy: there is no such address or host, or it has no port",
        "TCPProxy address/port failed to parse or resolve. Please fix.",
    ))
}

/// The proxy for requests to directories without encryption.
pub(crate) fn http_proxy(
    settings: &Settings,
    host: &dyn Host,
    report: &mut Report,
) -> Option<HttpProxy> {
    let (key, secret) = (keys::HTTPProxy, keys::HTTPProxyAuthenticator);
    let authenticator = settings.text(secret);
    if authenticator.is_some_and(|text| text.len() > MAX_AUTHENTICATOR) {
        refuse(
            secret,
            format!("HTTPProxyAuthenticator is longer than {MAX_AUTHENTICATOR} bytes"),
            "HTTPProxyAuthenticator is too long (>= 512 chars).",
            settings,
            report,
        );
    }
    let text = settings.text(key)?;
    let Some(addr) = address(text, 80, host) else {
        refuse(
            key,
            "HTTPProxy: there is no such address or host; write for example \"HTTPProxy 127.0.0.1:80\""
                .to_owned(),
            "HTTPProxy failed to parse or resolve. Please fix.",
            settings,
            report,
        );
        return None;
    };
    if PROXIES
        .iter()
        .all(|(key, ..)| settings.text(*key).is_none())
    {
        report.warn(
            settings.origin(key),
            "HTTPProxy is set, and neither Socks4Proxy, Socks5Proxy, HTTPSProxy nor TCPProxy: only a relay's \
             unencrypted requests to directories go through this proxy, and connections to relays do NOT",
        );
    }
    Some(HttpProxy {
        addr,
        authenticator: authenticator.map(|text| Secret::new(text.to_owned())),
    })
}

/// Name and password for a SOCKS5 proxy.
fn credentials(settings: &Settings, report: &mut Report) -> Option<Credentials> {
    let (name, password) = (keys::Socks5ProxyUsername, keys::Socks5ProxyPassword);
    let (user, secret) = (settings.text(name), settings.text(password));
    for (option, text) in [(name, user), (password, secret)] {
        if text.is_some_and(|text| !(1..=255).contains(&text.len())) {
            refuse(
                option,
                format!("{option} must have 1 to 255 bytes"),
                &format!("{option} must be between 1 and 255 characters."),
                settings,
                report,
            );
        }
    }
    match (user, secret) {
        (Some(user), Some(secret)) => Some(Credentials {
            username: Secret::new(user.to_owned()),
            password: Secret::new(secret.to_owned()),
        }),
        (None, None) => None,
        (user, _) => {
            refuse(
                if user.is_some() { name } else { password },
                format!("{name} and {password} must be set together"),
                "Socks5ProxyPassword must be included with Socks5ProxyUsername.",
                settings,
                report,
            );
            None
        }
    }
}

fn refuse(key: Key<String>, text: String, c_tor: &str, settings: &Settings, report: &mut Report) {
    report.error_with_c_tor_message(
        settings.origin(key),
        text,
        format!("Failed to parse/validate config: {c_tor}"),
    );
}

/// The address of a proxy, whose name is looked up now, as in C tor.
fn address(text: &str, port: u16, host: &dyn Host) -> Option<SocketAddr> {
    if let Some(found) = parse_address_port(text) {
        return Some(SocketAddr::new(found.address, found.port.unwrap_or(port)));
    }
    let (name, given) = split_host_port(text)?;
    if name.is_empty() || name.contains(['[', ']', ':', ' ']) {
        return None;
    }
    Some(SocketAddr::new(host.resolve(name)?, given.unwrap_or(port)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryHost, load_text};

    fn host() -> MemoryHost {
        MemoryHost::new().with_name("proxy.example", [192, 0, 2, 9].into())
    }

    fn set(torrc: &str) -> Option<Proxy> {
        let loaded = load_text(torrc, &host());
        loaded
            .unwrap_or_else(|report| panic!("{torrc}\n{report}"))
            .options
            .network
            .proxy
            .map(|proxy| (*proxy).clone())
    }

    #[test]
    fn each_kind_of_proxy_has_its_port_and_its_secrets() {
        let addr = |torrc: &str| set(torrc).unwrap().addr.to_string();
        assert_eq!(set(""), None);
        assert_eq!(addr("Socks4Proxy 192.0.2.1"), "192.0.2.1:1080");
        assert_eq!(addr("Socks5Proxy [2001:db8::1]:9150"), "[2001:db8::1]:9150");
        assert_eq!(addr("HTTPSProxy proxy.example"), "192.0.2.9:443");
        assert_eq!(addr("HTTPSProxy proxy.example:3128"), "192.0.2.9:3128");
        let secret = |text: &str| Secret::new(text.to_owned());
        let with = "Socks5Proxy 192.0.2.1\nSocks5ProxyUsername me\nSocks5ProxyPassword x y\n";
        let credentials = Credentials {
            username: secret("me"),
            password: secret("x y"),
        };
        assert_eq!(
            set(with).unwrap().protocol,
            Protocol::Socks5(Some(credentials))
        );
        let with = "HTTPSProxy 192.0.2.1\nHTTPSProxyAuthenticator me:x\n";
        assert_eq!(
            set(with).unwrap().protocol,
            Protocol::Http(Some(secret("me:x")))
        );
        let haproxy = set("TCPProxy HAproxy  proxy.example:8080\n").unwrap();
        assert_eq!(haproxy.addr.to_string(), "192.0.2.9:8080");
        assert_eq!(haproxy.protocol, Protocol::Haproxy);
        // A relay may have one, too.
        assert!(set("ORPort 9001\nContactInfo x\nSocks4Proxy 192.0.2.1\n").is_some());
    }

    #[test]
    fn unencrypted_requests_have_a_proxy_of_their_own() {
        let load = |torrc: &str| load_text(torrc, &host()).unwrap();
        let alone = load("HTTPProxy proxy.example\nHTTPProxyAuthenticator me:x\n");
        let network = alone.options.network;
        let wanted = HttpProxy {
            addr: "192.0.2.9:80".parse().unwrap(),
            authenticator: Some(Secret::new("me:x".to_owned())),
        };
        assert_eq!(network.http_proxy.as_deref(), Some(&wanted));
        assert_eq!(network.proxy, None);
        let warns = |report: &Report| {
            let messages = report.messages().iter();
            messages
                .map(ToString::to_string)
                .any(|text| text.contains("do NOT"))
        };
        assert!(warns(&alone.report));
        let both = load("HTTPProxy proxy.example\nSocks4Proxy 192.0.2.1\n");
        assert!(!warns(&both.report));
        let route = both.options.network.route("192.0.2.7:80".parse().unwrap());
        assert!(route.proxy.is_some() && route.http.is_some());
    }

    #[test]
    fn a_proxy_that_cannot_be_used_is_refused_with_its_line() {
        let long = format!(
            "HTTPSProxy 192.0.2.1\nHTTPSProxyAuthenticator {}\n",
            "x".repeat(512)
        );
        for (torrc, words) in [
            ("\nSocks4Proxy nowhere.example\n", "torrc:2: Socks4Proxy"),
            (
                "Socks5Proxy 192.0.2.1:70000\n",
                "Socks5Proxy 127.0.0.1:1080",
            ),
            ("HTTPSProxy [::1\n", "HTTPSProxy [::1]:443"),
            ("HTTPSProxy http://proxy.example/\n", "no such address"),
            (
                "Socks4Proxy 192.0.2.1\nSocks5Proxy 192.0.2.1\n",
                "torrc:2: only one",
            ),
            ("Socks5ProxyUsername me\n", "set together"),
            ("Socks5ProxyPassword me\n", "torrc:1: "),
            (&long, "longer than 511"),
            ("TCPProxy haproxy\n", "no address"),
            ("TCPProxy socks5 192.0.2.1:1\n", "only protocol"),
            ("TCPProxy haproxy 192.0.2.1\n", "no port"),
            ("TCPProxy haproxy nowhere.example:1\n", "no such address"),
            (
                "TCPProxy haproxy 192.0.2.1:1\nSocks4Proxy 192.0.2.1\n",
                "only one",
            ),
            ("HTTPProxy nowhere.example\n", "HTTPProxy 127.0.0.1:80"),
        ] {
            let report = load_text(torrc, &host()).unwrap_err();
            let text = report.to_string();
            assert!(text.contains(words), "{torrc:?}: {text}");
            assert!(report.c_tor_message().is_some(), "{torrc:?}");
        }
    }
}
