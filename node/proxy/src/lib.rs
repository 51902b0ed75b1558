//! Services: a pure function to a rule set and a thin nftables writer.
