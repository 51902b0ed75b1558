//! Work that blocks a thread: of one kind only so many at once.
//!
//! Nothing ends such work before its time, also when nobody waits for it any more. So the work itself has the permit, and not the
//! caller: what others write cannot fill the threads of this process.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// Runs one kind of work.
pub struct Blocking {
    name: &'static str,
    permits: Arc<Semaphore>,
}

impl Blocking {
    /// Runs at most `most` at once; the others wait.
    pub fn new(name: &'static str, most: usize) -> Self {
        Self { name, permits: Arc::new(Semaphore::new(most)) }
    }

    /// Waits for a permit, and runs the work outside of the async threads. None after a panic, which is logged.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok()?;
        let call = move || {
            let _until_the_end = permit;
            work()
        };
        api_tasks::blocking(self.name, call).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn work_has_its_permit_until_it_ends() {
        let blocking = Blocking::new("test", 1);
        let (end, wait) = mpsc::channel::<()>();
        let (started, begun) = tokio::sync::oneshot::channel();
        let work = blocking.run(move || {
            started.send(()).expect("a listener");
            wait.recv()
        });
        // The caller goes away while the work runs.
        tokio::select! {
            _ = work => panic!("the work waits"),
            begun = begun => begun.expect("begun"),
        }
        assert_eq!(blocking.permits.available_permits(), 0);
        let next = blocking.run(|| 7);
        let mut next = std::pin::pin!(next);
        assert!(tokio::time::timeout(Duration::from_millis(50), &mut next).await.is_err(), "there is one permit");
        end.send(()).expect("the work");
        assert_eq!(next.await, Some(7));
    }

    #[tokio::test]
    async fn a_panic_frees_the_permit() {
        let blocking = Blocking::new("test", 1);
        assert_eq!(blocking.run(|| -> u8 { panic!("a test") }).await, None);
        assert_eq!(blocking.run(|| 7).await, Some(7));
    }
}
