//! Parses a name of the cluster into what it names.

use std::net::IpAddr;

use hickory_proto::rr::Name;

use super::Key;

/// The forms of names; labels are in lower case.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NameForm {
    /// Not under the domain, and no reverse name.
    Foreign,
    /// Under the domain, of no known form.
    Nothing,
    /// The domain itself.
    Apex,
    /// `dns-version.<domain>`.
    Version,
    /// `ns.dns.<domain>`.
    NameServer,
    /// `svc.<domain>` and the like: parts of other names.
    Between,
    /// `<namespace>.svc.<domain>` and `<namespace>.pod.<domain>`.
    Namespace(String),
    /// `<label>.<namespace>.pod.<domain>`.
    Pod { label: String, namespace: String },
    /// Names under a Service's.
    Service { service: Key, of: ServicePart },
    /// A reverse name of one address.
    Reverse(IpAddr),
}

/// The name under a Service's.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ServicePart {
    Itself,
    /// `<label>.<service>…`.
    Endpoint(String),
    /// `_tcp.<service>…`: a part of other names.
    Protocol(String),
    /// `_<port>._<protocol>.<service>…`.
    Port {
        port: String,
        protocol: String,
    },
}

/// Reads a name; case does not matter.
pub(super) fn read(name: &Name, domain: &Name) -> NameForm {
    if !domain.zone_of(name) {
        return reverse(name).map_or(NameForm::Foreign, NameForm::Reverse);
    }
    let depth = name.iter().count().saturating_sub(domain.iter().count());
    let labels: Option<Vec<String>> =
        name.iter().take(depth).map(|label| std::str::from_utf8(label).ok().map(str::to_ascii_lowercase)).collect();
    let Some(labels) = labels else { return NameForm::Nothing };
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    match labels.as_slice() {
        [] => NameForm::Apex,
        ["dns-version"] => NameForm::Version,
        ["ns", "dns"] => NameForm::NameServer,
        ["svc" | "pod" | "dns"] => NameForm::Between,
        [namespace, "svc" | "pod"] => NameForm::Namespace((*namespace).to_owned()),
        [label, namespace, "pod"] => NameForm::Pod { label: (*label).to_owned(), namespace: (*namespace).to_owned() },
        [rest @ .., service, namespace, "svc"] => match under(rest) {
            Some(of) => NameForm::Service { service: ((*namespace).to_owned(), (*service).to_owned()), of },
            None => NameForm::Nothing,
        },
        _ => NameForm::Nothing,
    }
}

fn under(labels: &[&str]) -> Option<ServicePart> {
    match labels {
        [] => Some(ServicePart::Itself),
        [one] => Some(match one.strip_prefix('_') {
            Some(protocol) => ServicePart::Protocol(protocol.to_owned()),
            None => ServicePart::Endpoint((*one).to_owned()),
        }),
        [port, protocol] => {
            Some(ServicePart::Port { port: port.strip_prefix('_')?.to_owned(), protocol: protocol.strip_prefix('_')?.to_owned() })
        }
        _ => None,
    }
}

/// The address of a complete reverse name; a name of a part of an address has no owner.
fn reverse(name: &Name) -> Option<IpAddr> {
    let range = name.parse_arpa_name().ok()?;
    (range.prefix_len() == range.max_prefix_len()).then(|| range.addr())
}
