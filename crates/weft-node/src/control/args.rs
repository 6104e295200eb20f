//! The arguments of commands: positional ones, `KEY=value`, and quoted strings (control-spec 2.1; C tor's
//! kvline.c, qstring.c).

use super::reply::Reply;

/// An argument that may have a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeywordArg {
    /// The text before the `=`; empty if there is none.
    pub(super) key: String,
    /// The text behind the `=`, or an argument without a key; `None`: the key has no `=`.
    pub(super) value: Option<String>,
}

/// Arguments that are words.
pub(super) fn positional_args(text: &str) -> Vec<&str> {
    text.split(' ').filter(|word| !word.is_empty()).collect()
}

/// The first `count` words, and the text behind them.
pub(super) fn split_positional(text: &str, count: usize) -> (Vec<&str>, &str) {
    let mut rest = text.trim_start_matches(' ');
    let mut words = Vec::new();
    while words.len() < count && !rest.is_empty() {
        let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
        words.push(word);
        rest = after.trim_start_matches(' ');
    }
    (words, rest)
}

/// Arguments of the form `KEY=value`, `KEY="quoted value"`, or `KEY` alone. `None`: a quoted value
/// does not end, or something follows it.
pub(super) fn keyword_args(text: &str) -> Option<Vec<KeywordArg>> {
    let mut args = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let end = rest
            .find(|c: char| c == '=' || c.is_ascii_whitespace())
            .unwrap_or(rest.len());
        let (key, after) = rest.split_at_checked(end)?;
        let (value, after) = match after.strip_prefix('=') {
            None => (None, after),
            Some(after) if after.starts_with('"') => {
                let (value, after) = unquote(after)?;
                (Some(value), after)
            }
            Some(after) => {
                let end = after
                    .find(|c: char| c.is_ascii_whitespace())
                    .unwrap_or(after.len());
                let (value, after) = after.split_at_checked(end)?;
                (Some(value.to_owned()), after)
            }
        };
        args.push(KeywordArg {
            key: key.to_owned(),
            value,
        });
        rest = after.trim_start();
    }
    Some(args)
}

/// The value of a key, in any case of letters.
pub(super) fn keyword_value<'a>(args: &'a [KeywordArg], key: &str) -> Option<&'a str> {
    let arg = args.iter().find(|arg| arg.key.eq_ignore_ascii_case(key))?;
    arg.value.as_deref()
}

/// True if a key has no value.
pub(super) fn has_keyword(args: &[KeywordArg], key: &str) -> bool {
    args.iter()
        .any(|arg| arg.key.eq_ignore_ascii_case(key) && arg.value.is_none())
}

/// The reply to a command with the wrong number of arguments.
pub(super) fn wrong_number(command: &str, found: usize, least: usize, most: usize) -> Reply {
    let what = match found < least {
        true => format!("Need at least {least} argument(s)"),
        false => format!("Cannot accept more than {most} argument(s)"),
    };
    Reply::line(512, format!("Bad arguments to {command}: {what}"))
}

/// The reply to a command whose keyword arguments cannot be parsed.
pub(super) fn unparsable(command: &str) -> Reply {
    let text = format!("Bad arguments to {command}: Cannot parse keyword argument(s)");
    Reply::line(512, text)
}

/// Splits a command's arguments: exactly `count` positional ones, then keyword arguments.
///
/// # Errors
///
/// The reply for the controller.
pub(super) fn parse_args<'a>(
    command: &str,
    rest: &'a str,
    count: usize,
) -> Result<(Vec<&'a str>, Vec<KeywordArg>), Reply> {
    let (positional, rest) = split_positional(rest, count);
    if positional.len() < count {
        return Err(wrong_number(command, positional.len(), count, count));
    }
    let args = keyword_args(rest).ok_or_else(|| unparsable(command))?;
    Ok((positional, args))
}

