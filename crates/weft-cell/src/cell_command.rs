//! The table of cell commands (tor-spec 3): for each, its form and its handling on an open link, where
//! this node is a server and where it is a client.
//!
//! A node is a client on a link that it opened without proving an identity: its peer takes it for a
//! client, and a client answers no CREATE. A bridge that answered one would reveal itself to each
//! relay that it connects to (CVE-2011-2769). Code that dispatches cells asks the table and matches
//! on [`OnOpenLink`], each variant by name: a new row, or a new handler, does not compile before
//! every dispatcher handles it. Nor does a row without its [`Trust`].

use tor_cell::chancell::ChanCmd;
use weft_planted::{Fault, planted};
use weft_trust::{Limit, Payer, Role, Sender, Trust};

/// Fixed or variable length of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// 514 bytes.
    Fixed,
    /// A length field.
    Variable,
}

/// The handling of a cell that arrives on an open link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnOpenLink {
    /// Hands it to its circuit.
    Relay,
    /// Hands it to its circuit, which closes if the cell did not come from the origin (tor-spec 5.6).
    RelayEarly,
    /// Makes a circuit.
    Create,
    /// Makes none, and answers DESTROY: this node is a client here.
    RefuseCreate,
    /// Finishes the handshake with the next hop.
    Created,
    /// Closes a circuit.
    Destroy,
    /// Counts it.
    Padding,
    /// Follows the client's wish about padding (padding-spec 2.2).
    PaddingNegotiate,
    /// Drops it as a violation: only a client may send it, and this node is the client here.
    Refuse,
    /// Drops it and counts it: it belongs to the link's handshake, or is not known (tor-spec 3).
    Ignore,
}

/// Makes the enum, the list of all commands and the handling of each from one table.
macro_rules! table {
    ($($number:literal => $name:ident, $wire:literal: $form:ident, $server:ident, $client:ident, $trust:ident;)*) => {
        /// A command that tor-spec names.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum CellCommand {
            $(
                #[doc = $wire]
                $name,
            )*
        }

        impl CellCommand {
            /// All of them.
            pub const ALL: &[CellCommand] = &[$(CellCommand::$name),*];

            /// The command's number on the wire.
            pub fn wire(self) -> ChanCmd {
                match self {
                    $(CellCommand::$name => ChanCmd::from($number),)*
                }
            }

            /// The command with this number.
            pub fn of(wire: ChanCmd) -> Option<CellCommand> {
                match u8::from(wire) {
                    $($number => Some(CellCommand::$name),)*
                    _ => None,
                }
            }

            /// Fixed or variable length.
            pub const fn form(self) -> Form {
                match self {
                    $(CellCommand::$name => Form::$form,)*
                }
            }

            /// Its name in tor-spec.
            pub const fn name(self) -> &'static str {
                match self {
                    $(CellCommand::$name => $wire,)*
                }
            }

            /// Its senders and limits.
            pub const fn trust(self) -> Trust {
                match self {
                    $(CellCommand::$name => $trust,)*
                }
            }
        }

        impl OnOpenLink {
            /// The handling of a command; `as_client`: this node is a client on the link.
            #[inline]
            pub fn of(wire: ChanCmd, as_client: bool) -> OnOpenLink {
                let as_client = as_client && !planted(Fault::CreateAnsweredAsClient);
                match (u8::from(wire), as_client) {
                    $(
                        ($number, false) => OnOpenLink::$server,
                        ($number, true) => OnOpenLink::$client,
                    )*
                    _ => OnOpenLink::Ignore,
                }
            }
        }
    };
}

