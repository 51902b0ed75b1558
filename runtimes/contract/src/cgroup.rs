//! Cgroups on v1, v2 and hybrid machines, over cgroups-rs: shared by the agent (Pod and QoS groups)
//! and by runtimes (container groups).
