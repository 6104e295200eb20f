//! Faults that chaos plants, one at a time, to measure which of them it finds (docs/chaos.md).
//!
//! A hook is one line at the place where a defect of its class would be:
//!
//! ```ignore
//! if planted(Fault::DestroyDropped) {
//!     return;
//! }
//! ```
//!
//! In builds with debug assertions, or with the feature `on`, [`plant`] chooses the fault of the current thread; at
//! first there is none. In every other build [`planted`] is `false` at compile time, and hooks leave no code.

/// The faults: variant, name, one turn in how many of its place goes wrong, what goes wrong.
macro_rules! faults {
    ($($fault:ident $name:literal $every:literal $what:literal,)*) => {
        /// A fault that can be planted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Fault {
            $(#[doc = $what] $fault,)*
        }

        impl Fault {
            /// All faults, in the order of the table.
            pub const ALL: &[Fault] = &[$(Fault::$fault,)*];

            /// Name on the command line, in kebab-case.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Fault::$fault => $name,)* }
            }

            /// Description, in one line.
            #[must_use]
            pub const fn what(self) -> &'static str {
                match self { $(Fault::$fault => $what,)* }
            }

            /// Frequency: one in this many turns of its place goes wrong.
            #[must_use]
            pub const fn every(self) -> u32 {
                match self { $(Fault::$fault => $every,)* }
            }
        }
    };
}

