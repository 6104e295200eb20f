//! The consensus' parameters of congestion and flow control, as circuits and streams use them.

use weft_config::options::CircuitOptions;
use weft_core::flow::{CcParams, PathKind, VegasParams};
use weft_dir::params::Params;

/// The congestion control of new circuits.
pub(crate) fn cc_params(options: &CircuitOptions, consensus: &Params) -> CcParams {
    CcParams {
        enabled: consensus.cc_alg != 0 || options.always_congestion_control,
        path: match options.sbws_exit {
            true => PathKind::Sbws,
            false => PathKind::Exit,
        },
        exit: VegasParams {
            alpha: consensus.cc_vegas_alpha_exit,
            beta: consensus.cc_vegas_beta_exit,
            gamma: consensus.cc_vegas_gamma_exit,
            delta: consensus.cc_vegas_delta_exit,
            ss_cap: consensus.cc_sscap_exit,
        },
        onion: VegasParams {
            alpha: consensus.cc_vegas_alpha_onion,
            beta: consensus.cc_vegas_beta_onion,
            gamma: consensus.cc_vegas_gamma_onion,
            delta: consensus.cc_vegas_delta_onion,
            ss_cap: consensus.cc_sscap_onion,
        },
        sbws: VegasParams {
            alpha: consensus.cc_vegas_alpha_sbws,
            beta: consensus.cc_vegas_beta_sbws,
            gamma: consensus.cc_vegas_gamma_sbws,
            delta: consensus.cc_vegas_delta_sbws,
            ss_cap: consensus.cc_sscap_sbws,
        },
        sendme_inc: byte(consensus.cc_sendme_inc),
        cwnd_init: consensus.cc_cwnd_init,
        cwnd_min: consensus.cc_cwnd_min,
        cwnd_max: consensus.cc_cwnd_max,
        cwnd_inc: consensus.cc_cwnd_inc,
        cwnd_inc_pct_ss: consensus.cc_cwnd_inc_pct_ss,
        cwnd_inc_rate: consensus.cc_cwnd_inc_rate,
        cwnd_full_gap: consensus.cc_cwnd_full_gap,
        cwnd_full_minpct: consensus.cc_cwnd_full_minpct,
        cwnd_full_per_cwnd: consensus.cc_cwnd_full_per_cwnd,
        ss_max: consensus.cc_ss_max,
        ewma_cwnd_pct: consensus.cc_ewma_cwnd_pct,
        ewma_max: consensus.cc_ewma_max,
        ewma_ss: consensus.cc_ewma_ss,
        rtt_reset_pct: consensus.cc_rtt_reset_pct,
        xoff_exit: consensus.cc_xoff_exit,
        xoff_client: consensus.cc_xoff_client,
        xon_rate: consensus.cc_xon_rate,
        xon_change_pct: consensus.cc_xon_change_pct,
        xon_ewma_cnt: consensus.cc_xon_ewma_cnt,
    }
}

/// A parameter that fits into a byte by its range: a version of SENDMEs, or cells for one of them.
pub(crate) fn byte(value: u32) -> u8 {
    u8::try_from(value).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::testing::options;

    const TESTING: &str = "TestingTorNetwork 1\nDirAuthority a orport=1 v3ident=\
                           1111111111111111111111111111111111111111 127.0.0.1:2 \
                           2222222222222222222222222222222222222222\n";

    fn cc_params(consensus: &Params) -> CcParams {
        super::cc_params(&options(TESTING).circuits, consensus)
    }

    #[test]
    fn without_a_consensus_circuits_follow_c_tor_s_defaults() {
        assert_eq!(cc_params(&Params::default()), CcParams::default());
    }

    #[test]
    fn torrc_can_have_congestion_control_that_the_consensus_has_not_and_a_scanners_paths() {
        let mut consensus = Params::default();
        consensus.cc_alg = 0;
        let set = |torrc: &str| {
            let options = options(&format!("{TESTING}{torrc}"));
            super::cc_params(&options.circuits, &consensus)
        };
        let plain = set("");
        assert!(!plain.enabled && plain.path == PathKind::Exit);
        assert!(set("__AlwaysCongestionControl 1\n").enabled);
        let scanned = set("__SbwsExit 1\n");
        assert_eq!(scanned.vegas().ss_cap, consensus.cc_sscap_sbws);
    }

    #[test]
    fn authorities_of_the_public_network_cannot_turn_congestion_control_off() {
        let mut consensus = Params::default();
        consensus.cc_alg = 0;
        assert!(super::cc_params(&options("").circuits, &consensus).enabled);
        assert!(!cc_params(&consensus).enabled);
    }

    #[test]
    fn circuits_follow_the_consensus() {
        let mut consensus = Params::default();
        consensus.cc_alg = 0;
        consensus.cc_sendme_inc = 254;
        consensus.cc_sscap_onion = 111;
        consensus.cc_xon_rate = 7;
        let params = cc_params(&consensus);
        assert!(!params.enabled);
        assert_eq!(params.sendme_inc, 254);
        assert_eq!(params.xon_rate, 7);
        assert_eq!(params.for_path(PathKind::Onion).vegas().ss_cap, 111);
        assert_eq!(byte(255), 255);
    }
}
