//! The commands about onion services (control-spec 3.27 to 3.32). This version has no services, so that what could be done
//! is answered with 551; what is malformed has C tor's answer (`handle_control_add_onion` and its like), by which
//! programs are tested.

use base64ct::{Base64, Encoding as _};

use super::args::{KeywordArg, keyword_args, parse_args, positional_args, wrong_number};
use super::reply::Reply;

/// Bytes of an expanded ed25519 key.
const KEY_LEN: usize = 64;
/// Most streams of a service's circuit (ADD_ONION `MaxStreams`).
const MOST_STREAMS: u32 = 65_535;

/// The answer to one of these commands.
pub(super) fn command(word: &str, rest: &str) -> Reply {
    let checked = match word {
        "ADD_ONION" => check_add(rest),
        "DEL_ONION" => return delete(rest),
        "HSFETCH" => check_fetch(rest),
        "ONION_CLIENT_AUTH_ADD" | "ONION_CLIENT_AUTH_REMOVE" => check_auth(word, rest),
        "ONION_CLIENT_AUTH_VIEW" => return view_auth(rest),
        _ => Ok(()),
    };
    match checked {
        Err(reply) => reply,
        Ok(()) => Reply::line(
            551,
            format!(
                "{} is not supported by this version of Weft",
                word.trim_start_matches('+')
            ),
        ),
    }
}

fn wrong(text: &str) -> Reply {
    Reply::line(512, text)
}

/// No onion service exists.
fn delete(rest: &str) -> Reply {
    match is_address(rest.trim()) {
        true => Reply::line(552, "Unknown Onion Service id"),
        false => wrong("Malformed Onion Service id"),
    }
}

/// An address of a service, without `.onion`.
fn is_address(text: &str) -> bool {
    weft_apps::is_onion_address(text)
}

fn check_fetch(rest: &str) -> Result<(), Reply> {
    match positional_args(rest).first() {
        None => Err(wrong_number("HSFETCH", 0, 1, usize::MAX)),
        Some(address) if is_address(address) => Ok(()),
        Some(other) => Err(Reply::line(513, format!("Invalid argument \"{other}\""))),
    }
}

fn check_auth(word: &str, rest: &str) -> Result<(), Reply> {
    let address = positional_args(rest).first().copied();
    let address = address.ok_or_else(|| Reply::line(512, format!("Incomplete {word} command")))?;
    match is_address(address) {
        true => Ok(()),
        false => Err(invalid_address(address)),
    }
}

fn invalid_address(address: &str) -> Reply {
    Reply::line(512, format!("Invalid v3 address \"{address}\""))
}

/// There is no client authorization, so its list is empty.
fn view_auth(rest: &str) -> Reply {
    match positional_args(rest).first() {
        Some(address) if !is_address(address) => invalid_address(address),
        _ => {
            let mut reply = Reply::line(250, "ONION_CLIENT_AUTH_VIEW");
            reply.add(250, "OK");
            reply
        }
    }
}

/// `ADD_ONION KEY Port=… …`.
fn check_add(rest: &str) -> Result<(), Reply> {
    if positional_args(rest).is_empty() {
        return Err(wrong_number("ADD_ONION", 0, 1, usize::MAX));
    }
    let (key, args) = parse_args("ADD_ONION", rest, 1)?;
    let mut ports = 0;
    for KeywordArg { key, value } in &args {
        let value = value
            .as_deref()
            .ok_or_else(|| wrong("Bad arguments to ADD_ONION: Cannot parse keyword argument(s)"))?;
        check_keyword(key, value)?;
        ports += usize::from(key.eq_ignore_ascii_case("Port"));
    }
    // Quoted values are read by keyword_args and refused by C tor.
    if rest.contains('"') || keyword_args(rest).is_none() {
        return Err(wrong(
            "Bad arguments to ADD_ONION: Cannot parse keyword argument(s)",
        ));
    }
    if ports == 0 {
        return Err(wrong("Missing 'Port' argument"));
    }
    check_key(key.first().copied().unwrap_or_default())
}

fn check_keyword(key: &str, value: &str) -> Result<(), Reply> {
    let ok = |fits: bool, name: &str| match fits {
        true => Ok(()),
        false => Err(Reply::line(512, format!("Invalid {name}"))),
    };
    let number = || value.parse::<u32>().ok();
    match key.to_ascii_lowercase().as_str() {
        "port" => ok(is_port(value), "VIRTPORT/TARGET"),
        "maxstreams" => ok(number().is_some_and(|of| of <= MOST_STREAMS), "MaxStreams"),
        "powdefensesenabled" => ok(matches!(value, "0" | "1"), "PoWDefensesEnabled"),
        "powqueuerate" => ok(number().is_some(), "PoWQueueRate"),
        "powqueueburst" => ok(number().is_some(), "PoWQueueBurst"),
        "flags" => check_flags(value),
        "clientauthv3" => match is_client_key(value) {
            true => Ok(()),
            false => Err(wrong("Cannot decode v3 client auth key")),
        },
        _ => Err(Reply::line(
            512,
            format!("Bad arguments to ADD_ONION: Unrecognized keyword argument \"{key}\""),
        )),
    }
}

