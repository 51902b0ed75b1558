//! The control plane of a run: the API server over the recorded store, and schedulers and controllers as processes of their own
//! that crash, start again and are cut off.

use std::sync::Arc;
use std::time::Duration;

use api_auth::{Pki, PkiConfig};
use api_client::informer::Informers;
use api_client::lease::Election;
use api_model::request::UserInfo;
use api_server::Server;
use api_tasks::Tasks;
use kube::Client;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::history::History;
use crate::net::{Link, Net, Process};
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
        let link = Link { net: Arc::clone(&self.net), process: Arc::clone(process), server: self.server.client(user) };
        Client::new(link, "default")
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
                let client = self.cluster.client(&process, self.part.user());
                let run = sched_scheduler::run(client, informers, config, cancel.clone());
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
        self.interrupted(&format!("! {} is {}", process.name, if is_cut { "cut off" } else { "connected" }));
        process.cut(is_cut);
    }

    fn interrupted(&self, what: &str) {
        let part = self.part.name();
        self.cluster.history.incident(what, |incidents, now| incidents.interrupted(part, now));
    }

    fn controllers_config(&self, process: &Arc<Process>, election: Option<Election>) -> sched_controllers::Config {
        let (cluster, process) = (self.cluster.clone(), Arc::clone(process));
        let account = move |name: &'static str| {
            let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"];
            cluster.client(&process, UserInfo::new(format!("system:serviceaccount:kube-system:{name}"), &groups))
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
