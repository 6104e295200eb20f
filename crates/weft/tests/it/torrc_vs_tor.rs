//! Tests of `tor` and `weft` with the same torrc: both accept it or both refuse it, and where they
//! accept it, both dump the same.
//!
//! Needs `tor` and fails without it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let bench = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        fs::create_dir(bench.path("included")).unwrap();
        fs::write(bench.path("included/20-b"), "Nickname fromb\n").unwrap();
        fs::write(
            bench.path("included/10-a"),
            "Nickname froma\nAddress 192.0.2.7\n",
        )
        .unwrap();
        fs::write(bench.path("included/.hidden"), "Nonsense 1\n").unwrap();
        fs::write(bench.path("included/empty"), "").unwrap();
        fs::write(
            bench.path("loop"),
            format!("%include {}\n", bench.path("loop").display()),
        )
        .unwrap();
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a program on a torrc. The home directory is an empty one, and so are the defaults.
    fn run(&self, program: &str, torrc: &Path, words: &[&str]) -> Output {
        Command::new(program)
            .arg("-f")
            .arg(torrc)
            .args(["--defaults-torrc", "/nonexistent"])
            .args(words)
            .env("HOME", self.folder.path())
            .current_dir(self.folder.path())
            .output()
            .unwrap_or_else(|why| panic!("cannot run {program}: {why}; install it"))
    }

    /// A program's dump of a torrc, `None` if it refuses the torrc; and its error output.
    fn dump(
        &self,
        program: &str,
        torrc: &Path,
        kind: &str,
        words: &[&str],
    ) -> (Option<String>, String) {
        let output = self.run(program, torrc, &[&["--dump-config", kind], words].concat());
        let text = String::from_utf8_lossy(&output.stdout);
        let is_own = |line: &&str| {
            let mut names = own_options().chain(NEWER);
            names.any(|name| line.split(' ').next() == Some(name))
        };
        let lines = text.lines().filter(|line| !is_own(line));
        let lines: String = lines.flat_map(|line| [line, "\n"]).collect();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success().then_some(lines), errors)
    }

    fn compare(&self, text: &str, kinds: &[&str], words: &[&str], differences: &mut Vec<String>) {
        let torrc = self.path("torrc");
        let data = format!("DataDirectory {}\n", self.path("data").display());
        let text = text.replace("HERE", &self.folder.path().display().to_string());
        fs::write(&torrc, format!("{data}{text}")).unwrap();
        for kind in kinds {
            let (tor, _) = self.dump("tor", &torrc, kind, words);
            let (weft, errors) = self.dump(env!("CARGO_BIN_EXE_weft"), &torrc, kind, words);
            if tor != weft {
                differences.push(format!(
                    "--- {text:?} {words:?}\ntor: {tor:?}\nweft: {weft:?}\n{errors}"
                ));
                return;
            }
        }
    }
}

/// Options that are, or whose defaults are, those of C tor 0.4.9.12; the C tor here may be older.
const NEWER: [&str; 2] = ["AuthDirSupport048Clients", "MinimalAcceptedServerVersion"];

/// The options that C tor does not have, in the order of lists.
fn own_options() -> impl Iterator<Item = &'static str> {
    let own = weft_config::table::all().filter(|known| known.own);
    own.map(|known| known.name)
}

const AUTHORITY: &str = "DirAuthority a orport=5000 v3ident=E8A9C45EDE6D711294FADF8E7951F4DE6CA56B58 \
                         127.0.0.1:7000 7EA6EAD6FD83083C538F44038BBFA077587DD755\n";

