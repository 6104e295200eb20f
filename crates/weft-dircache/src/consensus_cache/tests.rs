use super::*;
use crate::testing::{now, secs};

/// The consensus of this hour, with this many relays that it shares with others and one of its own.
fn consensus(hour: u32, relays: u32) -> NewConsensus {
    let mut text = format!("network-status-version 3 microdesc\nvalid-after {hour}\n");
    for relay in 0..relays {
        text += &format!(
            "r relay{relay} {:05}AAAA 2038-01-01\nw Bandwidth={}\n",
            relay,
            relay * 7919 % 10_007
        );
    }
    text += &format!(
        "r own{hour} 9{hour:03} 2038-01-01\nw Bandwidth={hour}\ndirectory-footer\ndirectory-signature sha256 x\n"
    );
    let valid_after = now() + secs(3600) * hour;
    NewConsensus {
        status: Status {
            flavour: ConsensusFlavor::Microdesc,
            valid_after,
            fresh_until: valid_after + secs(3600),
            valid_until: valid_after + secs(3 * 3600),
            signers: vec![[1; 20].into()],
        },
        digest: ConsensusDigest::of(&text),
        text,
    }
}

const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// Serves `new` by `cache`.
fn add(cache: &mut ConsensusCache, documents: &CachedDocuments, new: &NewConsensus) -> Messages {
    documents.set_consensus(new);
    let now = new.status.valid_after;
    cache.add(new, documents, YEAR, now, &AtomicBool::new(false))
}

/// Numbers, kinds and compressions of the files, as another run finds them.
fn files(directory: &Path) -> Vec<(u32, bool, Compression)> {
    let mut cache = ConsensusCache::new(directory);
    cache.read();
    let mut files: Vec<_> = (cache.entries())
        .map(|entry| {
            let is_diff = matches!(entry.labels.kind, Kind::Diff { .. });
            (entry.number, is_diff, entry.labels.compression)
        })
        .collect();
    files.sort();
    files
}

/// The diff from `from` that is served, decompressed from each of its forms.
fn served_diff(documents: &CachedDocuments, from: &NewConsensus) -> Option<String> {
    let path = format!(
        "/tor/status-vote/current/consensus-microdesc/diff/{}",
        from.digest.hex()
    );
    let mut diff = None;
    for coding in ["identity", "gzip", "x-zstd", "x-tor-lzma"] {
        let head = format!("GET {path} HTTP/1.0\r\nAccept-Encoding: {coding}\r\n\r\n");
        let crate::request::Parsed::Get(request) = crate::request::parse(head.as_bytes()) else {
            panic!("{head}");
        };
        let peer = std::net::Ipv4Addr::LOCALHOST.into();
        let at = from.status.valid_after + secs(3600);
        let mut answer = crate::answer::Answer::new(documents, &request, at, peer);
        let head = weft_dir::http::parse_head(answer.head.as_bytes())
            .unwrap()
            .unwrap();
        if head.status != 200 {
            assert_eq!(
                (head.status, &*head.reason),
                (404, "No such diff available")
            );
            return None;
        }
        assert_eq!(head.compression.name(), coding);
        let body = answer.body.next(usize::MAX).unwrap();
        let text = decode(body, head.compression, 1 << 24).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(diff.is_none_or(|other| other == text));
        diff = Some(text);
    }
    diff
}

#[test]
fn each_older_consensus_has_a_diff_to_the_newest_also_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let documents = CachedDocuments::default();
    let mut cache = ConsensusCache::new(directory.path());
    let consensuses: Vec<NewConsensus> = (1..=3).map(|hour| consensus(hour, 200)).collect();
    for new in &consensuses {
        assert_eq!(add(&mut cache, &documents, new), []);
    }
    let [one, two, three] = &*consensuses else {
        panic!();
    };
    let check = |documents: &CachedDocuments| {
        for base in [one, two] {
            let diff = served_diff(documents, base).unwrap();
            assert_eq!(diff, consdiff::make(&base.text, &three.text).unwrap());
            assert_eq!(
                weft_dir::consdiff::apply(&base.text, base.digest, &diff).unwrap(),
                three.text
            );
        }
        assert_eq!(served_diff(documents, &consensus(9, 1)), None);
    };
    check(&documents);
    // The newest in four forms, two older ones, two diffs in four forms.
    let before = files(directory.path());
    assert_eq!(before.len(), 4 + 2 + 8);
    assert_eq!(before.first().map(|file| file.0), Some(FIRST_FILE));

    let stamps = || {
        let files = fs::read_dir(directory.path().join(cache::DIFFS)).unwrap();
        let mut stamps: Vec<_> = files
            .map(|file| file.unwrap().metadata().unwrap().modified().unwrap())
            .collect();
        stamps.sort();
        stamps
    };
    let written = stamps();
    let documents = CachedDocuments::default();
    assert_eq!(
        add(
            &mut ConsensusCache::new(directory.path()),
            &documents,
            three
        ),
        []
    );
    check(&documents);
    assert_eq!(files(directory.path()), before);
    assert_eq!(stamps(), written, "nothing is made again");
}

