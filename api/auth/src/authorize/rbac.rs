//! Role-based access control: an index from subjects to the rules of their bindings, compiled from the four RBAC resources
//! and valid until one of them changes.
//!
//! A ClusterRole with an `aggregationRule` has the rules of the ClusterRoles that its selectors match, and its own `rules`
//! are ignored. A binding to a role that does not exist grants nothing and is named in the reason of a rejection.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, LazyLock};

use api_model::kind::GroupResource;
use api_model::meta;
use api_model::request::{Attributes, UserInfo};
use api_model::view::View;
use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use serde_json::Value;

use super::Decision;
use crate::role::{GROUP, effective};
use crate::rule::Rule;
use crate::tokens::username;

/// The resources of the index.
static RESOURCES: LazyLock<[GroupResource; 4]> =
    LazyLock::new(|| ["clusterroles", "clusterrolebindings", "roles", "rolebindings"].map(|resource| GroupResource::new(GROUP, resource)));

/// The authorizer with its index.
#[derive(Default)]
pub struct Rbac {
    index: ArcSwapOption<Index>,
    building: Mutex<()>,
}

impl Rbac {
    /// Decides on a request by the bindings.
    pub fn authorize(&self, user: &UserInfo, attributes: &Attributes, view: &dyn View) -> Decision {
        let index = self.index(view);
        let mut missing = BTreeSet::new();
        let namespace = if attributes.is_resource() { attributes.namespace.as_str() } else { "" };
        for (grant, subject) in index.grants(user, namespace) {
            match &grant.rules {
                Some(rules) if rules.iter().any(|r| r.allows(attributes)) => {
                    return Decision::Allow(format!("RBAC: allowed by {} to {}", grant.described, subject.described()));
                }
                Some(_) => {}
                None => {
                    missing.insert(grant.missing_role.clone());
                }
            }
        }
        Decision::NoOpinion(if missing.is_empty() { String::new() } else { format!("RBAC: {}", joined(missing)) })
    }

    /// The rules of a user in a namespace, including those for the whole cluster, and the missing roles.
    pub fn rules_for(&self, user: &UserInfo, namespace: &str, view: &dyn View) -> (Vec<Rule>, Vec<String>) {
        let index = self.index(view);
        let (mut rules, mut missing) = (Vec::new(), BTreeSet::new());
        for (grant, _) in index.grants(user, namespace) {
            match &grant.rules {
                Some(found) => rules.extend(found.iter().cloned()),
                None => {
                    missing.insert(grant.missing_role.clone());
                }
            }
        }
        (rules, missing.into_iter().collect())
    }