#[rustfmt::skip]
table! {
    // number, name                                    form      as a server       as a client       trust
      0 => Padding, "PADDING":                         Fixed,    Padding,          Padding,          NOISE;
      1 => Create, "CREATE":                           Fixed,    Create,           RefuseCreate,     NEW_CIRCUIT;
      2 => Created, "CREATED":                         Fixed,    Created,          Created,          ANSWER;
      3 => Relay, "RELAY":                             Fixed,    Relay,            Relay,            RELAYED;
      4 => Destroy, "DESTROY":                         Fixed,    Destroy,          Destroy,          END;
      5 => CreateFast, "CREATE_FAST":                  Fixed,    Create,           RefuseCreate,     NEW_CIRCUIT;
      6 => CreatedFast, "CREATED_FAST":                Fixed,    Created,          Created,          ANSWER;
      7 => Versions, "VERSIONS":                       Variable, Ignore,           Ignore,           EITHER;
      8 => Netinfo, "NETINFO":                         Fixed,    Ignore,           Ignore,           EITHER;
      9 => RelayEarly, "RELAY_EARLY":                  Fixed,    RelayEarly,       RelayEarly,       EXTENDING;
     10 => Create2, "CREATE2":                         Fixed,    Create,           RefuseCreate,     NEW_CIRCUIT;
     11 => Created2, "CREATED2":                       Fixed,    Created,          Created,          ANSWER;
     12 => PaddingNegotiate, "PADDING_NEGOTIATE":      Fixed,    PaddingNegotiate, Refuse,           WISH;
    128 => Vpadding, "VPADDING":                       Variable, Padding,          Padding,          NOISE;
    129 => Certs, "CERTS":                             Variable, Ignore,           Ignore,           EITHER;
    130 => AuthChallenge, "AUTH_CHALLENGE":            Variable, Ignore,           Ignore,           RESPONDER;
    131 => Authenticate, "AUTHENTICATE":               Variable, Ignore,           Ignore,           INITIATOR;
    132 => Authorize, "AUTHORIZE":                     Variable, Ignore,           Ignore,           UNUSED;
}