/// Torrcs on which `tor` and `weft` must agree, each after a line that sets `DataDirectory`.
const TORRCS: &[&str] = &[
    "",
    "ORPort 9001",
    // Lines.
    "# only a comment\n\n   \n",
    "  nickname   a  \t\nORPORT 9001 # why",
    "Nickname a#b",
    "Nickname \"abc\" # why\n",
    "Nickname \"abc\" def",
    "Nickname \"abc",
    "ContactInfo \"a\\tb\\n\\\"c\\\" \\'d\\' \\\\ \\x41 \\101 \\7\"",
    "ContactInfo \"\\q\"",
    "ContactInfo \"\\x4\"",
    "ContactInfo \"\\400\"",
    "ContactInfo \"caf\\303\\251\"",
    "ContactInfo café",
    "ContactInfo it's \"me\" \\o/ # x",
    "ContactInfo a \\\n b",
    "ContactInfo a \\\n# comment\n b",
    "ContactInfo a \\\n b # comment\nNickname c",
    "ContactInfo\\\na",
    "ContactInfo a # b \\\nNickname c",
    "Nickname a\r\nContactInfo b\r\n",
    "ExitPolicy accept *:80, \\\n  accept *:443, \\\n# no mail\n  reject *:*\nORPort 9001\nExitRelay 1",
    // Names.
    "Nick a",
    "Nicknme a",
    "NumCPU 3",
    "MaxConn 2000",
    "DirFetchPostPeriod 3",
    "BandwidthRateBytes 1 MB",
    "MaxMemInCellQueues 1 GB",
    "HidServDirectoryV2 1",
    "ORPortLines 9001",
    "Frobnicate 1",
    "\\\nNickname a",
    // Values of every type.
    "ConnLimit 0",
    "ConnLimit -1",
    "ConnLimit 1x",
    "ConnLimit 99999999999",
    "ConnLimit 007",
    "BandwidthRate 1 MB\nBandwidthBurst 2 MB",
    "BandwidthRate 1.5 MB",
    "BandwidthRate 1MBytes",
    "BandwidthRate 8 MBits",
    "BandwidthRate 100 parrots",
    "BandwidthRate -5",
    "BandwidthRate 2 GB\nBandwidthBurst 2 GB",
    "BandwidthRate 3 GB\nBandwidthBurst 3 GB",
    "BandwidthRate 2 MB\nBandwidthBurst 1 MB",
    "BandwidthRate",
    "HeartbeatPeriod 2 hours",
    "HeartbeatPeriod 5 minutes",
    "HeartbeatPeriod 0",
    "HeartbeatPeriod 1 fortnight",
    "HeartbeatPeriod 99999999999",
    "LogTimeGranularity 250 msec",
    "LogTimeGranularity 3 msec",
    "LogTimeGranularity 0",
    "CircuitPriorityHalflife 2.5",
    "CircuitPriorityHalflife half",
    "AccountingMax 5 GB\nAccountingRule sum\nAccountingStart month 3 15:00",
    "AccountingMax 5 GB\nAccountingRule SUM",
    "AccountingRule both",
    "AccountingStart week 7 0:00",
    "AccountingStart week 8 0:00",
    "AccountingStart month 29 0:00",
    "AccountingStart day 24:00",
    "AccountingStart day 12:30 x",
    "AccountingStart day 1230",
    "AccountingStart fortnight 1 0:00",
    "AccountingStart day",
    "AvoidDiskWrites yes",
    "AvoidDiskWrites 2",
    "ExitRelay AUTO",
    "ExitRelay maybe",
    "ExitRelay",
    "Schedulers KIST , Vanilla,",
    "Schedulers ,",
    "Schedulers FIFO",
    "KISTSchedRunInterval 100 msec",
    "KISTSchedRunInterval 101 msec",
    "MaxClientCircuitsPending 0",
    "MaxClientCircuitsPending 1024",
    "MaxClientCircuitsPending 1025",
    "KISTSockBufSizeFactor -1",
    // Lists.
    "Log notice stdout\nLog info stderr",
    "Log",
    "/Log\nLog notice stdout",
    "+Log notice stdout",
    "Log notice file HERE/log",
    "Log [net,~dir]info notice stdout",
    "Log [nest]info stdout",
    "Log debug-warn stderr",
    "Log loud",
    "Log notice nowhere",
    "Log notice stdout twice",
    "Log notice info stdout",
    "LogMessageDomains 1",
    "Address 192.0.2.1\nAddress relay.example.com",
    // Includes.
    "%include HERE/included",
    "%include HERE/included/10-a\nORPort 9001",
    "%include HERE/included/*",
    "%include HERE/included/none*",
    "%include HERE/included/?0-*",
    "%include HERE/none",
    "%include HERE/loop",
    "%include included/10-a",
    "Nickname c\n%include HERE/included\n",
    // Ports.
    "ORPort 0",
    "ORPort auto",
    "ORPort 9001 IPv4Only",
    "ORPort 9001 IPv6Only",
    "ORPort 9001 IPv4Only\nORPort 9002 IPv6Only",
    "ORPort 9001 IPv4Only IPv6Only",
    "ORPort 9001 NoListen\nORPort 9002 NoAdvertise",
    "ORPort 9001 NoListen",
    "ORPort 9001 NoAdvertise",
    "ORPort 9001 NoListen NoAdvertise",
    "ORPort 9001 Nonsense",
    "ORPort 127.0.0.1:9001",
    "ORPort 127.0.0.1:auto",
    "ORPort 127.0.0.1",
    "ORPort 127.0.0.1:0",
    "ORPort 127.0.0.1:65536",
    "ORPort 65536",
    "ORPort -1",
    "ORPort [::1]:9001",
    "ORPort [::1]:9001\nORPort 127.0.0.1:9001",
    "ORPort ::1:9001",
    "ORPort [::1]:9001 IPv4Only",
    "ORPort 127.0.0.1:9001 IPv6Only",
    "ORPort 0\nORPort 9001",
    "ORPort 9001\nORPort [2001:db8::1]:9001",
    "ORPort 9001\n__ORPort 9002",
    "ORPort unix:/tmp/x",
    "ClientOnly 1\nORPort 9001",
    "ORPort 9001\nDirPort 9030",
    "ORPort 9001\nDirPort x",
    "SocksPort 0",
    "SocksPort auto",
    "SocksPort x",
    "ControlPort 127.0.0.1:9051\nCookieAuthentication 1",
    // A relay's rules.
    "ORPort 9001\nNickname abcdefghijklmnopqrs",
    "ORPort 9001\nNickname abcdefghijklmnopqrst",
    "ORPort 9001\nNickname a-b",
    "ORPort 9001\nBandwidthRate 10 KB",
    "ORPort 9001\nBandwidthRate 75 KB",
    "ORPort 9001\nMaxAdvertisedBandwidth 30 KB",
    "ORPort 9001\nRelayBandwidthRate 10 KB",
    "ORPort 9001\nRelayBandwidthRate 2 MB",
    "ORPort 9001\nRelayBandwidthBurst 2 MB",
    "ORPort 9001\nRelayBandwidthRate 2 MB\nRelayBandwidthBurst 1 MB",
    "ORPort 9001\nRelayBandwidthRate 1.5 GB\nRelayBandwidthBurst 2 GB",
    "ORPort 9001\nMaxMemInQueues 10 MB",
    "ORPort 9001\nConnectionPadding 1",
    "ConnectionPadding 1",
    "ORPort 9001\nReducedConnectionPadding 1",
    "ORPort 9001\nCircuitPadding 0",
    "ORPort 9001\nReducedCircuitPadding 1",
    "ORPort 9001\nReachableAddresses *:80",
    "ReachableAddresses *:80",
    "ReachableAddresses nonsense",
    "FascistFirewall 1",
    "FascistFirewall 1\nFirewallPorts 80,443",
    "FascistFirewall 1\nReachableORAddresses *:9001",
    "FascistFirewall 1\nReachableAddresses *:80",
    "FirewallPorts x",
    "ClientPreferIPv6ORPort 1",
    "UseBridges 1",
    "Socks4Proxy 192.0.2.1",
    "Socks4Proxy 192.0.2.1\nSocks5Proxy 192.0.2.1",
    "Socks5Proxy [2001:db8::1]:9150\nSocks5ProxyUsername me\nSocks5ProxyPassword x y",
    "Socks5ProxyUsername me",
    "Socks5ProxyPassword me",
    "HTTPSProxy 192.0.2.1:99999",
    "HTTPSProxy [::1",
    "HTTPSProxy 192.0.2.1:3128\nHTTPSProxyAuthenticator me:x",
    "ORPort 9001\nHTTPSProxy 192.0.2.1:3128",
    "ORPort 9001\nClientUseIPv4 0",
    "ORPort 9001\nUseBridges 1",
    "ORPort 9001\nUseBridges 1\nBridge 192.0.2.1",
    "UseBridges 1\nBridge 192.0.2.1",
    "UseBridges 1\nBridge 192.0.2.1\nUseEntryGuards 0",
    "UseBridges 1\nBridge 192.0.2.1\nEntryNodes 0123456789ABCDEF0123456789ABCDEF01234567",
    "Bridge [2001:db8::1]:443 0123 4567 89AB CDEF 0123 4567 89AB CDEF 0123 4567",
    "Bridge obfs4 192.0.2.1:443 0123456789ABCDEF0123456789ABCDEF01234567 cert=x iat-mode=0",
    "Bridge obfs4 192.0.2.1:443 k=v",
    "Bridge obfs4 192.0.2.1:443 k=v v",
    "Bridge obfs4 192.0.2.1:443 =v",
    "Bridge obfs4",
    "Bridge bridge.example:443",
    "Bridge 192.0.2.1:0",
    "Bridge 192.0.2.1:443 0123",
    "Bridge 192.0.2.1:443 k=v",
    "Bridge 192.0.2.1:443 x123456789ABCDEF0123456789ABCDEF01234567",
    "ClientTransportPlugin obfs4",
    "ClientTransportPlugin obfs4 exec",
    "ClientTransportPlugin ob-fs exec /x",
    "ClientTransportPlugin obfs4 proxy 192.0.2.1:1",
    "ClientTransportPlugin obfs4 socks5 192.0.2.1:1",
    "ClientTransportPlugin obfs4 socks4 192.0.2.1",
    "ClientTransportPlugin obfs4,meek socks5 192.0.2.1:1",
    "ClientTransportPlugin obfs4 socks5 192.0.2.1:1\nSocks5Proxy 192.0.2.2:1",
    "OutboundBindAddressPT 192.0.2.1",
    "OutboundBindAddressPT x",
    "AssumeReachable 1\nORPort 9001",
    "AssumeReachable 1\nAssumeReachableIPv6 0",
    "AssumeReachable 1\nAssumeReachableIPv6 1",
    "PublishServerDescriptor 0",
    "PublishServerDescriptor v3",
    "PublishServerDescriptor v1,v3",
    "PublishServerDescriptor v4",
    "MyFamily $0123456789012345678901234567890123456789,abc , 0123456789012345678901234567890123456789~x",
    "MyFamily $012345678901234567890123456789012345678",
    "MyFamily a-b",
    "OutboundBindAddress 192.0.2.1\nOutboundBindAddress [2001:db8::1]",
    "OutboundBindAddress 192.0.2.1\nOutboundBindAddressOR 192.0.2.2",
    "OutboundBindAddress name",
    "SafeLogging relay",
    "SafeLogging RELAY",
    "SafeLogging 2",
    "KeepalivePeriod 0",
    "TokenBucketRefillInterval 0",
    "ConstrainedSockets 1\nConstrainedSockSize 1000",
    "ORPort 9001\nDoSConnectionEnabled 1\nDoSConnectionMaxConcurrentCount 50\nDoSCircuitCreationDefenseType 2",
    "DoSConnectionMaxConcurrentCount -1",
    "SigningKeyLifetime 2 days",
    "SigningKeyLifetime 1 day",
    "OfflineMasterKey 1",
    "DataDirectory relative",
    "RunAsDaemon 1\nPidFile relative",
    "FetchDirInfoExtraEarly 1",
    "FetchDirInfoEarly 1\nFetchDirInfoExtraEarly 1",
    "TransPort 9040\nTransProxyType TPROXY",
    "TransPort 9040\nTransProxyType ipfw",
    "TransPort 9040\nTransProxyType pf-divert",
    "TransPort 9040\nTransProxyType x",
    "TransProxyType TPROXY",
    "NATDPort 8000 IsolateDestAddr",
    "NATDPort x",
    "TCPProxy haproxy 127.0.0.1:8080",
    "TCPProxy haproxy",
    "TCPProxy socks5 127.0.0.1:8080",
    "TCPProxy haproxy 127.0.0.1:8080\nSocks5Proxy 127.0.0.1",
    "HTTPProxy 127.0.0.1",
    "HTTPProxy 127.0.0.1:70000",
    "DormantClientTimeout 5 minutes",
    "DormantClientTimeout 10 minutes\nDormantOnFirstStartup 1",
    "AutomapHostsOnResolve 1\nAutomapHostsSuffixes .test,.",
    // Onion services.
    "HiddenServicePort 80",
    "HiddenServiceVersion 3\nHiddenServiceDir HERE/h\nHiddenServicePort 80",
    "HiddenServiceDir HERE/h",
    "HiddenServiceDir HERE/h\nHiddenServicePort 80",
    "HiddenServiceDir HERE/h\nHiddenServicePort 80\nHiddenServiceDir HERE/i\nHiddenServicePort 80 8080",
    "HiddenServiceDir HERE/h\nHiddenServicePort 80\nHiddenServiceDir HERE/h\nHiddenServicePort 80",
    "HiddenServiceDir HERE/h\nHiddenServiceDir HERE/i\nHiddenServicePort 80",
    "HiddenServiceDir HERE/h\nHiddenServicePort 80\nHiddenServiceVersion 3",
    "HiddenServiceDir HERE/h\nHiddenServicePort 80\nHiddenServiceVersion 2",
    "HiddenServiceDir HERE/h\nHiddenServicePort 80\nHiddenServiceVersion 4\nHiddenServiceVersion 3",
    "HiddenServiceDir HERE/h\nHiddenServicePort 80\nHiddenServiceVersion x",
    "HiddenServiceDir HERE/h\nHiddenServicePort 80\nHiddenServiceMaxStreams 65535",
    "HiddenServiceDir HERE/h\nHiddenServicePort 80\nHiddenServiceMaxStreams 65536",
    "HiddenServiceDir HERE/h\nHiddenServicePort 80\nHiddenServiceMaxStreams -1",
    "HiddenServiceDir HERE/h\nHiddenServicePort 80\nHiddenServiceMaxStreamsCloseCircuit 1",
    "HiddenServiceDir HERE/h\nHiddenServicePort 80\nHiddenServiceMaxStreamsCloseCircuit yes",
    "HiddenServiceDir HERE/h\nHiddenServicePort 80\nHiddenServiceNumIntroductionPoints 3",
    "HiddenServiceDir HERE/h\nHiddenServicePort 80\nHiddenServiceNumIntroductionPoints 21",
    "HiddenServiceDir HERE/h\nHiddenServicePort 80\nHiddenServiceExportCircuitID HAProxy",
    "HiddenServiceDir HERE/h\nHiddenServicePort 80\nHiddenServiceExportCircuitID foo",
    "HiddenServiceDir HERE/h\nHiddenServicePort 80\nHiddenServiceEnableIntroDoSRatePerSec 100\nHiddenServiceEnableIntroDoSBurstPerSec 10",
    "HiddenServiceDir HERE/h\nHiddenServicePort 80\nHiddenServiceEnableIntroDoSDefense 1\nHiddenServiceEnableIntroDoSRatePerSec 201",
    "HiddenServiceDir HERE/h\nHiddenServicePort 80\nHiddenServicePoWQueueBurst 10",
    "HiddenServiceDir HERE/h\nHiddenServicePort 80\nHiddenServicePoWQueueRate -1",
    "HiddenServiceDir HERE/h\nHiddenServicePort +80",
    "HiddenServiceDir HERE/h\nHiddenServicePort 0",
    "HiddenServiceDir HERE/h\nHiddenServicePort 80,443",
    "HiddenServiceDir HERE/h\nHiddenServicePort 80 8080",
    "HiddenServiceDir HERE/h\nHiddenServicePort 80 70000",
    "HiddenServiceDir HERE/h\nHiddenServicePort 80 foo bar",
    "HiddenServiceDir HERE/h\nHiddenServicePort 80 127.0.0.1",
    "HiddenServiceDir HERE/h\nHiddenServicePort 80 127.0.0.1:8080",
    "HiddenServiceDir HERE/h\nHiddenServicePort 80 127.0.0.1:0",
    "HiddenServiceDir HERE/h\nHiddenServicePort 80 [::1]:8080",
    "HiddenServiceDir HERE/h\nHiddenServicePort 80 localhost:8080",
    "HiddenServiceDir HERE/h\nHiddenServicePort 80 localhost",
    "HiddenServiceDir HERE/h\nHiddenServicePort 80 :80",
    "HiddenServiceDir HERE/h\nHiddenServicePort 80 *:80",
    "HiddenServiceDir HERE/h\nHiddenServicePort 80 unix:/s",
    "HiddenServiceDir HERE/h\nHiddenServicePort 80 unix:\"/a b\"",
    "HiddenServiceDir HERE/h\nHiddenServicePort 80 unix:\"/a",
    "HiddenServiceDir HERE/h\nHiddenServicePort 80 unix:/a b",
    "HiddenServiceNonAnonymousMode 1",
    "HiddenServiceNonAnonymousMode 1\nHiddenServiceSingleHopMode 1",
    "HiddenServiceNonAnonymousMode 1\nHiddenServiceSingleHopMode 1\nSocksPort 0",
    "HiddenServiceNonAnonymousMode 1\nHiddenServiceSingleHopMode 1\nORPort 9001",
    "HiddenServiceNonAnonymousMode 1\nHiddenServiceSingleHopMode 1\nSocksPort 0\nDNSPort 5353",
    "ClientOnionAuthDir HERE/none",
    "ClientOnionAuthDir HERE/loop",
    "ORPort 9001\nClientOnionAuthDir HERE/none",
    // Exit policies.
    "ORPort 9001\nExitRelay 1",
    "ORPort 9001\nExitPolicy accept *:80,reject *:*",
    "ORPort 9001\nExitPolicy accept6 [2001:db8::]/32:80\nIPv6Exit 1",
    "ORPort 9001\nExitPolicy reject private:*,reject 192.0.2.0/24:1-1024",
    "ORPort 9001\nExitPolicy accept",
    "ORPort 9001\nExitPolicy accept *:0",
    "ORPort 9001\nExitPolicy accept *:90-80",
    "ORPort 9001\nExitPolicy accept 192.0.2.1/33:80",
    "ORPort 9001\nExitPolicy accept 192.0.2.0/255.255.255.0:80",
    "ORPort 9001\nExitPolicy accept 192.0.2.0/255.0.255.0:80",
    "ORPort 9001\nExitPolicy permit *:80",
    "ORPort 9001\nExitPolicy accept name:80",
    "ORPort 9001\nExitPolicy accept */8:80",
    "ORPort 9001\nExitRelay 0\nExitPolicy nonsense",
    "ORPort 9001\nReducedExitPolicy 1\nExitPolicyRejectPrivate 0",
    "DirPolicy accept *:*",
    "DirPolicy nonsense",
    // Directory authorities and private networks.
    "DirAuthority nonsense",
    "DirAuthority a 127.0.0.1:7000 12",
    "DirAuthority a orport=x what 127.0.0.1:7000 7EA6 EAD6 FD83 083C 538F 4403 8BBF A077 587D D755",
    "DirAuthority a ipv6=127.0.0.1:1 127.0.0.1:7000 7EA6EAD6FD83083C538F44038BBFA077587DD755",
    "DirAuthority a 127.0.0.1 7EA6EAD6FD83083C538F44038BBFA077587DD755",
    "DirAuthority a upload=http://127.0.0.1:7001/ vote=http://127.0.0.1:7002 127.0.0.1:7000 7EA6EAD6FD83083C538F44038BBFA077587DD755",
    "DirAuthority a upload=https://127.0.0.1/ 127.0.0.1:7000 7EA6EAD6FD83083C538F44038BBFA077587DD755",
    "TestingTorNetwork 1",
    "TestingLinkCertLifetime 4 days",
    "TestingDirConnectionMaxStall 10 seconds",
    "TestingEnableConnBwEvent 1",
    "ClientDNSRejectInternalAddresses 0",
];

