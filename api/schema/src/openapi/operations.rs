//! The operations on each kind, without the syntax of either version: paths, and the operations of each.

use std::sync::Arc;

use api_model::kind::{Kind, Subresource};

use super::definitions::{STATUS, definition_name, list_name};
use super::parameters::{self, Parameter};
use crate::discovery::body_kind;

/// One path with its operations.
pub(super) struct PathItem {
    pub(super) path: String,
    /// The parameters of all operations.
    pub(super) parameters: Vec<&'static Parameter>,
    pub(super) operations: Vec<Operation>,
}

/// One method of one path.
pub(super) struct Operation {
    /// Lower-case HTTP method.
    pub(super) method: &'static str,
    pub(super) id: String,
    pub(super) description: String,
    pub(super) tag: String,
    /// `x-kubernetes-action` with the group, version and kind of the operation.
    pub(super) action: Option<(&'static str, [String; 3])>,
    pub(super) parameters: &'static [Parameter],
    pub(super) body: Body,
    pub(super) answer: Answer,
    /// Status codes of success.
    pub(super) codes: &'static [u16],
}

/// The body of a request.
pub(super) enum Body {
    Nothing,
    /// A value of a definition.
    Required(String),
    /// `DeleteOptions`.
    Options,
    /// A patch; `strategic` if the schema of the kind is built in.
    Patch {
        strategic: bool,
    },
}

/// The response on success.
pub(super) enum Answer {
    /// A value of a definition.
    Object(String),
    /// A list, or with `watch` a stream of events.
    List(String),
    Text,
    /// The stream of a connection.
    Stream,
}

/// The paths of these kinds, and for each group and version the path that lists its resources.
pub(super) fn paths(kinds: &[Arc<Kind>]) -> Vec<PathItem> {
    let mut items: Vec<PathItem> = Vec::new();
    for kind in kinds {
        let root = format!("{}/", Naming::new(kind).root);
        if !items.iter().any(|item| item.path == root) {
            items.push(resources_path(kind, root));
        }
        kind_paths(kind, &mut items);
    }
    items
}

/// The prefixes of paths and operation ids of a kind.
struct Naming<'a> {
    kind: &'a Kind,
    /// `/apis/apps/v1`
    root: String,
    /// `AppsV1`
    id: String,
    /// `apps_v1`
    tag: String,
}

impl<'a> Naming<'a> {
    fn new(kind: &'a Kind) -> Self {
        let group = if kind.group.is_empty() { "core" } else { kind.group.strip_suffix(".k8s.io").unwrap_or(&kind.group) };
        let camel: String = group.split(['.', '-']).map(capital).collect();
        let mut letters = camel.chars();
        let lower: String = letters.next().into_iter().flat_map(char::to_lowercase).chain(letters).collect();
        let root = if kind.group.is_empty() { format!("/api/{}", kind.version) } else { format!("/apis/{}/{}", kind.group, kind.version) };
        Self { kind, root, id: format!("{camel}{}", capital(&kind.version)), tag: format!("{lower}_{}", kind.version) }
    }

    /// `Namespaced` for namespaced kinds.
    fn scope(&self) -> &'static str {
        if self.kind.namespaced { "Namespaced" } else { "" }
    }

    /// `readAppsV1NamespacedDeploymentScale`
    fn operation_id(&self, verb: &str, collection: &str, sub: &str) -> String {
        format!("{verb}{}{collection}{}{}{}", self.id, self.scope(), self.kind.kind, capital(sub))
    }

    fn gvk(&self) -> [String; 3] {
        [self.kind.group.clone(), self.kind.version.clone(), self.kind.kind.clone()]
    }

    /// `/apis/apps/v1/namespaces/{namespace}/deployments`
    fn collection(&self) -> String {
        let namespace = if self.kind.namespaced { "/namespaces/{namespace}" } else { "" };
        format!("{}{namespace}/{}", self.root, self.kind.plural)
    }

    /// The parameters in the path, without those in the query.
    fn scope_parameters(&self, named: bool) -> Vec<&'static Parameter> {
        let name = named.then_some(&parameters::NAME);
        name.into_iter().chain(self.kind.namespaced.then_some(&parameters::NAMESPACE)).collect()
    }
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}

