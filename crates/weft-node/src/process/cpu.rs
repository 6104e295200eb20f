//! Processor time.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// What the calling thread has used since it started; zero where the system does not tell. A
/// system call: not for every cell.
pub fn thread_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_works_uses_time() {
        let before = thread_time();
        let mut sum = 0_u64;
        while thread_time() == before {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(thread_time() > before);
    }
}
