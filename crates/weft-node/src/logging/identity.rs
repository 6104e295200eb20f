//! The identity that a thread's log lines belong to, in a process of several (`weft -f A -f B`).

use std::cell::Cell;

/// An identity of the process, as its log lines and metrics name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentityName {
    /// Among the process' identities.
    pub number: usize,
    /// What its lines begin with. Every thread has it, and each turn of a connection thread sets it: so it lives as long as
    /// the process, and is copied without a count.
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

/// A thread's work; its lines belong to the identity of the thread that starts it.
pub(crate) fn inherit<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let name = current();
    move || {
        enter(name);
        work()
    }
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
        enter(Some(name));
        let started = std::thread::spawn(inherit(current));
        assert_eq!(started.join().unwrap(), Some(name));
        assert_eq!(std::thread::spawn(current).join().unwrap(), None);
        enter(None);
        assert_eq!(current(), None);
    }
}
