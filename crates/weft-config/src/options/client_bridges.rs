//! A client's bridges and the pluggable transports that it reaches them by (C tor: config.c, `parse_bridge_line`,
//! `pt_parse_transport_line` and `options_validate_cb`).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use weft_cell::identity::RsaIdentity;
use weft_proxy::transports::{escape, is_identifier, is_key_value};

use crate::host::Host;
use crate::report::{Origin, Report};
use crate::settings::Settings;
use crate::table::keys;
use crate::text::address::{parse_address_port, split_host_port};

/// The port of a bridge whose line has none.
const DEFAULT_PORT: u16 = 443;
/// The most that user name and password of SOCKS5 carry (C tor's MAX_SOCKS5_AUTH_SIZE_TOTAL).
const MAX_SOCKS_ARGS: usize = 2 * 255;

/// A client's bridges and transports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BridgeOptions {
    /// `UseBridges`: the first hop of every circuit is one of `bridges`, and nothing else is connected to.
    pub in_use: bool,
    /// `Bridge`, in the order of the lines; no two have one address and port.
    pub bridges: Vec<BridgeLine>,
    /// `ClientTransportPlugin`.
    pub plugins: Vec<ClientPlugin>,
    /// `ReconfigDropsBridgeDescs`: the descriptors of bridges are dropped at each reload.
    pub reload_drops_descriptors: bool,
    /// `TestingBridgeDownloadInitialDelay`: a descriptor is fetched again after this.
    pub refetch_after: Duration,
    /// `TestingBridgeBootstrapDownloadInitialDelay`: the least time from one try to the next.
    pub retry_after: Duration,
}

/// A bridge, from its line in torrc.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeLine {
    /// The transport that it is reached by.
    pub transport: Option<String>,
    /// Where it is, or what its transport is asked to connect to.
    pub addr: SocketAddr,
    /// The digest of its RSA identity key; `None`: the relay that answers is believed.
    pub rsa: Option<RsaIdentity>,
    /// `k=v`, for its transport.
    pub args: Vec<String>,
}

impl BridgeLine {
    /// The arguments as a transport gets them by SOCKS (pt-spec 3.5); `None`: there are none.
    #[must_use]
    pub fn socks_args(&self) -> Option<String> {
        // In an argument `;` and `\` stand for themselves.
        let escaped = self.args.iter().map(|arg| escape(arg, ";\\"));
        let joined = escaped.collect::<Vec<_>>().join(";");
        (!self.args.is_empty()).then_some(joined)
    }
}

/// A program or proxy that reaches bridges by transports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientPlugin {
    /// The names of the transports; at least one.
    pub transports: Vec<String>,
    /// Program or proxy.
    pub kind: PluginKind,
}

/// Way to bridges with transports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PluginKind {
    /// A program to run (`exec`), with its arguments.
    Exec(Arc<[String]>),
    /// A SOCKS4 proxy that runs already.
    Socks4(SocketAddr),
    /// A SOCKS5 proxy that runs already.
    Socks5(SocketAddr),
}

