//! Ports for the relay's metrics, and the addresses that may fetch them.

use crate::host::Host;
use crate::report::Report;
use crate::settings::Settings;
use crate::table::keys;
use crate::text::access::AccessPolicy;
use crate::text::ports::{OrPort, parse_metrics_port};

/// Where the relay's counters can be fetched, and from which addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricsOptions {
    /// `MetricsPort`, ready to bind; never advertised. Empty: nowhere.
    pub ports: Vec<OrPort>,
    /// `MetricsPortPolicy`.
    pub policy: AccessPolicy,
}

/// Reads them.
pub(crate) fn read(settings: &Settings, host: &dyn Host, report: &mut Report) -> MetricsOptions {
    let mut metrics = MetricsOptions::default();
    for line in settings.lines(keys::MetricsPortLines) {
        match parse_metrics_port(&line.value, &|name| host.resolve(name)) {
            Ok(Some(port)) if !metrics.ports.contains(&port) => metrics.ports.push(port),
            Ok(_) => {}
            Err(why) => {
                let text = format!("{} {}: {why}", line.name, line.value);
                report.error(Some(&line.origin), text);
            }
        }
    }
    for line in settings.lines(keys::MetricsPortPolicy) {
        let mut warnings = Vec::new();
        if let Err(why) = metrics.policy.add(&line.value, &mut warnings) {
            let text = format!("MetricsPortPolicy: {why}");
            report.error(Some(&line.origin), text);
        }
        for warning in warnings {
            let text = format!("MetricsPortPolicy: {warning}");
            report.warn(Some(&line.origin), text);
        }
    }
    if !metrics.ports.is_empty() && metrics.policy.accepts_nobody() {
        report.warn(
            settings.origin(keys::MetricsPortLines),
            "MetricsPort is set, but MetricsPortPolicy accepts nobody: every request will be \
             refused. Set for example \"MetricsPortPolicy accept 127.0.0.1\"",
        );
    }
    metrics
}
