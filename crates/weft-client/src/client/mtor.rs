//! Tunnels of mTor (docs/extensions/mtor.md; Yang and Li 2015): circuits through middle relays of low bandwidth to one exit, over
//! which the streams of some applications are spread.
//!
//! A tunnel is begun when a stream asks for one. All its legs are launched at once; the first that is built asks the exit for the
//! tunnel, which streams may use from then on, and the others join it. Legs that are slow or close are replaced.

use std::time::Duration;

use rand::RngExt as _;
use weft_cell::identity::RsaIdentity;
use weft_config::options::MultipathEntry;
use weft_core::address::ConnectionId;
use weft_core::origin::{OriginCommand, OriginId};
use weft_log::Line;
use weft_path::{ExitWanted, LegKind, LegWanted, PathError, RelayName, TargetPort, Usage};

use crate::chooser::{Chooser, Chosen};
use crate::circuits::{Leg, MAX_LEGS, MtorSet, Numbered, Set, SetPolicy, TunnelCounts};
use crate::events::CircuitPurpose;
use crate::isolation::CircuitIsolation;
use crate::now::Now;
use crate::streams::{Stream, StreamKind, StreamState};

use super::Client;

/// Legs that are launched in vain before a tunnel without a linked one is given up, besides as many as it wants.
const RETRIES: usize = 3;
/// Legs that are launched in place of others in a minute at most (docs/extensions/mtor.md, "Bounds").
const REPLACEMENTS: usize = 6;
/// That minute.
const WINDOW: Duration = Duration::from_secs(60);
/// Pause after no path for a tunnel was found.
const PAUSE: Duration = Duration::from_secs(10);
/// So long before applications stop waiting (`SocksTimeout`) streams that have no tunnel, or no answer from its exit, get any circuit.
/// Not sooner: over slow relays that are busy a round trip takes tens of seconds, and streams that give up load the fast relays, which
/// is what tunnels are to prevent.
const LAST_RESORT: Duration = Duration::from_secs(20);
/// Time after which a tunnel without streams is closed.
const QUIET: Duration = Duration::from_secs(600);
/// Time before all tunnels are too dirty for new streams at which another one is launched.
const AHEAD: Duration = Duration::from_secs(60);

impl<C: Chooser> Client<C> {
    /// Counters of tunnels so far.
    pub fn tunnel_counts(&self) -> TunnelCounts {
        self.tunnel_counts
    }

    /// Returns true if a stream should use a tunnel: its listener or its user name is configured
    /// so, and it does not request an exit by name.
    pub(super) fn wants_tunnel(&self, stream: &Stream) -> bool {
        let credentials = stream.fields.credentials.as_deref();
        let users = &self.config.multipath.users;
        let is_named =
            credentials.is_some_and(|one| users.iter().any(|user| user.as_bytes() == one.user));
        stream.kind == StreamKind::Connect
            && (stream.listener.multipath || is_named)
            && !stream.is_tied()
    }

    /// Time that a stream waits for a tunnel and its exit.
    pub(super) fn tunnel_patience(&self) -> Duration {
        let all = self.config.socks_timeout;
        all.saturating_sub(LAST_RESORT).max(all / 2)
    }

    /// Finds a tunnel for a stream that is for one, or begins one. False: the stream gets any circuit.
    pub(super) fn serve_by_tunnel(&mut self, id: ConnectionId, now: Now) -> bool {
        let Some(stream) = self.streams.get(&id).filter(|one| self.wants_tunnel(one)) else {
            return false;
        };
        let (target, avoided) = (stream.target(), self.avoided(stream));
        let is_late = now.since(stream.created) >= self.tunnel_patience();
        let tunnels = self.circuits.values();
        let best = tunnels
            .filter(|circuit| circuit.purpose == CircuitPurpose::MtorTunnel)
            .filter(|circuit| self.is_acceptable(circuit, stream, now))
            .max_by_key(|circuit| (circuit.dirty, circuit.created))
            .map(|circuit| circuit.id);
        let pending = self
            .sets
            .iter()
            .find(|(_, set)| self.will_take(set, stream))
            .map(|(id, _)| *id);
        self.tunnel_wanted = target.map(|target| (now.mono, target));
        if let Some(tunnel) = best {
            self.attach(id, tunnel, None, now);
            return true;
        }
        if is_late {
            return false;
        }
        let Some(tunnel) = pending.or_else(|| self.begin_tunnel(target, avoided, now)) else {
            return false;
        };
        if let (Some(set), Some(stream)) = (self.sets.get_mut(&tunnel), self.streams.get(&id))
            && let Some(mtor) = set.mtor_mut()
        {
            mtor.reserved.note(&stream.fields);
        }
        true
    }