/// Reads a `Bridge` line.
///
/// # Errors
///
/// The line is malformed: the text has C tor's words.
pub fn parse_bridge(line: &str) -> Result<BridgeLine, String> {
    let mut items = line.split_ascii_whitespace();
    let first = items.next().ok_or("Too few arguments to Bridge line.")?;
    let (transport, addr) = match is_identifier(first) {
        true => {
            let addr = items.next().ok_or("Too few items to Bridge line.")?;
            (Some(first.to_owned()), addr)
        }
        false => (None, first),
    };
    let bad_addr = || format!("Error parsing Bridge address '{addr}'");
    let parsed = parse_address_port(addr).ok_or_else(bad_addr)?;
    let addr = SocketAddr::new(parsed.address, parsed.port.unwrap_or(DEFAULT_PORT));
    let mut args: Vec<String> = items.map(str::to_owned).collect();
    let digest = match (&transport, args.first()) {
        (_, None) => None,
        // Its groups of digits may stand apart.
        (None, Some(_)) => Some(std::mem::take(&mut args).concat()),
        (Some(_), Some(first)) if is_key_value(first) => None,
        (Some(_), Some(_)) => Some(args.remove(0)),
    };
    let rsa = digest.map(|digest| parse_digest(&digest)).transpose()?;
    if let Some(bad) = args.iter().find(|arg| !is_key_value(arg)) {
        return Err(format!("'{bad}' is not a k=v item."));
    }
    let line = BridgeLine {
        transport,
        addr,
        rsa: rsa.filter(|rsa| !rsa.is_zero()),
        args,
    };
    let length = line.socks_args().map_or(0, |args| args.len());
    match length > MAX_SOCKS_ARGS {
        true => Err(format!(
            "SOCKS arguments can't be more than {MAX_SOCKS_ARGS} bytes ({length})."
        )),
        false => Ok(line),
    }
}

fn parse_digest(text: &str) -> Result<RsaIdentity, String> {
    let mut digest = [0; 20];
    if text.len() != 2 * digest.len() {
        return Err("Key digest for Bridge is wrong length.".to_owned());
    }
    hex::decode_to_slice(text, &mut digest)
        .map_err(|_| "Unable to decode Bridge key digest.".to_owned())?;
    Ok(RsaIdentity(digest))
}

/// Reads a `ClientTransportPlugin` line.
///
/// # Errors
///
/// The line is malformed: the text has C tor's words.
fn parse_plugin(line: &str, host: &dyn Host) -> Result<ClientPlugin, String> {
    let items: Vec<&str> = line.split_ascii_whitespace().collect();
    let [names, kind, rest @ ..] = items.as_slice() else {
        return Err("Too few arguments on ClientTransportPlugin line.".to_owned());
    };
    let Some(target) = rest.first() else {
        return Err("Too few arguments on ClientTransportPlugin line.".to_owned());
    };
    let names = names.split(',').filter(|name| !name.is_empty());
    let transports: Vec<String> = names.map(str::to_owned).collect();
    if let Some(bad) = transports.iter().find(|name| !is_identifier(name)) {
        return Err(format!("Transport name is not a C identifier ({bad})."));
    }
    let proxy = || {
        if transports.len() != 1 {
            return Err(
                "You can't have an external proxy with more than one transport.".to_owned(),
            );
        }
        let unread = || format!("Error parsing transport address '{target}'");
        let (name, port) = match parse_address_port(target) {
            Some(literal) => return with_port(target, literal.address, literal.port),
            None => split_host_port(target).ok_or_else(unread)?,
        };
        let found = host.resolve(name).ok_or_else(unread)?;
        with_port(target, found, port)
    };
    let kind = match *kind {
        "exec" => PluginKind::Exec(rest.iter().map(|word| (*word).to_owned()).collect()),
        "socks4" => PluginKind::Socks4(proxy()?),
        "socks5" => PluginKind::Socks5(proxy()?),
        other => return Err(format!("Strange ClientTransportPlugin type '{other}'")),
    };
    Ok(ClientPlugin { transports, kind })
}

fn with_port(
    text: &str,
    address: std::net::IpAddr,
    port: Option<u16>,
) -> Result<SocketAddr, String> {
    let port = port.ok_or_else(|| format!("Transport address '{text}' has no port."))?;
    Ok(SocketAddr::new(address, port))
}

