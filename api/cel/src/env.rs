//! The declarations of an expression.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::types::{ObjectType, Type};

/// The declared variables and message types. The functions of CEL and of Kubernetes are always declared; those of an
/// authorizer need a variable with an authorizer.
///
/// ```
/// # use api_cel::{Env, Expression, Type};
/// let env = Env::default().with("object", Type::Dyn).with("params", Type::Dyn);
/// let expression = Expression::compile("object.spec.replicas <= params.maxReplicas", &env).expect("compiles");
/// assert_eq!(expression.result(), &Type::Bool);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Env {
    variables: BTreeMap<String, Type>,
    builds_objects: bool,
}

impl Env {
    /// Declares a variable. Its name may be qualified (`authorizer.requestResource`).
    #[must_use]
    pub fn with(mut self, name: &str, of: Type) -> Self {
        self.variables.insert(name.to_owned(), of);
        self
    }

    /// Declares `variables` with one field for each composed variable (`variables.<name>`), whose type is the
    /// [`Expression::result`](crate::Expression::result) of its expression.
    #[must_use]
    pub fn with_composed<'a>(self, fields: impl IntoIterator<Item = (&'a str, Type)>) -> Self {
        let fields = fields.into_iter().map(|(name, of)| (name.to_owned(), of)).collect();
        self.with("variables", Type::Object(Arc::new(ObjectType { name: "kubernetes.variables".to_owned(), fields, is_open: false })))
    }

    /// Allows `Object{…}` with `Object.<path>{…}` within it and `JSONPatch{…}`, for mutating policies.
    #[must_use]
    pub fn building_objects(mut self) -> Self {
        self.builds_objects = true;
        self
    }

    pub(crate) fn variable(&self, name: &str) -> Option<&Type> {
        self.variables.get(name)
    }

    /// The type of a message literal.
    pub(crate) fn message(&self, name: &str) -> Option<Type> {
        if !self.builds_objects {
            return None;
        }
        match name {
            "JSONPatch" => Some(Type::json_patch()),
            name if name == "Object" || name.starts_with("Object.") => Some(Type::built(name)),
            _ => None,
        }
    }
}
