//! The simulations of a run: their folders, and what runs them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use weft_model::traffic::Model;
use weft_testnet::shadow::network::{CONFIGURATION, DATA, HOSTS};
use weft_testnet::shadow::{LOG, MISSING, installed, program, simulate_in};

use super::super::job::{Job, Measured};
use super::super::netns::{check_arms, links};
use super::super::source::Source;
use super::work::MAX_BYTES;
use super::write::Settings;
use super::{read, write};
use crate::experiment::{Session, json};
use crate::jobs::Meter;

/// The folder of the simulations in that of the results.
const FOLDER: &str = "simulations";
/// Whose simulation it is, in the folder of each.
const JOB: &str = "job.json";

/// Where simulations are, and what runs them.
#[derive(Clone, Debug, clap::Args)]
pub struct SimulationArgs {
    /// With --testbed shadow: the folder of the simulations, a new one or that of an earlier run. Those that Shadow has run
    /// are read, not run [default: simulations, in the folder of the results].
    #[arg(long, value_name = "FOLDER")]
    simulations: Option<PathBuf>,
    /// With --testbed shadow: run the shadow at this path [default: that in PATH or ~/.local/bin].
    #[arg(long, value_name = "FILE")]
    shadow: Option<PathBuf>,
}

impl SimulationArgs {
    /// Refuses these arguments on another testbed, and a path without a program.
    pub(crate) fn check(&self, is_shadow: bool) -> Result<()> {
        for (name, given) in [
            ("simulations", self.simulations.is_some()),
            ("shadow", self.shadow.is_some()),
        ] {
            ensure!(!given || is_shadow, "--{name} is for --testbed shadow");
        }
        self.shadow.as_deref().map(program).transpose().map(drop)
    }
}

/// The simulations of a run.
#[derive(Debug)]
pub(crate) struct Simulations<'a> {
    folder: PathBuf,
    shadow: Option<PathBuf>,
    settings: Settings<'a>,
}

/// The run that the simulation belongs to. The results of another run's simulation must not be read
/// for this one.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Whose {
    job: Job,
    seed: u64,
    /// The scenario's text.
    scenario: String,
}

/// Refuses what cannot be simulated.
///
/// # Errors
///
/// It has too many hosts, or keys that real processes do not have.
pub(in crate::run) fn check(source: &Source) -> Result<()> {
    check_arms(source)?;
    // Repetitions draw other hosts, and as many.
    let setup = source.scenario.setup(&source.files, 0, 1, 0)?;
    let is_markov = |model: &Model| matches!(model, Model::Markov(_));
    if let Some(client) = setup.clients.iter().find(|one| is_markov(&one.model)) {
        bail!(
            "{}: the model {} has Markov models, which --testbed shadow has no users for: use one with a download and a pause",
            source.scenario.file,
            client.model_name
        );
    }
    links::topology(source, &setup, links::SHADOW).map(drop)
}

impl<'a> Simulations<'a> {
    /// Writes the simulations of these jobs that are not there yet. An experiment of several parts has a folder for each.
    ///
    /// # Errors
    ///
    /// Shadow is not installed and has to run some: what is missing and what to do. Or simulations of another run are there, or
    /// the system refuses.
    pub(crate) fn prepare(
        (part, args): (&str, &SimulationArgs),
        session: &Session<'_>,
        (source, seed, weft): (&'a Source, u64, &'a Path),
        jobs: &[Job],
        threads: usize,
    ) -> Result<Simulations<'a>> {
        let folder = match (&args.simulations, session.folder()) {
            (Some(folder), _) => folder.clone(),
            (None, Some(folder)) => folder.join(FOLDER),
            (None, None) => bail!("simulations need a folder"),
        };
        let all = folder.clone();
        let folder = folder.join(part);
        fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
        // Shadow runs in the folders of the simulations.
        let folder = fs::canonicalize(&folder).context("finding the folder of the simulations")?;
        let shadow = match &args.shadow {
            Some(path) => Some(program(path)?),
            None => installed(),
        };
        let simulations = Simulations {
            folder,
            shadow,
            settings: Settings {
                source,
                seed,
                weft,
                is_alone: threads.min(jobs.len()) <= 1,
            },
        };
        for job in jobs {
            simulations.write(job)?;
        }
        let open = jobs.iter().map(|job| simulations.place(job));
        let open: Vec<PathBuf> = open.filter(|place| !is_over(place)).collect();
        if simulations.shadow.is_none() && !open.is_empty() {
            let commands = open.iter().map(|place| {
                format!(
                    "\n  (cd {} && shadow {CONFIGURATION} > {LOG})",
                    place.display()
                )
            });
            bail!(
                "{MISSING}. {} simulations are written. Run them where it is, and then this command once more with\n  \
                 --simulations {}\nwhich reads what they leave:\n{}",
                open.len(),
                fs::canonicalize(&all).unwrap_or(all).display(),
                commands.collect::<String>()
            );
        }
        Ok(simulations)
    }

    /// The folder of a job's simulation.
    fn place(&self, job: &Job) -> PathBuf {
        self.folder.join(format!("{}-{}", job.arm, job.repetition))
    }

    fn write(&self, job: &Job) -> Result<()> {
        let place = self.place(job);
        let whose = Whose {
            job: job.clone(),
            seed: self.settings.seed,
            scenario: self.settings.source.text.clone(),
        };
        let shown = place.display();
        if place.join(JOB).is_file() {
            let there: Whose = read::json(&place.join(JOB), MAX_BYTES)?;
            ensure!(
                there == whose,
                "{shown} is a simulation of another run: other arguments, or another seed. Name another folder"
            );
            return Ok(());
        }
        ensure!(
            !place.exists(),
            "{shown} is there, and no whole simulation: remove it, or name another folder"
        );
        write::write(&self.settings, job, &place)
            .with_context(|| format!("writing the simulation {shown}"))?;
        // Last: a folder with this file is whole.
        let path = place.join(JOB);
        fs::write(&path, json(&whose)?).with_context(|| format!("writing {}", path.display()))
    }

    /// Runs a job to its end, or reads it if it was run.
    ///
    /// # Errors
    ///
    /// Shadow or a process in it failed, or left something else than results.
    pub(in crate::run) fn run(&self, job: &Job, meter: &Meter<'_>) -> Result<Measured> {
        let place = self.place(job);
        let scenario = &self.settings.source.scenario;
        let setup = scenario.setup(
            &self.settings.source.files,
            job.arm_number,
            job.repetition,
            self.settings.seed,
        )?;
        if !is_over(&place) {
            let shadow = self.shadow.as_deref().context(MISSING)?;
            let at =
                |now: Duration| meter.at(now.saturating_sub(write::SETTLE).min(scenario.duration));
            let ended = simulate_in(shadow, &place, || meter.is_stopped(), at)?;
            match ended {
                Some(Ok(())) => {}
                Some(Err(why)) => {
                    bail!("{why} (to run it again, remove {}/{DATA})", place.display())
                }
                None => {
                    // A partial file would be read as a whole one.
                    let data = place.join(DATA);
                    let _ = fs::remove_dir_all(&data);
                    bail!("stopped while Shadow ran");
                }
            }
        }
        meter.at(scenario.duration);
        let results = read::results(scenario, &setup, &place.join(DATA).join(HOSTS))?;
        Ok(Measured {
            clients: setup.clients.len(),
            results,
        })
    }
}

/// Shadow was here.
fn is_over(place: &Path) -> bool {
    place.join(DATA).is_dir()
}
