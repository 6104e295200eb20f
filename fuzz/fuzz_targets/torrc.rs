//! torrc: whatever is read is dumped, and what is dumped is read back as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weft_config::lexer::lex;
use weft_config::settings::Settings;
use weft_config::{DumpKind, MemoryHost, Report, dump, load_text};

fn read(text: &[u8]) -> (Settings, Report) {
    let mut report = Report::default();
    let lines = lex(text, &"torrc".into(), &mut report);
    let mut settings = Settings::default();
    settings.assign(&lines, false, &mut report);
    (settings, report)
}

fuzz_target!(|data: &[u8]| {
    let (settings, _) = read(data);
    let text = dump(&settings, &Settings::default(), DumpKind::Full);
    let (again, report) = read(text.as_bytes());
    assert!(!report.has_errors(), "{report}\n{text}");
    assert_eq!(text, dump(&again, &Settings::default(), DumpKind::Full));

    // All of torrc's reading but files: what `%include` reads is not the fuzzer's.
    if let Ok(text) = std::str::from_utf8(data)
        && !text.contains("%include")
    {
        let _ = load_text(text, &MemoryHost::new());
    }
});
