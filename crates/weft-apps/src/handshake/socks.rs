//! SOCKS 4, 4a and 5 with Tor's extensions: RESOLVE, RESOLVE_PTR, user name and password for
//! isolation, extended errors (RFC 1928, RFC 1929, socks-extensions; C tor's proto_socks.c).

use std::net::{IpAddr, Ipv4Addr};

use weft_core::origin::{AppCredentials, AppOpening, AppProtocol, AppRefusal};
use weft_log::Line;

use super::Handshake;
use crate::notice::Notice;
use crate::phase::{ReplyProtocol, SocksPhase};
use crate::step::{Failure, Step};
use crate::{destination, http_reply};

/// Bytes of a SOCKS 4 request, whose strings end where they like (MAX_SOCKS_MESSAGE_LEN).
const MAX_SOCKS4: usize = 512;
/// Bytes of a host name.
const MAX_HOST: usize = 255;

const NO_AUTH: u8 = 0;
const USER_PASSWORD: u8 = 2;

/// The prefix of user names with extended parameters (proposal 351).
const EXTENDED: &[u8] = b"<torS0X>";
/// The one such user name that only isolates.
const EXTENDED_ISOLATION: &[u8] = b"<torS0X>0";

/// The command of a request.
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

/// Reads from the front of the bytes; `None`: more bytes are needed.
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

    /// A string whose first byte is its length.
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

    /// The number of bytes of `all` that have been read.
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

