//! The client for callers on other threads or tasks: a control port.

use tokio::sync::{broadcast, mpsc, oneshot};
use weft_cell::stream_msg::Resolved;
use weft_core::origin::AppOpening;

use super::messages::{ClientNews, Inside, Job};

/// A handle of the client thread.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(super) jobs: mpsc::Sender<Job>,
    pub(super) news: broadcast::Sender<ClientNews>,
}

impl Access {
    /// Runs `what` on the client thread, between two events, and returns its result. `None`: the client
    /// is ending.
    pub(crate) async fn with<T: Send + 'static>(
        &self,
        what: impl FnOnce(Inside<'_>) -> T + Send + 'static,
    ) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        let job = Job::Do(Box::new(move |inside| {
            // The caller may have stopped waiting.
            let _ = reply.send(what(inside));
        }));
        self.jobs.send(job).await.ok()?;
        answer.await.ok()
    }

    /// Looks a name or an address up over a circuit; an empty answer if that failed. `None`: the client is
    /// ending.
    pub(crate) async fn look_up(&self, what: AppOpening) -> Option<Resolved> {
        let (reply, answer) = oneshot::channel();
        self.jobs.send(Job::LookUp(what, reply)).await.ok()?;
        answer.await.ok()
    }

    /// The news from now on. A receiver that is too slow misses some.
    pub(crate) fn events(&self) -> broadcast::Receiver<ClientNews> {
        self.news.subscribe()
    }
}
