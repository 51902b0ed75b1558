//! What is common to runtimes whose containers are shims: processes that outlive the agent, hold a container's stdio and record
//! its end. [`launch`] starts a shim ([`channel`] is its end, [`own_cgroups`] its way into its cgroup), [`state`] and [`record`] are its files, [`shims`] answers from both, [`cri`] is the
//! format of logs, [`attach`] joins the stdio of a running container,
//! [`exec`] starts further processes in it, [`requests`] counts the HTTP requests that a shim serves.

pub mod attach;
pub mod channel;
pub mod cri;
pub mod exec;
pub mod fds;
pub mod launch;
pub mod own_cgroups;
pub mod record;
pub mod requests;
pub mod shims;
pub mod state;
