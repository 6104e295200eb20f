//! Description of one option: name, type, default, range, help, and Weft's support (C tor:
//! `option_vars_` of src/app/config/config.c and the `…_options.inc` files). The options themselves
//! are in [`table`](crate::table).

use weft_trust::{Limit, Payer, Role, Sender, Trust};

/// The most `ConnectionThreads`: the rings between them grow with the square of their number.
pub const MAX_CONNECTION_THREADS: u32 = 256;

/// Type of a value, and its syntax.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// A file or directory.
    Path,
    /// A whole number.
    Int,
    /// A whole number from 0.
    PosInt,
    /// A whole number from 0 of 64 bits.
    U64,
    /// An amount of information, in bytes.
    Memory,
    /// A length of time, in seconds.
    Seconds,
    /// A length of time, in milliseconds.
    Millis,
    /// A length of time, in seconds; text after a comma is ignored, as it has been since download
    /// schedules became exponential.
    FirstSeconds,
    /// A decimal fraction.
    Double,
    /// 0 or 1.
    Bool,
    /// 0, 1 or auto.
    AutoBool,
    /// A whole number from 0 to [`MAX_CONNECTION_THREADS`], or auto.
    Count,
    /// Words separated by commas.
    Csv,
    /// A set of relays; Weft keeps it as text.
    RouterSet,
    /// Several lines of the same name.
    Lines,
    /// Lines that are kept, with others, in the list of this name.
    LinesOf(&'static str),
    /// A list that is set by other names only.
    LinesVirtual,
    /// An option that does nothing any more.
    Obsolete,
}

impl Kind {
    /// The unit of numbers of this kind, as log lines and the book write it after a number.
    pub(crate) const fn unit(self) -> &'static str {
        match self {
            Self::Memory => " bytes",
            Self::Seconds | Self::FirstSeconds => " seconds",
            Self::Millis => " ms",
            _ => "",
        }
    }
}

/// The effect of an option on those who are not the operator: the first word of its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Opens a port, takes a role, or trusts somebody.
    Opens,
    /// Refuses or bounds what others send or ask for.
    Protects,
    /// Names a file, a program, an address or a secret that Weft uses.
    Names,
    /// Changes what others read of the node.
    Publishes,
    /// A number or a choice that changes how the node works, and none of the above.
    Tunes,
    /// A list that other options fill: nobody sets it.
    List,
    /// Nothing, in C tor either.
    Unused,
}

impl Effect {
    /// All of them.
    pub const ALL: [Effect; 7] = [
        Self::Opens,
        Self::Protects,
        Self::Names,
        Self::Publishes,
        Self::Tunes,
        Self::List,
        Self::Unused,
    ];

    /// The bound of options with this effect.
    #[must_use]
    pub const fn limit(self) -> Limit {
        let (bound, tests): (_, &'static [&'static str]) = match self {
            Self::Opens => (
                "ports are on loopback unless an address is named; what comes in there has its own row",
                &[
                    "ports_are_local_unless_they_name_an_address",
                    "a_metrics_port_is_local_unless_it_names_an_address",
                    "a_control_port_is_guarded",
                    "an_exit_has_the_policy_that_it_asks_for",
                    "it_is_refused_outside_of_private_networks_and_without_what_it_needs",
                ],
            ),
            Self::Protects => (
                "obeyed, or the configuration is refused",
                &[
                    "what_would_be_unsafe_to_ignore_is_refused_with_its_line_and_a_remedy",
                    "every_option_that_is_not_supported_has_a_class_and_a_reason",
                ],
            ),
            Self::Names => (
                "regular files of a bounded length, read and written by one module; a secret is not shown",
                &[
                    "reading_takes_regular_files_of_bounded_length_only",
                    "files_are_read_and_written_by_one_module",
                    "secrets_are_not_shown_and_have_bounds",
                ],
            ),
            Self::Publishes => (
                "what dir-spec has room for; statistics are rounded and noised",
                &[
                    "the_descriptor_has_what_the_operator_set",
                    "statistics_are_those_of_c_tor_and_of_relays_alone",
                ],
            ),
            Self::Tunes => (
                "its range; a value outside is refused, or the nearest one is used",
                &[
                    "every_default_can_be_read_and_lists_are_lists",
                    "a_limit_is_what_torrc_sets_and_nonsense_is_refused_in_c_tor_s_words",
                    "settings::everything_wrong_is_reported_at_once",
                ],
            ),
            Self::List => (
                "filled by the options of its name",
                &["port_lines_of_both_names_share_a_list"],
            ),
            Self::Unused => (
                "a warning",
                &["an_option_that_weft_lacks_is_reported_once_and_what_is_lost_comes_first"],
            ),
        };
        Limit::new(bound, Payer::Start, tests)
    }
}

