//! To whom a guest may connect.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// One entry of the list: a host, and a port or all ports. As text `HOST` or `HOST:PORT`, where the host is `*`, a name, `*.` and the end of
/// names, an address, or a network; one of IPv6 before a port has brackets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OutboundHost {
    host: HostPattern,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum HostPattern {
    Every,
    /// In lower case, without a dot at its end.
    Name(String),
    /// Names that end with a dot and this.
    Below(String),
    Network(IpNet),
}

impl OutboundHost {
    /// Whether it is for this host, by the name or the address that a guest wrote, at this port.
    pub fn allows_host(&self, host: &str, port: u16) -> bool {
        let host = normal(host);
        let is_host = match &self.host {
            HostPattern::Every => true,
            HostPattern::Name(name) => host == *name,
            HostPattern::Below(end) => host.strip_suffix(end.as_str()).is_some_and(|below| below.len() > 1 && below.ends_with('.')),
            HostPattern::Network(_) => return unbracketed(&host).parse().is_ok_and(|address| self.allows_address(address, port)),
        };
        is_host && self.is_for_port(port)
    }

    /// Whether it is for this address by itself, at this port.
    pub fn allows_address(&self, address: IpAddr, port: u16) -> bool {
        let is_address = match &self.host {
            HostPattern::Every => true,
            HostPattern::Network(network) => network.contains(&address.to_canonical()),
            HostPattern::Name(_) | HostPattern::Below(_) => false,
        };
        is_address && self.is_for_port(port)
    }

    /// The name whose addresses it is for, at this port.
    pub fn name(&self, port: u16) -> Option<&str> {
        match &self.host {
            HostPattern::Name(name) if self.is_for_port(port) => Some(name),
            _ => None,
        }
    }

    /// Whether a guest needs names for it.
    pub fn needs_names(&self) -> bool {
        !matches!(self.host, HostPattern::Network(_))
    }

    fn is_for_port(&self, port: u16) -> bool {
        self.port.is_none_or(|own| own == port)
    }
}

/// Names are compared without regard to case, and the root's dot says nothing.
fn normal(host: &str) -> String {
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

fn unbracketed(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

impl FromStr for OutboundHost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (host, port) = match text.rsplit_once(':') {
            // Several colons without brackets: an address of IPv6.
            Some((host, _)) if host.contains(':') && !host.ends_with(']') => (text, None),
            Some((host, port)) if !text.ends_with(']') => (host, Some(port)),
            _ => (text, None),
        };
        let port = match port {
            Some(port) => {
                let number = port.parse().ok().filter(|&number: &u16| number > 0);
                Some(number.ok_or_else(|| format!("{text:?}: {port:?} is not a port"))?)
            }
            None => None,
        };
        let host = host.parse().map_err(|()| format!("{text:?} is not a name, *.NAME, an address, a network or *"))?;
        Ok(Self { host, port })
    }
}

impl FromStr for HostPattern {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if text == "*" {
            return Ok(Self::Every);
        }
        let bare = unbracketed(text);
        if let Ok(address) = bare.parse::<IpAddr>() {
            return Ok(Self::Network(address.to_canonical().into()));
        }
        if let Ok(network) = bare.parse::<IpNet>() {
            return Ok(Self::Network(network));
        }
        let (name, is_below) = text.strip_prefix("*.").map_or((text, false), |end| (end, true));
        let name = normal(name);
        let is_label = |label: &str| !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        // Four numbers that are no address are a mistake, and no name.
        let is_name = name.split('.').all(is_label) && !name.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        match (is_name, is_below) {
            (false, _) => Err(()),
            (true, true) => Ok(Self::Below(name)),
            (true, false) => Ok(Self::Name(name)),
        }
    }
}

impl fmt::Display for OutboundHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.host, self.port) {
            (HostPattern::Every, _) => f.write_str("*"),
            (HostPattern::Name(name), _) => f.write_str(name),
            (HostPattern::Below(end), _) => write!(f, "*.{end}"),
            (HostPattern::Network(network @ IpNet::V6(_)), Some(_)) => write!(f, "[{network}]"),
            (HostPattern::Network(network), _) => write!(f, "{network}"),
        }?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl TryFrom<String> for OutboundHost {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<OutboundHost> for String {
    fn from(host: OutboundHost) -> Self {
        host.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> OutboundHost {
        text.parse().expect(text)
    }

    #[test]
    fn entries_are_read_and_written() {
        for (text, written) in [
            ("*", "*"),
            ("*:443", "*:443"),
            ("Api.Example.com.", "api.example.com"),
            ("api.example.com:80", "api.example.com:80"),
            ("*.example.com", "*.example.com"),
            ("10.96.0.10:53", "10.96.0.10/32:53"),
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("::1", "::1/128"),
            ("[::1]:80", "[::1/128]:80"),
            ("[fd00::/8]:80", "[fd00::/8]:80"),
            ("fd00::/8", "fd00::/8"),
        ] {
            let read = host(text);
            assert_eq!(read.to_string(), written);
            assert_eq!(host(written), read);
        }
        for text in
            ["", ":80", "a:0", "a:http", "a:70000", "a b", "http://a", "*a", "a..b", "10.0.0", "10.0.0.256", "*.*", "10.0.0.0/33", "*."]
        {
            assert!(text.parse::<OutboundHost>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_host_is_allowed_by_its_name_or_address() {
        for (entry, name, port, wanted) in [
            ("*", "a.b", 1, true),
            ("*:443", "a.b", 80, false),
            ("a.b", "A.B.", 80, true),
            ("a.b:80", "a.b", 81, false),
            ("a.b", "x.a.b", 80, false),
            ("*.a.b", "x.a.b", 80, true),
            ("*.a.b", "x.y.a.b", 80, true),
            ("*.a.b", "a.b", 80, false),
            ("*.a.b", ".a.b", 80, false),
            ("*.a.b", "xa.b", 80, false),
            ("10.0.0.0/8", "10.1.2.3", 80, true),
            ("10.0.0.0/8", "ten.example", 80, false),
            ("[::1]:80", "[::1]", 80, true),
        ] {
            assert_eq!(host(entry).allows_host(name, port), wanted, "{entry} {name}:{port}");
        }
        let allows = |entry: &str, address: &str| host(entry).allows_address(address.parse().expect(address), 80);
        assert!(allows("10.0.0.0/8", "10.1.2.3") && allows("10.0.0.0/8", "::ffff:10.1.2.3") && allows("*", "1.2.3.4"));
        assert!(!allows("10.0.0.0/8", "11.0.0.0") && !allows("a.b", "10.1.2.3") && !allows("*.a.b", "10.1.2.3"));
    }
}