faults! {
    CellLost "cell-lost" 300 "a relayed cell is lost",
    CellTwice "cell-twice" 300 "a relayed cell is sent twice",
    CellsSwapped "cells-swapped" 300 "two cells of a link change places",
    LayerLeftOut "layer-left-out" 300 "a relay does not add its layer to a cell",
    MessageCutShort "message-cut-short" 1000 "the last byte of a message is left out",
    DataLeftOut "data-left-out" 300 "a piece of a stream is left out",
    DataTwice "data-twice" 300 "a piece of a stream is given twice",
    QueueBoundIgnored "queue-bound-ignored" 1 "a circuit's queue grows past its bound",
    CircuitNotResumed "circuit-not-resumed" 1 "a circuit is not resumed when its queue has room again",
    LinkStaysHeld "link-stays-held" 1 "a link whose socket takes bytes again is not written to",
    LinkNotListed "link-not-listed" 20 "a link with a DESTROY is not listed among those to write",
    DestroyDropped "destroy-dropped" 5 "a DESTROY is not sent",
    PeerNotNotified "peer-not-notified" 5 "the end of a half is not reported to its peer",
    HalfOutlivesLink "half-outlives-link" 5 "a link closes, and one of its halves stays",
    StreamsOutliveHalf "streams-outlive-half" 5 "a half closes, and its streams keep their edges",
    SchedulerKeepsHalf "scheduler-keeps-half" 20 "the scheduler keeps a half that has closed",
    ClosedHalfStaysActive "closed-half-stays-active" 1 "a link counts a half with cells that has closed",
    WaitWithoutTimer "wait-without-timer" 10 "a half that waits has no timer",
    GenerationIgnored "generation-ignored" 1 "an old address finds the new tenant of its slot",
    CreateAnsweredAsClient "create-answered-as-client" 1 "a client takes CREATE cells on links that it opened",
    OnionskinNotAnswered "onionskin-not-answered" 10 "an onionskin is not answered",
    OnionskinStaysCounted "onionskin-stays-counted" 10 "an onionskin that was answered stays counted",
    ShareNotReleased "share-not-released" 20 "a share is not given back",
    ShareEndsAtOpening "share-ends-at-opening" 1 "the share of a connection ends when it opens",
    PlaceNotReleased "place-not-released" 5 "the place of a closed link is not given back",
    AddressStaysCharged "address-stays-charged" 5 "an address stays charged for a closed connection",
    UnlistedStaysIdle "unlisted-stays-idle" 1 "idle links to what the consensus does not list stay as long as others",
    LinkEndNotLearnt "link-end-not-learnt" 10 "the controller does not learn that a link has closed",
    EdgeStaysBooked "edge-stays-booked" 10 "the controller keeps an edge that has closed",
    CreditReturnLost "credit-return-lost" 5 "credit that is given back is lost",
    CreditReturnedTwice "credit-returned-twice" 5 "an edge gives credit back and keeps it",
    CreditRequestLost "credit-request-lost" 50 "a request for credit is lost",
    LoanOutlivesStream "loan-outlives-stream" 5 "the loan of a stream that has ended is not taken back",
    CellCountedTwice "cell-counted-twice" 500 "a cell counts twice against its circuit's window",
    SendmeLate "sendme-late" 10 "a circuit's SENDME comes one cell late",
    SendmeNotCounted "sendme-not-counted" 5 "a SENDME that was sent allows no more cells",
    XonIgnored "xon-ignored" 1 "an XON has no effect",
    RoomNotAnnounced "room-not-announced" 1 "a SENDME or XON does not make an edge read on",
    EdgeNotListed "edge-not-listed" 50 "an edge with bytes for its socket is not listed",
    EndNotAnnounced "end-not-announced" 1 "a half does not learn what may come behind an END",
    DeadCellsNotCounted "dead-cells-not-counted" 1 "waiting cells of streams that have ended are not counted",
    EarlyStaysCounted "early-stays-counted" 1 "what came before an edge was there stays counted",
    RefusedStreamStays "refused-stream-stays" 1 "a stream that the exit refuses stays",
    ExitKeepsStream "exit-keeps-stream" 1 "an exit does not forget a stream that ended undecided",
    ExitPolicyIgnored "exit-policy-ignored" 1 "an exit connects to what its policy rejects",
    SingleHopExit "single-hop-exit" 1 "an exit serves a circuit of one hop",
    SingleHopTunnel "single-hop-tunnel" 1 "an exit serves a tunnel of one hop",
    AgeReset "age-reset" 1 "bytes that wait look young once others leave or arrive",
    CellOvertakesMove "cell-overtakes-move" 1 "a cell overtakes others at a move of its link",
    KeptMessageLost "kept-message-lost" 5 "a message that waited for a move is lost",
    WaitLostAtMove "wait-lost-at-move" 1 "timers of a link's halves are lost at its move",
    RouteNotForgotten "route-not-forgotten" 1 "threads keep the route to a half that has closed",
    MoveNotLearnt "move-not-learnt" 1 "the controller does not learn where a link moved",
    WrongLegAcknowledged "wrong-leg-acknowledged" 5 "an acknowledgement counts for another leg",
    LegEndNotReported "leg-end-not-reported" 1 "a tunnel does not learn that a leg has closed",
    LegRoomLentTwice "leg-room-lent-twice" 5 "the room of a leg is lent twice",
    SwitchLost "switch-lost" 5 "a CONFLUX_SWITCH is not sent",
    GapSkipped "gap-skipped" 5 "a tunnel delivers past a message that is missing",
    ClientKeepsStream "client-keeps-stream" 10 "a client keeps a stream that has ended",
    ClientKeepsCircuit "client-keeps-circuit" 5 "a client keeps a circuit that has closed",
    ClientNeverPads "client-never-pads" 1 "a client sends no padding",
    HeldStreamUnchecked "held-stream-unchecked" 1 "the client's rules are not applied to a stream that a controller held",
    MapOutlivesReset "map-outlives-reset" 1 "a MapAddress outlives the options that had it",
    IsolationIgnored "isolation-ignored" 1 "streams that must be kept apart share a circuit",
    SilenceWeighs "silence-weighs" 1 "a relay that states nothing weighs what others state",
    RelayTwiceInPath "relay-twice-in-path" 1 "a path has a relay twice",
    WrittenInPlace "written-in-place" 1 "a file is written in its place, not beside it",
    ModeNotKept "mode-not-kept" 1 "a file that is replaced gets the mode of a new one",
    TemporaryStays "temporary-stays" 1 "a write that fails leaves its temporary file",
    ErrorTakenForSuccess "error-taken-for-success" 1 "the error of a write is taken for success",
    OriginalOverwritten "original-overwritten" 1 "SAVECONF overwrites a torrc that a person wrote and that was kept",
    FailedSaveForgotten "failed-save-forgotten" 1 "state lines whose save failed are not saved with the next ones",
    GuardsNotSaved "guards-not-saved" 1 "a client does not save its guards",
    GuardsForgottenAtStart "guards-forgotten-at-start" 1 "a client begins without the guards that it had saved",
    ConfirmedOrderLost "confirmed-order-lost" 1 "guards are confirmed in the order of the sample after a start",
    DamagedLineTrusted "damaged-line-trusted" 1 "build times that do not fit together are trusted",
}

