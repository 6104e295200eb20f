//! Onionskin workers: threads that answer CREATEs off the path of cells, C tor's
//! "cpuworkers".
//!
//! Each worker has a ring from the main thread and one back; jobs go to the worker with the
//! fewest. The controller bounds how many are out at once. A worker answers as many together as wait
//! for it, up to [`BATCH`]: their public-key work is much cheaper together.

use std::io;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use weft_cell::circ_msg::{CreateReply, CreateRequest};
use weft_cell::reason::DestroyReason;
use weft_core::address::HalfAddr;
use weft_core::controller::OnionskinKind;
use weft_crypto::HopKeys;
use weft_crypto::handshake::{self, BATCH, OnionKeys, ReplyParams, Request};
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

impl Job {
    /// Whether it is a CREATE_FAST.
    fn is_fast(&self) -> bool {
        matches!(self.request, CreateRequest::Fast { .. })
    }
}

/// What became of an onionskin.
#[derive(Debug)]
pub struct Answer {
    /// The half that waits.
    pub half: HalfAddr,
    /// What it asked for.
    pub kind: OnionskinKind,
    /// What the worker took for it: its part of what it took for those answered with it.
    pub spent: Duration,
    /// The reply and its keys, or why there are none.
    pub result: Result<(CreateReply, Box<HopKeys>, Option<u8>), DestroyReason>,
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

    /// Hands an onionskin that arrived at this time to the worker with the fewest. False: every ring
    /// is full.
    pub fn submit(
        &mut self,
        half: HalfAddr,
        request: CreateRequest,
        keys: &OnionKeys,
        params: &ReplyParams,
        since: Instant,
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
            since,
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

/// Answers after which the main thread is woken at the latest: less than a millisecond's work.
const ANSWERS_PER_WAKE_UP: usize = 16;

/// A worker's life.
fn serve(work: Receiver<Job>, mut done: Sender<Answer>, main: &WakeUp, mut rng: StdRng) {
    let mut waiting = Waiting { work, held: None };
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        let mut untold = 0;
        while waiting.take(&mut batch) {
            untold += batch.len();
            for mut answer in answer_all(&mut batch, &mut rng) {
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
            }
            // A wake-up costs as much as a tenth of an onionskin, on both sides: while more wait
            // here, several answers share one.
            if untold >= ANSWERS_PER_WAKE_UP || waiting.is_empty() {
                untold = 0;
                main.notify();
            }
        }
        if waiting.work.is_disconnected() {
            return;
        }
        // An `unpark` between the last `take` and here makes this return at once.
        std::thread::park();
    }
}

/// What waits for a worker.
struct Waiting {
    work: Receiver<Job>,
    /// The next one, taken out of the ring already.
    held: Option<Job>,
}

impl Waiting {
    /// Fills `batch`, which is empty, with what is answered together. False: nothing waits.
    ///
    /// CREATE_FASTs, which are hashes alone, come by themselves: what one of a batch takes is
    /// reckoned as its part of the whole, and that is wanted for each kind (ntor and ntor-v3 take
    /// nearly the same).
    fn take(&mut self, batch: &mut Vec<Job>) -> bool {
        while batch.len() < BATCH
            && let Some(job) = self.held.take().or_else(|| self.work.pop())
        {
            if batch
                .first()
                .is_some_and(|first| first.is_fast() != job.is_fast())
            {
                self.held = Some(job);
                break;
            }
            batch.push(job);
        }
        !batch.is_empty()
    }

