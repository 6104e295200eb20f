//! The client thread, as the main thread holds it ([`ClientThread`]).

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;

use tokio::sync::{broadcast, mpsc};

use super::access::Access;
use super::messages::{END_PATIENCE, FromClient, Outgoing, ToClient};
use super::settings::ClientSettings;
use super::task::Task;
use crate::logging;
use crate::wake::WakeUp;

/// Events that may wait for the client.
const EVENTS: usize = 8192;
/// Messages that may wait for the main thread.
const COMMANDS: usize = 8192;
/// Jobs that may wait for the client.
const JOBS: usize = 256;
/// Events that a slow controller may have unread.
const NEWS: usize = 4096;

/// The client thread and the channels to it.
#[derive(Debug)]
pub(crate) struct ClientThread {
    to: mpsc::Sender<ToClient>,
    /// Messages that the channel did not take, in order.
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
    /// The system could not start a thread or an event loop.
    pub(crate) fn start(
        settings: ClientSettings,
        state: &[(String, String)],
        seed: [u8; 32],
        main: WakeUp,
    ) -> io::Result<Self> {
        let (to, inbox) = mpsc::channel(EVENTS);
        let (sender, from) = sync_channel(COMMANDS);
        let (jobs, job_queue) = mpsc::channel(JOBS);
        let (news, _) = broadcast::channel(NEWS);
        let access = Access {
            jobs,
            news: news.clone(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let state = state.to_vec();
        let out = Outgoing::new(sender, main);
        let thread = logging::spawn("client", move || {
            let task = Task::new(settings, &state, seed, inbox, job_queue, news, out);
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

    /// Sends a message; it waits here if the client is far behind.
    pub(crate) fn send(&mut self, message: ToClient) {
        self.stuck.push_back(message);
        self.flush();
    }

    /// Sends messages that the channel did not take before.
    pub(crate) fn flush(&mut self) {
        while let Some(message) = self.stuck.pop_front() {
            if let Err(mpsc::error::TrySendError::Full(message)) = self.to.try_send(message) {
                self.stuck.push_front(message);
                return;
            }
        }
    }

    /// True if messages wait for room in the channel; the caller should then cause no more.
    pub(crate) fn is_stuck(&self) -> bool {
        !self.stuck.is_empty()
    }

    /// The next message of the client.
    pub(crate) fn poll(&mut self) -> Option<FromClient> {
        self.from.try_recv().ok()
    }

    /// A handle for other threads.
    pub(crate) fn access(&self) -> Access {
        self.access.clone()
    }

    /// True if the thread has ended by itself.
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends the thread. Its last messages are passed to `last`.
    pub(crate) fn end(mut self, mut last: impl FnMut(FromClient)) {
        self.send(ToClient::Shutdown);
        let Some(thread) = self.thread.take() else {
            return;
        };
        let deadline = std::time::Instant::now() + END_PATIENCE;
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