impl Fault {
    /// The fault of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Fault> {
        Fault::ALL
            .iter()
            .copied()
            .find(|fault| fault.name() == name)
    }
}

/// True if this build has hooks.
pub const HAS_HOOKS: bool = cfg!(any(debug_assertions, feature = "on"));

#[cfg(any(debug_assertions, feature = "on"))]
mod hooks {
    use std::cell::Cell;

    use super::Fault;

    thread_local! {
        /// The planted fault, and how often its place was passed.
        static PLANTED: Cell<(Option<Fault>, u32)> = const { Cell::new((None, 0)) };
    }

    /// Plants a fault for the current thread, or none, and resets the count.
    pub fn plant(fault: Option<Fault>) {
        PLANTED.set((fault, 0));
    }

    /// Times that the place of the current thread's fault was passed.
    #[must_use]
    pub fn passed() -> u32 {
        PLANTED.get().1
    }

    /// True if this fault is planted and has its turn.
    #[inline]
    #[must_use]
    pub fn planted(fault: Fault) -> bool {
        match PLANTED.get() {
            (Some(planted), count) if planted == fault => {
                PLANTED.set((Some(fault), count.wrapping_add(1)));
                (count.wrapping_add(1)).is_multiple_of(fault.every())
            }
            _ => false,
        }
    }
}

#[cfg(any(debug_assertions, feature = "on"))]
pub use hooks::{passed, plant, planted};

/// True if this fault is planted and has its turn: never, in this build.
#[cfg(not(any(debug_assertions, feature = "on")))]
#[inline(always)]
#[must_use]
pub const fn planted(_fault: Fault) -> bool {
    false
}

/// Plants nothing: this build has no hooks.
#[cfg(not(any(debug_assertions, feature = "on")))]
pub fn plant(_fault: Option<Fault>) {}

/// Times that the place of a fault was passed: zero, in this build.
#[cfg(not(any(debug_assertions, feature = "on")))]
#[must_use]
pub const fn passed() -> u32 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_turn_in_so_many_goes_wrong_on_the_thread_where_it_is_planted() {
        let fault = Fault::DestroyDropped;
        let wrong = |fault| (0..3 * fault_every()).filter(|_| planted(fault)).count();
        fn fault_every() -> u32 {
            Fault::DestroyDropped.every()
        }
        assert_eq!((wrong(fault), passed()), (0, 0));
        plant(Some(fault));
        assert_eq!(wrong(Fault::CellLost), 0);
        assert_eq!(wrong(fault), 3);
        assert_eq!(passed(), 3 * fault.every());
        let other = std::thread::spawn(|| planted(Fault::DestroyDropped)).join();
        assert!(!other.unwrap());
        plant(None);
        assert_eq!((wrong(fault), passed()), (0, 0));
    }

    #[test]
    fn names_are_one_to_a_fault_and_lead_back_to_it() {
        for fault in Fault::ALL.iter().copied() {
            let name = fault.name();
            let is_kebab = |c: char| c.is_ascii_lowercase() || c == '-';
            assert!(name.chars().all(is_kebab), "{name}");
            assert_eq!(Fault::named(name), Some(fault), "{name} has two faults");
            assert!(fault.every() > 0);
        }
        assert_eq!(Fault::named("no-such-fault"), None);
        assert!(Fault::ALL.len() >= 40);
    }
}
