//! Where users are, and what is up for them.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;
use weft_load::flows::overlay::serve;
use weft_load::flows::{FlowClient, FlowServer, Site};
use weft_testnet::net::{self, Host};
use weft_testnet::network::Program;
use weft_testnet::overlay::{Cast, Overlay};
use weft_testnet::stop::Stop;
use weft_testnet::up::{Kind, Plan, Up};

use super::mix::Users;
use super::options::Options;
use super::way::Way;

/// Servers and networks that run. Dropping it ends them.
pub(super) enum Place {
    Loopback(Box<Up>, FlowServer),
    /// The server ends before the network.
    Testbed(FlowServer, Box<Overlay>),
    Server(FlowServer, Option<SocketAddr>),
}

/// Where a user is, and its SOCKS port.
struct Seat {
    host: Option<Host>,
    proxy: Option<SocketAddr>,
}

impl Place {
    /// Starts it.
    ///
    /// # Errors
    ///
    /// A program or a privilege is missing, or something does not start in time.
    pub(super) fn start(options: &Options, stop: &Stop) -> Result<Place> {
        let server = || FlowServer::start(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        Ok(match &options.way {
            &Way::Loopback {
                kind,
                relays,
                exits,
                clients,
            } => {
                let up = Up::start(&Plan {
                    relays,
                    relays_run: kind,
                    exits,
                    exits_run: kind,
                    clients,
                    clients_run: kind,
                    patience: options.patience,
                    stop: stop.clone(),
                    ..Plan::of_weft(options.weft.clone())
                })?;
                Place::Loopback(Box::new(up), server()?)
            }
            Way::Testbed { kind, topology } => {
                let weft = Program::weft(&options.weft, None)?;
                let cast = Cast {
                    program: match kind {
                        Kind::Tor => Program::tor_of_its_own()?,
                        Kind::Weft | Kind::Mixed => weft.clone(),
                    },
                    weft,
                    relays: Vec::new(),
                    clients: Vec::new(),
                    params: Vec::new(),
                };
                let testbed = net::Options {
                    // So that several can be measured at once.
                    name: Some(format!("traffic-{}", std::process::id())),
                    seed: options.seed,
                };
                let mut overlay =
                    Overlay::start(topology, &testbed, &cast, options.patience, stop)?;
                // Before packets are lost.
                let server = serve(&overlay)?;
                overlay.change(topology.as_ref().clone())?;
                Place::Testbed(server, Box::new(overlay))
            }
            Way::Socks(address) => Place::Server(server()?, Some(*address)),
            Way::Direct => Place::Server(server()?, None),
        })
    }

    /// An error if a process has ended by itself, or packets are not carried any more.
    pub(super) fn check(&mut self) -> Result<()> {
        match self {
            Place::Loopback(up, _) => up.check(),
            Place::Testbed(_, overlay) => overlay.check(),
            Place::Server(..) => Ok(()),
        }
    }

    fn seats(&self) -> Result<Vec<Seat>> {
        let here = |proxy| Seat { host: None, proxy };
        Ok(match self {
            Place::Loopback(up, _) => {
                let clients = up.clients().iter();
                clients.map(|client| here(Some(client.socks()))).collect()
            }
            Place::Testbed(_, overlay) => {
                let hosts = overlay.client_hosts().map(|name| {
                    Ok(Seat {
                        host: Some(overlay.testbed().host(name)?.clone()),
                        proxy: Some(overlay.socks()),
                    })
                });
                hosts.collect::<Result<_>>()?
            }
            Place::Server(_, proxy) => vec![here(*proxy)],
        })
    }

    fn server(&self) -> SocketAddr {
        match self {
            Place::Loopback(_, server) | Place::Testbed(server, _) | Place::Server(server, _) => {
                server.address()
            }
        }
    }

    /// All users of one repetition where they are: they take seats in turn, those of a model one after another.
    pub(super) fn sites(&self, options: &Options, repetition: u32) -> Result<Vec<Site>> {
        let seats = self.seats()?;
        let server = self.server();
        let mut sites: Vec<Site> = Vec::new();
        let all = named(&options.users, options.repetitions, repetition);
        let count = u32::try_from(all.len()).unwrap_or(u32::MAX).max(1);
        let mut starts = (0..count).map(|place| options.spread.saturating_mul(place) / count);
        for ((name, users), seat) in all.into_iter().zip(seats.iter().cycle()) {
            let client = FlowClient {
                name,
                model_name: users.model_name.to_owned(),
                model: users.model.clone(),
                start: starts.next().unwrap_or_default(),
                proxy: seat.proxy,
                servers: vec![server],
            };
            let host = |host: &Option<Host>| host.as_ref().map(|host| host.name().to_owned());
            match sites
                .iter_mut()
                .find(|site| host(&site.host) == host(&seat.host))
            {
                Some(site) => site.clients.push(client),
                None => sites.push(Site {
                    host: seat.host.clone(),
                    clients: vec![client],
                }),
            }
        }
        Ok(sites)
    }
}

/// Every user with its name, models by turns, so that each begins among the others and has all seats. In another
/// repetition a user has another name, and so circuits of its own.
fn named(users: &[Users], repetitions: u32, repetition: u32) -> Vec<(String, &Users)> {
    let most = users.iter().map(|users| users.count).max().unwrap_or(0);
    let mut all = Vec::new();
    for number in 0..most {
        for users in users.iter().filter(|users| number < users.count) {
            let mut name = format!("{}{}", users.model_name, number + 1);
            if repetitions > 1 {
                name += &format!("-r{repetition}");
            }
            all.push((name, users));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use weft_model::traffic::Model;

    use super::*;

    fn users(model_name: &'static str, count: usize) -> Users {
        Users {
            model_name,
            model: Model::web(),
            count,
        }
    }

    #[test]
    fn users_have_names_of_their_own_in_each_repetition() {
        let all = [users("bulk", 1), users("web", 2)];
        let names = |repetitions, repetition| -> Vec<String> {
            let named = named(&all, repetitions, repetition).into_iter();
            named.map(|(name, _)| name).collect()
        };
        assert_eq!(names(1, 1), ["bulk1", "web1", "web2"]);
        assert_eq!(names(3, 2), ["bulk1-r2", "web1-r2", "web2-r2"]);
    }
}
