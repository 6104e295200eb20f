//! Diffs between consensuses: made of any two documents, and applied as a directory sends them.
//!
//! Input: a document, a zero byte, and another document, or the commands of a diff.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weft_dir::consdiff::{ConsensusDigest, apply, is_diff};
use weft_dircache::consdiff::make;

fuzz_target!(|input: &str| {
    let Some((base, other)) = input.split_once('\0') else {
        return;
    };
    let from = ConsensusDigest::of(base);
    // What is made leads to where it must.
    if let Ok(diff) = make(base, other) {
        assert!(is_diff(&diff));
        let made = apply(base, from, &diff).expect("it was tried");
        assert_eq!(made, other);
        let another = ConsensusDigest([0; 32]);
        apply(base, another, &diff).expect_err("it begins at something else");
    }
    // Nobody knows a document of this digest, and nothing grows past what came in.
    let diff = format!(
        "network-status-diff-version 1\nhash {} {}\n{other}",
        from.hex(),
        "0".repeat(64)
    );
    apply(base, from, &diff).expect_err("no document has this digest");
    if let Ok(made) = apply(base, from, other) {
        assert!(made.len() <= base.len() + other.len() + 1);
    }
});
