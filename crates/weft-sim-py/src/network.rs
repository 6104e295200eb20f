//! Networks: read from documents, as arrays.

use std::path::PathBuf;

use numpy::{IntoPyArray as _, PyArray1, PyArray2, PyArrayMethods as _};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use weft_sim::links::count::Circuits;
use weft_sim::links::run::{Plan, draw, run};
use weft_sim::links::salsa::{Salsa, weights};
use weft_sim::links::{CIRCUITS, REPETITIONS};
use weft_sim::network::{Flags, Network as Relays, Position};
use weft_sim::parallel::{THREADS, cores};
use weft_sim::read::{ReadError, documents, parse};
use weft_sim::{synth, write};
use weft_stats::bounds::{Bounds, SEED};

use crate::given::Given;
use crate::links::{self, Links};

/// The repetitions of [`Network::links`] by their place.
const REPETITION: Bounds<u32> = Bounds::new(0, REPETITIONS.most() - 1);

/// A Tor network: the relays of a consensus document.
#[pyclass(frozen, module = "weft_sim")]
pub(crate) struct Network(pub(crate) Relays);

#[pymethods]
impl Network {
    #[staticmethod]
    #[pyo3(signature = (text, name="document"))]
    fn parse(py: Python<'_>, text: &[u8], name: &str) -> PyResult<Network> {
        py.detach(|| parse(text, name)).map(Network).map_err(raised)
    }

    #[staticmethod]
    #[pyo3(signature = (relays=Given::from(6500), seed=Given::from(1)), text_signature = "(relays=6500, seed=1)")]
    fn synthetic(py: Python<'_>, relays: Given, seed: Given) -> PyResult<Network> {
        let relays = relays.check("relays", synth::RELAYS)?;
        let seed = seed.check("seed", SEED)?;
        let made = py.detach(|| synth::network(relays, seed));
        made.map(Network)
            .map_err(|error| PyValueError::new_err(error.to_string()))
    }

