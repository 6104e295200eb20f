//! A testbed that is up.

use anyhow::{Context as _, Result, ensure};
use weft_model::links::Topology;

use super::background::Background;
use super::emulator::{Emulator, Snapshot};
use super::host::Host;
use super::namespace::Namespace;
use super::place::{self, Place};
use super::privileges;
use super::tcp::Allowed;
use crate::guardian::Guardian;

/// The longest name of a testbed: it is a part of the namespaces' names.
const MAX_NAME: usize = 40;

/// Settings of a testbed, beside its topology.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its name, of lower-case letters, digits and hyphens; none: the topology's.
    pub name: Option<String>,
    /// Seed of losses and jitter.
    pub seed: u64,
}

/// Hosts joined by links. Dropping it ends what runs in its hosts and removes them.
#[derive(Debug)]
pub struct Testbed {
    // In the order in which they end: streams, devices, namespaces. The lock is free when all are.
    background: Background,
    emulator: Emulator,
    hosts: Vec<Host>,
    _guardian: Guardian,
    place: Place,
    name: String,
    topology: Topology,
}

impl Testbed {
    /// Starts it, and waits until each host can send.
    ///
    /// # Errors
    ///
    /// A privilege or a program is missing, a testbed of this name is up, or the system refuses.
    pub fn start(topology: Topology, options: &Options) -> Result<Testbed> {
        privileges::check()?;
        let name = options
            .name
            .as_deref()
            .unwrap_or(topology.name())
            .to_owned();
        let is_good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        ensure!(
            (1..=MAX_NAME).contains(&name.len()) && name.chars().all(is_good),
            "\"{name}\" cannot name a testbed: a name has 1 to {MAX_NAME} lower-case letters, digits and hyphens"
        );
        let hosts: Vec<Host> = topology
            .hosts()
            .map(|host| {
                let host_name = topology.node_name(host.node());
                Host {
                    name: host_name.to_owned(),
                    address: host.address(),
                    namespace: place::namespace(&name, host_name),
                }
            })
            .collect();
        let namespaces: Vec<Namespace> = hosts.iter().map(|host| host.namespace.clone()).collect();
        let place = Place::take(&name, &namespaces)?;
        let lock = place.lock.try_clone().context("cannot share a lock")?;
        let mut guardian = Guardian::start_holding(&place.folder, lock)?;
        for namespace in &namespaces {
            guardian.watch_namespace(&namespace.name)?;
        }
        Namespace::create(&namespaces)?;
        let allowed = topology.tcp().map(Allowed::add).transpose()?;
        let devices = hosts
            .iter()
            .map(|host| host.namespace.set_up(host.address, topology.tcp()))
            .collect::<Result<Vec<_>>>()?;
        drop(allowed);
        let emulator = Emulator::start(topology.clone(), options.seed, devices)?;
        let background = Background::start(&topology, &hosts)?;
        Ok(Testbed {
            background,
            emulator,
            hosts,
            _guardian: guardian,
            place,
            name,
            topology,
        })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The topology that joins its hosts.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Its hosts, in the order of the topology.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The host of this name.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn host(&self, name: &str) -> Result<&Host> {
        let host = self.hosts.iter().find(|host| host.name == name);
        host.with_context(|| format!("the testbed {} has no host {name}", self.name))
    }

    /// Gives its links the settings and background streams of this topology, which has the same hosts and links.
    ///
    /// # Errors
    ///
    /// Its hosts or links are others, or the system refuses background streams.
    pub fn change(&mut self, topology: Topology) -> Result<()> {
        // They end before the new ones begin.
        self.background = Background::default();
        let name = topology.name().to_owned();
        self.emulator
            .change(topology.clone())
            .with_context(|| format!("the topology {name} does not fit"))?;
        self.background = Background::start(&topology, &self.hosts)?;
        self.topology = topology;
        Ok(())
    }

    /// Counters of its links so far.
    ///
    /// # Errors
    ///
    /// The emulator has ended.
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.emulator.snapshot()
    }

    /// Fails if packets are not carried any more.
    ///
    /// # Errors
    ///
    /// The emulator has ended, with its reason.
    pub fn check(&mut self) -> Result<()> {
        match self.emulator.is_running() {
            true => Ok(()),
            false => self.emulator.end().context("the emulator has ended"),
        }
    }

    /// Ends it, as dropping does.
    ///
    /// # Errors
    ///
    /// The emulator had failed.
    pub fn end(mut self) -> Result<()> {
        drop(std::mem::take(&mut self.background));
        self.emulator.end()
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        // Its parts end after this, in their order.
        self.place.note_ending();
    }
}
