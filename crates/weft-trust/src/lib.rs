//! The answer that each row of a table of inputs has: who may send the input, where it may arrive, what
//! bounds it, who pays at the bound, and which tests show it.
//!
//! An input is anything that somebody else can make a node read: a cell, a message, a request, a command, a file. Each
//! table of inputs (`CellCommand`, `RelayCommand`, the torrc options, ...) has a [`Trust`] for each row, so that a
//! new input does not compile without one. `docs/senders.md` is made from them, by a test of weft-node. A running node
//! looks at one of them alone: who may send a command of the control port before it has authenticated.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::disallowed_types,
        clippy::disallowed_methods,
        clippy::disallowed_macros
    )
)]

use std::fmt;

/// Makes an enum of which each variant has words for the page.
macro_rules! words {
    ($(#[doc = $doc:literal])* $name:ident { $($variant:ident = $words:literal,)* }) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $(
                #[doc = $words]
                $variant,
            )*
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $($name::$variant => $words,)*
                })
            }
        }
    };
}

words! {
    /// Who may send an input. From anybody else it is refused.
    Sender {
        Nobody = "nobody",
        Anybody = "anybody who reaches it",
        Peer = "the link's peer",
        Initiator = "the peer that opened the link",
        Responder = "the peer that the link was opened to",
        Origin = "the circuit's origin",
        Hop = "a hop of a circuit that begins here",
        FarEnd = "the circuit's origin, or a hop of a circuit that begins here",
        Circuits = "a client by a circuit of two hops or more",
        Relays = "a relay of the private network, by its signature",
        Program = "the program of pluggable transports that Weft has started",
        CookieHolder = "a program that reads the cookie's file",
        UpstreamProxy = "the proxy that torrc names",
        Controller = "a controller that has authenticated",
        Owner = "the operator",
        OwnerOrController = "the operator; a controller that has authenticated",
        Node = "Weft",
        Files = "Weft; the operator, who may change or restore it",
        Directory = "a directory that was asked: an authority, a cache, a bridge",
        NameServer = "a name server of the exit's, for a name that a client chose",
        Directories = "directories; Weft writes what it has verified",
    }
}

words! {
    /// Where an input arrives: the role of the link or circuit, the port, or the folder.
    Role {
        Nowhere = "nowhere",
        Handshake = "a link before it is open",
        OpenLink = "an open link",
        ServerLink = "an open link on which this node is a server",
        AtRelay = "a circuit at a relay",
        AtOrigin = "a circuit at its origin",
        AtBoth = "a circuit at a relay or at its origin",
        Directory = "a BEGIN_DIR stream or DirPort of a directory cache",
        DirectoryOrAuthority = "a BEGIN_DIR stream or DirPort of a directory cache or a private authority",
        Authority = "a BEGIN_DIR stream or DirPort of a private authority",
        ExtOrPort = "the extended ORPort",
        Pipe = "the program's standard output",
        Fetch = "a connection or a circuit to a directory",
        Resolver = "the exit's thread for names",
        Upstream = "a connection to a relay by way of a proxy",
        SocksPort = "a SocksPort",
        HttpTunnelPort = "an HTTPTunnelPort",
        DnsPort = "a DNSPort",
        TransPort = "a TransPort",
        NatdPort = "a NATDPort",
        MetricsPort = "the MetricsPort",
        ControlPort = "a control port",
        Subscribed = "a control port, to controllers that have asked for it",
        Keys = "the KeyDirectory",
        Data = "the DataDirectory",
        Cache = "the CacheDirectory",
        Torrc = "torrc and the command line",
        TorrcOrSetconf = "torrc and the command line; SETCONF, RESETCONF and LOADCONF",
    }
}

words! {
    /// Who pays when the bound is reached.
    Payer {
        NoOne = "nobody: nothing is kept",
        Message = "the message: it is dropped",
        Link = "the link: it closes",
        Circuit = "the circuit: it closes",
        Stream = "the stream: it ends",
        Tunnel = "the set or tunnel: it closes with its legs",
        PreviousHop = "the previous hop that holds most",
        Address = "the address that holds most",
        Request = "the request: it is refused",
        Connection = "the connection: it closes",
        Directory = "the directory: another one is asked",
        Program = "the program: it is ended",
        File = "the file: it is not used, or moved aside",
        Start = "the node: it does not start, or keeps its old configuration",
        Asker = "the sender: it waits for the answer",
    }
}

/// The bound of an input, who pays at it, and the tests that show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The bound, in Markdown. `{path/to/file.rs:NAME}` stands for the value of a constant: a path from
    /// `crates/`, and the constant's name. The page has its value.
    pub bound: &'static str,
    /// Who pays.
    pub payer: Payer,
    /// Names of tests: functions, with the name of their file before it where two have one name; fuzz targets
    /// behind `fuzz/`.
    pub tests: &'static [&'static str],
}

impl Limit {
    /// A limit.
    #[must_use]
    pub const fn new(bound: &'static str, payer: Payer, tests: &'static [&'static str]) -> Self {
        Limit {
            bound,
            payer,
            tests,
        }
    }
}

/// The answer for one input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trust {
    /// Who may send it.
    pub sender: Sender,
    /// Where it may arrive.
    pub role: Role,
    /// Its bound.
    pub limit: Limit,
}

impl Trust {
    /// The answer of an input with this limit.
    #[must_use]
    pub const fn new(sender: Sender, role: Role, limit: Limit) -> Self {
        Trust {
            sender,
            role,
            limit,
        }
    }
}

/// Makes an enum of inputs from one table: the words of each, where it may arrive, who may send it, and its limit. It has `ALL`,
/// `name` and `trust`.
#[macro_export]
macro_rules! inputs {
    ($(#[doc = $doc:literal])* $of:ident { $($name:ident $words:literal: $role:ident, $sender:ident, $limit:ident;)* }) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $of {
            $(
                #[doc = $words]
                $name,
            )*
        }

        impl $of {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Its name, or what it is in words.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $words,)*
                }
            }

            /// Who may send or write it, and what bounds it.
            #[must_use]
            pub const fn trust(self) -> $crate::Trust {
                match self {
                    $(Self::$name => $crate::Trust::new($crate::Sender::$sender, $crate::Role::$role, $limit),)*
                }
            }
        }
    };
}
