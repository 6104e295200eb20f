//! The table of relay commands: for each command that Weft knows, what it is about, whether flow control
//! counts it, and what a relay and an origin do with it.
//!
//! A command that is not in the table may not be sent by any node. Code that dispatches messages asks the
//! table, and matches on the table's own types, each variant by name: a new row, or a new handler, does
//! not compile before every dispatcher has it.
//!
//! - the layout under Counter Galois Onion names a stream or not by [`Scope`] ([`crate::relay_v1`]);
//! - a relay dispatches by [`AtRelay`], an origin by [`AtOrigin`];
//! - messages of a stream that exists are dispatched by [`StreamMessage`], to the stream's edge;
//! - what an edge sends waits for the circuit's window by [`FlowControl`].

use tor_cell::relaycell::RelayCmd;

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The circuit: its stream id is 0.
    Circuit,
    /// A stream: its stream id is not 0.
    Stream,
    /// The circuit or a stream. Under Counter Galois Onion the circuit only (proposal 340).
    Either,
}

/// How a message stands to the circuit's SENDME window (tor-spec 7.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowControl {
    /// It is counted, and waits for the window.
    Counted,
    /// It is not counted, and waits for the messages of its stream that are.
    InOrder,
    /// It is not counted, and is sent at once.
    Free,
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

/// What a relay does with a message of the circuit's origin.
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
    /// Sends its weight from now on (docs/extensions/abra.md); nothing, if it does not serve that (any more).
    AbraAsk,
    /// Closes the circuit: the message is one that only origins receive, or that this relay's protocol
    /// list does not claim.
    Refuse,
}

/// What the origin of a circuit does with a message of one of its hops.
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
    /// Closes the circuit: nothing asked for the message.
    Refuse,
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// What it is about.
    pub scope: Scope,
    /// How it stands to the circuit's window.
    pub flow: FlowControl,
    /// At a relay, from the circuit's origin.
    pub at_relay: AtRelay,
    /// At the circuit's origin, from a hop.
    pub at_origin: AtOrigin,
}

