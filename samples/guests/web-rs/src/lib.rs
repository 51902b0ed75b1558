//! The `web` guest in Rust: a `wasi:http` component that greets.

use wasip2::exports::wasi::http::incoming_handler::Guest;
use wasip2::http::types::{Fields, IncomingRequest, OutgoingBody, OutgoingResponse, ResponseOutparam};

struct Web;

impl Guest for Web {
    fn handle(request: IncomingRequest, out: ResponseOutparam) {
        let path = request.path_with_query().unwrap_or_default();
        let response = OutgoingResponse::new(Fields::new());
        let body = response.body().expect("a new response has its body");
        ResponseOutparam::set(out, Ok(response));
        let stream = body.write().expect("a new body has its stream");
        stream.blocking_write_and_flush(format!("Hello from Rust! {path}\n").as_bytes()).expect("the client listens");
        drop(stream);
        OutgoingBody::finish(body, None).expect("nothing was promised");
    }
}

wasip2::http::proxy::export!(Web);
