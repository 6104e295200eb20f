//! Relays cells through the connection managers of a relay, and does nothing else.
//!
//! ```text
//! weft-instructions forward|backward THREADS few|many|thin|asked FIRST TURNS
//! weft-instructions down|up plain|conflux|mtor FIRST TURNS
//! ```
//!
//! `cargo xtask instructions` runs this under callgrind. Pools and queues are full after the first
//! turns. Calls of `counted_turns_border` enclose the others: their instructions, divided by their
//! cells, are the cost of one cell without start-up and end. Counted is a connection thread's work
//! on a cell between TLS and TLS: cut out of the plaintext, looked up, copied, encrypted or
//! decrypted, carried to the other half (with two threads: through a ring), queued, scheduled,
//! written out, its memory recycled. Not counted: the kernel and TLS.
//!
//! In the second form the relay is an exit (`exit`), which serves a stream over one circuit or several.
//!
//! Two threads of the relay are two managers that take turns on one thread of this program, so that
//! the count does not depend on which is faster. Everything else is fixed, too: keys, payload, order.

mod exit;
mod relay;

use std::hint::black_box;

use anyhow::{Context as _, Result, bail};

use exit::{Exit, Joined, Way};
use relay::{Direction, Load, Relay};

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.as_slice() {
        [direction, threads, load, first, turns] => {
            relayed(direction, threads, load, [number(first)?, number(turns)?])
        }
        [way, joined, first, turns] => exited(way, joined, [number(first)?, number(turns)?]),
        _ => bail!(
            "usage: weft-instructions forward|backward THREADS few|many|thin|asked FIRST TURNS\n\
             or: weft-instructions down|up plain|conflux|mtor FIRST TURNS"
        ),
    }
}

fn number(turns: &str) -> Result<u32> {
    turns.parse().context("a number of turns")
}

/// callgrind writes a separate file for its counts before each call: it looks for this name.
#[inline(never)]
fn counted_turns_border() {
    black_box(());
}

/// Cells through a relay.
fn relayed(direction: &str, threads: &str, load: &str, [first, turns]: [u32; 2]) -> Result<()> {
    let direction = match direction {
        "forward" => Direction::Forward,
        "backward" => Direction::Backward,
        other => bail!("{other} is neither forward nor backward"),
    };
    let threads = match threads {
        "1" => 1,
        "2" => 2,
        other => bail!("{other} threads: only 1 and 2 can be played"),
    };
    let load = match load {
        "few" => Load::FEW,
        "many" => Load::MANY,
        "thin" => Load::THIN,
        "asked" => Load::ASKED,
        other => bail!("{other} is none of few, many, thin and asked"),
    };
    let mut relay = Relay::with_circuits(threads, load)?;
    for _ in 0..first {
        relay.turn(direction);
    }
    let before = relay.relayed()?;
    counted_turns_border();
    for _ in 0..turns {
        relay.turn(direction);
    }
    counted_turns_border();
    println!("{} cells", relay.relayed()? - before);
    Ok(())
}

/// A stream at an exit.
fn exited(way: &str, joined: &str, [first, turns]: [u32; 2]) -> Result<()> {
    let way = match way {
        "down" => Way::Down,
        "up" => Way::Up,
        other => bail!("{other} is neither down nor up"),
    };
    let joined = match joined {
        "plain" => Joined::Plain,
        "conflux" => Joined::Conflux,
        "mtor" => Joined::Mtor,
        other => bail!("{other} is none of plain, conflux and mtor"),
    };
    let mut exit = Exit::new(joined)?;
    for _ in 0..first {
        exit.turn(way)?;
    }
    let before = exit.moved()?;
    counted_turns_border();
    for _ in 0..turns {
        exit.turn(way)?;
    }
    counted_turns_border();
    println!("{} cells", exit.moved()? - before);
    Ok(())
}
