//! padding
