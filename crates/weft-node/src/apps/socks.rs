//! SOCKS 4, 4a and 5 with Tor's extensions: RESOLVE, RESOLVE_PTR, user name and password for
//! isolation, extended errors (RFC 1928, RFC 1929, socks-extensions; C tor's proto_socks.c).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tracing::Level;
use weft_cell::stream_msg::{AnswerKind, Resolved};
use weft_core::origin::{AppCredentials, AppOpening, AppProtocol, AppRefusal};

use super::{Failure, Handshake, Notice, Step, Voice, destination, http};
use crate::logging::safe_client;
use crate::torrc::client_ports::StreamFlags;

/// Bytes of a SOCKS 4 request, whose strings end where they like (MAX_SOCKS_MESSAGE_LEN).
const MAX_SOCKS4: usize = 512;
/// Bytes of a host name.
const MAX_HOST: usize = 255;

const NO_AUTH: u8 = 0;
const USER_PASSWORD: u8 = 2;

/// User names that begin so ask for something of Arti's (proposal 351).
const EXTENDED: &[u8] = b"<torS0X>";
/// The one such user name that only isolates.
const EXTENDED_ISOLATION: &[u8] = b"<torS0X>0";

/// Where a conversation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing was said.
    Start,
    /// SOCKS 5: a user name must come.
    Credentials,
    /// SOCKS 5: the request must come, or, where nobody asked for it, a user name once.
    Request { may_authenticate: bool },
}

/// What a request wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    Connect,
    Resolve,
    ResolvePtr,
}

impl Command {
    fn new(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Connect),
            0xf0 => Some(Self::Resolve),
            0xf1 => Some(Self::ResolvePtr),
            _ => None,
        }
    }
}

/// Reads from the front of what has come; `None`: more must come.
struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn port(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// As many bytes as the byte before them says.
    fn counted(&mut self) -> Option<&'a [u8]> {
        let len = self.byte()?;
        self.take(usize::from(len))
    }

    fn until_nul(&mut self) -> Option<&'a [u8]> {
        let len = self.rest.iter().position(|byte| *byte == 0)?;
        let text = self.take(len)?;
        self.take(1)?;
        Some(text)
    }

    /// How many of `all` have been read.
    fn used(&self, all: &[u8]) -> usize {
        all.len() - self.rest.len()
    }
}

/// A SOCKS 4 request as it was sent.
struct Request4<'a> {
    command: u8,
    port: u16,
    address: Ipv4Addr,
    user: &'a [u8],
    /// SOCKS 4a: a name instead of the address.
    host: Option<&'a [u8]>,
}

fn read_request4<'a>(input: &mut Input<'a>) -> Option<Request4<'a>> {
    input.take(1)?;
    let command = input.byte()?;
    let port = input.port()?;
    let address = Ipv4Addr::from(input.array::<4>()?);
    let user = input.until_nul()?;
    let host = match address.octets() {
        [0, 0, 0, last] if last != 0 => Some(input.until_nul()?),
        _ => None,
    };
    Some(Request4 {
        command,
        port,
        address,
        user,
        host,
    })
}

/// Where a SOCKS 5 request wants to go.
enum Target5<'a> {
    Address(IpAddr),
    Host(&'a [u8]),
    /// An address of a type that has no length.
    Unknown,
}

fn read_request5<'a>(input: &mut Input<'a>) -> Option<(u8, Target5<'a>, u16)> {
    let [_version, command, _reserved, kind] = input.array()?;
    let target = match kind {
        1 => Target5::Address(IpAddr::from(input.array::<4>()?)),
        3 => Target5::Host(input.counted()?),
        4 => Target5::Address(IpAddr::from(input.array::<16>()?)),
        _ => return Some((command, Target5::Unknown, 0)),
    };
    Some((command, target, input.port()?))
}

impl Handshake {
    /// A SOCKSPort's bytes.
    pub(super) fn socks(&mut self, bytes: &[u8]) -> Result<Step, Failure> {
        let Some((&first, [_, ..])) = bytes.split_first() else {
            return Ok(Step::NeedMore);
        };
        match (self.state, first) {
            (State::Start, 4) => self.request4(bytes),
            (State::Start, 5) => self.methods(bytes),
            (State::Start, _) => Err(self.not_socks(first, bytes)),
            (State::Credentials, 1)
            | (
                State::Request {
                    may_authenticate: true,
                },
                1,
            ) => self.user_password(bytes),
            (State::Request { .. }, 5) => self.request5(bytes),
            _ => Err(self.misspoken("socks5: a message of another version came")),
        }
    }

