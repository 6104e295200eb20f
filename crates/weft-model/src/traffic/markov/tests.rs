use super::*;
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;

const PACKETS: &str = include_str!("../../../../../examples/traffic/packets.graphml");
const STREAMS: &str = include_str!("../../../../../examples/traffic/streams.graphml");

/// Mean number of each observation in a walk.
fn counted(model: &MarkovModel, walks: u32) -> [f64; 3] {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let mut counts = [0.0; 3];
    for _ in 0..walks {
        let mut walk = model.walk();
        while let Some(step) = walk.step(model, &mut rng) {
            counts[step.observation as usize] += 1.0 / f64::from(walks);
        }
    }
    counts
}

#[test]
fn the_examples_emit_what_their_weights_give() {
    // Asking: a geometric number of packets, 3 on average. Answering is entered 1 / 0.02 = 50 times (each
    // visit ends the walk with 0.02, and a pause always leads back), pausing 0.08 times as often.
    let [up, down, ends] = counted(&MarkovModel::parse(PACKETS).unwrap(), 4_000);
    assert!((up - (3.0 + 50.0 * 0.05)).abs() < 0.25, "{up}");
    assert!((down - (50.0 * 0.95 + 4.0)).abs() < 2.0, "{down}");
    assert!((ends - 1.0).abs() < 1e-9, "{ends}");
    // Active is entered 10 times, dwelling 0.2 times as often.
    let [streams, _, ends] = counted(&MarkovModel::parse(STREAMS).unwrap(), 4_000);
    assert!((streams - 12.0).abs() < 0.6, "{streams}");
    assert!((ends - 1.0).abs() < 1e-9, "{ends}");
}

#[test]
fn a_walk_is_a_function_of_its_seed() {
    let model = MarkovModel::parse(PACKETS).unwrap();
    let walk = |seed| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut walk = model.walk();
        std::iter::from_fn(|| walk.step(&model, &mut rng)).collect::<Vec<_>>()
    };
    assert_eq!(walk(1), walk(1));
    assert_ne!(walk(1), walk(2));
}

/// A model of one state in the older layout.
fn privcount(emission: &str) -> String {
    format!(
        "<graphml>\n<key attr.name='type' id='d0'/><key attr.name='weight' id='d1'/>\n\
         <key attr.name='exp_lambda' id='d2'/><key attr.name='lognorm_mu' id='d3'/>\
         <key attr.name='lognorm_sigma' id='d4'/>\n<graph>\n<node id='start'/>\n\
         <node id='a'><data key='d0'>state</data></node>\n\
         <node id='$'><data key='d0'>observation</data></node>\n\
         <edge source='start' target='a'><data key='d0'>transition</data><data key='d1'>1</data></edge>\n\
         <edge source='a' target='$'><data key='d0'>emission</data>{emission}</edge>\n</graph></graphml>"
    )
}

#[test]
fn the_older_layout_of_privcount_is_read() {
    let numbers = "<data key='d1'>1</data><data key='d2'>0</data><data key='d3'>2</data><data key='d4'>0</data>";
    let model = MarkovModel::parse(&privcount(numbers)).unwrap();
    let mut walk = model.walk();
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let step = walk.step(&model, &mut rng).unwrap();
    assert_eq!(step.observation, Observation::ToServer);
    assert_eq!(step.delay, Duration::from_micros(7)); // e squared
    // No transition leads on.
    assert_eq!(walk.step(&model, &mut rng), None);
}

#[test]
fn an_error_names_line_and_element() {
    for (emission, expected) in [
        (
            "",
            "line 9, <edge source=\"a\" target=\"$\">: weight is missing",
        ),
        (
            "<data key='d1'>1</data>",
            "line 9, <edge source=\"a\" target=\"$\">: distribution is missing",
        ),
        (
            "<data key='d1'>-1</data>",
            "line 9, <edge source=\"a\" target=\"$\">: weight is below 0",
        ),
        (
            "<data key='d1'>many</data>",
            "line 9, <edge source=\"a\" target=\"$\">: weight is no number: \"many\"",
        ),
        (
            "<data key='d9'>1</data>",
            "line 9, <data key=\"d9\">: no <key> has this id",
        ),
        (
            "<data key='d1'>0</data><data key='d3'>1</data><data key='d4'>1</data>",
            "line 6, <node id=\"a\">: the state has no emission with a weight above 0",
        ),
    ] {
        let error = MarkovModel::parse(&privcount(emission)).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    for (text, expected) in [
        (
            "<graph/>",
            "line 1, <graph>: the outermost element must be <graphml>",
        ),
        (
            "<graphml>\n<graph edgedefault='undirected'/></graphml>",
            "line 2, <graph>: a model is a directed graph",
        ),
        ("<graphml/>", "line 1, the document: there is no <graph>"),
        (
            "<graphml><graph/></graphml>",
            "line 1, the document: there is no state named \"start\"",
        ),
        (
            "<graphml><graph><edge source='a' target='b'/></graph></graphml>",
            "line 1, <edge source=\"a\" target=\"b\">: no node has the id \"a\"",
        ),
    ] {
        assert_eq!(MarkovModel::parse(text).unwrap_err().to_string(), expected);
    }
}

/// One of `PrivCount`'s models, where the data is here.
fn of_privcount(name: &str) -> Option<MarkovModel> {
    let Some(path) = weft_testing::real_document(&format!("network/{name}")) else {
        weft_testing::not_run!("{name} is not in ../shared/data");
        return None;
    };
    let file = std::fs::File::open(path).ok()?;
    let mut text = String::new();
    let mut reader = lzma_rust2::XzReader::new(file, false);
    std::io::Read::read_to_string(&mut reader, &mut text).unwrap();
    Some(MarkovModel::parse(&text).unwrap())
}

#[test]
fn the_models_of_privcount_are_read() {
    if let Some(streams) = of_privcount("tgen.privcount.stream.model.graphml.xml.xz") {
        assert_eq!(streams.states().count(), 4);
        let [made, _, ends] = counted(&streams, 4_000);
        // By the weights of the file: each walk ends with 0.06 to 0.12 for each stream.
        assert!((5.0..20.0).contains(&made), "{made}");
        assert!((ends - 1.0).abs() < 1e-9, "{ends}");
    }
    if let Some(packets) = of_privcount("tgen.privcount.packet.model.graphml.xml.xz") {
        let [up, down, _] = counted(&packets, 200);
        assert!(down > 2.0 * up && up > 0.0, "{up} up, {down} down");
    }
}
