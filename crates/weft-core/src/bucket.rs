//! bucket
