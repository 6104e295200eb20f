//! Scenarios: whole networks in virtual time, with measurements as arrays.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use numpy::{Element, IntoPyArray as _, PyArray1, PyArray2, PyArrayMethods as _};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use weft_model::traffic::Record;
use weft_model::traffic::records::Outcome;
use weft_sim::read;
use weft_stats::bounds::{Bounds, SEED};
use weft_virtual::results::{CircuitResults, RelayResults};
use weft_virtual::{Files, Results, Scenario as Parsed, World};

use crate::given::Given;
use crate::links::none_of;
use crate::network::raised;

/// Repetitions are counted from 1.
const REPETITION: Bounds<u32> = Bounds::new(1, 1_000_000);
/// Virtual time between two checks for Ctrl-C.
const SLICE: Duration = Duration::from_millis(100);
/// Interval of checks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(100);

/// A scenario: a Tor network with its users.
#[pyclass(frozen, module = "weft_sim")]
pub(crate) struct Scenario {
    name: String,
    text: String,
    parsed: Parsed,
    /// Contents of the files that it names.
    named: Vec<(String, Vec<u8>)>,
    files: Files,
}

impl Scenario {
    /// With the files that `load` finds.
    fn new(
        name: String,
        text: String,
        load: impl Fn(&str) -> PyResult<Vec<u8>>,
    ) -> PyResult<Scenario> {
        let parsed = Parsed::parse(&name, &text).map_err(wrong)?;
        let (mut named, mut files) = (Vec::new(), Files::default());
        for (file, _) in parsed.files() {
            let content = load(file)?;
            files.insert(file, content.clone());
            named.push((file.to_owned(), content));
        }
        Ok(Scenario {
            name,
            text,
            parsed,
            named,
            files,
        })
    }

    /// The place of the arm of this name; without a name, of the only one.
    fn arm(&self, name: Option<&str>) -> PyResult<usize> {
        let names = self.arms();
        match name {
            None if names.len() == 1 => Ok(0),
            None => Err(PyValueError::new_err(format!(
                "{} has several arms: name one of {}",
                self.name,
                names.join(", ")
            ))),
            Some(name) => names
                .iter()
                .position(|one| *one == name)
                .ok_or_else(|| none_of("arm", name, &names.join(", "))),
        }
    }
}

#[pymethods]
impl Scenario {
    #[staticmethod]
    fn read(py: Python<'_>, path: PathBuf) -> PyResult<Scenario> {
        py.detach(|| {
            let text = read::file(&path).map_err(raised)?.text;
            let name = path.display().to_string();
            let text = String::from_utf8(text)
                .map_err(|_| PyValueError::new_err(format!("{name}: it is no text (UTF-8)")))?;
            let folder = path.parent().unwrap_or(Path::new(""));
            Scenario::new(name, text, |file| {
                let content = read::file(&folder.join(file));
                content.map(|document| document.text).map_err(raised)
            })
        })
    }

    #[staticmethod]
    #[pyo3(signature = (text, name="scenario", files=None))]
    fn parse(
        text: &str,
        name: &str,
        files: Option<HashMap<String, Vec<u8>>>,
    ) -> PyResult<Scenario> {
        let files = files.unwrap_or_default();
        Scenario::new(name.to_owned(), text.to_owned(), |file| {
            files.get(file).cloned().ok_or_else(|| {
                PyValueError::new_err(format!(
                    "{name} names the file {file:?}: hand it in by `files`"
                ))
            })
        })
    }

