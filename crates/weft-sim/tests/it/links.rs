//! Shared links: draws and counts against what is known exactly, and the whole way from a file on.

use std::collections::BTreeMap;
use std::path::PathBuf;

use rand::RngExt as _;
use weft_sim::draw::Alias;
use weft_sim::links::Class;
use weft_sim::links::count::{Circuits, Links, Memory, Tally, count};
use weft_sim::links::exits::Exits;
use weft_sim::links::many::{DocumentResult, Work, of_network, simulate};
use weft_sim::links::report::{Report, Setting};
use weft_sim::links::run::{Plan, draw, run};
use weft_sim::links::salsa::{Model, Salsa};
use weft_sim::links::{CircuitKind, LinksError, files};
use weft_sim::network::{Flags, Network, PortPolicy, Position};
use weft_sim::random::generator;
use weft_sim::sample::scaled;
use weft_sim::{read, synth, write};
use weft_testing::{not_run, real_document};

/// Chi-square of counts against chances, and the degrees of freedom.
fn chi_square(counts: &[u64], chances: &[f64]) -> (f64, usize) {
    let all: u64 = counts.iter().sum();
    let mut freedom = 0;
    let mut sum = 0.0;
    for (count, chance) in counts.iter().zip(chances) {
        let expected = chance * all as f64;
        if expected == 0.0 {
            assert_eq!(*count, 0, "drawn, but its weight is 0");
            continue;
        }
        freedom += 1;
        sum += (*count as f64 - expected).powi(2) / expected;
    }
    (sum, freedom - 1)
}

/// No sound generator is beyond this in a thousand tests (Wilson and Hilferty's approximation).
fn assert_plausible((sum, freedom): (f64, usize)) {
    let k = freedom as f64;
    let bound = k * (1.0 - 2.0 / (9.0 * k) + 3.1 * (2.0 / (9.0 * k)).sqrt()).powi(3);
    assert!(
        sum < bound,
        "chi-square {sum} of {freedom} degrees of freedom"
    );
}

fn parts(weights: &[f64]) -> Vec<f64> {
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}

#[test]
fn draws_have_the_chances_of_their_weights() {
    let weights = [0.0, 1.0, 2.0, 3.5, 0.0, 100.0, 0.25, 7.0];
    let table = Alias::new(&weights).expect("sound weights");
    let mut random = generator(7, 0, 0);
    let mut counts = [0_u64; 8];
    for _ in 0..1_000_000 {
        counts[table.draw(&mut random) as usize] += 1;
    }
    assert_plausible(chi_square(&counts, &parts(&weights)));
}

/// Each position of a synthetic network, drawn a million times, is by its weights.
#[test]
fn positions_are_drawn_by_bandwidth_and_weight() {
    let network = synth::network(200, 3).expect("a size");
    let salsa = Salsa::new(&network, &Model::default()).expect("all positions");
    let plan = Plan {
        circuits: 1_000_000,
        ..Plan::default()
    };
    let mut circuits = Circuits::default();
    draw(&salsa, &plan, 0, 1, &mut circuits);
    for (position, drawn, only) in [
        (Position::Guard, &circuits.guards, Flags::GUARD),
        (Position::Middle, &circuits.middles, Flags::default()),
        (Position::Exit, &circuits.exits, Flags::EXIT),
    ] {
        let mut counts = vec![0; 200];
        for relay in drawn {
            counts[*relay as usize] += 1;
        }
        let weights: Vec<f64> = network
            .relays
            .iter()
            .map(|relay| match relay.flags.has(only) {
                true => relay.bandwidth as f64 * network.weights.of(position, relay.flags),
                false => 0.0,
            })
            .collect();
        assert_plausible(chi_square(&counts, &parts(&weights)));
    }
}

