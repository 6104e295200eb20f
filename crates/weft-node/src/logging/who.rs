//! Whose lines a thread logs, in a process of several identities (`weft -f A -f B`).

use std::cell::RefCell;
use std::sync::Arc;

/// An identity of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// Among the process' identities.
    pub number: usize,
    /// What its lines begin with.
    pub name: Arc<str>,
}

thread_local! {
    static WHO: RefCell<Option<Who>> = const { RefCell::new(None) };
}

/// From now on this thread's lines are this identity's; `None`: there is one only.
pub fn enter(who: Option<&Who>) {
    WHO.with(|current| current.replace(who.cloned()));
}

/// Whose this thread's lines are.
#[must_use]
pub fn current() -> Option<Who> {
    // A thread that is ending has none.
    WHO.try_with(|current| current.borrow().clone())
        .ok()
        .flatten()
}

/// A thread's work, whose lines are those of the thread that starts it.
pub(crate) fn inherit<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let who = current();
    move || {
        enter(who.as_ref());
        work()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_s_lines_are_those_of_the_identity_that_started_it() {
        let who = Who {
            number: 1,
            name: "b".into(),
        };
        enter(Some(&who));
        let started = std::thread::spawn(inherit(current));
        assert_eq!(started.join().unwrap(), Some(who));
        assert_eq!(std::thread::spawn(current).join().unwrap(), None);
        enter(None);
        assert_eq!(current(), None);
    }
}
