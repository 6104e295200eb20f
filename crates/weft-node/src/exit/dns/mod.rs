//! The DNS thread: looks names up for exit streams, with hickory on tokio.
//!
//! It has no cache and no queue of names: [`Exits`](weft_exit::Exits) has both. A query lasts for seconds;
//! the number at once is bounded by the limit of open files.

pub(crate) mod resolv_conf;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ProtocolConfig, ResolveHosts, ResolverConfig, ResolverOpts,
    ServerOrderingStrategy,
};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError as NetDnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use hickory_resolver::{Resolver, TokioResolver};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;
use weft_cell::stream_msg::is_host_name;
use weft_exit::{DnsAnswer, DnsError, Found, MAX_ASKING, Query, QueryKind, QueryPurpose};
#[cfg(test)]
use weft_trust::{Limit, Payer, Role, Sender, Trust};

use resolv_conf::ResolvConf;

use crate::logging;

/// Queries for one name: its IPv4 and its IPv6 addresses.
const QUERIES_PER_NAME: usize = 2;
/// Commands that may wait: a lookup and a cancellation for each query, and some more.
const QUEUE: usize = 2 * QUERIES_PER_NAME * MAX_ASKING + 256;
/// Sockets that one query has open at once, at worst: hickory asks again after a third of a second, and by
/// TCP.
const SOCKETS_PER_QUERY: usize = 4;
/// The DNS thread uses one of this many parts of the limit of open files.
const FILES_SHARE: usize = 4;
/// The bounds of the number of queries at once.
const AT_ONCE: std::ops::RangeInclusive<usize> = 16..=4096;
/// The answer of a name server, and what bounds it.
#[cfg(test)]
pub(crate) const ANSWER: Trust = Trust::new(
    Sender::NameServer,
    Role::Resolver,
    Limit::new(
        "{weft-node/src/exit/dns/mod.rs:MAX_ADDRESSES} addresses; a name that no host can have is none; identifier, port, and the          question's case have to fit; {weft-exit/src/exits.rs:MAX_ASKING} names at once. What it says is of use to streams to exits alone, whose          policy it passes before anything is opened",
        Payer::Stream,
        &[
            "forged_answers_are_ignored",
            "a_silent_server_times_out_and_delays_no_other_query",
            "a_flood_is_answered_a_few_at_a_time",
            "a_host_name_that_could_be_misread_is_refused",
        ],
    ),
);

/// Addresses of one answer that are used, at most.
const MAX_ADDRESSES: usize = 64;

/// The settings of lookups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DnsConfig {
    /// `ServerDNSResolvConfFile`; `None`: the system's.
    pub resolv_conf: Option<PathBuf>,
    /// `ServerDNSSearchDomains`: names without dots are also looked up in resolv.conf's domains.
    pub search: bool,
    /// `ServerDNSRandomizeCase`: queries have names in random case, and answers must have the same.
    pub randomize_case: bool,
    /// Consensus `exit_dns_timeout`: the time after which a query is sent again.
    pub timeout: Duration,
    /// Consensus `exit_dns_num_attempts`: how often a query is sent.
    pub attempts: u32,
    /// The process's limit of open files.
    pub max_files: usize,
}

impl DnsConfig {
    /// Reads resolv.conf, and warns the operator of its defects.
    ///
    /// # Errors
    /// The file exists and cannot be read.
    pub(crate) fn servers(&self) -> Result<ResolvConf, String> {
        let path = self.resolv_conf.clone();
        let path = path.unwrap_or_else(|| resolv_conf::SYSTEM.into());
        let (conf, warning) = ResolvConf::read(&path)?;
        if let Some(warning) = warning {
            tracing::warn!("{warning}");
        }
        Ok(conf)
    }

    /// The number of queries that may be under way at once.
    fn at_once(&self) -> usize {
        (self.max_files / SOCKETS_PER_QUERY / FILES_SHARE).clamp(*AT_ONCE.start(), *AT_ONCE.end())
    }

    /// The number of names that may be looked up at once.
    #[must_use]
    pub(crate) fn names_at_once(&self) -> usize {
        self.at_once() / QUERIES_PER_NAME
    }

    /// The time limit of a query, including those that follow aliases.
    fn max_time(&self) -> Duration {
        let all = self
            .timeout
            .saturating_mul(self.attempts.max(1).saturating_mul(2));
        all.max(Duration::from_secs(10))
    }

