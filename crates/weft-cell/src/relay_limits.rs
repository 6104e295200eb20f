//! The bound of each relay message, and who pays: the last column of the table of relay commands
//! ([`crate::relay_command`]).

use weft_trust::{Limit, Payer};

macro_rules! limits {
    ($($name:ident: $bound:literal, $payer:ident, [$($test:literal),* $(,)?];)*) => {
        $(
            pub(super) const $name: Limit = Limit::new($bound, Payer::$payer, &[$($test),*]);
        )*
    };
}

limits! {
    NONE: "none is taken: it closes the circuit", Circuit, [
        "a_relay_does_with_each_command_what_the_table_states",
        "an_origin_does_with_each_command_what_the_table_states",
    ];
    STREAM: "{weft-core/src/stream/table.rs:MAX_STREAMS} streams of a circuit; `DoSStreamCreation`; connections as ConnLimit \
             and the file limit allow; {weft-core/src/manager/path/requests.rs:MAX_REQUESTS} requests that wait on a thread", PreviousHop, [
        "a_circuit_has_so_many_streams_and_no_more",
        "a_circuit_that_asks_for_too_many_streams_is_refused_them",
        "streams_of_one_hop_do_not_use_up_an_exit_s_files",
        "requests_of_one_client_delay_and_displace_its_own_while_the_controller_is_behind",
    ];
    NAME: "as BEGIN; names asked at once: a 32nd of the file limit, 8 to 2,048; names that wait, 8,192, and streams, 65,536", PreviousHop, [
        "a_circuit_has_so_many_streams_and_no_more",
        "a_silent_name_server_does_not_keep_others_from_names",
        "streams_that_wait_for_one_name_do_not_keep_out_others",
    ];
    DIRECTORY: "as BEGIN, but for `DoSStreamCreation`; {weft-dircache/src/places.rs:MAX_STREAMS} directory streams at once", PreviousHop, [
        "a_circuit_has_so_many_streams_and_no_more",
        "silent_streams_by_four_hops_do_not_keep_others_from_a_directory",
        "where_files_are_few_so_are_streams_and_others_are_served",
    ];
    DATA: "with fixed windows, 1,000 cells of a circuit and 500 of a stream, past which the circuit closes; under congestion control \
           {weft-core/src/stream/edge.rs:MAX_WAITING} bytes for a socket that takes none, \
           {weft-core/src/stream/early.rs:MAX_EARLY_XOFF} cells before the stream is decided", Stream, [
        "more_data_than_the_windows_allow_ends_the_circuit",
        "a_far_end_that_ignores_xoff_loses_that_stream_alone",
        "past_what_may_wait_for_a_decision_only_that_stream_ends",
        "a_client_that_does_not_know_of_an_end_may_send_what_the_window_allows_and_no_more",
    ];
    END: "one for each stream, and one more if this side ended it; \
          {weft-core/src/stream/ended.rs:MAX_ENDED} ended streams are remembered one by one", Circuit, [
        "two_ends_that_cross_hurt_nobody_and_a_third_ends_the_circuit",
        "a_circuit_remembers_so_many_and_what_the_oldest_left",
    ];
    CONNECTED: "one for each BEGIN", Circuit, [
        "a_second_answer_to_a_stream_that_is_open_ends_the_circuit",
        "connected_does_not_answer_a_resolve_nor_data",
    ];
    RESOLVED: "one for each RESOLVE", Circuit, [
        "what_an_origin_did_not_ask_for_ends_the_circuit",
        "connected_does_not_answer_a_resolve_nor_data",
    ];
    SENDME: "one for each hundred cells (fifty of a stream) that were sent, with their digest", Circuit, [
        "a_sendme_for_what_was_not_sent_ends_the_circuit",
        "a_sendme_proves_that_its_sender_read_what_it_acknowledges",
    ];
    TRUNCATE: "one TRUNCATED each, in the circuit's queue, whose bound closes it; a circuit of a rendezvous, an introduction or a tunnel closes at once", Circuit, [
        "truncate_cuts_the_rest_off_and_the_circuit_can_be_extended_again",
        "truncates_without_end_close_the_circuit_of_a_client_that_does_not_read",
    ];
    TRUNCATED: "the first closes the circuit", Circuit, [
        "an_origin_does_with_each_command_what_the_table_states",
    ];
    DROP: "none of its own: counted, answered by nothing and kept nowhere", NoOne, [
        "drop_is_dropped_and_a_stream_without_a_number_ends_the_circuit",
        "dropped_cells_show_at_once_and_those_of_a_closed_circuit_too",
    ];
    EXTENSION: "one under way on a circuit, in RELAY_EARLY, of which there are {weft-core/src/circuit/half.rs:MAX_RELAY_EARLY}; \
                {weft-core/src/controller/opening.rs:MAX_WAITING} extensions that wait for a connection", PreviousHop, [
        "extend_outside_relay_early_or_twice_ends_the_circuit",
        "extensions_that_wait_for_one_relay_do_not_keep_others_waiting_outside",
        "dead_addresses_do_not_keep_others_from_any_relay",
    ];
    EXTENDED: "one for each EXTEND2, from the last hop", Circuit, [
        "what_an_origin_did_not_ask_for_ends_the_circuit",
        "a_reply_changed_or_cut_anywhere_is_refused",
    ];
    LEG: "{weft-core/src/tunnel/leg.rs:MAX_LEGS} legs of a set; {weft-core/src/controller/tunnels.rs:MAX_TUNNELS} sets and tunnels", PreviousHop, [
        "tunnels::what_no_client_sends_closes_the_circuit_alone",
        "no_more_legs_join_than_may",
        "a_thousand_sets_of_one_client_leave_room_for_others",
    ];
    LINKED: "one for each CONFLUX_LINK", Circuit, [
        "an_origin_takes_the_answer_to_its_own_link_once",
    ];
    LINKED_ACK: "one for each CONFLUX_LINKED", Circuit, [
        "tunnels::what_no_client_sends_closes_the_circuit_alone",
    ];
    SWITCH: "numbers at most {weft-core/src/tunnel/reorder.rs:MAX_REORDER} ahead; as many messages that wait", Tunnel, [
        "tunnels::what_no_client_sends_closes_the_circuit_alone",
        "what_waits_for_a_gap_is_bounded_and_accounted",
    ];
    INTRODUCTION_POINT: "one on a circuit; {weft-core/src/controller/introduction.rs:MAX_INTRODUCTIONS} introduction circuits", PreviousHop, [
        "forged_and_unfit_establish_intros_end_their_circuit",
        "services_without_end_take_the_place_of_their_own_only",
    ];
    COOKIE: "one on a circuit; {weft-core/src/controller/rendezvous.rs:MAX_COOKIES} cookies", PreviousHop, [
        "cookies_without_end_take_the_place_of_their_own_only",
        "single_hop_clients_are_refused_as_rendezvous_if_configured",
    ];
    INTRODUCTION: "one on a circuit; {weft-core/src/controller/introduction.rs:MAX_INTRODUCE} bytes; the service's limit, or the \
                   consensus'; 256 cells in the queue of the service's circuit", Request, [
        "a_circuit_brings_one_introduce1_and_may_then_be_extended",
        "what_cannot_be_passed_on_is_refused_with_c_tor_s_status",
        "a_service_s_own_limit_goes_before_the_consensus",
        "a_service_that_has_closed_or_does_not_read_is_as_if_it_were_not_here",
    ];
    RENDEZVOUS: "one on a circuit, with a cookie that waits", Circuit, [
        "a_rendezvous_with_an_unknown_or_taken_cookie_ends_its_circuit",
    ];
    MACHINE: "one machine on a circuit; one answer each, in the circuit's queue; the consensus' `circpad_…` for its DROPs", Circuit, [
        "unknown_machines_are_refused_and_what_is_no_request_closes_the_circuit",
        "the_consensus_limits_padding_as_in_c_tor",
        "the_consensus_can_switch_padding_off_and_a_full_queue_gets_none",
    ];
    XOFF: "a state of the stream; at an origin, no more than what it has sent can cause", Circuit, [
        "each_kind_refuses_the_other_s_messages",
        "a_client_refuses_what_nothing_that_it_sent_can_have_caused",
        "signals_may_follow_a_far_end_s_own_end_but_no_data",
    ];
    XON: "as XOFF", Circuit, [
        "each_kind_refuses_the_other_s_messages",
        "a_client_refuses_what_nothing_that_it_sent_can_have_caused",
        "signals_may_follow_a_far_end_s_own_end_but_no_data",
    ];
    ASK: "one a second; one statement each {weft-core/src/extensions/abra/bins.rs:INTERVAL}", Circuit, [
        "another_version_and_a_second_ask_within_a_second_close_the_circuit",
        "a_client_that_does_not_read_gets_no_backlog_of_statements",
    ];
    WEIGHT: "{weft-core/src/manager/circuits/abra.rs:PER_SECOND} a second, {weft-core/src/manager/circuits/abra.rs:PER_INTERVAL} \
             in 5 s; more than {weft-core/src/manager/circuits/abra.rs:FLOOD} in 5 s close the circuit, as does one that was not asked for", Circuit, [
        "a_weight_that_was_not_asked_for_closes_the_circuit",
        "weights_that_come_too_often_are_dropped_and_a_flood_closes_the_circuit",
    ];
    TUNNEL: "one on a circuit; {weft-core/src/controller/tunnels.rs:MAX_TUNNELS} sets and tunnels", PreviousHop, [
        "mtor::what_no_client_sends_closes_the_circuit_alone",
        "a_thousand_tunnels_of_one_client_leave_room_for_others",
    ];
    TUNNEL_ANSWER: "one for each MULTIPATH or JOIN", Circuit, [
        "an_origin_takes_one_answer_to_what_it_asked",
        "an_answer_after_the_tunnel_has_closed_joins_nothing",
    ];
    JOIN: "one on a circuit, with the tunnel's secret; {weft-core/src/tunnel/leg.rs:MAX_LEGS} legs", Circuit, [
        "an_exit_answers_every_join_that_it_does_not_take_alike",
        "a_guess_tells_nothing_and_costs_its_circuit_alone",
        "no_more_legs_join_than_may",
    ];
    LEG_DROP: "one on a leg; a leg that drains has {weft-core/src/tunnel/legs.rs:STOPPED}", Circuit, [
        "a_client_that_lies_about_what_it_received_harms_its_leg_alone",
        "an_exit_that_lies_about_what_it_sent_harms_its_leg_alone",
        "a_leg_that_is_never_answered_closes_after_a_minute",
    ];
    SUBDATA: "windows of its leg, as DATA; numbers at most {weft-core/src/tunnel/reorder.rs:MAX_REORDER} ahead; what waits is in \
              MaxMemInQueues", Tunnel, [
        "a_number_too_far_ahead_closes_the_tunnel",
        "a_leg_that_sends_past_its_window_closes_alone",
        "messages_that_are_repeated_too_often_close_the_tunnel",
        "what_waits_behind_a_gap_is_accounted_and_freed",
    ];
    ACK: "{weft-core/src/tunnel/mod.rs:ACKS_AT_ONCE} at once, {weft-core/src/tunnel/mod.rs:ACKS_PER_SECOND} a second", Tunnel, [
        "acknowledgements_that_come_too_often_close_the_tunnel",
        "an_exit_is_not_made_to_send_again_what_one_number_names",
    ];
}