#[test]
fn number_and_age_of_older_consensuses_are_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let documents = CachedDocuments::default();
    let mut cache = ConsensusCache::new(directory.path());
    for hour in 1..30 {
        add(&mut cache, &documents, &consensus(hour, 3));
    }
    assert_eq!(documents.diffs(ConsensusFlavor::Microdesc).len(), MAX_OLDER);
    assert_eq!(files(directory.path()).len(), 4 + MAX_OLDER * 5);
    assert_eq!(served_diff(&documents, &consensus(4, 3)), None);
    assert!(served_diff(&documents, &consensus(5, 3)).is_some());
    // Two hours.
    let new = consensus(30, 3);
    documents.set_consensus(&new);
    let at = new.status.valid_after;
    cache.add(
        &new,
        &documents,
        secs(2 * 3600),
        at,
        &AtomicBool::new(false),
    );
    assert_eq!(documents.diffs(ConsensusFlavor::Microdesc).len(), 2);
    assert_eq!(files(directory.path()).len(), 4 + 2 * 5);
    // None at all.
    let new = consensus(31, 3);
    documents.set_consensus(&new);
    cache.add(
        &new,
        &documents,
        Duration::ZERO,
        new.status.valid_after,
        &AtomicBool::new(false),
    );
    assert_eq!(files(directory.path()).len(), 4);
}

#[test]
fn what_was_damaged_or_is_none_of_ours_is_removed_and_made_again() {
    let directory = tempfile::tempdir().unwrap();
    let documents = CachedDocuments::default();
    let mut cache = ConsensusCache::new(directory.path());
    let (one, two) = (consensus(1, 50), consensus(2, 50));
    add(&mut cache, &documents, &one);
    add(&mut cache, &documents, &two);
    let folder = directory.path().join(cache::DIFFS);
    // Every file of a diff is cut short.
    for (number, is_diff, _) in files(directory.path()) {
        if is_diff {
            let path = folder.join(number.to_string());
            let bytes = fs::read(&path).unwrap();
            fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        }
    }
    fs::write(folder.join("1999.tmp"), "half").unwrap();
    fs::write(folder.join("4711"), "labels that are none\n").unwrap();
    fs::write(folder.join("README"), "left alone").unwrap();
    let documents = CachedDocuments::default();
    assert_eq!(
        add(&mut ConsensusCache::new(directory.path()), &documents, &two),
        []
    );
    assert!(served_diff(&documents, &one).is_some());
    assert!(!folder.join("4711").exists() && !folder.join("1999.tmp").exists());
    assert!(folder.join("README").exists());
}

#[test]
fn the_flavours_do_not_meet() {
    let directory = tempfile::tempdir().unwrap();
    let documents = CachedDocuments::default();
    let mut cache = ConsensusCache::new(directory.path());
    add(&mut cache, &documents, &consensus(1, 3));
    let mut ns = consensus(2, 3);
    ns.status.flavour = ConsensusFlavor::Plain;
    add(&mut cache, &documents, &ns);
    assert_eq!(documents.diffs(ConsensusFlavor::Plain), []);
    add(&mut cache, &documents, &consensus(3, 3));
    assert_eq!(
        documents.diffs(ConsensusFlavor::Microdesc),
        [consensus(1, 3).digest]
    );
    assert_eq!(files(directory.path()).len(), 4 + 4 + 5);
}

#[test]
fn a_stopped_task_makes_no_more() {
    let directory = tempfile::tempdir().unwrap();
    let documents = CachedDocuments::default();
    let mut cache = ConsensusCache::new(directory.path());
    let new = consensus(1, 3);
    documents.set_consensus(&new);
    cache.add(&new, &documents, YEAR, now(), &AtomicBool::new(true));
    assert_eq!(files(directory.path()), []);
}

#[test]
fn a_folder_that_cannot_be_written_is_one_warning_and_the_consensus_is_served_from_memory() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join(cache::DIFFS), "a file").unwrap();
    let documents = CachedDocuments::default();
    let mut cache = ConsensusCache::new(directory.path());
    let messages = add(&mut cache, &documents, &consensus(1, 50));
    assert!(
        matches!(&*messages, [(Severity::Warn, text)] if text.contains(cache::DIFFS)),
        "{messages:?}"
    );
    assert_eq!(documents.diffs(ConsensusFlavor::Microdesc), []);
}

#[test]
fn a_consensus_that_no_diff_can_be_made_of_is_passed_over() {
    let directory = tempfile::tempdir().unwrap();
    let documents = CachedDocuments::default();
    let mut cache = ConsensusCache::new(directory.path());
    let mut unsorted = consensus(1, 3);
    unsorted.text = unsorted.text.replace("r relay0 00000", "r relay0 00001");
    unsorted.digest = ConsensusDigest::of(&unsorted.text);
    add(&mut cache, &documents, &unsorted);
    add(&mut cache, &documents, &consensus(2, 3));
    let messages = add(&mut cache, &documents, &consensus(3, 3));
    assert!(
        matches!(&*messages, [(Severity::Info, text)] if text.contains("sorted")),
        "{messages:?}"
    );
    assert_eq!(
        documents.diffs(ConsensusFlavor::Microdesc),
        [consensus(2, 3).digest]
    );
}
