//! The settings of a listener for applications.

use weft_config::options::AppOptions;
use weft_config::options::{AppPort, AppService, StreamFlags};

use crate::destination::DestinationRules;

/// The settings of one listener, shared by its connections.
#[derive(Clone, Debug)]
pub struct AppRules {
    /// The number of the listener.
    pub listener: u32,
    /// Its protocol.
    pub service: AppService,
    /// Its flags.
    pub flags: StreamFlags,
    /// `SafeSocks`.
    pub safe_socks: bool,
    /// `TestSocks`.
    pub test_socks: bool,
    /// `ClientDNSRejectInternalAddresses`: private addresses in the answers of exits are dropped.
    pub reject_internal_answers: bool,
    /// The destinations that are refused; `None`: the caller runs
    /// [`destination::check`](crate::destination::check) itself.
    pub destination: Option<DestinationRules>,
}

impl AppRules {
    /// The rules of one port.
    #[must_use]
    pub fn new(listener: u32, port: &AppPort, options: &AppOptions) -> Self {
        Self {
            listener,
            service: port.service,
            flags: port.flags,
            safe_socks: options.safe_socks,
            test_socks: options.test_socks,
            reject_internal_answers: options.reject_internal_answers,
            destination: Some(DestinationRules::before_maps(options)),
        }
    }
}
