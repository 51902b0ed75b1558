//! Whom a user wants to be taken for. The `Impersonate-*` headers name a user, groups, a uid and extra fields; who
//! sends them must be allowed to impersonate each of these.
//!
//! There are two ways to that right. The old one is the verb `impersonate`, and whoever holds it may do anything
//! that the other may. Constrained impersonation (KEP 5284) asks for two rights: the verb `impersonate:MODE` on
//! what is named, and `impersonate-on:MODE:VERB` on what the request wants. The modes are tried in upstream's order
//! and the old way is the last; where none lets in, the first one's refusal is told.

use std::collections::BTreeMap;
use std::sync::Arc;

use api_auth::Authorizer;
use api_auth::authenticate::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED};
use api_auth::authorize::MASTERS;
use api_auth::authorize::node::NODES;
use api_auth::forbidden_message;
use api_model::kind::GroupResource;
use api_model::request::{Attributes, UserInfo};
use http::HeaderMap;

use crate::authorize;
use api_cache::Cache;
use api_wire::path::percent_decode;
use api_wire::status::{ApiError, ApiResult};

const AUTHENTICATION: &str = "authentication.k8s.io";
/// The node on which a ServiceAccount's Pod runs, as its token says.
const OWN_NODE: &str = "authentication.kubernetes.io/node-name";
/// From so many groups, or extra values, on a right to all of them is asked for first.
const MANY: usize = 4;

/// Who a user's request is to be taken for: the same user unless its headers name another.
pub(crate) fn acting(
    access: (&Authorizer, &Cache),
    user: &Arc<UserInfo>,
    attributes: &Attributes,
    headers: &HeaderMap,
) -> ApiResult<Arc<UserInfo>> {
    let wanted = Wanted::from(headers)?;
    if wanted.user.username.is_empty() {
        return if wanted.is_given { Err(nameless(&wanted.user)) } else { Ok(Arc::clone(user)) };
    }
    let impersonation = Impersonation { access, user, attributes, wanted: &wanted.user };
    let mut first_refusal = None;
    for mode in [Mode::OwnNode, Mode::AnyNode, Mode::ServiceAccount, Mode::UserInfo, Mode::Legacy] {
        if !mode.concerns(user, &wanted.user) {
            continue;
        }
        match impersonation.check(mode) {
            Ok(()) => return Ok(Arc::new(mode.taken_for(wanted.user))),
            Err(refusal) => first_refusal = first_refusal.or(Some(refusal)),
        }
    }
    Err(first_refusal.unwrap_or_else(|| ApiError::internal("all impersonation modes failed")))
}

/// What the headers name.
#[derive(Default)]
struct Wanted {
    user: UserInfo,
    /// Whether there is any such header.
    is_given: bool,
}

impl Wanted {
    /// # Errors
    /// When a header is no text: whoever sends it is not to act as themselves.
    fn from(headers: &HeaderMap) -> ApiResult<Self> {
        let mut wanted = Self::default();
        for (name, value) in headers {
            let Some(field) = name.as_str().strip_prefix("impersonate-") else { continue };
            let text = std::str::from_utf8(value.as_bytes());
            let value = text.map_err(|_| ApiError::bad_request(format!("the header {name} is not UTF-8")))?;
            let user = &mut wanted.user;
            match field {
                "user" if user.username.is_empty() => value.clone_into(&mut user.username),
                "uid" if user.uid.is_empty() => value.clone_into(&mut user.uid),
                "group" => user.groups.push(value.to_owned()),
                field => {
                    let Some(key) = field.strip_prefix("extra-") else { continue };
                    let key = percent_decode(key, false).map_or_else(|| key.to_owned(), |key| key.into_owned());
                    user.extra.entry(key).or_default().push(value.to_owned());
                }
            }
        }
        let user = &wanted.user;
        wanted.is_given = !(user.username.is_empty() && user.uid.is_empty() && user.groups.is_empty() && user.extra.is_empty());
        Ok(wanted)
    }
}

