//! The torrc of each node of a private network.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use crate::network::Node;

/// Whose torrc it is.
#[derive(Clone, Debug)]
pub struct Owner<'a> {
    /// The nickname.
    pub nickname: &'a str,
    /// Its DataDirectory.
    pub data: PathBuf,
}

impl<'a> From<&'a Node> for Owner<'a> {
    fn from(node: &'a Node) -> Owner<'a> {
        Owner {
            nickname: node.nickname(),
            data: node.folder().join("data"),
        }
    }
}

/// Role of a node, and its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// The authority.
    Authority {
        /// The ORPort.
        or: SocketAddr,
        /// The DirPort.
        dir: SocketAddr,
    },
    /// A relay or an exit.
    Relay {
        /// The ORPort.
        or: SocketAddr,
        /// The source address of an exit's connections.
        exit: Option<Ipv4Addr>,
    },
    /// A client.
    Client {
        /// The SocksPort.
        socks: SocketAddr,
        /// The ControlPort.
        control: SocketAddr,
        /// Its streams get tunnels of mTor.
        multipath: bool,
    },
}

/// Settings that all nodes share.
#[derive(Clone, Debug)]
pub struct Common {
    /// The words of the `DirAuthority` line.
    pub authority: String,
    /// Seconds from one consensus to the next.
    pub interval: u32,
    /// The nicknames of relays that C tor's authority lists as HSDir at once, and no others.
    pub hidden_service_dirs: Vec<String>,
    /// The lowest severity that is logged.
    pub log: &'static str,
}

/// Lines that only C tor has: small networks, no DNS worth testing.
const TOR: &str = "\
PathsNeededToBuildCircuits 0.5
ServerDNSDetectHijacking 0
ServerDNSAllowBrokenConfig 1
ServerDNSTestAddresses
";

impl Common {
    /// The torrc of a node; `weft`: Weft runs it. The lines of `more` are its last.
    pub fn torrc<'a>(
        &self,
        owner: impl Into<Owner<'a>>,
        duty: Duty,
        weft: bool,
        more: &[String],
    ) -> String {
        let owner = owner.into();
        let own = match duty {
            Duty::Authority { or, dir } => self.authority_lines(&owner, or, dir, weft),
            Duty::Relay { or, exit } => self.relay_lines(&owner, or, exit, weft),
            Duty::Client {
                socks,
                control,
                multipath,
            } => {
                let flags = if multipath { " Multipath" } else { "" };
                self.client_lines(&owner, (socks, flags), control, weft)
            }
        };
        more.iter().fold(own, |text, line| text + line + "\n")
    }

    fn node(&self, owner: &Owner<'_>) -> String {
        format!(
            "TestingTorNetwork 1\n\
             AddressDisableIPv6 1\n\
             ShutdownWaitLength 0\n\
             Nickname {}\n\
             DataDirectory {}\n\
             Log {} stdout\n\
             SafeLogging 0\n\
             DirAuthority {}\n",
            owner.nickname,
            owner.data.display(),
            self.log,
            self.authority,
        )
    }

    fn server(&self, owner: &Owner<'_>, or: SocketAddr, weft: bool) -> String {
        format!(
            "{}{}SocksPort 0\nORPort {or} IPv4Only\nAddress {}\nAssumeReachable 1\n\
             ExtendAllowPrivateAddresses 1\nContactInfo private network on loopback\n",
            self.node(owner),
            if weft { "" } else { TOR },
            or.ip(),
        )
    }

    fn authority_lines(
        &self,
        owner: &Owner<'_>,
        or: SocketAddr,
        dir: SocketAddr,
        weft: bool,
    ) -> String {
        let mut text = self.server(owner, or, weft);
        let _ = write!(
            text,
            "DirPort {dir} IPv4Only\n\
             AuthoritativeDirectory 1\n\
             V3AuthoritativeDirectory 1\n\
             ExitRelay 0\n\
             ExitPolicy reject *:*\n\
             V3AuthVotingInterval {}\n\
             V3AuthVoteDelay 2\n\
             V3AuthDistDelay 2\n\
             TestingDirAuthVoteGuard *\n",
            self.interval
        );
        // As fast as authorities let them, because starting a network means waiting for votes.
        text += "TestingV3AuthInitialVoteDelay 2\nTestingV3AuthInitialDistDelay 2\n";
        if weft {
            // A relay without a consensus publishes a TAP key. Without this it would make another descriptor as soon as it has
            // one, and clients would miss its microdescriptor for a while.
            text += "AuthDirSupport048Clients 1\n";
        } else {
            // A relay would have to be Stable, which takes longer than most private networks are up.
            if !self.hidden_service_dirs.is_empty() {
                let names = self.hidden_service_dirs.join(",");
                let _ = writeln!(
                    text,
                    "TestingDirAuthVoteHSDir {names}\nTestingDirAuthVoteHSDirIsStrict 1"
                );
            }
            text += "TestingV3AuthInitialVotingInterval 5\n\
                     TestingMinExitFlagThreshold 0\n\
                     AuthDirMaxServersPerAddr 0\n";
        }
        text
    }

    /// An exit reaches this machine only.
    fn relay_lines(
        &self,
        owner: &Owner<'_>,
        or: SocketAddr,
        exit: Option<Ipv4Addr>,
        weft: bool,
    ) -> String {
        let policy = match exit {
            Some(from) => format!(
                "ExitRelay 1\nExitPolicyRejectPrivate 0\nExitPolicy accept *:*\n\
                 OutboundBindAddressExit {from}\n"
            ),
            None => "ExitRelay 0\nExitPolicy reject *:*\n".to_owned(),
        };
        self.server(owner, or, weft) + &policy
    }

    fn client_lines(
        &self,
        owner: &Owner<'_>,
        (socks, flags): (SocketAddr, &str),
        control: SocketAddr,
        weft: bool,
    ) -> String {
        format!(
            "{}{}SocksPort {socks}{flags}\nControlPort {control}\nCookieAuthentication 1\n\
             ClientRejectInternalAddresses 0\nEnforceDistinctSubnets 0\n",
            self.node(owner),
            if weft {
                "PathsNeededToBuildCircuits 0.5\n"
            } else {
                TOR
            },
        )
    }
}

/// The words of the `DirAuthority` line of an authority with these identities, whose ORPort has this number.
pub(crate) fn authority_line(
    or_port: u16,
    v3_identity: &str,
    dir: SocketAddr,
    fingerprint: &str,
) -> String {
    format!("authority orport={or_port} no-v2 v3ident={v3_identity} {dir} {fingerprint}")
}

/// Lines of the authority that put these parameters, `name=value`, into the consensus.
pub fn params_lines(params: &[String]) -> Vec<String> {
    match params.is_empty() {
        true => Vec::new(),
        false => vec![format!("ConsensusParams {}", params.join(" "))],
    }
}

/// Lines of a client by which the hops of all its circuits are among these relays.
pub fn path_lines(guards: &[&str], middles: &[&str], exits: &[&str]) -> Vec<String> {
    vec![
        format!("EntryNodes {}", guards.join(",")),
        format!("MiddleNodes {}", middles.join(",")),
        format!("ExitNodes {}", exits.join(",")),
        "StrictNodes 1".to_owned(),
        // A stream over two circuits would be another experiment.
        "ConfluxEnabled 0".to_owned(),
    ]
}
