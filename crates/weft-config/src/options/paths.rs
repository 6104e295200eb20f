//! Paths, guards and build times (config.c, `options_validate_cb`).

use weft_path::{
    Acceptance, BuildTimesOptions, NodeSet, PathBiasOptions, PathBiasSet, PathOptions,
};

use crate::options::reachable::reachable;
use crate::report::Report;
use crate::settings::Settings;
use crate::table::find::nearest_of;
use crate::table::key::Key;
use crate::table::keys;

/// A shorter `CircuitBuildTimeout` that is not learnt is worth a warning, in seconds.
const SHORT_BUILD_TIMEOUT: u64 = 10;

/// Options of path selection. The node's own identity is filled in elsewhere.
pub(crate) fn path_options(settings: &Settings, report: &mut Report) -> PathOptions {
    let exit_nodes = node_set(keys::ExitNodes, settings, report);
    let entry_nodes = node_set(keys::EntryNodes, settings, report);
    let middle_nodes = node_set(keys::MiddleNodes, settings, report);
    let exclude_nodes = node_set(keys::ExcludeNodes, settings, report).unwrap_or_default();
    let exclude_exit_nodes = node_set(keys::ExcludeExitNodes, settings, report).unwrap_or_default();
    let mut node_families = Vec::new();
    for line in settings.lines(keys::NodeFamily) {
        match line.value.parse() {
            Ok(set) => node_families.push(set),
            Err(why) => report.error(Some(&line.origin), format!("NodeFamily: {why}")),
        }
    }
    let use_entry_guards = settings.flag(keys::UseEntryGuards);
    if entry_nodes.is_some() && !use_entry_guards {
        report.error(
            settings.origin(keys::EntryNodes),
            "EntryNodes is set, so UseEntryGuards must be 1",
        );
    }
    let mut long_lived_ports = Vec::new();
    for word in settings.words(keys::LongLivedPorts) {
        match word.parse() {
            Ok(port) if port != 0 => long_lived_ports.push(port),
            _ => report.error(
                settings.origin(keys::LongLivedPorts),
                format!("LongLivedPorts: \"{word}\" is not a port"),
            ),
        }
    }
    let path_bias_set = path_bias(settings);
    PathOptions {
        exit_nodes,
        entry_nodes,
        middle_nodes,
        exclude_nodes,
        exclude_exit_nodes,
        node_families,
        enforce_distinct_subnets: settings.flag(keys::EnforceDistinctSubnets),
        long_lived_ports,
        use_entry_guards,
        use_bridges: settings.flag(keys::UseBridges),
        num_entry_guards: count(keys::NumEntryGuards, settings),
        num_directory_guards: count(keys::NumDirectoryGuards, settings),
        num_primary_guards: count(keys::NumPrimaryGuards, settings),
        guard_lifetime: settings.time_or_none(keys::GuardLifetime),
        reachable: reachable(settings, report),
        own_identity: None,
        path_bias: path_bias_set.over(&PathBiasOptions::default()),
        path_bias_set,
    }
}

/// Timeouts of circuit building.
pub(crate) fn build_times_options(settings: &Settings, report: &mut Report) -> BuildTimesOptions {
    let learn = settings.flag(keys::LearnCircuitBuildTimeout);
    let set = settings.time(keys::CircuitBuildTimeout).as_secs();
    if !learn && (1..SHORT_BUILD_TIMEOUT).contains(&set) {
        report.warn(
            settings.origin(keys::CircuitBuildTimeout),
            format!(
                "CircuitBuildTimeout of {set} seconds is short where LearnCircuitBuildTimeout is \
                 0: many circuits may fail. {SHORT_BUILD_TIMEOUT} seconds or more are usual",
            ),
        );
    }
    BuildTimesOptions {
        learn,
        timeout: settings.time_or_none(keys::CircuitBuildTimeout),
        acceptance: word_of(keys::CircuitAcceptance, &ACCEPTANCES, settings, report),
        quantile: Some(settings.double(keys::CircuitAcceptanceQuantile)).filter(|set| *set >= 0.0),
    }
}

/// `CircuitAcceptance`, the default first.
const ACCEPTANCES: [(&str, Acceptance); 4] = [
    ("cbt", Acceptance::Cbt),
    ("rtt", Acceptance::Rtt),
    ("both", Acceptance::Both),
    ("none", Acceptance::None),
];

