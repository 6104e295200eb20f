//! Synthetic networks.
