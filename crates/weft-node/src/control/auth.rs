//! Authentication of controllers, by a password or by the secret in a file (control-spec 3.5, 3.24; C
//! tor's control_auth.c, crypto_s2k.c).

use std::io::Write as _;
use std::path::Path;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use digest::Digest as _;
use weft_config::options::ControlOptions;

use super::args::unquote;
use super::commands::Command;
use super::reply::Reply;
use weft_datadir::file::{self, Access, FileError};
use weft_trust::Sender;

const COOKIE_LEN: usize = 32;

const SERVER_KEY: &[u8] = b"Tor safe cookie authentication server-to-controller hash";
const CONTROLLER_KEY: &[u8] = b"Tor safe cookie authentication controller-to-server hash";

/// The secret in the CookieAuthFile.
pub(crate) type Cookie = [u8; COOKIE_LEN];

/// Writes a file for controllers: readable by this user, and by its group if `group_readable`.
///
/// # Errors
///
/// It cannot be written.
pub(crate) fn write_for_controllers(
    path: &Path,
    contents: &[u8],
    group_readable: bool,
) -> Result<(), FileError> {
    let access = match group_readable {
        true => Access::mode(0o640),
        false => Access::PRIVATE,
    };
    file::replace_with(path, access, |mut file| file.write_all(contents))
}

/// Compares two secrets in constant time.
fn same(one: &[u8], other: &[u8]) -> bool {
    verify_slices_are_equal(one, other).is_ok()
}

/// Hashes a password as OpenPGP does (RFC 2440 3.6.1.3): salt, count, digest.
fn s2k(password: &[u8], salt: &[u8], indicator: u8) -> [u8; 20] {
    let count = (16 + usize::from(indicator & 15)) << (u32::from(indicator >> 4) + 6);
    let mut once = salt.to_vec();
    once.extend_from_slice(password);
    let mut hash = tor_llcrypto::d::Sha1::new();
    let mut remaining = count;
    while remaining > 0 {
        let part = once.get(..remaining).unwrap_or(&once);
        hash.update(part);
        remaining -= part.len();
    }
    hash.finalize().into()
}

/// Hashes a password into the format of HashedControlPassword (`--hash-password`).
#[must_use]
pub fn hash_password(password: &[u8], salt: [u8; 8]) -> String {
    const INDICATOR: u8 = 0x60;
    let digest = s2k(password, &salt, INDICATOR);
    format!(
        "16:{}{INDICATOR:02X}{}",
        hex::encode_upper(salt),
        hex::encode_upper(digest)
    )
}

fn password_matches(password: &[u8], hashed: &[u8; 29]) -> bool {
    let (salt, rest) = hashed.split_at(8);
    rest.split_first()
        .is_some_and(|(indicator, digest)| same(&s2k(password, salt, *indicator), digest))
}

/// The authentication of one controller.
#[derive(Debug, Default)]
pub(super) struct Authentication {
    /// The response to its AUTHCHALLENGE.
    expected: Option<[u8; 32]>,
    /// It has sent PROTOCOLINFO.
    pub(super) protocol_info_sent: bool,
}

impl Authentication {
    /// True if the command is allowed before authentication (control.c,
    /// `is_valid_initial_command`).
    pub(super) fn allows(&self, command: Command) -> bool {
        let again = match command {
            Command::ProtocolInfo => self.protocol_info_sent,
            Command::AuthChallenge => self.expected.is_some(),
            _ => false,
        };
        command.trust().sender == Sender::Anybody && !again
    }

