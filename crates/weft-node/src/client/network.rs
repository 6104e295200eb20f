//! The parameters of a consensus for path selection.

use weft_client::{ConfluxParams, PathParams};
use weft_dir::params::Params;
use weft_path::PathBiasOptions;

/// `cc_alg` of proposal 324's Vegas.
const CC_VEGAS: u32 = 2;

/// Selects what path selection needs. `always_congestion_control`: also while the consensus has turned it off.
pub(super) fn path_params(params: &Params, always_congestion_control: bool) -> PathParams {
    let increment = u8::try_from(params.cc_sendme_inc).unwrap_or(u8::MAX);
    PathParams {
        bias: path_bias(params),
        congestion: (params.cc_alg == CC_VEGAS
            || (params.cc_alg == 0 && always_congestion_control))
            .then_some(increment),
        conflux: conflux(params),
    }
}

/// The parameters of conflux sets (param-spec, `cfx_…`).
fn conflux(params: &Params) -> ConfluxParams {
    ConfluxParams {
        enabled: params.cfx_enabled,
        low_exit_threshold: params.cfx_low_exit_threshold,
        max_linked_set: params.cfx_max_linked_set,
        max_prebuilt_set: params.cfx_max_prebuilt_set,
        max_unlinked_leg_retry: params.cfx_max_unlinked_leg_retry,
        num_legs_set: params.cfx_num_legs_set,
    }
}

/// The limits for guards through which circuits fail (param-spec, `pb_…`).
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_parameters_guards_are_judged_as_by_c_tor() {
        assert_eq!(path_bias(&Params::default()), PathBiasOptions::default());
    }

    #[test]
    fn without_parameters_sets_are_built_as_by_c_tor() {
        assert_eq!(conflux(&Params::default()), ConfluxParams::default());
    }

    #[test]
    fn congestion_control_is_asked_for_as_the_consensus_or_torrc_has_it() {
        let mut params = Params::default();
        let asked = |params: &Params, always| path_params(params, always).congestion.is_some();
        assert!(asked(&params, false) && asked(&params, true));
        params.cc_alg = 0;
        assert!(!asked(&params, false) && asked(&params, true));
    }

    #[test]
    fn torrc_overrides_the_consensus() {
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