/// Torrcs of a private network, behind a `DirAuthority` line.
const TESTING: &[&str] = &[
    "",
    "TestingTorNetwork 1",
    "TestingTorNetwork 1\nORPort 5001\nAddress 127.0.0.1\nAssumeReachable 1\nExtendAllowPrivateAddresses 0",
    "TestingTorNetwork 1\nTestingDirConnectionMaxStall 10 seconds\nHeartbeatPeriod 1 minute",
    "TestingTorNetwork 1\nTestingDirConnectionMaxStall 1 second",
    "TestingTorNetwork 1\nTestingSigningKeySlop 20 days",
    "ClientDNSRejectInternalAddresses 0",
    "AlternateDirAuthority b 127.0.0.1:7000 7EA6EAD6FD83083C538F44038BBFA077587DD755",
    "DirAuthority",
];

/// Command lines behind a torrc with a relay in it.
const COMMAND_LINES: &[&[&str]] = &[
    &["--Nickname", "b"],
    &["-nickname", "b"],
    &["nickname", "b"],
    &["--+Log", "warn stderr"],
    &["--Log", "warn stderr"],
    &["--/Log"],
    &["--ORPort", "0"],
    &["--ORPort", "x"],
    &["--Nicknme", "b"],
    &["--Nickname"],
    &["-l", "info stdout"],
    &["--HashedControlPassword", ""],
];

