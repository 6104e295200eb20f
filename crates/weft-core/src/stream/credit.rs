//! Credit that a circuit lends to the edges of its streams: the number of cells that they may send
//! to their half before the half has sent some.
//!
//! All streams of a circuit share one allowance. A cell is lent until the half has sent it on, so that
//! what waits for the circuit's window stays within the allowance, whatever the number of streams and
//! however long the client sends no SENDME. An edge that has sent nothing for a while gives back what
//! it was lent, and asks again when its socket has bytes; those that ask while all is lent get theirs
//! in the order in which they asked.

use std::collections::VecDeque;

use weft_planted::{Fault, planted};

/// Cells that one circuit lends at most (2.3 MB, with their places in queues). A fast circuit needs no
/// more than what comes between two turns of its thread, as each cell that is sent is lent again.
pub const CIRCUIT_CREDIT: u32 = 4096;
/// Cells that one edge is lent at most.
pub(crate) const EDGE_CREDIT: u32 = 128;
/// Cells that an edge is lent first. It doubles whenever the circuit has sent half of it at once.
const FIRST: u32 = 8;
/// Credit is given back in batches of this many, or of half of what an edge is lent.
const BATCH: u32 = 32;

/// Credit lent to one stream's edge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loan {
    /// Cells that the edge may send, or has sent and that have not arrived.
    lent: u32,
    /// Cells that the edge may have, with those that wait here.
    share: u32,
    /// It is among [`Lender::waiting`].
    waits: bool,
}

impl Default for Loan {
    fn default() -> Self {
        Loan {
            lent: 0,
            share: FIRST,
            waits: false,
        }
    }
}

impl Loan {
    /// Cells that are lent.
    pub(crate) fn lent(&self) -> u32 {
        self.lent
    }
}

/// Credit that a circuit can lend.
#[derive(Debug, Default)]
pub(crate) struct Lender {
    /// The sum of all loans.
    lent: u32,
    /// Streams whose edges have asked, or have nothing any more: id and generation, first come first
    /// served. Some may have ended.
    waiting: VecDeque<(u16, u32)>,
}

impl Lender {
    /// Cells that are lent.
    pub(crate) fn lent(&self) -> u32 {
        self.lent
    }

    /// Memory that this points to.
    pub(crate) fn memory(&self) -> usize {
        crate::memory::ledger::queue_memory(&self.waiting)
    }

    /// Lends as much as is wanted and there; `pending` cells wait at the half.
    fn lend(&mut self, loan: &mut Loan, wanted: u32, pending: usize) -> u32 {
        let pending = u32::try_from(pending).unwrap_or(u32::MAX);
        let left = CIRCUIT_CREDIT.saturating_sub(self.lent.saturating_add(pending));
        let credit = wanted.min(left);
        loan.lent += credit;
        self.lent += credit;
        credit
    }

    /// A cell that was lent has arrived.
    #[inline]
    pub(crate) fn arrived(&mut self, loan: &mut Loan) {
        // Edges send no more than they were lent.
        loan.lent = loan.lent.saturating_sub(1);
        self.lent = self.lent.saturating_sub(1);
    }

    /// An edge gives back what it does not use.
    pub(crate) fn returned(&mut self, loan: &mut Loan, cells: u32) {
        let cells = cells.min(loan.lent);
        loan.lent -= cells;
        loan.share = FIRST;
        self.lent = self.lent.saturating_sub(cells);
    }

    /// Lends credit for the `cells` cells' worth of bytes that the application of a new stream of
    /// our own has already sent: at once, whatever others have.
    pub(crate) fn begin(&mut self, loan: &mut Loan, cells: u32) {
        loan.lent += cells;
        self.lent += cells;
    }

    /// A stream has ended: nothing of its loan will arrive.
    pub(crate) fn ended(&mut self, loan: &mut Loan) {
        if planted(Fault::LoanOutlivesStream) {
            return;
        }
        self.lent = self.lent.saturating_sub(loan.lent);
        loan.lent = 0;
    }

    /// A stream's edge wants to send.
    pub(crate) fn ask(&mut self, id: (u16, u32), loan: &mut Loan) {
        if !loan.waits && loan.lent == 0 {
            loan.waits = true;
            self.waiting.push_back(id);
        }
    }

    /// Forgets streams that have ended, once they may be most of those that wait. `live`: whether a
    /// stream is not one of them.
    pub(crate) fn sweep(&mut self, streams: usize, live: impl Fn(u16, u32) -> bool) {
        if self.waiting.len() > 2 * streams + 64 {
            self.waiting
                .retain(|(id, generation)| live(*id, *generation));
            self.waiting.shrink_to_fit();
        }
    }

