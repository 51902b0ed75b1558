//! The URL of a request, and the URL to which an answer redirects it. Pure.

/// Scheme, host, port and path of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestUrl {
    pub(super) secure: bool,
    pub(super) host: String,
    pub(super) port: u16,
    /// With its query.
    pub(super) path: String,
}

impl std::fmt::Display for RequestUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}:{}{}", if self.secure { "https" } else { "http" }, self.host, self.port, self.path)
    }
}

/// The target of a `Location`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A URL of the same host. With `relative` the `Location` did not name the host: then the probe's `Host` header is sent
    /// again.
    Here {
        /// The URL.
        url: RequestUrl,
        /// Whether the `Location` has a path only.
        relative: bool,
    },
    /// Another host, or a URL that is not HTTP: upstream does not follow it, and the answer itself counts.
    Elsewhere,
}

impl RequestUrl {
    /// Follows a `Location` header.
    pub(super) fn follow(&self, location: &str) -> Next {
        let location = location.split('#').next().unwrap_or_default();
        let absolute = |secure: bool, rest: &str| self.absolute(secure, rest);
        if let Some((scheme, rest)) = location.split_once("://").filter(|(scheme, _)| !scheme.contains(['/', '?'])) {
            return match scheme.to_ascii_lowercase().as_str() {
                "http" => absolute(false, rest),
                "https" => absolute(true, rest),
                _ => Next::Elsewhere,
            };
        }
        if let Some(rest) = location.strip_prefix("//") {
            return absolute(self.secure, rest);
        }
        let (plain, _) = self.path.split_once('?').unwrap_or((&self.path, ""));
        let path = match location.chars().next() {
            None => self.path.clone(),
            Some('/') => location.to_owned(),
            Some('?') => format!("{plain}{location}"),
            Some(_) => format!("{}/{location}", plain.rsplit_once('/').map_or("", |(folder, _)| folder)),
        };
        Next::Here { url: Self { path, ..self.clone() }, relative: true }
    }

    fn absolute(&self, secure: bool, rest: &str) -> Next {
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().ok()),
            None => (authority, Some(if secure { 443 } else { 80 })),
        };
        match port {
            Some(port) if host.eq_ignore_ascii_case(&self.host) => {
                let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
                Next::Here { url: Self { secure, host: self.host.clone(), port, path }, relative: false }
            }
            _ => Next::Elsewhere,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_followed_on_the_same_host_only() {
        let from = RequestUrl { secure: false, host: "10.0.0.5".to_owned(), port: 8080, path: "/a/b?x=1".to_owned() };
        let show = |location: &str| match from.follow(location) {
            Next::Here { url, relative } => format!("{location:<28} {url}{}", if relative { " (relative)" } else { "" }),
            Next::Elsewhere => format!("{location:<28} elsewhere"),
        };
        let lines: Vec<String> = [
            "/ready",
            "c?y=2#part",
            "?y=2",
            "//10.0.0.5/x",
            "http://10.0.0.5:9090/x",
            "HTTPS://10.0.0.5",
            "http://10.0.0.5?q",
            "http://example.org/",
            "http://10.0.0.5:x/",
            "ftp://10.0.0.5/",
        ]
        .into_iter()
        .map(show)
        .collect();
        insta::assert_snapshot!(lines.join("\n"), @r"
        /ready                       http://10.0.0.5:8080/ready (relative)
        c?y=2#part                   http://10.0.0.5:8080/a/c?y=2 (relative)
        ?y=2                         http://10.0.0.5:8080/a/b?y=2 (relative)
        //10.0.0.5/x                 http://10.0.0.5:80/x
        http://10.0.0.5:9090/x       http://10.0.0.5:9090/x
        HTTPS://10.0.0.5             https://10.0.0.5:443/
        http://10.0.0.5?q            http://10.0.0.5:80/?q
        http://example.org/          elsewhere
        http://10.0.0.5:x/           elsewhere
        ftp://10.0.0.5/              elsewhere
        ");
    }
}
