//! The user of a client: the subject of its verified certificate, as Kubernetes reads it.

use api_model::request::UserInfo;
use rustls::ServerConnection;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The user of a connection; `None` when its certificate names no user.
pub(super) fn user(connection: &ServerConnection) -> Option<UserInfo> {
    let leaf = connection.peer_certificates()?.first()?;
    let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
    let subject = certificate.subject();
    let username = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let groups: Vec<String> = subject.iter_organization().filter_map(|name| name.as_str().ok().map(str::to_owned)).collect();
    let mut user = UserInfo { username, groups, ..UserInfo::default() };
    user.groups.push("system:authenticated".to_owned());
    Some(user)
}