    /// Handles AUTHCHALLENGE.
    pub(super) fn challenge(
        &mut self,
        rest: &str,
        cookie: Option<&Cookie>,
        server_nonce: [u8; 32],
    ) -> Reply {
        let (kind, nonce) = rest.split_once(' ').unwrap_or((rest, ""));
        let nonce = nonce.trim();
        if kind.is_empty() {
            let text = "Bad arguments to AUTHCHALLENGE: Need at least 1 argument(s)";
            return Reply::last(512, text);
        }
        if !kind.eq_ignore_ascii_case("SAFECOOKIE") {
            let text = "AUTHCHALLENGE only supports SAFECOOKIE authentication";
            return Reply::last(513, text);
        }
        let Some(cookie) = cookie else {
            return Reply::last(515, "Cookie authentication is disabled");
        };
        let client_nonce = match argument(nonce) {
            Argument::None | Argument::Many => {
                return Reply::last(512, "Wrong number of arguments for AUTHCHALLENGE");
            }
            Argument::Quoted(nonce) => nonce.into_bytes(),
            Argument::Bare(nonce) => match hex::decode(nonce) {
                Ok(nonce) => nonce,
                Err(_) => return Reply::last(513, "Invalid base16 client nonce"),
            },
        };
        let message = [&cookie[..], &client_nonce, &server_nonce].concat();
        let sign = |key| hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), &message);
        let mut expected = [0; 32];
        for (to, from) in expected.iter_mut().zip(sign(CONTROLLER_KEY).as_ref()) {
            *to = *from;
        }
        self.expected = Some(expected);
        Reply::line(
            250,
            format!(
                "AUTHCHALLENGE SERVERHASH={} SERVERNONCE={}",
                hex::encode_upper(sign(SERVER_KEY)),
                hex::encode_upper(server_nonce)
            ),
        )
    }

    /// Handles AUTHENTICATE.
    ///
    /// # Errors
    ///
    /// The reply for a controller that is not authenticated; the connection is closed after it.
    pub(super) fn authenticate(
        &mut self,
        rest: &str,
        options: &ControlOptions,
        cookie: Option<&Cookie>,
    ) -> Result<(), Reply> {
        let (password, quoted) = match argument(rest.trim()) {
            Argument::None => (Vec::new(), false),
            Argument::Many => {
                return Err(Reply::last(512, "Too many arguments to AUTHENTICATE."));
            }
            Argument::Quoted(text) => (text.into_bytes(), true),
            Argument::Bare(digits) => match hex::decode(digits) {
                Ok(bytes) => (bytes, false),
                Err(_) => {
                    let text = "Invalid hexadecimal encoding.  Maybe you tried a plain text \
                                password?  If so, the standard requires that you put it in double \
                                quotes.";
                    return Err(Reply::last(551, text));
                }
            },
        };
        let failed = |why: &str| {
            tracing::warn!("A controller failed to authenticate: {why}");
            Reply::last(515, format!("Authentication failed: {why}"))
        };
        if let Some(expected) = self.expected {
            // After AUTHCHALLENGE only its response counts.
            if password.len() != expected.len() {
                return Err(failed("Wrong length for safe cookie response."));
            }
            if !same(&password, &expected) {
                return Err(failed("Safe cookie response did not match expected value."));
            }
            self.expected = None;
            return Ok(());
        }
        let passwords = &options.hashed_passwords;
        let by_cookie = options.cookie_file.is_some();
        if !by_cookie && passwords.is_empty() {
            return Ok(());
        }
        if by_cookie {
            if cookie.is_some_and(|cookie| same(&password, cookie)) {
                return Ok(());
            }
            if passwords.is_empty() {
                return Err(failed(if password.len() == COOKIE_LEN {
                    "Authentication cookie did not match expected value."
                } else {
                    "Wrong length on authentication cookie."
                }));
            }
        }
        if passwords
            .iter()
            .any(|hashed| password_matches(&password, hashed))
        {
            return Ok(());
        }
        Err(failed(match (by_cookie, quoted) {
            (true, _) => "Password did not match HashedControlPassword *or* authentication cookie.",
            (false, true) => {
                "Password did not match HashedControlPassword value from configuration"
            }
            (false, false) => {
                "Password did not match HashedControlPassword value from configuration. Maybe you \
                 tried a plain text password? If so, the standard requires that you put it in \
                 double quotes."
            }
        }))
    }
}

