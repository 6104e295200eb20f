//! Two networks so small that what should come out can be computed: five equal slow circuits, and the same, of which one stalls.

use std::time::Duration;

use super::arms::{CONFLUX, MTOR5, STOR};
use super::part::{Common, Kind};
use crate::comparison::Arm;

/// Circuits.
pub(super) const CIRCUITS: u32 = 5;
/// Megabits per second of each: the line of its middle relay.
pub(super) const RATE_MBIT: f64 = 1.0;
/// Bytes that are downloaded.
pub(super) const BYTES: u64 = 10_000_000;
/// When the download begins: circuits are there by then.
const BEGIN: Duration = Duration::from_secs(20);
/// When one of the middle relays stalls: about the middle of a download over five circuits.
pub(super) const STALL: Duration = Duration::from_secs(29);
/// One circuit takes 90 s.
const LASTS: Duration = Duration::from_secs(180);

/// Model name of the client that downloads.
pub(super) const MODEL: &str = "download";

/// When the stall begins, since the beginning of the download, seconds.
pub(super) fn stall_s() -> f64 {
    (STALL - BEGIN).as_secs_f64()
}

/// As a scenario. Guards, exit, client and server have lines that bound nothing; four paths of 12.5 ms each make 50 ms one way. All
/// five circuits have an entry and a middle relay of their own, and there are no others: with these weights guards are scarce,
/// so that none is in the middle, and they are not slow.
pub(super) fn text(kind: Kind, common: &Common, arms: &[Arm]) -> String {
    let about = "five circuits of 1 Mbit/s and 50 ms each, and one exit";
    let mut text = common.head(kind, about, LASTS);
    text += &format!(
        "\n[network]\ndelay = \"12500 us\"\n\n[[host]]\nname = \"client\"\n\n[[host]]\nname = \"guard\"\ncount = {CIRCUITS}\n\n\
         [[host]]\nname = \"middle\"\ncount = {CIRCUITS}\nup = \"{RATE_MBIT} Mbit/s\"\ndown = \"{RATE_MBIT} Mbit/s\"\n\n\
         [[host]]\nname = \"exit\"\n\n[[host]]\nname = \"server\"\n\n\
         [[relay]]\nhost = \"guard\"\nroles = [\"guard\"]\nbandwidth = \"1600 kbit/s\"\n\n\
         [[relay]]\nhost = \"middle\"\nbandwidth = \"800 kbit/s\"\n\n\
         [[relay]]\nhost = \"exit\"\nroles = [\"exit\"]\nbandwidth = \"80 Mbit/s\"\n\n\
         [[clients]]\nhosts = [\"client\"]\nname = \"{MODEL}\"\nmodel = {{ download = \"{BYTES} bytes\", pause = \"24 h\" }}\n\
         start = \"{} s\"\nmultipath = true\n\n[[servers]]\nhosts = [\"server\"]\n",
        BEGIN.as_secs()
    );
    if kind == Kind::Stall {
        text += &format!(
            "\n[[fault]]\nhost = \"middle-1\"\nat = \"{} s\"\n",
            STALL.as_secs()
        );
    }
    for arm in arms {
        text += &arm.toml();
    }
    text
}

/// The parts, with their arms.
pub(super) const PARTS: [(Kind, &[&str]); 2] = [
    (Kind::Equal, &[STOR, "mtor4", MTOR5, CONFLUX]),
    (Kind::Stall, &[MTOR5]),
];

/// Of these arms, those of the part: where a circuit stalls there is none with one circuit to compare with.
pub(super) fn used(kind: Kind, mut arms: Vec<Arm>) -> Vec<Arm> {
    if kind == Kind::Stall {
        arms.retain(|arm| arm.name != STOR);
    }
    arms
}
