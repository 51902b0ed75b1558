//! Bootstrap tokens such as `abcdef.0123456789abcdef`. They are stored in kube-system as Secrets of type
//! `bootstrap.kubernetes.io/token`. A new node requests its certificate with such a token.

use api_model::kind::GroupResource;
use api_model::meta;
use api_model::request::UserInfo;
use api_model::view::View;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;

const GROUP: &str = "system:bootstrappers";
const ID_LEN: usize = 6;
const SECRET_LEN: usize = 16;
const EXTRA_GROUP_LEN_MAX: usize = 256;

/// The user of a stored token that is not expired and allows authentication.
pub fn user(token: &str, view: &dyn View, now: Timestamp) -> Option<UserInfo> {
    let (id, secret) = token.split_once('.')?;
    if !plain(id, ID_LEN) || !plain(secret, SECRET_LEN) {
        return None;
    }
    let object = view.get(&GroupResource::new("", "secrets"), Some("kube-system"), &format!("bootstrap-token-{id}"))?;
    let is_token = object.get("type").and_then(Value::as_str) == Some("bootstrap.kubernetes.io/token");
    if !is_token || meta::is_deleting(&object) {
        return None;
    }
    let good = same(&field(&object, "token-secret")?, secret) && field(&object, "token-id")? == id && !expired(&object, now);
    if !good || field(&object, "usage-bootstrap-authentication").as_deref() != Some("true") {
        return None;
    }
    let mut groups = vec![GROUP.to_owned()];
    let extra = field(&object, "auth-extra-groups").unwrap_or_default();
    for group in extra.split(',').filter(|g| !g.is_empty()) {
        if !extra_group(group) {
            return None;
        }
        groups.push(group.to_owned());
    }
    Some(UserInfo { username: format!("system:bootstrap:{id}"), groups, ..UserInfo::default() })
}

fn plain(text: &str, len: usize) -> bool {
    text.len() == len && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
}

/// Whether the group matches `system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]`.
fn extra_group(group: &str) -> bool {
    let Some(rest) = group.strip_prefix("system:bootstrappers:") else { return false };
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    rest.len() <= EXTRA_GROUP_LEN_MAX
        && rest.bytes().last().is_some_and(plain)
        && rest.bytes().all(|b| plain(b) || matches!(b, b':' | b'-'))
}

fn field(secret: &Value, key: &str) -> Option<String> {
    let bytes = STANDARD.decode(secret.get("data")?.get(key)?.as_str()?).ok()?;
    String::from_utf8(bytes).ok()
}

/// An expiration that does not parse counts as past.
fn expired(secret: &Value, now: Timestamp) -> bool {
    field(secret, "expiration").is_some_and(|at| at.parse::<Timestamp>().map_or(true, |at| at <= now))
}

/// Compares in constant time.
fn same(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |acc, (x, y)| acc | (x ^ y)) == 0
}