    fn to_document<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, py.detach(|| write::consensus(&self.0)).as_bytes())
    }

    /// For `pickle`: a network travels as its document.
    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        let parse = py.get_type::<Network>().getattr("parse")?;
        Ok((parse, (self.to_document(py),)))
    }

    #[getter]
    fn valid_after(&self) -> &str {
        &self.0.valid_after
    }

    fn __len__(&self) -> usize {
        self.0.relays.len()
    }

    fn __repr__(&self) -> String {
        format!(
            "<weft_sim.Network of {}, {} relays>",
            self.0.valid_after,
            self.0.relays.len()
        )
    }

    fn nicknames(&self) -> Vec<&str> {
        self.0.relays.iter().map(|one| &*one.nickname).collect()
    }

    fn fingerprints<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<u8>>> {
        let bytes = self.0.relays.iter().flat_map(|one| one.fingerprint);
        let flat = bytes.collect::<Vec<u8>>().into_pyarray(py);
        flat.reshape([self.0.relays.len(), 20])
    }

    fn bandwidths<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<u64>> {
        let numbers = self.0.relays.iter().map(|one| one.bandwidth);
        numbers.collect::<Vec<u64>>().into_pyarray(py)
    }

    fn has_flag<'py>(&self, py: Python<'py>, flag: &str) -> PyResult<Bound<'py, PyArray1<bool>>> {
        let wanted = Flags::named(flag);
        if wanted == Flags::default() {
            return Err(PyValueError::new_err(format!(
                "{flag}: paths depend on no flag of this name"
            )));
        }
        let flags = self.0.relays.iter().map(|one| one.flags.has(wanted));
        Ok(flags.collect::<Vec<bool>>().into_pyarray(py))
    }

    fn probabilities<'py>(
        &self,
        py: Python<'py>,
        position: &str,
    ) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let position = match position {
            "guard" => Position::Guard,
            "middle" => Position::Middle,
            "exit" => Position::Exit,
            _ => return Err(links::none_of("position", position, "guard, middle, exit")),
        };
        let mut weights = weights(&self.0, position);
        let sum: f64 = weights.iter().sum();
        for weight in &mut weights {
            *weight /= sum;
        }
        Ok(weights.into_pyarray(py))
    }

    #[pyo3(
        signature = (count, *, kind="external", circuits_per_client=Given::from(1), seed=Given::from(1), repetition=Given::from(0)),
        text_signature = "($self, count, *, kind='external', circuits_per_client=1, seed=1, repetition=0)"
    )]
    fn circuits<'py>(
        &self,
        py: Python<'py>,
        count: Given,
        kind: &str,
        circuits_per_client: Given,
        seed: Given,
        repetition: Given,
    ) -> PyResult<Bound<'py, PyArray2<u32>>> {
        let model = links::model(kind, &circuits_per_client)?;
        let plan = Plan {
            circuits: count.check("count", CIRCUITS)?,
            seed: seed.check("seed", SEED)?,
            ..Plan::default()
        };
        let repetition = u64::from(repetition.check("repetition", REPETITION)?);
        let flat = py.detach(|| {
            plan.check()?;
            let paths = Salsa::new(&self.0, &model)?;
            let mut circuits = Circuits::default();
            draw(&paths, &plan, repetition, cores(), &mut circuits);
            let hops = circuits.guards.iter().zip(&circuits.middles);
            let hops = hops.zip(&circuits.exits);
            let flat = hops.flat_map(|((guard, middle), exit)| [*guard, *middle, *exit]);
            Ok(flat.collect::<Vec<u32>>())
        });
        let flat = flat.map_err(links::raised)?;
        let rows = flat.len() / 3;
        flat.into_pyarray(py).reshape([rows, 3])
    }

    #[pyo3(
        signature = (circuits, *, kind="external", direction="directed", circuits_per_client=Given::from(1), repeat=Given::from(1), seed=Given::from(1), threads=None),
        text_signature = "($self, circuits, *, kind='external', direction='directed', circuits_per_client=1, repeat=1, seed=1, threads=None)"
    )]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    fn links(
        &self,
        py: Python<'_>,
        circuits: Given,
        kind: &str,
        direction: &str,
        circuits_per_client: Given,
        repeat: Given,
        seed: Given,
        threads: Option<Given>,
    ) -> PyResult<Links> {
        let model = links::model(kind, &circuits_per_client)?;
        let directed = match direction {
            "directed" => true,
            "undirected" => false,
            _ => {
                return Err(links::none_of(
                    "direction",
                    direction,
                    "directed, undirected",
                ));
            }
        };
        let plan = Plan {
            circuits: circuits.check("circuits", CIRCUITS)?,
            directed,
            repetitions: repeat.check("repeat", REPETITIONS)?,
            seed: seed.check("seed", SEED)?,
            threads: match threads {
                Some(threads) => threads.check("threads", THREADS)?,
                None => cores(),
            },
        };
        let runs = py.detach(|| {
            let paths = Salsa::new(&self.0, &model)?;
            run(&paths, &plan, || ())
        });
        Ok(Links(runs.map_err(links::raised)?.tallies))
    }
}

/// The networks of all documents that the paths name, in order.
#[pyfunction]
#[pyo3(signature = (*paths))]
pub(crate) fn read(py: Python<'_>, paths: Vec<PathBuf>) -> PyResult<Vec<Network>> {
    let networks = py.detach(|| {
        let mut networks = Vec::new();
        documents(&paths, &mut |document| {
            networks.push(Network(parse(&document.text, &document.name)?));
            Ok::<(), ReadError>(())
        })?;
        Ok::<_, ReadError>(networks)
    });
    networks.map_err(raised)
}

/// Converts an error to the exception that Python programs expect: `OSError` where a file cannot be
/// read, `ValueError` where its contents are wrong.
pub(crate) fn raised(error: ReadError) -> PyErr {
    match error {
        ReadError::Io { .. } | ReadError::Nothing { .. } => PyOSError::new_err(error.to_string()),
        _ => PyValueError::new_err(error.to_string()),
    }
}
