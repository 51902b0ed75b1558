//! The parameters of requests, in paths and queries.

/// A parameter of a request.
#[derive(Debug)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    /// JSON type of the value.
    pub(super) kind: &'static str,
    pub(super) description: &'static str,
    /// True: the parameter is in the path and required. False: it is in the query and optional.
    pub(super) in_path: bool,
}

const fn query(name: &'static str, kind: &'static str, description: &'static str) -> Parameter {
    Parameter { name, kind, description, in_path: false }
}

const fn path(name: &'static str, description: &'static str) -> Parameter {
    Parameter { name, kind: "string", description, in_path: true }
}

pub(super) static NAME: Parameter = path("name", "name of the object");
pub(super) static NAMESPACE: Parameter = path("namespace", "namespace of the object");
pub(super) static PATH: Parameter = path("path", "path to the resource behind the proxy");
pub(super) static PRETTY: Parameter = query("pretty", "string", "If 'true', the answer is indented for people to read.");

const FIELD_SELECTOR: Parameter = query("fieldSelector", "string", "Only objects whose fields match this selector.");
const LABEL_SELECTOR: Parameter = query("labelSelector", "string", "Only objects whose labels match this selector.");
const LIMIT: Parameter = query("limit", "integer", "The most objects to answer with; the rest follows by way of `continue`.");
const CONTINUE: Parameter =
    query("continue", "string", "The `continue` token of the answer before, for its next part at the same revision.");
const RESOURCE_VERSION: Parameter =
    query("resourceVersion", "string", "The revision the answer must have or must not be older than, as resourceVersionMatch says.");
const RESOURCE_VERSION_MATCH: Parameter =
    query("resourceVersionMatch", "string", "How resourceVersion binds a list: 'Exact' or 'NotOlderThan'.");
const SEND_INITIAL_EVENTS: Parameter = query(
    "sendInitialEvents",
    "boolean",
    "With watch=true: begin with an event for each present object, then a bookmark with the annotation `k8s.io/initial-events-end`.",
);
const TIMEOUT_SECONDS: Parameter = query("timeoutSeconds", "integer", "How long a list or watch may take at most.");
const DRY_RUN: Parameter = query("dryRun", "string", "With 'All' the request passes every stage but nothing is stored.");
const FIELD_MANAGER: Parameter =
    query("fieldManager", "string", "The name under which changed fields are owned, at most 128 printable characters. Apply requires it.");
const FIELD_VALIDATION: Parameter = query(
    "fieldValidation",
    "string",
    "What becomes of unknown and duplicate fields: 'Ignore' drops them, 'Warn' (the default) drops them with a warning, 'Strict' refuses the request.",
);
const GRACE_PERIOD_SECONDS: Parameter = query(
    "gracePeriodSeconds",
    "integer",
    "Seconds the object has to end by itself; zero deletes at once. The default depends on the kind.",
);
const ORPHAN_DEPENDENTS: Parameter =
    query("orphanDependents", "boolean", "Deprecated: use propagationPolicy. Whether dependents are left without their owner.");
const PROPAGATION_POLICY: Parameter = query(
    "propagationPolicy",
    "string",
    "What becomes of dependents: 'Orphan' leaves them, 'Background' deletes them afterwards, 'Foreground' deletes them first.",
);

/// Parameters of lists and watches.
pub(super) static LIST: [Parameter; 10] = [
    query("allowWatchBookmarks", "boolean", "Whether a watch may send BOOKMARK events."),
    CONTINUE,
    FIELD_SELECTOR,
    LABEL_SELECTOR,
    LIMIT,
    RESOURCE_VERSION,
    RESOURCE_VERSION_MATCH,
    SEND_INITIAL_EVENTS,
    TIMEOUT_SECONDS,
    query("watch", "boolean", "Stream changes as they happen, beginning after resourceVersion."),
];

/// Parameters of creates and replaces.
pub(super) static WRITE: [Parameter; 3] = [DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION];

/// Parameters of patches.
pub(super) static PATCH: [Parameter; 4] =
    [DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION, query("force", "boolean", "With apply: take over fields that other managers own.")];

/// Parameters of deletes.
pub(super) static DELETE: [Parameter; 4] = [DRY_RUN, GRACE_PERIOD_SECONDS, ORPHAN_DEPENDENTS, PROPAGATION_POLICY];

/// Parameters of deletes of collections.
pub(super) static DELETE_COLLECTION: [Parameter; 12] = [
    CONTINUE,
    DRY_RUN,
    FIELD_SELECTOR,
    GRACE_PERIOD_SECONDS,
    LABEL_SELECTOR,
    LIMIT,
    ORPHAN_DEPENDENTS,
    PROPAGATION_POLICY,
    RESOURCE_VERSION,
    RESOURCE_VERSION_MATCH,
    SEND_INITIAL_EVENTS,
    TIMEOUT_SECONDS,
];

const CONTAINER: Parameter = query("container", "string", "The container; may be left out where the Pod has only one.");

/// Parameters of container logs.
pub(super) static LOG: [Parameter; 9] = [
    CONTAINER,
    query("follow", "boolean", "Go on with new lines as they come."),
    query("limitBytes", "integer", "Bytes after which the answer ends."),
    query("previous", "boolean", "The log of the container's previous run."),
    query("sinceSeconds", "integer", "Only lines of the last so many seconds."),
    query("sinceTime", "string", "Only lines since this RFC 3339 time."),
    query("stream", "string", "'All', 'Stdout' or 'Stderr'."),
    query("tailLines", "integer", "Only the last so many lines."),
    query("timestamps", "boolean", "Begin each line with its time."),
];

/// Parameters of attach; exec also has [`COMMAND`].
pub(super) static ATTACH: [Parameter; 5] = [
    CONTAINER,
    query("stderr", "boolean", "Whether standard error is sent."),
    query("stdin", "boolean", "Whether standard input is taken."),
    query("stdout", "boolean", "Whether standard output is sent."),
    query("tty", "boolean", "Whether a terminal is made for the command."),
];
pub(super) static COMMAND: Parameter =
    query("command", "string", "The command and, given again, each of its arguments. No shell is involved.");
pub(super) static PORTS: Parameter = query("ports", "integer", "A port to forward; may be given again.");
pub(super) static PROXY_PATH: Parameter = query("path", "string", "The path of the request that is passed on.");
