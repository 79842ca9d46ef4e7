// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Threads that run the tasks of a turn: fork and join in less than a microsecond, on borrowed data.
//!
//! The pools of other libraries put a thread to sleep after each turn, so that it starts the next one some tens of
//! microseconds late: as long as a batch takes. A thread of a [`Crew`] spins for a while first, then sleeps. While it
//! spins it offers its processor to others.

use std::any::Any;
use std::cell::UnsafeCell;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// How long a thread looks at its flag before it sleeps: longer than sources take for a batch, since waking takes tens of
/// microseconds.
const PATIENCE: Duration = Duration::from_millis(1);
/// The looks at a flag after which the processor is offered to other threads between two looks.
const LOOKS_ALONE: u32 = 256;
/// The turn after which a thread ends.
const LAST: u64 = u64::MAX;

/// The tasks of a turn, without their lifetime.
#[derive(Clone, Copy)]
struct Job {
    /// Calls `data` as a closure with the number of the task.
    call: unsafe fn(*const (), usize),
    data: *const (),
}

/// What the caller and one thread share. Each on cache lines of its own.
#[repr(align(128))]
struct Post {
    /// The number of the last job that was given; [`LAST`] ends the thread.
    given: AtomicU64,
    /// The number of the last job that was done.
    done: AtomicU64,
    sleeps: AtomicBool,
    job: UnsafeCell<Option<Job>>,
    panic: UnsafeCell<Option<Box<dyn Any + Send>>>,
    /// True if processor times are measured.
    is_measured: AtomicBool,
    /// The processor time of the last job in nanoseconds, if it is measured.
    spent_ns: AtomicU64,
}

// SAFETY: the cells belong to the caller until it stores `given`, then to the thread until it stores `done`.
unsafe impl Sync for Post {}
// SAFETY: as above; the data of a job outlives it, and may be used by other threads (`Crew::run`).
unsafe impl Send for Post {}

/// Processor times of a crew so far, while they were measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Times {
    /// The sum over the turns of the longest task.
    pub longest: Duration,
    /// The sum over all tasks.
    pub all: Duration,
    /// What the calling thread spent on its tasks and on waiting for the others.
    pub caller: Duration,
}

/// Threads that run tasks beside the calling thread, a turn a call.
pub struct Crew {
    posts: Vec<Arc<Post>>,
    threads: Vec<Thread>,
    handles: Vec<JoinHandle<()>>,
    turn: u64,
    is_measured: bool,
    times: Times,
}

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crew").field("threads", &self.threads.len()).field("turn", &self.turn).finish_non_exhaustive()
    }
}

