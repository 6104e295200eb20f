//! A directory task on a thread of its own, as the node holds it.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::mpsc;

use super::{Config, DirectoryTask, EventSink};
use crate::clock::SystemClock;
use crate::command::Command;

/// Commands that may wait; a node that is so far ahead is told, not blocked.
const QUEUE: usize = 256;

/// A directory task on a thread of its own. Dropping it ends the task.
#[derive(Debug)]
pub struct DirectoryHandle {
    /// Where commands go.
    commands: mpsc::Sender<Command>,
    /// The thread.
    thread: Option<JoinHandle<()>>,
}

/// The task does not take commands: it is overwhelmed or has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the directory task does not take commands")]
pub struct NotTaken;

impl DirectoryHandle {
    /// Starts a task that lives by the machine's clocks.
    pub fn start(config: Config, events: EventSink) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (sender, receiver) = mpsc::channel(QUEUE);
        let thread = std::thread::Builder::new()
            .name("directory".into())
            .spawn(move || {
                let task = DirectoryTask::new(config, Arc::new(SystemClock::default()), events);
                runtime.block_on(task.run(receiver));
            })?;
        Ok(Self {
            commands: sender,
            thread: Some(thread),
        })
    }

    /// Sends a command without waiting.
    pub fn send(&self, command: Command) -> Result<(), NotTaken> {
        self.commands.try_send(command).map_err(|_| NotTaken)
    }

    /// Ends the task and waits for it; its last event is [`Event::State`].
    pub fn shutdown(mut self) {
        // A full queue cannot take the command; closing the channel below says the same.
        let _ = self.commands.try_send(Command::Shutdown);
        self.commands = mpsc::channel(1).0;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
