//! `weft-lab`: the workbench. `weft lab …` is `weft-lab …`, and `weft sim …` is `weft-lab sim …`.

mod program;

use std::process::ExitCode;

// Nodes that are profiled run in this program: they have the allocator of `weft`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    program::main(std::env::args_os())
}
