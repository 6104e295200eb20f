//! Time as the directory task sees it, so that tests can drive it.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant, SystemTime};

/// Where the directory task takes its time from.
///
/// Two times, because the wall clock may jump: validity of documents is judged by
/// [`wall`](Clock::wall), retries and time limits by [`monotonic`](Clock::monotonic).
pub trait Clock: Send + Sync + 'static {
    /// The wall clock.
    fn wall(&self) -> SystemTime;
    /// Time since some fixed moment; never goes back.
    fn monotonic(&self) -> Duration;
    /// Returns once `duration` of monotonic time has passed.
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// The machine's clocks.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock(Instant);

impl Default for SystemClock {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Clock for SystemClock {
    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(tokio::time::sleep(duration))
    }
}

/// `ours` minus `theirs` in seconds.
pub(crate) fn signed_seconds(ours: SystemTime, theirs: SystemTime) -> i64 {
    let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    match ours.duration_since(theirs) {
        Ok(ahead) => seconds(ahead),
        Err(behind) => -seconds(behind.duration()),
    }
}

/// A clock that stands still until a test moves it.
#[derive(Debug)]
pub struct ManualClock {
    /// Wall clock at the start.
    start: SystemTime,
    /// Time that has elapsed; sleepers watch it.
    elapsed: tokio::sync::watch::Sender<Duration>,
}

impl ManualClock {
    /// A clock whose wall clock shows `start`.
    pub fn new(start: SystemTime) -> Self {
        Self {
            start,
            elapsed: tokio::sync::watch::Sender::new(Duration::ZERO),
        }
    }

    /// Moves both clocks forward and wakes the sleepers whose time has come.
    pub fn advance(&self, by: Duration) {
        self.elapsed.send_modify(|elapsed| *elapsed += by);
    }
}

impl Clock for ManualClock {
    fn wall(&self) -> SystemTime {
        self.start + *self.elapsed.borrow()
    }

    fn monotonic(&self) -> Duration {
        *self.elapsed.borrow()
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let mut watch = self.elapsed.subscribe();
        let until = *watch.borrow() + duration;
        Box::pin(async move {
            // The sender lives as long as `self`, so waiting cannot fail; if it ever did, a
            // sleeper that returns early is harmless.
            let _ = watch.wait_for(|elapsed| *elapsed >= until).await;
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_sleeper_wakes_only_when_its_time_has_come() {
        let clock = ManualClock::new(SystemTime::UNIX_EPOCH);
        let mut sleep = clock.sleep(Duration::from_secs(5));
        let waker = std::task::Waker::noop();
        let mut context = std::task::Context::from_waker(waker);
        assert!(sleep.as_mut().poll(&mut context).is_pending());
        clock.advance(Duration::from_secs(4));
        assert!(sleep.as_mut().poll(&mut context).is_pending());
        clock.advance(Duration::from_secs(1));
        sleep.await;
        assert_eq!(
            clock.wall(),
            SystemTime::UNIX_EPOCH + Duration::from_secs(5)
        );
    }
}
