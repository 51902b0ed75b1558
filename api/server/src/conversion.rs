//! Custom resources of several versions: every object is stored in one version and shown in whichever is
//! asked for. A webhook converts, or versions differ in their name and in the fields that each knows.
//!
//! All work on such an object (defaults, admission, rules, patches, who owns which field) is done in the
//! version of the request; it is converted where it leaves the cache and before it is stored. As upstream, what is
//! read from the store is pruned and defaulted by the version that it is stored in, and after each conversion it
//! is pruned by the version that it was converted to. What was made of an object at a revision is kept, and what
//! was made of an event too, so that a thousand watchers cost one call. What is asked and what an answer means is
//! in `api_rules::conversion`.

mod kept;
mod owners;

use std::sync::Arc;
use std::time::Duration;

use api_admission::webhook::{Endpoint, ca_bundle};
use api_model::kind::Kind;
use api_model::meta;
use api_rules::conversion;
use serde_json::Value;

use self::kept::Kept;
pub(crate) use self::owners::settle as settle_owners;
use crate::app::{App, Call};
use crate::registry::Served;
use crate::webhooks::client::Callee;
use api_cache::{Before, Beginning, Delivery, Event, Filter, Object, encode};
use api_wire::json;
use api_wire::status::{ApiError, ApiResult};

/// How long an answer may take: upstream's number.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Objects and bytes that are asked about at once. One object alone may be larger.
const BATCH_LEN_MAX: usize = 500;
const BATCH_BYTES_MAX: usize = 4 << 20;
/// The longest answer: a batch that grew fourfold.
const ANSWER_BYTES_MAX: usize = 4 * BATCH_BYTES_MAX;

/// Where a definition's conversion webhook is and how it is spoken to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hook {
    endpoint: Endpoint,
    ca_bundle: Option<Vec<u8>>,
    /// Version of ConversionReview.
    review: String,
}

impl Hook {
    /// From a definition; none where versions differ in their name alone.
    pub(crate) fn of(definition: &Value) -> Option<Self> {
        let conversion = definition.pointer("/spec/conversion").filter(|conversion| json::text(conversion, &["strategy"]) == "Webhook")?;
        let config = conversion.pointer("/webhook/clientConfig")?;
        let known = conversion.pointer("/webhook/conversionReviewVersions").and_then(Value::as_array).into_iter().flatten();
        let review = known.filter_map(Value::as_str).find(|version| conversion::REVIEW_VERSIONS.contains(version))?;
        Some(Self { endpoint: Endpoint::from(config), ca_bundle: ca_bundle(config), review: review.to_owned() })
    }
}

/// Every version of a definition, whether it is served or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Versions {
    all: Arc<[Arc<Kind>]>,
    /// The version in which objects are stored.
    storage: Arc<Kind>,
}

impl Versions {
    /// None where there is but one, so that there is nothing to convert.
    pub(crate) fn of(all: &[Kind], storage: &str) -> Option<Self> {
        let all: Arc<[Arc<Kind>]> = all.iter().cloned().map(Arc::new).collect();
        let storage = all.iter().find(|kind| kind.api_version() == storage).cloned()?;
        (all.len() > 1).then_some(Self { all, storage })
    }

    /// The version that an object says it is of.
    fn version_of(&self, object: &Value) -> Option<&Kind> {
        let version = json::text(object, &["apiVersion"]);
        self.all.iter().find(|kind| kind.api_version() == version).map(|kind| &**kind)
    }
}

/// The way from and to one version.
#[derive(Debug)]
pub(crate) struct Converter {
    /// The webhook that is asked; none where only the name changes.
    hook: Option<Hook>,
    versions: Versions,
    kept: Kept,
}

/// Converters of one version are alike when they do alike, whatever they keep.
impl PartialEq for Converter {
    fn eq(&self, other: &Self) -> bool {
        self.hook == other.hook && self.versions == other.versions
    }
}

impl Eq for Converter {}

impl Converter {
    pub(crate) fn new(hook: Option<Hook>, versions: Versions) -> Self {
        Self { hook, versions, kept: Kept::default() }
    }

    /// Whether objects are stored as they were when this one was made.
    pub(crate) fn stores_like(&self, other: &Self) -> bool {
        self.versions.storage == other.versions.storage
    }

    /// Whether what selectors ask about may be another after a conversion. Without a webhook metadata stays, and so do
    /// the fields that a version knows.
    pub(crate) fn changes_selection(&self) -> bool {
        self.hook.is_some()
    }

