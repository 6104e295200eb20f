//! Microdescriptors as directories send them and as cache files hold them.
//!
//! Input: a document of several.
#![no_main]

use std::time::{Duration, SystemTime};

use libfuzzer_sys::fuzz_target;
use weft_dir::microdesc::{MicrodescStore, split};

fuzz_target!(|input: &[u8]| {
    let Ok(document) = std::str::from_utf8(input) else {
        return;
    };
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_222_800);
    let mut store = MicrodescStore::default();
    let mut end = 0;
    for piece in split(document) {
        // Pieces follow each other, are cut from the document, and are whole when cut again.
        let begin = piece.text.as_ptr() as usize - document.as_ptr() as usize;
        assert!(begin >= end && piece.text.starts_with("onion-key"));
        end = begin + piece.text.len();
        let again: Vec<_> = split(piece.text).collect();
        assert_eq!(again.len(), 1);
        assert_eq!(again[0].text, piece.text);
        store.add(piece.digest(), piece.text, now);
        assert_eq!(
            store.get(&piece.digest()).map(|text| &**text),
            Some(piece.text)
        );
    }
    assert!(end <= document.len());
});