/// The refusal of groups, a uid or extra fields of nobody, with Go's writing of what was asked for.
fn nameless(wanted: &UserInfo) -> ApiError {
    let list = |texts: &[String]| format!("[]string{{{}}}", texts.iter().map(|text| format!("{text:?}")).collect::<Vec<_>>().join(", "));
    let groups = if wanted.groups.is_empty() { "[]string(nil)".to_owned() } else { list(&wanted.groups) };
    let extra = match wanted.extra.is_empty() {
        true => "map[string][]string(nil)".to_owned(),
        false => {
            let entries: Vec<String> = wanted.extra.iter().map(|(key, values)| format!("{key:?}:{}", list(values))).collect();
            format!("map[string][]string{{{}}}", entries.join(", "))
        }
    };
    ApiError::bad_request(format!(
        "requested &user.DefaultInfo{{Name:\"\", UID:{:?}, Groups:{groups}, Extra:{extra}}} without impersonating a user name",
        wanted.uid
    ))
}

/// How a right to impersonate is worded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// A ServiceAccount stands in for the node that its Pod runs on.
    OwnNode,
    AnyNode,
    ServiceAccount,
    /// Anybody else.
    UserInfo,
    /// The verb `impersonate`.
    Legacy,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Self::OwnNode => "associated-node",
            Self::AnyNode => "arbitrary-node",
            Self::ServiceAccount => "serviceaccount",
            Self::UserInfo => "user-info",
            Self::Legacy => "",
        }
    }

    fn is_constrained(self) -> bool {
        self != Self::Legacy
    }

    /// Whether the mode is for such a user at all.
    fn concerns(self, user: &UserInfo, wanted: &UserInfo) -> bool {
        let name_only = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        let (node, account) = (node(&wanted.username), account(&wanted.username));
        match self {
            Self::OwnNode => {
                let own = user.extra.get(OWN_NODE).map(Vec::as_slice);
                name_only && account_of(user) && node.is_some_and(|node| own == Some(&[node.to_owned()]))
            }
            Self::AnyNode => name_only && node.is_some(),
            Self::ServiceAccount => name_only && account.is_some(),
            Self::UserInfo => node.is_none() && account.is_none(),
            Self::Legacy => true,
        }
    }

    /// The user with the groups that go with the name.
    fn taken_for(self, mut user: UserInfo) -> UserInfo {
        match (node(&user.username), account(&user.username)) {
            (Some(_), _) if self.is_constrained() => user.groups = vec![NODES.to_owned()],
            (_, Some((namespace, _))) if user.groups.is_empty() => {
                user.groups = vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
            }
            _ => {}
        }
        let everybody = if user.username == ANONYMOUS { UNAUTHENTICATED } else { AUTHENTICATED };
        if !user.in_group(everybody) && !user.in_group(UNAUTHENTICATED) {
            user.groups.push(everybody.to_owned());
        }
        user
    }
}

/// One request to be taken for somebody.
struct Impersonation<'a> {
    access: (&'a Authorizer, &'a Cache),
    user: &'a UserInfo,
    attributes: &'a Attributes,
    wanted: &'a UserInfo,
}

