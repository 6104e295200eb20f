//! dos
