//! The identity that a thread's log lines belong to, in a process of several (`weft -f A -f B`).

use std::cell::RefCell;
use std::sync::Arc;

/// An identity of the process, as its log lines and metrics name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityName {
    /// Among the process' identities.
    pub number: usize,
    /// What its lines begin with.
    pub name: Arc<str>,
}

thread_local! {
    static CURRENT: RefCell<Option<IdentityName>> = const { RefCell::new(None) };
}

/// From now on this thread's lines belong to this identity; `None`: to the process.
pub fn enter(name: Option<&IdentityName>) {
    CURRENT.with(|current| current.replace(name.cloned()));
}

/// The identity that this thread's lines belong to.
#[must_use]
pub fn current() -> Option<IdentityName> {
    // A thread that is ending has none.
    CURRENT
        .try_with(|current| current.borrow().clone())
        .ok()
        .flatten()
}

/// A thread's work; its lines belong to the identity of the thread that starts it.
pub(crate) fn inherit<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let name = current();
    move || {
        enter(name.as_ref());
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
            name: "b".into(),
        };
        enter(Some(&name));
        let started = std::thread::spawn(inherit(current));
        assert_eq!(started.join().unwrap(), Some(name));
        assert_eq!(std::thread::spawn(current).join().unwrap(), None);
        enter(None);
        assert_eq!(current(), None);
    }
}