/// Algorithm 1's COUNT, as it is written: a list, and how often each member is there.
fn plainly(circuits: &Circuits, relays: usize, directed: bool) -> Tally {
    let pair = |from: u32, to: u32| match directed {
        true => (from, to),
        false => (from.min(to), from.max(to)),
    };
    let first = circuits.guards.iter().zip(&circuits.middles);
    let second = circuits.middles.iter().zip(&circuits.exits);
    let first: Vec<_> = first.map(|(from, to)| pair(*from, *to)).collect();
    let second: Vec<_> = second.map(|(from, to)| pair(*from, *to)).collect();
    let counted = |links: &mut dyn Iterator<Item = &(u32, u32)>| {
        let mut counts: BTreeMap<(u32, u32), u64> = BTreeMap::new();
        for link in links {
            *counts.entry(*link).or_default() += 1;
        }
        counts
    };
    let sum = |counts: &BTreeMap<(u32, u32), u64>| Links {
        links: counts.len() as u64,
        shared: counts.values().filter(|count| **count > 1).count() as u64,
    };
    let all = counted(&mut first.iter().chain(&second));
    let mut tally = Tally {
        all: sum(&all),
        guard_middle: sum(&counted(&mut first.iter())),
        middle_exit: sum(&counted(&mut second.iter())),
        shared_of_relay: vec![0; relays],
        ..Tally::default()
    };
    for ((from, to), count) in &all {
        *tally.by_circuits.entry(*count).or_default() += 1;
        if *count > 1 {
            tally.shared_of_relay[*from as usize] += 1;
            tally.shared_of_relay[*to as usize] += 1;
        }
    }
    for (one, two) in first.iter().zip(&second) {
        let shared = [one, two].iter().filter(|link| all[*link] > 1).count();
        tally.circuits_by_shared[shared] += 1;
    }
    let mut used: Vec<_> = [&circuits.guards, &circuits.middles, &circuits.exits]
        .into_iter()
        .flatten()
        .collect();
    used.sort();
    used.dedup();
    tally.relays_used = used.len() as u64;
    tally
}

#[test]
fn counting_is_that_of_algorithm_1() {
    let mut random = generator(11, 0, 0);
    let mut memory = Memory::default();
    for (relays, number) in [(1, 1), (2, 5), (3, 300), (40, 700), (2000, 3000)] {
        let mut draw = || -> Vec<u32> {
            // Few relays have most of the circuits.
            let relay = || (random.random::<f64>().powi(3) * f64::from(relays)) as u32;
            std::iter::repeat_with(relay).take(number).collect()
        };
        let circuits = Circuits {
            guards: draw(),
            middles: draw(),
            exits: draw(),
        };
        for directed in [true, false] {
            let plain = plainly(&circuits, relays as usize, directed);
            for threads in [1, 2, 5] {
                let counted = count(&circuits, relays, directed, threads, &mut memory);
                assert_eq!(counted, plain, "{relays} relays, {threads} threads");
            }
        }
    }
}

#[test]
fn threads_change_no_number() {
    let network = synth::network(500, 1).expect("a size");
    for (kind, circuits_per_client) in [(CircuitKind::External, 1), (CircuitKind::Mixed, 7)] {
        let model = Model {
            kind,
            circuits_per_client,
            ..Model::default()
        };
        let salsa = Salsa::new(&network, &model).expect("all positions");
        let with = |threads| {
            let plan = Plan {
                circuits: 200_000,
                repetitions: 3,
                threads,
                ..Plan::default()
            };
            run(&salsa, &plan, || ()).expect("a sound plan").tallies
        };
        let one = with(1);
        assert_eq!(one, with(2));
        assert_eq!(one, with(8));
        assert_ne!(one[0], one[1], "repetitions are different");
    }
}

/// With uniform relays the share of shared links is known: of n × m possible links, each taken by N
/// circuits with the same chance.
#[test]
fn uniform_networks_have_the_share_of_theory() {
    let mut network = synth::network(300, 1).expect("a size");
    for relay in &mut network.relays {
        relay.bandwidth = 1000;
        relay.flags = Flags::GUARD.with(Flags::EXIT);
    }
    network.weights.guard = [1.0; 4];
    network.weights.middle = [1.0; 4];
    network.weights.exit = [1.0; 4];
    let salsa = Salsa::new(&network, &Model::default()).expect("all positions");
    let plan = Plan {
        circuits: 30_000,
        repetitions: 20,
        ..Plan::default()
    };
    let runs = run(&salsa, &plan, || ()).expect("a sound plan");
    let mean = runs
        .tallies
        .iter()
        .map(|tally| tally.all.percent_shared())
        .sum::<f64>()
        / 20.0;
    // First and second links of a circuit share the middle, but not which link they are.
    let (ends, links) = (60_000.0, 90_000.0_f64);
    let none = (1.0 - 1.0 / links).powf(ends);
    let one = ends / links * (1.0 - 1.0 / links).powf(ends - 1.0);
    let expected = (1.0 - none - one) / (1.0 - none) * 100.0;
    assert!((mean - expected).abs() < 0.15, "{mean} and not {expected}");
}

