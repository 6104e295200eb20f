//! Defences against denial of service. 0 and `auto`: as the consensus has it.

options! {
    from super::exit::END;

    /// Watch how many circuits each client address creates.
    DoSCircuitCreationEnabled: AutoBool = "auto";

    /// Connections of one address before its circuits are watched.
    DoSCircuitCreationMinConnections: PosInt = "0";

    /// Circuits per second that one address may create.
    DoSCircuitCreationRate: PosInt = "0";

    /// Circuits that one address may create at once.
    DoSCircuitCreationBurst: PosInt = "0";

    /// What is done with an address that creates more: 1 nothing, 2 refuse its circuits.
    DoSCircuitCreationDefenseType: Int = "0";

    /// How long an address is refused circuits.
    DoSCircuitCreationDefenseTimePeriod: Seconds = "0";

    /// Watch how many connections each client address has.
    DoSConnectionEnabled: AutoBool = "auto";

    /// Connections that one address may have.
    DoSConnectionMaxConcurrentCount: PosInt = "0";

    /// What is done with an address that opens more: 1 nothing, 2 close its new connections.
    DoSConnectionDefenseType: Int = "0";

    /// Connections per second that one address may open.
    DoSConnectionConnectRate: PosInt = "0";

    /// Connections that one address may open at once.
    DoSConnectionConnectBurst: PosInt = "0";

    /// How long an address that connects too often is refused.
    DoSConnectionConnectDefenseTimePeriod: Seconds = "0";

    /// Refuse rendezvous points to clients whose circuits have one hop.
    DoSRefuseSingleHopClientRendezvous: AutoBool = "auto";

    /// Watch how many streams each circuit opens at an exit.
    DoSStreamCreationEnabled: AutoBool = "auto";

    /// Streams per second that one circuit may open.
    DoSStreamCreationRate: PosInt = "0";

    /// Streams that one circuit may open at once.
    DoSStreamCreationBurst: PosInt = "0";

    /// What is done with a circuit that opens more: 1 nothing, 2 refuse the stream, 3 close the
    /// circuit.
    DoSStreamCreationDefenseType: Int = "0";
}