    fn resolver(&self, conf: &ResolvConf) -> Result<TokioResolver, NetError> {
        let mut servers: Vec<NameServerConfig> = Vec::new();
        for server in &conf.servers {
            let with_port = |protocol| {
                let mut connection = ConnectionConfig::new(protocol);
                connection.port = server.port();
                connection
            };
            let connections = vec![
                with_port(ProtocolConfig::Udp),
                with_port(ProtocolConfig::Tcp),
            ];
            servers.push(NameServerConfig::new(server.ip(), true, connections));
        }
        let search = conf
            .search
            .iter()
            .filter_map(|domain| Name::from_utf8(domain).ok());
        let config = ResolverConfig::from_parts(None, search.collect(), servers);
        let mut options = ResolverOpts::default();
        options.ndots = conf.ndots.unwrap_or(1);
        options.timeout = self.timeout;
        // Hickory counts repetitions.
        options.attempts = usize::try_from(self.attempts.max(1) - 1).unwrap_or(0);
        options.cache_size = 0;
        options.use_hosts_file = ResolveHosts::Never;
        // Only one name server at a time sees a client's query.
        options.num_concurrent_reqs = 1;
        options.server_ordering_strategy = ServerOrderingStrategy::QueryStatistics;
        options.max_active_requests = *AT_ONCE.end();
        options.case_randomization = self.randomize_case;
        Resolver::builder_with_config(config, TokioRuntimeProvider::default())
            .with_options(options)
            .build()
    }
}

/// The DNS thread, as the main thread holds it. Dropping it ends the thread; answers to queries under way
/// are lost.
#[derive(Debug)]
pub(crate) struct DnsThread {
    commands: mpsc::Sender<Command>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
enum Command {
    LookUp(Query),
    Cancel(Query),
    Configure(Box<(DnsConfig, ResolvConf)>),
}

/// A function that takes answers, on the DNS thread; it must not block.
pub(crate) type AnswerSink = Box<dyn Fn(DnsAnswer) + Send + Sync>;

impl DnsThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system could not start a thread or an event loop.
    pub(crate) fn start(
        config: DnsConfig,
        conf: ResolvConf,
        answers: AnswerSink,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (sender, receiver) = mpsc::channel(QUEUE);
        let thread = logging::spawn("dns", move || {
            runtime.block_on(serve(config, conf, receiver, answers.into()));
        })?;
        Ok(Self {
            commands: sender,
            thread: Some(thread),
        })
    }

    /// Starts a query. Every query gets an answer: at once as an error, if the thread's queue is full.
    ///
    /// # Errors
    /// The answer, an error.
    pub(crate) fn look_up(&self, query: Query) -> Result<(), DnsAnswer> {
        self.commands
            .try_send(Command::LookUp(query.clone()))
            .map_err(|_| DnsAnswer {
                query,
                result: Err(DnsError::Unreachable),
            })
    }

    /// Cancels a query. If the thread's queue is full, the query continues and is answered.
    pub(crate) fn cancel(&self, query: Query) {
        let _ = self.commands.try_send(Command::Cancel(query));
    }

    /// Changes the settings of later queries.
    pub(crate) fn configure(&self, config: DnsConfig, conf: ResolvConf) {
        let command = Command::Configure(Box::new((config, conf)));
        if self.commands.try_send(command).is_err() {
            tracing::warn!("The DNS thread is overwhelmed; the name servers stay as they were");
        }
    }

