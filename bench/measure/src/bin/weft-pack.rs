//! What the script `run` of a pack runs, and each of its rows. A program of its own, with two experiments of weft-lab: an
//! archive must be small.

fn main() -> anyhow::Result<std::process::ExitCode> {
    weft_measure::pack()
}