    /// Returns true if a tunnel that carries no streams yet may carry this one.
    fn will_take(&self, set: &Set, stream: &Stream) -> bool {
        let Some(mtor) = set.mtor().filter(|_| !set.linked && !set.unusable) else {
            return false;
        };
        let mut legs = set.legs.iter().filter_map(|leg| self.circuits.get(leg));
        let isolation = stream.listener.isolation;
        legs.next().is_some_and(|leg| {
            let exit = leg.exit.as_ref();
            leg.allows(stream.target())
                && exit.is_some_and(|exit| self.may_ask(&exit.rsa, stream))
                && mtor.reserved.allows(isolation, &stream.fields)
        })
    }

    /// Begins a tunnel ahead of need: where streams were for one lately, and none takes new ones for much longer.
    pub(super) fn predict_tunnels(&mut self, now: Now) {
        let Some((last, target)) = self.tunnel_wanted else {
            return;
        };
        if now.since(last) >= self.config.predict_for {
            self.tunnel_wanted = None;
            return;
        }
        let soon = now.mono + AHEAD;
        let is_there = |set: (&OriginId, &Set)| {
            let (id, set) = set;
            let usable = match self.circuits.get(id) {
                Some(whole) => !whole.is_too_dirty(self.config.max_dirtiness, soon),
                None => true,
            };
            !set.is_conflux() && !set.unusable && usable
        };
        if !self.sets.iter().any(is_there) {
            let avoided = self.refusing.iter().copied().collect();
            self.begin_tunnel(Some(target), avoided, now);
        }
    }

    /// Returns true if no leg should be launched now.
    fn are_legs_paused(&self, now: Now) -> bool {
        self.config.disable_network || self.is_launch_paused(now) || !self.chooser.is_ready()
    }

    /// Begins a tunnel to an exit that allows this. `None`: there is none, or no path.
    fn begin_tunnel(
        &mut self,
        target: Option<TargetPort>,
        avoided: Vec<RsaIdentity>,
        now: Now,
    ) -> Option<OriginId> {
        let paused = self.no_tunnels_until.is_some_and(|until| now.mono < until);
        if paused || self.are_legs_paused(now) {
            return None;
        }
        let stable = target.is_some_and(|to| self.config.long_lived_ports.contains(&to.port));
        let first = LegWanted {
            exit: ExitWanted {
                ports: target.into_iter().collect(),
                stable,
                avoid: avoided,
                exit: None,
            },
            ..self.leg_wanted()
        };
        let path = match self.chooser.path(&Usage::Leg(first), now, &mut self.rng) {
            Ok(path) => path,
            Err(error) => {
                self.no_tunnels_until = Some(now.mono + PAUSE);
                self.log_no_tunnel(&error, now);
                return None;
            }
        };
        let exit = path.hops.last()?.rsa;
        self.last_circuit += 1;
        let id = OriginId(self.last_circuit);
        let wanted = self.config.multipath.circuits.clamp(1, MAX_LEGS);
        let mtor = MtorSet {
            reserved: CircuitIsolation::default(),
            replaced: std::collections::VecDeque::new(),
            quiet: None,
        };
        let set = Set {
            nonce: self.rng.random(),
            ux: self.config.conflux_ux,
            policy: SetPolicy::Mtor(Box::new(mtor)),
            numbered: Some(Numbered::new(self.rng.random())),
            exit,
            legs: Vec::new(),
            wanted,
            launched: 0,
            most_launched: wanted.saturating_add(RETRIES),
            asked: false,
            linked: false,
            unusable: false,
        };
        self.sets.insert(id, set);
        self.tunnel_counts.begun += 1;
        if !self.launch_tunnel_leg(id, path, now) {
            self.give_up_tunnel(id, now);
            return None;
        }
        self.mend_tunnel(id, now);
        self.sets.contains_key(&id).then_some(id)
    }

