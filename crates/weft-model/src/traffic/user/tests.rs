use std::sync::Arc;

use super::*;
use crate::traffic::markov::MarkovModel;
use crate::traffic::model::ModelName;
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;

/// The times at which a user opens streams that take `each`, in an hour, and their bytes down.
fn opened(model: Model, each: Duration, event: StreamEvent, seed: u64) -> Vec<(Duration, u64)> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut user = User::new(model);
    let mut all = Vec::new();
    let mut open: Vec<(Duration, StreamId)> = Vec::new();
    let mut now = Duration::ZERO;
    while now < Duration::from_secs(3600) {
        while let Some(Action::Open { stream, plan, .. }) = user.poll_action(now, &mut rng) {
            all.push((now, plan.down.bytes()));
            open.push((now + each, stream));
        }
        let end = open.iter().min().copied();
        now = match (user.poll_timeout(), end) {
            (Some(at), Some((end, _))) if at < end => at,
            (_, Some((end, stream))) => {
                open.retain(|(_, other)| *other != stream);
                user.handle(end, stream, event);
                end
            }
            (Some(at), None) => at,
            (None, None) => break,
        };
    }
    all
}

fn gaps(times: &[(Duration, u64)]) -> Vec<f64> {
    let pairs = times.windows(2);
    pairs
        .map(|pair| (pair[1].0 - pair[0].0).as_secs_f64())
        .collect()
}

fn near(measured: f64, expected: f64, by: f64) {
    assert!(
        (measured - expected).abs() <= by,
        "{measured} is not near {expected}"
    );
}

#[test]
fn bulk_begins_again_at_once_and_web_after_ten_seconds() {
    let second = Duration::from_secs(1);
    let bulk = opened(Model::bulk(), second, StreamEvent::Complete, 1);
    assert!(gaps(&bulk).iter().all(|gap| *gap == 1.0));
    assert!(bulk.iter().all(|(_, bytes)| *bytes == 5_000_000));
    let web = opened(Model::web(), second, StreamEvent::Complete, 1);
    assert!(gaps(&web).iter().all(|gap| *gap == 11.0));
    assert!(web.iter().all(|(_, bytes)| *bytes == 2_000_000));
}

#[test]
fn a_failure_is_not_repeated_at_once() {
    let bulk = opened(Model::bulk(), Duration::ZERO, StreamEvent::Failed, 1);
    assert!(gaps(&bulk).iter().all(|gap| *gap == 1.0));
}

#[test]
fn the_pauses_of_page_clients_are_uniform() {
    let second = Duration::from_secs(1);
    for (model, low) in [(Model::page(), 0.001), (Model::slow_page(), 1.0)] {
        let mut pauses = Vec::new();
        for seed in 0..40 {
            let pages = opened(model.clone(), second, StreamEvent::Complete, seed);
            pauses.extend(gaps(&pages).into_iter().map(|gap| gap - 1.0));
        }
        let quantile = |share| weft_stats::quantile(&pauses, share).unwrap();
        assert!(pauses.len() > 4000);
        assert!(quantile(0.0) >= low && quantile(1.0) <= 60.0);
        for share in [0.1, 0.25, 0.5, 0.75, 0.9] {
            near(quantile(share), low + share * (60.0 - low), 1.5);
        }
    }
}

#[test]
fn performance_clients_draw_one_of_three_sizes_each_minute() {
    let mut counts = [0.0; 3];
    for seed in 0..60 {
        // Streams that take longer than a minute change nothing.
        let long = Duration::from_secs(100);
        let streams = opened(Model::performance(), long, StreamEvent::Failed, seed);
        assert!(gaps(&streams).iter().all(|gap| *gap == 60.0));
        for (_, bytes) in streams {
            let sizes = [51_200, 1_048_576, 5_242_880];
            let place = sizes.iter().position(|size| *size == bytes).unwrap();
            counts[place] += 1.0;
        }
    }
    let total: f64 = counts.iter().sum();
    for (count, share) in counts.iter().zip([12.0, 2.0, 1.0]) {
        near(count / total, share / 15.0, 0.02);
    }
}

