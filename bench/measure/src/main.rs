//! What `cargo xtask bench` runs.

fn main() -> anyhow::Result<()> {
    weft_measure::bench()
}
