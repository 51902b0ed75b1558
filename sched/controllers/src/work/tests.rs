//! The loop with passes that hang.

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::*;

/// The passes of the namespace `slow` wait for permits; those of `broken` panic.
struct Waiting {
    permits: Semaphore,
    ended: Mutex<Vec<&'static str>>,
}

impl Controller for Waiting {
    const NAME: &'static str = "waiting";
    const WORKERS: usize = 8;
    type Key = (&'static str, &'static str);

    fn flow((namespace, _): &Self::Key) -> Option<&str> {
        Some(namespace)
    }

    async fn reconcile(&self, (namespace, name): &Self::Key) -> Result<Next, Failure> {
        match *namespace {
            "slow" => self.permits.acquire().await.expect("open").forget(),
            "broken" => panic!("a test"),
            _ => {}
        }
        self.ended.lock().push(name);
        Ok(Next::OnChange)
    }
}

#[tokio::test(start_paused = true)]
async fn one_namespace_does_not_take_all_workers() {
    let waiting = Arc::new(Waiting { permits: Semaphore::new(0), ended: Mutex::default() });
    let (queue, cancel) = (Arc::new(WorkQueue::new("test")), CancellationToken::new());
    let loop_ = tokio::spawn(work(Arc::clone(&waiting), Arc::clone(&queue), cancel.clone()));
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    names.iter().for_each(|name| queue.add(("slow", *name)));
    queue.add(("broken", "x"));
    queue.add(("other", "z"));
    let ended = async |count: usize| {
        let all = async {
            while waiting.ended.lock().len() < count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(5), all).await.unwrap_or_else(|_| panic!("ended: {:?}", waiting.ended.lock()));
        waiting.ended.lock().clone()
    };
    assert_eq!(ended(1).await, ["z"], "the other namespace goes on");
    // All of them come, in their order.
    waiting.permits.add_permits(names.len());
    assert_eq!(ended(11).await.get(1..), Some(&names[..]));
    cancel.cancel();
    waiting.permits.close();
    tokio::time::timeout(Duration::from_secs(5), loop_).await.expect("it ends").expect("no panic");
}
