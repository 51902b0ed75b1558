//! Admission webhooks. The mutating ones are called one after the other, each with the object as the one before changed it; the
//! validating ones are called at the same time. `api_admission::webhook` decides which webhooks concern a request and what their
//! answers mean. This module finds and calls them and does what they decide.

use std::sync::Arc;
use std::time::Instant;

use api_admission::Request;
use api_admission::webhook::{self, Answer, Reinvocation, Review, Webhook, rejection};
use api_model::kind::{GroupResource, Kind};
use api_model::meta;
use parking_lot::RwLock;
use serde_json::Value;

use crate::attributes::forms::{self, Forms};
use crate::attributes::{AdmissionAttributes, options, request};
use crate::call::Call;
use crate::metrics::Metrics;
use crate::metrics::webhooks::{Outcome, WebhookCall};
use crate::policies::seen::Sight;
use crate::registry::Served;
use api_cache::{Cache, Filter, Resource};
use api_upstream::webhook::Client;
use api_wire::status::{ApiError, ApiResult};

/// The names of the two kinds of webhooks in metrics.
const MUTATING: &str = "admit";
const VALIDATING: &str = "validating";

/// The configured webhooks, and the client that calls them.
pub(crate) struct Webhooks {
    mutating: Configured,
    validating: Configured,
    pub(crate) client: Arc<Client>,
}

/// The webhooks of one kind of configuration, read anew when one changes.
struct Configured {
    /// None: the plugin is switched off.
    resource: Option<Arc<Resource>>,
    known: RwLock<(u64, Arc<[Webhook]>)>,
}

/// Why a webhook did not allow a request.
enum Failure {
    /// The webhook could not be called, or its answer was not valid: its failure policy decides.
    Calling(String),
    /// The webhook rejected the request.
    Refused(ApiError),
}

impl Webhooks {
    /// The webhooks of the plugins that are not switched off.
    pub(crate) fn new(cache: &Arc<Cache>, off: &[String]) -> Self {
        let configured = |plugin: &str, plural: &str| {
            let resource = || cache.resource(&GroupResource::new("admissionregistration.k8s.io", plural));
            Configured { resource: (!off.iter().any(|name| name == plugin)).then(resource), known: RwLock::new((0, Arc::new([]))) }
        };
        Self {
            mutating: configured("MutatingAdmissionWebhook", "mutatingwebhookconfigurations"),
            validating: configured("ValidatingAdmissionWebhook", "validatingwebhookconfigurations"),
            client: Arc::new(Client::new(Arc::clone(cache))),
        }
    }
}

impl Configured {
    fn current(&self) -> Arc<[Webhook]> {
        let Some(resource) = &self.resource else { return Arc::clone(&self.known.read().1) };
        let revision = resource.revision();
        {
            let known = self.known.read();
            if known.0 == revision {
                return Arc::clone(&known.1);
            }
        }
        // The list is at least as new as the revision. If it is newer, the next call lists once more.
        let configurations = resource.list(&Filter::default(), revision);
        let webhooks: Arc<[Webhook]> = configurations.items.iter().flat_map(|object| all_of(&object.value())).collect();
        *self.known.write() = (revision, Arc::clone(&webhooks));
        webhooks
    }
}

fn all_of(configuration: &Value) -> Vec<Webhook> {
    Webhook::all_of(configuration).collect()
}

/// Calls the mutating webhooks that the request concerns, and applies their patches.
pub(crate) async fn mutate(
    webhooks: &Webhooks,
    call: &mut Call,
    attributes: AdmissionAttributes<'_>,
    mut object: Option<&mut Value>,
    rounds: &mut Reinvocation,
) -> ApiResult<()> {
    let configured = webhooks.mutating.current();
    if configured.is_empty() || webhook::is_exempt(&call.served.kind) {
        return Ok(());
    }
    rounds.begin(object.as_deref());
    let forms = Forms::of(call);
    for webhook in configured.iter() {
        let Some(form) = form_for(call, attributes, webhook, &forms, object.as_deref_mut()).await? else { continue };
        if !rounds.is_due(&webhook.id) {
            continue;
        }
        let changed = change(&webhooks.client, call, attributes, (webhook, &form), object.as_deref_mut()).await;
        if matches!(changed, Ok(true)) {
            rounds.changed();
        }
        if webhook.is_reinvoked {
            rounds.invoked(&webhook.id);
        }
        changed.map(drop).or_else(|failure| tolerate(webhook, failure))?;
    }
    rounds.end(object.as_deref());
    Ok(())
}

/// Calls the validating webhooks that the request concerns.
pub(crate) async fn validate(
    webhooks: &Webhooks,
    call: &mut Call,
    attributes: AdmissionAttributes<'_>,
    mut object: Option<&mut Value>,
) -> ApiResult<()> {
    let configured = webhooks.validating.current();
    if configured.is_empty() || webhook::is_exempt(&call.served.kind) {
        return Ok(());
    }
    let forms = Forms::of(call);
    let mut questions = Vec::new();
    for webhook in configured.iter() {
        if let Some(form) = form_for(call, attributes, webhook, &forms, object.as_deref_mut()).await? {
            questions.push((webhook, question(call, attributes, webhook, &form, object.as_deref_mut()).await));
        }
    }
    let (client, core) = (&webhooks.client, Arc::clone(&call.core));
    let metrics = &core.metrics;
    let asking = questions
        .into_iter()
        .map(|(webhook, question)| async move { (webhook, ask((client, metrics), webhook, question, VALIDATING).await) });
    for (webhook, answer) in futures::future::join_all(asking).await {
        match answer {
            Ok(answer) => obey(call, webhook, answer).map(drop),
            Err(failure) => tolerate(webhook, failure),
        }?;
    }
    Ok(())
}

