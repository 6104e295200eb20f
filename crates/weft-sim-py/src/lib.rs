//! The Python package `weft_sim`: networks and circuits through them, and runs of scenarios in
//! virtual time, as NumPy arrays.
//!
//! The work is done in weft-sim and weft-virtual; this crate only adapts names, types and errors to
//! Python. The interpreter is free while something is simulated, so threads of Python simulate at
//! the same time. `weft_sim.pyi` documents the functions.

mod given;
mod links;
mod network;
mod scenario;
mod spread;

use pyo3::prelude::*;

/// Tor networks and simulated paths through them, as NumPy arrays.
#[pymodule(name = "weft_sim")]
mod package {
    #[pymodule_export]
    use crate::links::Links;
    #[pymodule_export]
    use crate::network::{Network, read};
    #[pymodule_export]
    use crate::scenario::Scenario;
    #[pymodule_export]
    use crate::spread::{Spread, spread};

    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
