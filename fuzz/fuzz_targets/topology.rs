//! Topologies of testbeds.
//!
//! Input: TOML. Whatever it is, it is read or refused with a line of it; what was read is the same when it is
//! written and read again, and its network loses and doubles no packet without counting it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weft_model::links::{Moment, Network, Topology};

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let topology = match Topology::parse("fuzz.toml", text) {
        Ok(topology) => topology,
        Err(error) => {
            assert!(error.line() <= 1 + text.matches('\n').count());
            return;
        }
    };
    let again = Topology::parse("again.toml", &topology.to_string());
    assert_eq!(again.as_ref(), Ok(&topology));
    let mut network = Network::new(topology.clone(), 1);
    let Some(first) = topology.hosts().next() else {
        panic!("a topology without hosts");
    };
    let mut accepted = 0;
    for host in topology.hosts().take(8) {
        let mut packet = [0; 100];
        packet[0] = 0x45;
        packet[16..20].copy_from_slice(&host.address().octets());
        accepted += u64::from(network.send(Moment::START, first, &packet).is_ok());
    }
    while let Some(due) = network.next_due() {
        while network.deliver(due).is_some() {}
    }
    let dropped: u64 = network
        .counters()
        .map(|(_, link)| link.dropped_by_loss + link.dropped_by_queue)
        .sum();
    let totals = network.totals();
    assert_eq!(
        totals.sent,
        totals.delivered + totals.no_route + totals.full + dropped
    );
    assert!(totals.delivered <= accepted && network.under_way() == 0);
});
