//! The table of relay commands: for each command that Weft knows, its scope, its flow control, its
//! leg, and its handling by a relay and by an origin.
//!
//! A command that is not in the table may not be sent by any node. Code that dispatches messages
//! asks the table, and matches on the table's own types, each variant by name: a new handler does
//! not compile before the dispatcher of its side handles it.
//!
//! - the layout under Counter Galois Onion names a stream or not by [`Scope`] ([`crate::relay_v1`]);
//! - a relay dispatches by [`AtRelay`], an origin by [`AtOrigin`];
//! - messages of a stream that exists are dispatched by [`StreamMessage`], to the stream's edge;
//! - messages of edges wait for the circuit's window by [`FlowControl`];
//! - where several circuits are the legs of one set, [`LegRule`] decides whether any of them may carry it;
//! - its [`Trust`] has its [`Limit`] and its senders, which follow from its handlers.

use tor_cell::relaycell::RelayCmd;
use weft_trust::{Limit, Role, Sender, Trust};

use crate::relay_limits as limit;

/// Scope of a message: the circuit or a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The circuit: its stream id is 0.
    Circuit,
    /// A stream: its stream id is not 0.
    Stream,
    /// The circuit or a stream. Under Counter Galois Onion the circuit only (proposal 340).
    Either,
}

/// Accounting of a message in the circuit's SENDME window (tor-spec 7.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowControl {
    /// It is counted, and waits for the window.
    Counted,
    /// It is not counted, and waits for the messages of its stream that are.
    InOrder,
    /// It is not counted, and is sent at once.
    Free,
}

/// Leg of a conflux set, or of a tunnel of mTor, that carries a message (C tor's
/// `conflux_should_multiplex`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LegRule {
    /// Any leg: it has a sequence number, and is handled in order.
    Multiplexed,
    /// The leg that it is about. It has no sequence number, and is handled at once.
    OwnLeg,
}

/// A message of a stream that exists, or did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamMessage {
    /// DATA.
    Data,
    /// END.
    End,
    /// CONNECTED.
    Connected,
    /// RESOLVED, which ends its stream.
    Resolved,
    /// SENDME: more may be sent, on the stream or on the circuit.
    Sendme,
    /// XOFF: no more must be sent.
    Xoff,
    /// XON: more may be sent.
    Xon,
}

/// A request for a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamOpener {
    /// BEGIN.
    Begin,
    /// BEGIN_DIR.
    BeginDir,
    /// RESOLVE.
    Resolve,
}

/// A relay's handling of a message of the circuit's origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtRelay {
    /// Hands it to its stream.
    Stream(StreamMessage),
    /// Decides about a new stream.
    Open(StreamOpener),
    /// Extends the circuit.
    Extend2,
    /// Closes the rest of the circuit.
    Truncate,
    /// Counts it.
    Drop,
    /// Keeps a rendezvous cookie.
    EstablishRendezvous,
    /// Joins two circuits.
    Rendezvous1,
    /// Makes the circuit an onion service's introduction circuit.
    EstablishIntro,
    /// Passes it on to an onion service's introduction circuit.
    Introduce1,
    /// Starts or stops padding toward the origin.
    PaddingNegotiate,
    /// Sends its weight from now on (docs/extensions/abra.md); nothing, if it does not serve that (any more).
    AbraAsk,
    /// Makes the circuit a leg of a conflux set.
    ConfluxLink,
    /// Confirms that the circuit is a leg of a conflux set.
    ConfluxLinkedAck,
    /// Moves on the sequence number of its leg.
    ConfluxSwitch,
    /// Makes a tunnel with the circuit as its first leg (docs/extensions/mtor.md).
    Multipath,
    /// Makes the circuit a leg of a tunnel.
    Join,
    /// Stops sending on its leg.
    MtorDrop,
    /// Hands the message within to its stream, once it is the tunnel's next.
    Subdata,
    /// Forgets the tunnel's messages that have arrived.
    MtorAck,
    /// Closes the circuit: the message is one that only origins receive, or that this relay's protocol
    /// list does not claim.
    Refuse,
}

