//! Parses request paths as upstream's `RequestInfo` does.

use std::borrow::Cow;

use api_model::percent;

/// A path of a resource: `/api/v1/namespaces/NS/pods/NAME/log` and its kin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourcePath {
    /// API group; empty for core.
    pub group: String,
    /// API version.
    pub version: String,
    /// The namespace in the path; empty without one.
    pub namespace: String,
    /// Plural name of the resource.
    pub plural: String,
    /// Object name; empty for the collection.
    pub name: String,
    /// The subresource; empty without one.
    pub subresource: String,
    /// The path after the subresource, with its leading slash, undecoded: the target of a proxy.
    pub rest: String,
    /// The deprecated `/watch/` prefix.
    pub watch: bool,
}

/// Subresources of a namespace itself; any other third segment is a resource in the namespace.
const NAMESPACE_SUBRESOURCES: &[&str] = &["finalize", "status"];

/// Subresources that are connections rather than data.
const CONNECTIONS: &[&str] = &["attach", "exec", "log", "portforward", "proxy"];

/// Whether requests for it stay open for as long as they like.
pub fn is_connection(subresource: &str) -> bool {
    CONNECTIONS.contains(&subresource)
}

/// Parses a path; `None` when it is not a resource's.
pub fn parse(path: &str) -> Option<ResourcePath> {
    let mut segments = Segments { rest: path.strip_prefix('/')?, has_gap: false };
    // The rest after an empty segment (`//`) must not be ignored: the path would name something larger.
    taken_apart(path, &mut segments).filter(|_| !segments.has_gap)
}

fn taken_apart(path: &str, segments: &mut Segments<'_>) -> Option<ResourcePath> {
    let group = match segments.next()? {
        "api" => String::new(),
        "apis" => decode(segments.next()?)?,
        _ => return None,
    };
    let version = decode(segments.next()?)?;
    let mut first = segments.next()?;
    let watch = first == "watch";
    if watch {
        first = segments.next()?;
    }
    let mut found = ResourcePath { group, version, watch, ..ResourcePath::default() };
    let plural = if first == "namespaces" && (found.group.is_empty() || segments.has_two_more()) {
        let Some(namespace) = segments.next() else {
            found.plural = "namespaces".to_owned();
            return Some(found);
        };
        found.namespace = decode(namespace)?;
        match segments.next() {
            None => return Some(of_namespace(found, "")),
            Some(sub) if NAMESPACE_SUBRESOURCES.contains(&sub) && segments.rest.is_empty() => return Some(of_namespace(found, sub)),
            Some(plural) => plural,
        }
    } else {
        first
    };
    found.plural = decode(plural)?;
    found.name = segments.next().map(decode_name).unwrap_or(Some(String::new()))?;
    found.subresource = segments.next().map(decode).unwrap_or(Some(String::new()))?;
    if !segments.rest.is_empty() || path.ends_with('/') && !found.subresource.is_empty() {
        found.rest = format!("/{}", segments.rest);
    }
    Some(found)
}

impl ResourcePath {
    /// Why the name is invalid: upstream's `IsValidPathSegmentName`.
    pub fn name_fault(&self) -> Option<&'static str> {
        match self.name.as_str() {
            "." => Some("may not be '.'"),
            ".." => Some("may not be '..'"),
            name => name.contains('%').then_some("may not contain '%'"),
        }
    }
}

fn of_namespace(mut found: ResourcePath, subresource: &str) -> ResourcePath {
    found.plural = "namespaces".to_owned();
    found.name = found.namespace.clone();
    found.subresource = subresource.to_owned();
    found
}

struct Segments<'a> {
    rest: &'a str,
    /// There was an empty segment before the end.
    has_gap: bool,
}

impl<'a> Segments<'a> {
    /// The next segment; `None` at the end, and at an empty segment.
    fn next(&mut self) -> Option<&'a str> {
        let (segment, rest) = self.rest.split_once('/').unwrap_or((self.rest, ""));
        self.rest = rest;
        self.has_gap |= segment.is_empty() && !rest.is_empty();
        (!segment.is_empty()).then_some(segment)
    }

    fn has_two_more(&self) -> bool {
        self.rest.split('/').filter(|segment| !segment.is_empty()).count() >= 2
    }
}

