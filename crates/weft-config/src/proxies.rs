//! The proxy that all connections to relays and directories go through: `Socks4Proxy`, `Socks5Proxy`,
//! `HTTPSProxy` (config.c `options_validate_cb`).

use std::net::SocketAddr;

use weft_proxy::{Credentials, Protocol, Proxy, Secret};

use super::address::{parse_address_port, split_host_port};
use super::host::Host;
use super::key::Key;
use super::report::Report;
use super::settings::Settings;
use super::table::keys;

/// The protocol that a proxy option is about.
#[derive(Clone, Copy)]
enum Kind {
    Http,
    Socks4,
    Socks5,
}

/// The options and the port of each where none is given.
const PROXIES: [(Key<String>, Kind, u16); 3] = [
    (keys::HTTPSProxy, Kind::Http, 443),
    (keys::Socks4Proxy, Kind::Socks4, 1080),
    (keys::Socks5Proxy, Kind::Socks5, 1080),
];
/// The longest `HTTPSProxyAuthenticator`, in bytes.
const MAX_AUTHENTICATOR: usize = 511;

/// The proxy that is set.
pub(super) fn proxy(settings: &Settings, host: &dyn Host, report: &mut Report) -> Option<Proxy> {
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
            "only one of HTTPSProxy, Socks4Proxy and Socks5Proxy can be set".to_owned(),
            "You have configured more than one proxy type. \
             (Socks4Proxy|Socks5Proxy|HTTPSProxy|TCPProxy)",
            settings,
            report,
        );
    }
    let (key, kind, port, text) = *set.first()?;
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
    };
    Some(Proxy { addr, protocol })
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
        // A relay may have one, too.
        assert!(set("ORPort 9001\nContactInfo x\nSocks4Proxy 192.0.2.1\n").is_some());
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
        ] {
            let report = load_text(torrc, &host()).unwrap_err();
            let text = report.to_string();
            assert!(text.contains(words), "{torrc:?}: {text}");
            assert!(report.c_tor_message().is_some(), "{torrc:?}");
        }
    }
}
