//! The table of commands of the control port (control-spec 3): the word of each, whether it is allowed before a
//! controller has authenticated, and what bounds it.
//!
//! A session matches on [`Command`], each variant by name: a new row does not compile before it has its arm there, nor
//! without its limit.

use weft_trust::{Limit, Payer, Role, Sender, Trust};

/// Makes the enum, the list of all commands and the answers for each from one table.
macro_rules! table {
    ($($name:ident $word:literal: $sender:ident, $limit:ident;)*) => {
        /// A command that Weft knows.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Command {
            $($name,)*
        }

        impl Command {
            /// All of them.
            #[cfg(test)]
            pub(crate) const ALL: &[Command] = &[$(Command::$name),*];

            /// The command of a word, in any case of letters. Data follow one that begins with `+`.
            pub(crate) fn of(word: &str) -> Option<Command> {
                $(
                    if word.eq_ignore_ascii_case($word) {
                        return Some(Command::$name);
                    }
                )*
                None
            }

            /// The keyword in control-spec.
            pub(crate) const fn word(self) -> &'static str {
                match self {
                    $(Command::$name => $word,)*
                }
            }

            /// Who may send it, and what bounds it.
            pub(crate) const fn trust(self) -> Trust {
                match self {
                    $(Command::$name => Trust::new(Sender::$sender, Role::ControlPort, $limit),)*
                }
            }
        }
    };
}

#[rustfmt::skip]
table! {
    Authenticate       "AUTHENTICATE":             Anybody,    STRANGER;
    AuthChallenge      "AUTHCHALLENGE":            Anybody,    STRANGER;
    ProtocolInfo       "PROTOCOLINFO":             Anybody,    STRANGER;
    Quit               "QUIT":                     Anybody,    STRANGER;
    GetInfo            "GETINFO":                  Controller, ANSWERED;
    GetConf            "GETCONF":                  Controller, ANSWERED;
    SetConf            "SETCONF":                  Controller, CONFIGURED;
    ResetConf          "RESETCONF":                Controller, CONFIGURED;
    LoadConf           "+LOADCONF":                Controller, CONFIGURED;
    SaveConf           "SAVECONF":                 Controller, SAVED;
    SetEvents          "SETEVENTS":                Controller, SUBSCRIBED;
    Signal             "SIGNAL":                   Controller, TRUSTED;
    TakeOwnership      "TAKEOWNERSHIP":            Controller, TRUSTED;
    DropOwnership      "DROPOWNERSHIP":            Controller, TRUSTED;
    UseFeature         "USEFEATURE":               Controller, TRUSTED;
    MapAddress         "MAPADDRESS":               Controller, CLIENT;
    Resolve            "RESOLVE":                  Controller, LOOK_UP;
    ExtendCircuit      "EXTENDCIRCUIT":            Controller, CLIENT;
    SetCircuitPurpose  "SETCIRCUITPURPOSE":        Controller, CLIENT;
    CloseCircuit       "CLOSECIRCUIT":             Controller, CLIENT;
    AttachStream       "ATTACHSTREAM":             Controller, CLIENT;
    RedirectStream     "REDIRECTSTREAM":           Controller, CLIENT;
    CloseStream        "CLOSESTREAM":              Controller, CLIENT;
    DropGuards         "DROPGUARDS":               Controller, CLIENT;
    DropTimeouts       "DROPTIMEOUTS":             Controller, CLIENT;
    SetRouterPurpose   "SETROUTERPURPOSE":         Controller, REFUSED;
    PostDescriptor     "+POSTDESCRIPTOR":          Controller, REFUSED;
    AddOnion           "ADD_ONION":                Controller, SERVICE;
    DelOnion           "DEL_ONION":                Controller, SERVICE;
    HsFetch            "HSFETCH":                  Controller, SERVICE;
    HsPost             "+HSPOST":                  Controller, SERVICE;
    OnionAuthAdd       "ONION_CLIENT_AUTH_ADD":    Controller, SERVICE;
    OnionAuthRemove    "ONION_CLIENT_AUTH_REMOVE": Controller, SERVICE;
    OnionAuthView      "ONION_CLIENT_AUTH_VIEW":   Controller, SERVICE;
}