/// Support of an option by Weft.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// Works as in C tor.
    Full,
    /// Nothing.
    None {
        /// Harm to an operator who sets the option, which is ignored.
        harm: Harm,
        /// Values, as they are dumped, that ask for nothing that Weft does not do: no message.
        fine: &'static [&'static str],
        /// The consequence of ignoring the option.
        why: &'static str,
    },
}

/// Harm of ignoring an option, to the operator who sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// Safety rests on it: the configuration is refused.
    Unsafe,
    /// Something that was asked for does not happen: a warning that names it, before all others.
    Lost,
    /// Nothing that anybody would miss: all such options share one notice.
    Harmless,
}

/// The values that a number may have, in the smallest unit of its kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Range {
    /// Any.
    All,
    /// Whole numbers from `least` to `most`; with `or_zero`, 0 too, which then means "not set".
    Whole {
        /// The least.
        least: i64,
        /// The most.
        most: i64,
        /// True if 0 is allowed, too.
        or_zero: bool,
    },
    /// Fractions from `least` to `most`; with `or_negative`, those below 0 too, which then mean
    /// "not set".
    Fraction {
        /// The least.
        least: f64,
        /// The most.
        most: f64,
        /// True if values below 0 are allowed, too.
        or_negative: bool,
    },
}

/// Handling of a value that is out of its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    /// The configuration is refused.
    Refused,
    /// The nearest value in the range is used, as C tor does.
    Clamped,
}

/// One option.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Known {
    /// The name, as it is dumped.
    pub name: &'static str,
    /// Type of its values.
    pub kind: Kind,
    /// Its effect on others.
    pub effect: Effect,
    /// The value that it has unless set, as it would be written; `None`: nothing, or zero.
    pub default: Option<&'static str>,
    /// Support by Weft.
    pub support: Support,
    /// The values that it may have, besides what its kind excludes.
    pub range: Range,
    /// Handling of a value outside of `range`.
    pub outside: Outside,
    /// Help text, in one line of Markdown.
    pub help: &'static str,
    /// True if it cannot change while the node runs.
    pub immutable: bool,
    /// True if a change takes effect only after a restart, although C tor follows it at once.
    pub needs_restart: bool,
    /// True if it is omitted from dumps.
    pub hidden: bool,
    /// True if it is Weft's own: C tor has no such option.
    pub own: bool,
    /// True if it belongs to the process: one value for all identities of `weft -f A -f B`.
    pub of_process: bool,
    /// True if it may only be changed in private networks.
    pub testing_only: bool,
    /// The default in private networks, where it is another (src/app/config/testnet.inc).
    pub in_testing: Option<&'static str>,
    /// Why it should not be used any more, although it works (`option_deprecation_notes_`).
    pub deprecated: Option<&'static str>,
}

impl Known {
    /// An option that Weft honours; the methods below make it another.
    pub(crate) const fn new(
        name: &'static str,
        kind: Kind,
        default: Option<&'static str>,
        effect: Effect,
        help: &'static str,
    ) -> Self {
        let support = match kind {
            Kind::Obsolete => Support::None {
                harm: Harm::Harmless,
                fine: &[],
                why: "it does nothing in C tor either",
            },
            _ => Support::Full,
        };
        Self {
            name,
            kind,
            effect,
            default,
            support,
            range: Range::All,
            outside: Outside::Refused,
            help,
            immutable: false,
            needs_restart: false,
            hidden: false,
            own: false,
            of_process: false,
            testing_only: false,
            in_testing: None,
            deprecated: None,
        }
    }