/// Cells of a link's handshake.
const BEFORE_OPEN: Limit = Limit::new(
    "{weft-core/src/handshake/mod.rs:MAX_HANDSHAKE_BYTES} bytes and \
            {weft-core/src/handshake/mod.rs:HANDSHAKE_TIMEOUT} for the whole handshake; its order is fixed. \
            Ignored on an open link",
    Payer::Link,
    &[
        "an_initiator_insists_on_the_order",
        "a_responder_insists_on_the_order",
        "a_peer_that_only_pads_is_cut_off",
        "a_huge_cell_is_refused_by_its_header",
        "the_deadline_is_a_minute_after_the_connection",
        "fuzz/link_handshake",
    ],
);
const EITHER: Trust = Trust::new(Sender::Peer, Role::Handshake, BEFORE_OPEN);
const RESPONDER: Trust = Trust::new(Sender::Responder, Role::Handshake, BEFORE_OPEN);
const INITIATOR: Trust = Trust::new(Sender::Initiator, Role::Handshake, BEFORE_OPEN);
const UNUSED: Trust = Trust::new(
    Sender::Nobody,
    Role::Nowhere,
    Limit::new(
        "ignored and counted, as tor-spec 3 demands",
        Payer::NoOne,
        &["every_cell_command_is_answered_by_servers_alone_in_every_role"],
    ),
);
const NOISE: Trust = Trust::new(
    Sender::Peer,
    Role::OpenLink,
    Limit::new(
        "{weft-core/src/manager/links.rs:MAX_VARIABLE} bytes of a variable cell; counted, and kept nowhere",
        Payer::NoOne,
        &[
            "every_cell_command_is_answered_by_servers_alone_in_every_role",
            "variable_length_cells_on_an_open_link_are_noise",
        ],
    ),
);
const NEW_CIRCUIT: Trust = Trust::new(
    Sender::Peer,
    Role::ServerLink,
    Limit::new(
        "onionskins: {weft-core/src/controller/onionskins.rs:WITH_WORKER} with one worker, and those that can be \
                answered within MaxOnionQueueDelay; `DoSCircuitCreation` for each address. TAP is refused. Refusals: \
                {weft-core/src/link/mod.rs:MAX_DESTROYS} that wait",
        Payer::PreviousHop,
        &[
            "onionskins_of_one_client_do_not_keep_out_those_of_others",
            "an_onionskin_that_has_waited_too_long_is_refused_in_place_of_answered",
            "circuits_past_the_burst_are_refused_if_there_are_several_connections",
            "a_client_refuses_what_only_servers_answer",
            "a_peer_that_makes_us_answer_and_does_not_read_is_cut_off",
        ],
    ),
);
const ANSWER: Trust = Trust::new(
    Sender::Peer,
    Role::OpenLink,
    Limit::new(
        "one for each CREATE that this node has sent on the link; for no circuit, ignored and counted",
        Payer::Circuit,
        &["what_is_not_a_circuit_s_business_ends_that_circuit_and_no_other"],
    ),
);
const RELAYED: Trust = Trust::new(
    Sender::Peer,
    Role::OpenLink,
    Limit::new(
        "the queue of its circuit, 2,500 cells or the consensus' `circ_max_cell_queue_size`; MaxMemInQueues for all; \
                for no circuit, ignored and counted",
        Payer::Circuit,
        &[
            "a_queue_that_nobody_reads_dies_at_its_bound_and_hurts_no_other",
            "the_oldest_and_largest_dies_first_and_a_circuit_that_holds_little_last",
            "cells_for_nobody_are_dropped",
        ],
    ),
);
const EXTENDING: Trust = Trust::new(
    Sender::Peer,
    Role::OpenLink,
    Limit::new(
        "as RELAY; {weft-core/src/circuit/half.rs:MAX_RELAY_EARLY} on a circuit, from its origin alone",
        Payer::Circuit,
        &[
            "relay_early_is_passed_on_counted_and_never_goes_toward_the_origin",
            "too_many_relay_early_cells_end_their_circuit",
        ],
    ),
);
const END: Trust = Trust::new(
    Sender::Peer,
    Role::OpenLink,
    Limit::new(
        "one for each circuit of the link; those of circuits that are not there are ignored and counted",
        Payer::Circuit,
        &[
            "a_circuit_ends_on_both_sides_however_it_ends",
            "cells_for_nobody_are_dropped",
        ],
    ),
);
const WISH: Trust = Trust::new(
    Sender::Peer,
    Role::ServerLink,
    Limit::new(
        "two times of the link, raised to the consensus'; not answered",
        Payer::NoOne,
        &[
            "negotiated_bounds_are_raised_to_the_consensus",
            "a_relay_cannot_stop_the_padding_of_its_client",
            "a_client_refuses_what_only_servers_answer",
        ],
    ),
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_send_a_command_is_whose_command_is_handled() {
        for command in CellCommand::ALL {
            let [server, client] =
                [false, true].map(|as_client| OnOpenLink::of(command.wire(), as_client));
            let expected = match (server, client) {
                (OnOpenLink::Ignore, OnOpenLink::Ignore) => [Role::Handshake, Role::Nowhere],
                (server, client) if server != client => [Role::ServerLink; 2],
                _ => [Role::OpenLink; 2],
            };
            let Trust { sender, role, .. } = command.trust();
            assert!(expected.contains(&role), "{command:?}");
            assert_eq!(
                sender == Sender::Nobody,
                role == Role::Nowhere,
                "{command:?}"
            );
        }
    }

    #[test]
    fn the_table_has_all_commands_that_arti_names_in_their_form() {
        for number in 0..=u8::MAX {
            let wire = ChanCmd::from(number);
            let known = wire.to_string() != number.to_string();
            let command = CellCommand::of(wire);
            assert_eq!(command.is_some(), known, "{wire}");
            if let Some(command) = command {
                assert_eq!(command.wire(), wire);
                assert_eq!(
                    command.form() == Form::Variable,
                    wire.is_var_cell(),
                    "{wire}"
                );
            } else {
                for as_client in [false, true] {
                    assert_eq!(
                        OnOpenLink::of(wire, as_client),
                        OnOpenLink::Ignore,
                        "{wire}"
                    );
                }
            }
        }
        assert_eq!(CellCommand::ALL.len(), 18);
    }

    #[test]
    fn a_client_refuses_what_only_servers_answer() {
        use CellCommand::{Create, Create2, CreateFast, PaddingNegotiate};
        for command in CellCommand::ALL {
            let [server, client] =
                [false, true].map(|as_client| OnOpenLink::of(command.wire(), as_client));
            let expected = match command {
                Create | CreateFast | Create2 => OnOpenLink::RefuseCreate,
                PaddingNegotiate => OnOpenLink::Refuse,
                _ => server,
            };
            assert_eq!(client, expected, "{command:?}");
            let refuses = matches!(server, OnOpenLink::RefuseCreate | OnOpenLink::Refuse);
            assert!(!refuses, "a server refuses {command:?}");
        }
    }

    #[test]
    fn only_padding_and_noise_have_a_length_of_their_own() {
        for command in CellCommand::ALL {
            for as_client in [false, true] {
                let handling = OnOpenLink::of(command.wire(), as_client);
                let noise = matches!(handling, OnOpenLink::Padding | OnOpenLink::Ignore);
                assert!(noise || command.form() == Form::Fixed, "{command:?}");
            }
        }
    }
}