fn assert_none(differences: &[String]) {
    assert!(
        differences.is_empty(),
        "{} differ:\n{}",
        differences.len(),
        differences.join("\n")
    );
}

#[test]
fn torrcs_mean_the_same() {
    let bench = Bench::new();
    let mut differences = Vec::new();
    for text in TORRCS {
        bench.compare(text, &["short", "full"], &[], &mut differences);
    }
    assert_none(&differences);
}

#[test]
fn torrcs_of_private_networks_mean_the_same() {
    let bench = Bench::new();
    let mut differences = Vec::new();
    for text in TESTING {
        // tor 0.4.9 dies of `--dump-config full` where TestingTorNetwork is set.
        bench.compare(
            &format!("{AUTHORITY}{text}"),
            &["short"],
            &[],
            &mut differences,
        );
    }
    assert_none(&differences);
}

#[test]
fn command_lines_mean_the_same() {
    let bench = Bench::new();
    let mut differences = Vec::new();
    for words in COMMAND_LINES {
        let text = "ORPort 9001\nNickname a\nLog notice stdout\nLog info stderr\n";
        bench.compare(text, &["short"], words, &mut differences);
    }
    assert_none(&differences);
}

#[test]
fn both_know_the_same_options() {
    let list = |program: &str| {
        let output = Command::new(program)
            .arg("--list-torrc-options")
            .output()
            .expect("tor is needed");
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let weft = list(env!("CARGO_BIN_EXE_weft"));
    let tor = list("tor");
    let lacking: Vec<_> = tor.iter().filter(|name| !weft.contains(name)).collect();
    let is_newer = |name: &&String| NEWER.contains(&name.as_str());
    let own = weft.iter().filter(|name| !tor.contains(name));
    let own: Vec<_> = own.filter(|name| !is_newer(name)).collect();
    assert_eq!(lacking, Vec::<&String>::new());
    let expected: Vec<_> = ["___UsingTestNetworkDefaults"]
        .into_iter()
        .chain(own_options())
        .collect();
    assert_eq!(own, expected);
}
