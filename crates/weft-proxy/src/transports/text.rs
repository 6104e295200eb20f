//! Names and arguments of transports, as torrc, programs and SOCKS have them.

/// True if `name` is a C identifier, as names of transports must be.
#[must_use]
pub fn is_identifier(name: &str) -> bool {
    let named = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    name.bytes().all(named) && name.bytes().next().is_some_and(|b| !b.is_ascii_digit())
}

/// True if `text` is a key, an equals sign and an optional value.
#[must_use]
pub fn is_key_value(text: &str) -> bool {
    text.find('=').is_some_and(|at| at > 0)
}

/// `text` with a backslash before each of the characters `special`.
#[must_use]
pub fn escape(text: &str, special: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if special.contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_transports_are_c_identifiers() {
        for name in ["obfs4", "_", "meek_lite", "A1"] {
            assert!(is_identifier(name), "{name}");
        }
        for name in ["", "4obfs", "ob-fs", "ob fs", "\u{e4}"] {
            assert!(!is_identifier(name), "{name}");
        }
    }

    #[test]
    fn a_pair_has_a_key() {
        for pair in ["k=v", "k=", "k=v=w"] {
            assert!(is_key_value(pair), "{pair}");
        }
        for other in ["", "k", "=v"] {
            assert!(!is_key_value(other), "{other}");
        }
    }

    #[test]
    fn special_characters_are_escaped_and_no_others() {
        assert_eq!(escape("a;b\\c:d", ";\\"), "a\\;b\\\\c:d");
        assert_eq!(escape("", ";"), "");
    }
}
