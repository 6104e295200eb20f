//! A destination that maps were applied to, and the exit that it is for: [`Rewritten`].

use std::net::IpAddr;

use weft_cell::identity::RsaIdentity;
use weft_log::Line;
use weft_path::RelayName;

use super::refused::Refused;
use crate::addresses::{AddressMap, Host};

/// The exit that a stream is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ExitChoice {
    /// Any.
    Any,
    /// This one alone: a map ends in `.exit`.
    Only(RelayName),
    /// The one that reached the destination before (`TrackHostExits`), until it fails.
    Tracked(RsaIdentity),
}

/// A destination that maps were applied to.
#[derive(Clone, Debug)]
pub(crate) struct Rewritten {
    host: Host,
    port: u16,
    exit: ExitChoice,
}

impl Rewritten {
    /// Applies maps to a destination that an application or a controller asked for. Returns also the name that maps led to,
    /// if they did.
    ///
    /// # Errors
    ///
    /// It asks for an exit by name, which only maps may, or the exit's name is malformed.
    pub(crate) fn new(
        asked: &Host,
        port: u16,
        maps: &AddressMap,
    ) -> Result<(Self, Option<Host>), Refused> {
        let of_exit = |host: &Host| host.as_str().ends_with(".exit");
        if of_exit(asked) {
            let text = "The \".exit\" notation is disabled in Tor due to security risks.";
            return Err(Refused::malformed(Line::warn(text)));
        }
        let mapped = maps.rewrite(asked);
        let whole = mapped.as_ref().unwrap_or(asked);
        let mut rewritten = Self {
            host: whole.clone(),
            port,
            exit: ExitChoice::Any,
        };
        if let Some(rest) = whole.as_str().strip_suffix(".exit") {
            let named = rest.rsplit_once('.').and_then(|(host, exit)| {
                let exit = exit.parse().ok()?;
                Some((Host::new(host), exit))
            });
            let Some((host, exit)) = named.filter(|(host, _)| !of_exit(host)) else {
                let line = Line::warn("Malformed exit address '").client(whole);
                return Err(Refused::malformed(line.text("'. Refusing.")).always());
            };
            rewritten.host = host;
            rewritten.exit = ExitChoice::Only(exit);
        }
        Ok((rewritten, mapped))
    }

    /// The destination of a reverse lookup, which maps do not change.
    pub(crate) fn reverse(asked: &Host) -> Self {
        Self {
            host: asked.clone(),
            port: 0,
            exit: ExitChoice::Any,
        }
    }

    /// The destination by the address that an exit found for its name.
    pub(crate) fn found(&mut self, addr: IpAddr) {
        self.host = addr.into();
    }

    /// Keeps it to the exit that reached it before, unless a map names one.
    pub(crate) fn keep_to(&mut self, exit: RsaIdentity) {
        if self.exit == ExitChoice::Any {
            self.exit = ExitChoice::Tracked(exit);
        }
    }

    /// Allows any exit instead of the one that it was kept to. Returns that one, if there was one.
    pub(crate) fn leave_tracked(&mut self) -> Option<RsaIdentity> {
        let ExitChoice::Tracked(exit) = self.exit else {
            return None;
        };
        self.exit = ExitChoice::Any;
        Some(exit)
    }

    pub(crate) fn host(&self) -> &Host {
        &self.host
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn exit(&self) -> &ExitChoice {
        &self.exit
    }
}