    /// A failure with the answer that this version of SOCKS has for nonsense.
    fn misspoken(&self, why: impl Into<String>) -> Failure {
        self.refusal(AppRefusal::General, why)
    }

    fn refusal(&self, answer: AppRefusal, why: impl Into<String>) -> Failure {
        self.fail(self.refused(answer), Notice::new(Level::WARN, why))
    }

    /// Not SOCKS at all; a browser is told what is wrong.
    fn not_socks(&self, first: u8, bytes: &[u8]) -> Failure {
        let page = match first {
            b'G' | b'H' | b'P' | b'C' => http::not_a_proxy(),
            _ => Vec::new(),
        };
        let text = format!(
            "Socks version {first} not recognized. (This port is not an HTTP proxy; did you want \
             to use HTTPTunnelPort?)"
        );
        let shown: String = bytes
            .iter()
            .take(8)
            .flat_map(|byte| byte.escape_ascii().map(char::from))
            .collect();
        let event = format!("SOCKS_UNKNOWN_PROTOCOL DATA=\"{shown}\"");
        self.fail(page, Notice::new(Level::WARN, text).with_event(event))
    }

    fn request4(&mut self, bytes: &[u8]) -> Result<Step, Failure> {
        self.voice = Voice::Socks4;
        let message = bytes.get(..MAX_SOCKS4).unwrap_or(bytes);
        let mut input = Input { rest: message };
        let Some(request) = read_request4(&mut input) else {
            return if bytes.len() >= MAX_SOCKS4 {
                Err(self.misspoken("socks4: the request is too long"))
            } else {
                Ok(Step::NeedMore)
            };
        };
        let used = input.used(message);
        let command = match Command::new(request.command) {
            Some(command @ (Command::Connect | Command::Resolve)) => command,
            _ => {
                let text = format!(
                    "socks4: command {} not recognized. Rejecting",
                    request.command
                );
                return Err(self.refusal(AppRefusal::CommandNotSupported, text));
            }
        };
        if (request.port == 0 && command == Command::Connect) || request.address.is_unspecified() {
            return Err(self.misspoken("socks4: the port or the address is zero. Rejecting"));
        }
        if !request.user.is_empty() {
            self.credentials = Some(AppCredentials {
                user: request.user.to_vec(),
                password: Vec::new(),
            });
        }
        let host = match request.host {
            None => {
                self.leaks(AppProtocol::Socks4, request.address.into(), request.port)?;
                request.address.to_string()
            }
            Some(name) => self.host(4, name, request.port)?,
        };
        let opening = match command {
            Command::Resolve => AppOpening::Resolve { name: host },
            _ => AppOpening::Connect {
                host,
                port: request.port,
            },
        };
        self.request(used, opening, AppProtocol::Socks4)
    }

    fn methods(&mut self, bytes: &[u8]) -> Result<Step, Failure> {
        let mut input = Input { rest: bytes };
        input.take(1);
        let Some(methods) = input.counted() else {
            return Ok(Step::NeedMore);
        };
        let has = |method| methods.contains(&method);
        let wants_none = has(NO_AUTH) && self.rules.flags.prefer_no_auth;
        let method = if has(USER_PASSWORD) && !wants_none {
            self.state = State::Credentials;
            USER_PASSWORD
        } else if has(NO_AUTH) {
            self.state = State::Request {
                may_authenticate: true,
            };
            NO_AUTH
        } else {
            let text = "socks5: offered methods don't include 'no auth' or username/password. \
                        Rejecting";
            return Err(self.fail(vec![5, 0xff], Notice::new(Level::WARN, text)));
        };
        self.voice = Voice::Socks5;
        Ok(Step::Reply {
            used: input.used(bytes),
            reply: vec![5, method],
        })
    }

