//! The messages of SOCKS4 and SOCKS5, as a client writes and reads them.

use std::net::SocketAddr;

use crate::credentials::Credentials;
use crate::error::ProxyError;

/// The command CONNECT of both versions.
const CONNECT: u8 = 1;
/// SOCKS5's methods of authentication.
const METHOD_NONE: u8 = 0;
const METHOD_PASSWORD: u8 = 2;
const METHOD_UNACCEPTABLE: u8 = 0xff;

/// Authentication method chosen by a SOCKS5 proxy.
pub(crate) enum Method {
    None,
    Password,
}

fn malformed4(what: &'static str) -> ProxyError {
    let protocol = "SOCKS4";
    ProxyError::Malformed { protocol, what }
}

fn malformed5(what: &'static str) -> ProxyError {
    let protocol = "SOCKS5";
    ProxyError::Malformed { protocol, what }
}

/// A SOCKS4 request. C tor sends a user id to pluggable transports alone.
pub(crate) fn connect4(target: SocketAddr, user: &[u8]) -> Result<Vec<u8>, ProxyError> {
    let SocketAddr::V4(target) = target else {
        return Err(ProxyError::Ipv6);
    };
    let mut request = vec![4, CONNECT];
    request.extend(target.port().to_be_bytes());
    request.extend(target.ip().octets());
    // It ends at the first NUL, of which the arguments of a bridge have none.
    request.extend(user.iter().filter(|byte| **byte != 0));
    request.push(0);
    Ok(request)
}

/// The bytes of a SOCKS4 reply that grants the connection; `None`: some are missing.
pub(crate) fn reply4(answer: &[u8]) -> Result<Option<usize>, ProxyError> {
    const LENGTH: usize = 8;
    // C tor takes 4 for the version of the reply, too, which is 0.
    if !matches!(answer.first(), None | Some(0 | 4)) {
        return Err(malformed4("its version is neither 0 nor 4"));
    }
    let why = match answer.get(1) {
        None => return Ok(None),
        Some(90) => return Ok((answer.len() >= LENGTH).then_some(LENGTH)),
        Some(91) => "request rejected or failed",
        Some(92) => "it cannot connect to identd on this host",
        Some(93) => "identd on this host knows another user",
        Some(_) => return Err(malformed4("it has no code of SOCKS4")),
    };
    Err(ProxyError::Refused(why.to_owned()))
}

/// The first message of SOCKS5.
pub(crate) fn greeting(with_password: bool) -> Vec<u8> {
    match with_password {
        true => vec![5, 2, METHOD_NONE, METHOD_PASSWORD],
        false => vec![5, 1, METHOD_NONE],
    }
}

/// The method that the proxy chose, and the length of its answer in bytes.
pub(crate) fn method(answer: &[u8]) -> Result<Option<(usize, Method)>, ProxyError> {
    if !matches!(answer.first(), None | Some(5)) {
        return Err(malformed5("its version is not 5"));
    }
    match answer.get(1) {
        None => Ok(None),
        Some(&METHOD_NONE) => Ok(Some((2, Method::None))),
        Some(&METHOD_PASSWORD) => Ok(Some((2, Method::Password))),
        Some(&METHOD_UNACCEPTABLE) => Err(ProxyError::NoMethod),
        Some(_) => Err(malformed5("it chose a method that was not offered")),
    }
}

/// Name and password (RFC 1929).
pub(crate) fn authenticate(credentials: &Credentials) -> Result<Vec<u8>, ProxyError> {
    let mut request = vec![1];
    for text in [&credentials.username, &credentials.password] {
        let text = text.as_bytes();
        match u8::try_from(text.len()) {
            Ok(length) if length > 0 => request.push(length),
            _ => return Err(ProxyError::Credentials),
        }
        request.extend(text);
    }
    Ok(request)
}

/// The length in bytes of the answer that name and password are accepted.
pub(crate) fn authenticated(answer: &[u8]) -> Result<Option<usize>, ProxyError> {
    if !matches!(answer.first(), None | Some(1)) {
        return Err(malformed5("the version of its authentication is not 1"));
    }
    match answer.get(1) {
        None => Ok(None),
        Some(0) => Ok(Some(2)),
        Some(_) => Err(ProxyError::Unauthorized),
    }
}

/// A SOCKS5 request.
pub(crate) fn connect5(target: SocketAddr) -> Vec<u8> {
    let mut request = vec![5, CONNECT, 0];
    match target {
        SocketAddr::V4(target) => {
            request.push(1);
            request.extend(target.ip().octets());
        }
        SocketAddr::V6(target) => {
            request.push(4);
            request.extend(target.ip().octets());
        }
    }
    request.extend(target.port().to_be_bytes());
    request
}

/// The bytes of a SOCKS5 reply that grants the connection; `None`: some are missing.
pub(crate) fn reply5(answer: &[u8]) -> Result<Option<usize>, ProxyError> {
    if !matches!(answer.first(), None | Some(5)) {
        return Err(malformed5("the version of its reply is not 5"));
    }
    let why = match answer.get(1) {
        None => return Ok(None),
        Some(0) => return bound5(answer),
        Some(1) => "general SOCKS server failure",
        Some(2) => "connection not allowed by ruleset",
        Some(3) => "network unreachable",
        Some(4) => "host unreachable",
        Some(5) => "connection refused",
        Some(6) => "TTL expired",
        Some(7) => "command not supported",
        Some(8) => "address type not supported",
        Some(_) => return Err(malformed5("its reply has no code of SOCKS5")),
    };
    Err(ProxyError::Refused(why.to_owned()))
}

/// The length of a reply with the address that the proxy connects from, which is not used.
fn bound5(answer: &[u8]) -> Result<Option<usize>, ProxyError> {
    let address = match answer.get(3) {
        None => return Ok(None),
        Some(1) => 4,
        Some(4) => 16,
        Some(3) => match answer.get(4) {
            None => return Ok(None),
            Some(length) => 1 + usize::from(*length),
        },
        Some(_) => return Err(malformed5("its reply has an address of no known type")),
    };
    let length = 4 + address + 2;
    Ok((answer.len() >= length).then_some(length))
}
