//! Program behind `cargo xtask bench`.

fn main() -> anyhow::Result<()> {
    weft_measure::bench()
}