    fn user_password(&mut self, bytes: &[u8]) -> Result<Step, Failure> {
        let mut input = Input { rest: bytes };
        input.take(1);
        let (Some(user), Some(password)) = (input.counted(), input.counted()) else {
            return Ok(Step::NeedMore);
        };
        if user.starts_with(EXTENDED) && user != EXTENDED_ISOLATION {
            return Err(self.misspoken(
                "socks5: the user name asks for an extension of SOCKS that is not supported",
            ));
        }
        self.credentials = Some(AppCredentials {
            user: user.to_vec(),
            password: password.to_vec(),
        });
        self.state = State::Request {
            may_authenticate: false,
        };
        Ok(Step::Reply {
            used: input.used(bytes),
            reply: vec![1, 0],
        })
    }

    fn request5(&mut self, bytes: &[u8]) -> Result<Step, Failure> {
        let mut input = Input { rest: bytes };
        let Some((command, target, port)) = read_request5(&mut input) else {
            return Ok(Step::NeedMore);
        };
        let used = input.used(bytes);
        let Some(command) = Command::new(command) else {
            let text = format!("socks5: command {command} is not supported. Rejecting");
            return Err(self.refusal(AppRefusal::CommandNotSupported, text));
        };
        let (host, literal) = match target {
            Target5::Address(address) => (address.to_string(), Some(address)),
            Target5::Host(name) => {
                let host = self.host(5, name, port)?;
                let literal = destination::literal(&host);
                if command != Command::ResolvePtr {
                    // A name that is an address was meant as a name.
                    (host, None)
                } else {
                    (host, literal)
                }
            }
            Target5::Unknown => {
                let text = "socks5: an address of an unknown type. Rejecting";
                return Err(self.refusal(AppRefusal::AddressTypeNotSupported, text));
            }
        };
        let opening = match (command, literal) {
            (Command::ResolvePtr, Some(addr)) => AppOpening::ResolvePtr { addr },
            (Command::ResolvePtr, None) => {
                let text =
                    "socks5 received RESOLVE_PTR command with a malformed address. Rejecting";
                return Err(self.refusal(AppRefusal::AddressTypeNotSupported, text));
            }
            (Command::Resolve, _) => AppOpening::Resolve { name: host },
            (Command::Connect, _) if port == 0 => {
                return Err(self.misspoken("socks5: the application asks for port 0. Rejecting"));
            }
            (Command::Connect, _) => AppOpening::Connect { host, port },
        };
        match literal {
            Some(address) if command != Command::ResolvePtr => {
                self.leaks(AppProtocol::Socks5, address, port)?;
            }
            _ => self.praise(5, port),
        }
        self.request(used, opening, AppProtocol::Socks5)
    }

    /// A host name that can be one, in lower case and without brackets.
    fn host(&mut self, version: u8, name: &[u8], port: u16) -> Result<String, Failure> {
        let text = std::str::from_utf8(name).ok();
        let host = text
            .filter(|host| host.len() <= MAX_HOST)
            .and_then(destination::clean_host);
        match host {
            Some(host) => {
                if version == 4 {
                    self.praise(4, port);
                }
                Ok(host)
            }
            None => {
                let text = format!(
                    "Your application (using socks{version} to port {port}) gave a malformed \
                     hostname: {}. Rejecting the connection",
                    safe_client(name.escape_ascii())
                );
                Err(self.misspoken(text))
            }
        }
    }

    /// `TestSocks`: the application lets us look names up.
    fn praise(&mut self, version: u8, port: u16) {
        if self.rules.test_socks {
            let text = format!(
                "Your application (using socks{version} to port {port}) left the DNS resolution \
                 to Tor. This is good"
            );
            self.notices.push(Notice::new(Level::INFO, text));
        }
    }

    /// The application names an address, which it must have looked up somewhere
    /// (`log_unsafe_socks_warning`).
    fn leaks(&mut self, protocol: AppProtocol, address: IpAddr, port: u16) -> Result<(), Failure> {
        let version = if protocol == AppProtocol::Socks4 {
            4
        } else {
            5
        };
        let end = if self.rules.safe_socks {
            ". Rejecting"
        } else {
            ""
        };
        let text = format!(
            "Your application (using socks{version} to port {port}) is giving Tor only an IP \
             address. Applications that do DNS resolves themselves may leak information. Consider \
             using socks4a or socks5 with host names instead{end}"
        );
        let event = format!("DANGEROUS_SOCKS PROTOCOL=SOCKS{version} ADDRESS={address}:{port}");
        let notice = Notice::new(Level::WARN, text).with_event(event);
        if self.rules.safe_socks {
            return Err(self.fail(self.refused(AppRefusal::NotAllowed), notice));
        }
        self.notices.push(notice);
        Ok(())
    }
}

