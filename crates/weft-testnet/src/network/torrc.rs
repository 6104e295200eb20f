//! The torrc of each kind of node, as text that C tor and Weft read alike.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

/// Lines that every node's torrc of one network shares.
#[derive(Clone, Debug)]
pub(crate) struct Common {
    /// `DirAuthority` lines.
    pub(crate) authorities: Vec<String>,
    /// The lowest severity that is logged: `notice` or `info`.
    pub(crate) log: &'static str,
    /// Seconds from one consensus to the next.
    pub(crate) voting_interval: u32,
}

/// Options of a target relay's torrc.
#[derive(Clone, Debug)]
pub struct TargetOptions {
    /// `AssumeReachable 1`: publish without a reachability test.
    pub assume_reachable: bool,
    /// It lets streams leave to loopback.
    pub exit: bool,
    /// Further lines.
    pub more: Vec<String>,
}

impl Default for TargetOptions {
    fn default() -> TargetOptions {
        TargetOptions {
            assume_reachable: true,
            exit: false,
            more: Vec::new(),
        }
    }
}

/// Voting times: the shortest that C tor allows, because starting a network means waiting for
/// votes. C tor's minimum is 5 s before the first consensus and 10 s after it.
const VOTING: &str = "\
TestingV3AuthInitialVotingInterval 5
TestingV3AuthInitialVoteDelay 2
TestingV3AuthInitialDistDelay 2
V3AuthVoteDelay 2
V3AuthDistDelay 2
TestingDirAuthVoteExit *
TestingDirAuthVoteGuard *
TestingMinExitFlagThreshold 0
AuthDirMaxServersPerAddr 0
";

impl Common {
    /// Lines of every node.
    fn node(&self, nickname: &str, folder: &Path) -> String {
        let mut torrc = format!(
            "TestingTorNetwork 1\n\
             AddressDisableIPv6 1\n\
             ShutdownWaitLength 0\n\
             Nickname {nickname}\n\
             DataDirectory {}\n\
             Log {} stdout\n\
             SafeLogging 0\n",
            folder.join("data").display(),
            self.log,
        );
        for line in &self.authorities {
            let _ = writeln!(torrc, "DirAuthority {line}");
        }
        torrc
    }

    fn control(folder: &Path) -> String {
        format!("ControlSocket {}\n", folder.join("control").display())
    }

    /// Lines of every C tor that the lab itself runs.
    fn tor(&self, nickname: &str, folder: &Path) -> String {
        format!(
            "{}{}PathsNeededToBuildCircuits 0.5\n\
             ProtocolWarnings 1\n\
             ServerDNSDetectHijacking 0\n\
             ServerDNSAllowBrokenConfig 1\n",
            self.node(nickname, folder),
            Common::control(folder),
        )
    }

    fn server(or: SocketAddr) -> String {
        format!(
            "SocksPort 0\n\
             ORPort {or} IPv4Only\n\
             Address {}\n\
             ContactInfo private network on loopback\n",
            or.ip()
        )
    }

    /// A directory authority.
    pub(crate) fn authority(
        &self,
        nickname: &str,
        folder: &Path,
        or: SocketAddr,
        dir: SocketAddr,
    ) -> String {
        format!(
            "{}{}DirPort {dir} IPv4Only\nAssumeReachable 1\nAuthoritativeDirectory 1\nV3AuthoritativeDirectory 1\n\
             ExitPolicy reject *:*\nV3AuthVotingInterval {}\n{VOTING}",
            self.tor(nickname, folder),
            Common::server(or),
            self.voting_interval,
        )
    }

    /// A relay, which lets streams leave to loopback if it is an exit.
    pub(crate) fn relay(
        &self,
        nickname: &str,
        folder: &Path,
        or: SocketAddr,
        exit: bool,
    ) -> String {
        format!(
            "{}{}AssumeReachable 1\n{}",
            self.tor(nickname, folder),
            Common::server(or),
            Common::policy(exit),
        )
    }

    /// Who lets streams leave does so to anywhere, or clients that find their own way would not know
    /// that it is an exit: the summary of a policy leaves private addresses out (dir-spec 3.8.2). Only
    /// loopback is ever asked for, and once an address of the documentation's network, which they refuse.
    fn policy(exit: bool) -> &'static str {
        if exit {
            "ExitRelay 1\nExitPolicyRejectPrivate 0\nExitPolicy reject 0.0.0.0/8:*,reject 192.0.2.0/24:*,accept *:*\n"
        } else {
            "ExitRelay 0\nExitPolicy reject *:*\n"
        }
    }

    /// A target: nothing that only C tor has. An exit can be asked which relays it knows.
    pub(crate) fn target(
        &self,
        nickname: &str,
        folder: &Path,
        or: SocketAddr,
        options: &TargetOptions,
    ) -> String {
        let mut torrc = format!(
            "{}{}AssumeReachable {}\nExtendAllowPrivateAddresses 1\n{}",
            self.node(nickname, folder),
            Common::server(or),
            u8::from(options.assume_reachable),
            Common::policy(options.exit),
        );
        if options.exit {
            torrc += &Common::control(folder);
        }
        for line in &options.more {
            let _ = writeln!(torrc, "{line}");
        }
        torrc
    }

    /// A client whose circuits and streams are the lab's to choose. It names relays by their RSA
    /// identities, or by both.
    pub(crate) fn client(
        &self,
        nickname: &str,
        folder: &Path,
        socks: SocketAddr,
        by_ed25519: bool,
    ) -> String {
        format!(
            "{}SocksPort {socks}\n\
             ExtendByEd25519ID {}\n\
             ClientRejectInternalAddresses 0\n\
             EnforceDistinctSubnets 0\n\
             __LeaveStreamsUnattached 1\n\
             LearnCircuitBuildTimeout 0\n\
             CircuitBuildTimeout 60\n",
            self.tor(nickname, folder),
            u8::from(by_ed25519),
        )
    }

    /// A client that finds its own way, of whatever program: nothing that only C tor has.
    pub(crate) fn proxy(&self, nickname: &str, folder: &Path, socks: SocketAddr) -> String {
        format!(
            "{}{}SocksPort {socks} IsolateSOCKSAuth\n\
             ClientRejectInternalAddresses 0\n\
             EnforceDistinctSubnets 0\n\
             PathsNeededToBuildCircuits 0.5\n",
            self.node(nickname, folder),
            Self::control(folder),
        )
    }
}