fn check_flags(value: &str) -> Result<(), Reply> {
    if value.is_empty() {
        return Err(wrong("Invalid 'Flags' argument"));
    }
    const KNOWN: [&str; 6] = [
        "DiscardPK",
        "Detach",
        "V3Auth",
        "NonAnonymous",
        "MaxStreamsCloseCircuit",
        "BasicAuth",
    ];
    for flag in value.split(',') {
        let known = KNOWN.iter().any(|known| known.eq_ignore_ascii_case(flag));
        if !known {
            return Err(Reply::line(
                512,
                format!("Invalid 'Flags' argument: \"{flag}\""),
            ));
        }
        if flag.eq_ignore_ascii_case("NonAnonymous") {
            return Err(wrong("Tor is in anonymous hidden service mode"));
        }
    }
    Ok(())
}

/// `80`, `80,8080`, `80,127.0.0.1:8080`, `80,unix:/path`.
fn is_port(value: &str) -> bool {
    let is_number = |text: &str| text.parse::<u16>().is_ok_and(|port| port != 0);
    let (port, target) = match value.split_once(',') {
        Some((port, target)) => (port, Some(target)),
        None => (value, None),
    };
    let fits = |target: &str| match target.strip_prefix("unix:") {
        Some(path) => !path.is_empty(),
        None => is_number(target) || is_address_port(target),
    };
    is_number(port) && target.is_none_or(fits)
}

fn is_address_port(text: &str) -> bool {
    let is_socket = |text: &str| {
        let address: Result<std::net::SocketAddr, _> = text.parse();
        address.is_ok_and(|address| address.port() != 0)
    };
    let is_ip = text.parse::<std::net::IpAddr>().is_ok();
    is_socket(text) || is_ip
}

/// An x25519 key in base32 without padding, as clients state it.
fn is_client_key(value: &str) -> bool {
    let digit = |byte: u8| byte.is_ascii_alphabetic() || (b'2'..=b'7').contains(&byte);
    value.len() == 52 && value.bytes().all(digit)
}

