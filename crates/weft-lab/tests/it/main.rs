//! `weft lab` and `weft sim` from outside, as people start them: by way of the `weft` that was built beside this weft-lab.
//!
//! One program, so that this crate is linked once for all of its integration tests; a new file is a
//! module here.

mod attacks;
mod cci;
mod hops;
mod install;
mod lab_mtor;
mod lab_up;
mod loss;
mod net;
mod output;
mod plots;
mod relay;
mod report;
mod run;
mod run_netns;
mod run_shadow;
mod selection;
mod shadow;
mod sim;
mod sim_documents;
mod sim_full;
mod soak;
mod traffic;

/// The `weft` in the folder of the weft-lab that was built.
fn weft() -> &'static str {
    let lab = env!("CARGO_BIN_EXE_weft-lab");
    let weft = lab.strip_suffix("-lab").expect("its name");
    assert!(
        std::path::Path::new(weft).is_file(),
        "there is no {weft}: cargo build --package weft"
    );
    weft
}
