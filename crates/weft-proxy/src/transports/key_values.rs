//! `KEY=value KEY="quoted"`: what LOG and STATUS lines consist of (C tor: kvline.c with KV_QUOTED).

/// The pairs of `text`, in their order; nothing where it is not made of pairs.
pub(crate) fn parse(text: &str) -> Option<Vec<(String, String)>> {
    let mut pairs = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    while !rest.is_empty() {
        let (key, after) = rest.split_once('=')?;
        if key.is_empty() || needs_quotes(key) || key.contains('=') {
            return None;
        }
        let value;
        (value, rest) = match after.strip_prefix('"') {
            Some(quoted) => unquote(quoted)?,
            None => {
                let end = after.find(is_space).unwrap_or(after.len());
                let (value, rest) = after.split_at(end);
                (value.to_owned(), rest)
            }
        };
        pairs.push((key.to_owned(), value));
        rest = rest.trim_start_matches(is_space);
    }
    (!pairs.is_empty()).then_some(pairs)
}

/// The value of the first pair with this key, in whatever case.
pub(crate) fn find<'a>(pairs: &'a [(String, String)], key: &str) -> Option<&'a str> {
    let mut found = pairs.iter().filter(|(k, _)| k.eq_ignore_ascii_case(key));
    found.next().map(|(_, value)| value.as_str())
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\x0b' | '\n')
}

fn needs_quotes(text: &str) -> bool {
    text.bytes()
        .any(|b| !b.is_ascii_graphic() || matches!(b, b'\'' | b'"'))
}

/// A C string, up to its closing quote, and what follows it.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut value = Vec::new();
    let mut bytes = text.bytes().enumerate();
    loop {
        let (at, byte) = bytes.next()?;
        match byte {
            b'"' => {
                let rest = text.get(at + 1..)?;
                return Some((String::from_utf8_lossy(&value).into_owned(), rest));
            }
            b'\n' => return None,
            b'\\' => match bytes.next()?.1 {
                b'n' => value.push(b'\n'),
                b't' => value.push(b'\t'),
                b'r' => value.push(b'\r'),
                same @ (b'"' | b'\'' | b'\\') => value.push(same),
                b'x' | b'X' => {
                    let mut digit = || hex_digit(bytes.next()?.1);
                    value.push(digit()? << 4 | digit()?);
                }
                first @ b'0'..=b'7' => {
                    let mut number = u32::from(first - b'0');
                    for _ in 0..2 {
                        let mut ahead = bytes.clone();
                        let Some((_, next @ b'0'..=b'7')) = ahead.next() else {
                            break;
                        };
                        number = number * 8 + u32::from(next - b'0');
                        bytes = ahead;
                    }
                    value.push(u8::try_from(number).ok()?);
                }
                _ => return None,
            },
            other => value.push(other),
        }
        // C tor holds it as a C string, which has no NUL in it.
        if value.last() == Some(&0) {
            return None;
        }
    }
}

fn hex_digit(byte: u8) -> Option<u8> {
    let digit = char::from(byte).to_digit(16)?;
    u8::try_from(digit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Option<Vec<(String, String)>> {
        parse(text)
    }

    #[test]
    fn values_are_bare_or_c_strings() {
        let owned = |k: &str, v: &str| (k.to_owned(), v.to_owned());
        assert_eq!(
            pairs(" SEVERITY=debug  MESSAGE=\"a \\\"b\\\"\\x41\\101\\n\" E= "),
            Some(vec![
                owned("SEVERITY", "debug"),
                owned("MESSAGE", "a \"b\"AA\n"),
                owned("E", "")
            ])
        );
        for bad in [
            "",
            " ",
            "alone",
            "=v",
            "k=\"open",
            "k=\"\\q\"",
            "k=\"\\x4\"",
            "k=\"\\400\"",
            "k=\"\\0\"",
            "a b=c",
        ] {
            assert_eq!(pairs(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_first_of_a_key_counts() {
        let pairs = parse("A=1 a=2 B=3").unwrap();
        assert_eq!(find(&pairs, "a"), Some("1"));
        assert_eq!(find(&pairs, "C"), None);
    }
}