/// The form in which a webhook wants to see the object; none: the request does not concern the webhook.
async fn form_for(
    call: &Call,
    attributes: AdmissionAttributes<'_>,
    webhook: &Webhook,
    forms: &Forms,
    object: Option<&mut Value>,
) -> ApiResult<Option<Arc<Served>>> {
    let request = request(call, attributes.step, object);
    let kinds: Vec<&Kind> = forms.kinds().collect();
    let Some(index) = webhook.concerns(&request, &kinds, &*call.core.cache)? else { return Ok(None) };
    if webhook.has_conditions() {
        let mut sight = Sight::of(call, &request)?;
        let seen = sight.in_form(attributes, &request, forms, index).await?;
        let wants = webhook.wants(&sight.attributes(&seen));
        if !wants.map_err(|why| ApiError::denied(&call.served.name, request.object_name(), &why))? {
            return Ok(None);
        }
    }
    Ok(forms.get(index))
}

/// Calls one mutating webhook. Returns whether it changed the object.
async fn change(
    client: &Client,
    call: &mut Call,
    attributes: AdmissionAttributes<'_>,
    (webhook, form): (&Webhook, &Served),
    mut object: Option<&mut Value>,
) -> Result<bool, Failure> {
    let question = question(call, attributes, webhook, form, object.as_deref_mut()).await;
    let answer = ask((client, &call.core.metrics), webhook, question, MUTATING).await?;
    let Some(patch) = obey(call, webhook, answer).map_err(Failure::Refused)? else { return Ok(false) };
    let Some(object) = object else {
        let why = format!("admission webhook {:?} attempted to modify the object, which is not supported for this operation", webhook.name);
        return Err(Failure::Refused(ApiError::internal(why)));
    };
    let patched = forms::patch(call, form, object, &patch).await.map_err(Failure::Refused)?;
    let changed = patched != *object;
    *object = patched;
    Ok(changed)
}

/// An AdmissionReview for a webhook.
struct Question {
    uid: String,
    version: &'static str,
    operation: &'static str,
    review: Value,
}

async fn question(
    call: &Call,
    attributes: AdmissionAttributes<'_>,
    webhook: &Webhook,
    form: &Served,
    object: Option<&mut Value>,
) -> Result<Question, Failure> {
    if attributes.step.dry_run && webhook.has_side_effects {
        let message = format!("admission webhook {:?} does not support dry run", webhook.name);
        return Err(Failure::Refused(ApiError::bad_request(message)));
    }
    let (uid, version) = (meta::new_uid(), if webhook.knows_v1 { "v1" } else { "v1beta1" });
    let external = forms::show(call, form, object.as_deref()).await.map_err(Failure::Refused)?;
    let old = forms::show(call, form, attributes.step.old).await.map_err(Failure::Refused)?;
    let request: Request<'_> = request(call, attributes.step, object);
    let review = Review {
        uid: &uid,
        version,
        form: &form.kind,
        requested: &call.served.kind,
        object: external,
        old,
        options: options::of(call, attributes),
        request: &request,
    };
    let review = review.into_value();
    Ok(Question { uid, version, operation: attributes.step.operation.as_str(), review })
}

async fn ask(
    (client, metrics): (&Client, &Metrics),
    webhook: &Webhook,
    question: Result<Question, Failure>,
    kind: &'static str,
) -> Result<Answer, Failure> {
    let question = question?;
    let call = WebhookCall { name: &webhook.name, kind, operation: question.operation };
    let started = Instant::now();
    let answer = exchange(client, webhook, question, kind == MUTATING).await;
    let outcome = match &answer {
        Ok(answer) if answer.allowed => Outcome::Allowed,
        Ok(answer) => Outcome::Rejected(answer.status.as_ref().and_then(|status| status.get("code")?.as_u64()).unwrap_or_default()),
        Err(_) if webhook.fails_open => Outcome::FailedOpen,
        Err(_) => Outcome::Failed,
    };
    metrics.webhooks.observe(call, outcome, started.elapsed());
    answer
}

async fn exchange(client: &Client, webhook: &Webhook, question: Question, mutating: bool) -> Result<Answer, Failure> {
    let Question { uid, version, review, .. } = question;
    let answer = client.post(webhook.into(), review.to_string()).await;
    let answer = answer.map_err(|why| Failure::Calling(format!("failed to call webhook: {why}")))?;
    let read = Answer::read(&answer, &uid, version, mutating);
    read.map_err(|bad| Failure::Calling(format!("received invalid webhook response: {bad}")))
}

/// Passes warnings on. Returns the patch of a webhook that allows the request.
fn obey(call: &mut Call, webhook: &Webhook, answer: Answer) -> ApiResult<Option<Value>> {
    call.warn(answer.warnings);
    match answer.allowed {
        true => Ok(answer.patch),
        false => Err(ApiError::verbatim(rejection(&webhook.name, answer.status))),
    }
}

/// Ignores a failed call where the webhook's failure policy says so.
fn tolerate(webhook: &Webhook, failure: Failure) -> ApiResult<()> {
    match failure {
        Failure::Refused(error) => Err(error),
        Failure::Calling(why) if webhook.fails_open => {
            tracing::warn!(webhook = webhook.name, why, "a webhook that could not be called is passed over");
            Ok(())
        }
        Failure::Calling(why) => Err(ApiError::internal(format!("failed calling webhook {:?}: {why}", webhook.name))),
    }
}