/// The argument of a command that takes one.
enum Argument<'a> {
    None,
    Many,
    Quoted(String),
    Bare(&'a str),
}

fn argument(text: &str) -> Argument<'_> {
    if text.is_empty() {
        return Argument::None;
    }
    if text.starts_with('"') {
        return match unquote(text) {
            Some((value, rest)) if rest.trim().is_empty() => Argument::Quoted(value),
            _ => Argument::Many,
        };
    }
    match text.contains(' ') {
        true => Argument::Many,
        false => Argument::Bare(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(hashes: &[&str], cookie: bool) -> ControlOptions {
        let hash = |text: &&str| {
            let bytes = hex::decode(text.strip_prefix("16:").unwrap()).unwrap();
            bytes.try_into().unwrap()
        };
        ControlOptions {
            hashed_passwords: hashes.iter().map(hash).collect(),
            cookie_file: cookie.then(|| "/c".into()),
            ..ControlOptions::default()
        }
    }

    #[test]
    fn passwords_are_hashed_as_c_tor_does() {
        // `tor --hash-password foo` made this.
        let hash = "16:660537E3E1CD49996044A3BF558097A981F539FEA2F9DA662B4626C1C2";
        assert_eq!(
            hash_password(b"foo", [0x66, 5, 0x37, 0xe3, 0xe1, 0xcd, 0x49, 0x99]),
            hash
        );
        let options = options(&[hash], false);
        let authenticate = |rest: &str| {
            let result = Authentication::default().authenticate(rest, &options, None);
            result.map_err(|reply| (reply.close, reply.encode()[..3].to_owned()))
        };
        assert_eq!(authenticate("\"foo\""), Ok(()));
        assert_eq!(authenticate("666f6f"), Ok(()));
        assert_eq!(authenticate("\"fop\""), Err((true, "515".to_owned())));
        assert_eq!(authenticate(""), Err((true, "515".to_owned())));
        assert_eq!(authenticate("foo"), Err((true, "551".to_owned())));
        assert_eq!(authenticate("a b"), Err((true, "512".to_owned())));
    }

    #[test]
    fn a_cookie_authenticates_as_itself_or_by_challenge() {
        let cookie = [7; COOKIE_LEN];
        let options = options(&[], true);
        let mut plain = Authentication::default();
        let shown = hex::encode(cookie);
        assert!(plain.authenticate(&shown, &options, Some(&cookie)).is_ok());
        assert!(plain.authenticate("\"\"", &options, Some(&cookie)).is_err());
        assert!(
            plain
                .authenticate(&hex::encode([8; 32]), &options, Some(&cookie))
                .is_err()
        );

        let mut safe = Authentication::default();
        assert!(safe.allows(Command::AuthChallenge));
        let reply = safe
            .challenge("SAFECOOKIE 0102", Some(&cookie), [9; 32])
            .encode();
        assert!(
            reply.starts_with("250 AUTHCHALLENGE SERVERHASH="),
            "{reply}"
        );
        assert!(!safe.allows(Command::AuthChallenge));
        // After AUTHCHALLENGE the cookie itself is refused.
        assert!(safe.authenticate(&shown, &options, Some(&cookie)).is_err());
        let message = [&cookie[..], &[1, 2], &[9; 32]].concat();
        let key = hmac::Key::new(hmac::HMAC_SHA256, CONTROLLER_KEY);
        let answer = hex::encode(hmac::sign(&key, &message));
        assert!(safe.authenticate(&answer, &options, Some(&cookie)).is_ok());
        for (rest, code) in [
            ("", "512"),
            ("X 00", "513"),
            ("SAFECOOKIE", "512"),
            ("SAFECOOKIE x", "513"),
        ] {
            let reply = Authentication::default().challenge(rest, Some(&cookie), [9; 32]);
            assert!(reply.close && reply.encode().starts_with(code), "{rest}");
        }
        let none = Authentication::default().challenge("SAFECOOKIE 00", None, [9; 32]);
        assert!(none.encode().starts_with("515"));
    }
}
