//! `prometheus`: the result of a query to a Prometheus server.

use api_model::message::Message;
use api_model::percent;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::{Config, Sample};
use crate::keda::auth::Auth;
use crate::keda::http::{Http, Request};
use crate::keda::params::Params;

/// The settings.
pub struct Prometheus {
    url: String,
    query: String,
    headers: Vec<(String, String)>,
    activation: f64,
    counts_null_as_zero: bool,
    unsafe_ssl: bool,
    timeout: Option<std::time::Duration>,
    auth: Auth,
    /// The value of one replica.
    pub threshold: f64,
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    data: Data,
}

#[derive(Default, Deserialize)]
struct Data {
    #[serde(default)]
    result: Vec<Element>,
}

#[derive(Deserialize)]
struct Element {
    #[serde(default)]
    value: Vec<Value>,
}

impl Prometheus {
    /// Reads the settings.
    pub fn parse(config: &Config<'_>) -> Result<Self, Message> {
        let mut params = Params::new(&config.spec.metadata);
        let (server, query) = (params.required("serverAddress"), params.required("query"));
        let threshold = params.number("threshold");
        let activation = params.number_or("activationThreshold", 0.0);
        let (parameters, headers) = (params.pairs("queryParameters"), params.pairs("customHeaders"));
        let counts_null_as_zero = params.boolean("ignoreNullValues", true);
        let (unsafe_ssl, timeout) = (params.boolean("unsafeSsl", false), params.duration("timeout"));
        if params.get("awsRegion").is_some() {
            params.fail("awsRegion is not supported");
        }
        let auth = Auth::parse(&mut params, &config.credentials);
        let namespace = params.get("namespace");
        params.finish().map_err(|why| format!("error parsing prometheus metadata: {why}"))?;
        let mut url = format!("{server}/api/v1/query?query={}", encoded(query));
        if let Some(namespace) = namespace {
            url.push_str(&format!("&namespace={}", encoded(namespace)));
        }
        for (name, value) in parameters {
            url.push_str(&format!("&{}={}", encoded(&name), encoded(&value)));
        }
        let query = query.to_owned();
        Ok(Self { url, query, headers, activation, counts_null_as_zero, unsafe_ssl, timeout, auth, threshold })
    }

    /// The result of the query at this time.
    pub async fn read(&self, http: &Http, now: Timestamp) -> Result<Sample, Message> {
        let failed = |why: &dyn std::fmt::Display| Message::from(format!("error executing prometheus query: {why}"));
        let mut request = Request::get(&format!("{}&time={}", self.url, now.strftime("%Y-%m-%dT%H:%M:%SZ"))).map_err(|why| failed(&why))?;
        request.unsafe_ssl = self.unsafe_ssl;
        request.timeout(self.timeout);
        self.headers.iter().for_each(|(name, value)| request.header(name, value.clone()));
        self.auth.apply(&mut request);
        let answer = http.send(request).await.map_err(|why| failed(&why))?;
        if !(200..300).contains(&answer.status) {
            return Err(format!("prometheus query api returned error. status: {}", answer.status).into());
        }
        Ok(Sample::new(self.value(&answer.body)?, self.activation))
    }

    /// The only value of an answer.
    pub fn value(&self, body: &[u8]) -> Result<f64, Message> {
        let query = &self.query;
        let answer: Answer = serde_json::from_slice(body).map_err(|_| "the answer is no result of an instant query")?;
        let (first, rest) = match answer.data.result.split_first() {
            None => return self.null("prometheus metrics 'prometheus' target may be lost, the result is empty"),
            Some(split) => split,
        };
        if !rest.is_empty() {
            return Err(format!("prometheus query {query} returned multiple elements").into());
        }
        let value = match first.value.as_slice() {
            [] => return self.null("prometheus metrics 'prometheus' target may be lost, the value list is empty"),
            [_] => return Err(format!("prometheus query {query} didn't return enough values").into()),
            // Upstream's value of a null.
            [_, Value::Null, ..] => -1.0,
            [_, value, ..] => {
                let number = value.as_str().and_then(|text| text.parse::<f64>().ok());
                number.ok_or_else(|| Message::from(format!("prometheus query {query} returned a value that is no number")))?
            }
        };
        if value.is_finite() { Ok(value) } else { self.null(&format!("prometheus query returns {value}")) }
    }

    fn null(&self, problem: &str) -> Result<f64, Message> {
        if self.counts_null_as_zero { Ok(0.0) } else { Err(problem.into()) }
    }
}

fn encoded(text: &str) -> String {
    percent::encode(text, percent::QUERY_VALUE)
}
