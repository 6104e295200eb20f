//! Relays cells through the connection managers of a relay, and does nothing else.
//!
//! ```text
//! weft-instructions forward|backward THREADS few|many|asked TURNS
//! ```
//!
//! `cargo xtask instructions` runs this under callgrind with two numbers of turns; the difference,
//! divided by the cells, is what one cell costs without start-up. Counted is what a connection
//! thread does with a cell between TLS and TLS: cut out of the plaintext, looked up, copied,
//! encrypted or decrypted, carried to the other half (with two threads: through a ring), queued,
//! scheduled, written out, its memory recycled. Not counted: the kernel and TLS.
//!
//! Two threads of the relay are two managers that take turns on one thread of this program, so that
//! the count does not depend on which is faster. Everything else is fixed, too: keys, payload, order.

mod relay;

use anyhow::{Context as _, Result, bail};

use relay::{Direction, Load, Relay};

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [direction, threads, load, turns] = words.as_slice() else {
        bail!("usage: weft-instructions forward|backward THREADS few|many|asked TURNS");
    };
    let direction = match direction.as_str() {
        "forward" => Direction::Forward,
        "backward" => Direction::Backward,
        other => bail!("{other} is neither forward nor backward"),
    };
    let threads = match threads.as_str() {
        "1" => 1,
        "2" => 2,
        other => bail!("{other} threads: only 1 and 2 can be played"),
    };
    let load = match load.as_str() {
        "few" => Load::FEW,
        "many" => Load::MANY,
        "asked" => Load::ASKED,
        other => bail!("{other} is none of few, many and asked"),
    };
    let turns: u32 = turns.parse().context("the number of turns")?;
    let mut relay = Relay::with_circuits(threads, load)?;
    for _ in 0..turns {
        relay.turn(direction);
    }
    println!("{} cells", relay.relayed()?);
    Ok(())
}
