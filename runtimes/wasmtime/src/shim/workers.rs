//! The threads that requests are served on. A server has one at first, its own, and an idle server weighs no more. When a request
//! arrives while the guest of another one runs, further threads start: one for each core that the container may use. They serve
//! the connections that are accepted from then on, and take guests of the first thread's connections. They stay until the process
//! ends; while there is nothing to do, they sleep.

use std::num::NonZero;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::thread;

use parking_lot::Mutex;
use runtimes_contract::Resources;
use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};
use tokio::task::JoinHandle;

use super::slices::{SlicedGuest, Slices};

/// The most threads of one container: a process has a limit of threads, and the helpers of file access need some of them.
const THREADS_MAX: usize = 64;
/// The stack of a thread. Guests have stacks of their own. Below two MiB, so that it never becomes one huge page.
const STACK_LEN: usize = 512 << 10;
/// The threads beside each event loop that wait for files and names.
const BLOCKING_THREADS_MAX: usize = 16;
/// The number of tasks between two looks for events. A task may be a guest that computes until the next tick: by tokio's default of 61
/// tasks, a connection would wait for more than half a second behind guests that only compute.
const EVENT_INTERVAL: u32 = 4;

/// The threads of one server.
pub struct Workers {
    /// As many as it has when there is work for them.
    threads: usize,
    /// Guests that run on the first thread.
    on_first: Arc<AtomicUsize>,
    others: Mutex<Option<Handle>>,
    slices: Arc<Slices>,
}

/// How far a guest is that has begun.
pub enum Begun<T> {
    /// It has ended.
    Ended(T),
    /// It runs as a task.
    Running(JoinHandle<T>),
}

/// A guest on the first thread, until it is dropped.
struct OnFirst(Arc<AtomicUsize>);

impl Drop for OnFirst {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Workers {
    /// For a container with these limits, on this machine.
    pub fn new(resources: &Resources) -> Self {
        Self::with(threads(resources, thread::available_parallelism().map_or(1, NonZero::get)))
    }

    fn with(threads: usize) -> Self {
        Self { threads, on_first: Arc::default(), others: Mutex::new(None), slices: Arc::new(Slices::new(threads)) }
    }

    /// Where a new connection is served; `None` is the first thread.
    pub fn of_connections(&self) -> Option<Handle> {
        self.others.lock().clone()
    }

    /// Begins the guest of a request. Called by the connection of the request, on the thread of the connection. The task of the connection
    /// has nothing else to do: it runs the guest until the guest waits or has computed for a tick, and only then the guest becomes a task
    /// of its own. One that is urgent waits for no guest that computes for long.
    pub async fn begin<F>(&self, guest: Pin<Box<F>>, is_urgent: bool) -> Begun<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let here = Handle::current();
        let mut guest = SlicedGuest::new(guest, is_urgent);
        // The first thread sees by a guest that runs when a request arrives that the further threads are needed.
        let starts_threads = self.threads > 1 && here.runtime_flavor() == RuntimeFlavor::CurrentThread;
        if !starts_threads && let Poll::Ready(output) = guest.slice().await {
            guest.pause().await;
            return Begun::Ended(output);
        }
        Begun::Running(self.run(&here, guest.run(self.slices.clone())))
    }

    fn run<T: Send + 'static>(&self, here: &Handle, guest: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        if here.runtime_flavor() != RuntimeFlavor::CurrentThread {
            return here.spawn(guest);
        }
        let is_busy = self.on_first.load(Ordering::Relaxed) > 0;
        if let Some(others) = is_busy.then(|| self.others()).flatten() {
            return others.spawn(guest);
        }
        self.on_first.fetch_add(1, Ordering::Relaxed);
        let counted = OnFirst(self.on_first.clone());
        here.spawn(async move {
            let _counted = counted;
            guest.await
        })
    }

    /// The further threads, which start now if there are none yet. `None` when one thread is all that the container may use, or when the
    /// system refuses more; then the next request tries again.
    fn others(&self) -> Option<Handle> {
        if self.threads == 1 {
            return None;
        }
        let mut others = self.others.lock();
        if others.is_none() && can_start_threads() {
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads(self.threads).thread_name("guests").thread_stack_size(STACK_LEN);
            let runtime = configured(builder).ok()?;
            *others = Some(runtime.handle().clone());
            // It lives as long as the process: dropping it would wait for its guests.
            std::mem::forget(runtime);
        }
        others.clone()
    }
}

/// The event loop of the first thread, which every container has.
pub fn first_thread() -> std::io::Result<Runtime> {
    configured(Builder::new_current_thread())
}

fn configured(mut builder: Builder) -> std::io::Result<Runtime> {
    builder.enable_all().max_blocking_threads(BLOCKING_THREADS_MAX);
    builder.event_interval(EVENT_INTERVAL).global_queue_interval(EVENT_INTERVAL).build()
}

