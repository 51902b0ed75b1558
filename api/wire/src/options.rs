//! `ListOptions`, the options of writes, and `DeleteOptions`, from queries and bodies, checked with
//! upstream's words.

use std::time::Duration;

use api_model::field::{FieldError, Path};
use api_model::go::json_type;
use api_model::selector::{FieldSelector, Selector};
use api_rules::FieldValidation;
use serde_json::Value;

use super::query::Query;
use crate::status::{ApiError, ApiResult};

/// The longest duration of a watch: the client's number is added to the clock.
const TIMEOUT_MAX: Duration = Duration::from_secs(366 * 24 * 3_600);

/// How a resource version in a list is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// At that very revision.
    Exact,
    /// At that revision or a later one.
    NotOlderThan,
    /// None of these: rejected where the options are used.
    Unknown(String),
}

/// The options of get, list, watch and deletecollection.
#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    /// Only objects that these labels select.
    pub labels: Selector,
    /// Only objects that these fields select.
    pub fields: FieldSelector,
    /// `None` when unset; 0 is "any".
    pub resource_version: Option<u64>,
    /// How the resource version is meant.
    pub version_match: Option<Match>,
    /// The most objects of a page.
    pub limit: Option<usize>,
    /// The token of the page before.
    pub continue_token: Option<String>,
    /// Whether a watch gets bookmarks.
    pub bookmarks: bool,
    /// Whether a watch begins with the present objects.
    pub send_initial_events: Option<bool>,
    /// How long a watch lasts.
    pub timeout: Option<Duration>,
}

impl ListOptions {
    /// From the query.
    pub fn parse(query: &Query) -> ApiResult<Self> {
        let options = Self {
            labels: query.filled("labelSelector").map(Selector::parse).transpose()?.unwrap_or_default(),
            fields: query.filled("fieldSelector").map(FieldSelector::parse).transpose()?.unwrap_or_default(),
            resource_version: resource_version(query)?,
            version_match: version_match(query),
            limit: number(query, "limit")?.filter(|limit| *limit > 0).and_then(|limit| usize::try_from(limit).ok()),
            continue_token: query.filled("continue").map(str::to_owned),
            bookmarks: query.flag("allowWatchBookmarks"),
            send_initial_events: query.filled("sendInitialEvents").map(|_| query.flag("sendInitialEvents")),
            timeout: number(query, "timeoutSeconds")?
                .and_then(|seconds| u64::try_from(seconds).ok())
                .filter(|s| *s > 0)
                .map(|seconds| Duration::from_secs(seconds).min(TIMEOUT_MAX)),
        };
        Ok(options)
    }

