//! The rows of the table: a file for each subject.

pub(crate) mod applications;
pub(crate) mod authority;
pub(crate) mod bandwidth;
pub(crate) mod bridges;
pub(crate) mod circuits;
pub(crate) mod control;
pub(crate) mod directory;
pub(crate) mod dos;
pub(crate) mod exit;
pub(crate) mod files;
pub(crate) mod identity;
pub(crate) mod lifetimes;
pub(crate) mod logs;
pub(crate) mod network;
pub(crate) mod obsolete;
pub(crate) mod onion_services;
pub(crate) mod paths;
pub(crate) mod private_network;
pub(crate) mod process;
pub(crate) mod resources;
pub(crate) mod scheduling;