    /// The streams of an application get no tunnel: there is a notice where no exit serves them, as that will stay so.
    fn log_no_tunnel(&mut self, error: &PathError, now: Now) {
        let line = match error {
            PathError::NoExit(_) => {
                let Some(more) = self.no_tunnel_lines.check(now.mono) else {
                    return;
                };
                Line::notice(format!(
                    "No exit that could be used has WeftMtor=1 (MultipathExit): applications that should get several circuits at \
                     once get one{more}"
                ))
            }
            error => Line::info(format!("No tunnel now: {error}")),
        };
        self.log(line);
    }

    /// Requirements on the path of each leg.
    fn leg_wanted(&self) -> LegWanted {
        LegWanted {
            kind: LegKind::Mtor,
            middle_below: Some(self.config.multipath.middle_below),
            ..LegWanted::default()
        }
    }

    fn launch_tunnel_leg(&mut self, id: OriginId, path: Chosen<C::Guard>, now: Now) -> bool {
        self.tunnel_counts.legs += 1;
        self.launch_leg(id, path, now)
    }

    /// A tunnel that cannot be begun, or has lost its last leg.
    fn give_up_tunnel(&mut self, id: OriginId, now: Now) {
        self.no_tunnels_until = Some(now.mono + PAUSE);
        self.close_set(id, now);
    }

    /// Launches the legs that a tunnel lacks or that are to take the place of others, as far as the bounds allow, and gives up
    /// slow ones for which there are others.
    fn mend_tunnel(&mut self, id: OriginId, now: Now) {
        while self.lacks_leg(id, now) && self.launch_another(id, now) {}
        let Some(set) = self.sets.get(&id).filter(|set| set.mtor().is_some()) else {
            return;
        };
        let good = self.legs(id).filter(|(_, leg)| leg.is_good()).count();
        let without = set.wanted.saturating_sub(good);
        let mut carrying = self
            .legs(id)
            .filter(|(_, leg)| leg.is_linked() && !leg.dropped)
            .count();
        let slow: Vec<OriginId> = self
            .legs(id)
            .filter(|(_, leg)| leg.slow && !leg.dropped)
            .map(|(circuit, _)| circuit.id)
            .collect();
        // As many stay as nothing takes the place of, and one that carries what there is.
        for leg in slow.into_iter().skip(without) {
            if carrying < 2 {
                break;
            }
            carrying -= 1;
            let circuit = self.circuits.get_mut(&leg);
            if let Some(leg) = circuit.and_then(|circuit| circuit.leg.as_mut()) {
                leg.dropped = true;
            }
            self.command(OriginCommand::DropLeg { circuit: leg });
        }
    }

    /// Returns true if a tunnel lacks a leg that may be launched now.
    fn lacks_leg(&mut self, id: OriginId, now: Now) -> bool {
        let good = self.legs(id).filter(|(_, leg)| leg.is_good()).count();
        let joining = self.legs(id).any(|(_, leg)| !leg.is_linked());
        let paused = self.are_legs_paused(now);
        let whole = self.circuits.get(&id);
        // A tunnel that has carried streams and carries none now waits for the next one.
        let is_idle = whole.is_some_and(|whole| whole.streams.is_empty() && whole.dirty.is_some());
        let Some(set) = self.sets.get_mut(&id).filter(|set| !set.unusable) else {
            return false;
        };
        let (linked, launched, most) = (set.linked, set.launched, set.most_launched);
        let wanted = set.wanted;
        let Some(mtor) = set.mtor_mut() else {
            return false;
        };
        if paused || good >= wanted || is_idle {
            return false;
        }
        if launched < wanted {
            return true;
        }
        mtor.replaced.retain(|at| now.since(*at) < WINDOW);
        match linked {
            false => launched < most,
            true => !joining && mtor.replaced.len() < REPLACEMENTS,
        }
    }

    /// Launches one more leg of a tunnel. False: there is no path for it.
    fn launch_another(&mut self, id: OriginId, now: Now) -> bool {
        let Some(set) = self.sets.get(&id) else {
            return false;
        };
        let mut wanted = LegWanted {
            exit: ExitWanted {
                exit: Some(RelayName::Rsa(set.exit)),
                ..ExitWanted::default()
            },
            ..self.leg_wanted()
        };
        for (circuit, _) in self.legs(id) {
            let mut hops = circuit.hops.iter().map(|hop| hop.rsa);
            wanted.guards.extend(hops.next());
            wanted.middles.extend(hops.next());
        }
        if self.config.multipath.entry == MultipathEntry::Common {
            wanted.entry = wanted.guards.first().copied();
            wanted.guards.clear();
        }
        let in_place_of_another = set.launched >= set.wanted;
        let path = match self.chooser.path(&Usage::Leg(wanted), now, &mut self.rng) {
            Ok(path) => path,
            Err(error) => {
                let line = format!("No path for another leg of the tunnel {id}: {error}");
                self.log(Line::info(line));
                return false;
            }
        };
        if !self.launch_tunnel_leg(id, path, now) {
            return false;
        }
        if in_place_of_another {
            self.tunnel_counts.replaced += 1;
            if let Some(mtor) = self.sets.get_mut(&id).and_then(Set::mtor_mut) {
                mtor.replaced.push_back(now.mono);
            }
        }
        true
    }

