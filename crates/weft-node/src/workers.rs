//! Onionskin workers: threads that answer CREATEs off the path of cells, C tor's
//! "cpuworkers".
//!
//! Each worker has a ring from the main thread and one back; jobs go to the worker with the
//! fewest. The controller bounds how many are out at once.

use std::io;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use weft_cell::circ_msg::{CreateReply, CreateRequest};
use weft_cell::reason::DestroyReason;
use weft_core::address::HalfAddr;
use weft_core::controller::OnionskinKind;
use weft_crypto::Tor1Keys;
use weft_crypto::handshake::{self, OnionKeys, ReplyParams};
use weft_sync::ring::{Receiver, Sender, ring};

use crate::thread::mesh::WakeUp;

/// Jobs that one worker's ring holds.
pub const JOBS: usize = 8192;

/// An onionskin to be answered.
struct Job {
    half: HalfAddr,
    request: CreateRequest,
    keys: OnionKeys,
    params: ReplyParams,
    since: Instant,
}

/// What became of an onionskin.
#[derive(Debug)]
pub struct Answer {
    /// The half that waits.
    pub half: HalfAddr,
    /// What it asked for.
    pub kind: OnionskinKind,
    /// What the worker took for it.
    pub spent: Duration,
    /// The reply and its keys, or why there are none.
    pub result: Result<(CreateReply, Box<Tor1Keys>), DestroyReason>,
    /// How long it waited for a worker.
    waited: Duration,
}

/// What a worker has done since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerCounts {
    /// Onionskins that it has and has not answered; those that it answered and nobody polled yet
    /// count too.
    pub pending: usize,
    /// Onionskins answered.
    pub answered: u64,
    /// Time spent on them.
    pub worked: Duration,
    /// Time that they had waited for it.
    pub waited: Duration,
}

/// One worker thread, as the main thread sees it.
struct Worker {
    jobs: Sender<Job>,
    answers: Receiver<Answer>,
    counts: WorkerCounts,
    /// `None` once joined.
    thread: Option<JoinHandle<()>>,
}

/// The pool. Dropping it ends the workers.
pub struct Workers {
    workers: Vec<Worker>,
}

impl Workers {
    /// Starts `count` workers (at least one); `main` is woken for every answer.
    ///
    /// # Errors
    ///
    /// The system starts no more threads.
    pub fn start(count: usize, main: &WakeUp, rng: &mut StdRng) -> io::Result<Self> {
        let mut workers = Vec::new();
        for index in 0..count.max(1) {
            let (jobs, work) = ring(JOBS);
            let (done, answers) = ring(JOBS);
            let (main, rng) = (main.clone(), StdRng::from_rng(rng));
            let thread = std::thread::Builder::new()
                .name(format!("onionskins-{index}"))
                .spawn(move || serve(work, done, &main, rng))?;
            workers.push(Worker {
                jobs,
                answers,
                counts: WorkerCounts::default(),
                thread: Some(thread),
            });
        }
        Ok(Workers { workers })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.workers.len()
    }

    /// What each has done.
    pub fn counts(&self) -> Vec<WorkerCounts> {
        self.workers.iter().map(|worker| worker.counts).collect()
    }

    /// Hands an onionskin to the worker with the fewest. False: every ring is full.
    pub fn submit(
        &mut self,
        half: HalfAddr,
        request: CreateRequest,
        keys: &OnionKeys,
        params: &ReplyParams,
    ) -> bool {
        let fewest = |worker: &&mut Worker| worker.counts.pending;
        let Some(worker) = self.workers.iter_mut().min_by_key(fewest) else {
            return false;
        };
        let job = Job {
            half,
            request,
            keys: keys.clone(),
            params: params.clone(),
            since: Instant::now(),
        };
        if worker.jobs.try_push(job).is_err() {
            return false;
        }
        worker.counts.pending += 1;
        if let Some(thread) = &worker.thread {
            thread.thread().unpark();
        }
        true
    }

    /// The next answer, of any worker.
    pub fn poll(&mut self) -> Option<Answer> {
        self.workers.iter_mut().find_map(|worker| {
            let answer = worker.answers.pop()?;
            let counts = &mut worker.counts;
            counts.pending = counts.pending.saturating_sub(1);
            counts.answered += 1;
            counts.worked += answer.spent;
            counts.waited += answer.waited;
            Some(answer)
        })
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            // A worker ends when its ring's sender is gone.
            worker.jobs = ring(1).0;
            if let Some(thread) = worker.thread.take() {
                thread.thread().unpark();
                // A worker that panicked has nothing left to say.
                let _ = thread.join();
            }
        }
    }
}

/// Answers after which the main thread is woken at the latest: about a millisecond's work.
const ANSWERS_PER_WAKE_UP: u32 = 16;

/// A worker's life.
fn serve(mut work: Receiver<Job>, mut done: Sender<Answer>, main: &WakeUp, mut rng: StdRng) {
    loop {
        let mut untold = 0;
        while let Some(job) = work.pop() {
            let (kind, begun) = (OnionskinKind::of(&job.request), Instant::now());
            let result = handshake::negotiate(&job.request, &job.keys, &job.params, &mut rng)
                .map(|answer| (answer.reply, Box::new(answer.keys)))
                .map_err(|error| {
                    tracing::debug!("An onionskin could not be answered: {error}");
                    DestroyReason::PROTOCOL
                });
            let mut answer = Answer {
                half: job.half,
                kind,
                spent: begun.elapsed(),
                result,
                waited: begun.saturating_duration_since(job.since),
            };
            // The ring back is as long as the ring here: it has room unless the main thread is
            // gone, and then nobody waits.
            while let Err(back) = done.try_push(answer) {
                if done.is_disconnected() {
                    return;
                }
                answer = back;
                main.notify();
                std::thread::yield_now();
            }
            untold += 1;
            // A wake-up costs as much as a tenth of an onionskin, on both sides: while more wait
            // here, several answers share one.
            if untold == ANSWERS_PER_WAKE_UP || work.is_empty() {
                untold = 0;
                main.notify();
            }
        }
        if work.is_disconnected() {
            return;
        }
        // An `unpark` between the last `pop` and here makes this return at once.
        std::thread::park();
    }
}