    /// Rejects what upstream rejects for a list.
    pub fn check_list(&self) -> ApiResult<()> {
        let mut errors = Vec::new();
        if self.version_match.is_some() {
            if self.resource_version.is_none() {
                errors.push(forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided"));
            }
            if self.continue_token.is_some() {
                errors.push(forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided"));
            }
        }
        match &self.version_match {
            Some(Match::Unknown(text)) => errors.push(unknown_match(text, &["Exact", "NotOlderThan", ""])),
            Some(Match::Exact) if self.resource_version == Some(0) => {
                errors.push(forbidden("resourceVersionMatch", "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""));
            }
            _ => {}
        }
        if self.send_initial_events.is_some() {
            errors.push(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        }
        refuse("ListOptions", &errors)
    }

    /// Rejects what upstream rejects for a watch.
    pub fn check_watch(&self) -> ApiResult<()> {
        let mut errors = Vec::new();
        let refused = |detail: &str| forbidden("resourceVersionMatch", detail);
        if self.send_initial_events.is_some() && self.version_match != Some(Match::NotOlderThan) {
            errors.push(refused("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"));
        }
        if let Some(version_match) = &self.version_match {
            if self.send_initial_events.is_none() {
                errors.push(refused("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"));
            }
            match version_match {
                Match::NotOlderThan => {}
                Match::Exact => errors.push(unknown_match("Exact", &["NotOlderThan"])),
                Match::Unknown(text) => errors.push(unknown_match(text, &["NotOlderThan"])),
            }
            if self.continue_token.is_some() {
                errors.push(refused("resourceVersionMatch is forbidden when continue is provided"));
            }
        }
        refuse("ListOptions", &errors)
    }
}

fn unknown_match(text: &str, supported: &[&str]) -> FieldError {
    FieldError::not_supported(&Path::new("resourceVersionMatch"), text, supported)
}

fn forbidden(field: &str, detail: &str) -> FieldError {
    FieldError::forbidden(&Path::new(field), detail)
}

fn refuse(kind: &str, errors: &[FieldError]) -> ApiResult<()> {
    if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid_kind("meta.k8s.io", kind, "", errors)) }
}

/// The requested resource version.
pub fn resource_version(query: &Query) -> ApiResult<Option<u64>> {
    let Some(text) = query.filled("resourceVersion") else { return Ok(None) };
    let number = text.parse::<u64>().map_err(|_| {
        let error = FieldError::invalid(
            &Path::new("resourceVersion"),
            text,
            "strconv.ParseUint: parsing \"".to_owned() + text + "\": invalid syntax",
        );
        ApiError::invalid_kind("meta.k8s.io", "ListOptions", "", &[error])
    })?;
    Ok(Some(number))
}

fn version_match(query: &Query) -> Option<Match> {
    Some(match query.filled("resourceVersionMatch")? {
        "Exact" => Match::Exact,
        "NotOlderThan" => Match::NotOlderThan,
        other => Match::Unknown(other.to_owned()),
    })
}

fn number(query: &Query, name: &str) -> ApiResult<Option<i64>> {
    let Some(text) = query.filled(name) else { return Ok(None) };
    match text.parse() {
        Ok(number) => Ok(Some(number)),
        Err(_) => Err(ApiError::bad_request(format!("strconv.ParseInt: parsing {}: invalid syntax", Value::from(text)))),
    }
}

/// The options of create, update and patch.
#[derive(Clone, Debug)]
pub struct WriteOptions {
    /// Whether nothing is to be stored.
    pub dry_run: bool,
    /// What to do about unknown and duplicate fields.
    pub validation: FieldValidation,
    /// The field manager; empty when the request has none.
    pub field_manager: String,
    /// Whether an apply takes over fields of others.
    pub force: bool,
}

/// Upstream's `FieldManagerMaxLength`.
pub const FIELD_MANAGER_LEN_MAX: usize = 128;

impl WriteOptions {
    /// `kind` is the options' own kind, such as `CreateOptions`.
    pub fn parse(query: &Query, kind: &str) -> ApiResult<Self> {
        let mut errors = Vec::new();
        if kind == "PatchOptions" && query.get("force").is_some() {
            errors.push(forbidden("force", "may not be specified for non-apply patch"));
        }
        Self::parse_common(query, kind, errors)
    }

    /// The options of a server-side apply.
    pub fn parse_apply(query: &Query) -> ApiResult<Self> {
        let mut errors = Vec::new();
        if query.filled("fieldManager").is_none() {
            errors.push(FieldError::required(&Path::new("fieldManager"), "is required for apply patch"));
        }
        Self::parse_common(query, "PatchOptions", errors)
    }

    fn parse_common(query: &Query, kind: &str, mut errors: Vec<FieldError>) -> ApiResult<Self> {
        let field_manager = query.get("fieldManager").unwrap_or_default().to_owned();
        check_field_manager(&field_manager, &mut errors);
        let dry_run = check_dry_run(query.all("dryRun"), &mut errors);
        let validation = match query.filled("fieldValidation") {
            None => FieldValidation::Warn,
            Some(text) => FieldValidation::parse(text).unwrap_or_else(|| {
                errors.push(FieldError::not_supported(&Path::new("fieldValidation"), text, &["Ignore", "Warn", "Strict"]));
                FieldValidation::Warn
            }),
        };
        refuse(kind, &errors)?;
        Ok(Self { dry_run, validation, field_manager, force: query.flag("force") })
    }
}

fn check_field_manager(name: &str, errors: &mut Vec<FieldError>) {
    let path = Path::new("fieldManager");
    if name.len() > FIELD_MANAGER_LEN_MAX {
        errors.push(FieldError::too_long(&path, FIELD_MANAGER_LEN_MAX));
    }
    for (at, c) in name.char_indices().filter(|(_, c)| c.is_control() || (c.is_whitespace() && *c != ' ')) {
        errors.push(FieldError::invalid(&path, name, format!("invalid character U+{:04X} (at position {at})", u32::from(c))));
    }
}

fn check_dry_run<'a>(values: impl Iterator<Item = &'a str>, errors: &mut Vec<FieldError>) -> bool {
    let mut dry_run = false;
    for value in values.filter(|value| !value.is_empty()) {
        match value {
            "All" => dry_run = true,
            other => errors.push(FieldError::not_supported(&Path::new("dryRun"), other, &["All"])),
        }
    }
    dry_run
}

/// The option of a deletion that does not read the object first (KEP-3926).
pub const IGNORE_READ_ERROR: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";

/// What to do with an object's dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// They stay.
    Orphan,
    /// They are deleted after the object.
    Background,
    /// They are deleted before the object.
    Foreground,
}

/// The options of delete and deletecollection.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// Whether nothing is to be stored.
    pub dry_run: bool,
    /// The grace period of the object.
    pub grace_period_seconds: Option<i64>,
    /// What to do with dependents.
    pub propagation: Option<Propagation>,
    /// Preconditions.
    pub uid: Option<String>,
    /// The resource version that the object must have.
    pub resource_version: Option<String>,
    /// Delete an object that cannot be read, unseen.
    pub ignore_read_error: bool,
}

