//! Text in: the lines of a torrc ([`lexer`]) and of the files that it includes (`include`), numbers and
//! addresses, and the lines that several subjects of options share, such as those of ports.

pub(crate) mod access;
pub(crate) mod address;
pub(crate) mod dir_authority;
pub(crate) mod fallback_dir;
pub(crate) mod include;
pub mod lexer;
pub(crate) mod log_line;
pub mod log_options;
pub(crate) mod number;
pub(crate) mod ports;
pub(crate) mod virtual_networks;