    /// A cell of a stream was sent on: what its edge is lent again now. `mine` cells of the stream
    /// wait still, and `pending` of all.
    #[inline]
    pub(crate) fn sent(
        &mut self,
        id: (u16, u32),
        loan: &mut Loan,
        mine: u32,
        pending: usize,
    ) -> u32 {
        let total = loan.lent + mine;
        if !self.waiting.is_empty() {
            // Edges that wait are served first; this one queues once it has no credit.
            if total == 0 {
                self.ask(id, loan);
            }
            return 0;
        }
        if self.lent > CIRCUIT_CREDIT / 2 {
            // The rest is for those that have little.
            loan.share = FIRST;
        } else if pending == 0 && total * 2 <= loan.share {
            loan.share = (loan.share * 2).min(EDGE_CREDIT);
        }
        if total + BATCH.min(loan.share / 2) > loan.share {
            return 0;
        }
        let credit = self.lend(loan, loan.share.saturating_sub(total), pending);
        if credit == 0 && total == 0 {
            self.ask(id, loan);
        }
        credit
    }

    /// The next stream that waits for a loan, if there is something to lend.
    pub(crate) fn next(&mut self, pending: usize) -> Option<(u16, u32)> {
        let used = self.lent as usize + pending;
        if used >= CIRCUIT_CREDIT as usize {
            return None;
        }
        let next = self.waiting.pop_front();
        crate::memory::ledger::shrink(&mut self.waiting);
        next
    }

    /// Gives that stream its loan.
    pub(crate) fn serve(&mut self, loan: &mut Loan, mine: u32, pending: usize) -> u32 {
        loan.waits = false;
        let wanted = FIRST.saturating_sub(loan.lent + mine);
        self.lend(loan, wanted, pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_streams_together_are_lent_no_more_than_the_allowance() {
        let mut lender = Lender::default();
        let mut loans = vec![Loan::default(); 2000];
        for (id, loan) in (0u16..).zip(&mut loans) {
            lender.ask((id, 0), loan);
        }
        let mut pending = 0;
        while let Some((id, _)) = lender.next(pending) {
            let loan = &mut loans[usize::from(id)];
            let credit = lender.serve(loan, 0, pending);
            // All of it arrives, and nothing is sent.
            for _ in 0..credit {
                lender.arrived(loan);
            }
            pending += credit as usize;
        }
        assert_eq!((lender.lent(), pending), (0, CIRCUIT_CREDIT as usize));
        // Credit for sent cells is lent to edges that wait, not to those that had their part.
        pending -= 1;
        assert_eq!(lender.sent((0, 0), &mut loans[0], 7, pending), 0);
        let (id, _) = lender.next(pending).unwrap();
        assert_eq!(usize::from(id), CIRCUIT_CREDIT as usize / FIRST as usize);
        assert_eq!(lender.serve(&mut loans[usize::from(id)], 0, pending), 1);
    }

    #[test]
    fn a_stream_that_the_circuit_keeps_up_with_is_lent_more_and_gives_it_back() {
        let (mut lender, mut loan) = (Lender::default(), Loan::default());
        lender.ask((1, 0), &mut loan);
        lender.next(0).unwrap();
        lender.serve(&mut loan, 0, 0);
        for _ in 0..1000 {
            lender.arrived(&mut loan);
            lender.sent((1, 0), &mut loan, 0, 0);
        }
        assert!(loan.lent() > EDGE_CREDIT / 2 && loan.lent() <= EDGE_CREDIT);
        lender.returned(&mut loan, EDGE_CREDIT);
        assert_eq!((lender.lent(), loan.lent()), (0, 0));
        // One that waits for the window is lent no more, however long its cells wait.
        let (mut lender, mut loan) = (Lender::default(), Loan::default());
        lender.ask((1, 0), &mut loan);
        lender.next(0).unwrap();
        let mut mine = lender.serve(&mut loan, 0, 0);
        for _ in 0..1000 {
            while loan.lent() > 0 {
                lender.arrived(&mut loan);
            }
            mine -= 1;
            mine += lender.sent((1, 0), &mut loan, mine, mine as usize + 1);
            assert!(mine <= FIRST);
        }
    }

    #[test]
    fn streams_that_ended_do_not_wait_for_ever() {
        let mut lender = Lender::default();
        for generation in 0..100_000 {
            lender.ask((1, generation), &mut Loan::default());
            lender.sweep(1, |_, live| live == generation);
        }
        assert!(lender.waiting.len() <= 67);
    }
}
