//! Weft's relays as the only directories of onion services: C tor's services publish there, its clients fetch.

/// The module's name marks the tests that need `tor` and some minutes, for `cargo xtask test`.
mod private_network {
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::PathBuf;
    use std::time::{Duration, Instant};

    use anyhow::{Context, Result, bail, ensure};
    use weft_testnet::control::Control;
    use weft_testnet::up::{Kind, More, Plan, Up};

    /// Onion services, each with a descriptor of this time period and of the next; `WEFT_ONION_SERVICES` has them more.
    const SERVICES: usize = 20;
    /// How often each client fetches the descriptors of all; `WEFT_ONION_ROUNDS` has them do so again.
    const ROUNDS: usize = 1;
    /// So many of them start together: each needs nine circuits.
    const AT_ONCE: usize = 5;
    /// How long those may take, and all fetches of a client.
    const PATIENCE: Duration = Duration::from_secs(120);
    /// C tor takes NEWNYM so often.
    const NEWNYM: Duration = Duration::from_secs(11);
    /// Of so few relays, and so many circuits in so little time, C tor's judgement of its guards means nothing.
    const NO_JUDGEMENT: [&str; 2] = [
        "PathBiasCircThreshold 1000000",
        "PathBiasUseThreshold 1000000",
    ];

    /// A number of this run.
    fn number(variable: &str, default: usize) -> usize {
        std::env::var(variable).map_or(default, |text| text.parse().unwrap())
    }

    /// Three relays of Weft, which are directories, and three of C tor, two exits of C tor; a node of C tor with the services
    /// and two clients of C tor.
    fn plan() -> Plan {
        let named = std::env::var_os("WEFT_BIN").map(PathBuf::from);
        Plan {
            relays: 6,
            relays_run: Kind::Mixed,
            exits_run: Kind::Tor,
            clients: 3,
            clients_run: Kind::Tor,
            authority: Kind::Tor,
            hs_dirs: Kind::Weft,
            more: More {
                clients: NO_JUDGEMENT.map(str::to_owned).to_vec(),
                ..More::default()
            },
            verbose: std::env::var_os("WEFT_LAB_VERBOSE").is_some(),
            progress: |line| eprintln!("{line}"),
            ..Plan::of_weft(named.unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_weft"))))
        }
    }

    /// An event about a descriptor: what happened, to which address, at which directory.
    struct HsDesc {
        action: String,
        address: String,
        directory: String,
    }

    /// The next event about a descriptor.
    fn next(control: &mut Control, deadline: Instant) -> Result<HsDesc> {
        loop {
            let event = control.event(deadline)?.context("no more events in time")?;
            // HS_DESC Action HSAddress AuthType HsDir …
            let words: Vec<&str> = event.split(' ').collect();
            let ["HS_DESC", action, address, _, directory, ..] = words.as_slice() else {
                continue;
            };
            if *action == "FAILED" {
                bail!("{event}");
            }
            return Ok(HsDesc {
                action: (*action).to_owned(),
                address: (*address).to_owned(),
                directory: (*directory).to_owned(),
            });
        }
    }

    /// Starts the services and waits until each has published both of its descriptors at every directory.
    fn publish(
        control: &mut Control,
        services: usize,
        directories: usize,
    ) -> Result<BTreeSet<String>> {
        control.command("SETEVENTS HS_DESC")?;
        let mut published: BTreeMap<String, usize> = BTreeMap::new();
        let wanted = 2 * directories;
        while published.len() < services {
            for _ in 0..AT_ONCE.min(services - published.len()) {
                let command = "ADD_ONION NEW:ED25519-V3 Flags=DiscardPK Port=80,127.0.0.1:9";
                let reply = control.command(command)?;
                let mut ids = reply
                    .iter()
                    .filter_map(|line| line.strip_prefix("ServiceID="));
                published.insert(ids.next().context("no ServiceID")?.to_owned(), 0);
            }
            let deadline = Instant::now() + PATIENCE;
            while published.values().any(|count| *count < wanted) {
                let event = next(control, deadline)
                    .with_context(|| format!("of {wanted} uploads each: {published:?}"))?;
                if event.action == "UPLOADED"
                    && let Some(count) = published.get_mut(&event.address)
                {
                    *count += 1;
                }
            }
        }
        Ok(published.into_keys().collect())
    }

    /// Fetches every descriptor; the directories that they were fetched from.
    fn fetch(control: &mut Control, services: &BTreeSet<String>) -> Result<BTreeSet<String>> {
        control.command("SETEVENTS HS_DESC")?;
        for service in services {
            control.command(&format!("HSFETCH {service}"))?;
        }
        let deadline = Instant::now() + PATIENCE;
        let (mut missing, mut directories) = (services.clone(), BTreeSet::new());
        while !missing.is_empty() {
            let event = next(control, deadline).with_context(|| format!("{missing:?}"))?;
            if event.action == "RECEIVED" {
                missing.remove(&event.address);
                directories.insert(event.directory);
            }
        }
        Ok(directories)
    }

    #[test]
    fn c_tor_s_services_publish_at_weft_and_its_clients_fetch() {
        let run = || -> Result<()> {
            let mut network = Up::start(&plan())?;
            eprintln!("up after {:.1?}", network.took());
            let relays = network.relays();
            let weft: Vec<String> = relays
                .filter(|(_, program)| program.is_weft())
                .map(|(nickname, _)| nickname.to_owned())
                .collect();
            let begun = Instant::now();
            let mut services = network.client("client0")?.controller()?;
            let (count, rounds) = (
                number("WEFT_ONION_SERVICES", SERVICES),
                number("WEFT_ONION_ROUNDS", ROUNDS),
            );
            let addresses = publish(&mut services, count, weft.len())?;
            eprintln!("{count} services published after {:.1?}", begun.elapsed());
            for client in ["client1", "client2"] {
                let begun = Instant::now();
                let mut control = network.client(client)?.controller()?;
                let mut directories = BTreeSet::new();
                for round in 0..rounds {
                    if round > 0 {
                        // The client forgets what it has fetched, and where; once in ten seconds.
                        std::thread::sleep(NEWNYM);
                        control.command("SIGNAL NEWNYM")?;
                    }
                    directories.extend(fetch(&mut control, &addresses)?);
                }
                let fetches = rounds * addresses.len();
                eprintln!("{client}: {fetches} fetches after {:.1?}", begun.elapsed());
                for directory in &directories {
                    let (_, nickname) = directory.split_once('~').context("no nickname")?;
                    ensure!(
                        weft.iter().any(|one| one == nickname),
                        "{directory} is none of Weft's"
                    );
                }
            }
            network.check()?;
            let warnings = network.warnings()?;
            ensure!(warnings.is_empty(), "{warnings:#?}");
            drop(services);
            network.stop()
        };
        run().unwrap_or_else(|error| panic!("{error:#}"));
    }
}
