//! `--model full` of `weft sim links`: all of Tor's path selection, and the simple model beside it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, ValueEnum};
use serde_json::json;
use weft_sim::full::{GuardRule, Model, ModelOptions};
use weft_sim::links::Paths;
use weft_sim::links::full::{Full, demand};
use weft_sim::links::report::Report;
use weft_sim::links::salsa;
use weft_sim::microdesc::Microdescs;
use weft_sim::network::Network;
use weft_sim::read;

/// Model of paths, and the settings of the full model.
#[derive(Debug, Args)]
pub(super) struct ModelArgs {
    /// SALSA's simple model, or all of Tor's path selection: families, subnets, flags, guards, ports.
    #[arg(long, value_enum, default_value_t = ModelArg::Simple)]
    model: ModelArg,
    /// Rule by which clients of the full model choose guards. --guards-per-client sets how many
    /// they use.
    #[arg(long, value_enum, default_value_t = GuardsArg::Tor)]
    guards: GuardsArg,
    /// Microdescriptors: families for the full model, exit policies for both. Files, plain or packed,
    /// folders, CollecTor's .tar archives.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    microdescs: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum ModelArg {
    Simple,
    Full,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum GuardsArg {
    /// C tor: a sample of 60, three primary guards, the first that suits (1 to 3 of them).
    Tor,
    /// TorPS: any suitable one of the client's guards, which are of different families.
    Torps,
    /// A new guard for each circuit.
    Fresh,
}

/// Builder of the full model's paths.
pub(super) struct FullModel {
    guards: GuardRule,
    microdescs: Option<Arc<Microdescs>>,
    failed: Arc<AtomicU64>,
}

impl ModelArgs {
    /// The microdescriptors, if there are some.
    pub(super) fn microdescs(&self) -> Result<Option<Arc<Microdescs>>> {
        match self.microdescs.as_slice() {
            [] => Ok(None),
            paths => Ok(Some(Arc::new(read::microdescs(paths)?))),
        }
    }

    /// The full model, if it is asked for.
    pub(super) fn full(
        &self,
        guards_per_client: u32,
        microdescs: Option<&Arc<Microdescs>>,
    ) -> Result<Option<FullModel>> {
        if self.model == ModelArg::Simple {
            return Ok(None);
        }
        let number = u8::try_from(guards_per_client).unwrap_or(u8::MAX);
        let most = match self.guards {
            GuardsArg::Tor => 3,
            GuardsArg::Torps => 60,
            GuardsArg::Fresh => 1,
        };
        ensure!(
            (1..=most).contains(&number),
            "--guards-per-client: with these --guards between 1 and {most}"
        );
        Ok(Some(FullModel {
            guards: match self.guards {
                GuardsArg::Tor => GuardRule::Sampled { used: number },
                GuardsArg::Torps => GuardRule::Torps { guards: number },
                GuardsArg::Fresh => GuardRule::Fresh,
            },
            microdescs: microdescs.cloned(),
            failed: Arc::default(),
        }))
    }
}

impl FullModel {
    /// Paths through a network, of the circuits and clients that the simple model would draw.
    pub(super) fn build(&self, network: &Network, model: &salsa::Model) -> Result<Box<dyn Paths>> {
        let options = ModelOptions {
            demand: demand(model.exits),
            guards: self.guards,
        };
        let paths = Model::new(network, self.microdescs.as_deref(), &options)?;
        let per_client = model.circuits_per_client;
        let paths = Full::new(paths, model.kind, per_client, self.failed.clone())?;
        Ok(Box::new(paths))
    }

    /// Refuses results from which circuits are missing.
    pub(super) fn check(&self) -> Result<()> {
        match self.failed.load(Ordering::Relaxed) {
            0 => Ok(()),
            failed => bail!(
                "{failed} circuits found no path: families and subnets of their exits leave no guard or middle"
            ),
        }
    }
}

/// Results of the full model, and of the simple one with the same circuits and seed.
pub(super) struct Both {
    pub(super) full: Report,
    pub(super) simple: Report,
}

impl Both {
    /// Percentage points between the models.
    fn difference(&self) -> f64 {
        self.full.shared_percent_mean - self.simple.shared_percent_mean
    }

    /// For people.
    pub(super) fn human(&self) -> String {
        let simple = &self.simple;
        format!(
            "{}\n{}\n{:<34}{:>+8.3} points\n",
            self.full,
            simple.row("simple model: shared of all links", &simple.shared_percent),
            "full less simple",
            self.difference()
        )
    }

    /// For programs: the full model's results, and the simple one's share.
    pub(super) fn json(&self) -> Result<String> {
        let mut object = serde_json::to_value(&self.full)?;
        let simple = &self.simple;
        let more = [
            (
                "simple_shared_percent_mean",
                json!(simple.shared_percent_mean),
            ),
            (
                "simple_shared_percent_stddev",
                json!(simple.shared_percent_stddev),
            ),
            (
                "simple_shared_percent_ci95",
                json!(simple.shared_percent_ci95),
            ),
            ("full_less_simple", json!(self.difference())),
        ];
        if let Some(object) = object.as_object_mut() {
            object.extend(more.map(|(name, number)| (name.to_owned(), number)));
        }
        serde_json::to_string_pretty(&object).context("cannot write results")
    }
}
