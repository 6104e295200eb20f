//! Syntax of one subject's rows: the macro `options!`.
//!
//! A row is the complete description of an option:
//!
//! ```text
//! /// How often KIST chooses; 0: as the consensus has it.
//! tunes KISTSchedRunInterval: Millis = "0 msec", at_most(100);
//! ```
//!
//! that is, its help, [`Effect`](crate::table::known::Effect), name, [`Kind`](crate::table::known::Kind) and default, and what else
//! [`Known`](crate::table::known::Known) has methods for: range, `immutable`, `hidden`, not supported and so on.

/// The type of a [`Key`](crate::table::key::Key) for a kind of option.
macro_rules! value_of {
    (Text) => { String };
    (Path) => { String };
    (RouterSet) => { String };
    (Int) => { i64 };
    (PosInt) => { i64 };
    (Memory) => { i64 };
    (U64) => { u64 };
    (Seconds) => { std::time::Duration };
    (Millis) => { std::time::Duration };
    (FirstSeconds) => { std::time::Duration };
    (Double) => { f64 };
    (Bool) => { bool };
    (AutoBool) => { Option<bool> };
    (Count) => { Option<i64> };
    (Csv) => { Vec<String> };
    (Lines) => { Vec<crate::table::value::ListLine> };
    (LinesVirtual) => { Vec<crate::table::value::ListLine> };
    (LinesOf) => { () };
    (Obsolete) => { () };
}

/// One subject's rows: makes `ROWS`, and a key of each in `keys`. `from` is the place of the first in
/// the whole table.
macro_rules! options {
    (
        from $first:expr;
        $(
            $(#[doc = $help:literal])*
            $effect:ident $name:ident: $kind:ident $(($list:ident))? $(= $default:literal)?
                $(, $attribute:ident $(($($argument:expr),*))?)*;
        )*
    ) => {
        const FIRST: usize = $first;
        /// The place behind the last.
        pub(crate) const END: usize = FIRST + ROWS.len();
        /// The options of this subject.
        pub(crate) const ROWS: &[crate::table::known::Known] = &[$(
            crate::table::known::Known::new(
                stringify!($name),
                crate::table::known::Kind::$kind $((keys::$list.name()))?,
                options!(@default $($default)?),
                options!(@effect $effect),
                concat!("", $($help),*),
            )
            $(.$attribute($($($argument),*)?))*
        ),*];

        #[allow(non_camel_case_types, clippy::enum_variant_names)]
        enum Place { $($name),* }

        #[allow(non_upper_case_globals, missing_docs)] // obsolete options have no help
        pub(crate) mod keys {
            //! The names of these options.
            use super::{FIRST, Place};
            use crate::table::key::Key;
            $(
                $(#[doc = $help])*
                pub const $name: Key<value_of!($kind)> =
                    Key::new(FIRST + Place::$name as usize, stringify!($name));
            )*
        }
    };
    (@effect opens) => { crate::table::known::Effect::Opens };
    (@effect protects) => { crate::table::known::Effect::Protects };
    (@effect names) => { crate::table::known::Effect::Names };
    (@effect publishes) => { crate::table::known::Effect::Publishes };
    (@effect tunes) => { crate::table::known::Effect::Tunes };
    (@effect list) => { crate::table::known::Effect::List };
    (@effect unused) => { crate::table::known::Effect::Unused };
    (@default) => { None };
    (@default $default:literal) => { Some($default) };
}