impl Impersonation<'_> {
    fn check(&self, mode: Mode) -> ApiResult<()> {
        if mode.is_constrained() {
            let verb = format!("impersonate-on:{}:{}", mode.name(), self.attributes.verb);
            authorize::check(self.access, self.user, &Attributes { verb, ..self.attributes.clone() })?;
        }
        self.check_name(mode)?;
        if !self.wanted.uid.is_empty() {
            self.may(&Attributes { group: AUTHENTICATION.to_owned(), ..self.naming(mode, "uids", &self.wanted.uid) })?;
        }
        self.check_groups(mode)?;
        self.check_extra(mode)
    }

    fn check_name(&self, mode: Mode) -> ApiResult<()> {
        let name = &self.wanted.username;
        self.may(&match (node(name), account(name)) {
            // Whichever node it is, the right is to stand in for one's own.
            (Some(_), _) if mode == Mode::OwnNode => self.naming(mode, "nodes", "*"),
            (Some(node), _) if mode.is_constrained() => self.naming(mode, "nodes", node),
            (_, Some((namespace, account))) => {
                Attributes { namespace: namespace.to_owned(), ..self.naming(mode, "serviceaccounts", account) }
            }
            _ => self.naming(mode, "users", name),
        })
    }

    fn check_groups(&self, mode: Mode) -> ApiResult<()> {
        let groups = &self.wanted.groups;
        let of = |name: &str| self.naming(mode, "groups", name);
        if mode.is_constrained() {
            if groups.iter().any(String::is_empty) {
                return Err(self.refused(&of(""), "impersonating the empty string group is not allowed"));
            }
            if groups.iter().any(|group| group == MASTERS) {
                return Err(self.refused(&of(MASTERS), "impersonating the system:masters group is not allowed"));
            }
            if groups.len() >= MANY && self.may(&of("*")).is_ok() {
                return Ok(());
            }
        }
        groups.iter().try_for_each(|group| self.may(&of(group)))
    }

    fn check_extra(&self, mode: Mode) -> ApiResult<()> {
        let extra = &self.wanted.extra;
        let of = |key: &str, value: &str| Attributes {
            group: AUTHENTICATION.to_owned(),
            subresource: key.to_owned(),
            ..self.naming(mode, "userextras", value)
        };
        if mode.is_constrained() {
            check_extra(extra).map_err(|error| self.refused(&of("", ""), &error.to_string()))?;
            let is_large = extra.values().map(Vec::len).sum::<usize>() >= MANY;
            if is_large && self.may(&of("*", "*")).is_ok() {
                return Ok(());
            }
        }
        extra
            .iter()
            .flat_map(|(key, values)| values.iter().map(move |value| (key, value)))
            .try_for_each(|(key, value)| self.may(&of(key, value)))
    }

    fn naming(&self, mode: Mode, resource: &str, name: &str) -> Attributes {
        let (verb, group) = match mode {
            Mode::Legacy => ("impersonate".to_owned(), ""),
            mode => (format!("impersonate:{}", mode.name()), AUTHENTICATION),
        };
        Attributes {
            verb,
            group: group.to_owned(),
            version: "v1".to_owned(),
            resource: resource.to_owned(),
            name: name.to_owned(),
            ..Attributes::default()
        }
    }

    fn may(&self, attributes: &Attributes) -> ApiResult<()> {
        authorize::check(self.access, self.user, attributes)
    }

    fn refused(&self, attributes: &Attributes, why: &str) -> ApiError {
        let resource = GroupResource::new(&attributes.group, &attributes.resource);
        ApiError::denied(&resource, &attributes.name, &forbidden_message(self.user, attributes, why))
    }
}

/// Why extra fields cannot be impersonated. The messages are upstream's.
#[derive(Debug, thiserror::Error)]
enum ExtraError<'e> {
    #[error("impersonating the empty string key in extra is not allowed")]
    EmptyKey,
    #[error(
        "impersonating an invalid key in extra is not allowed: extra.key: Invalid value: {0:?}: must be a domain-prefixed path (such as \"acme.io/foo\")"
    )]
    Key(&'e str),
    #[error("impersonating a non-lowercase key in extra is not allowed: {0:?}")]
    Case(&'e str),
    #[error("impersonating the empty string value in extra is not allowed")]
    EmptyValue,
}

/// What constrained impersonation asks of extra fields.
fn check_extra(extra: &BTreeMap<String, Vec<String>>) -> Result<(), ExtraError<'_>> {
    for (key, values) in extra {
        if key.is_empty() {
            return Err(ExtraError::EmptyKey);
        }
        if !key.split_once('/').is_some_and(|(domain, path)| is_subdomain(domain) && !path.is_empty()) {
            return Err(ExtraError::Key(key));
        }
        if *key != key.to_lowercase() {
            return Err(ExtraError::Case(key));
        }
        if values.iter().any(String::is_empty) {
            return Err(ExtraError::EmptyValue);
        }
    }
    Ok(())
}

fn is_subdomain(text: &str) -> bool {
    let part = |part: &str| {
        let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let bytes = part.as_bytes();
        edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
    };
    text.len() <= 253 && text.split('.').all(part)
}

/// The node whose user name that is.
fn node(username: &str) -> Option<&str> {
    username.strip_prefix("system:node:").filter(|name| is_subdomain(name))
}

/// Namespace and name of the ServiceAccount whose user name that is.
fn account(username: &str) -> Option<(&str, &str)> {
    let (namespace, name) = username.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    (!namespace.is_empty() && is_subdomain(name)).then_some((namespace, name))
}

fn account_of(user: &UserInfo) -> bool {
    account(&user.username).is_some()
}