#[test]
fn clients_keep_their_guards() {
    let network = synth::network(100, 1).expect("a size");
    let draws = |circuits_per_client, guards_per_client| {
        let model = Model {
            circuits_per_client,
            guards_per_client,
            ..Model::default()
        };
        let plan = Plan {
            circuits: 70_000,
            ..Plan::default()
        };
        let mut circuits = Circuits::default();
        let salsa = Salsa::new(&network, &model).expect("all positions");
        draw(&salsa, &plan, 0, 1, &mut circuits);
        circuits.guards
    };
    assert!(
        draws(7, 1)
            .chunks(7)
            .all(|client| client.iter().all(|guard| *guard == client[0]))
    );
    let mut most = 0;
    for client in draws(64, 3).chunks(64) {
        let mut guards = client.to_vec();
        guards.sort();
        guards.dedup();
        most = most.max(guards.len());
        assert!(guards.len() <= 3);
    }
    assert_eq!(most, 3);
}

#[test]
fn internal_circuits_end_at_middles_and_one_in_eleven_of_mixed_at_an_exit() {
    let network = synth::network(400, 1).expect("a size");
    let ends = |kind| {
        let model = Model {
            kind,
            ..Model::default()
        };
        let salsa = Salsa::new(&network, &model).expect("all positions");
        let plan = Plan {
            circuits: 110_000,
            ..Plan::default()
        };
        let mut circuits = Circuits::default();
        draw(&salsa, &plan, 0, 1, &mut circuits);
        let is_exit = |relay: &&u32| network.relays[**relay as usize].flags.has(Flags::EXIT);
        circuits.exits.iter().filter(is_exit).count() as f64 / 110_000.0
    };
    let (external, internal, mixed) = (
        ends(CircuitKind::External),
        ends(CircuitKind::Internal),
        ends(CircuitKind::Mixed),
    );
    assert!((external - 1.0).abs() < 1e-9);
    assert!((mixed - (external + 10.0 * internal) / 11.0).abs() < 0.01);
}

#[test]
fn classes_of_exits_are_those_that_allow_all_ports() {
    let accept = |ranges: &[(u16, u16)]| PortPolicy {
        accept: true,
        ranges: ranges.into(),
    };
    assert!(Class::Web.is_served_by(&accept(&[(80, 80), (443, 443)])));
    assert!(!Class::Web.is_served_by(&accept(&[(80, 80)])));
    assert!(Class::BitTorrentBase.is_served_by(&accept(&[(6000, 6885), (6886, 7000)])));
    assert!(!Class::BitTorrentBase.is_served_by(&accept(&[(6000, 6884), (6886, 7000)])));
    let reject = PortPolicy {
        accept: false,
        ranges: [(25, 25)].into(),
    };
    assert!(Class::FileSharing.is_served_by(&reject));
    assert!(!Class::Various.is_served_by(&reject));
    // By class: the more it asks of exits, the more links are shared.
    let network = synth::network(2000, 1).expect("a size");
    let percent = |exits| {
        let model = Model {
            exits,
            ..Model::default()
        };
        let salsa = Salsa::new(&network, &model).expect("all positions");
        let runs = run(&salsa, &Plan::default(), || ()).expect("a sound plan");
        // Of all links it need not rise: few exits make few links.
        runs.tallies[0].middle_exit.percent_shared()
    };
    let (web, file, various, mixture) = (
        percent(Exits::One(Class::Web)),
        percent(Exits::One(Class::FileSharing)),
        percent(Exits::One(Class::Various)),
        percent(Exits::MEASURED),
    );
    assert!(web < file && file < various);
    assert!(web < mixture && mixture < various);
}

#[test]
fn bad_exits_are_no_exits_and_other_flags_do_not_matter() {
    let mut network = synth::network(50, 1).expect("a size");
    for relay in &mut network.relays {
        if relay.flags.has(Flags::EXIT) {
            relay.flags = relay.flags.with(Flags::BAD_EXIT);
        }
    }
    let no_exits = Salsa::new(&network, &Model::default()).expect_err("all are bad");
    assert_eq!(no_exits, LinksError::NoExits(Class::All));
    let internal = Model {
        kind: CircuitKind::Internal,
        ..Model::default()
    };
    Salsa::new(&network, &internal).expect("internal circuits need no exits");
}

