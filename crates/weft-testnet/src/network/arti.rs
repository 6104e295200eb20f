//! The configuration of Arti's client in a private network.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result};

use super::authority::v3_identity;
use super::members::Relay;

/// A directory authority as Arti's configuration names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// Its v3 identity, in hexadecimal digits.
    v3: String,
    /// Its RSA identity as a relay, the same way.
    rsa: String,
    /// Its ed25519 identity as a relay, in base64.
    ed25519: String,
    or: SocketAddr,
    dir: SocketAddr,
}

impl Known {
    /// Reads them from a C tor that has made its keys.
    pub(super) fn of(authority: &Relay, dir: SocketAddr) -> Result<Known> {
        let data = authority.node.folder().join("data");
        Ok(Known {
            v3: v3_identity(&data.join("keys"))?,
            rsa: authority.fingerprint.to_string(),
            ed25519: ed25519_identity(&data.join("fingerprint-ed25519"))?,
            or: authority.or_port(),
            dir,
        })
    }
}

/// Reads the identity that C tor writes as "nickname base64" beside its RSA fingerprint.
fn ed25519_identity(path: &Path) -> Result<String> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let identity = text.split_ascii_whitespace().nth(1);
    let identity = identity.with_context(|| format!("{} has no identity", path.display()))?;
    Ok(identity.to_owned())
}

/// The configuration of a client that finds its own way, like
/// [`Common::proxy`](super::torrc::Common::proxy) for the other programs: it begins with the
/// authorities, may build circuits of relays that are all on one address, and may connect to
/// loopback. Everything else is Arti's default.
///
/// Each list of addresses that is missing would be the public network's, so all of them are there. The
/// folders are relative to the one that it is started in.
pub(super) fn config(authorities: &[Known], socks: SocketAddr) -> String {
    let mut fallbacks = String::new();
    for Known {
        rsa, ed25519, or, ..
    } in authorities
    {
        let _ = write!(
            fallbacks,
            "{{ rsa_identity = \"{rsa}\", ed_identity = \"{ed25519}\", orports = [\"{or}\"] }},",
        );
    }
    let list = |of: &dyn Fn(&Known) -> String| {
        let all: Vec<String> = authorities.iter().map(of).collect();
        format!("[{}]", all.join(", "))
    };
    let identities = list(&|authority| format!("\"{}\"", authority.v3));
    let addresses = list(&|authority| format!("[\"{}\"]", authority.dir));
    format!(
        "[application]\n\
         # Tests run as root in containers.\n\
         allow_running_as_root = true\n\
         [proxy]\n\
         socks_listen = \"{socks}\"\n\
         [address_filter]\n\
         allow_local_addrs = true\n\
         [path_rules]\n\
         # More bits than there are: no two relays are neighbours.\n\
         ipv4_subnet_family_prefix = 33\n\
         [storage]\n\
         state_dir = \"data\"\n\
         cache_dir = \"cache\"\n\
         port_info_file = \"ports.json\"\n\
         [tor_network]\n\
         fallback_caches = [{fallbacks}]\n\
         [tor_network.authorities]\n\
         v3idents = {identities}\n\
         uploads = {addresses}\n\
         downloads = {addresses}\n\
         votes = {addresses}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(number: u16) -> Known {
        Known {
            v3: format!("{number}").repeat(40),
            rsa: "AB".repeat(20),
            ed25519: "c".repeat(43),
            or: SocketAddr::from(([127, 0, 0, 1], 5000 + number)),
            dir: SocketAddr::from(([127, 0, 0, 1], 7000 + number)),
        }
    }

    #[test]
    fn every_list_of_the_public_network_has_a_private_one_in_its_place() {
        let socks = SocketAddr::from(([127, 0, 0, 1], 9150));
        let text = config(&[known(1), known(2)], socks);
        for line in [
            "socks_listen = \"127.0.0.1:9150\"".to_owned(),
            format!(
                "v3idents = [\"{}\", \"{}\"]",
                "1".repeat(40),
                "2".repeat(40)
            ),
            "downloads = [[\"127.0.0.1:7001\"], [\"127.0.0.1:7002\"]]".to_owned(),
            "uploads = [[\"127.0.0.1:7001\"], [\"127.0.0.1:7002\"]]".to_owned(),
            "votes = [[\"127.0.0.1:7001\"], [\"127.0.0.1:7002\"]]".to_owned(),
        ] {
            assert!(text.lines().any(|there| there == line), "{line}: {text}");
        }
        assert!(
            text.contains("fallback_caches = [{ rsa_identity = \"ABAB"),
            "{text}"
        );
        assert_eq!(text.matches("orports").count(), 2, "{text}");
        let addresses: Vec<SocketAddr> = text
            .split('"')
            .filter_map(|word| word.parse().ok())
            .collect();
        assert_eq!(addresses.len(), 1 + 2 + 3 * 2, "{text}");
        assert!(addresses.iter().all(|address| address.ip().is_loopback()));
    }

    #[test]
    fn an_authority_has_its_ed25519_identity_after_its_nickname() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("fingerprint-ed25519");
        fs::write(&path, format!("auth0 {}\n", "c".repeat(43))).expect("a file");
        assert_eq!(ed25519_identity(&path).expect("one"), "c".repeat(43));
        fs::write(&path, "auth0\n").expect("a file");
        let error = ed25519_identity(&path).expect_err("none");
        assert!(error.to_string().contains("no identity"), "{error}");
    }
}