impl DeleteOptions {
    /// From the query and, if there is one, the body.
    pub fn parse(query: &Query, body: Option<&Value>) -> ApiResult<Self> {
        let body = Body(body);
        body.field("", "v1.DeleteOptions", Value::as_object)?;
        body.field("preconditions", "v1.Preconditions", Value::as_object)?;
        let texts = |value: &Value| value.as_array()?.iter().map(|item| item.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>();
        let mut errors = Vec::new();
        let requested = body.field("dryRun", "[]string", texts)?.unwrap_or_default();
        let dry_run = check_dry_run(requested.iter().map(String::as_str).chain(query.all("dryRun")), &mut errors);
        let grace_period_seconds = match body.field("gracePeriodSeconds", "int64", Value::as_i64)? {
            Some(seconds) => Some(seconds),
            None => number(query, "gracePeriodSeconds")?,
        };
        let orphan = body.field("orphanDependents", "bool", Value::as_bool)?;
        let orphan = orphan.or(query.filled("orphanDependents").map(|_| query.flag("orphanDependents")));
        let policy = body.text("propagationPolicy", "v1.DeletionPropagation")?;
        let policy = policy.or_else(|| query.filled("propagationPolicy").map(str::to_owned));
        let propagation = propagation(policy.as_deref(), orphan, &mut errors);
        let uid = body.text("preconditions.uid", "types.UID")?;
        let resource_version = body.text("preconditions.resourceVersion", "string")?;
        let requested = body.field(IGNORE_READ_ERROR, "bool", Value::as_bool)?;
        let ignore_read_error = requested.unwrap_or_else(|| query.flag(IGNORE_READ_ERROR));
        let conditions = [
            ("preconditions", uid.is_some() || resource_version.is_some()),
            ("orphanDependents", orphan.is_some()),
            ("gracePeriodSeconds", grace_period_seconds.is_some()),
            ("propagationPolicy", policy.is_some()),
        ];
        for (option, _) in conditions.iter().filter(|(_, is_set)| ignore_read_error && *is_set) {
            let why = format!("cannot be set together with {option}");
            errors.push(FieldError::invalid(&Path::new(IGNORE_READ_ERROR), true, why));
        }
        refuse("DeleteOptions", &errors)?;
        Ok(Self { dry_run, grace_period_seconds, propagation, uid, resource_version, ignore_read_error })
    }
}

/// A body whose fields may be absent, but must have upstream's types: a condition that cannot be parsed must not count as none.
struct Body<'a>(Option<&'a Value>);

