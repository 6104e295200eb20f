//! More queued cells than MaxMemInQueues allows.

use std::collections::{BTreeSet, HashMap};

use socket2::{Domain, Socket, Type};
use weft_cell::link_msg::Destroy;
use weft_cell::reason::DestroyReason;
use weft_cell::{Cell, ChanCmd, RelayCmd};
use weft_crypto::handshake::ntor::ClientState;

use crate::hostile::circuit::{Circuit, FIRST, answer_create, extend2};
use crate::hostile::peer::Peer;
use crate::hostile::process::eventually;
use crate::hostile::with_hostile_peers_and;

/// Circuits to a next hop that does not read.
const CIRCUITS: u32 = 64;
/// Cells for each: nearly the limit of a circuit's queue. All of them are about 80 MB.
const CELLS: usize = 2400;
/// The first ones, whose cells the sockets may take.
const IN_SOCKETS: u32 = 4;

#[test]
fn circuits_whose_cells_have_waited_longest_die_when_memory_is_short() {
    // The least that torrc can ask for.
    with_hostile_peers_and("MaxMemInQueues 64 MB", |weft| {
        let mut client = Peer::client(weft.or_port);
        let next = weft.stranger();
        // Its sockets inherit the small buffer.
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        listener.set_recv_buffer_size(4096).unwrap();
        let any = "127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap();
        listener.bind(&any.into()).unwrap();
        listener.listen(1).unwrap();
        let listener = std::net::TcpListener::from(listener);
        let at = listener.local_addr().unwrap();
        let mut hop = None;
        let mut client_id_of = HashMap::new();
        for id in (FIRST..).take(CIRCUITS as usize) {
            let mut circuit = Circuit::create(&mut client, id);
            let key = next.onion.current_public();
            let onionskin = ClientState::start(&next.rsa, &key, &mut client.rng).onionskin();
            let message = extend2(next, at, &onionskin);
            circuit.send(&mut client, RelayCmd::EXTEND2, &message);
            let hop = hop.get_or_insert_with(|| Peer::accept(&listener, next).unwrap());
            let (hop_id, _) = answer_create(hop, next);
            client_id_of.insert(hop_id, id);
            let (_, command, _) = circuit.receive(&mut client);
            assert_eq!(command, RelayCmd::EXTENDED2);
        }
        // The relay takes a layer off and passes them on; for which hop they are is not its
        // affair.
        let before = weft.statistic("Cells: ");
        for id in client_id_of.values().collect::<BTreeSet<_>>() {
            let mut cell = Cell::new(*id, ChanCmd::RELAY);
            cell.body_mut().fill(0x77);
            client.send_all(&vec![cell; CELLS]);
        }
        eventually("the relay read all of it", || {
            weft.statistic("Cells: ") - before >= CELLS * CIRCUITS as usize
        });
        weft.wait_for("We are low on memory");
        let line = weft.wait_for("bytes of queued cells and data by closing ");
        assert!(line.contains("[notice] Removed "), "{line}");

        // The next hop reads now: each circuit's end, or all its cells.
        let mut hop = hop.unwrap();
        let mut arrived: HashMap<u32, usize> = HashMap::new();
        let mut ended = BTreeSet::new();
        while ended.len() + arrived.values().filter(|count| **count == CELLS).count()
            < CIRCUITS as usize
        {
            let cell = hop.next().unwrap();
            let id = client_id_of[&cell.circ_id()];
            match cell.command() {
                ChanCmd::RELAY => *arrived.entry(id).or_default() += 1,
                ChanCmd::DESTROY => {
                    let reason = Destroy::decode(cell.body()).reason;
                    assert_eq!(reason, DestroyReason::RESOURCELIMIT);
                    assert!(ended.insert(id));
                }
                other => panic!("{other}"),
            }
        }
        // Only what came first died, and no more of it than was needed.
        let aged = FIRST + IN_SOCKETS..FIRST + CIRCUITS;
        let died = ended.iter().filter(|id| aged.contains(id)).count();
        assert!(died > 0 && died < aged.len() / 2, "{ended:?}");
        for (young, old) in ended.iter().rev().zip(aged.take(died).rev()) {
            assert_eq!(*young, old, "{ended:?}");
        }
        // The client got the same reason, and the log has the number.
        for _ in 0..ended.len() {
            let cell = client.next().unwrap();
            assert_eq!(cell.command(), ChanCmd::DESTROY);
            let reason = Destroy::decode(cell.body()).reason;
            assert_eq!(reason, DestroyReason::RESOURCELIMIT);
            assert!(ended.contains(&cell.circ_id()));
        }
        eventually("statistics with them", || {
            weft.statistic("by full queues, ") == ended.len()
        });
        Circuit::create(&mut client, FIRST + CIRCUITS).answers(&mut client);
    });
}
