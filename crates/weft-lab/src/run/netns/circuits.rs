//! The circuits of a client, by the events of its control port.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use weft_testnet::control::Control;
use weft_testnet::nodes::Client;
use weft_virtual::results::CircuitResults;

/// Interval at which a thread checks whether it should end.
const LOOK: Duration = Duration::from_millis(200);

/// Notes what happens to the circuits of one client, until it is finished or dropped.
#[derive(Debug)]
pub(in super::super) struct Watch {
    client: String,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Seen>>,
}

/// Events that a thread has seen.
#[derive(Debug, Default)]
struct Seen {
    circuits: Vec<Circuit>,
    /// Streams that were attached and are not connected: the circuit, and since when.
    attached: BTreeMap<String, (String, Instant)>,
}

#[derive(Debug)]
struct Circuit {
    id: String,
    began: Instant,
    built: Option<Duration>,
    path: Vec<String>,
    round_trips: Vec<Duration>,
}

impl Watch {
    /// Watches all of these clients. `names` has the host of each nickname.
    ///
    /// # Errors
    ///
    /// A control port does not answer, or the system refuses a thread.
    pub(super) fn start(
        clients: &[Client],
        names: &BTreeMap<String, String>,
    ) -> Result<Vec<Watch>> {
        let watches = clients.iter().map(|client| {
            let host = names.get(client.node().nickname());
            Watch::of(
                client.controller()?,
                host.cloned().unwrap_or_default(),
                names,
            )
        });
        watches.collect()
    }

    /// Watches the client behind this connection, which is on a host of this name.
    ///
    /// # Errors
    ///
    /// The control port does not answer, or the system refuses a thread.
    pub(in super::super) fn of(
        mut control: Control,
        client: String,
        names: &BTreeMap<String, String>,
    ) -> Result<Watch> {
        control.command("SETEVENTS CIRC STREAM")?;
        let over = Arc::new(AtomicBool::new(false));
        let (asked, known) = (Arc::clone(&over), names.clone());
        let thread = thread::Builder::new()
            .name("circuits".to_owned())
            .spawn(move || watch(&mut control, &known, &asked))
            .context("starting a thread that watches circuits")?;
        Ok(Watch {
            client,
            over,
            thread: Some(thread),
        })
    }

