//! Path selection of a running client: weft-path's selector and build times, and the network that
//! the directory hands out.

use std::sync::Arc;

use rand::Rng;
use rand::rngs::StdRng;
use weft_dir::client::Network;
use weft_dir::params::Params;
use weft_path::{
    BuildTimes, BuildTimesOptions, GuardInfo, GuardTicket, GuardUse, Outcome, PathBiasOptions,
    PathError, PathOptions, RelayName, Selector, Suspicion, Usage,
};

use super::chooser::{BuildNews, BuildTimeouts, Chooser, Chosen};
use super::machine::Now;

/// `cc_alg` of proposal 324's Vegas.
const CC_VEGAS: u32 = 2;

/// See the module.
#[derive(Debug)]
pub struct Paths {
    selector: Selector,
    times: BuildTimes,
    times_options: BuildTimesOptions,
    network: Option<Arc<Network>>,
    /// What the consensus says of guards through which circuits fail.
    bias: PathBiasOptions,
    guards_dropped: bool,
}

impl Paths {
    /// Without a network; `state` are the lines of the state file.
    pub fn new(
        options: PathOptions,
        times_options: BuildTimesOptions,
        state: &[(String, String)],
        now: Now,
        rng: &mut StdRng,
    ) -> Self {
        let of = |key: &'static str| {
            state
                .iter()
                .filter(move |(found, _)| found.eq_ignore_ascii_case(key))
                .map(|(_, value)| value.as_str())
        };
        let selector = Selector::new(options, of("Guard"), now.wall);
        let params = weft_path::CbtParams::default();
        let lines = state
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()));
        let mut times = BuildTimes::new(times_options, params);
        if !times.load(lines, rng) {
            tracing::warn!("The state file's circuit build times do not fit together: ignored");
        }
        Paths {
            selector,
            times,
            times_options,
            network: None,
            bias: PathBiasOptions::default(),
            guards_dropped: false,
        }
    }

    /// There is a new network. True: the guards are others now.
    pub fn set_network(&mut self, network: Arc<Network>, now: Now, rng: &mut StdRng) -> bool {
        self.bias = path_bias(network.params());
        self.selector.set_path_bias(&self.bias);
        let changed = self.selector.set_netdir(&network.netdir, now.wall, rng);
        if let Some(relays) = self.selector.relays() {
            let params = relays.cbt_params().clone();
            self.times.update(self.times_options, params);
        }
        self.network = Some(network);
        changed
    }

    /// The network is too old, or too little of it is known.
    pub fn lose_network(&mut self) {
        self.network = None;
    }

    /// torrc has changed. True: circuits so far were chosen by other rules.
    pub fn set_options(
        &mut self,
        mut options: PathOptions,
        times: BuildTimesOptions,
        now: Now,
        rng: &mut StdRng,
    ) -> bool {
        options.path_bias = options.path_bias_set.over(&self.bias);
        self.times_options = times;
        let params = self.times.params().clone();
        self.times.update(times, params);
        let others = *self.selector.options() != options;
        self.selector.set_options(options, now.wall, rng);
        others
    }

    /// The network as it is known.
    pub fn network(&self) -> Option<&Arc<Network>> {
        self.network.as_ref()
    }

    /// The guards, those that are used first in front.
    pub fn guards(&self) -> Vec<GuardInfo> {
        self.selector.guards()
    }

    /// DROPGUARDS: other guards, drawn anew.
    pub fn drop_guards(&mut self, now: Now, rng: &mut impl Rng) {
        self.selector.drop_guards(now.wall, rng);
        self.guards_dropped = true;
    }

    /// Whether guards were dropped since this was asked last: those of now are others, even where
    /// they are the same relays.
    pub fn take_guards_dropped(&mut self) -> bool {
        std::mem::take(&mut self.guards_dropped)
    }

    /// DROPTIMEOUTS: how long building took so far does not count any more.
    pub fn drop_timeouts(&mut self) {
        self.times.forget();
    }

    /// What the state file shall say from now on, where it has changed: all values of a key.
    pub fn state_lines(&mut self) -> Vec<(&'static str, Vec<String>)> {
        let mut changed = Vec::new();
        if let Some(lines) = self.selector.state_lines() {
            changed.push(("Guard", lines));
        }
        if let Some(lines) = self.times.state_lines() {
            for key in BuildTimes::STATE_KEYS {
                let values = lines
                    .iter()
                    .filter(|(found, _)| *found == key)
                    .map(|(_, value)| value.clone())
                    .collect();
                changed.push((key, values));
            }
        }
        changed
    }

    /// Logs what is suspicious about guards.
    pub fn log_suspicions(&mut self) {
        for (guard, suspicion) in self.selector.take_suspicions() {
            let name = &guard.nickname;
            match suspicion {
                Suspicion::Low => crate::notice!(
                    "Your guard {name} is failing more circuits than usual. Most likely this means \
                     that the network is overloaded"
                ),
                Suspicion::VeryLow => tracing::warn!(
                    "Your guard {name} is failing a very large amount of circuits. Most likely \
                     this means that the network is overloaded, but it could also mean an attack \
                     against you or potentially the guard itself"
                ),
                Suspicion::Extreme => tracing::warn!(
                    "Your guard {name} is failing an extremely large amount of circuits. This \
                     could indicate a route manipulation attack, extreme network overload, or a \
                     bug"
                ),
            }
        }
    }
}

