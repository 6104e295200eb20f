//! Files of `DataDirectory/stats`.
//!
//! Input: eight bytes of time, then a file. What is published of a file is one of its kinds, and nothing in it could end a
//! document or begin another line.
#![no_main]

use std::time::{Duration, SystemTime};

use libfuzzer_sys::fuzz_target;
use weft_counts::extrainfo::StatsFile;

fuzz_target!(|input: &[u8]| {
    let Some((time, file)) = input.split_first_chunk::<8>() else {
        return;
    };
    // As far as clocks go.
    let seconds = u64::from_le_bytes(*time) % (1 << 40);
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let text = String::from_utf8_lossy(file);
    let kinds = StatsFile::ALL.iter();
    let taken: Vec<_> = kinds
        .filter(|kind| kind.recent(&text, now).is_ok())
        .collect();
    assert!(taken.len() <= 1, "{taken:?}");
    if !taken.is_empty() {
        assert!(text.len() <= StatsFile::MOST && text.ends_with('\n'));
        assert!(!text.contains("\n\n") && !text.contains("\n-----"));
        assert!(!text.lines().any(|line| line.starts_with("router-")));
        assert!(
            text.bytes()
                .all(|byte| byte == b'\n' || (b' '..=b'~').contains(&byte))
        );
    }
});
