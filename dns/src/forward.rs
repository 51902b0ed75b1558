//! Forwards questions about names outside the cluster to the node's own resolvers. Answers are cached for their time to live;
//! the number of concurrent questions has a limit.

use std::net::SocketAddr;
use std::time::Duration;

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::{Name, Record, RecordType};
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts, ServerOrderingStrategy};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::{Resolver, TokioResolver};
use tokio::sync::Semaphore;

/// The highest number of concurrent questions; more get the answer SERVFAIL.
const CONCURRENT_MAX: usize = 1_000;
/// The number of cached answers.
const CACHE_LEN_MAX: u64 = 1_024;
/// Longest time that an answer is remembered, as the cache that CoreDNS is deployed with.
const REMEMBERED_MAX: Duration = Duration::from_secs(30);
/// The time for one attempt, and for all of them: clients give up after five seconds.
const TRY_TIMEOUT: Duration = Duration::from_secs(2);
const TIMEOUT: Duration = Duration::from_millis(4_500);

/// The result of a question.
#[derive(Debug, PartialEq)]
pub(crate) struct Forwarded {
    pub(crate) code: ResponseCode,
    pub(crate) answers: Vec<Record>,
    pub(crate) soa: Option<Record>,
}

impl Forwarded {
    fn failed(code: ResponseCode) -> Self {
        Self { code, answers: Vec::new(), soa: None }
    }
}

/// The node's resolvers.
pub(crate) struct Upstream {
    /// `None` when there are no resolvers.
    resolver: Option<TokioResolver>,
    permits: Semaphore,
}

impl Upstream {
    pub(crate) fn new(servers: &[SocketAddr]) -> Result<Self, NetError> {
        let resolver = if servers.is_empty() { None } else { Some(resolver(servers)?) };
        Ok(Self { resolver, permits: Semaphore::new(CONCURRENT_MAX) })
    }

    pub(crate) fn is_available(&self) -> bool {
        self.resolver.is_some()
    }

    pub(crate) async fn ask(&self, name: &Name, kind: RecordType) -> Forwarded {
        let Some(resolver) = &self.resolver else { return Forwarded::failed(ResponseCode::Refused) };
        let Ok(_permit) = self.permits.try_acquire() else { return Forwarded::failed(ResponseCode::ServFail) };
        match tokio::time::timeout(TIMEOUT, resolver.lookup(name.clone(), kind)).await {
            Ok(Ok(lookup)) => Forwarded { code: ResponseCode::NoError, answers: lookup.answers().to_vec(), soa: None },
            Ok(Err(NetError::Dns(DnsError::NoRecordsFound(none)))) => {
                Forwarded { code: none.response_code, answers: Vec::new(), soa: none.soa.map(|soa| (*soa).into_record_of_rdata()) }
            }
            Ok(Err(NetError::Dns(DnsError::ResponseCode(code)))) => Forwarded::failed(code),
            Ok(Err(error)) => {
                tracing::debug!(%name, %error, "upstream did not answer");
                Forwarded::failed(ResponseCode::ServFail)
            }
            Err(_) => Forwarded::failed(ResponseCode::ServFail),
        }
    }
}

fn resolver(servers: &[SocketAddr]) -> Result<TokioResolver, NetError> {
    let server = |address: &SocketAddr| {
        let at = |mut connection: ConnectionConfig| {
            connection.port = address.port();
            connection
        };
        NameServerConfig::new(address.ip(), true, vec![at(ConnectionConfig::udp()), at(ConnectionConfig::tcp())])
    };
    let config = ResolverConfig::from_name_servers(servers.iter().map(server).collect());
    let mut options = ResolverOpts::default();
    options.timeout = TRY_TIMEOUT;
    options.attempts = 1;
    options.cache_size = CACHE_LEN_MAX;
    options.positive_max_ttl = Some(REMEMBERED_MAX);
    options.negative_max_ttl = Some(REMEMBERED_MAX);
    options.use_hosts_file = ResolveHosts::Never;
    options.server_ordering_strategy = ServerOrderingStrategy::UserProvidedOrder;
    options.max_active_requests = CONCURRENT_MAX;
    Resolver::builder_with_config(config, TokioRuntimeProvider::default()).with_options(options).build()
}