#[test]
fn what_cannot_be_simulated_is_refused_by_name() {
    let network = synth::network(50, 1).expect("a size");
    let salsa = Salsa::new(&network, &Model::default()).expect("all positions");
    let refused = |change: &dyn Fn(&mut Plan)| {
        let mut plan = Plan::default();
        change(&mut plan);
        let error = run(&salsa, &plan, || ()).expect_err("a plan that cannot be run");
        error.to_string()
    };
    let circuits = "it must be a whole number from 1 to 100000000";
    assert_eq!(
        refused(&|plan| plan.circuits = 0),
        format!("circuits 0: {circuits}")
    );
    assert_eq!(
        refused(&|plan| plan.circuits = u64::MAX),
        format!("circuits {}: {circuits}", u64::MAX)
    );
    for repetitions in [0, u32::MAX] {
        let error = refused(&|plan| plan.repetitions = repetitions);
        assert!(
            error.contains(&format!("repetitions {repetitions}: ")),
            "{error}"
        );
    }
    let threads = refused(&|plan| plan.threads = 0);
    assert!(threads.contains("threads 0: "), "{threads}");
    let model = |change: &dyn Fn(&mut Model, &mut Network)| {
        let (mut model, mut network) = (Model::default(), network.clone());
        change(&mut model, &mut network);
        Salsa::new(&network, &model).expect_err("nothing can be drawn")
    };
    for (of, error) in [
        (
            "circuits per client 0: ",
            model(&|model, _| model.circuits_per_client = 0),
        ),
        (
            "guards per client 61: ",
            model(&|model, _| model.guards_per_client = 61),
        ),
    ] {
        assert!(error.to_string().contains(of), "{error}");
    }
    assert_eq!(
        model(&|model, _| model.exits = Exits::Mixture([0.0; 5])),
        LinksError::Mixture
    );
    assert_eq!(
        model(&|model, _| model.exits = Exits::Mixture([f64::NAN; 5])),
        LinksError::Mixture
    );
    let guards = model(&|_, network| network.weights.guard = [0.0; 4]);
    assert_eq!(guards, LinksError::NoGuards);
    let exits = model(&|_, network| network.weights.exit = [0.0; 4]);
    assert_eq!(exits, LinksError::NoExits(Class::All));
    let policies = model(&|model, network| {
        model.exits = Exits::One(Class::Web);
        network
            .relays
            .iter_mut()
            .for_each(|relay| relay.policy = None);
    });
    assert_eq!(policies, LinksError::NoPolicies(Class::Web));
    assert!(scaled(&network, 0.0).is_err() && scaled(&network, f64::NAN).is_err());
}

#[test]
fn scaling_keeps_classes_and_their_bandwidth() {
    let network = synth::network(5000, 1).expect("a size");
    let quarter = scaled(&network, 0.25).expect("a scale");
    let part = quarter.relays.len() as f64 / 5000.0;
    assert!((part - 0.25).abs() < 0.001);
    for flag in [Flags::GUARD, Flags::EXIT] {
        let sum = |network: &Network| -> f64 {
            let relays = network.relays.iter().filter(|relay| relay.flags.has(flag));
            relays.map(|relay| relay.bandwidth as f64).sum()
        };
        let part = sum(&quarter) / sum(&network);
        assert!((part - 0.25).abs() < 0.005, "{part} of the bandwidth");
    }
    let tiny = scaled(&network, 1e-6).expect("a scale");
    assert_eq!(tiny.relays.len(), 4, "one of each class");
    assert_eq!(scaled(&network, 1.0).expect("a scale"), network);
}

fn report(documents: &[DocumentResult]) -> Report {
    Report::new(Setting::default(), 20_000, documents, 0).expect("documents")
}