impl<'a> Body<'a> {
    /// The field at a dotted path; the body itself for an empty path.
    fn field<T>(&self, path: &str, go_type: &str, read: impl FnOnce(&'a Value) -> Option<T>) -> ApiResult<Option<T>> {
        let mut names = path.split('.').filter(|name| !name.is_empty());
        let found = self.0.and_then(|body| names.try_fold(body, |at, name| at.get(name)));
        let Some(value) = found.filter(|value| !value.is_null()) else { return Ok(None) };
        let wrong = || {
            let field = if path.is_empty() { "value".to_owned() } else { format!("struct field DeleteOptions.{path}") };
            ApiError::bad_request(format!("json: cannot unmarshal {} into Go {field} of type {go_type}", json_type(value)))
        };
        read(value).map(Some).ok_or_else(wrong)
    }

    fn text(&self, path: &str, go_type: &str) -> ApiResult<Option<String>> {
        self.field(path, go_type, |value| value.as_str().map(str::to_owned))
    }
}

fn propagation(policy: Option<&str>, orphan: Option<bool>, errors: &mut Vec<FieldError>) -> Option<Propagation> {
    let path = Path::new("propagationPolicy");
    match (policy, orphan) {
        (Some(policy), Some(_)) => {
            let detail = "orphanDependents and deletionPropagation cannot be both set";
            errors.push(FieldError::invalid(&path, policy, detail));
            None
        }
        (Some("Orphan"), None) | (None, Some(true)) => Some(Propagation::Orphan),
        (Some("Background"), None) | (None, Some(false)) => Some(Propagation::Background),
        (Some("Foreground"), None) => Some(Propagation::Foreground),
        (Some(other), None) => {
            errors.push(FieldError::not_supported(&path, other, &["Foreground", "Background", "Orphan", "nil"]));
            None
        }
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn message(query: &str, watch: bool) -> String {
        let options = ListOptions::parse(&Query::parse(Some(query)));
        let checked = options.and_then(|options| if watch { options.check_watch() } else { options.check_list() });
        checked.err().map(|error| error.message().to_owned()).unwrap_or_default()
    }

    #[test]
    fn list_options_are_rejected_in_upstreams_words() {
        let cases = [
            ("resourceVersionMatch=Exact", false, "resourceVersionMatch is forbidden unless resourceVersion is provided"),
            (
                "resourceVersionMatch=Exact&resourceVersion=0",
                false,
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ),
            ("resourceVersionMatch=Some&resourceVersion=1", false, "supported values: \"Exact\", \"NotOlderThan\", \"\""),
            (
                "resourceVersionMatch=NotOlderThan&resourceVersion=1",
                true,
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ),
            ("sendInitialEvents=true", true, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
            ("sendInitialEvents=true&resourceVersionMatch=Exact", true, "Unsupported value: \"Exact\": supported values: \"NotOlderThan\""),
            (
                "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&continue=x",
                true,
                "resourceVersionMatch is forbidden when continue is provided",
            ),
            ("sendInitialEvents=false", false, "sendInitialEvents is forbidden for list"),
            ("resourceVersion=x", false, "resourceVersion: Invalid value: \"x\""),
        ];
        for (query, watch, expected) in cases {
            let message = message(query, watch);
            assert!(message.contains(expected), "{query}: {message}");
        }
        assert_eq!(message("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1", true), "");
        assert_eq!(message("sendInitialEvents=true&resourceVersionMatch=NotOlderThan", true), "", "then no bookmark tells of the end");
    }

    #[test]
    fn delete_options_come_from_body_and_query() {
        let body = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": "u"}});
        let options = DeleteOptions::parse(&Query::parse(Some("propagationPolicy=Foreground&dryRun=All")), Some(&body)).expect("good");
        assert_eq!(options.grace_period_seconds, Some(0));
        assert_eq!(options.propagation, Some(Propagation::Foreground));
        assert_eq!(options.uid.as_deref(), Some("u"));
        assert!(options.dry_run);
    }
}