/// The destination of a SOCKS 5 request.
enum Target5<'a> {
    Address(IpAddr),
    Host(&'a [u8]),
    /// An address of an unknown type, whose length is unknown.
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
    /// Handles the bytes of a SocksPort.
    pub(super) fn socks(&mut self, bytes: &[u8]) -> Result<Step, Failure> {
        let Some((&first, [_, ..])) = bytes.split_first() else {
            return Ok(Step::NeedMore);
        };
        match (self.state, first) {
            (SocksPhase::Start, 4) => self.request4(bytes),
            (SocksPhase::Start, 5) => self.methods(bytes),
            (SocksPhase::Start, _) => Err(self.not_socks(first, bytes)),
            (SocksPhase::Credentials, 1)
            | (
                SocksPhase::Request {
                    may_authenticate: true,
                },
                1,
            ) => self.user_password(bytes),
            (SocksPhase::Request { .. }, 5) => self.request5(bytes),
            _ => Err(self.malformed("socks5: a message of another version came")),
        }
    }

    /// A failure with the reply that this version of SOCKS has for malformed requests.
    fn malformed(&self, why: impl std::fmt::Display) -> Failure {
        self.malformed_line(Line::warn(why))
    }

    fn malformed_line(&self, why: Line) -> Failure {
        self.refusal(AppRefusal::General, why)
    }

    fn refusal(&self, answer: AppRefusal, why: Line) -> Failure {
        self.fail(self.refused(answer), Notice::new(why))
    }

    /// The failure of a request that is not SOCKS; a browser gets a page that explains it.
    fn not_socks(&self, first: u8, bytes: &[u8]) -> Failure {
        let page = match first {
            b'G' | b'H' | b'P' | b'C' => http_reply::not_a_proxy(),
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
        self.fail(page, Notice::new(Line::warn(text)).with_event(event))
    }

    fn request4(&mut self, bytes: &[u8]) -> Result<Step, Failure> {
        self.reply_protocol = ReplyProtocol::Socks4;
        let message = bytes.get(..MAX_SOCKS4).unwrap_or(bytes);
        let mut input = Input { rest: message };
        let Some(request) = read_request4(&mut input) else {
            return if bytes.len() >= MAX_SOCKS4 {
                Err(self.malformed("socks4: the request is too long"))
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
                return Err(self.refusal(AppRefusal::CommandNotSupported, Line::warn(text)));
            }
        };
        if (request.port == 0 && command == Command::Connect) || request.address.is_unspecified() {
            return Err(self.malformed("socks4: the port or the address is zero. Rejecting"));
        }
        if !request.user.is_empty() {
            self.credentials = Some(AppCredentials {
                user: request.user.to_vec(),
                password: Vec::new(),
            });
        }
        let host = match request.host {
            None => {
                self.note_leak(AppProtocol::Socks4, request.address.into(), request.port)?;
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
            self.state = SocksPhase::Credentials;
            USER_PASSWORD
        } else if has(NO_AUTH) {
            self.state = SocksPhase::Request {
                may_authenticate: true,
            };
            NO_AUTH
        } else {
            let text = "socks5: offered methods don't include 'no auth' or username/password. \
                        Rejecting";
            return Err(self.fail(vec![5, 0xff], Notice::new(Line::warn(text))));
        };
        self.reply_protocol = ReplyProtocol::Socks5;
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
            return Err(self.malformed(
                "socks5: the user name asks for an extension of SOCKS that is not supported",
            ));
        }
        self.credentials = Some(AppCredentials {
            user: user.to_vec(),
            password: password.to_vec(),
        });
        self.state = SocksPhase::Request {
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
            return Err(self.refusal(AppRefusal::CommandNotSupported, Line::warn(text)));
        };
        let (host, literal) = match target {
            Target5::Address(address) => (address.to_string(), Some(address)),
            Target5::Host(name) => {
                let host = self.host(5, name, port)?;
                let literal = destination::literal(&host);
                if command != Command::ResolvePtr {
                    // An address in the field for names is not counted as an address.
                    (host, None)
                } else {
                    (host, literal)
                }
            }
            Target5::Unknown => {
                let text = "socks5: an address of an unknown type. Rejecting";
                return Err(self.refusal(AppRefusal::AddressTypeNotSupported, Line::warn(text)));
            }
        };
        let opening = match (command, literal) {
            (Command::ResolvePtr, Some(addr)) => AppOpening::ResolvePtr { addr },
            (Command::ResolvePtr, None) => {
                let text =
                    "socks5 received RESOLVE_PTR command with a malformed address. Rejecting";
                return Err(self.refusal(AppRefusal::AddressTypeNotSupported, Line::warn(text)));
            }
            (Command::Resolve, _) => AppOpening::Resolve { name: host },
            (Command::Connect, _) if port == 0 => {
                return Err(self.malformed_line(destination::port_0()));
            }
            (Command::Connect, _) => AppOpening::Connect { host, port },
        };
        match literal {
            Some(address) if command != Command::ResolvePtr => {
                self.note_leak(AppProtocol::Socks5, address, port)?;
            }
            _ => self.note_remote_resolve(5, port),
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
                    self.note_remote_resolve(4, port);
                }
                Ok(host)
            }
            None => {
                let line = Line::warn(format!(
                    "Your application (using socks{version} to port {port}) gave a malformed hostname: "
                ));
                let line = line.client(name.escape_ascii());
                Err(self.malformed_line(line.text(". Rejecting the connection")))
            }
        }
    }

    /// `TestSocks`: logs that the application lets Tor resolve names.
    fn note_remote_resolve(&mut self, version: u8, port: u16) {
        if self.rules.test_socks {
            let text = format!(
                "Your application (using socks{version} to port {port}) left the DNS resolution \
                 to Tor. This is good"
            );
            self.notices.push(Notice::new(Line::info(text)));
        }
    }

    /// Handles a request for an address, which the application must have resolved elsewhere
    /// (`log_unsafe_socks_warning`).
    fn note_leak(
        &mut self,
        protocol: AppProtocol,
        address: IpAddr,
        port: u16,
    ) -> Result<(), Failure> {
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
        let notice = Notice::new(Line::warn(text)).with_event(event);
        if self.rules.safe_socks {
            return Err(self.fail(self.refused(AppRefusal::NotAllowed), notice));
        }
        self.notices.push(notice);
        Ok(())
    }
}
