//! Numbers of a report that bars, tables and plots are made of.

use weft_lab::relay::report::{Latency, Measured, Report, Thread, Usage};

fn measured(report: &Report) -> Option<&Measured> {
    report.measured.as_ref()
}

fn usage(report: &Report) -> Option<&Usage> {
    measured(report)?.usage.as_ref()
}

fn latency(report: &Report) -> Option<&Latency> {
    measured(report)?.latency.as_ref()
}

/// CPU seconds of the target for each gigabyte of payload.
pub(crate) fn cpu_per_gb(report: &Report) -> Option<f64> {
    usage(report)?.cpu_s_per_gb
}

/// CPU seconds per gigabyte that the target spent in its own code.
pub(crate) fn user_per_gb(report: &Report) -> Option<f64> {
    usage(report)?.user_s_per_gb
}

/// CPU seconds per gigabyte that the kernel spent for the target.
pub(crate) fn system_per_gb(report: &Report) -> Option<f64> {
    usage(report)?.system_s_per_gb
}

/// Processors that the target kept busy: CPU seconds for each second.
pub(crate) fn busy(report: &Report) -> Option<f64> {
    let usage = usage(report)?;
    Some((usage.user_s + usage.system_s) / measured(report)?.seconds)
}

/// Processors that the generator kept busy.
pub(crate) fn generator_busy(report: &Report) -> Option<f64> {
    let measured = measured(report)?;
    Some((measured.generator.user_s + measured.generator.system_s) / measured.seconds)
}

/// The share of the time that the busiest thread of a process worked.
fn busiest(usage: &Usage, seconds: f64) -> f64 {
    let threads = usage.threads.iter();
    threads
        .map(|thread| share(thread, seconds))
        .fold(0.0, f64::max)
}

fn share(thread: &Thread, seconds: f64) -> f64 {
    (thread.user_s + thread.system_s) / seconds
}

/// The share of the time that the target's busiest thread worked.
pub(crate) fn busiest_thread(report: &Report) -> Option<f64> {
    Some(busiest(usage(report)?, measured(report)?.seconds))
}

/// Microseconds: 99 of 100 times the generator noticed no later than this that cells were due.
pub(crate) fn generator_late(report: &Report) -> Option<f64> {
    Some(measured(report)?.generator_late.as_ref()?.p99_us)
}

/// The share of the time that the target's main thread worked.
pub(crate) fn main_thread(report: &Report) -> Option<f64> {
    let main = usage(report)?.threads.first()?;
    Some(share(main, measured(report)?.seconds))
}

/// The share of the time that the generator's busiest thread worked.
pub(crate) fn generator_busiest(report: &Report) -> Option<f64> {
    let measured = measured(report)?;
    Some(busiest(&measured.generator, measured.seconds))
}

/// Payload, bits per second.
pub(crate) fn goodput(report: &Report) -> Option<f64> {
    Some(measured(report)?.cells.as_ref()?.goodput_bits_per_s)
}

/// Cells per second.
pub(crate) fn cells_per_s(report: &Report) -> Option<f64> {
    Some(measured(report)?.cells.as_ref()?.per_s)
}

/// Microseconds that half of the cells took at most.
pub(crate) fn p50(report: &Report) -> Option<f64> {
    Some(latency(report)?.p50_us)
}

/// Microseconds that 90 of 100 cells took at most.
pub(crate) fn p90(report: &Report) -> Option<f64> {
    Some(latency(report)?.p90_us)
}

/// Microseconds that 99 of 100 cells took at most.
pub(crate) fn p99(report: &Report) -> Option<f64> {
    Some(latency(report)?.p99_us)
}

/// Microseconds that 999 of 1000 cells took at most.
pub(crate) fn p999(report: &Report) -> Option<f64> {
    Some(latency(report)?.p999_us)
}

/// The most resident memory of the target, bytes.
pub(crate) fn peak_rss(report: &Report) -> Option<f64> {
    Some(usage(report)?.peak_rss_bytes as f64)
}

/// Resident memory of the target at the end, bytes.
pub(crate) fn rss(report: &Report) -> Option<f64> {
    Some(usage(report)?.rss_bytes as f64)
}

/// The highest goodput with latency under the bound, bits per second.
pub(crate) fn capacity(report: &Report) -> Option<f64> {
    report.capacity.as_ref()?.goodput_bits_per_s
}

/// Circuits made for each second while cells were driven.
pub(crate) fn circuits_made_per_s(report: &Report) -> Option<f64> {
    Some(measured(report)?.churn.as_ref()?.circuits_made_per_s)
}

/// Circuits that the target made for each CPU second that it used: what one core can do.
pub(crate) fn onionskins_per_cpu_s(report: &Report) -> Option<f64> {
    let each = measured(report)?.onionskins.as_ref()?.cpu_s_each?;
    (each > 0.0).then(|| 1.0 / each)
}

/// Circuits that the target made in a second.
pub(crate) fn onionskins_per_s(report: &Report) -> Option<f64> {
    Some(measured(report)?.onionskins.as_ref()?.per_s)
}

/// Bytes of the target's memory for each idle thing.
pub(crate) fn idle_bytes(report: &Report) -> Option<f64> {
    Some(measured(report)?.idle.as_ref()?.bytes_each)
}
