//! The table of what directories are asked for and sent (dir-spec 4.2 to 4.6, 6.2): the path of each, and what bounds it. The
//! directory of a relay and the authority of a private network match on [`Resource`].

use weft_trust::{Limit, Payer, Role, Sender, Trust};

/// Makes the enum, the list of all resources and the answers for each from one table.
macro_rules! table {
    ($($(#[doc = $doc:literal])* $name:ident: $method:ident $rule:ident $path:literal, $sender:ident, $role:ident, $limit:ident;)*) => {
        /// The resource that a request names.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Resource {
            $(
                $(#[doc = $doc])*
                $name,
            )*
        }

        impl Resource {
            /// All of them.
            pub const ALL: &[Resource] = &[$(Resource::$name),*];

            /// The resource of a GET for a path, which has lost its `.z`, and the rest of the path.
            pub fn get(path: &str) -> Option<(Resource, &str)> {
                Self::of(Method::Get, path)
            }

            /// The resource of a POST to a path, and the rest of the path.
            pub fn post(path: &str) -> Option<(Resource, &str)> {
                Self::of(Method::Post, path)
            }

            fn of(method: Method, path: &str) -> Option<(Resource, &str)> {
                $(
                    if let (Method::$method, Some(rest)) = (method, Rule::$rule.rest(path, $path)) {
                        return Some((Resource::$name, rest));
                    }
                )*
                None
            }

            /// Method and path, or what paths begin with.
            pub const fn request(self) -> (&'static str, &'static str) {
                match self {
                    $(Resource::$name => (Method::$method.name(), $path),)*
                }
            }

            /// Who may send it, and what bounds it.
            pub const fn trust(self) -> Trust {
                match self {
                    $(Resource::$name => Trust::new(Sender::$sender, Role::$role, $limit),)*
                }
            }
        }
    };
}

table! {
    /// The file that web crawlers fetch first.
    Robots: Get Whole "/tor/robots.txt", Anybody, Directory, ANSWER;
    /// A consensus of either flavour, or a diff to it.
    Consensus: Get Begins "/tor/status-vote/current/consensus", Anybody, DirectoryOrAuthority, CONSENSUS;
    /// Microdescriptors by digest.
    Microdescriptors: Get Begins "/tor/micro/d/", Anybody, DirectoryOrAuthority, NAMED;
    /// Certificates of authorities.
    Certificates: Get Begins "/tor/keys/", Anybody, DirectoryOrAuthority, NAMED;
    /// Server descriptors.
    Descriptors: Get Begins "/tor/server/", Anybody, DirectoryOrAuthority, NAMED;
    /// Extra-info documents.
    ExtraInfo: Get Begins "/tor/extra/", Anybody, DirectoryOrAuthority, NAMED;
    /// The descriptor of an onion service.
    OnionDescriptor: Get Begins "/tor/hs/3/", Circuits, Directory, FETCHED;
    /// The page for people.
    FrontPage: Get Whole "/tor/", Anybody, DirectoryOrAuthority, PAGE;
    /// A descriptor of an onion service.
    OnionUpload: Post Begins "/tor/hs/", Circuits, Directory, PUBLISHED;
    /// Descriptors and extra-info documents of relays.
    RelayUpload: Post Whole "/tor/", Relays, Authority, POSTED;
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Method {
    Get,
    Post,
}

impl Method {
    const fn name(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Post => "POST",
        }
    }
}

enum Rule {
    Whole,
    Begins,
}

impl Rule {
    fn rest<'a>(&self, path: &'a str, known: &str) -> Option<&'a str> {
        let rest = path.strip_prefix(known);
        match self {
            Rule::Whole => rest.filter(|rest| rest.is_empty()),
            Rule::Begins => rest,
        }
    }
}

