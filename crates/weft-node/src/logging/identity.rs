//! The identity that a thread's log lines belong to, in a process of several (`weft -f A -f B`).

use std::cell::Cell;
use std::io;
use std::thread::JoinHandle;

/// An identity of the process, as its log lines and metrics name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentityName {
    /// Among the process' identities.
    pub number: usize,
    /// Prefix of its lines. Every thread has it, and each turn of a connection thread sets it: so
    /// it is leaked once, and copied without a reference count.
    pub name: &'static str,
}

thread_local! {
    static CURRENT: Cell<Option<IdentityName>> = const { Cell::new(None) };
}

/// From now on this thread's lines belong to this identity; `None`: to the process.
pub fn enter(name: Option<IdentityName>) {
    CURRENT.set(name);
}

/// The identity that this thread's lines belong to.
#[must_use]
pub fn current() -> Option<IdentityName> {
    CURRENT.get()
}

/// Does work whose lines belong to this identity, on a thread that may be another's.
pub(crate) fn within<T>(name: Option<IdentityName>, work: impl FnOnce() -> T) -> T {
    /// The identity that the thread's lines belong to again, also after a panic.
    struct Before(Option<IdentityName>);
    impl Drop for Before {
        fn drop(&mut self) {
            enter(self.0);
        }
    }
    let _before = Before(CURRENT.replace(name));
    work()
}

/// Starts a thread with this name, whose lines belong to the identity of the thread that calls this.
///
/// # Errors
///
/// The system has no more threads.
pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let identity = current();
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(move || {
        enter(identity);
        work()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_s_lines_are_those_of_the_identity_that_started_it() {
        let name = IdentityName {
            number: 1,
            name: "b",
        };
        let started = within(Some(name), || spawn("started", current)).unwrap();
        assert_eq!(started.join().unwrap(), Some(name));
        let started = spawn("other", || {
            let thread = std::thread::current();
            (current(), thread.name().map(str::to_owned))
        });
        let expected = (None, Some("other".to_owned()));
        assert_eq!(started.unwrap().join().unwrap(), expected);
    }

    #[test]
    fn lines_belong_to_another_identity_only_as_long_as_the_work_for_it() {
        let [one, other] = [(0, "a"), (1, "b")].map(|(number, name)| IdentityName { number, name });
        assert_eq!(within(Some(one), current), Some(one));
        assert_eq!(current(), None);
        enter(Some(other));
        assert_eq!(within(None, current), None);
        let panicked = std::panic::catch_unwind(|| within(Some(one), || panic!("on purpose")));
        assert!(panicked.is_err());
        assert_eq!(current(), Some(other));
    }
}
