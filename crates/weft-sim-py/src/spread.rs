//! Statistics of repetitions and of documents.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use weft_sim::over::Over;

/// Mean, deviation and interval.
#[pyclass(frozen, get_all, module = "weft_sim")]
pub(crate) struct Spread {
    mean: f64,
    stddev: Option<f64>,
    ci95: Option<f64>,
    n: usize,
    range: (f64, f64),
}

#[pymethods]
impl Spread {
    fn __repr__(&self) -> String {
        let Spread { mean, n, .. } = self;
        match self.ci95 {
            Some(ci95) => format!("<weft_sim.Spread {mean:.6} ± {ci95:.6}, n = {n}>"),
            None => format!("<weft_sim.Spread {mean:.6}, n = {n}>"),
        }
    }
}

/// Of the repetitions of one document, or of several documents.
#[pyfunction]
#[pyo3(signature = (*documents))]
pub(crate) fn spread(documents: Vec<Vec<f64>>) -> PyResult<Spread> {
    let over = Over::of(&documents).ok_or_else(|| {
        PyValueError::new_err("documents: each must have one number or more, all of them finite")
    })?;
    let weft_stats::Spread {
        mean,
        stddev,
        ci95,
        n,
    } = over.spread;
    Ok(Spread {
        mean,
        stddev,
        ci95,
        n,
        range: over.range.into(),
    })
}