    /// The effective rules of a role; `None` if it does not exist.
    pub fn role_rules(&self, kind: &str, namespace: &str, name: &str, view: &dyn View) -> Option<Arc<[Rule]>> {
        let index = self.index(view);
        let namespace = if kind == "Role" { namespace } else { "" };
        index.roles.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    fn index(&self, view: &dyn View) -> Arc<Index> {
        let versions = RESOURCES.each_ref().map(|resource| view.version(resource));
        let fresh = || self.index.load_full().filter(|index| index.versions == versions);
        if let Some(index) = fresh() {
            return index;
        }
        let _one_builder = self.building.lock();
        if let Some(index) = fresh() {
            return index;
        }
        // The versions are read before the objects: a change between both causes an unnecessary rebuild, but no change
        // is missed.
        let index = Arc::new(Index::build(view, versions));
        self.index.store(Some(index.clone()));
        index
    }
}

fn joined(errors: BTreeSet<String>) -> String {
    let errors: Vec<String> = errors.into_iter().collect();
    match errors.as_slice() {
        [one] => one.clone(),
        _ => format!("[{}]", errors.join(", ")),
    }
}

/// The subject of a binding. A ServiceAccount is looked up by its user name.
#[derive(Clone, Copy)]
enum Subject<'a> {
    User(&'a str),
    Group(&'a str),
    ServiceAccount(&'a str),
}

impl Subject<'_> {
    fn described(self) -> String {
        match self {
            Self::User(name) => format!("User {name:?}"),
            Self::Group(name) => format!("Group {name:?}"),
            Self::ServiceAccount(username) => {
                let (namespace, name) = account(username).unwrap_or_default();
                format!("ServiceAccount \"{name}/{namespace}\"")
            }
        }
    }
}

/// Namespace and name of the ServiceAccount with the given user name.
fn account(username: &str) -> Option<(&str, &str)> {
    username.strip_prefix("system:serviceaccount:")?.split_once(':')
}

/// The rights of one binding.
struct Grant {
    described: String,
    missing_role: String,
    rules: Option<Arc<[Rule]>>,
}

/// Grants by the name of their subject.
type ByName = HashMap<String, Vec<Arc<Grant>>>;

#[derive(Default)]
struct Granted {
    users: ByName,
    groups: ByName,
    accounts: ByName,
}

impl Granted {
    /// The list of a binding's subject; `None` if the kind of the subject does not exist.
    fn list_of(&mut self, subject: &Value, binding_namespace: &str) -> Option<&mut Vec<Arc<Grant>>> {
        let text = |field: &str| subject.get(field).and_then(Value::as_str).unwrap_or_default();
        let name = text("name");
        match text("kind") {
            "User" => Some(self.users.entry(name.to_owned()).or_default()),
            "Group" => Some(self.groups.entry(name.to_owned()).or_default()),
            "ServiceAccount" => {
                let namespace = if text("namespace").is_empty() { binding_namespace } else { text("namespace") };
                Some(self.accounts.entry(username(namespace, name)).or_default())
            }
            _ => None,
        }
    }

    fn to_user<'a>(&'a self, user: &'a UserInfo) -> impl Iterator<Item = (&'a Arc<Grant>, Subject<'a>)> {
        let name = user.username.as_str();
        let find = |by: &'a ByName, subject: Subject<'a>, key: &str| by.get(key).into_iter().flatten().map(move |grant| (grant, subject));
        let groups = user.groups.iter().flat_map(move |group| find(&self.groups, Subject::Group(group), group));
        find(&self.users, Subject::User(name), name).chain(groups).chain(find(&self.accounts, Subject::ServiceAccount(name), name))
    }
}

struct Index {
    versions: [u64; 4],
    /// By namespace (empty for ClusterRoles) and name.
    roles: HashMap<(String, String), Arc<[Rule]>>,
    /// By namespace; empty for the whole cluster.
    granted: HashMap<String, Granted>,
}

impl Index {
    fn build(view: &dyn View, versions: [u64; 4]) -> Self {
        let list = |resource: &str| view.scan(&GroupResource::new(GROUP, resource), None);
        let mut index = Self { versions, roles: HashMap::new(), granted: HashMap::new() };
        let cluster_roles = list("clusterroles");
        for role in &cluster_roles {
            index.roles.insert((String::new(), meta::name(role).to_owned()), effective(role, &cluster_roles).into());
        }
        for role in list("roles") {
            index.roles.insert((meta::namespace(&role).to_owned(), meta::name(&role).to_owned()), Rule::of_role(&role).into());
        }
        for binding in list("clusterrolebindings").iter().chain(&list("rolebindings")) {
            index.add(binding);
        }
        index
    }

    fn add(&mut self, binding: &Value) {
        let namespace = meta::namespace(binding);
        let text = |field: &str| binding.pointer(&format!("/roleRef/{field}")).and_then(Value::as_str).unwrap_or_default();
        let (kind, role) = (text("kind"), text("name"));
        let role_namespace = if kind == "Role" { namespace } else { "" };
        let described = match namespace {
            "" => format!("ClusterRoleBinding {:?}", meta::name(binding)),
            namespace => format!("RoleBinding \"{}/{namespace}\"", meta::name(binding)),
        };
        let grant = Arc::new(Grant {
            described: format!("{described} of {kind} {role:?}"),
            missing_role: format!("{}.{GROUP} {role:?} not found", kind.to_lowercase()),
            rules: self.roles.get(&(role_namespace.to_owned(), role.to_owned())).cloned(),
        });
        let granted = self.granted.entry(namespace.to_owned()).or_default();
        for subject in binding.get("subjects").and_then(Value::as_array).into_iter().flatten() {
            if let Some(list) = granted.list_of(subject, namespace) {
                list.push(grant.clone());
            }
        }
    }

    /// The grants of a user, first those for the whole cluster.
    fn grants<'a>(&'a self, user: &'a UserInfo, namespace: &'a str) -> impl Iterator<Item = (&'a Arc<Grant>, Subject<'a>)> {
        let scopes = [Some(""), Some(namespace).filter(|n| !n.is_empty())];
        scopes.into_iter().flatten().filter_map(|scope| self.granted.get(scope)).flat_map(|granted| granted.to_user(user))
    }
}
