//! The table of files that a node reads again: the name of each, who writes it, and what bounds it.

use weft_trust::{Limit, Payer, inputs};

#[rustfmt::skip]
inputs! {
/// A file of a node's directories, or a folder of such files.
DataFile {
    RsaIdentity           "secret_id_key":                           Keys,  Files,       KEY;
    MasterSecret          "ed25519_master_id_secret_key":            Keys,  Files,       KEY;
    MasterEncrypted       "ed25519_master_id_secret_key_encrypted":  Keys,  Files,       BOX;
    MasterPublic          "ed25519_master_id_public_key":            Keys,  Files,       KEY;
    SigningSecret         "ed25519_signing_secret_key":              Keys,  Files,       KEY;
    SigningCert           "ed25519_signing_cert":                    Keys,  Files,       KEY;
    Ntor                  "secret_onion_key_ntor":                   Keys,  Files,       KEY;
    NtorOld               "secret_onion_key_ntor.old":               Keys,  Files,       KEY;
    Tap                   "secret_onion_key":                        Keys,  Files,       KEY;
    TapOld                "secret_onion_key.old":                    Keys,  Files,       KEY;
    Moved                 "moved":                                   Keys,  Files,       MARK;
    AuthorityIdentity     "authority_identity_key":                  Keys,  Files,       AUTHORITY;
    AuthoritySigning      "authority_signing_key":                   Keys,  Files,       AUTHORITY;
    AuthorityCertificate  "authority_certificate":                   Keys,  Files,       AUTHORITY;
    State                 "state":                                   Data,  Files,       STATE;
    Lock                  "lock":                                    Data,  Files,       LOCK;
    Fingerprint           "fingerprint":                             Data,  Files,       FINGERPRINT;
    FingerprintEd25519    "fingerprint-ed25519":                     Data,  Files,       FINGERPRINT;
    HashedFingerprint     "hashed-fingerprint":                      Data,  Files,       FINGERPRINT;
    // weft-config has the names of both cookies: they are defaults of options.
    ControlCookie         "control_auth_cookie":                     Data,  Node,        COOKIE;
    ExtOrCookie           "extended_orport_auth_cookie":             Data,  Node,        COOKIE;
    Statistics            "stats":                                   Data,  Files,       STATISTICS;
    Consensus             "cached-microdesc-consensus":              Cache, Directories, SIGNED;
    ConsensusNs           "cached-consensus":                        Cache, Directories, SIGNED;
    Certificates          "cached-certs":                            Cache, Directories, SIGNED;
    Microdescriptors      "cached-microdescs":                       Cache, Directories, DIGESTED;
    MicrodescriptorsNew   "cached-microdescs.new":                   Cache, Directories, DIGESTED;
    Descriptors           "cached-descriptors":                      Cache, Directories, NAMED;
    ExtraInfo             "cached-extrainfo":                        Cache, Directories, NAMED;
    BridgeDescriptors     "cached-bridge-descriptors":               Cache, Directories, BRIDGES;
    Diffs                 "diff-cache":                              Cache, Directories, DIFFS;
}
}