fn resources_path(kind: &Kind, path: String) -> PathItem {
    let naming = Naming::new(kind);
    let operation = Operation {
        method: "get",
        id: format!("get{}APIResources", naming.id),
        description: "get available resources".to_owned(),
        tag: naming.tag,
        action: None,
        parameters: &[],
        body: Body::Nothing,
        answer: Answer::Object("io.k8s.apimachinery.pkg.apis.meta.v1.APIResourceList".to_owned()),
        codes: &[200],
    };
    PathItem { path, parameters: Vec::new(), operations: vec![operation] }
}

fn kind_paths(kind: &Kind, items: &mut Vec<PathItem>) {
    let naming = Naming::new(kind);
    let with_pretty = |mut parameters: Vec<&'static Parameter>| {
        parameters.push(&parameters::PRETTY);
        parameters
    };
    let push = |items: &mut Vec<PathItem>, path: String, parameters: Vec<&'static Parameter>, operations: Vec<Operation>| {
        if !operations.is_empty() {
            items.push(PathItem { path, parameters, operations });
        }
    };
    let served = |verbs: &[&str]| -> Vec<Operation> {
        let allowed = verbs.iter().filter(|verb| kind.allows(verb));
        allowed.filter_map(|verb| operation(&naming, verb, None)).collect()
    };
    push(items, naming.collection(), with_pretty(naming.scope_parameters(false)), served(&["list", "create", "deletecollection"]));
    let object = format!("{}/{{name}}", naming.collection());
    push(items, object.clone(), with_pretty(naming.scope_parameters(true)), served(&["get", "update", "delete", "patch"]));
    if kind.namespaced && kind.allows("list") {
        push(items, format!("{}/{}", naming.root, kind.plural), vec![&parameters::PRETTY], vec![list_everywhere(&naming)]);
    }
    for sub in &kind.subresources {
        let path = format!("{object}/{}", sub.name);
        match connect_parameters(&sub.name) {
            Some(more) => connect_paths(&naming, sub, path, &more, items),
            None => {
                let operations = sub.verbs.iter().filter_map(|verb| operation(&naming, verb, Some(sub))).collect();
                push(items, path, with_pretty(naming.scope_parameters(true)), operations);
            }
        }
    }
}

/// A verb of discovery as an HTTP method and an OpenAPI operation.
struct Verb {
    name: &'static str,
    method: &'static str,
    action: &'static str,
    /// The prefix of operation ids.
    id: &'static str,
    parameters: &'static [Parameter],
    codes: &'static [u16],
}

const fn verb(
    name: &'static str,
    method: &'static str,
    action: &'static str,
    id: &'static str,
    parameters: &'static [Parameter],
    codes: &'static [u16],
) -> Verb {
    Verb { name, method, action, id, parameters, codes }
}

static VERBS: [Verb; 7] = [
    verb("get", "get", "get", "read", &[], &[200]),
    verb("list", "get", "list", "list", &parameters::LIST, &[200]),
    verb("create", "post", "post", "create", &parameters::WRITE, &[200, 201, 202]),
    verb("update", "put", "put", "replace", &parameters::WRITE, &[200, 201]),
    verb("patch", "patch", "patch", "patch", &parameters::PATCH, &[200, 201]),
    verb("delete", "delete", "delete", "delete", &parameters::DELETE, &[200, 202]),
    verb("deletecollection", "delete", "deletecollection", "delete", &parameters::DELETE_COLLECTION, &[200]),
];

/// The operation of a verb on a kind or on one of its subresources; `None` for `watch`, which is a list.
fn operation(naming: &Naming<'_>, verb: &str, sub: Option<&Subresource>) -> Option<Operation> {
    let verb = VERBS.iter().find(|known| known.name == verb)?;
    let gvk = sub.map_or_else(|| naming.gvk(), |sub| body_kind(naming.kind, sub));
    let [group, version, name] = &gvk;
    let body_name = definition_name(group, version, name);
    let body = match verb.name {
        "create" | "update" => Body::Required(body_name.clone()),
        "patch" => Body::Patch { strategic: naming.kind.custom.is_none() && crate::of_gvk(group, version, name).is_some() },
        "delete" | "deletecollection" => Body::Options,
        _ => Body::Nothing,
    };
    let sub = sub.map_or("", |sub| sub.name.as_str());
    let (answer, parameters): (_, &[Parameter]) = match (verb.name, sub) {
        ("get", "log") => (Answer::Text, &parameters::LOG),
        ("list", _) => (Answer::List(list_name(&body_name)), verb.parameters),
        ("delete", _) if DELETE_ANSWERS_OBJECT.contains(&name.as_str()) => (Answer::Object(body_name), verb.parameters),
        ("delete" | "deletecollection", _) => (Answer::Object(STATUS.to_owned()), verb.parameters),
        _ => (Answer::Object(body_name), verb.parameters),
    };
    let collection = if verb.name == "deletecollection" { "Collection" } else { "" };
    Some(Operation {
        method: verb.method,
        id: naming.operation_id(verb.id, collection, sub),
        description: describe(verb.name, &naming.kind.kind, sub),
        tag: naming.tag.clone(),
        action: Some((verb.action, gvk)),
        parameters,
        body,
        answer,
        codes: verb.codes,
    })
}

