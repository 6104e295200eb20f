//! Several identities in one process (`weft -f A -f B`): each torrc is one identity's, and the options of the process
//! ([`of_process`](crate::table::known::Known::of_process)) have one value. An identity whose torrc does not set such an option
//! follows the one that does; two that set it to different values are an error.

use crate::host::Host;
use crate::load::command_line::CommandLine;
use crate::load::torrc::{Assigned, Loaded, read};
use crate::report::Report;
use crate::settings::Settings;
use crate::table::KNOWN;
use crate::table::value::Value;

/// Reads the configuration of each identity that a command line names.
///
/// # Errors
/// Everything that is wrong with any of them.
pub fn load_all(command_line: &CommandLine, host: &dyn Host) -> Result<Vec<Loaded>, Report> {
    let lines = command_line.identities();
    let mut failed = Report::default();
    let mut all = Vec::new();
    for line in &lines {
        let torrc = line.torrc_name();
        match read(line, host) {
            Ok(assigned) => all.push((torrc, assigned)),
            Err(report) if !command_line.is_shared() => return Err(report),
            Err(report) => failed.join(report.about(&torrc)),
        }
    }
    agree(&mut all, &mut failed);
    let mut loaded: Vec<Loaded> = Vec::new();
    for (torrc, assigned) in all {
        match assigned.build(host) {
            Ok(one) if !command_line.is_shared() => loaded.push(one),
            Ok(mut one) => {
                one.report = one.report.about(&torrc);
                for other in &loaded {
                    one.report = one.report.without_events_of(&other.report);
                }
                loaded.push(one);
            }
            Err(report) if !command_line.is_shared() => return Err(report),
            Err(report) => failed.join(report.about(&torrc)),
        }
    }
    match failed.has_errors() {
        true => Err(failed),
        false => Ok(loaded),
    }
}

/// The places of the options of the process.
fn places() -> impl Iterator<Item = (usize, &'static str)> {
    let all = KNOWN.iter().enumerate();
    all.filter(|(_, known)| known.of_process)
        .map(|(place, known)| (place, known.name))
}

/// Gives the options of the process one value.
fn agree(all: &mut [(String, Assigned)], report: &mut Report) {
    for (place, name) in places() {
        let decides = all.iter().find(|(_, one)| one.sets(place));
        let Some((torrc, value)) =
            decides.and_then(|(torrc, one)| Some((torrc.clone(), one.settings.at(place)?.clone())))
        else {
            continue;
        };
        let set_at = value.origin.as_ref().map_or(torrc, ToString::to_string);
        for (_, one) in all.iter_mut() {
            let own = one.settings.at(place);
            if let Some(own) = own.filter(|own| one.sets(place) && own.value != value.value) {
                let name = match &own.value {
                    // A list may be set by another name than its own.
                    Value::Lines(lines) => lines.first().map_or(name, |line| line.name),
                    _ => name,
                };
                let text = format!(
                    "{name} is of the whole process, and {set_at} sets it to something else: set it in one torrc, or alike in all"
                );
                report.error(own.origin.as_ref(), text);
            } else {
                one.settings.follow(place, &value);
            }
        }
    }
}