    /// For `pickle`: a scenario travels as its text and the files that it names.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let files = PyDict::new(py);
        for (name, content) in &self.named {
            files.set_item(name, PyBytes::new(py, content))?;
        }
        let parse = py.get_type::<Scenario>().getattr("parse")?;
        let args = (&self.text, &self.name, files).into_pyobject(py)?;
        Ok((parse, args.into_any()))
    }

    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    #[getter]
    fn arms(&self) -> Vec<&str> {
        self.parsed.arms.iter().map(|arm| &*arm.name).collect()
    }

    #[getter]
    fn repetitions(&self) -> u32 {
        self.parsed.repetitions
    }

    #[getter]
    fn duration(&self) -> f64 {
        self.parsed.duration.as_secs_f64()
    }

    fn __repr__(&self) -> String {
        format!("<weft_sim.Scenario {}>", self.name)
    }

    #[pyo3(
        signature = (*, arm=None, repetition=Given::from(1), seed=Given::from(1)),
        text_signature = "($self, *, arm=None, repetition=1, seed=1)"
    )]
    fn run<'py>(
        &self,
        py: Python<'py>,
        arm: Option<&str>,
        repetition: Given,
        seed: Given,
    ) -> PyResult<Bound<'py, PyDict>> {
        let arm = self.arm(arm)?;
        let repetition = repetition.check("repetition", REPETITION)?;
        let seed = seed.check("seed", SEED)?;
        let (clients, results) = py.detach(|| self.simulate(arm, repetition, seed))?;
        arrays(py, clients, &results)
    }
}

impl Scenario {
    /// The names of all clients, and the measurements.
    fn simulate(&self, arm: usize, repetition: u32, seed: u64) -> PyResult<(Vec<String>, Results)> {
        let setup = self.parsed.setup(&self.files, arm, repetition, seed);
        let setup = setup.map_err(wrong)?;
        let hosts = setup.clients.iter().map(|client| client.host as usize);
        let clients = hosts.filter_map(|host| Some(setup.hosts.get(host)?.name.clone()));
        let clients = clients.collect();
        let mut world = World::new(setup, Instant::now());
        let (mut at, end, mut looked) = (Duration::ZERO, self.parsed.duration, Instant::now());
        while at < end {
            at = end.min(at + SLICE);
            world.run_until(at);
            if looked.elapsed() >= LOOK {
                Python::attach(|py| py.check_signals())?;
                looked = Instant::now();
            }
        }
        Ok((clients, world.into_results()))
    }
}

fn wrong(error: weft_virtual::ScenarioError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Numbers of names, in the order of the list.
struct Numbers {
    names: Vec<String>,
    by_name: HashMap<String, i32>,
}

impl Numbers {
    fn of(names: impl IntoIterator<Item = String>) -> Numbers {
        let mut numbers = Numbers {
            names: Vec::new(),
            by_name: HashMap::new(),
        };
        for name in names {
            numbers.number(&name);
        }
        numbers
    }

    /// The number of a name; a new one for a new name.
    fn number(&mut self, name: &str) -> i32 {
        if let Some(number) = self.by_name.get(name) {
            return *number;
        }
        let number = i32::try_from(self.names.len()).unwrap_or(i32::MAX);
        self.names.push(name.to_owned());
        self.by_name.insert(name.to_owned(), number);
        number
    }
}

fn array<'py, A, T: Element>(
    py: Python<'py>,
    all: &[A],
    of: impl FnMut(&A) -> T,
) -> Bound<'py, PyArray1<T>> {
    all.iter().map(of).collect::<Vec<T>>().into_pyarray(py)
}

/// Seconds; not a number where there is no time.
fn seconds(time: Option<Duration>) -> f64 {
    time.map_or(f64::NAN, |time| time.as_secs_f64())
}

/// Rows of different lengths, filled up.
fn table<'py, T: Element + Copy>(
    py: Python<'py>,
    rows: &[Vec<T>],
    filling: T,
) -> PyResult<Bound<'py, PyArray2<T>>> {
    let width = rows.iter().map(Vec::len).max().unwrap_or(0);
    let mut flat = Vec::with_capacity(width * rows.len());
    for row in rows {
        flat.extend_from_slice(row);
        flat.resize(flat.len() + width - row.len(), filling);
    }
    flat.into_pyarray(py).reshape([rows.len(), width])
}

fn arrays<'py>(
    py: Python<'py>,
    clients: Vec<String>,
    results: &Results,
) -> PyResult<Bound<'py, PyDict>> {
    let mut clients = Numbers::of(clients);
    let mut names = Numbers::of(results.relays.iter().map(|relay| relay.name.clone()));
    let all = PyDict::new(py);
    all.set_item("simulated", results.simulated.as_secs_f64())?;
    all.set_item("interval", results.interval.as_secs_f64())?;
    all.set_item("relayed_bytes", results.relayed_bytes)?;
    all.set_item("events", results.events)?;
    all.set_item("streams", streams(py, &results.streams, &mut clients)?)?;
    all.set_item("relays", relays(py, &results.relays)?)?;
    let circuits = circuits(py, &results.circuits, &mut clients, &mut names)?;
    all.set_item("circuits", circuits)?;
    all.set_item("clients", clients.names)?;
    Ok(all)
}

