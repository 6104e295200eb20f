//! The consensus parameters of congestion and stream flow control (proposal 324, 6.5).

/// Most cells that a congestion window ever holds here, whatever the consensus allows. It bounds what
/// a circuit remembers of the cells that wait for a SENDME; 65 MB in flight on one circuit are more
/// than any path carries.
pub const MAX_CWND: u32 = 1 << 17;

/// Destination of a circuit. Longer paths have more queues to fill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PathKind {
    /// Three hops to an exit or a directory; also to single onion services.
    #[default]
    Exit,
    /// Six hops to an onion service.
    Onion,
    /// Two hops, of a bandwidth scanner.
    Sbws,
}

/// Vegas' thresholds for one kind of path, in cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VegasParams {
    /// Queue below which the window grows.
    pub alpha: u32,
    /// Queue above which it shrinks.
    pub beta: u32,
    /// Queue that ends slow start.
    pub gamma: u32,
    /// Queue above which the window falls to it at once.
    pub delta: u32,
    /// Window above which slow start grows more slowly (RFC 3742).
    pub ss_cap: u32,
}

/// The consensus' parameters of congestion and flow control. The defaults are C tor 0.4.9's.
///
/// `weft_dir` brings the values within their ranges; the machines here bear any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CcParams {
    /// Circuits may have congestion control (cc_alg is Vegas).
    pub enabled: bool,
    /// Set of thresholds, of the three below, that a new circuit takes.
    pub path: PathKind,
    /// Thresholds of circuits to exits.
    pub exit: VegasParams,
    /// Thresholds of circuits to onion services.
    pub onion: VegasParams,
    /// Thresholds of a bandwidth scanner's circuits.
    pub sbws: VegasParams,
    /// Cells that one SENDME acknowledges (cc_sendme_inc).
    pub sendme_inc: u8,
    /// First congestion window, in cells.
    pub cwnd_init: u32,
    /// Smallest congestion window, in cells.
    pub cwnd_min: u32,
    /// Largest congestion window, in cells; at most [`MAX_CWND`] counts.
    pub cwnd_max: u32,
    /// Growth of the window per update, in cells.
    pub cwnd_inc: u32,
    /// Growth per SENDME in slow start, in percent of cc_sendme_inc.
    pub cwnd_inc_pct_ss: u32,
    /// Updates per window, in SENDMEs (cc_cwnd_inc_rate).
    pub cwnd_inc_rate: u32,
    /// SENDMEs' worth of cells that may be missing in a full window.
    pub cwnd_full_gap: u32,
    /// Percentage of the window below which it is not full.
    pub cwnd_full_minpct: u32,
    /// Fullness is judged once per window, else once per update.
    pub cwnd_full_per_cwnd: bool,
    /// Largest window of slow start, in cells.
    pub ss_max: u32,
    /// Share of a window's SENDMEs that round-trip times are smoothed over, in percent.
    pub ewma_cwnd_pct: u32,
    /// Most samples in that smoothing.
    pub ewma_max: u32,
    /// Samples in that smoothing during slow start.
    pub ewma_ss: u32,
    /// Where between the smallest and the present round-trip time a reset lands, in percent.
    pub rtt_reset_pct: u32,
    /// Cells' worth buffered at an exit before XOFF.
    pub xoff_exit: u32,
    /// Cells' worth buffered at a client before XOFF.
    pub xoff_client: u32,
    /// Cells' worth between updates of the drain rate.
    pub xon_rate: u32,
    /// Change of the drain rate that is worth an XON, in percent.
    pub xon_change_pct: u32,
    /// Samples in the smoothing of the drain rate.
    pub xon_ewma_cnt: u32,
}

/// Cells of two full TLS records: what C tor's thresholds are counted in.
const OUTBUF: u32 = 62;

impl Default for CcParams {
    fn default() -> Self {
        CcParams {
            enabled: true,
            path: PathKind::Exit,
            exit: VegasParams {
                alpha: 3 * OUTBUF,
                beta: 4 * OUTBUF,
                gamma: 3 * OUTBUF,
                delta: 5 * OUTBUF,
                ss_cap: 600,
            },
            onion: VegasParams {
                alpha: 3 * OUTBUF,
                beta: 6 * OUTBUF,
                gamma: 4 * OUTBUF,
                delta: 7 * OUTBUF,
                ss_cap: 475,
            },
            sbws: VegasParams {
                alpha: 2 * OUTBUF - 31,
                beta: 2 * OUTBUF + 31,
                gamma: 2 * OUTBUF,
                delta: 4 * OUTBUF,
                ss_cap: 400,
            },
            sendme_inc: 31,
            cwnd_init: 4 * 31,
            cwnd_min: 4 * 31,
            cwnd_max: i32::MAX.unsigned_abs(),
            cwnd_inc: 1,
            cwnd_inc_pct_ss: 100,
            cwnd_inc_rate: 31,
            cwnd_full_gap: 4,
            cwnd_full_minpct: 25,
            cwnd_full_per_cwnd: true,
            ss_max: 5000,
            ewma_cwnd_pct: 50,
            ewma_max: 10,
            ewma_ss: 2,
            rtt_reset_pct: 100,
            xoff_exit: 500,
            xoff_client: 500,
            xon_rate: 500,
            xon_change_pct: 25,
            xon_ewma_cnt: 2,
        }
    }
}

impl CcParams {
    /// Copy for circuits of another kind.
    #[must_use]
    pub fn for_path(mut self, path: PathKind) -> Self {
        self.path = path;
        self
    }

    /// The thresholds of the present kind of path.
    pub fn vegas(&self) -> &VegasParams {
        match self.path {
            PathKind::Exit => &self.exit,
            PathKind::Onion => &self.onion,
            PathKind::Sbws => &self.sbws,
        }
    }
}

/// True if a client may use a circuit whose relay granted this cc_sendme_inc: at most one away from
/// the consensus' value (proposal 324, 10.3). Another value would mark the circuit.
pub fn accepts_sendme_inc(consensus: u8, granted: u8) -> bool {
    granted != 0 && granted.abs_diff(consensus) <= 1
}
