use super::super::{AbraOptions, replay, simulate, triples};
use super::*;
use crate::testing::mixed;
use weft_path::SCARCE;

fn choice(weights: [Option<f64>; 2]) -> Choice {
    // One circuit between relays 0 and 2, one between 1 and 3.
    let circuit = |relays: [u32; 3], weight| Circuit {
        relays: relays.to_vec(),
        weights: vec![weight, Some(0.0), Some(0.0)],
    };
    Choice {
        client: "client-1".to_owned(),
        at_s: 61.5,
        chosen: 1,
        circuits: vec![
            circuit([0, 4, 2], weights[0]),
            circuit([1, 4, 3], weights[1]),
        ],
    }
}

fn pools(choices: Vec<Choice>, bad: [usize; 2]) -> Pools {
    let relay = |place: usize| Relay {
        name: format!("relay-{place}"),
        bandwidth: [100, 300, 500, 500, 900][place],
        adversary: bad.contains(&place),
    };
    Pools {
        network: Network {
            relays: (0..5).map(relay).collect(),
        },
        choices,
    }
}

/// Percent, of an adversary that has relays 0 and 2.
fn recorded(choices: Vec<Choice>) -> PoolPoint {
    let all = [pools(choices, [0, 2])];
    let points = super::replay(&all, &[], (Grant::Relays, 1, 1, 1), || ()).unwrap();
    points[0]
}

#[test]
fn chances_are_those_by_hand() {
    // Both are free: by the smallest relay, 100 to 300.
    let point = recorded(vec![choice([Some(0.0), Some(0.0)])]);
    assert!((point.honest.median - 25.0).abs() < 1e-9, "{point:?}");
    assert!((point.lying.median - 25.0).abs() < 1e-9, "{point:?}");
    assert!((point.blind.median - 50.0).abs() < 1e-9, "{point:?}");
    assert_eq!(point.chosen.median, 0.0);
    // None is: by bandwidth over weight, 100/1 to 300/9; but a liar's is free.
    let weights = [1.0, 9.0].map(|weight| Some(weight - SCARCE));
    let point = recorded(vec![choice(weights)]);
    assert!((point.honest.median - 75.0).abs() < 0.1, "{point:?}");
    assert!(point.lying.median > 99.0, "{point:?}");
    assert!((point.tiny.median - point.lying.median).abs() < 1e-6);
    // An unknown weight counts as none.
    let point = recorded(vec![choice([None, Some(0.5)])]);
    assert!(point.honest.median > 99.0, "{point:?}");
    let point = recorded(vec![choice([None, None])]);
    assert!((point.honest.median - 25.0).abs() < 1e-9, "{point:?}");
}

#[test]
fn a_file_is_read_as_it_was_written() {
    let choices = vec![choice([Some(0.25), Some(2.0)]), choice([None, Some(2.0)])];
    let all = vec![pools(choices.clone(), [0, 2]), pools(choices, [9, 9])];
    let text = text(&all).unwrap();
    assert_eq!(read(text.as_bytes()).unwrap(), all);
    assert_eq!(shape(&all), (0.5, 2.0));
    // Not every network has an adversary: then there is no point for it.
    let points = super::replay(&all, &[0.2], (Grant::Relays, 3, 1, 1), || ()).unwrap();
    assert_eq!(points.len(), 1);
    assert_eq!(points[0].fraction, Some(0.2));
}

