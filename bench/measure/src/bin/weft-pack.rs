//! What the script `run` of a pack runs. A program of its own, since it draws no plots: an archive must be small.

fn main() -> anyhow::Result<()> {
    weft_measure::pack()
}
