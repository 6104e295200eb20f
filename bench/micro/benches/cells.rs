//! Cost of reading cells: cutting a link's bytes into cells, and looking into them.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use weft_cell::circ_msg::{CreateRequest, Extend2};
use weft_cell::frame::{self, Frame};
use weft_cell::relay::{self, RelayBody};
use weft_cell::{CELL_LEN, Cell, ChanCmd, RelayCmd};

/// Cells in 64 KiB, what a busy link brings at a time.
const CELLS: usize = 65_536 / CELL_LEN;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    frames(&mut criterion);
    relay_messages(&mut criterion);
    circuit_messages(&mut criterion);
    criterion.final_summary();
}

/// `frame::next` over a buffer of relay cells, and over one of small variable-length cells.
fn frames(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("frame");
    group.throughput(Throughput::Elements(CELLS as u64));
    let mut fixed = Vec::new();
    let mut variable = Vec::new();
    for circ_id in (1..).take(CELLS) {
        fixed.extend_from_slice(Cell::new(circ_id, ChanCmd::RELAY).as_bytes());
        frame::encode_variable(0, ChanCmd::VPADDING, &[0; 32], &mut variable)
            .unwrap_or_else(|error| panic!("{error}"));
    }
    for (name, buffer) in [("relay cells", fixed), ("variable cells", variable)] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let mut rest = black_box(&buffer[..]);
                let mut sum = 0;
                while let Ok(Some((frame, length))) = frame::next(rest, 65_535) {
                    rest = &rest[length..];
                    sum += match frame {
                        Frame::Fixed(cell) => cell.circ_id(),
                        Frame::Variable { circ_id, .. } => circ_id,
                    };
                }
                sum
            });
        });
    }
    group.finish();
}

/// Reading and writing the message in a decrypted relay cell.
fn relay_messages(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("relay message");
    group.throughput(Throughput::Elements(1));
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let data = [7; relay::MAX_DATA];
    let mut cell = Cell::new(1, ChanCmd::RELAY);
    group.bench_function("encode DATA", |bencher| {
        bencher.iter(|| {
            relay::encode(
                cell.body_mut(),
                RelayCmd::DATA,
                1,
                black_box(&data),
                &mut rng,
            )
            .unwrap_or_else(|error| panic!("{error}"));
        });
    });
    group.bench_function("decode DATA", |bencher| {
        bencher.iter(|| {
            let body = RelayBody::new(black_box(cell.body()));
            (
                body.command(),
                body.recognized(),
                body.stream_id(),
                body.data().map(<[u8]>::len),
            )
        });
    });
    group.finish();
}

/// Reading the messages that make circuits.
fn circuit_messages(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("circuit message");
    group.throughput(Throughput::Elements(1));
    let create = CreateRequest::Create2 {
        handshake_type: 2,
        data: vec![7; 84],
    }
    .encode(1)
    .unwrap_or_else(|error| panic!("{error}"));
    group.bench_function("decode CREATE2", |bencher| {
        bencher.iter(|| {
            let cell = black_box(&create);
            CreateRequest::decode(cell.command(), cell.body())
        });
    });
    let extend = Extend2 {
        ipv4: Some("192.0.2.1:9001".parse().unwrap_or_else(|_| unreachable!())),
        rsa: Some([1; 20].into()),
        ed25519: Some([2; 32].into()),
        handshake_type: 2,
        handshake: vec![7; 84],
        ..Extend2::default()
    }
    .encode()
    .unwrap_or_else(|error| panic!("{error}"));
    group.bench_function("decode EXTEND2", |bencher| {
        bencher.iter(|| Extend2::decode(black_box(&extend)));
    });
    group.finish();
}