fn streams<'py>(
    py: Python<'py>,
    records: &[Record],
    clients: &mut Numbers,
) -> PyResult<Bound<'py, PyDict>> {
    let mut models: Vec<&str> = records.iter().map(|record| &*record.model).collect();
    models.sort_unstable();
    models.dedup();
    let mut numbers = Numbers::of(models.iter().map(|model| (*model).to_owned()));
    let streams = PyDict::new(py);
    streams.set_item("models", models)?;
    streams.set_item(
        "client",
        array(py, records, |one| clients.number(&one.client)),
    )?;
    streams.set_item(
        "model",
        array(py, records, |one| numbers.number(&one.model)),
    )?;
    streams.set_item("number", array(py, records, |one| one.stream))?;
    streams.set_item(
        "started",
        array(py, records, |one| one.started.as_secs_f64()),
    )?;
    type Time = fn(&Record) -> Option<Duration>;
    let times: [(&str, Time); 5] = [
        ("opened", |one| one.times.opened),
        ("rtt", Record::round_trip),
        ("ttfb", Record::time_to_first_byte),
        ("ttlb", Record::time_to_last_byte),
        ("ended", |one| Some(one.ended)),
    ];
    for (name, of) in times {
        streams.set_item(name, array(py, records, |one| seconds(of(one))))?;
    }
    streams.set_item("down_bytes", array(py, records, |one| one.times.down.bytes))?;
    streams.set_item("up_bytes", array(py, records, |one| one.times.up.bytes))?;
    let is_complete = array(py, records, Record::is_complete);
    streams.set_item("complete", is_complete)?;
    let is_failed = array(py, records, |one| matches!(one.outcome, Outcome::Failed(_)));
    streams.set_item("failed", is_failed)?;
    Ok(streams)
}

fn relays<'py>(py: Python<'py>, results: &[RelayResults]) -> PyResult<Bound<'py, PyDict>> {
    let names: Vec<&str> = results.iter().map(|relay| &*relay.name).collect();
    let of = |series: fn(&RelayResults) -> &Vec<u64>| -> PyResult<_> {
        let rows: Vec<Vec<u64>> = results.iter().map(|one| series(one).clone()).collect();
        table(py, &rows, 0)
    };
    let relays = PyDict::new(py);
    relays.set_item("name", names)?;
    relays.set_item("written", of(|one| &one.written)?)?;
    relays.set_item("queued", of(|one| &one.queued)?)?;
    relays.set_item("busy", array(py, results, |one| one.busy))?;
    relays.set_item("circuits", array(py, results, |one| one.circuits))?;
    Ok(relays)
}

fn circuits<'py>(
    py: Python<'py>,
    results: &[CircuitResults],
    clients: &mut Numbers,
    relays: &mut Numbers,
) -> PyResult<Bound<'py, PyDict>> {
    let paths: Vec<Vec<i32>> = results
        .iter()
        .map(|one| one.path.iter().map(|name| relays.number(name)).collect())
        .collect();
    let round_trips: Vec<(u64, f64)> = results
        .iter()
        .zip(0..)
        .flat_map(|(one, number)| {
            let times = one.round_trips.iter();
            times.map(move |time| (number, time.as_secs_f64()))
        })
        .collect();
    let circuits = PyDict::new(py);
    circuits.set_item(
        "client",
        array(py, results, |one| clients.number(&one.client)),
    )?;
    circuits.set_item("path", table(py, &paths, -1)?)?;
    circuits.set_item("began", array(py, results, |one| one.began.as_secs_f64()))?;
    circuits.set_item("built", array(py, results, |one| seconds(one.built)))?;
    circuits.set_item("round_trip", array(py, &round_trips, |(_, time)| *time))?;
    circuits.set_item("round_trip_of", array(py, &round_trips, |(of, _)| *of))?;
    Ok(circuits)
}
