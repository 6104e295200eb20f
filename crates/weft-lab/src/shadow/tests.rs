//! The folders that are written, and what is read back.

use std::fs;
use std::time::Duration;

use weft_model::links::{Topology, builtin};

use super::plan::{Choice, FILE, Plan};
use crate::cci::{Arm, Links, Scenario, Traffic};

fn built_in(name: &str) -> Topology {
    let topology = builtin::topology(name).expect("built in");
    topology.expect("well-formed")
}

fn choice(topologies: Vec<Topology>) -> Choice {
    Choice {
        topologies,
        traffic: vec![Traffic::Bulk, Traffic::Web],
        arms: vec![Arm::Tor, Arm::Weft],
        congestion_control: vec![false, true],
        repetitions: 2,
    }
}

#[test]
fn every_cell_is_a_simulation_of_its_own() {
    let topologies = vec![built_in("pahl-no-dropping"), built_in("pahl-one")];
    let all = choice(topologies).simulations().expect("networks");
    assert_eq!(all.len(), 2 * 2 * 2 * 2 * 2);
    let mut folders: Vec<&str> = all.iter().map(|(_, one)| &*one.folder).collect();
    assert_eq!(folders[0], "pahl-no-dropping-bulk-tor-off-1");
    folders.sort_unstable();
    folders.dedup();
    assert_eq!(folders.len(), all.len());
    let (_, first) = &all[0];
    assert_eq!(first.scenario, Links::Scenario(Scenario::NoDropping));
    assert_eq!(first.users.len(), 8);
}

#[test]
fn a_topology_that_is_no_scenario_keeps_its_name() {
    let text = builtin::text("pahl-one").expect("built in");
    let text = text.replace("pahl-one", "mine");
    let topology = Topology::parse("mine.toml", &text).expect("well-formed");
    assert_eq!(Links::of(&topology), Links::Topology("mine".to_owned()));
    let twice = choice(vec![topology.clone(), topology]);
    let error = twice.simulations().expect_err("two of one name");
    assert!(error.to_string().contains("mine"), "{error}");
}

#[test]
fn a_plan_survives_its_file_and_others_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let error = Plan::load(folder.path()).expect_err("no plan").to_string();
    assert!(error.contains("weft lab shadow write"), "{error}");
    let all = choice(vec![built_in("pahl-one")]).simulations();
    let all = all.expect("networks").into_iter().map(|(_, one)| one);
    let mut plan = Plan {
        seconds: Duration::from_millis(1_500).as_secs_f64(),
        simulations: all.collect(),
        ..Plan::new()
    };
    plan.save(folder.path()).expect("saved");
    assert_eq!(Plan::load(folder.path()).expect("a plan"), plan);
    for name in ["../elsewhere", "/etc", "a/b", "", ".."] {
        plan.simulations[0].folder = name.to_owned();
        plan.save(folder.path()).expect("saved");
        let error = Plan::load(folder.path()).expect_err(name).to_string();
        assert!(error.contains("no name of a folder"), "{name}: {error}");
    }
    for text in ["", "{}", "[1]", "{\"schema\": 2}"] {
        fs::write(folder.path().join(FILE), text).expect("written");
        assert!(Plan::load(folder.path()).is_err(), "{text}");
    }
}
