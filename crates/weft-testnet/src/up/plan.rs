//! The nodes to start, their programs, and the folder.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use weft_stats::bounds::Bounds;

use crate::guardian::temporary_folder;
use crate::network::Program;
use crate::nodes::Kind;
use crate::stop::Stop;

/// The file that marks a folder as made by `weft lab up`.
const OWNER: &str = "weft-lab.pid";

/// The nodes to start.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Relays that are no exits: guards and middles.
    pub relays: usize,
    /// Program of the relays.
    pub relays_run: Kind,
    /// Relays that let streams leave.
    pub exits: usize,
    /// Program of the exits.
    pub exits_run: Kind,
    /// Clients with a SOCKS port.
    pub clients: usize,
    /// Program of the clients.
    pub clients_run: Kind,
    /// Program of the authority: Weft, or C tor.
    pub authority: Kind,
    /// The `weft` program.
    pub weft: PathBuf,
    /// Weft's nodes profile themselves when they are asked to (`weft_lab::hops::profile`), and have a MetricsPort.
    pub profiled: bool,
    /// The program whose relays C tor's authority lists as directories of onion services (HSDir);
    /// mixed: all.
    pub hs_dirs: Kind,
    /// Parameters of the consensus, `name=value`.
    pub params: Vec<String>,
    /// Lines that are added to torrcs.
    pub more: More,
    /// Where everything goes, and stays; a temporary folder, removed at the end, unless given.
    pub folder: Option<PathBuf>,
    /// Nodes log at `info` instead of `notice`.
    pub verbose: bool,
    /// Longest duration of one wait during the start.
    pub patience: Duration,
    /// The request to give up while waiting.
    pub stop: Stop,
    /// Where the lines about progress go.
    pub progress: fn(&str),
}

/// Lines that are added to torrcs, after all others.
#[derive(Clone, Debug, Default)]
pub struct More {
    /// Lines of relays that are no exits.
    pub relays: Vec<String>,
    /// Lines of exits.
    pub exits: Vec<String>,
    /// Lines of clients.
    pub clients: Vec<String>,
}

/// Relays, exits or clients: what one machine should start.
pub const NODES: Bounds<usize> = Bounds::new(0, 500);

/// Where the connections come from that leave by the exit of this number, `exitN`.
pub fn exit_address(number: usize) -> Ipv4Addr {
    // A plan has no more exits than `NODES`.
    let host = |number: usize| u8::try_from(number).unwrap_or(u8::MAX);
    Ipv4Addr::new(127, 0, host(1 + number / 250), host(1 + number % 250))
}
impl Plan {
    /// Three relays, two exits and a client, all of them and the authority run by this Weft.
    pub fn of_weft(weft: PathBuf) -> Plan {
        Plan {
            relays: 3,
            relays_run: Kind::Weft,
            exits: 2,
            exits_run: Kind::Weft,
            clients: 1,
            clients_run: Kind::Weft,
            authority: Kind::Weft,
            weft,
            profiled: false,
            hs_dirs: Kind::Mixed,
            params: Vec::new(),
            more: More::default(),
            folder: None,
            verbose: false,
            patience: Duration::from_secs(180),
            stop: Stop::default(),
            progress: |_| {},
        }
    }

    /// Refuses what cannot work.
    pub(super) fn check(&self) -> Result<()> {
        ensure!(
            self.relays + self.exits >= 3 && self.exits >= 1 && self.relays >= 1,
            "{} relays and {} exits are too few: a circuit has three different hops, and the last is an exit",
            self.relays,
            self.exits
        );
        for (what, count) in [
            ("relays", self.relays),
            ("exits", self.exits),
            ("clients", self.clients),
        ] {
            NODES.check(what, count)?;
        }
        ensure!(
            self.authority != Kind::Mixed,
            "there is one authority: it is run by weft or by tor"
        );
        Ok(())
    }
}

/// The programs that a plan needs.
pub(super) struct Programs {
    weft: Program,
    tor: Option<Program>,
}