/// The rules between options about bridges.
pub(crate) fn check(settings: &Settings, is_relay: bool, report: &mut Report) {
    if !settings.flag(keys::UseBridges) {
        return;
    }
    let mut refuse = |words: &str| {
        let c_tor = format!("Failed to parse/validate config: {words}");
        let origin = settings.origin(keys::UseBridges);
        report.error_with_c_tor_message(origin, words, c_tor);
    };
    if is_relay {
        refuse(
            "Servers must be able to freely connect to the rest of the Internet, so they must not set UseBridges.",
        );
    }
    if settings
        .text(keys::EntryNodes)
        .is_some_and(|set| !set.is_empty())
    {
        refuse("You cannot set both UseBridges and EntryNodes.");
    }
    if !settings.flag(keys::UseEntryGuards) {
        refuse("Setting UseBridges requires also setting UseEntryGuards.");
    }
    if settings.lines(keys::Bridge).is_empty() {
        refuse("If you set UseBridges, you must specify at least one bridge.");
    }
}

/// Reads them. `proxied`: all connections go through a proxy.
pub(crate) fn read(
    settings: &Settings,
    host: &dyn Host,
    proxied: bool,
    report: &mut Report,
) -> BridgeOptions {
    let mut bridges: Vec<BridgeLine> = Vec::new();
    for line in settings.lines(keys::Bridge) {
        let refused = "Bridge line did not parse. See logs for details.";
        match parse_bridge(&line.value) {
            Ok(bridge) => add(&mut bridges, bridge, &line.origin, report),
            Err(why) => refuse(&line.origin, "Bridge", &why, refused, report),
        }
    }
    let mut plugins = Vec::new();
    for line in settings.lines(keys::ClientTransportPlugin) {
        let mut refuse = |why: &str| {
            let refused = "Invalid client transport line. See logs for details.";
            refuse(&line.origin, "ClientTransportPlugin", why, refused, report);
        };
        let plugin = match parse_plugin(&line.value, host) {
            Ok(plugin) => plugin,
            Err(why) => {
                refuse(&why);
                continue;
            }
        };
        match plugin.kind {
            PluginKind::Exec(_) if settings.flag(keys::NoExec) => report.warn(
                Some(&line.origin),
                "Managed proxies are not compatible with NoExec mode; ignoring.",
            ),
            PluginKind::Socks4(_) | PluginKind::Socks5(_) if proxied => refuse(
                "You have configured an external proxy with another proxy type. \
                 (Socks4Proxy|Socks5Proxy|HTTPSProxy|TCPProxy)",
            ),
            _ => plugins.push(plugin),
        }
    }
    BridgeOptions {
        in_use: settings.flag(keys::UseBridges),
        bridges,
        plugins,
        reload_drops_descriptors: settings.flag(keys::ReconfigDropsBridgeDescs),
        refetch_after: settings.time(keys::TestingBridgeDownloadInitialDelay),
        retry_after: settings.time(keys::TestingBridgeBootstrapDownloadInitialDelay),
    }
}

fn refuse(origin: &Origin, key: &str, why: &str, c_tor: &str, report: &mut Report) {
    report.error_with_c_tor_message(
        Some(origin),
        format!("{key}: {why}"),
        format!("Failed to parse/validate config: {c_tor}"),
    );
}

/// Adds a bridge. Of two at one address the second counts (bridges.c, `bridge_resolve_conflicts`).
fn add(bridges: &mut Vec<BridgeLine>, bridge: BridgeLine, origin: &Origin, report: &mut Report) {
    let old = bridges.iter().position(|other| other.addr == bridge.addr);
    if let Some(old) = old.map(|at| bridges.remove(at))
        && (old.rsa, &old.transport) != (bridge.rsa, &bridge.transport)
    {
        let (new, old) = (describe(&bridge), describe(&old));
        report.warn(
            Some(origin),
            format!(
                "Tried to add bridge '{new}', but we found a conflict with the already registered bridge \
                 '{old}'. We will discard the old bridge and keep '{new}'. If this is not what you wanted, \
                 please change your configuration file accordingly."
            ),
        );
    }
    bridges.push(bridge);
}

