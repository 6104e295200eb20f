//! `Log` lines: `[domains]severity[-severity] … destination` (C tor: src/lib/log/log.c
//! `parse_log_severity_config`, src/app/config/config.c `options_init_logs`).

use std::path::PathBuf;

use weft_log::Severity;

use crate::text::log_options::{Destination, Domains, LogLine, SeverityMask};

const DESTINATIONS: [&str; 4] = ["file", "stderr", "stdout", "syslog"];

/// Reads the value of one `Log` option. `expand` turns `~/` into a home directory.
///
/// # Errors
/// The value is malformed: the text names the problem and the correct form.
pub(crate) fn parse_log_line(
    text: &str,
    expand: &dyn Fn(&str) -> Option<PathBuf>,
) -> Result<LogLine, String> {
    let (takes, destination) = parse_severities(text)?;
    let mut words = destination.split_ascii_whitespace();
    let first = words.next().unwrap_or("stdout");
    let to = match (first.to_ascii_lowercase().as_str(), words.next()) {
        ("stdout", None) => Destination::Stdout,
        ("stderr", None) => Destination::Stderr,
        ("syslog", None) => Destination::Syslog,
        ("file", Some(_)) => {
            // A path may hold spaces: everything behind the word is the path.
            let path = destination.get(first.len()..).unwrap_or_default().trim();
            Destination::File(
                expand(path)
                    .ok_or_else(|| format!("the home directory in \"{path}\" is not known"))?,
            )
        }
        _ => {
            return Err(format!(
                "\"{destination}\" is none of: stdout, stderr, syslog, file and its path"
            ));
        }
    };
    Ok(LogLine { takes, to })
}

/// Reads severities up to the destination, which is returned with them.
fn parse_severities(text: &str) -> Result<(SeverityMask, &str), String> {
    let mut mask = SeverityMask::default();
    let mut rest = text.trim();
    let mut plain_ranges = 0;
    let mut any = false;
    while !rest.is_empty() {
        let mut domains = Domains::ALL;
        if let Some(list) = rest.strip_prefix('[') {
            let (list, after) = list
                .split_once(']')
                .ok_or("a list of domains lacks its ]")?;
            domains = parse_domains(list)?;
            rest = after.trim_start();
        } else {
            plain_ranges += 1;
        }
        if DESTINATIONS.iter().any(|d| {
            rest.get(..d.len())
                .is_some_and(|s| s.eq_ignore_ascii_case(d))
        }) {
            break;
        }
        if plain_ranges > 1 {
            return Err(format!(
                "\"{rest}\" is no destination (stdout, stderr, syslog, file and its path)"
            ));
        }
        let end = rest
            .find(|c: char| c.is_ascii_whitespace())
            .unwrap_or(rest.len());
        let (range, after) = rest.split_at(end);
        let (least, most) = range.split_once('-').unwrap_or((range, "err"));
        let severity = |word: &str| {
            Severity::from_name(word).ok_or_else(|| {
                format!("\"{word}\" is no severity (debug, info, notice, warn, err)")
            })
        };
        mask.add(severity(most)?, severity(least)?, domains);
        any = true;
        rest = after.trim_start();
    }
    if any {
        Ok((mask, rest))
    } else {
        Err("it names no severity (debug, info, notice, warn, err)".to_owned())
    }
}

fn parse_domains(list: &str) -> Result<Domains, String> {
    let (mut taken, mut left_out) = (Domains::NONE, Domains::NONE);
    for word in list.split(',').map(str::trim) {
        if word == "*" {
            taken = Domains::ALL;
            continue;
        }
        let (negated, name) = match word.strip_prefix('~') {
            Some(name) => (true, name),
            None => (false, word),
        };
        let domain =
            Domains::from_name(name).ok_or_else(|| format!("\"{name}\" is no logging domain"))?;
        let set = if negated { &mut left_out } else { &mut taken };
        *set = set.union(domain);
    }
    if taken.is_empty() && !left_out.is_empty() {
        taken = Domains::ALL;
    }
    Ok(taken.without(left_out))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<LogLine, String> {
        parse_log_line(text, &|path| Some(PathBuf::from(path)))
    }

    fn domain(name: &str) -> Domains {
        Domains::from_name(name).unwrap()
    }

    #[test]
    fn severities_and_destinations() {
        for (text, least, to) in [
            ("notice", Severity::Notice, Destination::Stdout),
            ("NOTICE stdout", Severity::Notice, Destination::Stdout),
            ("debug stderr", Severity::Debug, Destination::Stderr),
            ("info  syslog", Severity::Info, Destination::Syslog),
            (
                "warn file /var/log/a b",
                Severity::Warn,
                Destination::File("/var/log/a b".into()),
            ),
            ("warn FILE x", Severity::Warn, Destination::File("x".into())),
        ] {
            let line = parse(text).unwrap();
            assert_eq!(line.takes.least(), Some(least), "{text}");
            assert!(line.takes.takes(Severity::Err, Domains::ALL), "{text}");
            assert_eq!(line.to, to, "{text}");
        }
    }

    #[test]
    fn a_range_ends_at_its_end() {
        let takes = parse("debug-notice stdout").unwrap().takes;
        assert!(takes.takes(Severity::Debug, Domains::ALL));
        assert!(takes.takes(Severity::Notice, Domains::ALL));
        assert!(!takes.takes(Severity::Warn, Domains::ALL));
    }

    #[test]
    fn domains_choose_and_leave_out() {
        let takes = parse("[net,~dir]info [~or]warn-err [*,~bug]debug-debug notice file x")
            .unwrap()
            .takes;
        assert!(takes.takes(Severity::Info, domain("NET")));
        assert!(!takes.takes(Severity::Info, domain("DIR")));
        assert!(takes.takes(Severity::Debug, domain("DIR")));
        assert!(!takes.takes(Severity::Debug, domain("BUG")));
        assert!(
            takes.takes(Severity::Warn, domain("OR")),
            "plain notice takes it"
        );
        assert!(takes.takes(Severity::Notice, domain("OR")));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "stdout",
            "loud stdout",
            "notice nowhere",
            "notice stdout x",
            "notice file",
            "notice info stdout",
            "[net stdout",
            "[net] stdout",
            "[nest]info stdout",
            "[]info stdout",
            "notice-loud stdout",
            "[net]",
            "info syslog tag",
        ] {
            assert!(parse(text).is_err(), "{text:?} gave {:?}", parse(text));
        }
    }
}
