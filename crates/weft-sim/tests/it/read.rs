//! Reading documents: written ones are read again, documents of all years are read, and errors in
//! damaged ones name the line.

use std::io::Write as _;

use proptest::prelude::*;
use weft_sim::network::{Flags, Network};
use weft_sim::read::{ReadError, computed_weights, documents, parse};
use weft_sim::{synth, write};
use weft_testing::{not_run, real_document};

fn small() -> (Network, String) {
    let network = synth::network(12, 5).expect("a size");
    let text = write::consensus(&network);
    (network, text)
}

/// The line and the reason for which a document is refused.
fn refused(text: &str) -> (usize, String) {
    match parse(text.as_bytes(), "it") {
        Err(ReadError::Line { name, line, what }) => {
            assert_eq!(name, "it");
            (line, what)
        }
        other => panic!("{other:?} of a bad document"),
    }
}

#[test]
fn what_is_written_is_read_again() {
    for (relays, seed) in [(10, 1), (12, 5), (3000, 2)] {
        let network = synth::network(relays, seed).expect("a size");
        assert_eq!(network.relays.len(), relays as usize);
        let text = write::consensus(&network);
        assert_eq!(parse(text.as_bytes(), "it").expect("sound"), network);
        assert!(network.relays.iter().any(|one| one.flags.has(Flags::GUARD)));
    }
    assert!(synth::network(0, 1).is_err() && synth::network(u32::MAX, 1).is_err());
}

/// Consensuses of young networks have no bandwidths that count.
#[test]
fn without_any_bandwidth_relays_are_alike() {
    let (_, text) = small();
    let changed = |line: &str, with: Option<&str>| {
        let lines = text.lines().filter_map(|own| match own.starts_with(line) {
            true => with.map(str::to_owned),
            false => Some(own.to_owned()),
        });
        lines.map(|line| line + "\n").collect::<String>()
    };
    let zero = changed("w ", Some("w Bandwidth=0 Unmeasured=1"));
    for text in [
        &zero,
        &changed("w ", None),
        &zero.replace("\nbandwidth-weights ", "\nx-weights "),
    ] {
        let network = parse(text.as_bytes(), "it").expect("sound");
        assert!(network.relays.iter().all(|relay| relay.bandwidth == 1));
    }
}

#[test]
fn synthetic_networks_are_functions_of_size_and_seed() {
    let one = synth::network(300, 9).expect("a size");
    assert_eq!(one, synth::network(300, 9).expect("a size"));
    assert_ne!(one, synth::network(300, 10).expect("a size"));
}

#[test]
fn the_microdesc_flavour_is_read() {
    let (network, text) = small();
    let mut microdesc = String::new();
    for line in text.lines() {
        let line = match line.split(' ').collect::<Vec<_>>().as_slice() {
            ["network-status-version", "3"] => "network-status-version 3 microdesc".to_owned(),
            ["r", name, id, _, rest @ ..] => {
                format!("r {name} {id} {}\nm {}", rest.join(" "), "A".repeat(43))
            }
            ["p", ..] => continue,
            _ => line.to_owned(),
        };
        microdesc += &(line + "\n");
    }
    let read = parse(microdesc.as_bytes(), "it").expect("sound");
    assert_eq!(read.weights, network.weights);
    for (one, other) in read.relays.iter().zip(&network.relays) {
        assert_eq!(one.fingerprint, other.fingerprint);
        assert_eq!((one.bandwidth, one.flags), (other.bandwidth, other.flags));
        assert_eq!((one.microdesc, &one.policy), (Some([0; 32]), &None));
    }
}

#[test]
fn truncated_documents_are_refused_wherever_they_end() {
    let (_, text) = small();
    for end in 0..text.len() {
        let cut = text.get(..end).expect("it is ASCII");
        let (line, what) = refused(cut);
        assert_eq!(line, cut.matches('\n').count() + 1, "{what}");
    }
}