/// Handling of a hop's message by the origin of the circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtOrigin {
    /// Hands it to its stream.
    Stream(StreamMessage),
    /// Finishes the handshake with the new hop.
    Extended2,
    /// Closes the circuit, as C tor does.
    Truncated,
    /// Counts it.
    Drop,
    /// Hands it to the client, which asked this hop for it (docs/extensions/abra.md).
    AbraWeight,
    /// Makes the circuit a leg of its conflux set.
    ConfluxLinked,
    /// Moves on the sequence number of its leg.
    ConfluxSwitch,
    /// Knows the tunnel whose first leg the circuit is (docs/extensions/mtor.md).
    MultipathAck,
    /// Uses the circuit as a leg of the tunnel.
    Joined,
    /// Closes its leg, from which nothing more comes.
    MtorDropped,
    /// Closes its leg once it has received what was sent on it.
    MtorStopped,
    /// Hands the message within to its stream, once it is the tunnel's next.
    Subdata,
    /// Forgets the tunnel's messages that have arrived.
    MtorAck,
    /// Closes the circuit: nothing asked for the message.
    Refuse,
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The circuit or a stream.
    pub scope: Scope,
    /// Accounting in the circuit's window.
    pub flow: FlowControl,
    /// Leg of a set that carries it.
    pub legs: LegRule,
    /// At a relay, from the circuit's origin.
    pub at_relay: AtRelay,
    /// At the circuit's origin, from a hop.
    pub at_origin: AtOrigin,
}

/// Makes the enum, the list of all commands and the rules of each from one table.
macro_rules! table {
    ($($number:literal => $name:ident, $wire:literal: $scope:ident, $flow:ident, $legs:ident, $relay:expr, $origin:expr, $limit:ident;)*) => {
        /// A relay command that Weft knows.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum RelayCommand {
            $(
                #[doc = $wire]
                $name,
            )*
        }

        impl RelayCommand {
            /// All of them.
            pub const ALL: &[RelayCommand] = &[$(RelayCommand::$name),*];

            /// The command's number on the wire.
            pub fn wire(self) -> RelayCmd {
                match self {
                    $(RelayCommand::$name => RelayCmd::from($number),)*
                }
            }

            /// The command with this number. `None`: nobody may send it.
            #[inline]
            pub fn of(wire: RelayCmd) -> Option<RelayCommand> {
                match u8::from(wire) {
                    $($number => Some(RelayCommand::$name),)*
                    _ => None,
                }
            }

            /// Its name in the specifications.
            pub const fn name(self) -> &'static str {
                match self {
                    $(RelayCommand::$name => $wire,)*
                }
            }

            /// Its row of the table.
            #[inline]
            pub const fn rules(self) -> Rules {
                match self {
                    $(RelayCommand::$name => Rules {
                        scope: Scope::$scope,
                        flow: FlowControl::$flow,
                        legs: LegRule::$legs,
                        at_relay: $relay,
                        at_origin: $origin,
                    },)*
                }
            }

            /// Its bound.
            const fn limit(self) -> Limit {
                match self {
                    $(RelayCommand::$name => limit::$limit,)*
                }
            }
        }
    };
}

use AtOrigin as O;
use AtRelay as R;
use StreamMessage as S;
use StreamOpener::{Begin, BeginDir, Resolve};

