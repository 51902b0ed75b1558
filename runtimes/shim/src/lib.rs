//! What runtimes share whose containers are shims: processes that outlive the agent, hold a container's stdio and record its end.
//! [`launch`] starts a shim, [`state`] and [`record`] are what it leaves on disk, [`shims`] answers from both, [`cri`] is the
//! format of logs, [`attach`] joins the stdio of what runs.

pub mod attach;
pub mod cri;
pub mod launch;
pub mod record;
pub mod shims;
pub mod state;