/// Keeps the old values of options that belong to the process, unless the new configuration sets
/// them.
pub(crate) fn keep(new: &mut Assigned, old: &Settings) {
    for (place, _) in places() {
        if let Some(before) = old.at(place).filter(|_| !new.sets(place)) {
            new.settings.follow(place, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::keys;
    use crate::{ChangeError, MemoryHost, change, reload, reload_text};

    fn command_line() -> CommandLine {
        CommandLine::parse(["-f", "/a", "-f", "/b"].map(Into::into)).unwrap()
    }

    fn host(first: &str, second: &str) -> MemoryHost {
        let own = |text: &str, name: &str| format!("DataDirectory /data/{name}\n{text}");
        MemoryHost::new()
            .with_file("/a", own(first, "a"))
            .with_file("/b", own(second, "b"))
    }

    fn both(first: &str, second: &str) -> Result<Vec<Loaded>, String> {
        load_all(&command_line(), &host(first, second)).map_err(|report| report.to_string())
    }

    #[test]
    fn each_torrc_is_an_identity_and_what_is_of_the_process_is_set_once_for_all() {
        let all = both(
            "ORPort 1\nNickname one\nMaxMemInQueues 1 GB\n",
            "ORPort 2\nNickname two\nLog notice file /log\nNumCPUs 3\nPidFile /pid\n",
        )
        .unwrap();
        let [one, two] = &all[..] else {
            panic!("two");
        };
        assert_eq!(one.options.identity.nickname, "one");
        assert_eq!(two.options.identity.nickname, "two");
        for loaded in &all {
            let options = &loaded.options;
            assert_eq!(options.resources.max_mem_in_queues_set, Some(1 << 30));
            assert_eq!(options.resources.num_cpus, Some(3));
            assert_eq!(options.log.lines.len(), 1);
            assert_eq!(options.files.pid_file, Some("/pid".into()));
            let origin = options.settings.origin(keys::NumCPUs).unwrap();
            assert_eq!(origin.to_string(), "/b:5");
        }
    }

    #[test]
    fn what_two_torrcs_set_alike_agrees_and_what_they_do_not_is_named_with_both_lines() {
        both(
            "NumCPUs 2\nLog info stdout\n",
            "NumCPUs 2\nLog info stdout\n",
        )
        .unwrap();
        for (first, second, error) in [
            (
                "NumCPUs 2\n",
                "NumCPUs 0\n",
                "/b:2: NumCPUs is of the whole process, and /a:2 sets",
            ),
            (
                "Log info stdout\n",
                "\nLog notice stdout\n",
                "/b:3: Log is of the whole process, and /a:2 sets",
            ),
            (
                "MetricsPort 9100\n",
                "MetricsPort 9101\n",
                "/b:2: MetricsPort is of the whole process, and /a:2 sets",
            ),
        ] {
            let found = both(first, second).unwrap_err();
            assert!(found.starts_with(error), "{found}");
        }
    }

    #[test]
    fn the_defaults_torrc_yields_to_each_torrc() {
        let line = ["--defaults-torrc", "/d", "-f", "/a", "-f", "/b"];
        let line = CommandLine::parse(line.map(Into::into)).unwrap();
        let host = host("", "NumCPUs 2\n").with_file("/d", "NumCPUs 1\nUser tor\n");
        let all = load_all(&line, &host).unwrap();
        let mut read = Vec::new();
        for loaded in all {
            assert_eq!(loaded.options.resources.num_cpus, Some(2));
            assert_eq!(loaded.options.process.user.as_deref(), Some("tor"));
            let messages = loaded.report.messages().iter();
            let messages = messages.filter(|message| message.text.starts_with("Read "));
            read.extend(messages.map(ToString::to_string));
        }
        assert_eq!(
            read,
            [
                "Read defaults file \"/d\"",
                "Read configuration file \"/a\".",
                "Read configuration file \"/b\"."
            ]
        );
    }

    #[test]
    fn everything_that_is_wrong_with_any_torrc_is_reported_at_once_with_its_name() {
        let found = both("ORPrt 1\n", "Nickname -\nNumCPUs x\n").unwrap_err();
        for part in ["/a:2: ", "/b:2: ", "/b:3: "] {
            assert!(found.contains(part), "{found}");
        }
        let line = ["-f", "/a", "-f", "/not/there"].map(Into::into);
        let line = CommandLine::parse(line).unwrap();
        let found = load_all(&line, &host("ORPrt 1\n", ""))
            .unwrap_err()
            .to_string();
        assert!(
            found.contains("/a:2: ") && found.contains("/not/there: "),
            "{found}"
        );
    }

    #[test]
    fn a_reload_reads_all_torrcs_and_a_controller_leaves_the_process_alone() {
        let old = both("NumCPUs 2\nSafeLogging 0\n", "Nickname b\n").unwrap();
        let old = &old[1].options;
        let again = |first: &str, second: &str| {
            reload(&command_line(), 1, &host(first, second), old)
                .map_err(|report| report.to_string())
        };
        let (all, changes) = again("NumCPUs 2\nSafeLogging 1\n", "Nickname c\n").unwrap();
        assert_eq!(all.len(), 2);
        let mut names: Vec<_> = changes.iter().map(|change| change.name).collect();
        names.sort_unstable();
        assert_eq!(names, ["Nickname", "SafeLogging"]);
        assert!(
            again("Frob 1\n", "Nickname c\n")
                .unwrap_err()
                .contains("/a:2: ")
        );

        let text = |text: &str| reload_text(&command_line(), &host("", ""), text, old);
        let (kept, _) = text("DataDirectory /data/b\nNickname d\n").unwrap();
        assert_eq!(kept.options.resources.num_cpus, Some(2));
        assert!(matches!(
            text("DataDirectory /data/b\nNumCPUs 3\n"),
            Err(ChangeError::Transition(_))
        ));
        let set = |key: &str, value: Option<&str>, shared| {
            let pairs = [(key.to_owned(), value.map(str::to_owned))];
            change(old, &pairs, true, shared, &MemoryHost::new())
        };
        assert!(set("Nickname", Some("e"), true).is_ok());
        for value in [Some("1"), None] {
            let refused = set("SafeLogging", value, true);
            let Err(ChangeError::Transition(report)) = refused else {
                panic!("{refused:?}");
            };
            assert!(
                report
                    .to_string()
                    .contains("SafeLogging is of the whole process")
            );
            assert!(set("SafeLogging", value, false).is_ok());
        }
    }
}
