//! Leases: a node's heartbeat and leader election.
