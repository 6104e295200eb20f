//! The table of cell commands (tor-spec 3): for each, its form and its handling on an open link, where
//! this node is a server and where it is a client.
//!
//! A node is a client on a link that it opened without proving an identity: its peer takes it for a
//! client, and a client answers no CREATE. A bridge that answered one would reveal itself to each relay
//! that it connects to (CVE-2011-2769). Code that dispatches cells asks the table and matches on
//! [`OnOpenLink`], each variant by name: a new row, or a new handler, does not compile before every
//! dispatcher has it.

use tor_cell::chancell::ChanCmd;

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
    ($($number:literal => $name:ident, $wire:literal: $form:ident, $server:ident, $client:ident;)*) => {
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
        }

        impl OnOpenLink {
            /// The handling of a command; `as_client`: this node is a client on the link.
            #[inline]
            pub fn of(wire: ChanCmd, as_client: bool) -> OnOpenLink {
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
    // number, name                                    form      as a server       as a client
      0 => Padding, "PADDING":                         Fixed,    Padding,          Padding;
      1 => Create, "CREATE":                           Fixed,    Create,           RefuseCreate;
      2 => Created, "CREATED":                         Fixed,    Created,          Created;
      3 => Relay, "RELAY":                             Fixed,    Relay,            Relay;
      4 => Destroy, "DESTROY":                         Fixed,    Destroy,          Destroy;
      5 => CreateFast, "CREATE_FAST":                  Fixed,    Create,           RefuseCreate;
      6 => CreatedFast, "CREATED_FAST":                Fixed,    Created,          Created;
      7 => Versions, "VERSIONS":                       Variable, Ignore,           Ignore;
      8 => Netinfo, "NETINFO":                         Fixed,    Ignore,           Ignore;
      9 => RelayEarly, "RELAY_EARLY":                  Fixed,    RelayEarly,       RelayEarly;
     10 => Create2, "CREATE2":                         Fixed,    Create,           RefuseCreate;
     11 => Created2, "CREATED2":                       Fixed,    Created,          Created;
     12 => PaddingNegotiate, "PADDING_NEGOTIATE":      Fixed,    PaddingNegotiate, Refuse;
    128 => Vpadding, "VPADDING":                       Variable, Padding,          Padding;
    129 => Certs, "CERTS":                             Variable, Ignore,           Ignore;
    130 => AuthChallenge, "AUTH_CHALLENGE":            Variable, Ignore,           Ignore;
    131 => Authenticate, "AUTHENTICATE":               Variable, Ignore,           Ignore;
    132 => Authorize, "AUTHORIZE":                     Variable, Ignore,           Ignore;
}

#[cfg(test)]
mod tests {
    use super::*;

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
