//! How the rest of the node holds the client: the main thread by [`ClientThread`], the control
//! port and others on the client's own runtime by [`Access`].

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use tokio::sync::{broadcast, mpsc, oneshot};
use weft_cell::stream_msg::Resolved;
use weft_core::address::ConnectionId;
use weft_core::origin::AppOpening;
use weft_core::origin::{OriginCommand, OriginEvent};

use super::events::{Bootstrap, ClientEvent};
use super::machine::{Client, Now};
use super::paths::Paths;
use super::settings::ClientSettings;
use super::task::Task;
use crate::thread::mesh::WakeUp;

/// Events that may wait for the client.
const EVENTS: usize = 8192;
/// Commands and news that may wait for the main thread.
const COMMANDS: usize = 8192;
/// Jobs that may wait for the client.
const JOBS: usize = 256;
/// Events that a controller may be behind.
const TOLD: usize = 4096;

/// What the main thread tells the client.
#[derive(Debug)]
pub enum ToClient {
    /// Something happened on the connection threads.
    Event(OriginEvent),
    /// torrc has changed.
    Settings(Box<ClientSettings>),
    /// SIGNAL NEWNYM and SIGHUP's kin: share no circuit with what was.
    NewIdentity,
    /// Save what there is to save, and end.
    Shutdown,
}