    /// Objects in the version of `kind`, pruned by it: renamed, or asked of the webhook in parts of bounded size.
    async fn ask(&self, app: &App, kind: &Kind, objects: &[Arc<Value>]) -> ApiResult<Vec<Value>> {
        let Some(hook) = &self.hook else {
            return Ok(objects.iter().map(|object| renamed(kind, (**object).clone())).collect());
        };
        let mut converted = Vec::with_capacity(objects.len());
        let mut rest = objects;
        while !rest.is_empty() {
            let (batch, more) = rest.split_at(batch_len(rest));
            converted.extend(hook.exchange(app, kind, batch).await?);
            rest = more;
        }
        Ok(converted)
    }

    /// An object as it was read from the store: as the definition of its version says by now.
    fn read(&self, served: &Served, object: &Object) -> Arc<Value> {
        let value = object.value();
        match self.versions.version_of(&value).filter(|_| !served.is_written_since(object)) {
            Some(kind) => {
                let mut value = (*value).clone();
                api_rules::read_stored(kind, &mut value);
                Arc::new(value)
            }
            None => value,
        }
    }
}

fn renamed(kind: &Kind, mut object: Value) -> Value {
    json::set(&mut object, &["apiVersion"], kind.api_version());
    api_rules::prune_converted(kind, &mut object);
    object
}

impl Hook {
    async fn exchange(&self, app: &App, kind: &Kind, objects: &[Arc<Value>]) -> ApiResult<Vec<Value>> {
        let Some(first) = objects.first() else { return Ok(Vec::new()) };
        let wanted = kind.api_version();
        let from = json::text(first, &["apiVersion"]);
        let failed = |why: String| ApiError::untyped(format!("conversion webhook for {from}, Kind={} {why}", kind.kind));
        let Self { endpoint, ca_bundle, review } = self;
        let callee = Callee { endpoint, ca_bundle, timeout: TIMEOUT, answer_bytes_max: ANSWER_BYTES_MAX };
        let uid = meta::new_uid();
        let question: Vec<&Value> = objects.iter().map(|object| &**object).collect();
        let question = conversion::review(review, &uid, &wanted, &question).to_string();
        let answer = app.webhooks.client.post(callee, question).await.map_err(|why| failed(format!("failed: {why}")))?;
        let answered = conversion::answered(answer, review, &uid).map_err(|why| failed(format!("failed: {why}")))?;
        if answered.len() != objects.len() {
            return Err(failed(format!("returned {} objects, expected {}", answered.len(), objects.len())));
        }
        let accept = |(index, (original, answer)): (usize, (&Arc<Value>, Value))| {
            let accepted = conversion::accept(original, answer, &wanted, (index, objects.len()));
            let mut accepted = accepted.map_err(|bad| failed(bad.to_string()))?;
            api_rules::prune_converted(kind, &mut accepted);
            Ok(accepted)
        };
        objects.iter().zip(answered).enumerate().map(accept).collect()
    }
}

/// How many of these make a batch: one at least.
fn batch_len(objects: &[Arc<Value>]) -> usize {
    let mut bytes = 0;
    let fits = |object: &&Arc<Value>| {
        bytes += encode(object).len();
        bytes <= BATCH_BYTES_MAX
    };
    objects.iter().take(BATCH_LEN_MAX).take_while(fits).count().max(1)
}

/// Whether an object's bytes say that it is of this version.
fn is_of(kind: &Kind, object: &Object) -> bool {
    let rest = object.type_meta().strip_prefix(b"{\"kind\":\"").and_then(|rest| rest.strip_prefix(kind.kind.as_bytes()));
    let rest = rest.and_then(|rest| rest.strip_prefix(b"\",\"apiVersion\":\"")).and_then(|rest| rest.strip_prefix(kind.group.as_bytes()));
    let rest = rest.and_then(|rest| rest.strip_prefix(b"/")).and_then(|rest| rest.strip_prefix(kind.version.as_bytes()));
    rest.is_some_and(|rest| rest.starts_with(b"\""))
}

impl App {
    /// Objects as the clients of a kind get them. Kinds of one version get what is stored.
    pub(crate) async fn shown(&self, served: &Served, mut objects: Vec<Arc<Object>>) -> ApiResult<Vec<Arc<Object>>> {
        let Some(converter) = served.converter() else { return Ok(objects) };
        let mut missing: Vec<&mut Arc<Object>> = Vec::new();
        for object in &mut objects {
            let is_ours = is_of(&served.kind, object);
            if is_ours && served.is_written_since(object) {
                continue;
            }
            match converter.kept.object(object) {
                Some(known) => *object = known,
                None if is_ours => {
                    let value = converter.read(served, object);
                    *object = converter.kept.keep(object, (*value).clone())?;
                }
                None => missing.push(object),
            }
        }
        let originals: Vec<Arc<Value>> = missing.iter().map(|object| converter.read(served, object)).collect();
        for (object, value) in missing.into_iter().zip(converter.ask(self, &served.kind, &originals).await?) {
            *object = converter.kept.keep(object, value)?;
        }
        Ok(objects)
    }

