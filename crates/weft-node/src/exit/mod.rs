//! The I/O of an exit: name servers ([`dns`]), and what its failed connections mean ([`connect_errors`]).
//! [`weft_exit`] decides.

pub(crate) mod connect_errors;
pub(crate) mod dns;
