//! `metrics-api`: a value in the answer of any HTTP server.

use api_model::message::Message;

use super::value::{self, Format};
use super::{Config, Sample};
use crate::keda::auth::Auth;
use crate::keda::http::{Http, Request};
use crate::keda::params::Params;

/// The longest location, which is a part of the metric's name.
const LOCATION_LEN_MAX: usize = 1_024;

/// The settings.
pub struct MetricsApi {
    url: String,
    location: String,
    format: Format,
    activation: f64,
    unsafe_ssl: bool,
    timeout: Option<std::time::Duration>,
    auth: Auth,
    /// The value of one replica.
    pub target: f64,
}

impl MetricsApi {
    /// Reads the settings.
    pub fn parse(config: &Config<'_>) -> Result<Self, Message> {
        let mut params = Params::new(&config.spec.metadata);
        let (url, location) = (params.required("url"), params.required("valueLocation"));
        let (target, activation) = (params.number_or("targetValue", 0.0), params.number_or("activationTargetValue", 0.0));
        if location.len() > LOCATION_LEN_MAX {
            params.fail(format!("parameter \"valueLocation\" is longer than {LOCATION_LEN_MAX} bytes"));
        }
        let format = match params.word("format", &["json", "prometheus", "xml", "yaml"]) {
            "prometheus" => Format::Prometheus,
            "yaml" => Format::Yaml,
            "xml" => {
                params.fail("format xml not supported");
                Format::Json
            }
            _ => Format::Json,
        };
        let (unsafe_ssl, timeout) = (params.boolean("unsafeSsl", false), params.duration("timeout"));
        if params.boolean("aggregateFromKubeServiceEndpoints", false) {
            params.fail("aggregateFromKubeServiceEndpoints is not supported");
        }
        let auth = Auth::parse(&mut params, &config.credentials);
        let problem = |why: Message| Message::from(format!("error parsing metric API metadata: {why}"));
        params.finish().map_err(problem)?;
        if target == 0.0 {
            return Err(problem("no targetValue given in metadata".into()));
        }
        let (url, location) = (url.to_owned(), location.to_owned());
        Ok(Self { url, location, format, activation, unsafe_ssl, timeout, auth, target })
    }

    /// The name of the metric.
    pub fn metric_name(&self) -> String {
        format!("metric-api-{}", self.location)
    }

    /// The value of the answer.
    pub async fn read(&self, http: &Http) -> Result<Sample, Message> {
        let failed = |why: &dyn std::fmt::Display| Message::from(format!("error requesting metrics endpoint: {why}"));
        let mut request = Request::get(&self.url).map_err(|why| failed(&why))?;
        request.unsafe_ssl = self.unsafe_ssl;
        request.timeout(self.timeout);
        self.auth.apply(&mut request);
        let answer = http.send(request).await.map_err(|why| failed(&why))?;
        if answer.status != 200 {
            return Err(failed(&format_args!("api returned {}", answer.status)));
        }
        let value = value::search(answer.body, &self.location, self.format).await.map_err(|why| failed(&why))?;
        Ok(Sample::new(value, self.activation))
    }
}