/// Takes a quoted string from the front; `None`: it does not end, or something follows it at once.
/// Escapes are C's, as in C tor (`unescape_string`).
pub(super) fn unquote(text: &str) -> Option<(String, &str)> {
    let mut bytes = Vec::new();
    let all = text.as_bytes();
    let mut at = 1;
    loop {
        let byte = *all.get(at)?;
        at += 1;
        match byte {
            b'"' => break,
            b'\\' => {
                let escaped = *all.get(at)?;
                at += 1;
                match escaped {
                    b'n' => bytes.push(b'\n'),
                    b'r' => bytes.push(b'\r'),
                    b't' => bytes.push(b'\t'),
                    b'0'..=b'7' => {
                        let mut number = u32::from(escaped - b'0');
                        for _ in 0..2 {
                            match all.get(at) {
                                Some(digit @ b'0'..=b'7') => {
                                    number = number * 8 + u32::from(digit - b'0');
                                    at += 1;
                                }
                                _ => break,
                            }
                        }
                        bytes.push(u8::try_from(number).ok()?);
                    }
                    b'x' => {
                        let digits = std::str::from_utf8(all.get(at..at + 2)?).ok()?;
                        bytes.push(u8::from_str_radix(digits, 16).ok()?);
                        at += 2;
                    }
                    other => bytes.push(other),
                }
            }
            other => bytes.push(other),
        }
    }
    let rest = text.get(at..)?;
    if !rest.is_empty() && !rest.starts_with(|c: char| c.is_ascii_whitespace()) {
        return None;
    }
    Some((String::from_utf8_lossy(&bytes).into_owned(), rest))
}

/// A text in quotes (`esc_for_log`).
pub(crate) fn quote(text: &[u8]) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for byte in text {
        match byte {
            b'\\' | b'"' | b'\'' => {
                quoted.push('\\');
                quoted.push(char::from(*byte));
            }
            b'\n' => quoted.push_str("\\n"),
            b'\r' => quoted.push_str("\\r"),
            b'\t' => quoted.push_str("\\t"),
            b' '..=b'~' => quoted.push(char::from(*byte)),
            _ => quoted.push_str(&format!("\\{byte:03o}")),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_values_with_and_without_quotes() {
        let show = |text| {
            let args = keyword_args(text)?;
            let show =
                |arg: KeywordArg| format!("{}>{}", arg.key, arg.value.unwrap_or("-".to_owned()));
            Some(args.into_iter().map(show).collect::<Vec<_>>())
        };
        let some = |args: &[&str]| Some(args.iter().map(|arg| (*arg).to_owned()).collect());
        assert_eq!(
            show("A=1 B  C=\"x \\\"y\\\"\" D="),
            some(&["A>1", "B>-", "C>x \"y\"", "D>"])
        );
        assert_eq!(
            show("a.b=c.d $AA=Unnamed,$BB"),
            some(&["a.b>c.d", "$AA>Unnamed,$BB"])
        );
        assert_eq!(show(""), some(&[]));
        for bad in ["A=\"x", "A=\"x\"y", "A=\"\\"] {
            assert_eq!(show(bad), None, "{bad}");
        }
    }

    #[test]
    fn quotes_are_undone_as_c_does() {
        let whole = |text| unquote(text).map(|(value, rest)| (value, rest.to_owned()));
        let expected = "a\nb\tA\u{1}\\\"".to_owned();
        assert_eq!(
            whole(r#""a\nb\t\101\x01\\\"" rest"#),
            Some((expected, " rest".to_owned()))
        );
        assert_eq!(whole(r#""\400""#), None);
        assert_eq!(whole(r#""\xg0""#), None);
        assert_eq!(quote(b"a\"b\n\x01"), r#""a\"b\n\001""#);
        let (value, _) = unquote(&quote("käse \\ ' \"".as_bytes())).unwrap();
        assert_eq!(value, "käse \\ ' \"");
    }
}
