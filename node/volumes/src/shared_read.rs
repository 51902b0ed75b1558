//! One read for many callers: who asks while a read is under way gets what the next one returns, with all others who ask meanwhile.
//! So a burst of callers costs two reads, not one each, and nobody gets what was read before the question.

use std::io;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

/// The reads of one thing.
pub(crate) struct SharedRead {
    state: Mutex<State>,
    over: Condvar,
}

struct State {
    /// The numbers of the last read that has begun, of the last one that is over, and of the one that gave `bytes`.
    begun: u64,
    over: u64,
    read: u64,
    /// For those who wait; the last of them drops it.
    bytes: Option<Arc<[u8]>>,
    waiting: usize,
}

impl SharedRead {
    pub(crate) const fn new() -> Self {
        Self { state: Mutex::new(State { begun: 0, over: 0, read: 0, bytes: None, waiting: 0 }), over: Condvar::new() }
    }

    /// What a read returns that begins after this call. Blocks. A read that fails is the failure of one caller; the others read again.
    pub(crate) fn fresh(&self, read: impl FnOnce() -> io::Result<Vec<u8>>) -> io::Result<Arc<[u8]>> {
        let mut state = self.state.lock();
        let wanted = state.begun + 1;
        while state.begun > state.over {
            state.waiting += 1;
            self.over.wait(&mut state);
            state.waiting -= 1;
            let present = (state.read >= wanted).then(|| state.bytes.clone()).flatten();
            if state.waiting == 0 {
                state.bytes = None;
            }
            if let Some(bytes) = present {
                return Ok(bytes);
            }
        }
        state.begun += 1;
        let own = state.begun;
        drop(state);
        let bytes = read().map(Arc::from);
        let mut state = self.state.lock();
        state.over = own;
        if let Ok(bytes) = &bytes {
            state.read = own;
            state.bytes = (state.waiting > 0).then(|| Arc::clone(bytes));
        }
        self.over.notify_all();
        bytes
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Waits until that many callers wait.
    fn until_waiting(shared: &SharedRead, count: usize) {
        while shared.state.lock().waiting < count {
            std::thread::yield_now();
        }
    }

    #[test]
    fn those_who_ask_during_a_read_share_the_next_one() {
        for fails in [false, true] {
            let (shared, reads) = (SharedRead::new(), AtomicUsize::new(0));
            let (begun, end) = (Barrier::new(2), Barrier::new(2));
            let read = |n: usize| if fails && n == 1 { Err(io::Error::other("no")) } else { Ok(vec![u8::try_from(n).expect("few")]) };
            std::thread::scope(|scope| {
                let first = scope.spawn(|| {
                    shared.fresh(|| {
                        let n = reads.fetch_add(1, Ordering::SeqCst);
                        begun.wait();
                        end.wait();
                        read(n)
                    })
                });
                begun.wait();
                let ask = || shared.fresh(|| read(reads.fetch_add(1, Ordering::SeqCst)));
                let others: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
                until_waiting(&shared, 8);
                end.wait();
                assert_eq!(*first.join().expect("no panic").expect("read"), [0], "the first read is only its own caller's");
                let got: Vec<_> = others.into_iter().map(|other| other.join().expect("no panic")).collect();
                assert_eq!(got.iter().filter(|one| one.is_err()).count(), usize::from(fails), "a failure is one caller's");
                assert!(got.iter().flatten().all(|bytes| bytes[0] > 0), "nobody gets what was read before the question");
            });
            let state = shared.state.lock();
            assert!(state.bytes.is_none() && state.waiting == 0, "nothing is left");
        }
    }

    #[test]
    fn one_caller_after_the_other_reads_each_time() {
        let (shared, reads) = (SharedRead::new(), AtomicUsize::new(0));
        for n in 0..3 {
            let bytes = shared.fresh(|| Ok(vec![u8::try_from(reads.fetch_add(1, Ordering::SeqCst)).expect("few")])).expect("read");
            assert_eq!(*bytes, [n]);
        }
    }
}