#[test]
fn what_is_damaged_is_refused_by_line() {
    let (network, text) = small();
    let weights = format!(
        "bandwidth-weights{}",
        text.split("bandwidth-weights")
            .nth(1)
            .and_then(|rest| rest.lines().next())
            .expect("they are there")
    );
    let first = text
        .lines()
        .position(|line| line.starts_with("r "))
        .expect("relays")
        + 1;
    let name = &network.relays[0].nickname;
    let flags = text
        .lines()
        .position(|line| line.starts_with("s "))
        .expect("flags")
        + 1;
    let bandwidth = format!("w Bandwidth={}\n", network.relays[0].bandwidth);
    let policy = text
        .lines()
        .find(|line| line.starts_with("p "))
        .expect("policies");
    let footer = text
        .lines()
        .position(|line| line == "directory-footer")
        .expect("one")
        + 1;
    for (from, to, line, why) in [
        (
            "network-status-version 3",
            "network-status-version 4",
            1,
            "only 3 is read",
        ),
        (
            "network-status-version 3",
            "network-status-version 3 odd",
            1,
            "flavour \"odd\"",
        ),
        ("network-status-version 3", "<html>", 1, "no consensus"),
        (
            "vote-status consensus",
            "vote-status vote",
            2,
            "no consensus",
        ),
        ("vote-status consensus\n", "", first - 1, "no vote-status"),
        (
            "valid-after 2021-08-29",
            "valid-after tomorrow",
            4,
            "no time",
        ),
        (&format!("r {name} "), "r no-name ", first, "no nickname"),
        (
            &format!("r {name} "),
            &format!("r {name} !"),
            first,
            "identity",
        ),
        (" 9001 0\n", " 90010 0\n", first, "ORPort"),
        (" 9001 0\n", " 9001\n", first, "DirPort"),
        ("\ns ", "\nx ", 0, "has no s line"),
        ("\ns ", "\ns Fast\ns ", flags + 1, "second s line"),
        (&bandwidth, "w Bandwidth=-1\n", 0, "Bandwidth"),
        (&bandwidth, "w Bandwidth=5000000000\n", 0, "Bandwidth"),
        (&bandwidth, "w Unmeasured=1\n", 0, "no Bandwidth"),
        (policy, "p accept 443-80", 0, "no list of ports"),
        (policy, "p accept 80,70000", 0, "no list of ports"),
        (policy, "p perhaps 80", 0, "accept or reject"),
        (&weights, "bandwidth-weights Wgg=1", 0, "Wgm is missing"),
        (
            &weights,
            &format!("{weights} Wgg=10001"),
            footer + 1,
            "above the scale",
        ),
        (
            &weights,
            &format!("{weights}\n{weights}"),
            footer + 2,
            "second",
        ),
        (
            "directory-footer",
            "directory-footer\ndirectory-footer",
            footer + 1,
            "behind",
        ),
        ("-----END SIGNATURE-----", "-----END", 0, "in a signature"),
    ] {
        let damaged = text.replacen(from, to, 1);
        assert_ne!(damaged, text, "{from:?} is in the document");
        let (at, what) = refused(&damaged);
        assert!(what.contains(why), "{what:?} and not {why:?}");
        assert!(line == 0 || line == at, "{what}: line {at} and not {line}");
    }
    // Two relays change places.
    let relays: Vec<&str> = text.split("\nr ").collect();
    let swapped = text
        .replacen(relays[1], "HERE", 1)
        .replacen(relays[2], relays[1], 1)
        .replacen("HERE", relays[2], 1);
    assert!(refused(&swapped).1.contains("out of order"));
    let binary = parse(b"network-status-version 3\n\xff\xfe\n", "it");
    assert!(matches!(binary, Err(ReadError::Line { line: 2, .. })));
}

/// Weights that are computed are those that authorities have computed.
#[test]
fn missing_weights_are_computed() {
    let (network, text) = small();
    let without: String = text
        .lines()
        .filter(|line| !line.starts_with("bandwidth-weights"))
        .map(|line| line.to_owned() + "\n")
        .collect();
    assert_eq!(parse(without.as_bytes(), "it").expect("sound"), network);
    let none = computed_weights(&[], 10, 10_000);
    assert_eq!(none, None, "sums that begin at 0 divide by 0");
    // From consensus method 26 on they begin at 1.
    assert!(computed_weights(&[], 26, 10_000).is_some());
}

/// Consensus documents of all years.
const REAL: [&str; 14] = [
    "2011-10-24-20-00-00-consensus.xz",
    "2013-08-19-03-00-00-consensus.xz",
    "2015-11-10-05-00-00-consensus-microdesc.xz",
    "2017-10-29-11-00-00-consensus.xz",
    "2018-07-05-05-00-00-consensus-microdesc.xz",
    "2019-12-15-13-00-00-consensus-microdesc.xz",
    "2020-12-05-19-00-00-consensus-microdesc.xz",
    "2021-01-28-19-00-00-consensus-microdesc.xz",
    "2021-03-01-01-00-00-consensus-microdesc.xz",
    "2021-07-20-19-00-00-consensus-microdesc.xz",
    "2021-08-29-19-00-00-consensus-microdesc.xz",
    "2021-08-29-19-00-00-consensus.xz",
    "2023-09-26-15-00-00-consensus-microdesc.xz",
    "2025-12-09-20-00-00-consensus-microdesc.xz",
];