#[test]
fn recorded_choices_have_the_probabilities_of_those_that_were_simulated() {
    let network = mixed(60);
    let triples = triples(&network).expect("circuits");
    let options = AbraOptions {
        web_clients: 60,
        bulk_clients: 20,
        warm_up: 20,
        seconds: 40,
        capacity: 0.6,
        ..AbraOptions::default()
    };
    let choices = simulate(&network, &triples, &options, |_| ()).expect("choices");
    // The same choices, read as from a file.
    let relays = (network.relays.iter().enumerate()).map(|(place, relay)| Relay {
        name: place.to_string(),
        bandwidth: relay.bandwidth * 1000,
        adversary: false,
    });
    let each = choices.circuits.chunks(choices.pool).zip(&choices.report);
    let written = each.map(|(circuits, report)| {
        let weights = &choices.weights[*report as usize];
        let circuits = circuits.iter().map(|path| Circuit {
            relays: path.relays().to_vec(),
            weights: path.relays().map(|relay| weights[relay as usize]).to_vec(),
        });
        Choice {
            client: String::new(),
            at_s: 0.0,
            chosen: 0,
            circuits: circuits.collect(),
        }
    });
    let all = [Pools {
        network: Network {
            relays: relays.collect(),
        },
        choices: written.collect(),
    }];
    let all = read(text(&all).unwrap().as_bytes()).unwrap();
    let (parts, how) = ([0.1, 0.3], (Grant::Bandwidth, 20, 7, 2));
    let direct = replay(&choices, &triples, &parts, how, || ()).unwrap();
    let again = super::replay(&all, &parts, how, || ()).unwrap();
    for (one, other) in direct.iter().zip(&again) {
        let pairs = [
            (one.honest, other.honest),
            (one.lying, other.lying),
            (one.blind, other.blind),
        ];
        for (one, other) in pairs {
            assert!(one.mean > 0.0);
            assert!((one.mean - other.mean).abs() < 1e-9, "{one:?} {other:?}");
            assert!((one.high - other.high).abs() < 1e-9, "{one:?} {other:?}");
        }
    }
}

#[test]
fn an_error_names_the_line() {
    let good = text(&[pools(vec![choice([None, None])], [9, 9])]).unwrap();
    let error = |more: &str| {
        read(format!("{good}{more}\n").as_bytes())
            .unwrap_err()
            .to_string()
    };
    let of = |circuits: &str, chosen: &str| {
        format!("{{\"client\":\"x\",\"at_s\":1,\"chosen\":{chosen},\"circuits\":[{circuits}]}}")
    };
    let circuit = "{\"relays\":[0,1,2],\"weights\":[0,null,1]}";
    assert!(read(format!("{good}{}\n", of(circuit, "0")).as_bytes()).is_ok());
    for (bad, why) in [
        (
            "weights",
            "line 3: it is no network and no choice of a client: expected value at column 1",
        ),
        ("{\"relays\":[]", "line 3: it is no network"),
        (
            &*of(circuit, "1"),
            "line 3: circuit 1 is chosen, of 1 from 0",
        ),
        (&of("", "0"), "line 3: 0 circuits"),
        (
            &of("{\"relays\":[0],\"weights\":[-1]}", "0"),
            "line 3: the weight -1 is not from 0",
        ),
        (
            &of("{\"relays\":[0],\"weights\":[1e999]}", "0"),
            "line 3: it is no network and no choice",
        ),
        (
            &of("{\"relays\":[0,1,9],\"weights\":[0,0,0]}", "0"),
            "line 3: there is no relay 9; the network has 5",
        ),
        (
            &of("{\"relays\":[0,1],\"weights\":[0,0,0]}", "0"),
            "line 3: a circuit of 2 relays with 3 weights",
        ),
        (
            &of("{\"relays\":[0],\"weights\":[2e6]}", "0"),
            "line 3: the weight 2000000 is not from 0",
        ),
        (
            &of("{\"relays\":[0],\"weights\":[\"heavy\"]}", "0"),
            "line 3: it is no network and no choice",
        ),
    ] {
        let text = error(bad);
        assert!(text.starts_with(why), "{bad}: {text}");
    }
    let orphan = good.lines().nth(1).unwrap();
    let error = read(orphan.as_bytes()).unwrap_err().to_string();
    assert!(
        error.starts_with("line 1: a choice comes before the first network"),
        "{error}"
    );
    assert_eq!(read(&b""[..]).unwrap_err().to_string(), "it has no choice");
    assert!(
        read(&b"\xff\xfe\n"[..])
            .unwrap_err()
            .to_string()
            .starts_with("line 1: it is longer")
    );
}