    /// Ends the thread and waits for it.
    pub(crate) fn shutdown(mut self) {
        self.commands = mpsc::channel(1).0;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The resolver and the settings that a query needs.
#[derive(Clone)]
struct QueryContext {
    resolver: Option<Arc<TokioResolver>>,
    search: bool,
    max_time: Duration,
    permits: Arc<Semaphore>,
}

impl QueryContext {
    fn new(config: &DnsConfig, conf: &ResolvConf) -> Self {
        let resolver = config.resolver(conf);
        if let Err(error) = &resolver {
            tracing::warn!("Could not configure nameservers: {error}");
        }
        Self {
            resolver: resolver.ok().map(Arc::new),
            search: config.search,
            max_time: config.max_time(),
            permits: Arc::new(Semaphore::new(config.at_once())),
        }
    }
}

async fn serve(
    config: DnsConfig,
    conf: ResolvConf,
    mut commands: mpsc::Receiver<Command>,
    answers: Arc<dyn Fn(DnsAnswer) + Send + Sync>,
) {
    let mut context = QueryContext::new(&config, &conf);
    // The tasks of queries, for cancellation.
    let mut underway: BTreeMap<Query, AbortHandle> = BTreeMap::new();
    while let Some(command) = commands.recv().await {
        match command {
            Command::Configure(new) => context = QueryContext::new(&new.0, &new.1),
            Command::LookUp(query) => {
                let (context, answers) = (context.clone(), answers.clone());
                let name = query.clone();
                let task = tokio::spawn(async move {
                    let found = tokio::time::timeout(context.max_time, look_up(&context, &query));
                    let result = found.await.unwrap_or(Err(DnsError::Timeout));
                    answers(DnsAnswer { query, result });
                });
                if underway.len() >= QUEUE {
                    underway.retain(|_, task| !task.is_finished());
                }
                underway.insert(name, task.abort_handle());
            }
            Command::Cancel(query) => {
                if let Some(task) = underway.remove(&query) {
                    task.abort();
                }
            }
        }
    }
}

async fn look_up(context: &QueryContext, query: &Query) -> Result<(Found, Duration), DnsError> {
    let _permit = context.permits.acquire().await;
    let resolver = context.resolver.as_ref().ok_or(DnsError::Unreachable)?;
    let (kind, mut name) = match query.kind {
        QueryKind::V4 => (RecordType::A, name_of(&query.name)?),
        QueryKind::V6 => (RecordType::AAAA, name_of(&query.name)?),
        QueryKind::Reverse => (RecordType::PTR, name_of(&query.name)?),
    };
    // A name that is not fully qualified is looked up in the search domains, too.
    name.set_fqdn(
        !context.search
            || query.kind == QueryKind::Reverse
            || query.purpose != QueryPurpose::Stream,
    );
    match resolver.lookup(name, kind).await {
        Ok(lookup) => found(&lookup, query.kind),
        Err(error) => Err(error_of(&error)),
    }
}

/// The name in hickory's form.
fn name_of(name: &[u8]) -> Result<Name, DnsError> {
    Name::from_labels(name.split(|byte| *byte == b'.')).map_err(|_| DnsError::Format)
}

/// The records and the TTL of an answer.
fn found(lookup: &Lookup, kind: QueryKind) -> Result<(Found, Duration), DnsError> {
    let mut ttl = u32::MAX;
    let mut addrs: Vec<IpAddr> = Vec::new();
    let mut host = None;
    for record in lookup.answers() {
        ttl = ttl.min(record.ttl);
        match (&record.data, kind) {
            (RData::A(addr), QueryKind::V4) if addrs.len() < MAX_ADDRESSES => {
                addrs.push(addr.0.into())
            }
            (RData::AAAA(addr), QueryKind::V6) if addrs.len() < MAX_ADDRESSES => {
                addrs.push(addr.0.into());
            }
            (RData::PTR(name), QueryKind::Reverse) if host.is_none() => host = host_of(&name.0),
            _ => {}
        }
    }
    let found = match (host, addrs.is_empty()) {
        (Some(host), _) => Found::Host(host),
        (None, false) => Found::Addresses(addrs),
        (None, true) => return Err(DnsError::NoData),
    };
    Ok((found, Duration::from_secs(ttl.into())))
}

/// A host name in the format of RESOLVED; `None` if it is none (TROVE-2026-035): the owner of a zone of reverse names can
/// put anything there.
fn host_of(name: &Name) -> Option<Arc<[u8]>> {
    let labels: Vec<&[u8]> = name.iter().collect();
    let host = labels.join(&b'.');
    let is_plain = labels.iter().all(|label| !label.contains(&b'.'));
    (is_plain && is_host_name(&host)).then(|| host.into())
}

fn error_of(error: &NetError) -> DnsError {
    let code = match error {
        NetError::Timeout => return DnsError::Timeout,
        NetError::Truncated => return DnsError::Truncated,
        NetError::Dns(NetDnsError::NoRecordsFound(none)) => none.response_code,
        NetError::Dns(NetDnsError::ResponseCode(code)) => *code,
        NetError::Busy | NetError::Io(_) | NetError::NoConnections => {
            return DnsError::Unreachable;
        }
        // An answer was forged, and there is no other.
        NetError::QueryCaseMismatch => return DnsError::ServerFailed,
        _ => return DnsError::Unknown,
    };
    match code {
        ResponseCode::NXDomain => DnsError::NotExist,
        ResponseCode::NoError => DnsError::NoData,
        ResponseCode::FormErr => DnsError::Format,
        ResponseCode::ServFail => DnsError::ServerFailed,
        ResponseCode::NotImp => DnsError::NotImplemented,
        ResponseCode::Refused => DnsError::Refused,
        _ => DnsError::Unknown,
    }
}
