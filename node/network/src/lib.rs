//! Pod namespaces, addresses, bridge, host ports, routes between nodes.