#[rustfmt::skip]
table! {
    // number, name                                              scope    flow     legs         at a relay               at the origin            limit
     1 => Begin, "BEGIN":                                     Stream,  Free,    Multiplexed, R::Open(Begin),          O::Refuse,               STREAM;
     2 => Data, "DATA":                                       Stream,  Counted, Multiplexed, R::Stream(S::Data),      O::Stream(S::Data),      DATA;
     3 => End, "END":                                         Stream,  InOrder, Multiplexed, R::Stream(S::End),       O::Stream(S::End),       END;
     4 => Connected, "CONNECTED":                             Stream,  Free,    Multiplexed, R::Refuse,               O::Stream(S::Connected), CONNECTED;
     5 => Sendme, "SENDME":                                   Either,  Free,    OwnLeg,      R::Stream(S::Sendme),    O::Stream(S::Sendme),    SENDME;
     6 => Extend, "EXTEND":                                   Circuit, Free,    OwnLeg,      R::Refuse,               O::Refuse,               NONE;
     7 => Extended, "EXTENDED":                               Circuit, Free,    OwnLeg,      R::Refuse,               O::Refuse,               NONE;
     8 => Truncate, "TRUNCATE":                               Circuit, Free,    OwnLeg,      R::Truncate,             O::Refuse,               TRUNCATE;
     9 => Truncated, "TRUNCATED":                             Circuit, Free,    OwnLeg,      R::Refuse,               O::Truncated,            TRUNCATED;
    10 => Drop, "DROP":                                       Circuit, Free,    OwnLeg,      R::Drop,                 O::Drop,                 DROP;
    11 => Resolve, "RESOLVE":                                 Stream,  Free,    Multiplexed, R::Open(Resolve),        O::Refuse,               NAME;
    12 => Resolved, "RESOLVED":                               Stream,  Free,    Multiplexed, R::Refuse,               O::Stream(S::Resolved),  RESOLVED;
    13 => BeginDir, "BEGIN_DIR":                              Stream,  Free,    OwnLeg,      R::Open(BeginDir),       O::Refuse,               DIRECTORY;
    14 => Extend2, "EXTEND2":                                 Circuit, Free,    OwnLeg,      R::Extend2,              O::Refuse,               EXTENSION;
    15 => Extended2, "EXTENDED2":                             Circuit, Free,    OwnLeg,      R::Refuse,               O::Extended2,            EXTENDED;
    19 => ConfluxLink, "CONFLUX_LINK":                        Circuit, Free,    OwnLeg,      R::ConfluxLink,          O::Refuse,               LEG;
    20 => ConfluxLinked, "CONFLUX_LINKED":                    Circuit, Free,    OwnLeg,      R::Refuse,               O::ConfluxLinked,        LINKED;
    21 => ConfluxLinkedAck, "CONFLUX_LINKED_ACK":             Circuit, Free,    OwnLeg,      R::ConfluxLinkedAck,     O::Refuse,               LINKED_ACK;
    22 => ConfluxSwitch, "CONFLUX_SWITCH":                    Circuit, Free,    OwnLeg,      R::ConfluxSwitch,        O::ConfluxSwitch,        SWITCH;
    32 => EstablishIntro, "ESTABLISH_INTRO":                  Circuit, Free,    OwnLeg,      R::EstablishIntro,       O::Refuse,               INTRODUCTION_POINT;
    33 => EstablishRendezvous, "ESTABLISH_RENDEZVOUS":        Circuit, Free,    OwnLeg,      R::EstablishRendezvous,  O::Refuse,               COOKIE;
    34 => Introduce1, "INTRODUCE1":                           Circuit, Free,    OwnLeg,      R::Introduce1,           O::Refuse,               INTRODUCTION;
    35 => Introduce2, "INTRODUCE2":                           Circuit, Free,    OwnLeg,      R::Refuse,               O::Refuse,               NONE;
    36 => Rendezvous1, "RENDEZVOUS1":                         Circuit, Free,    OwnLeg,      R::Rendezvous1,          O::Refuse,               RENDEZVOUS;
    37 => Rendezvous2, "RENDEZVOUS2":                         Circuit, Free,    OwnLeg,      R::Refuse,               O::Refuse,               NONE;
    38 => IntroEstablished, "INTRO_ESTABLISHED":              Circuit, Free,    OwnLeg,      R::Refuse,               O::Refuse,               NONE;
    39 => RendezvousEstablished, "RENDEZVOUS_ESTABLISHED":    Circuit, Free,    OwnLeg,      R::Refuse,               O::Refuse,               NONE;
    40 => IntroduceAck, "INTRODUCE_ACK":                      Circuit, Free,    OwnLeg,      R::Refuse,               O::Refuse,               NONE;
    41 => PaddingNegotiate, "PADDING_NEGOTIATE":              Circuit, Free,    OwnLeg,      R::PaddingNegotiate,     O::Refuse,               MACHINE;
    42 => PaddingNegotiated, "PADDING_NEGOTIATED":            Circuit, Free,    OwnLeg,      R::Refuse,               O::Refuse,               NONE;
    43 => Xoff, "XOFF":                                       Stream,  Free,    Multiplexed, R::Stream(S::Xoff),      O::Stream(S::Xoff),      XOFF;
    44 => Xon, "XON":                                         Stream,  Free,    Multiplexed, R::Stream(S::Xon),       O::Stream(S::Xon),       XON;
    // Numbers for experiments, as no command of tor-spec's is near them: docs/extensions/abra.md.
   240 => AbraAsk, "ABRA_ASK":                                Circuit, Free,    OwnLeg,      R::AbraAsk,              O::Refuse,               ASK;
   241 => AbraWeight, "ABRA_WEIGHT":                          Circuit, Free,    OwnLeg,      R::Refuse,               O::AbraWeight,           WEIGHT;
    // docs/extensions/mtor.md.
   242 => Multipath, "MULTIPATH":                             Circuit, Free,    OwnLeg,      R::Multipath,            O::Refuse,               TUNNEL;
   243 => MultipathAck, "MULTIPATH_ACK":                      Circuit, Free,    OwnLeg,      R::Refuse,               O::MultipathAck,         TUNNEL_ANSWER;
   244 => Join, "JOIN":                                       Circuit, Free,    OwnLeg,      R::Join,                 O::Refuse,               JOIN;
   245 => Joined, "JOINED":                                   Circuit, Free,    OwnLeg,      R::Refuse,               O::Joined,               TUNNEL_ANSWER;
   246 => MtorDrop, "MTOR_DROP":                              Circuit, Free,    OwnLeg,      R::MtorDrop,             O::Refuse,               LEG_DROP;
   247 => MtorDropped, "MTOR_DROPPED":                        Circuit, Free,    OwnLeg,      R::Refuse,               O::MtorDropped,          LEG_DROP;
   248 => MtorStopped, "MTOR_STOPPED":                        Circuit, Free,    OwnLeg,      R::Refuse,               O::MtorStopped,          LEG_DROP;
   249 => Subdata, "SUBDATA":                                 Stream,  Counted, OwnLeg,      R::Subdata,              O::Subdata,              SUBDATA;
   250 => MtorAck, "MTOR_ACK":                                Circuit, Free,    OwnLeg,      R::MtorAck,              O::MtorAck,              ACK;
}

