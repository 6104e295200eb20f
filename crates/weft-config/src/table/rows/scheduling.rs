//! Scheduling of links.

options! {
    from super::resources::END;

    /// Ways to choose the next link, in order of preference: `KIST`, `KISTLite`, `Vanilla`.
    tunes Schedulers: Csv = "KIST,KISTLite,Vanilla";

    /// How often KIST chooses; 0: as the consensus has it.
    tunes KISTSchedRunInterval: Millis = "0 msec", at_most(100);

    /// How much more than its TCP window KIST gives a socket, as a factor.
    tunes KISTSockBufSizeFactor: Double = "1.0", fraction(0.0, f64::MAX);

    /// Seconds until a cell counts half in its circuit's priority; negative: as the consensus has
    /// it.
    tunes CircuitPriorityHalflife: Double = "-1.0";
}
