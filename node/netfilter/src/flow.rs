//! UDP has no end of connection: the kernel sends the datagrams of a sender that keeps its port where the first one went, also
//! after the rules changed. This module deletes such flows, so that the next datagram meets the present rules.

use std::net::Ipv4Addr;

use crate::tool::{NetfilterError, run};

const MISSING: &str =
    "the conntrack command is missing, and UDP clients may keep speaking to endpoints that are gone: install the package conntrack";

/// UDP flows by their common properties. `None` matches any value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// The port that the sender addressed.
    pub port: u16,
    /// The address that the sender addressed.
    pub destination: Option<Ipv4Addr>,
    /// The source address of the answers.
    pub reply_source: Option<Ipv4Addr>,
    /// The source port of the answers.
    pub reply_port: Option<u16>,
}

impl Flow {
    /// Deletes these flows in the kernel. It is no error when there is none.
    pub fn forget(&self) -> Result<(), NetfilterError> {
        let arguments = self.arguments();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        // conntrack fails when no flow matches.
        run("conntrack", &arguments, "", MISSING).map(drop)
    }

    fn arguments(&self) -> Vec<String> {
        let mut words: Vec<String> = ["-D", "-p", "udp", "--orig-port-dst"].map(str::to_owned).into();
        words.push(self.port.to_string());
        let more = [
            ("--orig-dst", self.destination.map(|ip| ip.to_string())),
            ("--reply-src", self.reply_source.map(|ip| ip.to_string())),
            ("--reply-port-src", self.reply_port.map(|port| port.to_string())),
        ];
        words.extend(more.into_iter().filter_map(|(name, value)| Some([name.to_owned(), value?])).flatten());
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_are_named_as_narrowly_as_they_can_be() {
        let line = |flow: Flow| flow.arguments().join(" ");
        let all = Flow { port: 53, ..Flow::default() };
        assert_eq!(line(all), "-D -p udp --orig-port-dst 53");
        let (host, pod) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(10, 244, 0, 2));
        let one = Flow { destination: Some(host), reply_source: Some(pod), reply_port: Some(5353), ..all };
        assert_eq!(line(one), "-D -p udp --orig-port-dst 53 --orig-dst 192.0.2.1 --reply-src 10.244.0.2 --reply-port-src 5353");
    }
}
