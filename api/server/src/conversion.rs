//! Custom resources with several versions. Every object is stored in one version, and clients get it in the version that they ask
//! for. A webhook converts, or the versions differ only in their name and in the fields that each has.
//!
//! All work on such an object (defaults, admission, rules, patches, managed fields) happens in the version of the request. The
//! object is converted when it leaves the cache and before it is stored. As upstream, an object that is read from the store is
//! pruned and defaulted by the version in which it is stored; after each conversion it is pruned by the version to which it was
//! converted. Converted objects and events are kept for a while, so that a thousand watchers cost one call. The review objects are
//! built and read in `api_rules::conversion`.

mod converted;

use std::sync::Arc;
use std::time::Duration;

use api_admission::webhook::{Endpoint, ca_bundle};
use api_model::kind::Kind;
use api_model::meta;
use api_rules::conversion;
use serde_json::Value;

pub(crate) use self::converted::Converted;
use api_cache::{Object, encode};
use api_upstream::webhook::{Callee, Client};
use api_wire::json;
use api_wire::status::{ApiError, ApiResult};

/// The longest time of a call: upstream's.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Objects and bytes of one call. A single object may be larger.
const BATCH_LEN_MAX: usize = 500;
const BATCH_BYTES_MAX: usize = 4 << 20;
/// Bytes of the longest answer: four times a batch.
const ANSWER_BYTES_MAX: usize = 4 * BATCH_BYTES_MAX;

/// The conversion webhook of a definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hook {
    endpoint: Endpoint,
    ca_bundle: Option<Vec<u8>>,
    /// Version of ConversionReview.
    review: String,
}

impl Hook {
    /// From a definition; none: its versions differ in their name alone.
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
    /// None: there is only one version, and nothing to convert.
    pub(crate) fn of(all: &[Kind], storage: &str) -> Option<Self> {
        let all: Arc<[Arc<Kind>]> = all.iter().cloned().map(Arc::new).collect();
        let storage = all.iter().find(|kind| kind.api_version() == storage).cloned()?;
        (all.len() > 1).then_some(Self { all, storage })
    }

    /// The version that an object states.
    fn version_of(&self, object: &Value) -> Option<&Kind> {
        let version = json::text(object, &["apiVersion"]);
        self.all.iter().find(|kind| kind.api_version() == version).map(|kind| &**kind)
    }
}

/// Converts objects from and to one version.
pub(crate) struct Converter {
    /// The webhook; none: only the name changes.
    hook: Option<Hook>,
    versions: Versions,
    /// Calls the webhook.
    client: Arc<Client>,
    pub(crate) converted: Converted,
}

/// Converters are equal when they convert equally, whatever objects they keep.
impl PartialEq for Converter {
    fn eq(&self, other: &Self) -> bool {
        self.hook == other.hook && self.versions == other.versions
    }
}

impl Eq for Converter {}

impl std::fmt::Debug for Converter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Converter").field("hook", &self.hook).field("versions", &self.versions).finish_non_exhaustive()
    }
}

impl Converter {
    pub(crate) fn new(hook: Option<Hook>, versions: Versions, client: &Arc<Client>) -> Self {
        Self { hook, versions, client: Arc::clone(client), converted: Converted::default() }
    }

    /// Whether both store objects in the same version.
    pub(crate) fn stores_like(&self, other: &Self) -> bool {
        self.versions.storage == other.versions.storage
    }

    /// Whether a conversion may change labels or fields that selectors look at. Without a webhook it changes neither.
    pub(crate) fn changes_selection(&self) -> bool {
        self.hook.is_some()
    }

    /// Objects in the version of `kind`, pruned by it: renamed, or converted by the webhook in batches of bounded size.
    async fn ask(&self, kind: &Kind, objects: &[Arc<Value>]) -> ApiResult<Vec<Value>> {
        let Some(hook) = &self.hook else {
            return Ok(objects.iter().map(|object| renamed(kind, (**object).clone())).collect());
        };
        let mut converted = Vec::with_capacity(objects.len());
        let mut rest = objects;
        while !rest.is_empty() {
            let (batch, more) = rest.split_at(batch_len(rest));
            converted.extend(hook.exchange(&self.client, kind, batch).await?);
            rest = more;
        }
        Ok(converted)
    }