#[test]
fn audio_and_video_have_their_rate() {
    for (model, rate) in [(Model::audio(), 50_000), (Model::video(), 1_000_000)] {
        let Model::Repeat { plan, .. } = model else {
            panic!("one stream after another");
        };
        assert_eq!(plan.down.duration().as_secs() + 1, plan.down.bytes() / rate);
    }
}

fn markov() -> Model {
    let packets = include_str!("../../../../../examples/traffic/packets.graphml");
    let streams = include_str!("../../../../../examples/traffic/streams.graphml");
    let parse = |text| Arc::new(MarkovModel::parse(text).unwrap());
    Model::Markov(Markov::new(parse(streams), parse(packets)))
}

#[test]
fn a_markov_user_opens_streams_in_flows() {
    let mut counts = Vec::new();
    for seed in 0..30 {
        let streams = opened(
            markov(),
            Duration::from_secs(5),
            StreamEvent::Complete,
            seed,
        );
        counts.push(streams.len() as f64);
        assert!(streams.iter().all(|(_, bytes)| bytes % 1434 == 0));
    }
    // 60 flows of 12 streams, less those that are cut at the end of the hour.
    let mean = counts.iter().sum::<f64>() / counts.len() as f64;
    near(mean, 720.0, 60.0);
}

#[test]
fn a_user_is_a_function_of_its_seed() {
    let second = Duration::from_secs(1);
    for model in [Model::page(), Model::performance(), markov()] {
        let run = |seed| opened(model.clone(), second, StreamEvent::Complete, seed);
        assert_eq!(run(3), run(3));
        assert_ne!(run(3), run(4));
    }
}

#[test]
fn a_model_without_delays_or_end_opens_a_bounded_number_of_streams() {
    let text = "<graphml><key id='t' attr.name='type'/><key id='w' attr.name='weight'/>\
        <key id='m' attr.name='lognorm_mu'/><key id='s' attr.name='lognorm_sigma'/><graph>\
        <node id='start'/><node id='a'><data key='t'>state</data></node>\
        <node id='+'><data key='t'>observation</data></node>\
        <edge source='start' target='a'><data key='t'>transition</data><data key='w'>1</data></edge>\
        <edge source='a' target='+'><data key='t'>emission</data><data key='w'>1</data>\
        <data key='m'>0</data><data key='s'>0</data></edge>\
        <edge source='a' target='a'><data key='t'>transition</data><data key='w'>1</data></edge>\
        </graph></graphml>";
    let endless = Arc::new(MarkovModel::parse(text).unwrap());
    let packets = include_str!("../../../../../examples/traffic/packets.graphml");
    let packets = Arc::new(MarkovModel::parse(packets).unwrap());
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut user = User::new(Model::Markov(Markov::new(endless.clone(), packets)));
    let now = Duration::from_secs(10);
    let streams = std::iter::from_fn(|| user.poll_action(now, &mut rng)).count();
    assert_eq!(streams, MAX_OPEN);
    assert_eq!(user.poll_timeout(), None);
    // A stream of a million packets, a microsecond apart.
    let Model::Markov(one) = Model::Markov(Markov::new(endless.clone(), endless)) else {
        unreachable!()
    };
    assert_eq!(one.plan(&mut rng).up.bytes(), 1_434_000_000);
}

#[test]
fn every_name_is_found_and_a_wrong_one_lists_them() {
    for name in ModelName::ALL {
        assert_eq!(name.name().parse(), Ok(name));
        let mut user = User::new(name.model());
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        assert!(user.poll_action(Duration::ZERO, &mut rng).is_some());
    }
    let error = "webb".parse::<ModelName>().unwrap_err();
    assert!(
        error.contains("\"webb\"") && error.contains("slow-page"),
        "{error}"
    );
}