/// What a consensus says of guards through which circuits fail (param-spec, `pb_…`).
fn path_bias(params: &Params) -> PathBiasOptions {
    let share = |percent: u32| f64::from(percent) / 100.0;
    PathBiasOptions {
        circ_threshold: params.pb_mincircs.into(),
        notice_rate: share(params.pb_noticepct),
        warn_rate: share(params.pb_warnpct),
        extreme_rate: share(params.pb_extremepct),
        drop_guards: params.pb_dropguards,
        scale_threshold: params.pb_scalecircs.into(),
        use_threshold: params.pb_minuse.into(),
        notice_use_rate: share(params.pb_noticeusepct),
        extreme_use_rate: share(params.pb_extremeusepct),
        scale_use_threshold: params.pb_scaleuse.into(),
        scale_ratio: f64::from(params.pb_multfactor) / f64::from(params.pb_scalefactor.max(1)),
    }
}

impl Chooser for Paths {
    type Guard = GuardTicket;

    fn path(
        &mut self,
        usage: &Usage,
        now: Now,
        rng: &mut StdRng,
    ) -> Result<Chosen<GuardTicket>, PathError> {
        let path = self.selector.path(usage, now.wall, rng)?;
        Ok(Chosen {
            hops: path.hops,
            guard: path.guard,
        })
    }

    fn guard(
        &mut self,
        guard: &GuardTicket,
        outcome: Outcome,
        now: Now,
        rng: &mut StdRng,
    ) -> GuardUse {
        self.selector.guard_outcome(*guard, outcome, now.wall, rng)
    }

    fn settled_guards(&mut self, now: Now) -> Vec<(GuardTicket, GuardUse)> {
        self.selector.poll_guards(now.wall)
    }

    fn forget(&mut self, guard: &GuardTicket) {
        self.selector.forget(*guard);
    }

    fn timeouts(&self) -> BuildTimeouts {
        BuildTimeouts {
            timeout: self.times.timeout(),
            close: self.times.close_after(),
            measure: self.times.is_computed(),
            wants_circuits: self.times.wants_circuits(),
        }
    }

    fn built(&mut self, news: BuildNews, now: Now) {
        match news {
            BuildNews::Alive => self.times.note_alive(now.mono),
            BuildNews::Built { took, in_time } => self.times.note_built(took, in_time),
            BuildNews::TimedOut { first_hop } => {
                if self.times.note_timeout(first_hop) {
                    tracing::info!("Many circuits time out: learning build times anew");
                }
            }
            BuildNews::Abandoned { began } => self.times.note_abandoned(began),
        }
    }

    fn is_ready(&self) -> bool {
        self.network.is_some()
    }

    fn congestion(&self) -> Option<u8> {
        let params = self.network.as_ref()?.params();
        let increment = u8::try_from(params.cc_sendme_inc).unwrap_or(u8::MAX);
        (params.cc_alg == CC_VEGAS).then_some(increment)
    }

    fn find(&self, name: &RelayName) -> Option<weft_path::Hop> {
        self.selector.relays()?.find(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_word_of_the_consensus_guards_are_judged_as_c_tor_does() {
        assert_eq!(path_bias(&Params::default()), PathBiasOptions::default());
    }

    #[test]
    fn torrc_goes_before_the_consensus() {
        let mut params = Params::default();
        params.pb_mincircs = 7;
        params.pb_dropguards = true;
        params.pb_scalefactor = 4;
        let set = weft_path::PathBiasSet {
            drop_guards: Some(false),
            ..weft_path::PathBiasSet::default()
        };
        let used = set.over(&path_bias(&params));
        let of = (used.circ_threshold, used.drop_guards, used.scale_ratio);
        assert!(of == (7.0, false, 0.25), "{of:?}");
    }
}
