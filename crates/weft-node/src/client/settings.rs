//! All that torrc says about a client.

use weft_dir::client::ClientOptions;
use weft_path::{BuildTimesOptions, PathOptions};

use super::config::ClientConfig;

/// Settings of the client thread.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// Of circuits and streams.
    pub config: ClientConfig,
    /// Of paths.
    pub paths: PathOptions,
    /// Of the time that building takes.
    pub times: BuildTimesOptions,
    /// Of the directory.
    pub directory: ClientOptions,
    /// A relay in the same process tells of its own start; the client's is not logged then.
    pub quiet_start: bool,
}
