//! HTTP CONNECT, as C tor asks for it (connection.c, `connection_https_proxy_connect`).

use std::net::SocketAddr;

use base64ct::{Base64, Encoding as _};

use crate::credentials::Secret;
use crate::error::ProxyError;

/// End of the head of an answer.
const END: &[u8] = b"\r\n\r\n";
/// Characters of a reason that are repeated in messages.
const REASON: usize = 80;

fn malformed(what: &'static str) -> ProxyError {
    let protocol = "HTTP";
    ProxyError::Malformed { protocol, what }
}

/// The request.
pub(crate) fn connect(target: SocketAddr, authenticator: Option<&Secret>) -> Vec<u8> {
    match authenticator {
        None => format!("CONNECT {target} HTTP/1.0\r\n\r\n"),
        Some(text) => format!(
            "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{}\r\n",
            authorization(text)
        ),
    }
    .into_bytes()
}

/// The header line with name and password.
pub(crate) fn authorization(text: &Secret) -> String {
    let encoded = Base64::encode_string(text.as_bytes());
    format!("Proxy-Authorization: Basic {encoded}\r\n")
}

/// The length of the head of an answer that grants the connection; `None`: its end is missing.
/// `searched` remembers how far the end was looked for, so that an answer that arrives byte by byte
/// costs no more than one that arrives at once.
pub(crate) fn reply(answer: &[u8], searched: &mut usize) -> Result<Option<usize>, ProxyError> {
    let start = b"HTTP/";
    if !answer.iter().zip(start).all(|(is, should)| is == should) {
        return Err(malformed("it does not begin with a status line"));
    }
    let from = searched.saturating_sub(END.len() - 1);
    let fresh = answer.get(from..).unwrap_or_default();
    let Some(at) = fresh.windows(END.len()).position(|bytes| bytes == END) else {
        *searched = answer.len();
        return Ok(None);
    };
    let length = from + at + END.len();
    let line = answer.split(|byte| *byte == b'\r').next();
    let line = String::from_utf8_lossy(line.unwrap_or_default()).into_owned();
    let mut words = line.splitn(3, ' ');
    let version = words.next().unwrap_or_default();
    if !matches!(version, "HTTP/1.0" | "HTTP/1.1") {
        return Err(malformed("its version is neither 1.0 nor 1.1"));
    }
    let status = words.next().unwrap_or_default();
    let digits = status.len() == 3 && status.bytes().all(|byte| byte.is_ascii_digit());
    if !digits {
        return Err(malformed("its status is not of three digits"));
    }
    match status {
        "200" => Ok(Some(length)),
        "407" => Err(ProxyError::Unauthorized),
        _ => {
            let reason = words.next().unwrap_or_default();
            let shown = |c: &char| c.is_ascii_graphic() || *c == ' ';
            let reason: String = reason.chars().filter(shown).take(REASON).collect();
            Err(ProxyError::Refused(
                format!("{status} {reason}").trim_end().to_owned(),
            ))
        }
    }
}
