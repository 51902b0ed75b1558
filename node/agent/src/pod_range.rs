//! Whether the node's Pod range has an address for each of the Pods that the node takes. The range of a node that joins comes from the
//! API server, so the flags alone do not contradict each other at the start.

use ipnet::Ipv4Net;

use crate::error::AgentError;

/// The widest range that a server gives to a node.
const WIDEST: u8 = 16;

/// Rejects a maximum number of Pods for which the range has no addresses. The error names what to set instead.
pub(crate) fn check(range: Ipv4Net, pods_max: u32) -> Result<(), AgentError> {
    let addresses = node_network::pod_addresses(range);
    if pods_max <= addresses {
        return Ok(());
    }
    let addresses_of = |mask_size: u8| Ipv4Net::new(range.network(), mask_size).map_or(0, node_network::pod_addresses);
    let fits = (WIDEST..range.prefix_len()).rev().find(|mask_size| addresses_of(*mask_size) >= pods_max);
    let wider = fits.map_or_else(String::new, |mask_size| {
        format!(", or set --node-cidr-mask-size={mask_size} of the server and delete the Node: a Node that has a range keeps it")
    });
    Err(AgentError::MaxPods { pods_max, addresses, range, wider })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_takes_no_more_pods_than_its_range_has_addresses() {
        let say = |range: &str, pods_max| {
            let checked = check(range.parse().expect("a range"), pods_max);
            checked.err().map_or_else(|| "ok".to_owned(), |error| error.to_string())
        };
        let more = |pods_max: u32, range: &str, addresses: u32, wider: &str| {
            let problem = format!("--max-pods {pods_max} is more than the {addresses} addresses of the node's Pod range {range}");
            format!("{problem}: set --max-pods={addresses}{wider}")
        };
        let wider = |mask_size: u8| {
            format!(", or set --node-cidr-mask-size={mask_size} of the server and delete the Node: a Node that has a range keeps it")
        };
        let cases = [
            ("10.244.1.0/24", 253, "ok".to_owned()),
            ("10.244.1.0/24", 254, more(254, "10.244.1.0/24", 253, &wider(23))),
            ("10.244.1.0/24", 5_000, more(5_000, "10.244.1.0/24", 253, &wider(19))),
            ("10.244.32.0/19", 8_189, "ok".to_owned()),
            ("10.244.0.0/16", 100_000, more(100_000, "10.244.0.0/16", 65_533, "")),
        ];
        for (range, pods_max, expected) in cases {
            assert_eq!(say(range, pods_max), expected);
        }
    }
}