    /// The exit has linked a leg: the first of a tunnel, for which its other legs and streams have waited, or a further one.
    pub(super) fn on_mtor_linked(&mut self, id: OriginId, leg: OriginId, now: Now) {
        let Some(set) = self.sets.get_mut(&id) else {
            return;
        };
        if !set.linked {
            self.tunnel_counts.ready += 1;
            self.admit_set(id, CircuitPurpose::MtorTunnel, now);
            self.log(Line::info(format!("The tunnel {id} is ready")));
        }
        self.change_purpose(leg, CircuitPurpose::MtorLinked);
        self.mend_tunnel(id, now);
        self.serve(now);
    }

    /// A leg of a tunnel has closed; it is replaced.
    pub(super) fn on_mtor_leg_gone(&mut self, leg: Leg, now: Now) {
        let id = leg.set;
        let Some(set) = self.sets.get_mut(&id) else {
            return;
        };
        let (empty, failed) = (
            set.legs.is_empty(),
            !set.linked && set.launched >= set.most_launched,
        );
        if leg.is_linked() && !leg.dropped {
            self.tunnel_counts.lost += 1;
        }
        if empty && (set.linked || failed) {
            self.give_up_tunnel(id, now);
            return;
        }
        if set.linked && set.is_forgotten() {
            self.leave_forgotten(id, now);
            return;
        }
        self.mend_tunnel(id, now);
        if self.sets.get(&id).is_some_and(|set| set.legs.is_empty()) {
            self.give_up_tunnel(id, now);
        }
    }

    /// The exit of a tunnel has forgotten it, as one that was restarted has, and not every leg has closed: a relay on the way has not
    /// passed that on. Streams for which the exit has connected are left to it, and others get another tunnel.
    fn leave_forgotten(&mut self, id: OriginId, now: Now) {
        self.log(Line::info(format!(
            "The exit of the tunnel {id} joins no more legs to it: new streams get another"
        )));
        let mut streams = self.streams.values();
        if !streams.any(|stream| stream.state == StreamState::Open(id)) {
            self.close_set(id, now);
            return;
        }
        if let Some(set) = self.sets.get_mut(&id) {
            set.unusable = true;
        }
        if let Some(whole) = self.circuits.get_mut(&id) {
            whole.unusable = true;
        }
    }

    /// The connection threads have found a leg too slow.
    pub(super) fn on_leg_slow(&mut self, leg: OriginId, tunnel: OriginId, now: Now) {
        let circuit = self.circuits.get_mut(&leg);
        let side = circuit.and_then(|circuit| circuit.leg.as_mut());
        let set = self.sets.get(&tunnel).filter(|set| !set.is_conflux());
        let Some(side) = side.filter(|side| side.set == tunnel && set.is_some()) else {
            return;
        };
        side.slow = true;
        self.tunnel_counts.slow += 1;
        self.log(Line::info(format!(
            "{leg} is slow beside the other legs of the tunnel {tunnel}"
        )));
        self.mend_tunnel(tunnel, now);
    }

    /// Closes tunnels that carry no stream for long, and replaces legs that could not be replaced before.
    pub(super) fn check_tunnels(&mut self, now: Now) {
        let ids: Vec<OriginId> = self.sets.keys().copied().collect();
        for id in ids {
            self.mend_tunnel(id, now);
        }
        let mut quiet = Vec::new();
        for (id, set) in &mut self.sets {
            let Some(whole) = self.circuits.get(id) else {
                continue;
            };
            let Some(mtor) = set.mtor_mut() else {
                continue;
            };
            match whole.streams.is_empty() {
                true if now.since(*mtor.quiet.get_or_insert(now.mono)) >= QUIET => quiet.push(*id),
                true => {}
                false => mtor.quiet = None,
            }
        }
        for id in quiet {
            self.close_set(id, now);
        }
    }
}