fn describe(bridge: &BridgeLine) -> String {
    let rsa = bridge.rsa.map(|rsa| rsa.to_string()).unwrap_or_default();
    let transport = bridge.transport.as_deref().unwrap_or_default();
    format!("{}:{rsa}:{transport}", bridge.addr)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryHost, load_text};

    const DIGEST: &str = "0123456789abcdef0123456789ABCDEF01234567";

    fn digest() -> Option<RsaIdentity> {
        Some(parse_digest(DIGEST).unwrap())
    }

    #[test]
    fn bridge_lines_are_read_as_by_c_tor() {
        let bridge = |line: &str| parse_bridge(line).unwrap();
        let plain = bridge("192.0.2.1:9001");
        assert_eq!((plain.transport, plain.rsa), (None, None));
        assert_eq!(bridge("192.0.2.1").addr, "192.0.2.1:443".parse().unwrap());
        assert_eq!(
            bridge("[2001:db8::1]:9001").addr,
            "[2001:db8::1]:9001".parse().unwrap()
        );
        let spaced = format!("192.0.2.1 {} {}", &DIGEST[..4], &DIGEST[4..]);
        assert_eq!(bridge(&spaced).rsa, digest());
        let whole = bridge(&format!("obfs4 192.0.2.1:1 {DIGEST} cert=a;b iat-mode=0"));
        assert_eq!(whole.transport.as_deref(), Some("obfs4"));
        assert_eq!(whole.rsa, digest());
        assert_eq!(whole.args, ["cert=a;b", "iat-mode=0"]);
        let without = bridge("snowflake 192.0.2.3:1 url=x=y");
        assert_eq!((without.rsa, without.args.len()), (None, 1));
    }

    #[test]
    fn what_is_wrong_with_a_bridge_line_is_reported_in_c_tors_words() {
        for (line, words) in [
            ("", "Too few arguments to Bridge line."),
            ("obfs4", "Too few items to Bridge line."),
            ("obfs4 x", "Error parsing Bridge address 'x'"),
            ("192.0.2.1:0", "Error parsing Bridge address '192.0.2.1:0'"),
            ("bridge.example:443", "Error parsing Bridge address"),
            (
                "192.0.2.1:443 0123",
                "Key digest for Bridge is wrong length.",
            ),
            (
                "192.0.2.1:443 x123456789abcdef0123456789ABCDEF01234567",
                "Unable to decode Bridge key digest.",
            ),
            // Without a transport what follows is all of the fingerprint.
            (
                "192.0.2.1:443 k=v",
                "Key digest for Bridge is wrong length.",
            ),
            (
                "obfs4 192.0.2.1:443 0123456789abcdef0123456789ABCDEF01234567 k=v w",
                "'w' is not a k=v item.",
            ),
            ("obfs4 192.0.2.1:443 k=v =v", "'=v' is not a k=v item."),
        ] {
            let why = parse_bridge(line).unwrap_err();
            assert!(why.starts_with(words), "{line}: {why}");
        }
    }

    #[test]
    fn arguments_are_escaped_and_bounded() {
        let args = |line: &str| parse_bridge(line).unwrap().socks_args();
        assert_eq!(args("192.0.2.1:1"), None);
        assert_eq!(
            args(r"t 192.0.2.1:1 a=b;c d=\e=f").as_deref(),
            Some(r"a=b\;c;d=\\e=f")
        );
        let longest = format!("t 192.0.2.1:1 k={}", "v".repeat(508));
        assert_eq!(args(&longest).map(|args| args.len()), Some(510));
        let why = parse_bridge(&(longest + "v")).unwrap_err();
        assert_eq!(why, "SOCKS arguments can't be more than 510 bytes (511).");
        // Two semicolons more are four bytes more.
        let escaped = format!("t 192.0.2.1:1 k={};;", "v".repeat(505));
        assert!(parse_bridge(&escaped).unwrap_err().contains("(511)"));
    }

    fn loaded(torrc: &str) -> BridgeOptions {
        load_text(torrc, &MemoryHost::new())
            .unwrap()
            .options
            .bridges
    }

    #[test]
    fn transports_are_programs_or_proxies() {
        let plugins = loaded(
            "ClientTransportPlugin obfs4,meek exec /bin/pt -log a\n\
             ClientTransportPlugin one socks5 127.0.0.1:1\n\
             ClientTransportPlugin two socks4 [::1]:2\n",
        )
        .plugins;
        let kinds: Vec<_> = plugins.iter().map(|plugin| plugin.kind.clone()).collect();
        let words = ["/bin/pt", "-log", "a"].map(str::to_owned);
        assert_eq!(
            kinds,
            [
                PluginKind::Exec(words.into()),
                PluginKind::Socks5("127.0.0.1:1".parse().unwrap()),
                PluginKind::Socks4("[::1]:2".parse().unwrap()),
            ]
        );
        assert_eq!(plugins[0].transports, ["obfs4", "meek"]);
        assert!(
            loaded("NoExec 1\nClientTransportPlugin a exec /b\n")
                .plugins
                .is_empty()
        );
        for (line, words) in [
            (
                "obfs4 exec",
                "Too few arguments on ClientTransportPlugin line.",
            ),
            (
                "ob-fs exec x",
                "Transport name is not a C identifier (ob-fs).",
            ),
            (
                "a proxy 127.0.0.1:1",
                "Strange ClientTransportPlugin type 'proxy'",
            ),
            ("a,b socks5 127.0.0.1:1", "more than one transport"),
            (
                "a socks5 127.0.0.1",
                "Transport address '127.0.0.1' has no port.",
            ),
            (
                "a socks5 127.0.0.1:x",
                "Error parsing transport address '127.0.0.1:x'",
            ),
            ("a exec /b\nSandbox 1", "not compatible with Sandbox mode"),
            (
                "a socks5 127.0.0.1:1\nSocks5Proxy 127.0.0.1:2",
                "an external proxy with another proxy type",
            ),
        ] {
            let torrc = format!("ClientTransportPlugin {line}\n");
            let report = load_text(&torrc, &MemoryHost::new())
                .unwrap_err()
                .to_string();
            assert!(report.contains(words), "{line}: {report}");
        }
    }

    #[test]
    fn what_does_not_go_with_bridges_is_refused_in_c_tors_words() {
        for (torrc, words) in [
            ("", "you must specify at least one bridge."),
            (
                "Bridge 192.0.2.1:1\nUseEntryGuards 0\n",
                "Setting UseBridges requires also setting UseEntryGuards.",
            ),
            (
                "Bridge 192.0.2.1:1\nEntryNodes a\n",
                "You cannot set both UseBridges and EntryNodes.",
            ),
            (
                "Bridge 192.0.2.1:1\nORPort 9001\n",
                "so they must not set UseBridges.",
            ),
            (
                "Bridge 192.0.2.1:1\nBridge x\n",
                "Too few items to Bridge line.",
            ),
        ] {
            let torrc = format!("UseBridges 1\n{torrc}");
            let report = load_text(&torrc, &MemoryHost::new())
                .unwrap_err()
                .to_string();
            assert!(report.contains(words), "{torrc}: {report}");
        }
        // Lines of bridges alone do not cause their use; but they must be valid.
        assert!(!loaded("Bridge 192.0.2.1:1\n").in_use);
        assert!(load_text("Bridge x\n", &MemoryHost::new()).is_err());
    }

    #[test]
    fn of_two_bridges_at_one_address_the_second_is_used() {
        let torrc = format!("UseBridges 1\nBridge 192.0.2.1:1\nBridge 192.0.2.1:1 {DIGEST}\n");
        let loaded = load_text(&torrc, &MemoryHost::new()).unwrap();
        assert_eq!(loaded.options.bridges.bridges.len(), 1);
        assert_eq!(loaded.options.bridges.bridges[0].rsa, digest());
        let mut messages = loaded.report.messages().iter();
        let words = "but we found a conflict with the already registered bridge";
        assert!(messages.any(|message| message.text.contains(words)));
    }
}