impl RelayCommand {
    /// Its senders and limits.
    pub const fn trust(self) -> Trust {
        let Rules {
            at_relay,
            at_origin,
            ..
        } = self.rules();
        let (relay, origin) = (
            !matches!(at_relay, AtRelay::Refuse),
            !matches!(at_origin, AtOrigin::Refuse),
        );
        let (sender, role) = match (relay, origin) {
            (true, true) => (Sender::FarEnd, Role::AtBoth),
            (true, false) => (Sender::Origin, Role::AtRelay),
            (false, true) => (Sender::Hop, Role::AtOrigin),
            (false, false) => (Sender::Nobody, Role::Nowhere),
        };
        Trust::new(sender, role, self.limit())
    }
}

impl StreamMessage {
    /// The message that a command is on an existing stream, whichever side sent it.
    #[inline]
    pub fn of(wire: RelayCmd) -> Option<StreamMessage> {
        let rules = RelayCommand::of(wire)?.rules();
        match (rules.at_relay, rules.at_origin) {
            (AtRelay::Stream(message), _) | (_, AtOrigin::Stream(message)) => Some(message),
            _ => None,
        }
    }

    /// Returns true if nothing of the stream follows it.
    #[inline]
    pub const fn ends_stream(self) -> bool {
        match self {
            StreamMessage::End | StreamMessage::Resolved => true,
            StreamMessage::Data
            | StreamMessage::Connected
            | StreamMessage::Sendme
            | StreamMessage::Xoff
            | StreamMessage::Xon => false,
        }
    }
}