const KEY: Limit = Limit::new(
    "{weft-datadir/src/keys/format.rs:MAX_LEN} bytes; a regular file in a directory of this user alone; keys belong together; never \
     overwritten where damaged",
    Payer::Start,
    &[
        "every_damage_is_named_and_nothing_is_overwritten",
        "a_first_start_makes_every_file_private",
        "wide_permissions_are_narrowed",
        "reading_takes_regular_files_of_bounded_length_only",
        "fuzz/key_files",
    ],
);
const BOX: Limit = Limit::new(
    "as other keys; what opening it costs has a bound",
    Payer::Start,
    &[
        "a_box_that_asks_for_hours_of_work_is_refused",
        "any_changed_byte_is_noticed",
        "an_encrypted_master_key_is_explained",
    ],
);
const MARK: Limit = Limit::new(
    "{weft-datadir/src/backup.rs:MAX_MARK} bytes; while it is there the relay does not start",
    Payer::Start,
    &["a_relay_that_was_moved_does_not_start_until_it_is_brought_back"],
);
const AUTHORITY: Limit = Limit::new(
    "{weft-authority/src/keys.rs:MAX_FILE} bytes; keys and certificate belong together; never overwritten",
    Payer::Start,
    &[
        "keys_are_read_as_they_were_written_and_never_overwritten",
        "an_authority_without_a_valid_certificate_does_not_start",
    ],
);
const STATE: Limit = Limit::new(
    "{weft-datadir/src/state.rs:MAX_LEN} bytes; each line is read by its owner, and damaged ones teach nothing",
    Payer::File,
    &[
        "a_damaged_file_is_moved_aside_whole",
        "damaged_lines_restore_the_defaults_of_their_kind_alone",
        "fuzz/path_state",
    ],
);
const LOCK: Limit = Limit::new(
    "not read; one process holds it",
    Payer::Start,
    &[
        "the_second_is_refused_and_the_first_can_give_it_back",
        "a_link_is_not_followed_and_nothing_is_truncated",
    ],
);
const FINGERPRINT: Limit = Limit::new(
    "{weft-datadir/src/keys/format.rs:MAX_LEN} bytes, compared with what it should have, and written if it differs",
    Payer::File,
    &[
        "a_first_start_makes_every_file_private",
        "a_bridge_has_a_file_by_which_it_may_be_spoken_of",
    ],
);
const COOKIE: Limit = Limit::new(
    "never read: written at each start with new random bytes, for this user, and for its group where torrc has it",
    Payer::NoOne,
    &[
        "the_cookie_is_for_its_owner_alone_unless_torrc_allows_the_group",
        "a_cookie_authenticates_as_itself_or_by_challenge",
        "the_cookie_s_file_is_as_the_specification_has_it",
    ],
);
const STATISTICS: Limit = Limit::new(
    "{weft-counts/src/extrainfo/file.rs:MOST} bytes of each file, of which a descriptor gets its own lines alone, for 25 hours",
    Payer::File,
    &[
        "nothing_but_a_files_own_lines_is_published",
        "a_file_is_published_for_twenty_five_hours",
        "any_text_is_a_file_or_none",
        "fuzz/statistics_files",
    ],
);
const NAMED: Limit = Limit::new(
    "a document that is cut off or too long is left out, and one that no consensus names goes; served by digest alone",
    Payer::File,
    &[
        "what_is_cut_off_or_too_long_is_left_out",
        "what_is_old_and_not_listed_goes_and_the_files_are_written_anew",
    ],
);
const BRIDGES: Limit = Limit::new(
    "{weft-dir/src/cache.rs:MAX_FILE} bytes, {weft-dir/src/client/bridge.rs:MOST_KEPT} descriptors, checked as if they had just \
     been fetched",
    Payer::File,
    &[
        "what_was_kept_is_read_again_but_for_what_is_wrong_or_old",
        "what_nobody_signed_is_no_descriptor_nor_what_is_of_other_days",
    ],
);
const SIGNED: Limit = Limit::new(
    "{weft-dir/src/cache.rs:MAX_FILE} bytes; signatures and times are checked as if it had just been fetched",
    Payer::File,
    &[
        "an_old_consensus_from_the_cache_is_not_used_to_build_circuits",
        "certificates_that_ended_or_were_forged_are_not_kept",
        "bytes_that_are_not_text_are_an_error_that_names_the_file",
        "fuzz/documents",
    ],
);
const DIGESTED: Limit = Limit::new(
    "{weft-dir/src/cache.rs:MAX_FILE} bytes; a document counts by its digest, which a consensus names",
    Payer::File,
    &[
        "a_file_of_garbage_is_an_error_or_nothing",
        "what_no_consensus_lists_for_a_week_is_let_go",
        "fuzz/microdescs",
    ],
);
const DIFFS: Limit = Limit::new(
    "number and age of the consensuses that it holds; what is damaged is removed and made again",
    Payer::File,
    &[
        "number_and_age_of_older_consensuses_are_bounded",
        "what_was_damaged_or_is_none_of_ours_is_removed_and_made_again",
    ],
);
