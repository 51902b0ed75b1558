//! Writes whose answers are lost, as when an etcd member fails, and cancelled requests: the locks that one server holds
//! at that time neither harm nor delay the other servers.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::*;

/// Far less than the lifetime of a lock.
const SOON: Duration = Duration::from_secs(20);
const SERVICES: &str = "/api/v1/namespaces/default/services";
const LOCK: &str = "skiff.internal/locks/";

/// The fault of one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The write happens, but its answer is lost.
    Answer,
    /// The answer is lost, and the write happens only when the test makes it.
    Late,
    /// The write happens, and the answer comes when the test lets it.
    Slow,
}

/// A store with faults.
struct Faulty {
    shared: Shared,
    /// By a part of the key, and by whether the write is a deletion.
    faults: Mutex<Vec<(&'static str, bool, Fault)>>,
    late: Mutex<Vec<Write>>,
    made: Semaphore,
    answered: Semaphore,
}

impl Faulty {
    fn goes_wrong(&self, key: &'static str, is_deletion: bool, fault: Fault) {
        self.faults.lock().push((key, is_deletion, fault));
    }

    fn fault(&self, write: &Write) -> Option<Fault> {
        let mut faults = self.faults.lock();
        let at = faults.iter().position(|(key, is_deletion, _)| write.key.contains(key) && *is_deletion == write.value.is_none())?;
        Some(faults.remove(at).2)
    }

    /// Makes the delayed write.
    async fn make_late(&self) -> Result<Revision, StoreError> {
        let late = self.late.lock().pop().expect("a write that is late");
        self.shared.write(late).await
    }
}

#[async_trait]
impl StoreWrapper for Faulty {
    fn inner(&self) -> &dyn Store {
        &self.shared
    }

    async fn wrapped_write(&self, write: Write) -> Result<Revision, StoreError> {
        let lost = StoreError::Backend { doing: "writing".to_owned(), source: Arc::new(std::io::Error::other("the answer is lost")) };
        match self.fault(&write) {
            None => self.shared.write(write).await,
            Some(Fault::Answer) => self.shared.write(write).await.and(Err(lost)),
            Some(Fault::Late) => {
                self.late.lock().push(write);
                Err(lost)
            }
            Some(Fault::Slow) => {
                let revision = self.shared.write(write).await?;
                self.made.add_permits(1);
                self.answered.acquire().await.expect("open").forget();
                Ok(revision)
            }
        }
    }
}

/// A server whose writes may fail, and a healthy one.
async fn one_faulty() -> (Arc<Faulty>, [Cluster; 2]) {
    let memory = Arc::new(MemoryStore::new());
    let faulty = Arc::new(Faulty {
        shared: Shared(Arc::clone(&memory), Duration::from_millis(5)),
        faults: Mutex::default(),
        late: Mutex::default(),
        made: Semaphore::new(0),
        answered: Semaphore::new(0),
    });
    let config = Config::new(Arc::clone(&PKI), SocketAddr::from(([10, 0, 0, 1], 6443)));
    let one = cluster_with(config, Arc::clone(&faulty) as Arc<dyn Store>).await;
    (faulty, [one, cluster_at(2, &memory).await])
}

fn service(name: &str) -> Value {
    let ports = json!([{"port": 80, "nodePort": 30_123}]);
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"type": "NodePort", "ports": ports}})
}

async fn soon<T>(answer: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, answer).await.expect("nobody is held up")
}

#[tokio::test]
async fn a_late_write_does_not_take_an_address_that_another_server_gave_out() {
    let (store, [one, other]) = one_faulty().await;
    store.goes_wrong("/services/default/late", false, Fault::Late);
    assert_eq!(one.post(SERVICES, service("late")).await.status, StatusCode::INTERNAL_SERVER_ERROR);
    soon(other.post(SERVICES, service("first"))).await.ok();
    let late = store.make_late().await;
    assert!(matches!(late, Err(StoreError::Unguarded { .. })), "{late:?}");
}