/// Accounting of a message that an edge sends in the circuit's window. Edges send only messages of
/// the table.
#[inline]
pub fn flow_control(wire: RelayCmd) -> FlowControl {
    RelayCommand::of(wire).map_or(FlowControl::Free, |known| known.rules().flow)
}

/// Returns true if any leg of a conflux set, or of a tunnel of mTor, may carry a message.
#[inline]
pub fn is_multiplexed(wire: RelayCmd) -> bool {
    RelayCommand::of(wire).is_some_and(|known| known.rules().legs == LegRule::Multiplexed)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::*;

    /// Returns true if Arti has a name for a command; it shows other commands as numbers.
    fn is_known_to_arti(command: RelayCommand) -> bool {
        command.wire().to_string() != u8::from(command.wire()).to_string()
    }

    #[test]
    fn each_command_has_one_row() {
        for command in RelayCommand::ALL {
            assert_eq!(RelayCommand::of(command.wire()), Some(*command));
            if is_known_to_arti(*command) {
                assert_eq!(command.wire().to_string(), command.name());
            }
        }
        let known = (0..=u8::MAX).filter(|n| RelayCommand::of((*n).into()).is_some());
        assert_eq!(known.count(), RelayCommand::ALL.len());
    }

    #[test]
    fn scopes_are_those_that_arti_knows() {
        let known = RelayCommand::ALL.iter().filter(|c| is_known_to_arti(**c));
        for command in known {
            let accepts = |id| command.wire().accepts_streamid_val(id);
            let (none, some) = (accepts(None), accepts(Some(NonZeroU16::MIN.into())));
            let scope = match command {
                // Arti knows their names alone.
                RelayCommand::PaddingNegotiate | RelayCommand::PaddingNegotiated => Scope::Circuit,
                _ if none && some => Scope::Either,
                _ if some => Scope::Stream,
                _ => Scope::Circuit,
            };
            assert_eq!(command.rules().scope, scope, "{command:?}");
        }
    }

    #[test]
    fn a_message_of_a_stream_is_the_same_at_both_ends() {
        for command in RelayCommand::ALL {
            let rules = command.rules();
            if let (AtRelay::Stream(one), AtOrigin::Stream(other)) =
                (rules.at_relay, rules.at_origin)
            {
                assert_eq!(one, other);
            }
            // Only messages of streams wait for the window, and SUBDATA, which holds them.
            if rules.flow != FlowControl::Free && *command != RelayCommand::Subdata {
                assert!(StreamMessage::of(command.wire()).is_some());
            }
        }
    }

    #[test]
    fn end_and_resolved_end_a_stream() {
        let ends = (0..=u8::MAX).map(RelayCmd::from).filter(|command| {
            let message = StreamMessage::of(*command);
            message.is_some_and(StreamMessage::ends_stream)
        });
        let ends: Vec<_> = ends.collect();
        assert_eq!(ends, [RelayCmd::END, RelayCmd::RESOLVED]);
    }

    #[test]
    fn what_is_multiplexed_is_what_c_tor_multiplexes() {
        let multiplexed: Vec<_> = (0..=u8::MAX)
            .filter(|number| is_multiplexed((*number).into()))
            .filter_map(|number| RelayCommand::of(number.into()))
            .collect();
        assert_eq!(
            multiplexed,
            [
                RelayCommand::Begin,
                RelayCommand::Data,
                RelayCommand::End,
                RelayCommand::Connected,
                RelayCommand::Resolve,
                RelayCommand::Resolved,
                RelayCommand::Xoff,
                RelayCommand::Xon,
            ]
        );
    }

    #[test]
    fn all_that_is_multiplexed_names_a_stream() {
        for command in RelayCommand::ALL {
            let Rules { scope, legs, .. } = command.rules();
            assert!(
                legs == LegRule::OwnLeg || scope == Scope::Stream,
                "{command:?}"
            );
        }
    }
}
