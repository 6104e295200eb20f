//! Onionskin workers (C tor's cpuworkers): threads that answer CREATEs, so that their public-key work does
//! not delay cells.
//!
//! Each worker has a ring from the main thread and one back. A job goes to the worker with the fewest
//! jobs; the controller bounds how many are under way. A worker answers waiting jobs in batches of up to
//! [`BATCH`], whose public-key work is much cheaper together.

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

use crate::process::sandbox::{Role, narrow};
use crate::thread::mesh::WakeUp;

/// The size of a worker's ring, in jobs.
pub(crate) const JOBS: usize = 8192;

/// An onionskin that waits for an answer.
struct Job {
    half: HalfAddr,
    request: CreateRequest,
    keys: OnionKeys,
    params: ReplyParams,
    since: Instant,
}

impl Job {
    fn is_fast(&self) -> bool {
        matches!(self.request, CreateRequest::Fast { .. })
    }
}

/// The answer to an onionskin.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The half that waits for it.
    pub half: HalfAddr,
    pub kind: OnionskinKind,
    /// The worker's time for it: an equal part of the time for its batch.
    pub spent: Duration,
    /// The reply, the keys and the SENDME increment, or the reason of the refusal.
    pub result: Result<(CreateReply, Box<HopKeys>, Option<u8>), DestroyReason>,
    /// The time until a worker took it.
    waited: Duration,
}

/// Counters of a worker since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WorkerCounts {
    /// Onionskins submitted and not yet polled as answers.
    pub pending: usize,
    /// Onionskins answered.
    pub answered: u64,
    /// The time spent on them.
    pub worked: Duration,
    /// The time that they waited.
    pub waited: Duration,
}

/// One worker thread, as the main thread holds it.
struct Worker {
    jobs: Sender<Job>,
    answers: Receiver<Answer>,
    counts: WorkerCounts,
    /// `None` once joined.
    thread: Option<JoinHandle<()>>,
}

/// The pool of workers. Dropping it ends them.
pub(crate) struct Workers {
    workers: Vec<Worker>,
}

impl Workers {
    /// Starts `count` workers (at least one); `main` is woken for every answer.
    ///
    /// # Errors
    ///
    /// The system could not start a thread.
    pub(crate) fn start(count: usize, main: &WakeUp, rng: &mut StdRng) -> io::Result<Self> {
        let mut workers = Vec::new();
        for index in 0..count.max(1) {
            let (jobs, work) = ring(JOBS);
            let (done, answers) = ring(JOBS);
            let (main, rng) = (main.clone(), StdRng::from_rng(rng));
            let thread = std::thread::Builder::new()
                .name(format!("onionskins-{index}"))
                .spawn(move || {
                    narrow(Role::Worker);
                    serve(work, done, &main, rng);
                })?;
            workers.push(Worker {
                jobs,
                answers,
                counts: WorkerCounts::default(),
                thread: Some(thread),
            });
        }
        Ok(Workers { workers })
    }

    pub(crate) fn count(&self) -> usize {
        self.workers.len()
    }

    /// The counters of each worker.
    pub(crate) fn counts(&self) -> Vec<WorkerCounts> {
        self.workers.iter().map(|worker| worker.counts).collect()
    }

    /// Submits an onionskin to the worker with the fewest; `since` is when it arrived. False: that
    /// worker's ring is full.
    pub(crate) fn submit(
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
    pub(crate) fn poll(&mut self) -> Option<Answer> {
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
            // A worker ends when its ring's sender is dropped.
            worker.jobs = ring(1).0;
            if let Some(thread) = worker.thread.take() {
                thread.thread().unpark();
                // A panic was reported when it happened.
                let _ = thread.join();
            }
        }
    }
}

/// Answers after which the main thread is woken at the latest: less than a millisecond's work.
const ANSWERS_PER_WAKE_UP: usize = 16;

/// The loop of a worker thread.
fn serve(work: Receiver<Job>, mut done: Sender<Answer>, main: &WakeUp, mut rng: StdRng) {
    let mut waiting = Waiting { work, held: None };
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        let mut unreported = 0;
        while waiting.take(&mut batch) {
            unreported += batch.len();
            for mut answer in answer_all(&mut batch, &mut rng) {
                // The ring back is as long as the ring of jobs: it is full only if the main thread is
                // late or has ended.
                while let Err(back) = done.try_push(answer) {
                    if done.is_disconnected() {
                        return;
                    }
                    answer = back;
                    main.notify();
                    std::thread::yield_now();
                }
            }
            // A wake-up costs both sides as much as a tenth of an onionskin: while more jobs wait,
            // several answers share one.
            if unreported >= ANSWERS_PER_WAKE_UP || waiting.is_empty() {
                unreported = 0;
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

/// The queue of one worker's jobs.
struct Waiting {
    work: Receiver<Job>,
    /// The next job, taken out of the ring already.
    held: Option<Job>,
}

impl Waiting {
    /// Fills `batch`, which is empty, with jobs to answer together. False: none waits.
    ///
    /// CREATE_FASTs, which need no public-key work, get batches of their own: a batch's time is divided
    /// equally among its jobs, and the time of each kind is measured (ntor and ntor-v3 take nearly the same).
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

    fn is_empty(&self) -> bool {
        self.held.is_none() && self.work.is_empty()
    }
}

/// Answers the jobs of `batch`, in their order, and empties it.
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
        OnionKeys::new([1; 20].into(), [2; 32].into(), &[3; 32], None)
    }

    /// A request whose kind depends on `number`; every fourth is for another relay.
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
                slot: weft_core::slots::HalfKey(number),
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

    /// A worker answers many waiting jobs in order, each by its kind.
    #[test]
    fn every_job_gets_its_own_answer() {
        for count in [1, 2, 3, 40] {
            let (mut jobs, work) = ring(JOBS);
            let (done, mut answers) = ring(JOBS);
            for number in 0..count {
                assert!(jobs.try_push(job(number)).is_ok());
            }
            // Without a sender the worker ends after the last job.
            drop(jobs);
            let (_poll, main) = wake_up();
            serve(work, done, &main, StdRng::seed_from_u64(1));
            for number in 0..count {
                let answer = answers.pop().unwrap();
                assert_eq!(answer.half.slot.0, number);
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

    #[test]
    fn create_fasts_have_batches_of_their_own() {
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