/// Kinds whose deletion returns the object instead of a `Status`.
const DELETE_ANSWERS_OBJECT: [&str; 12] = [
    "CSIDriver",
    "CSINode",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Pod",
    "PodTemplate",
    "ResourceQuota",
    "Service",
    "ServiceAccount",
    "StorageClass",
    "VolumeAttachment",
    "VolumeAttributesClass",
];

fn describe(verb: &str, kind: &str, sub: &str) -> String {
    let article = if kind.starts_with(['A', 'E', 'I', 'O']) { "an" } else { "a" };
    let of = if sub.is_empty() { String::new() } else { format!("{sub} of ") };
    match verb {
        "get" => format!("read {of}the specified {kind}"),
        "list" => format!("list or watch objects of kind {kind}"),
        "create" => format!("create {of}{article} {kind}"),
        "update" => format!("replace {of}the specified {kind}"),
        "patch" => format!("partially update {of}the specified {kind}"),
        "deletecollection" => format!("delete collection of {kind}"),
        _ => format!("delete {article} {kind}"),
    }
}

/// The operation that lists a kind over all namespaces.
fn list_everywhere(naming: &Naming<'_>) -> Operation {
    let kind = naming.kind;
    Operation {
        method: "get",
        id: format!("list{}{}ForAllNamespaces", naming.id, kind.kind),
        description: format!("list or watch objects of kind {}", kind.kind),
        tag: naming.tag.clone(),
        action: Some(("list", naming.gvk())),
        parameters: &parameters::LIST,
        body: Body::Nothing,
        answer: Answer::List(list_name(&definition_name(&kind.group, &kind.version, &kind.kind))),
        codes: &[200],
    }
}

/// The parameters of a subresource that opens a connection; `None` for other subresources.
fn connect_parameters(sub: &str) -> Option<Vec<&'static Parameter>> {
    Some(match sub {
        "attach" => parameters::ATTACH.iter().collect(),
        "exec" => std::iter::once(&parameters::COMMAND).chain(&parameters::ATTACH).collect(),
        "portforward" => vec![&parameters::PORTS],
        "proxy" => vec![&parameters::PROXY_PATH],
        _ => return None,
    })
}

/// The paths of a connection: `exec`, `attach`, `portforward`, or `proxy` with and without a path after it.
fn connect_paths(naming: &Naming<'_>, sub: &Subresource, path: String, more: &[&'static Parameter], items: &mut Vec<PathItem>) {
    let proxy = sub.name == "proxy";
    let methods: &[&'static str] = if proxy { &["get", "put", "post", "delete", "options", "head", "patch"] } else { &["get", "post"] };
    let options = body_kind(naming.kind, sub);
    let operations = |suffix: &str| -> Vec<Operation> {
        let one = |method: &&'static str| Operation {
            method,
            id: format!("connect{}{}{}{}{}{suffix}", naming.id, capital(method), naming.scope(), naming.kind.kind, capital(&sub.name)),
            description: format!("connect {} requests to {} of {}", method.to_uppercase(), sub.name, naming.kind.kind),
            tag: naming.tag.clone(),
            action: Some(("connect", options.clone())),
            parameters: &[],
            body: Body::Nothing,
            answer: Answer::Stream,
            codes: &[200],
        };
        methods.iter().map(one).collect()
    };
    let mut parameters = naming.scope_parameters(true);
    parameters.extend(more);
    items.push(PathItem { path: path.clone(), parameters: parameters.clone(), operations: operations("") });
    if proxy {
        parameters.push(&parameters::PATH);
        items.push(PathItem { path: format!("{path}/{{path}}"), parameters, operations: operations("WithPath") });
    }
}