#[test]
fn documents_in_files_folders_and_archives_give_the_same_numbers() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let mut archive = tar::Builder::new(Vec::new());
    let mut files = Vec::new();
    for number in 1..4 {
        let mut network = synth::network(100, number).expect("a size");
        network.valid_after = format!("2021-11-0{number} 00:00:00");
        let text = write::consensus(&network);
        let name = format!("2021-11-0{number}-00-00-00-consensus");
        files.push(folder.path().join(&name));
        std::fs::write(folder.path().join(&name), &text).expect("written");
        let mut header = tar::Header::new_ustar();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        archive
            .append_data(&mut header, format!("consensuses/{name}"), text.as_bytes())
            .expect("an archive in memory");
    }
    let archive = archive.into_inner().expect("an archive in memory");
    let packed = folder.path().join("all.tar");
    std::fs::write(&packed, archive).expect("written");
    std::fs::write(folder.path().join("other"), "no consensus").expect("written");
    let simulated = |paths: &[PathBuf], threads| {
        let work = Work {
            prepare: &Ok,
            build: &|network| Ok(Box::new(Salsa::new(network, &Model::default())?)),
            plan: Plan {
                circuits: 20_000,
                repetitions: 2,
                threads,
                ..Plan::default()
            },
            done: &|_| (),
        };
        let mut documents = simulate(paths, &work).expect("three documents");
        // Names and times differ.
        for one in &mut documents {
            one.name.clear();
            one.parse = Default::default();
            one.elapsed = Default::default();
        }
        documents
    };
    let of_files = simulated(&files, 1);
    assert_eq!(of_files.len(), 3);
    assert_eq!(of_files[2].valid_after, "2021-11-03 00:00:00");
    assert_eq!(of_files, simulated(&[folder.path().to_owned()], 2));
    assert_eq!(of_files, simulated(&[packed], 5));
    let sum = report(&of_files);
    assert_eq!((sum.relays, sum.documents.len()), (100, 3));
    // Three documents with two repetitions each are three numbers, not six.
    let shared = sum.shared_percent.spread;
    assert_eq!((sum.intervals_over, shared.n), ("documents", 3));
    assert!(shared.mean > 50.0 && sum.shared_percent_stddev > Some(0.0));
    let means = sum.documents.iter().map(|one| one.shared_percent.mean);
    assert_eq!(
        weft_stats::Spread::of(&means.collect::<Vec<_>>()),
        Some(shared)
    );
    let printed = sum.to_string();
    for one in &sum.documents {
        assert_eq!((one.shared_percent.n, one.relays), (2, 100));
        let own = format!("{:.3}", one.shared_percent);
        assert!(
            own.contains('±') && printed.contains(&own),
            "{own} in {printed}"
        );
    }
    assert!(
        printed.contains("in 3 documents") && printed.contains("n = 3"),
        "{printed}"
    );
    assert_eq!(files::documents_csv(&sum).lines().count(), 4);
    let alone = report(&of_files[..1]);
    assert_eq!(
        (alone.intervals_over, alone.shared_percent.spread.n),
        ("repetitions", 2)
    );
    let circuits: f64 = sum
        .circuits_percent_by_shared
        .iter()
        .map(|one| one.spread.mean)
        .sum();
    assert!((circuits - 100.0).abs() < 1e-9);
    let ends: f64 = sum
        .distribution
        .iter()
        .map(|one| one.circuits as f64 * one.links)
        .sum();
    assert!((ends - 40_000.0).abs() < 1e-6);
}

/// A real document, where the project's data are: within the range of Pahl et al. (2023) for 2021 or a little below,
/// as its relays are more and more alike.
#[test]
fn a_real_document_has_the_share_that_is_known() {
    let name = "2021-08-29-19-00-00-consensus.xz";
    let Some(path) = real_document(&format!("consensus/{name}")) else {
        not_run!("{name} is not in ../shared/data");
        return;
    };
    let mut network = None;
    read::documents::<read::ReadError>(&[path], &mut |document| {
        network = Some(read::parse(&document.text, &document.name)?);
        Ok(())
    })
    .expect("a sound document");
    let work = Work {
        prepare: &Ok,
        build: &|network| Ok(Box::new(Salsa::new(network, &Model::default())?)),
        plan: Plan::default(),
        done: &|_| (),
    };
    let one = of_network(
        "it".to_owned(),
        network.expect("one document"),
        Default::default(),
        &work,
        2,
    )
    .expect("a simulation");
    assert_eq!((one.relays, one.guards, one.exits), (6727, 4124, 1303));
    let percent = one.samples[0].all.percent_shared();
    assert!((3.0..3.5).contains(&percent), "{percent}");
}