/// An option whose value is one of these words, in upper or lower case; the first word where it is
/// unknown or not set.
pub(crate) fn word_of<T: Copy + Default>(
    key: Key<String>,
    words: &[(&str, T)],
    settings: &Settings,
    report: &mut Report,
) -> T {
    let word = settings.text(key).unwrap_or_default();
    if word.is_empty() {
        return T::default();
    }
    let found = words
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(word));
    if let Some((_, value)) = found {
        return *value;
    }
    let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
    let hint = match nearest_of(word, names.iter().copied()) {
        Some(name) => format!("; did you mean {name}?"),
        None => String::new(),
    };
    report.error(
        settings.origin(key),
        format!("{key}: \"{word}\" is none of {}{hint}", names.join(", ")),
    );
    T::default()
}

/// A set of relays; none where nothing is set.
fn node_set(key: Key<String>, settings: &Settings, report: &mut Report) -> Option<NodeSet> {
    let set: NodeSet = match settings.text(key)?.parse() {
        Ok(set) => set,
        Err(why) => {
            report.error(settings.origin(key), format!("{key}: {why}"));
            return None;
        }
    };
    let is_country = |word: &&str| word.len() == 2 && word.bytes().all(|b| b.is_ascii_alphabetic());
    let words = settings.text(key).unwrap_or_default().split(',');
    for word in words.map(str::trim).filter(is_country) {
        report.warn(
            settings.origin(key),
            format!("{key}: \"{word}\" is the nickname of a relay. The country is {{{word}}}"),
        );
    }
    (!set.is_empty()).then_some(set)
}

/// A number; 0 means that the consensus decides.
fn count(key: Key<i64>, settings: &Settings) -> Option<usize> {
    usize::try_from(settings.number(key))
        .ok()
        .filter(|&number| number > 0)
}