#[test]
fn real_documents_of_all_years_have_the_weights_that_we_compute() {
    for name in REAL {
        let Some(path) = real_document(&format!("consensus/{name}")) else {
            not_run!("{name} is not in ../shared/data");
            continue;
        };
        let mut networks = Vec::new();
        documents::<ReadError>(std::slice::from_ref(&path), &mut |document| {
            networks.push(parse(&document.text, &document.name)?);
            let text = String::from_utf8_lossy(&document.text).into_owned();
            let method = text
                .lines()
                .find_map(|line| line.strip_prefix("consensus-method "))
                .and_then(|method| method.parse().ok())
                .expect("a method");
            let network = networks.last().expect("just read");
            let relays = text.lines().filter(|line| line.starts_with("r ")).count();
            assert_eq!(network.relays.len(), relays);
            let computed = computed_weights(&network.relays, method, 10_000);
            let known = network.weights;
            let computed = computed.expect("all classes have bandwidth");
            // Votes differ a little from the consensus in BadExits and unmeasured relays.
            for (one, other) in [
                (computed.guard, known.guard),
                (computed.middle, known.middle),
                (computed.exit, known.exit),
            ] {
                for (one, other) in one.iter().zip(other) {
                    assert!(
                        (one - other).abs() < 0.0005,
                        "{path:?}: {computed:?}, {known:?}"
                    );
                }
            }
            Ok(())
        })
        .expect("sound");
        assert_eq!(networks.len(), 1);
    }
}

/// `network-status-version 3`, forty times, by `xz`.
const XZ: &str = "fd377a585a0000016922de360200210116000000742fe5a3e003e700255d0037194af05bf81775957c766144911b93950590762785e6df666db7278fc84acb219c36b500000000008530526b00013de8070000000974c2fe3e300d8b020000000001595a";

#[test]
fn packed_documents_are_unpacked_and_damaged_ones_refused() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let (network, text) = small();
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(text.as_bytes()).expect("in memory");
    let gz = gz.finish().expect("in memory");
    let zst = ruzstd::encoding::compress_to_vec(
        text.as_bytes(),
        ruzstd::encoding::CompressionLevel::Fastest,
    );
    let read = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("written");
        let mut networks = Vec::new();
        documents::<ReadError>(&[path], &mut |document| {
            networks.push(parse(&document.text, &document.name)?);
            Ok(())
        })?;
        Ok::<_, ReadError>(networks)
    };
    for (name, bytes, doing) in [
        ("one.gz", &gz, "cannot unpack it as .gz: it ends too early"),
        ("one.zst", &zst, "cannot unpack it as .zst: "),
        ("plain", &text.clone().into(), "line "),
    ] {
        assert_eq!(
            read(name, bytes).expect("sound"),
            std::slice::from_ref(&network)
        );
        let half = bytes.get(..bytes.len() / 2).expect("its first half");
        let error = read(name, half).expect_err("it breaks off");
        let error = error.to_string();
        assert!(error.contains(name) && error.contains(doing), "{error}");
    }
    let xz = hex::decode(XZ).expect("hexadecimal digits");
    let error = read("one.xz", &xz).expect_err("no whole consensus");
    assert!(error.to_string().contains("one.xz, line "), "{error}");
    for length in [13, 40, xz.len() - 1] {
        let error = read("cut.xz", &xz[..length])
            .expect_err("it breaks off")
            .to_string();
        let doing = "cut.xz: cannot unpack it as .xz: it ends too early";
        assert!(error.contains(doing), "{length}: {error}");
    }
    let error = read("one.xz", b"\xfd7zXZ\0and nothing else").expect_err("no xz");
    assert!(error.to_string().contains("one.xz"), "{error}");
    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty).expect("a folder");
    for path in [empty, folder.path().join("missing")] {
        let each = &mut |_| panic!("there is no document");
        let error = documents::<ReadError>(std::slice::from_ref(&path), each);
        let error = error.expect_err("nothing is there").to_string();
        assert!(error.contains(&path.display().to_string()), "{error}");
    }
}

proptest! {
    /// Total: no bytes make the reader panic, and a document that it accepts is accepted again when
    /// written.
    #[test]
    fn damage_is_an_error_or_another_network(
        at in 0_usize..4000,
        bytes in proptest::collection::vec(any::<u8>(), 0..8),
        gone in 0_usize..40,
    ) {
        let (_, text) = small();
        let mut text = text.into_bytes();
        let at = at.min(text.len());
        let end = (at + gone).min(text.len());
        text.splice(at..end, bytes);
        if let Ok(network) = parse(&text, "it") {
            let again = parse(write::consensus(&network).as_bytes(), "it");
            prop_assert_eq!(again.expect("we wrote it").relays, network.relays);
        }
    }
}
