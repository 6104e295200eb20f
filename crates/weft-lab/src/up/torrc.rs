//! The torrc of each node of such a network.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use crate::network::Node;

/// Whose torrc it is.
#[derive(Clone, Debug)]
pub(crate) struct Owner<'a> {
    pub(crate) nickname: &'a str,
    /// Its DataDirectory.
    pub(crate) data: PathBuf,
}

impl<'a> From<&'a Node> for Owner<'a> {
    fn from(node: &'a Node) -> Owner<'a> {
        Owner {
            nickname: node.nickname(),
            data: node.folder().join("data"),
        }
    }
}

/// What every node has in common.
#[derive(Clone, Debug)]
pub(crate) struct Common {
    /// The words of the `DirAuthority` line.
    pub(crate) authority: String,
    /// Seconds from one consensus to the next.
    pub(crate) interval: u32,
    /// The lowest severity that is logged.
    pub(crate) log: &'static str,
}

/// Lines that only C tor has: small networks, no DNS worth testing.
const TOR: &str = "\
PathsNeededToBuildCircuits 0.5
ServerDNSDetectHijacking 0
ServerDNSAllowBrokenConfig 1
ServerDNSTestAddresses
";

impl Common {
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

    /// The authority.
    pub(crate) fn authority_torrc<'a>(
        &self,
        owner: impl Into<Owner<'a>>,
        or: SocketAddr,
        dir: SocketAddr,
        weft: bool,
        more: &[String],
    ) -> String {
        let mut text = self.server(&owner.into(), or, weft);
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
             TestingDirAuthVoteGuard *\n\
             TestingDirAuthVoteHSDir *\n",
            self.interval
        );
        if !weft {
            // As fast as C tor lets them, because starting a network means waiting for votes.
            text += "TestingV3AuthInitialVotingInterval 5\n\
                     TestingV3AuthInitialVoteDelay 2\n\
                     TestingV3AuthInitialDistDelay 2\n\
                     TestingMinExitFlagThreshold 0\n\
                     AuthDirMaxServersPerAddr 0\n";
        }
        text + &lines(more)
    }

    /// A relay, or an exit that reaches this machine only: its connections come from this address.
    pub(crate) fn relay_torrc<'a>(
        &self,
        owner: impl Into<Owner<'a>>,
        or: SocketAddr,
        exit: Option<Ipv4Addr>,
        weft: bool,
        more: &[String],
    ) -> String {
        let policy = match exit {
            Some(from) => format!(
                "ExitRelay 1\nExitPolicyRejectPrivate 0\nExitPolicy accept *:*\n\
                 OutboundBindAddressExit {from}\n"
            ),
            None => "ExitRelay 0\nExitPolicy reject *:*\n".to_owned(),
        };
        self.server(&owner.into(), or, weft) + &policy + &lines(more)
    }

    /// A client.
    pub(crate) fn client_torrc<'a>(
        &self,
        owner: impl Into<Owner<'a>>,
        socks: SocketAddr,
        control: SocketAddr,
        weft: bool,
        more: &[String],
    ) -> String {
        format!(
            "{}{}SocksPort {socks}\nControlPort {control}\nCookieAuthentication 1\n\
             ClientRejectInternalAddresses 0\nEnforceDistinctSubnets 0\n{}",
            self.node(&owner.into()),
            if weft {
                "PathsNeededToBuildCircuits 0.5\n"
            } else {
                TOR
            },
            lines(more),
        )
    }
}

fn lines(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}
