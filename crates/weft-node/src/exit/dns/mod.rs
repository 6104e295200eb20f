//! The DNS thread: asks name servers what exit streams want to know, with hickory on tokio.
//!
//! It keeps nothing: the cache is [`Exits`](super::Exits)', and so are the names that wait for their
//! turn. A question lives for seconds, and so many at once are asked as there are files for.

pub mod resolv_conf;
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

use super::{DnsAnswer, DnsError, Found, Kind, MAX_ASKING, Query};
use resolv_conf::ResolvConf;

/// Questions of one name: its IPv4 and its IPv6 addresses.
const FOR_ONE_NAME: usize = 2;
/// Commands that may wait: to ask about each name and to ask no more, and some more.
const QUEUE: usize = 2 * FOR_ONE_NAME * MAX_ASKING + 256;
/// Sockets that one question has open at once, at worst: hickory asks again after a third of a
/// second, and by TCP.
const SOCKETS: usize = 4;
/// Files that are left to others where there are few.
const SHARE: usize = 4;
/// Questions that are asked at once, at least and at most.
const AT_ONCE: std::ops::RangeInclusive<usize> = 16..=4096;
/// Addresses of one answer that are looked at.
const MAX_ADDRESSES: usize = 64;
/// The longest name of an address that fits into a RESOLVED, in bytes.
const MAX_HOST: usize = 255;

/// How to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsConfig {
    /// `ServerDNSResolvConfFile`; `None`: the system's.
    pub resolv_conf: Option<PathBuf>,
    /// `ServerDNSSearchDomains`: names without dots are looked for in resolv.conf's domains.
    pub search: bool,
    /// `ServerDNSRandomizeCase`: names go out in mixed case, and must come back so.
    pub randomize_case: bool,
    /// Consensus `exit_dns_timeout`: how long to wait for an answer before asking again.
    pub timeout: Duration,
    /// Consensus `exit_dns_num_attempts`: how often to ask.
    pub attempts: u32,
    /// Files that the process may have open.
    pub max_files: usize,
}

impl DnsConfig {
    /// Reads resolv.conf. Tells the operator what is wrong with it.
    ///
    /// # Errors
    /// It is there and cannot be read.
    pub fn servers(&self) -> Result<ResolvConf, String> {
        let path = self.resolv_conf.clone();
        let path = path.unwrap_or_else(|| resolv_conf::SYSTEM.into());
        let (conf, told) = ResolvConf::read(&path)?;
        if let Some(why) = told {
            tracing::warn!("{why}");
        }
        Ok(conf)
    }

    /// Questions that may be asked at once.
    fn at_once(&self) -> usize {
        (self.max_files / SOCKETS / SHARE).clamp(*AT_ONCE.start(), *AT_ONCE.end())
    }

    /// Names that may be asked about at once.
    #[must_use]
    pub fn names_at_once(&self) -> usize {
        self.at_once() / FOR_ONE_NAME
    }

    /// After this long, a question has no answer, whatever happens (names that lead to names).
    fn longest(&self) -> Duration {
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
        // Hickory counts how often it asks again.
        options.attempts = usize::try_from(self.attempts.max(1) - 1).unwrap_or(0);
        options.cache_size = 0;
        options.use_hosts_file = ResolveHosts::Never;
        // One name server at a time learns what clients ask for.
        options.num_concurrent_reqs = 1;
        options.server_ordering_strategy = ServerOrderingStrategy::QueryStatistics;
        options.max_active_requests = *AT_ONCE.end();
        options.case_randomization = self.randomize_case;
        Resolver::builder_with_config(config, TokioRuntimeProvider::default())
            .with_options(options)
            .build()
    }
}