    /// The version in which objects are stored.
    pub(crate) fn storage(&self) -> &Arc<Kind> {
        &self.versions.storage
    }

    /// The value of a stored object. An object that is not current was written before the definition last changed: its version
    /// prunes and defaults it.
    fn read(&self, object: &Object, is_current: bool) -> Arc<Value> {
        let value = object.value();
        match self.versions.version_of(&value).filter(|_| !is_current) {
            Some(kind) => {
                let mut value = (*value).clone();
                api_rules::read_stored(kind, &mut value);
                Arc::new(value)
            }
            None => value,
        }
    }

    /// Stored objects in the version of `kind`. `is_current` says whether an object was written since the definition last
    /// changed.
    pub(crate) async fn objects(
        &self,
        kind: &Kind,
        is_current: impl Fn(&Object) -> bool,
        mut objects: Vec<Arc<Object>>,
    ) -> ApiResult<Vec<Arc<Object>>> {
        let mut missing: Vec<&mut Arc<Object>> = Vec::new();
        for object in &mut objects {
            let is_of_version = is_of(kind, object);
            if is_of_version && is_current(object) {
                continue;
            }
            match self.converted.object(object) {
                Some(converted) => *object = converted,
                None if is_of_version => {
                    let value = self.read(object, is_current(object));
                    *object = self.converted.keep(object, (*value).clone())?;
                }
                None => missing.push(object),
            }
        }
        let originals: Vec<Arc<Value>> = missing.iter().map(|object| self.read(object, is_current(object))).collect();
        for (object, value) in missing.into_iter().zip(self.ask(kind, &originals).await?) {
            *object = self.converted.keep(object, value)?;
        }
        Ok(objects)
    }

    /// An object of any version in that of `kind`.
    pub(crate) async fn value(&self, kind: &Kind, value: Value) -> ApiResult<Value> {
        if json::text(&value, &["apiVersion"]) == kind.api_version() {
            return Ok(value);
        }
        let converted = self.ask(kind, &[Arc::new(value)]).await?;
        converted.into_iter().next().ok_or_else(|| ApiError::internal("an object was lost"))
    }
}

fn renamed(kind: &Kind, mut object: Value) -> Value {
    json::set(&mut object, &["apiVersion"], kind.api_version());
    api_rules::prune_converted(kind, &mut object);
    object
}

impl Hook {
    async fn exchange(&self, client: &Client, kind: &Kind, objects: &[Arc<Value>]) -> ApiResult<Vec<Value>> {
        let Some(first) = objects.first() else { return Ok(Vec::new()) };
        let wanted = kind.api_version();
        let from = json::text(first, &["apiVersion"]);
        let failed = |why: String| ApiError::untyped(format!("conversion webhook for {from}, Kind={} {why}", kind.kind));
        let Self { endpoint, ca_bundle, review } = self;
        let callee = Callee { endpoint, ca_bundle, timeout: TIMEOUT, answer_bytes_max: ANSWER_BYTES_MAX };
        let uid = meta::new_uid();
        let question: Vec<&Value> = objects.iter().map(|object| &**object).collect();
        let question = conversion::review(review, &uid, &wanted, &question).to_string();
        let answer = client.post(callee, question).await.map_err(|why| failed(format!("failed: {why}")))?;
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

/// The number of objects, at least one, that make a batch.
fn batch_len(objects: &[Arc<Value>]) -> usize {
    let mut bytes = 0;
    let fits = |object: &&Arc<Value>| {
        bytes += encode(object).len();
        bytes <= BATCH_BYTES_MAX
    };
    objects.iter().take(BATCH_LEN_MAX).take_while(fits).count().max(1)
}

/// Whether the bytes of an object state this version.
fn is_of(kind: &Kind, object: &Object) -> bool {
    let rest = object.type_meta().strip_prefix(b"{\"kind\":\"").and_then(|rest| rest.strip_prefix(kind.kind.as_bytes()));
    let rest = rest.and_then(|rest| rest.strip_prefix(b"\",\"apiVersion\":\"")).and_then(|rest| rest.strip_prefix(kind.group.as_bytes()));
    let rest = rest.and_then(|rest| rest.strip_prefix(b"/")).and_then(|rest| rest.strip_prefix(kind.version.as_bytes()));
    rest.is_some_and(|rest| rest.starts_with(b"\""))
}
