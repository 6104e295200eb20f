//! Cost of answering an onionskin at a relay, by kind.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use weft_cell::circ_msg::{CreateRequest, handshake_type};
use weft_crypto::handshake::{
    BATCH, OnionKeys, ReplyParams, Request, fast, negotiate, negotiate_all, ntor, ntor_v3,
};

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let keys = OnionKeys::new([1; 20].into(), [2; 32].into(), &[3; 32], Some(&[4; 32]));

    let fast = fast::ClientState::start(&mut rng);
    let ntor = ntor::ClientState::start(keys.rsa_identity(), &keys.current_public(), &mut rng);
    let (_, ntor_v3) =
        ntor_v3::ClientState::start(keys.ed_identity(), &keys.current_public(), &[], &mut rng)
            .unwrap_or_else(|error| panic!("{error}"));
    let create2 = |handshake_type, data| CreateRequest::Create2 {
        handshake_type,
        data,
    };
    let requests = [
        ("CREATE_FAST", CreateRequest::Fast { x: *fast.x() }),
        (
            "ntor",
            create2(handshake_type::NTOR, ntor.onionskin().to_vec()),
        ),
        ("ntor-v3", create2(handshake_type::NTOR_V3, ntor_v3)),
    ];

    let mut group = criterion.benchmark_group("onionskin");
    group.throughput(Throughput::Elements(1));
    for (name, request) in &requests {
        group.bench_function(*name, |bencher| {
            bencher.iter(|| {
                negotiate(black_box(request), &keys, &ReplyParams::default(), &mut rng)
                    .unwrap_or_else(|error| panic!("{error}"))
            });
        });
    }
    group.throughput(Throughput::Elements(BATCH as u64));
    for (name, request) in &requests {
        let params = ReplyParams::default();
        let one = Request {
            request,
            keys: &keys,
            params: &params,
        };
        group.bench_function(format!("{name}, {BATCH} at once"), |bencher| {
            bencher.iter(|| negotiate_all(black_box(&[one; BATCH]), &mut rng));
        });
    }
    group.finish();
    criterion.final_summary();
}