/// SOCKS 5's code for a refusal (RFC 1928; socks-extensions for those from 0xf0; without
/// `ExtendedErrors` what C tor's END reasons come to).
pub(super) fn status(why: AppRefusal, extended: bool) -> u8 {
    match why {
        AppRefusal::General => 1,
        AppRefusal::NotAllowed => 2,
        AppRefusal::NetUnreachable => 3,
        AppRefusal::HostUnreachable => 4,
        AppRefusal::ConnectionRefused => 5,
        AppRefusal::TtlExpired => 6,
        AppRefusal::CommandNotSupported => 7,
        AppRefusal::AddressTypeNotSupported => 8,
        AppRefusal::OnionService(which) if extended => 0xf0 | (which & 0x0f),
        AppRefusal::OnionService(destination::BAD_ONION) => 1,
        AppRefusal::OnionService(_) => 4,
    }
}

/// An answer of SOCKS 4.
pub(super) fn reply4(granted: bool, address: Option<Ipv4Addr>) -> Vec<u8> {
    let mut reply = vec![0, if granted { 90 } else { 91 }, 0, 0];
    reply.extend(address.unwrap_or(Ipv4Addr::UNSPECIFIED).octets());
    reply
}

/// An answer of SOCKS 5 that names no address.
pub(super) fn reply5_status(status: u8, ipv6: bool) -> Vec<u8> {
    let address = match ipv6 {
        true => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        false => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    };
    reply5(status, address)
}

fn reply5(status: u8, address: IpAddr) -> Vec<u8> {
    let mut reply = vec![5, status, 0];
    match address {
        IpAddr::V4(address) => {
            reply.push(1);
            reply.extend(address.octets());
        }
        IpAddr::V6(address) => {
            reply.push(4);
            reply.extend(address.octets());
        }
    }
    reply.extend([0, 0]);
    reply
}

/// The answer to SOCKS 4's RESOLVE: the first IPv4 address.
pub(super) fn resolved4(resolved: &Resolved) -> Vec<u8> {
    let address = resolved
        .answers
        .iter()
        .find_map(|answer| match answer.kind {
            AnswerKind::Ipv4(address) => Some(address),
            _ => None,
        });
    reply4(address.is_some(), address)
}

/// The answer to SOCKS 5's RESOLVE_PTR: the first name.
pub(super) fn resolved_name5(resolved: &Resolved) -> Vec<u8> {
    let name = resolved
        .answers
        .iter()
        .find_map(|answer| match &answer.kind {
            AnswerKind::Hostname(name) => Some((u8::try_from(name.len()).ok()?, name)),
            _ => None,
        });
    match name {
        Some((len, name)) => {
            let mut reply = vec![5, 0, 0, 3, len];
            reply.extend(name);
            reply.extend([0, 0]);
            reply
        }
        None => reply5_status(4, false),
    }
}

/// The answer to SOCKS 5's RESOLVE: the first address, of the family that the port prefers if
/// there is one of it (`connection_ap_handshake_socks_got_resolved_cell`).
pub(super) fn resolved5(resolved: &Resolved, flags: &StreamFlags) -> Vec<u8> {
    let answers = || resolved.answers.iter().map(|answer| &answer.kind);
    let first = |v4: bool| {
        answers().find_map(|kind| match kind {
            AnswerKind::Ipv4(address) if v4 && flags.ipv4_traffic => Some(IpAddr::V4(*address)),
            AnswerKind::Ipv6(address) if !v4 && flags.ipv6_traffic => Some(IpAddr::V6(*address)),
            _ => None,
        })
    };
    let v4_first = !flags.prefer_ipv6;
    match first(v4_first).or_else(|| first(!v4_first)) {
        Some(address) => reply5(0, address),
        None => reply5_status(4, false),
    }
}
