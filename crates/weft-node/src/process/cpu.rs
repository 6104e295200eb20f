//! Processor time.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// The processor time of the calling thread since it started; zero if the system does not report it. A
/// system call: too expensive for every cell.
pub(crate) fn thread_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_thread_uses_processor_time() {
        let before = thread_time();
        let mut sum = 0_u64;
        while thread_time() == before {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(thread_time() > before);
    }
}
