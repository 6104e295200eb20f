//! Torrcs as operators have them: none of their options is ignored with a warning.

use weft_config::{MemoryHost, load_text};
use weft_counts::accounting::{Rule, Start};
use weft_log::{SafeLogging, Severity};

/// The warnings about a torrc.
fn warnings(text: &str) -> Vec<String> {
    let loaded = load_text(text, &MemoryHost::new()).unwrap_or_else(|report| panic!("{report}"));
    let lines = loaded.report.lines();
    let warnings = lines.filter(|line| line.severity() <= Severity::Warn);
    warnings.map(|line| line.render(SafeLogging::Off)).collect()
}

#[test]
fn no_option_of_an_operator_s_torrc_is_ignored_with_a_warning() {
    let debian = include_str!("torrcs/debian_defaults");
    let relay = include_str!("torrcs/debian_relay");
    for text in [
        debian,
        &format!("{debian}{relay}"),
        include_str!("torrcs/ansible_relayor"),
        include_str!("torrcs/exit_with_accounting"),
        include_str!("torrcs/bridge_obfs4"),
    ] {
        let warnings = warnings(text);
        let unsupported = |warning: &&String| warning.contains("does not support");
        let ignored: Vec<_> = warnings.iter().filter(unsupported).collect();
        assert!(ignored.is_empty(), "{ignored:?}");
    }
}

#[test]
fn the_torrc_of_an_obfs4_bridge_has_no_warning_at_all() {
    let text = include_str!("torrcs/bridge_obfs4");
    assert_eq!(warnings(text), [""; 0]);
    let bridge = load_text(text, &MemoryHost::new())
        .unwrap()
        .options
        .bridge_relay;
    assert!(bridge.enabled);
    assert_eq!(bridge.programs.len(), 1);
    assert_eq!(bridge.programs[0].transports, ["obfs4"]);
    assert_eq!(bridge.ext_or_ports.len(), 1);
}

#[test]
fn a_torrc_with_an_option_that_is_missed_has_a_warning() {
    let warnings = warnings("SocksPort 9050\nHiddenServiceDir /h\nHiddenServicePort 80\n");
    assert!(
        warnings
            .iter()
            .any(|warning| warning.contains("does not support")),
        "{warnings:?}"
    );
}

#[test]
fn a_limit_is_what_torrc_sets_and_nonsense_is_refused_in_c_tor_s_words() {
    let loaded = load_text(
        include_str!("torrcs/exit_with_accounting"),
        &MemoryHost::new(),
    );
    let options = loaded.unwrap().options;
    let accounting = options.bandwidth.accounting;
    assert!(accounting.is_enabled() && accounting.avoid_disk_writes);
    assert_eq!((accounting.max, accounting.rule), (1 << 40, Rule::Sum));
    let start = Start::Week {
        day: 1,
        hour: 6,
        minute: 0,
    };
    assert_eq!((accounting.start, accounting.rate), (start, 10 << 17));
    let process = &options.process;
    assert!(process.sandbox && process.no_exec && process.disable_all_swap);
    assert_eq!(process.keep_bind_capabilities, Some(true));
    // Without a value it is as if it were not set.
    for line in ["AccountingRule", "AccountingRule \"\""] {
        let torrc = format!("SocksPort 9050\nAccountingMax 1 GB\n{line}\n");
        let loaded = load_text(&torrc, &MemoryHost::new()).unwrap();
        let accounting = loaded.options.bandwidth.accounting;
        assert_eq!(accounting.rule, Rule::Max, "{line}");
    }
    for (line, why) in [
        (
            "AccountingRule both",
            "must be 'sum', 'max', 'in', or 'out'",
        ),
        ("AccountingStart month 29 0:00", "between 1 and 28"),
        ("AccountingStart day noon", "not in HH:MM format"),
    ] {
        let torrc = format!("SocksPort 9050\nAccountingMax 1 GB\n{line}\n");
        let report = load_text(&torrc, &MemoryHost::new()).unwrap_err();
        assert!(report.to_string().contains(why), "{line}: {report}");
    }
}
