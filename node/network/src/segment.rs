//! The bridges that a node's Pods hang on. The kernel gives a bridge 1,023 ports at most, so a wide Pod range is divided into segments,
//! each with a bridge of its own. All bridges have the node's one hardware address towards Pods, and Pods reach each other through
//! the node's routing anyway: a Pod cannot tell in which segment it is.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

/// The prefix length of a segment: 512 addresses.
const PREFIX_LEN: u8 = 23;

/// A part of the node's Pod range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) range: Ipv4Net,
    /// The bridge of its Pods. The name of the first segment's has no number.
    pub(crate) bridge: String,
    /// The bridge's permanent port, which keeps the bridge's carrier, and the other end of it.
    pub(crate) carrier: [String; 2],
}

/// The segments of a Pod range, in the order of their addresses.
pub(crate) fn all(prefix: &str, pod_cidr: Ipv4Net) -> Vec<Segment> {
    let ranges = match pod_cidr.subnets(PREFIX_LEN) {
        Ok(ranges) => ranges.collect(),
        // The range is not wider than one segment.
        Err(_) => vec![pod_cidr],
    };
    ranges.into_iter().enumerate().map(|(number, range)| segment(prefix, number, range)).collect()
}

/// The bridge of the Pod with that address.
pub(crate) fn bridge(prefix: &str, pod_cidr: Ipv4Net, ip: Ipv4Addr) -> String {
    let number = u32::from(ip).saturating_sub(u32::from(pod_cidr.network())) >> (32 - PREFIX_LEN);
    interface(prefix, "br", number as usize)
}

/// Whether an interface's name, without the cluster's prefix, is one of a segment's.
pub(crate) fn owns(rest: &str) -> bool {
    let numbered = ["-br", "-port", "-peer"].iter().find_map(|kind| rest.strip_prefix(kind));
    numbered.is_some_and(|number| number.len() <= 2 && number.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'a'..=b'f')))
}

fn segment(prefix: &str, number: usize, range: Ipv4Net) -> Segment {
    let name = |kind: &str| interface(prefix, kind, number);
    Segment { range, bridge: name("br"), carrier: [name("port"), name("peer")] }
}

/// The name of an interface of a segment. Two hexadecimal digits are enough: a node's range is not wider than /16.
fn interface(prefix: &str, kind: &str, number: usize) -> String {
    if number == 0 { format!("{prefix}-{kind}") } else { format!("{prefix}-{kind}{number:x}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wide_range_has_a_bridge_for_each_segment() {
        let lines = |range: &str| {
            let segments = all("skiff123", range.parse().expect("a range"));
            let line = |one: &Segment| format!("{} {} {}", one.range, one.bridge, one.carrier.join(" "));
            segments.iter().map(line).collect::<Vec<_>>()
        };
        assert_eq!(lines("10.244.7.0/24"), ["10.244.7.0/24 skiff123-br skiff123-port skiff123-peer"]);
        assert_eq!(lines("10.244.6.0/23"), ["10.244.6.0/23 skiff123-br skiff123-port skiff123-peer"]);
        assert_eq!(
            lines("10.244.4.0/22"),
            ["10.244.4.0/23 skiff123-br skiff123-port skiff123-peer", "10.244.6.0/23 skiff123-br1 skiff123-port1 skiff123-peer1"]
        );
        let widest = all("skiff123", "10.244.0.0/16".parse().expect("a range"));
        assert_eq!(widest.len(), 128);
        for segment in &widest {
            for ip in [segment.range.network(), segment.range.broadcast()] {
                assert_eq!(bridge("skiff123", "10.244.0.0/16".parse().expect("a range"), ip), segment.bridge);
            }
            for name in segment.carrier.iter().chain([&segment.bridge]) {
                assert!(name.len() < 16 && owns(name.strip_prefix("skiff123").expect("the prefix")), "{name}");
            }
        }
        assert_eq!(bridge("sk1", "10.244.7.0/24".parse().expect("a range"), Ipv4Addr::new(10, 244, 7, 200)), "sk1-br");
        assert!(!owns("-br1ff") && !owns("-brx") && !owns("-dns") && !owns("v0af4"));
    }
}