/// Makes the enum, the list of all commands and the rules of each from one table.
macro_rules! table {
    ($($number:literal => $name:ident, $wire:literal: $scope:ident, $flow:ident, $relay:expr, $origin:expr;)*) => {
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
                        at_relay: $relay,
                        at_origin: $origin,
                    },)*
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
    // number, name                                              scope    flow     at a relay               at the origin
     1 => Begin, "BEGIN":                                     Stream,  Free,    R::Open(Begin),          O::Refuse;
     2 => Data, "DATA":                                       Stream,  Counted, R::Stream(S::Data),      O::Stream(S::Data);
     3 => End, "END":                                         Stream,  InOrder, R::Stream(S::End),       O::Stream(S::End);
     4 => Connected, "CONNECTED":                             Stream,  Free,    R::Refuse,               O::Stream(S::Connected);
     5 => Sendme, "SENDME":                                   Either,  Free,    R::Stream(S::Sendme),    O::Stream(S::Sendme);
     6 => Extend, "EXTEND":                                   Circuit, Free,    R::Refuse,               O::Refuse;
     7 => Extended, "EXTENDED":                               Circuit, Free,    R::Refuse,               O::Refuse;
     8 => Truncate, "TRUNCATE":                               Circuit, Free,    R::Truncate,             O::Refuse;
     9 => Truncated, "TRUNCATED":                             Circuit, Free,    R::Refuse,               O::Truncated;
    10 => Drop, "DROP":                                       Circuit, Free,    R::Drop,                 O::Drop;
    11 => Resolve, "RESOLVE":                                 Stream,  Free,    R::Open(Resolve),        O::Refuse;
    12 => Resolved, "RESOLVED":                               Stream,  Free,    R::Refuse,               O::Stream(S::Resolved);
    13 => BeginDir, "BEGIN_DIR":                              Stream,  Free,    R::Open(BeginDir),       O::Refuse;
    14 => Extend2, "EXTEND2":                                 Circuit, Free,    R::Extend2,              O::Refuse;
    15 => Extended2, "EXTENDED2":                             Circuit, Free,    R::Refuse,               O::Extended2;
    19 => ConfluxLink, "CONFLUX_LINK":                        Circuit, Free,    R::Refuse,               O::Refuse;
    20 => ConfluxLinked, "CONFLUX_LINKED":                    Circuit, Free,    R::Refuse,               O::Refuse;
    21 => ConfluxLinkedAck, "CONFLUX_LINKED_ACK":             Circuit, Free,    R::Refuse,               O::Refuse;
    22 => ConfluxSwitch, "CONFLUX_SWITCH":                    Circuit, Free,    R::Refuse,               O::Refuse;
    32 => EstablishIntro, "ESTABLISH_INTRO":                  Circuit, Free,    R::Refuse,               O::Refuse;
    33 => EstablishRendezvous, "ESTABLISH_RENDEZVOUS":        Circuit, Free,    R::EstablishRendezvous,  O::Refuse;
    34 => Introduce1, "INTRODUCE1":                           Circuit, Free,    R::Refuse,               O::Refuse;
    35 => Introduce2, "INTRODUCE2":                           Circuit, Free,    R::Refuse,               O::Refuse;
    36 => Rendezvous1, "RENDEZVOUS1":                         Circuit, Free,    R::Rendezvous1,          O::Refuse;
    37 => Rendezvous2, "RENDEZVOUS2":                         Circuit, Free,    R::Refuse,               O::Refuse;
    38 => IntroEstablished, "INTRO_ESTABLISHED":              Circuit, Free,    R::Refuse,               O::Refuse;
    39 => RendezvousEstablished, "RENDEZVOUS_ESTABLISHED":    Circuit, Free,    R::Refuse,               O::Refuse;
    40 => IntroduceAck, "INTRODUCE_ACK":                      Circuit, Free,    R::Refuse,               O::Refuse;
    41 => PaddingNegotiate, "PADDING_NEGOTIATE":              Circuit, Free,    R::Refuse,               O::Refuse;
    42 => PaddingNegotiated, "PADDING_NEGOTIATED":            Circuit, Free,    R::Refuse,               O::Refuse;
    43 => Xoff, "XOFF":                                       Stream,  Free,    R::Stream(S::Xoff),      O::Stream(S::Xoff);
    44 => Xon, "XON":                                         Stream,  Free,    R::Stream(S::Xon),       O::Stream(S::Xon);
    // Numbers for experiments, as no command of tor-spec's is near them: docs/extensions/abra.md.
   240 => AbraAsk, "ABRA_ASK":                                Circuit, Free,    R::AbraAsk,              O::Refuse;
   241 => AbraWeight, "ABRA_WEIGHT":                          Circuit, Free,    R::Refuse,               O::AbraWeight;
}

impl StreamMessage {
    /// What a message of a stream that exists is, whichever side sent it.
    #[inline]
    pub fn of(wire: RelayCmd) -> Option<StreamMessage> {
        let rules = RelayCommand::of(wire)?.rules();
        match (rules.at_relay, rules.at_origin) {
            (AtRelay::Stream(message), _) | (_, AtOrigin::Stream(message)) => Some(message),
            _ => None,
        }
    }

    /// Whether nothing of the stream follows it.
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

/// How a message that an edge sends stands to the circuit's window. Edges send nothing that is not in the
/// table.
#[inline]
pub fn flow_control(wire: RelayCmd) -> FlowControl {
    RelayCommand::of(wire).map_or(FlowControl::Free, |known| known.rules().flow)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::*;

    /// Whether Arti has a name for a command; others it shows as numbers.
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
            // Only messages of streams wait for the window.
            if rules.flow != FlowControl::Free {
                assert!(StreamMessage::of(command.wire()).is_some());
            }
        }
    }
}