/// A segment with `%XX` decoded. Segments that could lead elsewhere (`..`, a slash) are no names.
fn decode(segment: &str) -> Option<String> {
    decode_name(segment).filter(|decoded| !matches!(decoded.as_str(), "." | ".."))
}

/// [`decode`] of an object's name, which may also be `.` or `..`: the caller reports what is wrong with the name.
fn decode_name(segment: &str) -> Option<String> {
    let decoded = percent_decode(segment, false)?;
    (!decoded.contains(['/', '\0'])).then(|| decoded.into_owned())
}

/// Decodes percent escapes, and `+` as a space where `plus` is set; `None` when an escape is malformed or the result is not
/// UTF-8.
pub fn percent_decode(text: &str, plus: bool) -> Option<Cow<'_, str>> {
    match percent_bytes(text, plus)? {
        Cow::Borrowed(_) => Some(Cow::Borrowed(text)),
        Cow::Owned(bytes) => String::from_utf8(bytes).ok().map(Cow::Owned),
    }
}

/// [`percent_decode`] to any bytes: `None` only when an escape is malformed.
pub fn percent_bytes(text: &str, plus: bool) -> Option<Cow<'_, [u8]>> {
    if plus && text.contains('+') {
        return percent::decode(&text.replace('+', " ")).map(|bytes| Cow::Owned(bytes.into_owned()));
    }
    percent::decode(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_what_upstream_reads_in_them() {
        let cases = [
            ("/api/v1/namespaces", "core v1 ns= namespaces name= sub= rest="),
            ("/api/v1/namespaces/a", "core v1 ns=a namespaces name=a sub= rest="),
            ("/api/v1/namespaces/a/finalize", "core v1 ns=a namespaces name=a sub=finalize rest="),
            ("/api/v1/namespaces/a/pods", "core v1 ns=a pods name= sub= rest="),
            ("/api/v1/namespaces/a/pods/b/log", "core v1 ns=a pods name=b sub=log rest="),
            ("/api/v1/namespaces/a/pods/b/", "core v1 ns=a pods name=b sub= rest="),
            ("/api/v1/pods", "core v1 ns= pods name= sub= rest="),
            ("/api/v1/nodes/n/proxy/stats/summary", "core v1 ns= nodes name=n sub=proxy rest=/stats/summary"),
            ("/api/v1/nodes/n/proxy/", "core v1 ns= nodes name=n sub=proxy rest=/"),
            ("/apis/apps/v1/deployments", "apps v1 ns= deployments name= sub= rest="),
            ("/apis/apps/v1/namespaces/a/deployments/d/scale", "apps v1 ns=a deployments name=d sub=scale rest="),
            (
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
                "rbac.authorization.k8s.io v1 ns= clusterroles name=system:node sub= rest=",
            ),
        ];
        for (path, expected) in cases {
            let p = parse(path).unwrap_or_else(|| panic!("{path}"));
            let group = if p.group.is_empty() { "core" } else { &p.group };
            let text =
                format!("{group} {} ns={} {} name={} sub={} rest={}", p.version, p.namespace, p.plural, p.name, p.subresource, p.rest);
            assert_eq!(text, expected, "{path}");
        }
    }

    #[test]
    fn tricks_name_nothing() {
        for path in [
            "/",
            "/api",
            "/api/v1",
            "/apis/apps/v1",
            "/healthz",
            "/api/v1/namespaces/../pods",
            "/api/v1/namespaces/a%2Fb/pods",
            "/api/v1/namespaces/%zz/pods",
            "/api/v1/namespaces/%2e%2e/pods/p",
            "/api/v1/namespaces/a/%2e%2e/p",
            "/api/v1/namespaces/a/pods/%00",
            "/api/v1/namespaces/a/pods/%ff",
            "/api/v1/namespaces/a/pods/p%2flog",
            "/api/v1//pods",
            "/api/v1/namespaces//pods",
            "/api/v1/namespaces/a//pods/b",
            "/api/v1/namespaces/a/pods//b",
            "/api/v1/namespaces/a/pods/b//log",
            "//api/v1/pods",
        ] {
            assert_eq!(parse(path), None, "{path}");
        }
    }

    #[test]
    fn the_old_watch_prefix_is_known() {
        let p = parse("/api/v1/watch/namespaces/a/pods").expect("a resource");
        assert!(p.watch);
        assert_eq!((p.namespace.as_str(), p.plural.as_str()), ("a", "pods"));
    }
}