#[tokio::test]
async fn a_late_write_does_not_exceed_a_quota() {
    let (store, [one, other]) = one_faulty().await;
    let quota =
        json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": {"count/configmaps": "1"}}});
    other.post("/api/v1/namespaces/default/resourcequotas", quota).await.ok();
    store.goes_wrong("/configmaps/default/late", false, Fault::Late);
    assert_eq!(one.post(CONFIG_MAPS, config_map("late", json!({}))).await.status, StatusCode::INTERNAL_SERVER_ERROR);
    soon(other.post(CONFIG_MAPS, config_map("first", json!({})))).await.ok();
    let late = store.make_late().await;
    assert!(matches!(late, Err(StoreError::Unguarded { .. })), "{late:?}");
}

/// The client's error when the lock is gone at the time of the write.
#[tokio::test]
async fn a_write_without_its_lock_is_a_conflict() {
    let (store, [one, _other]) = one_faulty().await;
    store.goes_wrong(LOCK, false, Fault::Slow);
    let posting = one.post(SERVICES, service("s"));
    let stealing = async {
        store.made.acquire().await.expect("open").forget();
        let lock = store.snapshot().await.expect("snapshot").entries.into_iter().find(|entry| entry.key.contains(LOCK)).expect("a lock");
        store.shared.write(Write::new(lock.key, None, api_store::Expect::At(lock.revision))).await.expect("deletes");
        store.answered.add_permits(1);
    };
    let (answer, ()) = soon(futures::future::join(posting, stealing)).await;
    let why = "Operation cannot be fulfilled: its quota or addresses were found out too long ago; please try again";
    assert_eq!(answer.refusal(), (409, why));
    assert_eq!(answer.body["reason"], "Conflict");
    soon(one.post(SERVICES, service("s"))).await.ok();
}

#[tokio::test]
async fn a_lock_whose_answer_is_lost_is_given_back() {
    let (store, servers) = one_faulty().await;
    for (name, server) in ["a", "b"].iter().zip(&servers) {
        store.goes_wrong(LOCK, false, Fault::Answer);
        assert_eq!(servers[0].post(SERVICES, service(name)).await.status, StatusCode::INTERNAL_SERVER_ERROR);
        soon(server.post(SERVICES, service(name))).await.ok();
        soon(server.delete(&format!("{SERVICES}/{name}"))).await.ok();
    }
}

#[tokio::test]
async fn a_lock_that_is_taken_late_is_given_back() {
    let (store, [one, other]) = one_faulty().await;
    store.goes_wrong(LOCK, false, Fault::Late);
    assert_eq!(one.post(SERVICES, service("a")).await.status, StatusCode::INTERNAL_SERVER_ERROR);
    store.make_late().await.expect("nobody else has it");
    soon(other.post(SERVICES, service("a"))).await.ok();
}

#[tokio::test]
async fn giving_a_lock_back_is_tried_again() {
    let (store, [one, other]) = one_faulty().await;
    for _ in 0..3 {
        store.goes_wrong(LOCK, true, Fault::Late);
    }
    one.post(SERVICES, service("a")).await.ok();
    soon(other.delete(&format!("{SERVICES}/a"))).await.ok();
    soon(other.post(SERVICES, service("a"))).await.ok();
    assert_eq!(store.late.lock().len(), 3);
}

#[tokio::test]
async fn a_request_that_is_given_up_leaves_no_lock() {
    let (store, [one, other]) = one_faulty().await;
    store.goes_wrong(LOCK, false, Fault::Slow);
    tokio::select! {
        answer = one.post(SERVICES, service("a")) => panic!("{answer:?}"),
        made = store.made.acquire() => made.expect("open").forget(),
    }
    store.answered.add_permits(1);
    soon(other.post(SERVICES, service("a"))).await.ok();
}
