//! Functions of URLs: `url`, `isURL`, `getHost` and so on.

use std::collections::BTreeMap;
use std::sync::Arc;

use api_model::percent;

use super::CallResult;
use crate::meter::Meter;
use crate::url::{is_url, parse, split_host, unescape};
use crate::value::{Key, Value};

/// Calls a function of URLs.
pub(super) fn call<'v>(function: &str, args: &[Value<'v>], meter: &mut Meter) -> CallResult<'v> {
    let value = match (function, args) {
        ("url", [Value::String(text)]) => {
            meter.pay_text(text.len() as u64)?;
            Value::Url(Arc::new(parse(text)?))
        }
        ("isURL", [Value::String(text)]) => {
            meter.pay_text(text.len() as u64)?;
            Value::Bool(is_url(text))
        }
        (_, [Value::Url(url)]) => {
            meter.pay(1)?;
            match function {
                "getScheme" => Value::from(url.scheme.as_str()),
                "getHost" => Value::from(url.host.as_str()),
                "getHostname" => Value::from(split_host(&url.host).0),
                "getPort" => Value::from(split_host(&url.host).1),
                "getEscapedPath" => Value::from(percent::encode(&url.path, percent::PATH)),
                "getQuery" => {
                    meter.pay_text(url.query.len() as u64)?;
                    query(&url.query)
                }
                _ => return Ok(None),
            }
        }
        _ => return Ok(None),
    };
    Ok(Some(value))
}

/// The values of a query by name.
fn query<'v>(query: &str) -> Value<'v> {
    let mut found: BTreeMap<Key, Vec<Value<'v>>> = BTreeMap::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let plain = |text: &str| unescape(&text.replace('+', " "));
        if let (Some(name), Some(value)) = (plain(name), plain(value)) {
            found.entry(Key::String(name.into())).or_default().push(Value::from(value));
        }
    }
    Value::Map(Arc::new(found.into_iter().map(|(name, values)| (name, Value::list(values))).collect()))
}
