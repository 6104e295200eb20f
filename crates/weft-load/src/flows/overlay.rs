//! Users of the traffic models on the hosts of an [`Overlay`], and their server.

use std::time::Duration;

use anyhow::Result;
use weft_model::traffic::{Model, Record};
use weft_testnet::overlay::Overlay;
use weft_testnet::stop::Stop;

use super::clients::{FlowClient, FlowSettings, Site};
use super::drive::run_on;
use super::server::FlowServer;

/// A user, and the host that it is on.
#[derive(Clone, Debug)]
pub struct User {
    /// A host of a client.
    pub host: String,
    /// Its model's name in records.
    pub model_name: String,
    /// Its behaviour.
    pub model: Model,
}

/// Starts the server of the users on its host.
///
/// # Errors
///
/// The system refuses.
pub fn serve(overlay: &Overlay) -> Result<FlowServer> {
    let address = overlay.server();
    overlay.server_host().enter(|| FlowServer::start(address))?
}

/// Lets these users do what their models do for so long, with the server that [`serve`] has started. The records are in the
/// order of the users.
///
/// # Errors
///
/// There are no users, a host is no client's, or the system refuses.
pub fn drive(
    overlay: &Overlay,
    users: &[User],
    duration: Duration,
    seed: u64,
    stop: &Stop,
) -> Result<Vec<Record>> {
    let sites = users.iter().map(|user| {
        let client = FlowClient {
            name: user.host.clone(),
            model_name: user.model_name.clone(),
            model: user.model.clone(),
            start: Duration::ZERO,
            proxy: Some(overlay.socks()),
            servers: vec![overlay.server()],
        };
        Ok(Site {
            host: Some(overlay.testbed().host(&user.host)?.clone()),
            clients: vec![client],
        })
    });
    let sites: Vec<Site> = sites.collect::<Result<_>>()?;
    let settings = FlowSettings {
        duration,
        seed,
        threads: 1,
    };
    run_on(&sites, settings, stop)
}
