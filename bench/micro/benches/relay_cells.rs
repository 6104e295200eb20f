//! Cost of relay encryption, tor1 and CGO, for each cell, and of AES-128-CTR by implementation.
//!
//! Cells come from 64 circuits in turn, so that no key schedule is at hand by luck.

use aws_lc_rs::cipher::{AES_128, EncryptionContext, StreamingEncryptingKey, UnboundCipherKey};
use aws_lc_rs::iv::FixedLength;
use cipher::generic_array::GenericArray;
use cipher::{BlockEncrypt as _, KeyInit as _, KeyIvInit as _, StreamCipher as _};
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use tor_cell::chancell::ChanCmd;
use weft_cell::{RelayCmd, relay};
use weft_crypto::Tor1Keys;
use weft_crypto::cgo::{CgoKeys, CgoRelay};
use weft_crypto::circuit::{HopKeys, OriginCircuit};
use weft_crypto::relay_cell::{BODY_LEN, RelayCrypt};

/// Circuits whose cells come in turn.
const CIRCUITS: usize = 64;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    layers(&mut criterion);
    onions(&mut criterion);
    implementations(&mut criterion);
    criterion.final_summary();
}

fn key(circuit: usize) -> [u8; 16] {
    [circuit as u8; 16]
}

/// Runs `step` with the state and the cell of one circuit after the other.
fn cells<T>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    state: impl FnMut(usize) -> T,
    mut step: impl FnMut(&mut T, &mut [u8; BODY_LEN]),
) {
    let mut circuits: Vec<(T, Box<[u8; BODY_LEN]>)> = (0..CIRCUITS)
        .map(state)
        .map(|state| (state, Box::new([0x5a; BODY_LEN])))
        .collect();
    let mut next = 0;
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            next = (next + 1) % CIRCUITS;
            let (state, body) = &mut circuits[next];
            step(state, body);
        });
    });
}

/// A relay's work on a cell.
fn layers(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("relay crypto");
    group.throughput(Throughput::Elements(1));
    let crypt = |circuit| {
        RelayCrypt::new(&Tor1Keys::from_key_material(
            &[circuit as u8; Tor1Keys::LEN],
        ))
    };
    cells(&mut group, "pass on forward", crypt, |crypt, body| {
        crypt.decrypt_forward(body);
    });
    cells(&mut group, "pass on backward", crypt, |crypt, body| {
        crypt.encrypt_backward(body);
    });
    cells(&mut group, "originate backward", crypt, |crypt, body| {
        crypt.originate_backward(body);
    });

    let crypt =
        |circuit| CgoRelay::new(&CgoKeys::from_key_material(&[circuit as u8; CgoKeys::LEN]));
    cells(&mut group, "CGO, pass on forward", crypt, |crypt, body| {
        crypt.decrypt_forward(ChanCmd::RELAY, body);
    });
    cells(&mut group, "CGO, pass on backward", crypt, |crypt, body| {
        crypt.encrypt_backward(ChanCmd::RELAY, body);
    });
    cells(
        &mut group,
        "CGO, originate backward",
        crypt,
        |crypt, body| {
            crypt.originate_backward(ChanCmd::RELAY, body);
        },
    );
    group.finish();
}

/// An origin's work on a message for the last of three hops. Each iteration copies a fresh message,
/// because encrypted ones cannot be encoded.
fn onions(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("client crypto");
    group.throughput(Throughput::Elements(1));
    let mut message = [0; BODY_LEN];
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    relay::encode(&mut message, RelayCmd::DATA, 1, &[0x5a; 488], &mut rng)
        .unwrap_or_else(|error| panic!("{error}"));
    let three = |keys: HopKeys| {
        let mut origin = OriginCircuit::new();
        (0..3).for_each(|_| origin.add_hop(&keys));
        origin
    };
    let send = |origin: &mut OriginCircuit, body: &mut [u8; BODY_LEN]| {
        *body = message;
        let result = origin.encrypt_forward(2, ChanCmd::RELAY, body);
        result.unwrap_or_else(|error| panic!("{error}"));
    };
    let tor1 = |circuit| {
        let keys = Tor1Keys::from_key_material(&[circuit as u8; Tor1Keys::LEN]);
        three(keys.into())
    };
    cells(&mut group, "three hops", tor1, send);
    let cgo = |circuit| {
        let keys = CgoKeys::from_key_material(&[circuit as u8; CgoKeys::LEN]);
        three(keys.into())
    };
    cells(&mut group, "CGO, three hops", cgo, send);
    group.finish();
}

/// The key stream alone, by every implementation that the workspace depends on.
fn implementations(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("aes-128-ctr");
    group.throughput(Throughput::Elements(1));

    let new = |circuit| ctr::Ctr128BE::<aes::Aes128Enc>::new(&key(circuit).into(), &[0; 16].into());
    cells(&mut group, "aes 0.8, ctr 0.9", new, |stream, body| {
        stream.apply_keystream(body);
    });

    // The gain of eight blocks at a time.
    let new = |circuit| (aes::Aes128Enc::new(&key(circuit).into()), 0u128);
    cells(
        &mut group,
        "aes 0.8, block by block",
        new,
        |(aes, counter), body| {
            for chunk in body.chunks_mut(16) {
                let mut block = GenericArray::from(counter.to_be_bytes());
                aes.encrypt_block(&mut block);
                *counter += 1;
                for (byte, key) in chunk.iter_mut().zip(block) {
                    *byte ^= key;
                }
            }
        },
    );

    let new = |circuit| {
        use cipher05::KeyIvInit as _;
        tor_llcrypto::cipher::aes::Aes128Ctr::new(&key(circuit).into(), &[0; 16].into())
    };
    cells(
        &mut group,
        "aes 0.9, ctr 0.10 (tor-llcrypto)",
        new,
        |stream, body| {
            use cipher05::StreamCipher as _;
            stream.apply_keystream(body);
        },
    );

    // It does not work in place.
    let mut output = [0; BODY_LEN + 15];
    let new = |circuit| {
        let key = UnboundCipherKey::new(&AES_128, &key(circuit));
        let iv = EncryptionContext::Iv128(FixedLength::from([0; 16]));
        key.and_then(|key| StreamingEncryptingKey::less_safe_ctr(key, iv))
            .unwrap_or_else(|error| panic!("{error}"))
    };
    cells(&mut group, "aws-lc-rs, streaming", new, |stream, body| {
        stream
            .update(body, &mut output)
            .unwrap_or_else(|error| panic!("{error}"));
    });
    group.finish();
}
