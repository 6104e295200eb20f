//! torrc