    /// Not supported, and refused unless its value is one of `fine`.
    pub(crate) const fn refused(self, fine: &'static [&'static str], why: &'static str) -> Self {
        self.unsupported(Harm::Unsafe, fine, why)
    }

    /// Not supported, with a warning unless its value is one of `fine`.
    pub(crate) const fn lost(self, fine: &'static [&'static str], why: &'static str) -> Self {
        self.unsupported(Harm::Lost, fine, why)
    }

    /// Not supported, and nobody misses it.
    pub(crate) const fn harmless(self, why: &'static str) -> Self {
        self.unsupported(Harm::Harmless, &[], why)
    }

    const fn unsupported(
        mut self,
        harm: Harm,
        fine: &'static [&'static str],
        why: &'static str,
    ) -> Self {
        self.support = Support::None { harm, fine, why };
        self
    }

    /// Refused outside of these whole numbers.
    pub(crate) const fn whole(mut self, least: i64, most: i64) -> Self {
        self.range = Range::Whole {
            least,
            most,
            or_zero: false,
        };
        self
    }

    /// Refused below this number.
    pub(crate) const fn at_least(self, least: i64) -> Self {
        self.whole(least, i64::MAX)
    }

    /// Refused above this number.
    pub(crate) const fn at_most(self, most: i64) -> Self {
        self.whole(i64::MIN, most)
    }

    /// Refused outside of these fractions.
    pub(crate) const fn fraction(mut self, least: f64, most: f64) -> Self {
        self.range = Range::Fraction {
            least,
            most,
            or_negative: false,
        };
        self
    }

    /// 0 is in the range, too.
    pub(crate) const fn or_zero(mut self) -> Self {
        if let Range::Whole { or_zero, .. } = &mut self.range {
            *or_zero = true;
        }
        self
    }

    /// Allows values below 0, too.
    pub(crate) const fn or_negative(mut self) -> Self {
        if let Range::Fraction { or_negative, .. } = &mut self.range {
            *or_negative = true;
        }
        self
    }

    /// Outside of the range, the nearest value is used.
    pub(crate) const fn clamped(mut self) -> Self {
        self.outside = Outside::Clamped;
        self
    }

    /// A reload that changes it is refused.
    pub(crate) const fn immutable(mut self) -> Self {
        self.immutable = true;
        self
    }

    /// A change is only followed after a restart.
    pub(crate) const fn needs_restart(mut self) -> Self {
        self.needs_restart = true;
        self
    }

    /// Left out of dumps.
    pub(crate) const fn hidden(mut self) -> Self {
        self.hidden = true;
        self
    }

    /// C tor has no such option.
    pub(crate) const fn own(mut self) -> Self {
        self.own = true;
        self
    }

    /// One value for all identities of the process.
    pub(crate) const fn of_process(mut self) -> Self {
        self.of_process = true;
        self
    }

    /// Only private networks may change it.
    pub(crate) const fn testing_only(mut self) -> Self {
        self.testing_only = true;
        self
    }

    /// The default in private networks.
    pub(crate) const fn in_testing(mut self, default: &'static str) -> Self {
        self.in_testing = Some(default);
        self
    }

    /// It works, but should not be used any more.
    pub(crate) const fn deprecated(mut self, why: &'static str) -> Self {
        self.deprecated = Some(why);
        self
    }

    /// Returns true if further lines add to earlier ones instead of replacing them.
    #[must_use]
    pub const fn is_list(&self) -> bool {
        matches!(
            self.kind,
            Kind::Lines | Kind::LinesOf(_) | Kind::LinesVirtual
        )
    }

    /// The party that may set it, and its limit.
    #[must_use]
    pub const fn trust(&self) -> Trust {
        let (sender, role) = match (self.effect, self.immutable) {
            (Effect::List, _) => (Sender::Nobody, Role::Nowhere),
            (_, true) => (Sender::Owner, Role::Torrc),
            (_, false) => (Sender::OwnerOrController, Role::TorrcOrSetconf),
        };
        Trust::new(sender, role, self.effect.limit())
    }

    /// Returns true if an operator can set it by this name.
    #[must_use]
    pub const fn is_settable(&self) -> bool {
        !matches!(self.kind, Kind::LinesVirtual | Kind::Obsolete)
    }
}
