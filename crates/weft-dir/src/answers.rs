//! The table of what directories answer: what bounds each answer, and what it is checked against. Each purpose of a request names
//! the answers to it, so that a new one does not compile without a row.

use weft_trust::{Limit, Payer, inputs};

#[rustfmt::skip]
inputs! {
/// Answers of a directory.
Answer {
    Consensus        "consensus":                 Fetch, Directory, CONSENSUS;
    Certificates     "authority certificates":    Fetch, Directory, CERTIFICATES;
    Microdescriptors "microdescriptors":          Fetch, Directory, DIGESTED;
    Descriptors      "descriptors":               Fetch, Directory, NAMED;
    ExtraInfo        "extra-info documents":      Fetch, Directory, NAMED;
    BridgeDescriptor "descriptor of a bridge":    Fetch, Directory, BRIDGE;
    Uploaded         "answer to an upload":       Fetch, Directory, UPLOADED;
    OwnDescriptor    "own descriptor":            Fetch, Directory, HELD;
}
}

const CONSENSUS: Limit = Limit::new(
    "{weft-dir/src/http/mod.rs:MAX_HEAD} bytes of a head, {weft-dir/src/http/mod.rs:MAX_BODY} of a body, \
     {weft-dir/src/http/mod.rs:MAX_DECOMPRESSED} decompressed; {weft-dir/src/http/mod.rs:TOTAL} for all of it. Signatures of more than \
     half of the authorities, times and flavour; a diff by the digest that it ends in. Certificates are fetched for it \
     {weft-dir/src/fetch/answers.rs:MAX_CERT_FETCHES} times",
    Payer::Directory,
    &[
        "too_much_of_anything_is_refused_by_name",
        "a_silent_directory_is_given_up",
        "an_older_or_forged_consensus_does_not_replace_the_one_in_use",
        "a_consensus_signed_with_keys_that_nobody_has_does_not_block_the_next",
        "a_diff_that_does_not_apply_is_one_warning_and_the_whole_is_asked_for",
        "bad_consensuses_are_reported_and_cost_nothing_but_time",
        "fuzz/documents",
        "fuzz/consensus_diffs",
    ],
);
const CERTIFICATES: Limit = Limit::new(
    "as a consensus; {weft-dir/src/certs.rs:MAX_CERTS_PER_AUTHORITY} for each authority; signed by its identity key",
    Payer::Directory,
    &[
        "too_much_of_anything_is_refused_by_name",
        "certificates_that_ended_or_were_forged_are_not_kept",
        "fuzz/documents",
    ],
);
const DIGESTED: Limit = Limit::new(
    "as a consensus; {weft-dir/src/microdesc/mod.rs:MAX_LENGTH} bytes of each; those alone that were asked for, by their digests",
    Payer::Directory,
    &[
        "microdescriptors_that_nobody_asked_for_are_refused_and_few_are_not_enough",
        "what_is_too_long_is_left_out_and_the_next_is_found",
        "a_directory_that_keeps_everything_to_itself_is_followed_by_another",
        "fuzz/microdescs",
    ],
);
const NAMED: Limit = Limit::new(
    "as a consensus; {weft-dir/src/descriptor/mod.rs:MAX_ROUTER_DESCRIPTOR} and {weft-dir/src/descriptor/mod.rs:MAX_EXTRA_INFO} bytes of \
     each; those alone that were asked for, by their digests",
    Payer::Directory,
    &[
        "too_much_of_anything_is_refused_by_name",
        "what_is_cut_off_or_too_long_is_left_out",
    ],
);
const BRIDGE: Limit = Limit::new(
    "{weft-dir/src/descriptor/mod.rs:MAX_ROUTER_DESCRIPTOR} bytes; signed by the bridge that was asked, and of these days",
    Payer::Directory,
    &["what_nobody_signed_is_no_descriptor_nor_what_is_of_other_days"],
);
const UPLOADED: Limit = Limit::new(
    "as a consensus; its status and one header are read. Time and address are believed of authorities alone",
    Payer::Directory,
    &[
        "an_upload_that_failed_is_repeated_and_a_refusal_is_not",
        "a_directory_with_another_time_is_reported_once",
    ],
);
const HELD: Limit = Limit::new(
    "as a consensus; a descriptor with this relay's own signature alone",
    Payer::Directory,
    &["only_another_descriptor_of_ours_that_is_not_older_overtakes"],
);
