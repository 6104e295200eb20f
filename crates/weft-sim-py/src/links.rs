//! Counted links, as arrays.

use std::collections::BTreeMap;

use numpy::{IntoPyArray as _, PyArray1, PyArray2, PyArrayMethods as _};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use weft_sim::links::count::Tally;
use weft_sim::links::salsa::Model;
use weft_sim::links::{CIRCUITS_PER_CLIENT, CircuitKind, LinksError};

use crate::given::Given;

/// No row of [`Links::circuits_per_link`] is longer: a table of all repetitions has a bound, too.
const MOST_PER_LINK: u64 = 1 << 20;

/// The results of the repetitions.
#[pyclass(frozen, module = "weft_sim")]
pub(crate) struct Links(pub(crate) Vec<Tally>);

impl Links {
    fn array<'py, T: numpy::Element>(
        &self,
        py: Python<'py>,
        number: impl Fn(&Tally) -> T,
    ) -> Bound<'py, PyArray1<T>> {
        self.0
            .iter()
            .map(number)
            .collect::<Vec<T>>()
            .into_pyarray(py)
    }
}

#[pymethods]
impl Links {
    #[getter]
    fn links<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<u64>> {
        self.array(py, |tally| tally.all.links)
    }

    #[getter]
    fn shared_links<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<u64>> {
        self.array(py, |tally| tally.all.shared)
    }

    #[getter]
    fn shared_percent<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        self.array(py, |tally| tally.all.percent_shared())
    }

    #[getter]
    fn circuits_per_link<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<u64>>> {
        let most =
            |by: &BTreeMap<u64, u64>| by.last_key_value().map_or(0, |(circuits, _)| *circuits);
        let most = self.0.iter().map(|tally| most(&tally.by_circuits)).max();
        let most = most.unwrap_or(0);
        if most >= MOST_PER_LINK {
            return Err(PyValueError::new_err(format!(
                "a link carries {most} circuits: the table would be too long"
            )));
        }
        let width = most as usize + 1;
        let mut flat = vec![0_u64; width * self.0.len()];
        for (row, tally) in flat.chunks_mut(width).zip(&self.0) {
            for (circuits, links) in &tally.by_circuits {
                if let Some(cell) = row.get_mut(*circuits as usize) {
                    *cell = *links;
                }
            }
        }
        flat.into_pyarray(py).reshape([self.0.len(), width])
    }

    fn __repr__(&self) -> String {
        format!("<weft_sim.Links of {} repetitions>", self.0.len())
    }
}

pub(crate) fn model(kind: &str, circuits_per_client: &Given) -> PyResult<Model> {
    let kind = match kind {
        "external" => CircuitKind::External,
        "internal" => CircuitKind::Internal,
        "mixed" => CircuitKind::Mixed,
        _ => return Err(none_of("kind", kind, "external, internal, mixed")),
    };
    Ok(Model {
        kind,
        circuits_per_client: circuits_per_client
            .check("circuits_per_client", CIRCUITS_PER_CLIENT)?,
        ..Model::default()
    })
}

/// The error for an unknown word, with the known ones.
pub(crate) fn none_of(what: &str, word: &str, allowed: &str) -> PyErr {
    PyValueError::new_err(format!("{what} {word:?} is none of {allowed}"))
}

pub(crate) fn raised(error: LinksError) -> PyErr {
    PyValueError::new_err(error.to_string())
}
