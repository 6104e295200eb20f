//! Onionskin workers (C tor's cpuworkers): threads that answer CREATEs, so that their public-key work does
//! not delay cells.
//!
//! Each worker has a ring from the main thread and one back. A job goes to the worker with the fewest
//! jobs; the controller bounds how many are under way. A worker answers waiting jobs in batches of up to
//! [`BATCH`], whose public-key work is much cheaper together. Where the process has several identities, each worker has
//! rings of each, and answers a batch of each in turn.

use std::io;
use std::sync::Arc;
use std::thread::{JoinHandle, Thread};
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

use crate::logging;
use crate::process::sandbox::{Role, narrow};
use crate::wake::WakeUp;

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
    thread: Thread,
}

/// The pool of workers, as one identity sees it. Dropping the last identity's ends them.
pub(crate) struct Workers {
    workers: Vec<Worker>,
    threads: Option<Arc<Threads>>,
}

/// The threads. Dropping them waits until they have ended.
struct Threads(Vec<JoinHandle<()>>);

impl Drop for Threads {
    fn drop(&mut self) {
        for thread in self.0.drain(..) {
            // A panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl Workers {
    /// Starts `count` workers (at least one) for the identities whose main threads these are: each is woken for every
    /// answer to it.
    ///
    /// # Errors
    ///
    /// The system could not start a thread.
    pub(crate) fn start(count: usize, mains: &[WakeUp], rng: &mut StdRng) -> io::Result<Vec<Self>> {
        let mut threads = Threads(Vec::new());
        let mut of: Vec<Vec<Worker>> = mains.iter().map(|_| Vec::new()).collect();
        for index in 0..count.max(1) {
            let mut seats = Vec::new();
            let mut ends = Vec::new();
            for main in mains {
                let (jobs, work) = ring(JOBS);
                let (done, answers) = ring(JOBS);
                seats.push(Seat {
                    waiting: Waiting { work, held: None },
                    done,
                    main: main.clone(),
                    unreported: 0,
                });
                ends.push((jobs, answers));
            }
            let rng = StdRng::from_rng(rng);
            let handle = logging::spawn(&format!("onionskins-{index}"), move || {
                narrow(Role::Worker);
                serve(seats, rng);
            })?;
            for (workers, (jobs, answers)) in of.iter_mut().zip(ends) {
                workers.push(Worker {
                    jobs,
                    answers,
                    counts: WorkerCounts::default(),
                    thread: handle.thread().clone(),
                });
            }
            threads.0.push(handle);
        }
        let threads = Arc::new(threads);
        let pool = |workers| Workers {
            workers,
            threads: Some(threads.clone()),
        };
        Ok(of.into_iter().map(pool).collect())
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
        worker.thread.unpark();
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
            // A worker ends when the senders of all its rings are dropped.
            worker.jobs = ring(1).0;
            worker.thread.unpark();
        }
        drop(self.threads.take());
    }
}

/// Answers after which the main thread is woken at the latest: less than a millisecond's work.
const ANSWERS_PER_WAKE_UP: usize = 16;

/// One identity's rings to and from a worker.
struct Seat {
    waiting: Waiting,
    done: Sender<Answer>,
    main: WakeUp,
    /// Answers that the main thread was not woken for.
    unreported: usize,
}

/// Result of a seat's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Answered,
    /// No jobs wait.
    Idle,
    /// The other side is gone.
    Over,
}

impl Seat {
    /// Answers a batch of jobs.
    fn turn(&mut self, batch: &mut Vec<Job>, rng: &mut StdRng) -> Turn {
        if !self.waiting.take(batch) {
            return match self.waiting.work.is_disconnected() {
                true => Turn::Over,
                false => Turn::Idle,
            };
        }
        self.unreported += batch.len();
        for mut answer in answer_all(batch, rng) {
            // The ring back is as long as the ring of jobs: it is full only if the main thread is
            // late or has ended.
            while let Err(back) = self.done.try_push(answer) {
                if self.done.is_disconnected() {
                    return Turn::Over;
                }
                answer = back;
                self.main.notify();
                std::thread::yield_now();
            }
        }
        // A wake-up costs both sides as much as a tenth of an onionskin: while more jobs wait,
        // several answers share one.
        if self.unreported >= ANSWERS_PER_WAKE_UP || self.waiting.is_empty() {
            self.unreported = 0;
            self.main.notify();
        }
        Turn::Answered
    }
}

/// The loop of a worker thread.
fn serve(mut seats: Vec<Seat>, mut rng: StdRng) {
    let mut batch = Vec::with_capacity(BATCH);
    while !seats.is_empty() {
        let mut is_idle = true;
        seats.retain_mut(|seat| {
            let turn = seat.turn(&mut batch, &mut rng);
            is_idle &= turn != Turn::Answered;
            turn != Turn::Over
        });
        if is_idle && !seats.is_empty() {
            // An `unpark` since the last turns makes this return at once.
            std::thread::park();
        }
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

    fn seat(work: Receiver<Job>, done: Sender<Answer>, main: WakeUp) -> Seat {
        Seat {
            waiting: Waiting { work, held: None },
            done,
            main,
            unreported: 0,
        }
    }

    #[test]
    fn identities_have_batches_in_turn_and_one_that_ends_leaves_the_others() {
        let mut seats = Vec::new();
        let mut ends = Vec::new();
        for _ in 0..2 {
            let (jobs, work) = ring(JOBS);
            let (done, answers) = ring(JOBS);
            let (poll, main) = wake_up();
            seats.push(seat(work, done, main));
            ends.push((jobs, answers, poll));
        }
        let many = u32::try_from(3 * BATCH).unwrap();
        let [(first, _, _), (second, _, _)] = &mut ends[..] else {
            panic!("two");
        };
        for _ in 0..many {
            assert!(first.try_push(job(0)).is_ok());
        }
        assert!(second.try_push(job(1)).is_ok());
        // The second has its answer before the first has all of its answers.
        let (mut batch, mut rng) = (Vec::new(), StdRng::seed_from_u64(1));
        for seat in &mut seats {
            assert_eq!(seat.turn(&mut batch, &mut rng), Turn::Answered);
        }
        let [(_, of_first, _), (_, of_second, _)] = &mut ends[..] else {
            panic!("two");
        };
        assert_eq!(std::iter::from_fn(|| of_first.pop()).count(), BATCH);
        assert_eq!(of_second.pop().unwrap().half.slot.0, 1);
        // The first is gone, with jobs whose answers are no longer wanted; the worker goes on until
        // the second is, too.
        let (jobs, mut answers, _poll) = ends.pop().unwrap();
        drop(ends);
        let worker = std::thread::spawn(move || serve(seats, StdRng::seed_from_u64(2)));
        let mut jobs = jobs;
        assert!(jobs.try_push(job(5)).is_ok());
        worker.thread().unpark();
        let answer = loop {
            match answers.pop() {
                Some(answer) => break answer,
                None => std::thread::yield_now(),
            }
        };
        assert_eq!(answer.half.slot.0, 5);
        drop(jobs);
        worker.thread().unpark();
        worker.join().unwrap();
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
            serve(vec![seat(work, done, main)], StdRng::seed_from_u64(1));
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