    /// [`App::shown`] of one object.
    pub(crate) async fn shown_one(&self, served: &Served, object: Arc<Object>) -> ApiResult<Arc<Object>> {
        if served.converter().is_none() {
            return Ok(object);
        }
        let shown = self.shown(served, vec![object]).await?;
        shown.into_iter().next().ok_or_else(|| ApiError::internal("an object was lost"))
    }

    /// An object of any version of a definition in that of `to`; itself where there is but one.
    pub(crate) async fn converted(&self, to: &Served, value: Value) -> ApiResult<Value> {
        match to.converter() {
            Some(converter) => self.convert(converter, &to.kind, value).await,
            None => Ok(value),
        }
    }

    /// An object of a request's version as it is stored. It gets the stored version's defaults now, which upstream
    /// gives it whenever it is read.
    pub(crate) async fn for_storage(&self, from: &Served, value: Value) -> ApiResult<Value> {
        let Some(converter) = from.converter() else { return Ok(value) };
        let storage = &converter.versions.storage;
        let mut stored = self.convert(converter, storage, value).await?;
        if *from.kind != **storage {
            api_rules::default(storage, &mut stored);
        }
        Ok(stored)
    }

    async fn convert(&self, converter: &Converter, kind: &Kind, value: Value) -> ApiResult<Value> {
        if json::text(&value, &["apiVersion"]) == kind.api_version() {
            return Ok(value);
        }
        let converted = converter.ask(self, kind, &[Arc::new(value)]).await?;
        converted.into_iter().next().ok_or_else(|| ApiError::internal("an object was lost"))
    }
}

impl Call {
    /// The object that the path names, as the call's clients see it.
    pub(crate) async fn shown_object(&self) -> ApiResult<Arc<Object>> {
        self.app.shown_one(&self.served, self.object()?).await
    }
}

/// Turns what a watch is told into the version that it is for.
#[derive(Clone)]
pub(crate) struct WatchConversion {
    app: Arc<App>,
    served: Arc<Served>,
    /// What converted objects are held against, where a conversion may change what is asked for.
    filter: Option<Arc<Filter>>,
}

impl WatchConversion {
    /// For watches of kinds of several versions, with what stored objects are to be held against.
    pub(crate) fn of(call: &Call, filter: Filter) -> (Option<Self>, Filter) {
        let Some(converter) = call.served.converter() else { return (None, filter) };
        let is_after = converter.changes_selection() && !filter.is_plain();
        let (after, before) = if is_after { (Some(Arc::new(filter.clone())), filter.by_name_only()) } else { (None, filter) };
        (Some(Self { app: Arc::clone(&call.app), served: Arc::clone(&call.served), filter: after }), before)
    }

    /// What there is at the beginning, asked for together.
    pub(crate) async fn beginning(&self, Beginning { state, events, revision }: Beginning) -> ApiResult<Beginning> {
        let mut state = self.app.shown(&self.served, state).await?;
        state.retain(|object| self.filter.as_ref().is_none_or(|filter| filter.matches(object)));
        let of_events = events.iter().flat_map(|told| told.changes()).filter_map(|(_, event)| event.after.clone()).collect();
        self.app.shown(&self.served, of_events).await?;
        let events = self.clone().deliveries(events).await?;
        Ok(Beginning { state, events, revision })
    }

    /// What happens, in its order.
    pub(crate) async fn deliveries(self, deliveries: Vec<Arc<Delivery>>) -> ApiResult<Vec<Arc<Delivery>>> {
        let Some(converter) = self.served.converter() else { return Ok(deliveries) };
        let mut told = Vec::with_capacity(deliveries.len());
        for (change, event) in deliveries.iter().flat_map(|together| together.changes()) {
            let event = converter.kept.event(event, || self.event(event)).await?;
            let change = match &self.filter {
                None => Some(*change),
                Some(filter) => event.change_for(filter),
            };
            told.extend(change.map(|change| (change, event)));
        }
        Ok(Delivery::of(told))
    }

    async fn event(&self, event: &Event) -> ApiResult<Event> {
        let objects = event.old().into_iter().chain(&event.after).cloned().collect();
        let mut shown = self.app.shown(&self.served, objects).await?.into_iter();
        let before = match &event.before {
            Before::Object(_) => shown.next().map_or(Before::Nothing, Before::Object),
            Before::Nothing => Before::Nothing,
            Before::Forgotten => Before::Forgotten,
        };
        Ok(Event::new(event.revision, before, shown.next()))
    }
}
