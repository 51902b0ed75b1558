//! The variables of admission expressions: match conditions of webhooks and policies, and all expressions of admission
//! policies. The names and types are upstream's (`apiserver/pkg/admission/plugin/cel`).

use std::sync::LazyLock;

use api_schema::Structural;
use serde_json::json;
use thiserror::Error;

use crate::{CompileError, Env, Expression, Shape, Type, type_of};

/// The required type of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A boolean.
    Bool,
    /// A text.
    Text,
    /// A text, or `null` for no text.
    TextOrNull,
    /// Anything.
    Anything,
    /// An `Object{…}` to be applied.
    Object,
    /// A list of `JSONPatch{…}`.
    Patches,
}

impl Wanted {
    fn types(self) -> Vec<Type> {
        match self {
            Self::Bool => vec![Type::Bool],
            Self::Text => vec![Type::String],
            Self::TextOrNull => vec![Type::String, Type::Null],
            Self::Anything => Vec::new(),
            Self::Object => vec![Type::built("Object")],
            Self::Patches => vec![Type::list(Type::json_patch())],
        }
    }
}

/// Declares `object`, `oldObject`, `request` and `namespaceObject`. With parameters it also declares `params`. With an
/// authorizer it also declares `authorizer` and `authorizer.requestResource`.
pub fn env(has_params: bool, has_authorizer: bool) -> Env {
    let mut env = Env::default().with("object", Type::Dyn).with("oldObject", Type::Dyn);
    env = env.with("request", REQUEST.clone()).with("namespaceObject", NAMESPACE_TYPE.clone());
    if has_params {
        env = env.with("params", Type::Dyn);
    }
    if has_authorizer {
        env = env.with("authorizer", Type::authorizer()).with("authorizer.requestResource", Type::resource_check());
    }
    env
}

/// An expression of a policy that cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PolicyExpressionError {
    /// The expression does not compile.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// The result has another type than the policy needs.
    #[error("must evaluate to {} but got {found}", one_of(wanted))]
    ResultType {
        /// The types that the policy accepts.
        wanted: Vec<Type>,
        /// The type of the result.
        found: Type,
    },
}

fn one_of(types: &[Type]) -> String {
    match types {
        [one] => one.to_string(),
        types => format!("one of [{}]", types.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")),
    }
}

/// Compiles an expression whose result must have a certain type.
///
/// # Errors
/// The expression does not compile, or its result has another type. The messages are upstream's.
pub fn compile(text: &str, env: &Env, wanted: Wanted) -> Result<Expression, PolicyExpressionError> {
    let expression = Expression::compile(text, env)?;
    let (wanted, found) = (wanted.types(), expression.result().clone());
    if wanted.is_empty() || wanted.contains(&found) { Ok(expression) } else { Err(PolicyExpressionError::ResultType { wanted, found }) }
}

/// The shape of the JSON of `namespaceObject`.
pub fn namespace_shape() -> Shape<'static> {
    Shape::Schema(&NAMESPACE)
}

/// The type of `request`, without the objects, which are separate variables.
static REQUEST: LazyLock<Type> = LazyLock::new(|| {
    let texts = |name: &str, fields: [&'static str; 3]| Type::object(name, fields.map(|field| (field, Type::String)));
    let kind = || texts("kubernetes.GroupVersionKind", ["group", "version", "kind"]);
    let resource = || texts("kubernetes.GroupVersionResource", ["group", "version", "resource"]);
    let strings = || Type::list(Type::String);
    let user = [("username", Type::String), ("uid", Type::String), ("groups", strings()), ("extra", Type::map(strings()))];
    let fields = [
        ("kind", kind()),
        ("resource", resource()),
        ("subResource", Type::String),
        ("requestKind", kind()),
        ("requestResource", resource()),
        ("requestSubResource", Type::String),
        ("name", Type::String),
        ("namespace", Type::String),
        ("operation", Type::String),
        ("userInfo", Type::object("kubernetes.UserInfo", user)),
        ("dryRun", Type::Bool),
        ("options", Type::Dyn),
    ];
    Type::object("kubernetes.AdmissionRequest", fields)
});

/// The visible fields of a Namespace.
static NAMESPACE: LazyLock<Structural> = LazyLock::new(|| {
    let (text, time, number) = (json!({"type": "string"}), json!({"type": "string", "format": "date-time"}), json!({"type": "integer"}));
    let texts = json!({"type": "object", "additionalProperties": text});
    let list = json!({"type": "array", "items": text});
    let condition = json!({"type": "object", "properties": {
        "type": text, "status": text, "reason": text, "message": text, "lastTransitionTime": time,
    }});
    let metadata = json!({"type": "object", "properties": {
        "name": text, "generateName": text, "namespace": text, "labels": texts, "annotations": texts, "uid": text,
        "creationTimestamp": time, "deletionGracePeriodSeconds": number, "deletionTimestamp": time, "generation": number,
        "resourceVersion": text, "finalizers": list,
    }});
    Structural::parse(&json!({"type": "object", "properties": {
        "metadata": metadata,
        "spec": {"type": "object", "properties": {"finalizers": list}},
        "status": {"type": "object", "properties": {"phase": text, "conditions": {"type": "array", "items": condition}}},
    }}))
});

static NAMESPACE_TYPE: LazyLock<Type> = LazyLock::new(|| type_of(&NAMESPACE, false).unwrap_or(Type::Dyn));

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str, wanted: Wanted) -> String {
        compile(text, &env(false, false), wanted).expect_err(text).to_string()
    }

    #[test]
    fn what_an_expression_yields_must_be_what_is_wanted() {
        assert!(compile("object.spec.replicas > 1 && request.userInfo.username == 'jane'", &env(false, false), Wanted::Bool).is_ok());
        assert!(compile("namespaceObject.metadata.labels['a'] == params.a", &env(true, false), Wanted::Bool).is_ok());
        assert!(compile("authorizer.requestResource.check('approve').allowed()", &env(false, true), Wanted::Bool).is_ok());
        assert!(compile("null", &env(false, false), Wanted::TextOrNull).is_ok());
        assert_eq!(refused("'a'", Wanted::Bool), "must evaluate to bool but got string");
        assert_eq!(refused("object.spec.paused", Wanted::Bool), "must evaluate to bool but got dyn");
        assert!(refused("1", Wanted::TextOrNull).starts_with("must evaluate to one of [string null"));
    }

    #[test]
    fn undeclared_references_are_reported_with_their_position() {
        assert_eq!(
            refused("params.a == 1", Wanted::Bool),
            "compilation failed: ERROR: <input>:1:1: undeclared reference to 'params' (in container '')\n | params.a == 1\n | ^"
        );
        assert!(refused("request.nothing == ''", Wanted::Bool).contains("undefined field 'nothing'"));
        assert!(refused("authorizer.path('/x').check('get').allowed()", Wanted::Bool).contains("undeclared reference to 'authorizer'"));
    }

    #[test]
    fn objects_are_built_where_that_is_allowed() {
        let env = env(false, true).building_objects();
        assert!(compile("Object{metadata: Object.metadata{labels: {'a': 'b'}}}", &env, Wanted::Object).is_ok());
        assert!(compile("[JSONPatch{op: 'add', path: '/metadata/labels/a', value: 'b'}]", &env, Wanted::Patches).is_ok());
        assert_eq!(compile("1", &env, Wanted::Object).expect_err("no object").to_string(), "must evaluate to Object but got int");
    }
}