const ANSWER: Limit = Limit::new(
    "any request: one on a stream, {weft-dircache/src/request.rs:MAX_HEAD} bytes and {weft-dircache/src/server.rs:REQUEST_TIME}; \
     {weft-dircache/src/places.rs:MAX_STREAMS} streams at once; MaxMemInQueues / 16 for all that they hold",
    Payer::PreviousHop,
    &[
        "what_is_no_request_is_answered_with_its_error",
        "garbage_is_a_bad_request_and_silence_ends",
        "silent_streams_by_four_hops_do_not_keep_others_from_a_directory",
        "past_what_all_answers_may_hold_one_hop_is_refused_and_others_are_served",
    ],
);
const CONSENSUS: Limit = Limit::new(
    "as any request; {weft-dircache/src/request.rs:MAX_DIGESTS} older ones that the client has; read and compressed by \
     {weft-dircache/src/server.rs:CHUNK} bytes, {weft-dircache/src/server.rs:STALL} without progress",
    Payer::PreviousHop,
    &[
        "consensuses_that_a_client_has_are_read_and_bounded",
        "answers_that_nobody_reads_hold_what_is_being_sent_and_are_counted",
        "one_that_does_not_read_is_given_up",
    ],
);
const NAMED: Limit = Limit::new(
    "as a consensus; {weft-dircache/src/named.rs:MAX_NAMED} documents that a request names, \
     {weft-dircache/src/answer.rs:MAX_BODY} bytes of an answer of a relay's",
    Payer::PreviousHop,
    &[
        "a_request_names_so_many_documents_and_no_more",
        "lists_of_names_end_at_a_bound",
        "answers_that_nobody_reads_hold_what_is_being_sent_and_are_counted",
        "when_memory_is_short_the_heaviest_answers_end",
    ],
);
const FETCHED: Limit = Limit::new(
    "as any request; from the first hop refused",
    Payer::PreviousHop,
    &[
        "clients_of_the_first_hop_neither_publish_nor_fetch",
        "a_fetch_counts_when_it_ends",
    ],
);
const PAGE: Limit = Limit::new(
    "as a consensus; the operator's own file",
    Payer::PreviousHop,
    &[
        "the_front_page_is_shown_to_people",
        "the_page_is_what_the_file_has_unless_it_is_not_there_or_huge",
    ],
);
const PUBLISHED: Limit = Limit::new(
    "the consensus' `HSV3MaxDescriptorSize` (50,000 bytes), {weft-dircache/src/upload.rs:UPLOAD_TIME}; a fifth of MaxMemInQueues or \
     MaxHSDirCacheBytes for all; from the first hop refused; signed by the key that it is for",
    Payer::Request,
    &[
        "clients_of_the_first_hop_neither_publish_nor_fetch",
        "one_byte_below_the_limit_is_taken_and_the_limit_is_not",
        "an_upload_that_stalls_is_given_up_and_gives_way",
        "uploads_that_stall_give_way_to_those_of_other_hops",
        "memory_is_the_sum_of_what_is_kept_and_bounded",
        "what_another_key_signed_is_refused",
        "fuzz/hs_uploads",
    ],
);
const POSTED: Limit = Limit::new(
    "as any request; {weft-dircache/src/authority.rs:MAX_BODY} bytes, {weft-dircache/src/upload.rs:UPLOAD_TIME}; \
     {weft-authority/src/authority.rs:MAX_RELAYS} relays: those that are known stay, unless another claims their port; signed by both identities",
    Payer::PreviousHop,
    &[
        "forged_old_future_foreign_and_huge_uploads_are_refused_with_a_reason",
        "in_a_full_network_newcomers_are_refused_and_those_that_are_known_stay",
        "what_is_posted_to_an_authority_is_bounded_and_answered",
        "any_upload_is_answered_in_one_line",
        "fuzz/authority_posts",
    ],
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_is_for_one_resource() {
        for resource in Resource::ALL {
            let (method, path) = resource.request();
            let found = match method {
                "GET" => Resource::get(path),
                _ => Resource::post(path),
            };
            assert_eq!(found, Some((*resource, "")), "{path}");
        }
        assert_eq!(
            Resource::get("/tor/keys/all"),
            Some((Resource::Certificates, "all"))
        );
        assert_eq!(Resource::get("/tor/robots.txt2"), None);
        assert_eq!(Resource::post("/tor/keys/all"), None);
    }
}