    /// Whether nothing waits.
    fn is_empty(&self) -> bool {
        self.held.is_none() && self.work.is_empty()
    }
}

/// Takes the jobs of `batch` and answers them, in their order.
fn answer_all(batch: &mut Vec<Job>, rng: &mut StdRng) -> Vec<Answer> {
    let begun = Instant::now();
    let requests: Vec<_> = batch
        .iter()
        .map(|job| Request {
            request: &job.request,
            keys: &job.keys,
            params: &job.params,
        })
        .collect();
    let results = handshake::negotiate_all(&requests, rng);
    let each = u32::try_from(results.len()).unwrap_or(1).max(1);
    let spent = begun.elapsed() / each;
    let answers = batch.drain(..).zip(results).map(|(job, result)| Answer {
        half: job.half,
        kind: OnionskinKind::of(&job.request),
        spent,
        result: result
            .map(|answer| (answer.reply, Box::new(answer.keys), answer.sendme_inc))
            .map_err(|error| {
                tracing::debug!("An onionskin could not be answered: {error}");
                DestroyReason::PROTOCOL
            }),
        waited: begun.saturating_duration_since(job.since),
    });
    answers.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mio::{Poll, Token, Waker};
    use std::sync::Arc;
    use weft_cell::circ_msg::handshake_type;
    use weft_core::address::ThreadId;
    use weft_crypto::handshake::{fast, ntor, ntor_v3};
    use weft_sync::wake::WakeFlag;

    fn keys() -> OnionKeys {
        OnionKeys::new([1; 20], [2; 32], &[3; 32], None)
    }

    /// A request of the kind that `number` says; every fourth is for another relay.
    fn request(number: u32) -> CreateRequest {
        let (keys, mut rng) = (keys(), StdRng::seed_from_u64(number.into()));
        let create2 = |handshake_type, data| CreateRequest::Create2 {
            handshake_type,
            data,
        };
        let public = keys.current_public();
        match number % 4 {
            0 => {
                let client = ntor::ClientState::start(keys.rsa_identity(), &public, &mut rng);
                create2(handshake_type::NTOR, client.onionskin().to_vec())
            }
            1 => {
                let id = keys.ed_identity();
                let client = ntor_v3::ClientState::start(id, &public, &[], &mut rng);
                create2(handshake_type::NTOR_V3, client.unwrap().1)
            }
            2 => CreateRequest::Fast {
                x: *fast::ClientState::start(&mut rng).x(),
            },
            _ => create2(handshake_type::NTOR, vec![0; 84]),
        }
    }

    fn job(number: u32) -> Job {
        Job {
            half: HalfAddr {
                thread: ThreadId(0),
                slot: number,
                generation: 0,
            },
            request: request(number),
            keys: keys(),
            params: ReplyParams::default(),
            since: Instant::now(),
        }
    }

    fn wake_up() -> (Poll, WakeUp) {
        let poll = Poll::new().unwrap();
        let wake_up = WakeUp {
            flag: Arc::new(WakeFlag::new()),
            waker: Arc::new(Waker::new(poll.registry(), Token(0)).unwrap()),
        };
        (poll, wake_up)
    }

    /// A worker that finds many jobs waiting answers each, in their order, by its own kind.
    #[test]
    fn every_job_gets_its_own_answer() {
        for count in [1, 2, 3, 40] {
            let (mut jobs, work) = ring(JOBS);
            let (done, mut answers) = ring(JOBS);
            for number in 0..count {
                assert!(jobs.try_push(job(number)).is_ok());
            }
            // The worker ends when it has nothing left to do.
            drop(jobs);
            let (_poll, main) = wake_up();
            serve(work, done, &main, StdRng::seed_from_u64(1));
            for number in 0..count {
                let answer = answers.pop().unwrap();
                assert_eq!(answer.half.slot, number);
                assert_eq!(answer.kind, OnionskinKind::of(&request(number)));
                match (number % 4, answer.result) {
                    (0 | 1, Ok((CreateReply::Created2 { .. }, ..)))
                    | (2, Ok((CreateReply::Fast { .. }, ..)))
                    | (3, Err(DestroyReason::PROTOCOL)) => {}
                    (_, result) => panic!("{number}: {result:?}"),
                }
            }
            assert!(answers.pop().is_none());
        }
    }

    /// CREATE_FASTs and the others are not answered together, whatever their order.
    #[test]
    fn a_batch_is_of_hashes_or_of_public_keys() {
        let (mut jobs, work) = ring(JOBS);
        for number in (0..40).chain([2; 20]).chain([0; 20]) {
            assert!(jobs.try_push(job(number)).is_ok());
        }
        let mut waiting = Waiting { work, held: None };
        let mut seen = 0;
        let (mut batch, mut longest) = (Vec::new(), 0);
        while waiting.take(&mut batch) {
            assert!(batch.iter().all(|job| job.is_fast() == batch[0].is_fast()));
            seen += batch.len();
            longest = longest.max(batch.len());
            batch.clear();
        }
        assert_eq!((seen, longest), (80, BATCH));
        assert!(waiting.is_empty());
    }
}
