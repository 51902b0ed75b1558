//! A view over a few objects, and requests for them, for the table tests of the plugins.

use std::collections::BTreeMap;
use std::sync::Arc;

use api_model::kind::{self, GroupResource, Kind};
use api_model::meta;
use api_model::request::UserInfo;
use api_model::view::View;
use serde_json::Value;

use crate::denied::Denied;
use crate::plugin::Plugin;
use crate::request::{Operation, Request};

/// Objects by resource, then by namespace and name.
#[derive(Default)]
pub struct Objects(BTreeMap<GroupResource, BTreeMap<(String, String), Arc<Value>>>);

impl Objects {
    /// A view with these objects. Each needs `apiVersion` and `kind`.
    pub fn new(objects: impl IntoIterator<Item = Value>) -> Self {
        let mut view = Self::default();
        for object in objects {
            let key = (meta::namespace(&object).to_owned(), meta::name(&object).to_owned());
            view.0.entry(kind_of(&object).group_resource()).or_default().insert(key, Arc::new(object));
        }
        view
    }
}

impl View for Objects {
    fn get(&self, resource: &GroupResource, namespace: Option<&str>, name: &str) -> Option<Arc<Value>> {
        self.0.get(resource)?.get(&(namespace.unwrap_or_default().to_owned(), name.to_owned())).cloned()
    }

    fn list(&self, resource: &GroupResource, namespace: Option<&str>) -> Vec<Arc<Value>> {
        let objects = self.0.get(resource).into_iter().flatten();
        objects.filter(|((ns, _), _)| namespace.is_none_or(|wanted| ns == wanted)).map(|(_, object)| object.clone()).collect()
    }

    fn version(&self, _resource: &GroupResource) -> u64 {
        0
    }
}

/// The kind of an object.
pub fn kind_of(object: &Value) -> &'static Kind {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    kind::find_by_kind(text("apiVersion"), text("kind")).unwrap_or_else(|| panic!("{object} is of no served kind"))
}

/// The result of a request.
#[derive(Debug, PartialEq)]
pub struct Outcome {
    /// The object after the plugin ran.
    pub object: Value,
    /// Warnings for the client.
    pub warnings: Vec<String>,
}

/// Builds a request.
pub struct Ask<'a> {
    operation: Operation,
    object: Value,
    old: Option<&'a Value>,
    user: UserInfo,
    subresource: &'a str,
    kind: &'a Kind,
    name: String,
    namespace: String,
}

impl<'a> Ask<'a> {
    fn new(operation: Operation, object: Value, old: Option<&'a Value>) -> Self {
        let named = old.unwrap_or(&object);
        let (name, namespace, kind) = (meta::name(named).to_owned(), meta::namespace(named).to_owned(), kind_of(named));
        Self { operation, object, old, user: UserInfo::new("jane", &["system:authenticated"]), subresource: "", kind, name, namespace }
    }

    /// A request that creates the object.
    pub fn create(object: Value) -> Self {
        Self::new(Operation::Create, object, None)
    }

    /// A request that replaces the object.
    pub fn update(old: &'a Value, object: Value) -> Self {
        Self::new(Operation::Update, object, Some(old))
    }

    /// A request that deletes the object.
    pub fn delete(old: &'a Value) -> Self {
        Self::new(Operation::Delete, Value::Null, Some(old))
    }

    /// A request that sends a body to a subresource.
    pub fn create_sub(parent: &'a Value, subresource: &'a str, body: Value) -> Self {
        Self {
            operation: Operation::Create,
            object: body,
            old: None,
            subresource,
            ..Self::new(Operation::Create, Value::Null, Some(parent))
        }
    }

    /// Sets the user.
    pub fn by(self, username: &str, groups: &[&str]) -> Self {
        Self { user: UserInfo::new(username, groups), ..self }
    }

    /// Sets the subresource.
    pub fn sub(self, subresource: &'a str) -> Self {
        Self { subresource, ..self }
    }

    fn run(
        mut self,
        view: &dyn View,
        step: impl FnOnce(&mut Request<'_>, &dyn View, &mut Vec<String>) -> Result<(), Denied>,
    ) -> Result<Outcome, Denied> {
        let mut warnings = Vec::new();
        let mut request = Request {
            operation: self.operation,
            kind: self.kind,
            subresource: self.subresource,
            namespace: &self.namespace,
            name: &self.name,
            user: &self.user,
            object: Some(&mut self.object).filter(|o| !o.is_null()),
            old: self.old,
            dry_run: false,
        };
        step(&mut request, view, &mut warnings)?;
        Ok(Outcome { object: self.object, warnings })
    }

    /// Runs a check on the request.
    pub fn checked(self, view: &dyn View, check: impl FnOnce(&Request<'_>, &dyn View) -> Result<(), Denied>) -> Result<Outcome, Denied> {
        self.run(view, |request, view, _| check(request, view))
    }

    /// Runs the mutating step of a plugin on the request.
    pub fn admit(self, plugin: &dyn Plugin, view: &dyn View) -> Result<Outcome, Denied> {
        self.run(view, |request, view, warnings| plugin.admit(request, view, warnings))
    }

    /// Runs the validating step of a plugin on the request.
    pub fn validate(self, plugin: &dyn Plugin, view: &dyn View) -> Result<Outcome, Denied> {
        self.run(view, |request, view, warnings| plugin.validate(request, view, warnings))
    }
}

/// The message of a rejection, or `ok`.
pub fn verdict(outcome: Result<Outcome, Denied>) -> String {
    match outcome {
        Ok(_) => "ok".to_owned(),
        Err(denied) => denied.to_string(),
    }
}