/// `NEW:BEST`, `NEW:ED25519-V3`, `ED25519-V3:BASE64`.
fn check_key(key: &str) -> Result<(), Reply> {
    let invalid = || wrong("Invalid key type/blob");
    let (kind, blob) = key.split_once(':').ok_or_else(invalid)?;
    if kind.is_empty() || blob.is_empty() {
        return Err(invalid());
    }
    let is = |text: &str, name: &str| text.eq_ignore_ascii_case(name);
    match () {
        () if is(kind, "NEW") && (is(blob, "BEST") || is(blob, "ED25519-V3")) => Ok(()),
        () if is(kind, "ED25519-V3") => {
            let decoded = Base64::decode_vec(blob);
            match decoded.is_ok_and(|bytes| bytes.len() == KEY_LEN) {
                true => Ok(()),
                false => Err(wrong("Failed to decode ED25519-V3 key")),
            }
        }
        () => Err(Reply::line(513, "Invalid key type")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An address with a right checksum.
    const GOOD: &str = "25njqamcweflpvkl73j4szahhihoc4xt3ktcgjnpaingr5yhkenl5sid";

    fn answer(line: &str) -> String {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        command(word, rest).encode()
    }

    #[test]
    fn what_is_malformed_has_c_tors_answer_and_all_else_is_not_supported() {
        let key = Base64::encode_string(&[8; KEY_LEN]);
        let supported = [
            "ADD_ONION NEW:BEST Port=80".to_owned(),
            "ADD_ONION NEW:ED25519-V3 Flags=Detach,DiscardPK Port=80,127.0.0.1:8080 Port=81,unix:/a".to_owned(),
            "ADD_ONION new:best port=80,8080 MaxStreams=65535 PoWDefensesEnabled=1".to_owned(),
            format!("ADD_ONION ED25519-V3:{key} Port=80,[::1]:80"),
            format!("HSFETCH {GOOD}"),
            format!("ONION_CLIENT_AUTH_ADD {GOOD} x25519:b"),
            format!("ONION_CLIENT_AUTH_REMOVE {GOOD}"),
            "+HSPOST".to_owned(),
        ];
        for line in supported {
            let word = line.split(' ').next().unwrap().trim_start_matches('+');
            let expected = format!("551 {word} is not supported by this version of Weft\r\n");
            assert_eq!(answer(&line), expected, "{line}");
        }
        let unparsed = "512 Bad arguments to ADD_ONION: Cannot parse keyword argument(s)";
        for (line, reply) in [
            (
                "ADD_ONION",
                "512 Bad arguments to ADD_ONION: Need at least 1 argument(s)",
            ),
            ("ADD_ONION NEW Port=80", "512 Invalid key type/blob"),
            ("ADD_ONION NEW: Port=80", "512 Invalid key type/blob"),
            ("ADD_ONION :x Port=80", "512 Invalid key type/blob"),
            ("ADD_ONION NEW:RSA1024 Port=80", "513 Invalid key type"),
            ("ADD_ONION RSA1024:xx Port=80", "513 Invalid key type"),
            ("ADD_ONION NEW:BEST", "512 Missing 'Port' argument"),
            (
                "ADD_ONION NEW:BEST Flags=Detach",
                "512 Missing 'Port' argument",
            ),
            (
                "ADD_ONION NEW:BEST Port=80,0",
                "512 Invalid VIRTPORT/TARGET",
            ),
            (
                "ADD_ONION NEW:BEST Port=8333,127.0.0.1:0",
                "512 Invalid VIRTPORT/TARGET",
            ),
            (
                "ADD_ONION NEW:BEST Port=70000",
                "512 Invalid VIRTPORT/TARGET",
            ),
            (
                "ADD_ONION NEW:BEST Port=80,foo:80",
                "512 Invalid VIRTPORT/TARGET",
            ),
            ("ADD_ONION NEW:BEST Port=", "512 Invalid VIRTPORT/TARGET"),
            (
                "ADD_ONION NEW:BEST Port=80 Flags=Foo",
                "512 Invalid 'Flags' argument: \"Foo\"",
            ),
            (
                "ADD_ONION NEW:BEST Port=80 Flags=",
                "512 Invalid 'Flags' argument",
            ),
            (
                "ADD_ONION NEW:BEST Port=80 Flags=NonAnonymous",
                "512 Tor is in anonymous hidden service mode",
            ),
            (
                "ADD_ONION NEW:BEST Port=80 MaxStreams=70000",
                "512 Invalid MaxStreams",
            ),
            (
                "ADD_ONION NEW:BEST Port=80 MaxStreams=-1",
                "512 Invalid MaxStreams",
            ),
            (
                "ADD_ONION NEW:BEST Port=80 PoWQueueRate=x",
                "512 Invalid PoWQueueRate",
            ),
            (
                "ADD_ONION NEW:BEST Port=80 ClientAuthV3=x",
                "512 Cannot decode v3 client auth key",
            ),
            (
                "ADD_ONION NEW:BEST Port=80 Foo=1",
                "512 Bad arguments to ADD_ONION: Unrecognized keyword argument \"Foo\"",
            ),
            ("ADD_ONION NEW:BEST Port=80 Foo", unparsed),
            ("ADD_ONION NEW:BEST Port=\"80\"", unparsed),
            (
                "ADD_ONION ED25519-V3:xx Port=80",
                "512 Failed to decode ED25519-V3 key",
            ),
            (
                "HSFETCH",
                "512 Bad arguments to HSFETCH: Need at least 1 argument(s)",
            ),
            ("HSFETCH foo", "513 Invalid argument \"foo\""),
            (
                "ONION_CLIENT_AUTH_ADD",
                "512 Incomplete ONION_CLIENT_AUTH_ADD command",
            ),
            (
                "ONION_CLIENT_AUTH_REMOVE foo",
                "512 Invalid v3 address \"foo\"",
            ),
            (
                "ONION_CLIENT_AUTH_VIEW foo",
                "512 Invalid v3 address \"foo\"",
            ),
            ("DEL_ONION x", "512 Malformed Onion Service id"),
        ] {
            assert_eq!(answer(line), format!("{reply}\r\n"), "{line}");
        }
        assert_eq!(
            answer("ONION_CLIENT_AUTH_VIEW"),
            "250-ONION_CLIENT_AUTH_VIEW\r\n250 OK\r\n"
        );
        let of = |address: &str| answer(&format!("DEL_ONION {address}"));
        assert_eq!(of(GOOD), "552 Unknown Onion Service id\r\n");
        assert_eq!(of(&"a".repeat(56)), "512 Malformed Onion Service id\r\n");
    }
}