fn path_bias(settings: &Settings) -> PathBiasSet {
    let rate = |key: Key<f64>| Some(settings.double(key)).filter(|rate| *rate >= 0.0);
    let notice_rate = rate(keys::PathBiasNoticeRate);
    let warn_rate = rate(keys::PathBiasWarnRate);
    let extreme_rate = rate(keys::PathBiasExtremeRate);
    let notice_use_rate = rate(keys::PathBiasNoticeUseRate);
    let extreme_use_rate = rate(keys::PathBiasExtremeUseRate);
    // Thresholds below C tor's least are as good as not set.
    let threshold = |key: Key<i64>, least: i32| {
        i32::try_from(settings.number(key))
            .ok()
            .filter(|&set| set >= least)
            .map(f64::from)
    };
    PathBiasSet {
        circ_threshold: threshold(keys::PathBiasCircThreshold, 5),
        notice_rate,
        warn_rate,
        extreme_rate,
        drop_guards: settings.auto_flag(keys::PathBiasDropGuards),
        scale_threshold: threshold(keys::PathBiasScaleThreshold, 10),
        use_threshold: threshold(keys::PathBiasUseThreshold, 3),
        notice_use_rate,
        extreme_use_rate,
        scale_use_threshold: threshold(keys::PathBiasScaleUseThreshold, 10),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::host::MemoryHost;
    use crate::load_text;

    #[test]
    fn without_an_option_paths_are_as_c_tor_has_them() {
        let options = load_text("", &MemoryHost::new()).unwrap().options;
        assert_eq!(options.paths, PathOptions::default());
        assert_eq!(options.build_times, BuildTimesOptions::default());
        let testing = "TestingTorNetwork 1\nDirAuthority a orport=5000 \
            v3ident=E8A9C45EDE6D711294FADF8E7951F4DE6CA56B58 \
            127.0.0.1:7000 7EA6EAD6FD83083C538F44038BBFA077587DD755\n";
        let options = load_text(testing, &MemoryHost::new()).unwrap().options;
        assert!(!options.paths.enforce_distinct_subnets);
    }

    #[test]
    fn everything_that_can_be_set_arrives() {
        let text = "ExitNodes a, 10.0.0.0/8\nEntryNodes $0123456789012345678901234567890123456789\n\
            MiddleNodes b\nExcludeNodes c\nExcludeExitNodes d\nNodeFamily e,f\nNodeFamily g,h\n\
            EnforceDistinctSubnets 0\nLongLivedPorts 22,443\nNumEntryGuards 2\n\
            NumDirectoryGuards 4\nNumPrimaryGuards 5\nGuardLifetime 60 days\nClientUseIPv6 0\n\
            PathBiasNoticeRate 0.5\nPathBiasDropGuards 1\nPathBiasCircThreshold 4\n\
            PathBiasUseThreshold 7\nLearnCircuitBuildTimeout 0\nCircuitBuildTimeout 20\n\
            CircuitAcceptance None\nCircuitAcceptanceQuantile 0.5\n";
        let options = load_text(text, &MemoryHost::new()).unwrap().options;
        let paths = &options.paths;
        let text = |set: &Option<NodeSet>| set.as_ref().unwrap().to_string();
        assert_eq!(text(&paths.exit_nodes), "a, 10.0.0.0/8");
        assert_eq!(text(&paths.middle_nodes), "b");
        assert!(paths.entry_nodes.is_some() && paths.node_families.len() == 2);
        assert_eq!(paths.exclude_nodes.to_string(), "c");
        assert_eq!(paths.exclude_exit_nodes.to_string(), "d");
        assert!(!paths.enforce_distinct_subnets && paths.reachable.ipv4 && !paths.reachable.ipv6);
        assert_eq!(paths.long_lived_ports, [22, 443]);
        assert_eq!(
            (
                paths.num_entry_guards,
                paths.num_directory_guards,
                paths.num_primary_guards
            ),
            (Some(2), Some(4), Some(5))
        );
        assert_eq!(paths.guard_lifetime, Some(Duration::from_secs(60 * 86_400)));
        let bias = &paths.path_bias;
        assert!(bias.drop_guards);
        let of = (bias.notice_rate, bias.circ_threshold, bias.use_threshold);
        assert!(of == (0.5, 150.0, 7.0), "{of:?}");
        assert_eq!(
            options.build_times,
            BuildTimesOptions {
                learn: false,
                timeout: Some(Duration::from_secs(20)),
                acceptance: Acceptance::None,
                quantile: Some(0.5),
            }
        );
    }

    #[test]
    fn a_misspelt_acceptance_is_answered_with_the_nearest_word() {
        for (word, hint) in [
            ("ctb", "; did you mean cbt?"),
            ("nome", "; did you mean none?"),
            ("rrt", "; did you mean rtt?"),
            ("bot", "; did you mean both?"),
            ("everything", ""),
        ] {
            let text = format!("CircuitAcceptance {word}");
            let report = load_text(&text, &MemoryHost::new()).map(|_| ());
            let error =
                format!("CircuitAcceptance: \"{word}\" is none of cbt, rtt, both, none{hint}");
            let report = report.unwrap_err().to_string();
            assert!(report.trim_end().ends_with(&error), "{report}");
        }
        for (word, acceptance) in [("rtt", Acceptance::Rtt), ("BOTH", Acceptance::Both)] {
            let text = format!("CircuitAcceptance {word}");
            let loaded = load_text(&text, &MemoryHost::new()).unwrap();
            assert_eq!(loaded.options.build_times.acceptance, acceptance);
        }
        let cleared = load_text("CircuitAcceptance", &MemoryHost::new()).unwrap();
        assert_eq!(cleared.options.build_times.acceptance, Acceptance::Cbt);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "ExitNodes two words",
            "NodeFamily a,,1.2.3.4/99",
            "LongLivedPorts 22,ssh",
            "EntryNodes a\nUseEntryGuards 0",
            "PathBiasNoticeRate 1.5",
            "CircuitAcceptanceQuantile 0.4",
            "CircuitAcceptanceQuantile 1",
            "CircuitSelection abracadabra",
        ] {
            let report = load_text(text, &MemoryHost::new()).map(|_| ()).unwrap_err();
            assert!(report.has_errors(), "{text}");
        }
        let loaded = load_text("ExcludeNodes {de},{??}", &MemoryHost::new()).unwrap();
        assert!(loaded.options.paths.names_countries());
        let told = |loaded: &crate::Loaded| {
            let mut messages = loaded.report.messages().iter();
            messages.any(|message| message.text.contains("The country is {us}"))
        };
        assert!(!told(&loaded));
        // No relay is called so, and a client would find no exit.
        let loaded = load_text("ExitNodes us, exit1", &MemoryHost::new()).unwrap();
        assert!(told(&loaded));
    }
}
