//! From a request to a response: the zone answers names of the cluster, other questions are forwarded.

use std::sync::Arc;

use hickory_proto::op::{Edns, Metadata, OpCode, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, Record, RecordType};
use hickory_server::net::runtime::Time;
use hickory_server::server::{Request, RequestHandler, ResponseHandler, ResponseInfo};
use hickory_server::zone_handler::MessageResponseBuilder;
use parking_lot::RwLock;
use tokio::sync::Semaphore;

use crate::forward::Upstream;
use crate::zone::{Answer, Zone, ZoneAnswer};

/// The highest number of concurrent requests; more get the answer SERVFAIL.
const CONCURRENT_MAX: usize = 4_096;
/// The largest UDP answer (DNS flag day 2020): larger ones are truncated, and clients repeat the question over TCP.
const UDP_BYTES_MAX: u16 = 1_232;
/// The only version of EDNS.
const EDNS_VERSION: u8 = 0;

/// The content of a response.
#[derive(Default)]
struct Reply {
    code: Option<ResponseCode>,
    authoritative: bool,
    answers: Vec<Record>,
    soa: Option<Record>,
    additionals: Vec<Record>,
}

impl Reply {
    fn failed(code: ResponseCode) -> Self {
        Self { code: Some(code), ..Self::default() }
    }
}

/// Answers requests; clones share their state.
#[derive(Clone)]
pub(crate) struct Handler {
    zone: Arc<RwLock<Zone>>,
    upstream: Arc<RwLock<Arc<Upstream>>>,
    permits: Arc<Semaphore>,
}

impl Handler {
    pub(crate) fn new(zone: Arc<RwLock<Zone>>, upstream: Arc<RwLock<Arc<Upstream>>>) -> Self {
        Self { zone, upstream, permits: Arc::new(Semaphore::new(CONCURRENT_MAX)) }
    }

    /// The node's resolvers as they are now.
    fn upstream(&self) -> Arc<Upstream> {
        Arc::clone(&self.upstream.read())
    }

    async fn reply(&self, request: &Request) -> Reply {
        let Ok(_permit) = self.permits.try_acquire() else { return Reply::failed(ResponseCode::ServFail) };
        if request.metadata.op_code != OpCode::Query {
            return Reply::failed(ResponseCode::NotImp);
        }
        if request.version() > EDNS_VERSION {
            return Reply::failed(ResponseCode::BADVERS);
        }
        let Ok(info) = request.request_info() else { return Reply::failed(ResponseCode::FormErr) };
        let (name, kind) = (info.query.original().name(), info.query.query_type());
        if info.query.query_class() != DNSClass::IN || matches!(kind, RecordType::AXFR | RecordType::IXFR) {
            return Reply::failed(ResponseCode::Refused);
        }
        let answer = self.zone.read().answer(name, kind);
        match answer {
            Answer::Unready => Reply::failed(ResponseCode::ServFail),
            Answer::Authoritative(answer) => self.complete(*answer, kind, request.metadata.id).await,
            Answer::Foreign => self.forward(name, kind).await,
        }
    }

    async fn forward(&self, name: &Name, kind: RecordType) -> Reply {
        let got = self.upstream().ask(name, kind).await;
        Reply { code: Some(got.code), answers: got.answers, soa: got.soa, ..Reply::default() }
    }

    /// Follows an alias out of the cluster, and rotates the answers with every request, so that clients that use the first
    /// answer are distributed.
    async fn complete(&self, answer: ZoneAnswer, kind: RecordType, id: u16) -> Reply {
        let mut reply = Reply {
            code: Some(answer.code),
            authoritative: true,
            answers: answer.answers,
            soa: answer.soa,
            additionals: answer.additionals,
        };
        if let Some(name) = &answer.further {
            // An alias is an answer even when its target does not exist. When the target could not be resolved, clients must
            // not cache that it does not exist.
            let got = self.upstream().ask(name, kind).await;
            if got.code == ResponseCode::ServFail {
                return Reply::failed(ResponseCode::ServFail);
            }
            reply.answers.extend(got.answers);
        } else if reply.answers.iter().all(|record| record.record_type() != RecordType::CNAME) && !reply.answers.is_empty() {
            let start = usize::from(id) % reply.answers.len();
            reply.answers.rotate_left(start);
        }
        reply
    }
}

#[async_trait::async_trait]
impl RequestHandler for Handler {
    async fn handle_request<R: ResponseHandler, T: Time>(&self, request: &Request, mut response: R) -> ResponseInfo {
        let reply = self.reply(request).await;
        let code = reply.code.unwrap_or(ResponseCode::ServFail);
        let mut metadata = Metadata::response_from_request(&request.metadata);
        metadata.response_code = code;
        metadata.authoritative = reply.authoritative;
        metadata.recursion_available = self.upstream().is_available();
        let edns = request.edns.as_ref().map(|form| {
            let mut edns = Edns::new();
            edns.set_version(EDNS_VERSION);
            edns.set_max_payload(form.max_payload().clamp(512, UDP_BYTES_MAX));
            edns.set_dnssec_ok(form.flags().dnssec_ok);
            edns.set_rcode_high(code.high());
            edns
        });
        let builder = MessageResponseBuilder::new(&request.queries, edns.as_ref());
        let message = builder.build(metadata, &reply.answers, [], &reply.soa, &reply.additionals);
        match response.send_response(message).await {
            Ok(info) => info,
            Err(error) => {
                tracing::debug!(%error, client = %request.src(), "response not sent");
                let counts = Default::default();
                hickory_proto::op::Header { metadata, counts }.into()
            }
        }
    }
}