/// What the client tells the main thread.
#[derive(Debug)]
pub enum FromClient {
    /// For the controller.
    Command(OriginCommand),
    /// For the state file: all values of each key.
    State(Vec<(&'static str, Vec<String>)>),
    /// There is a new network: its parameters hold for our own circuits, too.
    Network(std::sync::Arc<weft_dir::client::Network>),
    /// The network requires of clients what this one does not speak: which protocols.
    TooOld(String),
    /// A controller asks for what the main thread does: a signal, by its number.
    Signal(i32),
}

/// The client's thread, as the main thread holds it.
#[derive(Debug)]
pub struct ClientThread {
    to: mpsc::Sender<ToClient>,
    /// What found no room, in order.
    stuck: VecDeque<ToClient>,
    from: Receiver<FromClient>,
    access: Access,
    thread: Option<JoinHandle<()>>,
}

impl ClientThread {
    /// Starts the thread. `state` are the lines of the state file; `main` wakes the main thread.
    ///
    /// # Errors
    ///
    /// The system gives no thread or no event loop.
    pub fn start(
        settings: ClientSettings,
        state: &[(String, String)],
        seed: [u8; 32],
        main: WakeUp,
    ) -> io::Result<Self> {
        let (to, inbox) = mpsc::channel(EVENTS);
        let (sender, from) = sync_channel(COMMANDS);
        let (jobs, job_queue) = mpsc::channel(JOBS);
        let (told, _) = broadcast::channel(TOLD);
        let access = Access {
            jobs,
            told: told.clone(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let state = state.to_vec();
        let out = Outgoing {
            sender,
            stuck: VecDeque::new(),
            main,
        };
        let thread = std::thread::Builder::new()
            .name("client".to_owned())
            .spawn(move || {
                let task = Task::new(settings, &state, seed, inbox, job_queue, told, out);
                runtime.block_on(task.run());
            })?;
        Ok(ClientThread {
            to,
            stuck: VecDeque::new(),
            from,
            access,
            thread: Some(thread),
        })
    }

    /// Tells the client something; it waits here if the client is far behind.
    pub fn send(&mut self, message: ToClient) {
        self.stuck.push_back(message);
        self.flush();
    }

    /// Tries again what found no room.
    pub fn flush(&mut self) {
        while let Some(message) = self.stuck.pop_front() {
            if let Err(mpsc::error::TrySendError::Full(message)) = self.to.try_send(message) {
                self.stuck.push_front(message);
                return;
            }
        }
    }

    /// Something found no room: nothing that makes more should be done.
    pub fn is_stuck(&self) -> bool {
        !self.stuck.is_empty()
    }

    /// What the client wants next.
    pub fn poll(&mut self) -> Option<FromClient> {
        self.from.try_recv().ok()
    }

    /// The client, for what runs on its thread or asks it questions.
    pub fn access(&self) -> Access {
        self.access.clone()
    }

    /// Whether the thread ended before it was told to.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends the thread. What it still wanted comes to `last`.
    pub fn end(mut self, mut last: impl FnMut(FromClient)) {
        self.send(ToClient::Shutdown);
        let Some(thread) = self.thread.take() else {
            return;
        };
        let deadline = std::time::Instant::now() + super::task::END_PATIENCE;
        while !thread.is_finished() && std::time::Instant::now() < deadline {
            self.flush();
            while let Some(message) = self.poll() {
                last(message);
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        if !thread.is_finished() {
            tracing::warn!("The client thread does not end; the process ends without it");
            return;
        }
        if thread.join().is_err() {
            tracing::warn!("The client thread panicked");
        }
        while let Some(message) = self.poll() {
            last(message);
        }
    }
}

/// What is on its way to the main thread.
#[derive(Debug)]
pub(super) struct Outgoing {
    sender: SyncSender<FromClient>,
    stuck: VecDeque<FromClient>,
    main: WakeUp,
}

impl Outgoing {
    /// Queues something.
    pub(super) fn send(&mut self, message: FromClient) {
        self.stuck.push_back(message);
    }

    /// Hands over what there is room for, and wakes the main thread. False: not all.
    pub(super) fn flush(&mut self) -> bool {
        let mut sent = false;
        while let Some(message) = self.stuck.pop_front() {
            match self.sender.try_send(message) {
                Ok(()) => sent = true,
                Err(TrySendError::Full(message)) => {
                    self.stuck.push_front(message);
                    break;
                }
                // The main thread is gone.
                Err(TrySendError::Disconnected(_)) => {}
            }
        }
        if sent {
            self.main.notify();
        }
        self.stuck.is_empty()
    }
}

/// What the task lets others touch.
pub struct Inside<'a> {
    /// The circuits and streams.
    pub client: &'a mut Client<Paths>,
    /// How far the start has come.
    pub bootstrap: Option<Bootstrap>,
    /// The time.
    pub now: Now,
}

/// Something to be done with the client, on its thread.
pub(super) enum Job {
    /// Anything that needs no waiting.
    Do(Box<dyn FnOnce(Inside<'_>) + Send>),
    /// A lookup.
    LookUp(AppOpening, oneshot::Sender<Resolved>),
    /// A signal, for the main thread.
    Signal(i32),
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Job")
    }
}

/// The client, for those who ask it from elsewhere: a control port.
#[derive(Clone, Debug)]
pub struct Access {
    jobs: mpsc::Sender<Job>,
    told: broadcast::Sender<ClientEvent>,
}

impl Access {
    /// Has something done on the client's thread, between two events, and waits for the answer.
    /// `None`: the client is ending.
    pub async fn with<T: Send + 'static>(
        &self,
        what: impl FnOnce(Inside<'_>) -> T + Send + 'static,
    ) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        let job = Job::Do(Box::new(move |inside| {
            // Who asked may have gone.
            let _ = reply.send(what(inside));
        }));
        self.jobs.send(job).await.ok()?;
        answer.await.ok()
    }

    /// Looks a name or an address up over a circuit; no answer if none could be had. `None`: the
    /// client is ending.
    pub async fn look_up(&self, what: AppOpening) -> Option<Resolved> {
        let (reply, answer) = oneshot::channel();
        self.jobs.send(Job::LookUp(what, reply)).await.ok()?;
        answer.await.ok()
    }

    /// Has the main thread do what it does at this signal (SIGNAL of control-spec).
    pub async fn signal(&self, number: i32) {
        let _ = self.jobs.send(Job::Signal(number)).await;
    }

    /// Everything that happens from now on. Who is too slow misses some.
    pub fn events(&self) -> broadcast::Receiver<ClientEvent> {
        self.told.subscribe()
    }
}

/// Which stream a lookup is.
pub(super) type LookUps = std::collections::BTreeMap<ConnectionId, oneshot::Sender<Resolved>>;
