//! Program for the script `run` of a pack, and for each of its rows. It is separate from
//! `weft-measure` and has only two experiments of weft-lab, because an archive must be small.

fn main() -> anyhow::Result<std::process::ExitCode> {
    weft_measure::pack()
}