/// The DNS thread, as the main thread holds it. Dropping it ends it; answers that are still to
/// come are lost.
#[derive(Debug)]
pub struct DnsThread {
    commands: mpsc::Sender<Command>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
enum Command {
    LookUp(Query),
    Cancel(Query),
    Configure(Box<(DnsConfig, ResolvConf)>),
}

/// Takes answers, on the DNS thread; must not block.
pub type AnswerSink = Box<dyn Fn(DnsAnswer) + Send + Sync>;

impl DnsThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no thread, or no event loop.
    pub fn start(config: DnsConfig, conf: ResolvConf, answers: AnswerSink) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (sender, receiver) = mpsc::channel(QUEUE);
        let thread = std::thread::Builder::new()
            .name("dns".into())
            .spawn(move || {
                runtime.block_on(serve(config, conf, receiver, answers.into()));
            })?;
        Ok(Self {
            commands: sender,
            thread: Some(thread),
        })
    }

    /// Asks. Whatever happens, there will be an answer: here, if the thread takes no question.
    ///
    /// # Errors
    /// The answer that there is no answer.
    pub fn look_up(&self, query: Query) -> Result<(), DnsAnswer> {
        self.commands
            .try_send(Command::LookUp(query.clone()))
            .map_err(|_| DnsAnswer {
                query,
                result: Err(DnsError::ServerFailed),
            })
    }

    /// Asks no more. If the thread does not take the command, an answer comes later.
    pub fn cancel(&self, query: Query) {
        let _ = self.commands.try_send(Command::Cancel(query));
    }

    /// Has further questions asked in another way.
    pub fn configure(&self, config: DnsConfig, conf: ResolvConf) {
        let command = Command::Configure(Box::new((config, conf)));
        if self.commands.try_send(command).is_err() {
            tracing::warn!("The DNS thread is overwhelmed; the name servers stay as they were");
        }
    }

    /// Ends the thread and waits for it.
    pub fn shutdown(mut self) {
        self.commands = mpsc::channel(1).0;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// How to ask, as far as a question needs it.
#[derive(Clone)]
struct Asking {
    resolver: Option<Arc<TokioResolver>>,
    search: bool,
    longest: Duration,
    permits: Arc<Semaphore>,
}

impl Asking {
    fn new(config: &DnsConfig, conf: &ResolvConf) -> Self {
        let resolver = config.resolver(conf);
        if let Err(error) = &resolver {
            tracing::warn!("Could not configure nameservers: {error}");
        }
        Self {
            resolver: resolver.ok().map(Arc::new),
            search: config.search,
            longest: config.longest(),
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
    let mut asking = Asking::new(&config, &conf);
    // Questions that are being asked, by which they can be cancelled.
    let mut underway: BTreeMap<Query, AbortHandle> = BTreeMap::new();
    while let Some(command) = commands.recv().await {
        match command {
            Command::Configure(new) => asking = Asking::new(&new.0, &new.1),
            Command::LookUp(query) => {
                let (asking, answers) = (asking.clone(), answers.clone());
                let name = query.clone();
                let task = tokio::spawn(async move {
                    let asked = tokio::time::timeout(asking.longest, look_up(&asking, &query));
                    let result = asked.await.unwrap_or(Err(DnsError::Timeout));
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

async fn look_up(asking: &Asking, query: &Query) -> Result<(Found, Duration), DnsError> {
    let _permit = asking.permits.acquire().await;
    let resolver = asking.resolver.as_ref().ok_or(DnsError::ServerFailed)?;
    let (kind, mut name) = match query.kind {
        Kind::V4 => (RecordType::A, name_of(&query.name)?),
        Kind::V6 => (RecordType::AAAA, name_of(&query.name)?),
        Kind::Reverse => (RecordType::PTR, name_of(&query.name)?),
    };
    // What is not fully qualified is looked for in the search domains, too.
    name.set_fqdn(
        !asking.search || query.kind == Kind::Reverse || query.asked != super::Asked::Stream,
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

/// What an answer says.
fn found(lookup: &Lookup, kind: Kind) -> Result<(Found, Duration), DnsError> {
    let mut ttl = u32::MAX;
    let mut addrs: Vec<IpAddr> = Vec::new();
    let mut host = None;
    for record in lookup.answers() {
        ttl = ttl.min(record.ttl);
        match (&record.data, kind) {
            (RData::A(addr), Kind::V4) if addrs.len() < MAX_ADDRESSES => addrs.push(addr.0.into()),
            (RData::AAAA(addr), Kind::V6) if addrs.len() < MAX_ADDRESSES => {
                addrs.push(addr.0.into());
            }
            (RData::PTR(name), Kind::Reverse) if host.is_none() => host = host_of(&name.0),
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

/// A name as RESOLVED has it; none, where a client could misread it.
fn host_of(name: &Name) -> Option<Arc<[u8]>> {
    let labels: Vec<&[u8]> = name.iter().collect();
    let misleading = |byte: &u8| *byte == 0 || *byte == b'.';
    if labels.iter().any(|label| label.iter().any(misleading)) {
        return None;
    }
    let host = labels.join(&b'.');
    (1..=MAX_HOST).contains(&host.len()).then(|| host.into())
}

fn error_of(error: &NetError) -> DnsError {
    let code = match error {
        NetError::Timeout => return DnsError::Timeout,
        NetError::Truncated => return DnsError::Truncated,
        NetError::Dns(NetDnsError::NoRecordsFound(none)) => none.response_code,
        NetError::Dns(NetDnsError::ResponseCode(code)) => *code,
        // No name server could be asked, or one that forges answers was.
        NetError::Busy
        | NetError::Io(_)
        | NetError::NoConnections
        | NetError::QueryCaseMismatch => return DnsError::ServerFailed,
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