impl Programs {
    pub(super) fn find(plan: &Plan) -> Result<Programs> {
        let tor = plan.authority == Kind::Tor
            || plan.relays_run.needs_tor(plan.relays)
            || plan.exits_run.needs_tor(plan.exits)
            || plan.clients_run.needs_tor(plan.clients);
        let weft = Program::weft(&plan.weft, None)?;
        Ok(Programs {
            weft: match plan.profiled {
                true => weft.profiled()?,
                false => weft,
            },
            tor: tor.then(Program::tor_of_its_own).transpose()?,
        })
    }

    pub(super) fn of(&self, kind: Kind) -> Result<&Program> {
        match kind {
            Kind::Tor => self.tor.as_ref().context("C tor was not looked for"),
            Kind::Weft | Kind::Mixed => Ok(&self.weft),
        }
    }
}

/// The file that marks a folder as that of a network which is up; it goes with this.
#[derive(Debug)]
pub(super) struct Owner(PathBuf);

impl Drop for Owner {
    fn drop(&mut self) {
        // It marks the folder as ours; the nodes' files stay anyway.
        let _ = fs::remove_file(&self.0);
    }
}

/// Makes the folder; where it was given, with the file that marks it.
pub(super) fn make_folder(given: Option<&Path>) -> Result<(PathBuf, Option<Owner>)> {
    let Some(path) = given else {
        return Ok((temporary_folder()?, None));
    };
    fs::create_dir_all(path).with_context(|| format!("creating {}", path.display()))?;
    let path = path
        .canonicalize()
        .with_context(|| format!("finding {}", path.display()))?;
    let owner = path.join(OWNER);
    let mut entries = fs::read_dir(&path).with_context(|| format!("listing {}", path.display()))?;
    if let Ok(pid) = fs::read_to_string(&owner) {
        let pid = pid.trim();
        if Path::new("/proc").join(pid).join("stat").exists() && !pid.is_empty() {
            bail!(
                "a private network is running in {} already (process {pid}): end it with Ctrl-C there, or `kill {pid}`",
                path.display()
            );
        }
    }
    ensure!(
        entries.next().is_none(),
        "{} is not empty: name another folder, or remove it",
        path.display()
    );
    let own = format!("{}\n", std::process::id());
    fs::write(&owner, own).with_context(|| format!("writing {}", owner.display()))?;
    Ok((path, Some(Owner(owner))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan::of_weft(PathBuf::new())
    }

    #[test]
    fn exits_have_addresses_of_their_own() {
        assert_eq!(exit_address(0), Ipv4Addr::new(127, 0, 1, 1));
        let mut all: Vec<Ipv4Addr> = (0..500).map(exit_address).collect();
        all.dedup();
        assert_eq!(all.len(), 500);
        assert!(all.iter().all(Ipv4Addr::is_loopback));
    }

    #[test]
    fn a_plan_without_enough_hops_is_refused() {
        assert!(plan().check().is_ok());
        for (relays, exits) in [(0, 3), (3, 0), (1, 1), (501, 1)] {
            let plan = Plan {
                relays,
                exits,
                ..plan()
            };
            assert!(plan.check().is_err(), "{relays} {exits}");
        }
        let plan = Plan {
            authority: Kind::Mixed,
            ..plan()
        };
        assert!(plan.check().is_err());
    }

    #[test]
    fn mixed_nodes_are_weft_and_c_tor_by_turns() {
        let kinds = [0, 1, 2, 3].map(|number| Kind::Mixed.of(number));
        assert_eq!(kinds, [Kind::Weft, Kind::Tor, Kind::Weft, Kind::Tor]);
        assert!(!Kind::Mixed.needs_tor(1) && Kind::Mixed.needs_tor(2));
    }

    #[test]
    fn a_folder_that_is_in_use_or_not_empty_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("net");
        let (made, owner) = make_folder(Some(&path)).expect("a new folder");
        assert_eq!(made, path.canonicalize().expect("it is there"));
        let second = make_folder(Some(&path)).expect_err("in use").to_string();
        assert!(second.contains("is running in"), "{second}");
        let owner = owner.expect("an owner");
        fs::write(&owner.0, "999999999\n").expect("written");
        let stale = make_folder(Some(&path)).expect_err("not empty").to_string();
        assert!(stale.contains("is not empty"), "{stale}");
        drop(owner);
        make_folder(Some(&path)).expect("empty again");
    }
}
