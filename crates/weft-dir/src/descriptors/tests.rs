use super::*;
use crate::testing::{moment, now, relay, secs};

/// The descriptor and the extra-info document of a relay made from `seed`.
fn documents(seed: u64) -> [String; 2] {
    let signed = relay(seed).sign(&moment()).unwrap();
    [signed.router, signed.extra_info]
}

fn digests(kind: DocumentKind, all: &[u8]) -> Vec<DescriptorDigest> {
    split(kind, all).map(|piece| piece.digest).collect()
}

#[test]
fn documents_are_cut_with_or_without_annotations_and_name_their_extra_info() {
    let ([one, extra], [two, _]) = (documents(1), documents(2));
    let all = format!(
        "@downloaded-at 2026-11-21 01:00:00\n@source \"127.0.0.1\"\n{one}@source \"x\"\n{two}"
    );
    let pieces: Vec<Piece<'_>> = split(DocumentKind::Descriptor, all.as_bytes()).collect();
    let texts: Vec<&[u8]> = pieces.iter().map(|piece| piece.bytes).collect();
    assert_eq!(texts, [one.as_bytes(), two.as_bytes()]);
    let [piece, _] = &*pieces else {
        panic!("{pieces:?}");
    };
    assert_eq!(piece.published(), now());
    let extra_digests = digests(DocumentKind::ExtraInfo, extra.as_bytes());
    assert_eq!(piece.extra_info(), extra_digests.first().copied());
    assert_eq!(
        digests(DocumentKind::ExtraInfo, all.as_bytes()),
        [] as [DescriptorDigest; 0]
    );
}

#[test]
fn the_descriptor_of_a_bridge_that_c_tor_was_a_client_of_is_left_out() {
    let ([one, _], [two, _]) = (documents(1), documents(2));
    let kind = DocumentKind::Descriptor;
    let all = format!("@source \"x\"\n@purpose bridge\n{one}@purpose general\n{two}");
    assert_eq!(digests(kind, all.as_bytes()), digests(kind, two.as_bytes()));
}

#[test]
fn what_is_cut_off_or_too_long_is_left_out() {
    let [one, _] = documents(1);
    let kind = DocumentKind::Descriptor;
    for cut in 0..one.len() {
        assert_eq!(
            digests(kind, &one.as_bytes()[..cut]),
            [] as [DescriptorDigest; 0],
            "{cut}"
        );
    }
    let long = one.replacen(
        "\nplatform ",
        &format!("\ncontact {}\nplatform ", "x".repeat(20_000)),
        1,
    );
    let both = format!("{long}{one}");
    assert_eq!(
        digests(kind, both.as_bytes()),
        digests(kind, one.as_bytes())
    );
    let unsigned = one.replace("router-signature", "router-signatures");
    let both = format!("{unsigned}{one}");
    assert_eq!(
        digests(kind, both.as_bytes()),
        digests(kind, one.as_bytes())
    );
}

#[test]
fn paths_are_c_tors() {
    let digests = [[0xab; 20], [0x01; 20]];
    let joined = format!("{}+{}", "AB".repeat(20), "01".repeat(20));
    assert_eq!(
        DocumentKind::Descriptor.path(&digests),
        format!("/tor/server/d/{joined}.z")
    );
    assert_eq!(
        DocumentKind::ExtraInfo.path(&digests),
        format!("/tor/extra/d/{joined}.z")
    );
}

/// A store with these documents in a folder.
fn store(directory: &std::path::Path, texts: &[&str]) -> DescriptorStore {
    let mut store = DescriptorStore::new(DocumentKind::Descriptor);
    for text in texts {
        let pieces: Vec<Piece<'_>> = split(DocumentKind::Descriptor, text.as_bytes()).collect();
        store.add(directory, &pieces).unwrap();
    }
    store
}

fn read(store: &DescriptorStore, text: &str) -> Option<String> {
    let digest = digests(DocumentKind::Descriptor, text.as_bytes())[0];
    let bytes = store.get(&digest)?.read().unwrap();
    Some(String::from_utf8(bytes).unwrap())
}

#[test]
fn what_is_kept_is_read_again_and_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let ([one, _], [two, _]) = (documents(1), documents(2));
    let kept = store(directory.path(), &[&one, &two]);
    let mut again = DescriptorStore::new(DocumentKind::Descriptor);
    again.load(directory.path()).unwrap();
    for store in [&kept, &again] {
        assert_eq!(read(store, &one).as_deref(), Some(&*one));
        assert_eq!(read(store, &two).as_deref(), Some(&*two));
    }
    // Part of what could not be written stands at the end.
    crate::cache::append(directory.path(), "cached-descriptors.new", "router half a").unwrap();
    let [three, _] = documents(3);
    let pieces: Vec<Piece<'_>> = split(DocumentKind::Descriptor, three.as_bytes()).collect();
    again.add(directory.path(), &pieces).unwrap();
    assert_eq!(read(&again, &three).as_deref(), Some(&*three));
}

#[test]
fn what_is_old_and_not_listed_goes_and_the_files_are_written_anew() {
    let directory = tempfile::tempdir().unwrap();
    let texts: Vec<String> = (1..12).map(|seed| documents(seed)[0].clone()).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let mut store = store(directory.path(), &texts);
    let listed = digests(DocumentKind::Descriptor, texts[0].as_bytes());
    let day = secs(86_400);
    store
        .clean(
            directory.path(),
            |digest| listed.contains(digest),
            now() + 4 * day,
        )
        .unwrap();
    assert_eq!(read(&store, texts[5]).as_deref(), Some(texts[5]));
    // An answer that was found before goes on.
    let found = store
        .get(&digests(DocumentKind::Descriptor, texts[5].as_bytes())[0])
        .unwrap()
        .clone();
    store
        .clean(
            directory.path(),
            |digest| listed.contains(digest),
            now() + 5 * day,
        )
        .unwrap();
    assert_eq!(read(&store, texts[0]).as_deref(), Some(texts[0]));
    assert_eq!(read(&store, texts[5]), None);
    assert_eq!(found.read().unwrap(), texts[5].as_bytes());
    let file = std::fs::read_to_string(directory.path().join("cached-descriptors")).unwrap();
    assert_eq!(file, texts[0]);
    assert_eq!(
        crate::cache::length(directory.path(), "cached-descriptors.new"),
        0
    );
}

#[test]
fn a_folder_that_cannot_be_written_keeps_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let [one, _] = documents(1);
    let pieces: Vec<Piece<'_>> = split(DocumentKind::Descriptor, one.as_bytes()).collect();
    let mut store = DescriptorStore::new(DocumentKind::Descriptor);
    assert!(store.add(&file, &pieces).is_err());
    assert_eq!(read(&store, &one), None);
}
