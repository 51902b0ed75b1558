//! Who a request is from: the identity given to an in-process client, the certificate of the
//! connection, a bearer token, or nobody. After that, whom the user wants to be taken for.

use std::sync::Arc;

use api_auth::Credentials;
use api_auth::authenticate::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED};
use api_model::request::{Attributes, UserInfo};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderValue, header, request::Parts};
use jiff::Timestamp;

use crate::app::App;
use crate::authorize;
use crate::status::{ApiError, ApiResult};
use crate::wire::path::percent_decode;

/// The user behind a request, where the transport knows it: an in-process client's, or the one that
/// a connection's verified certificate names. A request from outside cannot carry this: it is no
/// header.
#[derive(Clone, Debug)]
pub(crate) struct Identity(pub(crate) Arc<UserInfo>);

/// The connection's certificate is nobody's: without a token, the request is refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnknownCertificate;

/// The subprotocol by which browsers send a bearer token with a websocket.
const WEBSOCKET_BEARER: &str = "base64url.bearer.authorization.k8s.io.";

/// Who a request is from.
pub(crate) fn user(app: &App, parts: &Parts) -> ApiResult<Arc<UserInfo>> {
    if let Some(Identity(user)) = parts.extensions.get::<Identity>() {
        return Ok(Arc::clone(user));
    }
    let bearer = bearer(&parts.headers);
    if bearer.is_none() && parts.extensions.get::<UnknownCertificate>().is_some() {
        return Err(ApiError::unauthorized());
    }
    let credentials = Credentials { client_certificate: None, bearer: bearer.as_deref() };
    Ok(Arc::new(app.authenticator.authenticate(&credentials, &*app.cache, Timestamp::now())?))
}

/// Who a user's request is to be taken for: the same user unless its headers name another.
pub(crate) fn acting(app: &App, user: &Arc<UserInfo>, headers: &HeaderMap) -> ApiResult<Arc<UserInfo>> {
    if headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
        return impersonate(app, user, headers).map(Arc::new);
    }
    Ok(Arc::clone(user))
}

fn bearer(headers: &HeaderMap) -> Option<String> {
    let header = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    if let Some((scheme, token)) = header.and_then(|header| header.split_once(' ')) {
        return scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned());
    }
    let protocols = headers.get(header::SEC_WEBSOCKET_PROTOCOL)?.to_str().ok()?;
    let encoded = protocols.split(',').find_map(|protocol| protocol.trim().strip_prefix(WEBSOCKET_BEARER))?;
    String::from_utf8(URL_SAFE_NO_PAD.decode(encoded).ok()?).ok()
}

/// `Impersonate-*` headers: the user must be allowed to impersonate each thing that they name.
fn impersonate(app: &App, user: &UserInfo, headers: &HeaderMap) -> ApiResult<UserInfo> {
    let wanted = Impersonated::from(headers);
    if wanted.username.is_empty() {
        return Err(ApiError::internal("requested impersonation of groups, extra info or a uid without impersonating a user"));
    }
    for attributes in wanted.attributes() {
        authorize::check(app, user, &attributes)?;
    }
    Ok(wanted.into_user())
}

#[derive(Default)]
struct Impersonated {
    username: String,
    uid: String,
    groups: Vec<String>,
    extra: Vec<(String, String)>,
}

impl Impersonated {
    fn from(headers: &HeaderMap) -> Self {
        let mut wanted = Self::default();
        for (name, value) in headers {
            let value = text(value);
            match name.as_str() {
                "impersonate-user" => wanted.username = value,
                "impersonate-uid" => wanted.uid = value,
                "impersonate-group" => wanted.groups.push(value),
                name => {
                    if let Some(key) = name.strip_prefix("impersonate-extra-") {
                        let key = percent_decode(key, false).map_or_else(|| key.to_owned(), |key| key.into_owned());
                        wanted.extra.push((key, value));
                    }
                }
            }
        }
        wanted
    }

    /// What the user must be allowed to do.
    fn attributes(&self) -> Vec<Attributes> {
        let of = |group: &str, resource: &str, name: &str| Attributes {
            verb: "impersonate".to_owned(),
            group: group.to_owned(),
            version: "v1".to_owned(),
            resource: resource.to_owned(),
            name: name.to_owned(),
            ..Attributes::default()
        };
        let user = match self.service_account() {
            Some((namespace, name)) => Attributes { namespace: namespace.to_owned(), ..of("", "serviceaccounts", name) },
            None => of("", "users", &self.username),
        };
        let mut all = vec![user];
        all.extend(self.groups.iter().map(|group| of("", "groups", group)));
        all.extend(
            self.extra
                .iter()
                .map(|(key, value)| Attributes { subresource: key.clone(), ..of("authentication.k8s.io", "userextras", value) }),
        );
        all.extend((!self.uid.is_empty()).then(|| of("authentication.k8s.io", "uids", &self.uid)));
        all
    }

    fn service_account(&self) -> Option<(&str, &str)> {
        self.username.strip_prefix("system:serviceaccount:")?.split_once(':')
    }

    fn into_user(self) -> UserInfo {
        let mut user =
            UserInfo { username: self.username.clone(), uid: self.uid.clone(), groups: self.groups.clone(), ..UserInfo::default() };
        if let (Some((namespace, _)), true) = (self.service_account(), user.groups.is_empty()) {
            user.groups = vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
        }
        let everybody = if user.username == ANONYMOUS { UNAUTHENTICATED } else { AUTHENTICATED };
        if !user.in_group(AUTHENTICATED) && !user.in_group(UNAUTHENTICATED) {
            user.groups.push(everybody.to_owned());
        }
        for (key, value) in self.extra {
            user.extra.entry(key).or_default().push(value);
        }
        user
    }
}

fn text(value: &HeaderValue) -> String {
    value.to_str().map(str::to_owned).unwrap_or_default()
}