    /// The circuits of a run that began then and was so long, and those that were there when it began.
    pub(in super::super) fn finish(
        mut self,
        begun: Instant,
        length: Duration,
    ) -> Vec<CircuitResults> {
        self.over.store(true, Ordering::Relaxed);
        let seen = self.thread.take().and_then(|thread| thread.join().ok());
        let circuits = seen.unwrap_or_default().circuits.into_iter();
        let circuits = circuits.map(|circuit| CircuitResults {
            client: self.client.clone(),
            path: circuit.path,
            began: circuit.began.saturating_duration_since(begun),
            built: circuit.built,
            round_trips: circuit.round_trips,
        });
        circuits.filter(|circuit| circuit.began <= length).collect()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn watch(control: &mut Control, names: &BTreeMap<String, String>, over: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    while !over.load(Ordering::Relaxed) {
        match control.event(Instant::now() + LOOK) {
            Ok(Some(event)) => seen.note(&event, names, Instant::now()),
            Ok(None) => {}
            // The client has ended, which its network's check finds.
            Err(_) => break,
        }
    }
    seen
}

impl Seen {
    fn note(&mut self, event: &str, names: &BTreeMap<String, String>, now: Instant) {
        let mut words = event.split(' ');
        let kind = words.next();
        let (Some(id), Some(status)) = (words.next(), words.next()) else {
            return;
        };
        match kind {
            // Circuits of directory requests carry no users' streams.
            Some("CIRC") if !event.contains("ONEHOP_TUNNEL") => {
                let path = words.next().filter(|word| word.starts_with('$'));
                let path = path.map(|path| path_of(path, names)).unwrap_or_default();
                self.circuit(id, status, path, now);
            }
            Some("STREAM") => {
                let circuit = words.next().unwrap_or_default();
                self.stream(id, status, circuit, now);
            }
            _ => {}
        }
    }

    fn circuit(&mut self, id: &str, status: &str, path: Vec<String>, now: Instant) {
        if status == "LAUNCHED" {
            self.circuits.push(Circuit {
                id: id.to_owned(),
                began: now,
                built: None,
                path: Vec::new(),
                round_trips: Vec::new(),
            });
        }
        let Some(circuit) = self.known(id) else {
            return;
        };
        if path.len() > circuit.path.len() {
            circuit.path = path;
        }
        if ["BUILT", "GUARD_WAIT"].contains(&status) {
            let took = now.saturating_duration_since(circuit.began);
            circuit.built.get_or_insert(took);
        }
    }

    fn stream(&mut self, id: &str, status: &str, circuit: &str, now: Instant) {
        match status {
            "SENTCONNECT" => {
                let attached = (circuit.to_owned(), now);
                self.attached.insert(id.to_owned(), attached);
            }
            "SUCCEEDED" => {
                let Some((asked, since)) = self.attached.remove(id) else {
                    return;
                };
                if let Some(known) = self.known(&asked)
                    && asked == circuit
                {
                    let trip = now.saturating_duration_since(since);
                    known.round_trips.push(trip);
                }
            }
            "FAILED" | "CLOSED" | "DETACHED" => {
                self.attached.remove(id);
            }
            _ => {}
        }
    }

    fn known(&mut self, id: &str) -> Option<&mut Circuit> {
        self.circuits.iter_mut().rev().find(|one| one.id == id)
    }
}

/// The hosts of a path, `$FINGERPRINT~nickname` for each hop.
fn path_of(path: &str, names: &BTreeMap<String, String>) -> Vec<String> {
    let hops = path.split(',').map(|hop| {
        let nickname = hop.split(['~', '=']).nth(1).unwrap_or(hop);
        names
            .get(nickname)
            .cloned()
            .unwrap_or_else(|| nickname.to_owned())
    });
    hops.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circuit_has_its_path_its_time_and_the_round_trips_of_its_streams() {
        let names = [
            ("relay0", "guard"),
            ("relay1", "middle"),
            ("relay2", "exit"),
        ]
        .map(|(nickname, host)| (nickname.to_owned(), host.to_owned()));
        let names = BTreeMap::from(names);
        let begun = Instant::now();
        let at = |millis: u64| begun + Duration::from_millis(millis);
        let mut seen = Seen::default();
        for (millis, event) in [
            (
                0,
                "CIRC 7 LAUNCHED BUILD_FLAGS=NEED_CAPACITY PURPOSE=GENERAL",
            ),
            (10, "CIRC 7 EXTENDED $AA~relay0 PURPOSE=GENERAL"),
            (
                30,
                "CIRC 7 BUILT $AA~relay0,$BB~relay1,$CC~relay2 PURPOSE=GENERAL",
            ),
            (
                31,
                "CIRC 8 LAUNCHED BUILD_FLAGS=ONEHOP_TUNNEL,IS_INTERNAL PURPOSE=GENERAL",
            ),
            (40, "STREAM 1 NEW 0 10.1.0.1:80 PURPOSE=USER"),
            (41, "STREAM 1 SENTCONNECT 7 10.1.0.1:80"),
            (91, "STREAM 1 SUCCEEDED 7 10.1.0.1:80"),
            (95, "STREAM 2 SENTCONNECT 7 10.1.0.1:80"),
            (96, "STREAM 2 DETACHED 7 10.1.0.1:80 REASON=TIMEOUT"),
            (97, "STREAM 2 SUCCEEDED 7 10.1.0.1:80"),
            (98, "CIRC 7 CLOSED $AA~relay0 REASON=FINISHED"),
        ] {
            seen.note(event, &names, at(millis));
        }
        let [circuit] = &*seen.circuits else {
            panic!("{seen:?}");
        };
        assert_eq!(circuit.path, ["guard", "middle", "exit"]);
        assert_eq!(circuit.built, Some(Duration::from_millis(30)));
        assert_eq!(circuit.round_trips, [Duration::from_millis(50)]);
    }
}
