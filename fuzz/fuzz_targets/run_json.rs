//! `run.json` of a results folder, which `weft lab report` reads wherever it comes from.
//!
//! Input: the file. Whatever it is, it is read or refused. What was read can be written and read again, and its page
//! and its comparison with itself have no element that it brought along, and no difference.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use weft_lab::report::{Comparison, Named, Run};

fuzz_target!(|input: &[u8]| {
    let Ok(run) = Run::parse(input) else {
        return;
    };
    let Ok(written) = serde_json::to_vec(&run) else {
        panic!("a run that cannot be written");
    };
    assert!(Run::parse(&written).is_ok());
    let page = run.page(Path::new("/nonexistent"));
    let is_whole = |page: &str| page.ends_with("</body>\n</html>\n");
    assert!(is_whole(&page) && is_plain(&page) && no_controls(&run.text()));
    let named = |name: &str| Named {
        name: name.to_owned(),
        run: run.clone(),
    };
    let Ok(comparison) = Comparison::of(vec![named("one"), named("other")]) else {
        panic!("a run that cannot be compared with itself");
    };
    assert!(comparison.differing.is_empty());
    for table in &comparison.tables {
        for change in table.rows.iter().flat_map(|row| &row.changes).flatten() {
            assert!(change.percent.abs() < 1e-6, "{change:?}");
        }
    }
    let page = comparison.page();
    assert!(is_whole(&page) && is_plain(&page) && no_controls(&comparison.text()));
});

/// Whether no text of the file became an element that loads or runs something.
fn is_plain(page: &str) -> bool {
    ![
        "<script", "<iframe", "<object", "<embed", "<link", "<base", "<svg", "<form",
    ]
    .iter()
    .any(|element| page.contains(element))
}

/// Whether a terminal reads no commands in it.
fn no_controls(text: &str) -> bool {
    !text.chars().any(|c| c.is_control() && c != '\n')
}
