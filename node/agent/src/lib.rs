//! The kubelet's role: one serial worker a Pod, probes, status, the node's own HTTPS server.
