//! The control plane of a run: the API server over the recorded store, and schedulers and controllers as processes of their own
//! that crash, start again and are cut off.

use std::sync::Arc;
use std::time::Duration;

use api_auth::{Pki, PkiConfig};
use api_client::fence::{Clients, Fence};
use api_client::informer::Informers;
use api_client::lease::Election;
use api_model::request::UserInfo;
use api_server::{LeaderLease, Server};
use api_tasks::Tasks;
use kube::Client;
use sched_controllers::Account;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::history::History;
use crate::leaders::{Leader, NAMESPACE};
use crate::net::{Link, Net, Process};
use crate::object::text;
use crate::store::Recorded;

/// The pause between two renewals of the leader's Lease, longer than upstream's: each costs time of the machine.
const RETRY_PERIOD: Duration = Duration::from_secs(4);

/// The server, the network and the history: what every part of a run needs.
#[derive(Clone)]
pub struct Cluster {
    pub server: Arc<Server>,
    pub net: Arc<Net>,
    pub history: Arc<History>,
    pki: Arc<Pki>,
    _pki_dir: Arc<tempfile::TempDir>,
}

impl Cluster {
    pub async fn start(history: Arc<History>) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let pki = Arc::new(Pki::open(directory.path(), &PkiConfig::for_cluster("cluster.local")).expect("keys"));
        let address = "127.0.0.1:6443".parse().expect("an address");
        let store = Arc::new(Recorded::new(Arc::clone(&history)));
        let server = Server::start(api_server::Config::new(Arc::clone(&pki), address), store).await.expect("a server");
        let net = Net::new(Arc::clone(&history));
        Self { server: Arc::new(server), net, history, pki, _pki_dir: Arc::new(directory) }
    }

    /// A client without the network, with all rights.
    pub fn admin(&self) -> Client {
        Client::new(self.server.client(UserInfo::new("system:admin", &["system:masters"])), "default")
    }

    /// A client of a process through the network.
    pub fn client(&self, process: &Arc<Process>, user: UserInfo) -> Client {
        let link = Link { net: Arc::clone(&self.net), process: Arc::clone(process), server: self.server.client(user), leader: None };
        Client::new(link, "default")
    }

    /// The same; of an elected leader, within its fence.
    fn fenced_client(&self, process: &Arc<Process>, user: UserInfo, fence: Option<&Fence>) -> Client {
        let Some(fence) = fence else { return self.client(process, user) };
        let lease = LeaderLease {
            namespace: fence.namespace().to_owned(),
            name: fence.name().to_owned(),
            holder_identity: fence.identity().to_owned(),
            lease_transitions: fence.transitions(),
        };
        let leader = Leader { lease: fence.name().to_owned(), identity: fence.identity().to_owned() };
        let server = self.server.client(user).under_lease(lease);
        let link = Link { net: Arc::clone(&self.net), process: Arc::clone(process), server, leader: Some(leader) };
        Client::new(fence.around(link), "default")
    }
}

/// What a process of the control plane is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Scheduler,
    Controllers,
}

impl Part {
    pub fn name(self) -> &'static str {
        match self {
            Self::Scheduler => "scheduler",
            Self::Controllers => "controllers",
        }
    }

    /// The Lease of the leader, upstream's.
    fn lease(self) -> &'static str {
        match self {
            Self::Scheduler => "kube-scheduler",
            Self::Controllers => "kube-controller-manager",
        }
    }

    fn user(self) -> UserInfo {
        let name = match self {
            Self::Scheduler => "system:kube-scheduler",
            Self::Controllers => "system:kube-controller-manager",
        };
        UserInfo::new(name, &["system:authenticated"])
    }
}

/// A scheduler or a set of controllers, which may be down.
pub struct Replica {
    cluster: Cluster,
    pub part: Part,
    number: u32,
    starts: u32,
    /// Whether there is another one, so that one of them has to be elected.
    is_elected: bool,
    running: Option<Running>,
}

struct Running {
    process: Arc<Process>,
    cancel: CancellationToken,
    watcher: JoinHandle<()>,
}

impl Replica {
    pub fn new(cluster: &Cluster, part: Part, number: u32, is_elected: bool) -> Self {
        Self { cluster: cluster.clone(), part, number, starts: 0, is_elected, running: None }
    }

    pub fn is_up(&self) -> bool {
        self.running.is_some()
    }