/// Whether the Pod's limit of processes has room. tokio panics when it cannot start its first thread, which would end the container.
fn can_start_threads() -> bool {
    thread::Builder::new().stack_size(STACK_LEN).spawn(|| ()).is_ok_and(|thread| thread.join().is_ok())
}

/// One thread for each core of the CPU limit, begun cores included; all of the machine's cores without a limit.
fn threads(resources: &Resources, cores: usize) -> usize {
    let period = resources.cpu_period_us.and_then(|period| i64::try_from(period).ok()).unwrap_or(CPU_PERIOD_US).max(1);
    let limit = resources.cpu_quota_us.filter(|&quota| quota > 0).map(|quota| quota.saturating_add(period - 1) / period);
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(cores).min(cores).clamp(1, THREADS_MAX)
}

/// The kernel's default.
const CPU_PERIOD_US: i64 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_thread_for_each_core_that_the_limit_begins() {
        let of = |quota, period| Resources { cpu_quota_us: Some(quota), cpu_period_us: period, ..Resources::default() };
        let limited = |quota: i64, cores| threads(&of(quota, Some(100_000)), cores);
        for (quota, cores, wanted) in [
            (1_000, 8, 1),
            (100_000, 8, 1),
            (100_001, 8, 2),
            (250_000, 8, 3),
            (250_000, 2, 2),
            (-1, 4, 4),
            (i64::MAX, 4, 4),
            (100_000, 1, 1),
        ] {
            assert_eq!(limited(quota, cores), wanted, "{quota} µs on {cores} cores");
        }
        assert_eq!(threads(&Resources::default(), 4), 4, "without a limit");
        assert_eq!(threads(&Resources::default(), 256), THREADS_MAX);
        let of_period = |period| threads(&of(30_000, period), 8);
        assert_eq!([of_period(Some(10_000)), of_period(None), of_period(Some(0))], [3, 1, 8]);
    }

    /// The task of a guest that does not end before it becomes one.
    async fn running<F: Future<Output: Send + 'static> + Send + 'static>(workers: &Workers, guest: F) -> JoinHandle<F::Output> {
        match workers.begin(Box::pin(guest), false).await {
            Begun::Running(task) => task,
            Begun::Ended(_) => panic!("it has ended"),
        }
    }

    #[test]
    fn further_threads_start_when_a_second_guest_comes() {
        let workers = Workers::with(2);
        first_thread().unwrap().block_on(async {
            let (first, second) = (tokio::sync::oneshot::channel::<()>(), tokio::sync::oneshot::channel::<()>());
            let name = || thread::current().name().map(str::to_owned);
            let here = name();
            let guest = |end: tokio::sync::oneshot::Receiver<()>| async move {
                end.await.unwrap();
                name()
            };
            assert_eq!(running(&workers, async move { name() }).await.await.unwrap(), here);
            assert!(workers.of_connections().is_none(), "one guest after the other needs no further thread");
            let alone = running(&workers, guest(first.1)).await;
            assert!(workers.of_connections().is_none());
            let beside = running(&workers, guest(second.1)).await;
            assert!(workers.of_connections().is_some());
            first.0.send(()).unwrap();
            second.0.send(()).unwrap();
            assert_eq!((alone.await.unwrap(), beside.await.unwrap()), (here, Some("guests".into())));
            assert_eq!(workers.on_first.load(Ordering::Relaxed), 0);
        });
    }

    #[test]
    fn a_server_of_one_core_has_one_thread() {
        let workers = Workers::with(1);
        first_thread().unwrap().block_on(async {
            let guests = [running(&workers, std::future::pending::<()>()).await, running(&workers, std::future::pending()).await];
            assert!(workers.of_connections().is_none());
            guests.iter().for_each(JoinHandle::abort);
        });
    }

    #[test]
    fn a_guest_that_does_not_wait_needs_no_task() {
        let ends = async |workers: &Workers| matches!(workers.begin(Box::pin(async { 7 }), false).await, Begun::Ended(7));
        let (one_core, two_cores) = (Workers::with(1), Workers::with(2));
        first_thread().unwrap().block_on(async {
            assert!(ends(&one_core).await);
            assert!(!ends(&two_cores).await, "a second guest beside it would not be noticed");
        });
        let others = Builder::new_multi_thread().worker_threads(1).build().unwrap();
        assert!(others.block_on(ends(&two_cores)));
    }

    #[test]
    fn a_guest_that_waits_in_its_first_slice_becomes_a_task() {
        let workers = Workers::with(1);
        first_thread().unwrap().block_on(async {
            let (send, receive) = tokio::sync::oneshot::channel();
            let task = running(&workers, receive).await;
            send.send(7).unwrap();
            assert_eq!(task.await.unwrap(), Ok(7));
        });
    }
}
