//! Memory of a thread's path, beside halves and links.

use super::CellPath;
use crate::slots::LinkKey;

impl CellPath {
    /// Free cells, empty buffers, places of tables that nothing is in, and measurements that can be done without.
    pub(in crate::manager) fn spare_memory(&self) -> usize {
        self.pool.memory()
            + self.queues.as_ref().map_or(0, |queues| queues.memory())
            + self.outboxes.free_cells_memory()
            + self.halves.vacant_memory()
    }

    /// Messages for other threads and for the controller, and the lists that the thread works through.
    pub(in crate::manager) fn queues_memory(&self) -> usize {
        self.outboxes.memory()
            + self.waits.memory()
            + self.to_controller.memory()
            + self.unreported.capacity() * size_of::<LinkKey>()
            + self.links.tables_memory()
            + self.halves.guests_memory()
    }

    /// Gives back memory that nothing is in.
    pub(in crate::manager) fn shrink(&mut self) {
        self.pool.clear();
        if let Some(queues) = &mut self.queues {
            queues.forget();
        }
        self.outboxes.shrink();
        for (_, link) in self.links.iter_mut() {
            link.shrink();
        }
        self.halves.shrink();
        self.scheduler.shrink();
        self.waits.shrink();
    }
}