impl Crew {
    /// Starts threads for up to `tasks` tasks a turn: one less, since the caller runs one.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn new(tasks: usize) -> io::Result<Crew> {
        let mut crew = Crew {
            posts: Vec::new(),
            threads: Vec::new(),
            handles: Vec::new(),
            turn: 0,
            is_measured: false,
            times: Times::default(),
        };
        for number in 1..tasks {
            let post = Arc::new(Post {
                given: AtomicU64::new(0),
                done: AtomicU64::new(0),
                sleeps: AtomicBool::new(false),
                job: UnsafeCell::new(None),
                panic: UnsafeCell::new(None),
                is_measured: AtomicBool::new(false),
                spent_ns: AtomicU64::new(0),
            });
            let own = Arc::clone(&post);
            let handle = thread::Builder::new().name(format!("worker-{number}")).spawn(move || serve(&own, number))?;
            crew.posts.push(post);
            crew.threads.push(handle.thread().clone());
            crew.handles.push(handle);
        }
        Ok(crew)
    }

    /// The tasks that a turn runs at once.
    pub fn tasks(&self) -> usize {
        self.posts.len() + 1
    }

    /// Measures processor times from now on, or does not. A turn takes a microsecond more then.
    pub fn measure(&mut self, is_measured: bool) {
        self.is_measured = is_measured;
        self.posts.iter().for_each(|post| post.is_measured.store(is_measured, Ordering::Relaxed));
    }

    /// The processor times so far.
    pub fn times(&self) -> Times {
        self.times
    }

    /// Runs `task` on each of `items`, with its number, all at once; returns when all have ended. The first runs on the
    /// calling thread.
    ///
    /// # Panics
    /// There are more items than [`Crew::tasks`], or a task panics; all others have ended then.
    pub fn run<T: Send>(&mut self, items: &mut [T], task: impl Fn(usize, &mut T) + Sync) {
        assert!(items.len() <= self.tasks(), "{} tasks for {} threads", items.len(), self.tasks());
        let len = items.len();
        let first = SendPointer(items.as_mut_ptr());
        let on = |number: usize| {
            let first = &first;
            // SAFETY: each number below the length is called once, so that no two tasks share an item.
            task(number, unsafe { &mut *first.0.add(number) });
        };
        if len == 0 {
            return;
        }
        self.turn += 1;
        let began = self.is_measured.then(processor_time);
        let job = Job { call: call_of(&on), data: (&raw const on).cast() };
        let mut turn = Turn { posts: &self.posts[..len - 1], number: self.turn };
        for (post, thread) in turn.posts.iter().zip(&self.threads) {
            // SAFETY: the thread has done its last job (`Turn::wait`), so the cells are ours until `given` is stored.
            unsafe { (*post.job.get(), *post.panic.get()) = (Some(job), None) };
            post.given.store(turn.number, Ordering::SeqCst);
            if post.sleeps.load(Ordering::SeqCst) {
                thread.unpark();
            }
        }
        // If it panics, dropping the turn waits for the others, whose data is on this stack.
        on(0);
        let own = began.map(|began| processor_time().saturating_sub(began));
        turn.wait();
        if let (Some(began), Some(own)) = (began, own) {
            let others = turn.posts.iter().map(|post| Duration::from_nanos(post.spent_ns.load(Ordering::Relaxed)));
            let times = &mut self.times;
            times.all += own + others.clone().sum::<Duration>();
            times.longest += others.fold(own, Duration::max);
            times.caller += processor_time().saturating_sub(began);
        }
        for post in turn.posts {
            // SAFETY: the thread has done its job, so the cell is ours.
            if let Some(panic) = unsafe { (*post.panic.get()).take() } {
                resume_unwind(panic);
            }
        }
    }
}

impl Crew {
    /// As [`Crew::run`], or all on the calling thread, one after the other.
    pub fn each<T: Send>(&mut self, is_parallel: bool, items: &mut [T], task: impl Fn(usize, &mut T) + Sync) {
        if is_parallel {
            self.run(items, task);
        } else {
            items.iter_mut().enumerate().for_each(|(number, item)| task(number, item));
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for (post, thread) in self.posts.iter().zip(&self.threads) {
            post.given.store(LAST, Ordering::SeqCst);
            thread.unpark();
        }
        for handle in self.handles.drain(..) {
            // A task's panic has been passed on; the thread itself has none.
            let _ = handle.join();
        }
    }
}

/// A turn that has begun: it does not end before its tasks.
struct Turn<'a> {
    posts: &'a [Arc<Post>],
    number: u64,
}

impl Turn<'_> {
    fn wait(&mut self) {
        for post in self.posts {
            let mut wait = Wait::default();
            while post.done.load(Ordering::Acquire) != self.number {
                wait.pause();
            }
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.wait();
    }
}

/// The items, whose tasks run on several threads.
struct SendPointer<T>(*mut T);

// SAFETY: each task uses an item of its own, and `T` may be sent to other threads.
unsafe impl<T: Send> Sync for SendPointer<T> {}

/// The function that calls a closure of this type.
fn call_of<F: Fn(usize) + Sync>(_: &F) -> unsafe fn(*const (), usize) {
    /// # Safety
    /// `data` points to an `F`.
    unsafe fn call<F: Fn(usize)>(data: *const (), number: usize) {
        // SAFETY: the caller's.
        unsafe { (*data.cast::<F>())(number) }
    }
    call::<F>
}

/// A wait for a flag.
#[derive(Debug, Default)]
pub(crate) struct Wait {
    looks: u32,
    began: Option<Instant>,
}

impl Wait {
    /// Between two looks; returns false if the wait has taken long.
    pub(crate) fn pause(&mut self) -> bool {
        if self.looks < LOOKS_ALONE {
            self.looks += 1;
            std::hint::spin_loop();
            return true;
        }
        thread::yield_now();
        self.began.get_or_insert_with(Instant::now).elapsed() < PATIENCE
    }
}

