//! The Pod ranges of nodes: parts of the cluster's range that have a common size.

use anyhow::bail;
use ipnet::Ipv4Net;

/// The widest range of a node: more Pods than any machine runs.
const WIDEST: u8 = 16;
/// The narrowest range of a node that has an address for a Pod.
const NARROWEST: u8 = 30;
/// Upstream's limit of the number of ranges: two to the power of this.
const PARTS_MAX_LOG2: u8 = 16;

/// The prefix length of nodes' ranges, if the range of the cluster can be divided by it.
pub fn checked(cluster_cidr: Ipv4Net, mask_size: u8) -> anyhow::Result<u8> {
    let narrowest = cluster_cidr.prefix_len().saturating_add(PARTS_MAX_LOG2).min(NARROWEST);
    let widest = cluster_cidr.prefix_len().max(WIDEST);
    if !(widest..=narrowest).contains(&mask_size) {
        bail!("--node-cidr-mask-size {mask_size} must be from {widest} to {narrowest} with --cluster-cidr {cluster_cidr}");
    }
    Ok(mask_size)
}

/// Refuses a maximum number of Pods for which the node's range has no addresses.
pub fn check_max_pods(cluster_cidr: Ipv4Net, mask_size: u8, max_pods: u32) -> anyhow::Result<()> {
    let addresses = |mask_size| Ipv4Net::new(cluster_cidr.network(), mask_size).map_or(0, node_network::pod_addresses);
    let present = addresses(checked(cluster_cidr, mask_size)?);
    if max_pods <= present {
        return Ok(());
    }
    let fits = (cluster_cidr.prefix_len().max(WIDEST)..mask_size).rev().find(|mask_size| addresses(*mask_size) >= max_pods);
    let remedy = match fits {
        Some(fits) => format!("set --node-cidr-mask-size={fits}, or --max-pods={present}"),
        None => format!("set --max-pods={present}, or a wider --cluster-cidr and --node-cidr-mask-size"),
    };
    bail!(
        "--max-pods {max_pods} is more than the {present} addresses of the node's Pod range (/{mask_size}): {remedy}. A Node that has a range \
         keeps it"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_an_address_for_each_pod() {
        let say = |cluster: &str, mask_size, max_pods| {
            let checked = check_max_pods(cluster.parse().expect("a range"), mask_size, max_pods);
            checked.err().map_or_else(|| "ok".to_owned(), |error| error.to_string())
        };
        let more = |remedy: &str| {
            format!("is more than the 253 addresses of the node's Pod range (/24): set {remedy}. A Node that has a range keeps it")
        };
        let size = |mask_size: u8, cluster: &str, from: u8, to: u8| {
            format!("--node-cidr-mask-size {mask_size} must be from {from} to {to} with --cluster-cidr {cluster}")
        };
        let cases = [
            ("10.244.0.0/16", 24, 253, "ok".to_owned()),
            ("10.244.0.0/16", 24, 254, format!("--max-pods 254 {}", more("--node-cidr-mask-size=23, or --max-pods=253"))),
            ("10.244.0.0/16", 24, 5_000, format!("--max-pods 5000 {}", more("--node-cidr-mask-size=19, or --max-pods=253"))),
            ("10.244.0.0/16", 19, 8_189, "ok".to_owned()),
            (
                "10.244.0.0/24",
                24,
                300,
                format!("--max-pods 300 {}", more("--max-pods=253, or a wider --cluster-cidr and --node-cidr-mask-size")),
            ),
            ("10.244.0.0/16", 15, 110, size(15, "10.244.0.0/16", 16, 30)),
            ("10.244.0.0/16", 31, 1, size(31, "10.244.0.0/16", 16, 30)),
            ("10.0.0.0/8", 25, 1, size(25, "10.0.0.0/8", 16, 24)),
        ];
        for (cluster, mask_size, max_pods, expected) in cases {
            assert_eq!(say(cluster, mask_size, max_pods), expected);
        }
    }
}
