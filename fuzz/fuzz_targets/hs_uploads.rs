//! What services publish at a relay that is their directory, and what clients ask it for.
//!
//! Input: an HTTP request, with its body behind it.
#![no_main]

use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use libfuzzer_sys::fuzz_target;
use weft_dircache::hs_dir::{HsDir, read};
use weft_dircache::request::{Parsed, parse};

/// `HSV3MaxDescriptorSize`.
const LIMIT: usize = 50_000;
/// A request that publishes a good descriptor.
const GOOD: &[u8] = include_bytes!("../corpus/hs_uploads/a_descriptor");

/// A directory that holds the good descriptor.
static DIRECTORY: LazyLock<HsDir> = LazyLock::new(|| {
    let directory = HsDir::default();
    directory
        .publish(body(GOOD).expect("it is an upload"), now())
        .expect("it is good");
    directory
});

/// When all this happens.
fn now() -> (SystemTime, Duration) {
    let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_222_800);
    (wall, Duration::from_secs(1))
}

/// The body of an upload, as far as it has come.
fn body(input: &[u8]) -> Option<&[u8]> {
    let Parsed::Post(upload) = parse(input) else {
        return None;
    };
    let behind = input.get(upload.head..)?;
    Some(behind.get(..upload.length).unwrap_or(behind))
}

fuzz_target!(|input: &[u8]| {
    if let Parsed::Get(request) = parse(input)
        && let Some(key) = request.path.strip_prefix("/tor/hs/3/")
        && let Some(fetch) = DIRECTORY.fetch(key, now().1)
    {
        assert_eq!(Some(&*fetch.text), body(GOOD));
    }
    let Some(body) = body(input) else {
        return;
    };
    let Ok(descriptor) = read(body, LIMIT, now().0) else {
        return;
    };
    assert!(body.len() < LIMIT);
    let minutes = descriptor.lifetime.as_secs() / 60;
    assert!((30..=720).contains(&minutes), "{minutes}");
    let directory = HsDir::default();
    directory
        .publish(body, now())
        .expect("nothing else is there");
    directory.publish(body, now()).expect_err("it is not newer");
    assert_eq!(directory.counts().descriptors, 1);
    directory.clean(now().1 + descriptor.lifetime);
    assert_eq!(directory.memory(), Default::default());
});
