//! The experiments that `weft lab` has.

use anyhow::Result;
use clap::Subcommand;
use weft_testnet::stop::Stop;

use crate::experiment::{Conclusion, Watcher, perform};
use crate::{attack, cci, hops, mtor, relay, roles, run, selection, throughput, traffic};

/// An experiment, with its arguments.
#[derive(Debug, Subcommand)]
#[allow(
    missing_docs,
    reason = "a variant's documentation is the help of its arguments"
)]
pub enum Experiments {
    Throughput(Box<throughput::Args>),
    Roles(Box<roles::Args>),
    Cci(Box<cci::Args>),
    Hops(Box<hops::Args>),
    Traffic(Box<traffic::Args>),
    Run(Box<run::Args>),
    Selection(Box<selection::Args>),
    Mtor(Box<mtor::Args>),
    Attack(Box<attack::Args>),
    Soak(Box<attack::soak::Args>),
    Relay(Box<relay::Args>),
}

impl Experiments {
    /// Makes it.
    ///
    /// # Errors
    ///
    /// As [`perform`].
    pub fn perform(&self, stop: &Stop, watcher: &mut dyn Watcher) -> Result<Conclusion> {
        match self {
            Self::Throughput(args) => perform::<throughput::Options>(args, stop, watcher),
            Self::Roles(args) => perform::<roles::Options>(args, stop, watcher),
            Self::Cci(args) => perform::<cci::Options>(args, stop, watcher),
            Self::Hops(args) => perform::<hops::Options>(args, stop, watcher),
            Self::Traffic(args) => perform::<traffic::Options>(args, stop, watcher),
            Self::Run(args) => perform::<run::Options>(args, stop, watcher),
            Self::Selection(args) => perform::<selection::Options>(args, stop, watcher),
            Self::Mtor(args) => perform::<mtor::Options>(args, stop, watcher),
            Self::Attack(args) => perform::<attack::Attacks>(args, stop, watcher),
            Self::Soak(args) => perform::<attack::soak::Options>(args, stop, watcher),
            Self::Relay(args) => perform::<relay::Options>(args, stop, watcher),
        }
    }
}