/// Runs the jobs of a post.
fn serve(post: &Post, number: usize) {
    let mut seen = 0;
    loop {
        let mut wait = Wait::default();
        loop {
            let given = post.given.load(Ordering::Acquire);
            if given == LAST {
                return;
            }
            if given != seen {
                seen = given;
                break;
            }
            if wait.pause() {
                continue;
            }
            // The caller stores `given`, then loads `sleeps`: one of the two sees the other's store.
            post.sleeps.store(true, Ordering::SeqCst);
            if post.given.load(Ordering::SeqCst) == seen {
                thread::park();
            }
            post.sleeps.store(false, Ordering::SeqCst);
        }
        let began = post.is_measured.load(Ordering::Relaxed).then(processor_time);
        // SAFETY: `given` is stored after the job, which is ours until `done` is stored; its closure lives until then.
        let result = unsafe {
            let job = *post.job.get();
            job.map(|job| catch_unwind(AssertUnwindSafe(|| (job.call)(job.data, number))))
        };
        if let Some(Err(panic)) = result {
            // SAFETY: the cell is ours until `done` is stored.
            unsafe { *post.panic.get() = Some(panic) };
        }
        if let Some(began) = began {
            let spent = processor_time().saturating_sub(began);
            post.spent_ns.store(spent.as_nanos() as u64, Ordering::Relaxed);
        }
        post.done.store(seen, Ordering::Release);
    }
}

/// The time that the thread has spent on a processor.
pub fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_runs_once_on_its_own_item() {
        let mut crew = Crew::new(3).expect("threads");
        let step = 7;
        for turn in 0..2000_u64 {
            let mut items = [turn, turn + 1, turn + 2];
            let used = 1 + (turn as usize) % 3;
            crew.run(&mut items[..used], |number, item| *item = *item * step + number as u64);
            let expected = |number: u64| match (number as usize) < used {
                true => (turn + number) * step + number,
                false => turn + number,
            };
            assert_eq!(items, [expected(0), expected(1), expected(2)]);
            if turn.is_multiple_of(500) {
                // The threads sleep now.
                thread::sleep(Duration::from_millis(5));
            }
        }
        assert_eq!(crew.times(), Times::default());
    }

    #[test]
    fn times_are_those_of_all_tasks_while_they_are_measured() {
        let mut crew = Crew::new(2).expect("threads");
        let work = |crew: &mut Crew| {
            crew.run(&mut [2, 4], |_, milliseconds| {
                let began = processor_time();
                while processor_time() - began < Duration::from_millis(*milliseconds) {}
            });
        };
        crew.measure(true);
        work(&mut crew);
        crew.measure(false);
        work(&mut crew);
        let Times { longest, all, caller } = crew.times();
        // Beside other load a task may take longer, so that there is no upper limit but that of the sums.
        let at_least = |time: Duration, least: u64| time >= Duration::from_millis(least);
        assert!(at_least(longest, 4) && at_least(all, 6) && at_least(caller, 2), "{longest:?} {all:?} {caller:?}");
        assert!(longest < all, "{longest:?} {all:?}");
        work(&mut crew);
        assert_eq!((crew.times().longest, crew.times().all), (longest, all), "not measured");
    }

    #[test]
    fn a_panic_of_any_task_reaches_the_caller_after_all_have_ended() {
        for failing in 0..3 {
            let mut crew = Crew::new(3).expect("threads");
            let mut items = [0; 3];
            let run = |crew: &mut Crew, items: &mut [i32; 3]| {
                crew.run(items, |number, item| {
                    assert_ne!(number, failing, "as planned");
                    thread::sleep(Duration::from_millis(2));
                    *item = 1;
                });
            };
            let result = catch_unwind(AssertUnwindSafe(|| run(&mut crew, &mut items)));
            assert!(result.is_err());
            assert_eq!(items.iter().sum::<i32>(), 2, "{items:?}");
            let mut again = [0; 3];
            crew.run(&mut again, |_, item| *item += 1);
            assert_eq!(again, [1; 3]);
        }
    }

    #[test]
    #[should_panic(expected = "3 tasks for 2 threads")]
    fn a_turn_has_no_more_items_than_threads() {
        Crew::new(2).expect("threads").run(&mut [0; 3], |_, _| ());
    }
}