    /// Starts a process.
    pub fn start(&mut self) {
        self.starts += 1;
        let process = Process::new(format!("{}-{}.{}", self.part.name(), self.number, self.starts));
        self.interrupted(&format!("! {} starts", process.name));
        let cancel = CancellationToken::new();
        let client = self.cluster.client(&process, Part::Controllers.user());
        let informers = Informers::new(client, Tasks::new(cancel.clone()));
        let election = Election { retry_period: RETRY_PERIOD, ..Election::new(self.part.lease(), &process.name) };
        let election = self.is_elected.then_some(election);
        let ended: JoinHandle<Result<(), String>> = match self.part {
            Part::Scheduler => {
                let config = sched_scheduler::Config { election, ..sched_scheduler::Config::default() };
                let (cluster, writer, user) = (self.cluster.clone(), Arc::clone(&process), self.part.user());
                let clients = Clients::new(move |fence| cluster.fenced_client(&writer, user.clone(), fence));
                let run = sched_scheduler::run(clients, informers, config, cancel.clone());
                tokio::spawn(async move { run.await.map_err(|error| error.to_string()) })
            }
            Part::Controllers => {
                let run = sched_controllers::run(informers, self.controllers_config(&process, election), cancel.clone());
                tokio::spawn(async move { run.await.map_err(|error| error.to_string()) })
            }
        };
        let (history, name, token) = (Arc::clone(&self.cluster.history), process.name.clone(), cancel.clone());
        let watcher = tokio::spawn(async move {
            let ended = ended.await;
            if !token.is_cancelled() || !matches!(ended, Ok(Ok(()))) {
                history.violate(format!("{name} ended by itself: {ended:?}"));
            }
        });
        self.running = Some(Running { process, cancel, watcher });
    }

    /// Ends the process as `kill -9` does: nothing that it still wanted to write is written.
    pub fn crash(&mut self) {
        let Some(Running { process, cancel, watcher }) = self.running.take() else { return };
        self.interrupted(&format!("! {} crashes", process.name));
        process.kill();
        watcher.abort();
        cancel.cancel();
    }

    /// Ends the process in an orderly way.
    pub fn stop(&mut self) {
        let Some(Running { process, cancel, .. }) = self.running.take() else { return };
        self.interrupted(&format!("! {} stops", process.name));
        cancel.cancel();
    }

    /// Cuts the process off, or connects it again.
    pub fn cut(&self, is_cut: bool) {
        let Some(Running { process, .. }) = &self.running else { return };
        self.absent(&format!("! {} is {}", process.name, if is_cut { "cut off" } else { "connected" }));
        process.cut(is_cut);
    }

    /// Stops the process as SIGSTOP does, or lets it go on. If another one leads by then, what the process does now is no excuse for
    /// anything: it may not write.
    pub fn suspend(&self, is_suspended: bool) {
        let Some(Running { process, .. }) = &self.running else { return };
        let what = format!("! {} {}", process.name, if is_suspended { "is suspended" } else { "is resumed" });
        match !is_suspended && self.is_followed(process) {
            true => self.cluster.history.note(&what),
            false => self.absent(&what),
        }
        process.suspend(is_suspended);
    }

    /// Whether another process leads.
    fn is_followed(&self, process: &Process) -> bool {
        let lease = self.part.lease();
        let holder = self.cluster.history.read(|view| Some(text(view.get("leases", NAMESPACE, lease)?, "/spec/holderIdentity").to_owned()));
        self.is_elected && holder.is_some_and(|holder| !holder.is_empty() && holder != process.name)
    }

    fn interrupted(&self, what: &str) {
        let part = self.part.name();
        self.cluster.history.incident(what, |incidents, now| incidents.interrupted(part, now));
    }

    fn absent(&self, what: &str) {
        let part = self.part.name();
        self.cluster.history.incident(what, |incidents, now| incidents.absent(part, now));
    }

    fn controllers_config(&self, process: &Arc<Process>, election: Option<Election>) -> sched_controllers::Config {
        let (cluster, process) = (self.cluster.clone(), Arc::clone(process));
        let account = move |account: Account, fence: Option<&Fence>| {
            let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"];
            let user = match account {
                Account::Manager => Part::Controllers.user(),
                Account::Named(name) => UserInfo::new(format!("system:serviceaccount:kube-system:{name}"), &groups),
            };
            cluster.fenced_client(&process, user, fence)
        };
        sched_controllers::Config {
            accounts: Some(Arc::new(account)),
            root_ca_pem: Some(self.cluster.pki.ca_pem().to_owned()),
            election,
            // No run has the kinds of these two.
            controllers: ["*", "-scaledjob", "-scaledobject"].map(str::to_owned).to_vec(),
            ..sched_controllers::Config::default()
        }
    }
}
