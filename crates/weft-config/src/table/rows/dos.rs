//! Defences against denial of service. 0 and `auto`: as the consensus has it.

options! {
    from super::exit::END;

    /// Watch how many circuits each client address creates.
    protects DoSCircuitCreationEnabled: AutoBool = "auto";

    /// Connections of one address before its circuits are watched.
    protects DoSCircuitCreationMinConnections: PosInt = "0";

    /// Circuits per second that one address may create.
    protects DoSCircuitCreationRate: PosInt = "0";

    /// Circuits that one address may create at once.
    protects DoSCircuitCreationBurst: PosInt = "0";

    /// What is done with an address that creates more: 1 nothing, 2 refuse its circuits.
    protects DoSCircuitCreationDefenseType: Int = "0";

    /// How long an address is refused circuits.
    protects DoSCircuitCreationDefenseTimePeriod: Seconds = "0";

    /// Watch how many connections each client address has.
    protects DoSConnectionEnabled: AutoBool = "auto";

    /// Connections that one address may have.
    protects DoSConnectionMaxConcurrentCount: PosInt = "0";

    /// What is done with an address that opens more: 1 nothing, 2 close its new connections.
    protects DoSConnectionDefenseType: Int = "0";

    /// Connections per second that one address may open.
    protects DoSConnectionConnectRate: PosInt = "0";

    /// Connections that one address may open at once.
    protects DoSConnectionConnectBurst: PosInt = "0";

    /// How long an address that connects too often is refused.
    protects DoSConnectionConnectDefenseTimePeriod: Seconds = "0";

    /// Refuse rendezvous points to clients whose circuits have one hop.
    protects DoSRefuseSingleHopClientRendezvous: AutoBool = "auto";

    /// Watch how many streams each circuit opens at an exit.
    protects DoSStreamCreationEnabled: AutoBool = "auto";

    /// Streams per second that one circuit may open.
    protects DoSStreamCreationRate: PosInt = "0";

    /// Streams that one circuit may open at once.
    protects DoSStreamCreationBurst: PosInt = "0";

    /// What is done with a circuit that opens more: 1 nothing, 2 refuse the stream, 3 close the
    /// circuit.
    protects DoSStreamCreationDefenseType: Int = "0";
}