const STRANGER: Limit = Limit::new(
    "{weft-node/src/control/reader.rs:MAX_BEFORE_AUTHENTICATION} bytes, \
     {weft-node/src/control/server.rs:AUTHENTICATION_TIME}, {weft-node/src/control/server.rs:MAX_CONTROLLERS} connections, \
     shared by address; PROTOCOLINFO and AUTHCHALLENGE once; a wrong password closes the connection",
    Payer::Address,
    &[
        "unauthenticated_controllers_may_only_authenticate",
        "endless_input_is_an_error",
        "a_connection_without_authentication_is_closed_in_time",
        "silent_connections_do_not_lock_out_controllers",
        "an_authenticated_controller_keeps_its_place",
    ],
);
const ANSWERED: Limit = Limit::new(
    "{weft-node/src/control/reader.rs:MAX_COMMAND} bytes of a command; one at a time, the next after its answer is sent; \
     {weft-node/src/control/reply.rs:MAX_ANSWER} bytes of an answer",
    Payer::Asker,
    &[
        "endless_input_is_an_error",
        "getinfo_returns_values_or_a_552",
        "an_answer_that_is_too_long_is_an_error",
    ],
);
const CONFIGURED: Limit = Limit::new(
    "what torrc may have: all of it is checked first, and nothing changes if anything is wrong; immutable options are \
     refused",
    Payer::Request,
    &[
        "what_cannot_be_changes_nothing",
        "a_reload_that_cannot_be_is_an_error_that_names_everything",
        "options_are_set_and_reset",
    ],
);
const SAVED: Limit = Limit::new(
    "one torrc, written whole or not at all; what a person wrote is kept beside it; one that includes others only with FORCE",
    Payer::Request,
    &[
        "a_full_disk_at_any_step_leaves_a_whole_torrc",
        "a_process_that_is_killed_at_any_step_leaves_a_whole_torrc",
        "the_operators_torrc_is_kept_and_its_mode_and_owner",
    ],
);
const SUBSCRIBED: Limit = Limit::new(
    "{weft-node/src/control/node_backend.rs:EVENTS} events that a controller has not read; older ones are dropped",
    Payer::Message,
    &[
        "subscribed_events_are_sent",
        "a_controller_that_does_not_read_loses_its_oldest_events",
    ],
);
const TRUSTED: Limit = Limit::new(
    "none: a controller may end the node",
    Payer::NoOne,
    &["unauthenticated_controllers_may_only_authenticate"],
);
const CLIENT: Limit = Limit::new(
    "{weft-node/src/control/node_backend.rs:REQUESTS} that wait for the main thread; a destination passes maps and rules \
     before it is sent",
    Payer::Asker,
    &[
        "commands_reach_the_client_and_get_its_result",
        "no_way_to_an_exit_leads_around_the_rules",
    ],
);
const LOOK_UP: Limit = Limit::new(
    "{weft-node/src/control/server.rs:MAX_LOOKUPS} at once for each controller; the others fail at once",
    Payer::Request,
    &["look_ups_past_the_bound_fail_at_once"],
);
const REFUSED: Limit = Limit::new(
    "not served",
    Payer::Request,
    &["every_command_but_four_wants_authentication"],
);
const SERVICE: Limit = Limit::new(
    "arguments are checked; not served",
    Payer::Request,
    &["what_is_malformed_has_c_tors_answer_and_all_else_is_not_supported"],
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_is_one_command_in_any_case() {
        for command in Command::ALL {
            assert_eq!(Command::of(command.word()), Some(*command));
            assert_eq!(Command::of(&command.word().to_lowercase()), Some(*command));
        }
        assert_eq!(Command::of("LOADCONF"), None);
    }
}
