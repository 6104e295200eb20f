//! Keeping streams apart: which streams may share a circuit (C tor's `Isolate...` flags of
//! SocksPort and its relatives; proposal 171).
//!
//! A circuit remembers the fields of the first stream that it carried and in which fields later
//! streams differed. A stream may use a circuit if, in each field by which it wants to be kept
//! apart, all streams so far had its own value.

use std::fmt;
use std::net::IpAddr;
use std::ops::{BitAnd, BitOr, BitOrAssign, Not};
use std::sync::Arc;

use weft_core::address::ConnectionId;
use weft_core::origin::{AppCredentials, AppProtocol};
use weft_planted::{Fault, planted};

use crate::addresses::Host;

/// A set of the fields by which streams can be kept apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Isolation(u8);

impl Isolation {
    /// By nothing.
    pub const NONE: Isolation = Isolation(0);
    /// By the destination's port (IsolateDestPort).
    pub const DEST_PORT: Isolation = Isolation(1);
    /// By the destination's address, as the application named it (IsolateDestAddr).
    pub const DEST_ADDR: Isolation = Isolation(1 << 1);
    /// By user name and password (IsolateSOCKSAuth).
    pub const AUTH: Isolation = Isolation(1 << 2);
    /// By the protocol that the application spoke (IsolateClientProtocol).
    pub const PROTOCOL: Isolation = Isolation(1 << 3);
    /// By the application's address (IsolateClientAddr).
    pub const CLIENT_ADDR: Isolation = Isolation(1 << 4);
    /// By the listeners' SessionGroup.
    pub const SESSION_GROUP: Isolation = Isolation(1 << 5);
    /// From everything before the last NEWNYM.
    pub const NYM_EPOCH: Isolation = Isolation(1 << 6);
    /// From every other stream.
    pub const STREAM: Isolation = Isolation(1 << 7);
    /// The isolation of a listener without isolation flags.
    pub const DEFAULT: Isolation =
        Isolation(Self::CLIENT_ADDR.0 | Self::AUTH.0 | Self::SESSION_GROUP.0 | Self::NYM_EPOCH.0);

    /// Returns true if it has all fields of `other`.
    pub fn has(self, other: Isolation) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns true if it has no field.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Number of fields.
    fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// The fields' names as the control port has them (`ISO_FIELDS`).
    pub fn names(self) -> Vec<&'static str> {
        let all = [
            (Self::DEST_PORT, "DESTPORT"),
            (Self::DEST_ADDR, "DESTADDR"),
            (Self::AUTH, "SOCKS_USERNAME,SOCKS_PASSWORD"),
            (Self::PROTOCOL, "CLIENT_PROTOCOL"),
            (Self::CLIENT_ADDR, "CLIENTADDR"),
            (Self::SESSION_GROUP, "SESSION_GROUP"),
            (Self::NYM_EPOCH, "NYM_EPOCH"),
        ];
        let mut names = Vec::new();
        for (field, name) in all {
            if self.has(field) {
                names.push(name);
            }
        }
        names
    }
}

impl BitOr for Isolation {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Isolation(self.0 | other.0)
    }
}

impl BitOrAssign for Isolation {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl BitAnd for Isolation {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Isolation(self.0 & other.0)
    }
}

impl Not for Isolation {
    type Output = Self;
    fn not(self) -> Self {
        Isolation(!self.0)
    }
}

impl fmt::Debug for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Isolation({:#010b})", self.0)
    }
}

/// The values of a stream's isolation fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fields {
    /// The stream itself.
    pub stream: ConnectionId,
    /// The destination's port.
    pub port: u16,
    /// The destination as the application named it.
    pub host: Host,
    /// User name and password.
    pub credentials: Option<Arc<AppCredentials>>,
    /// The protocol that the application spoke.
    pub protocol: AppProtocol,
    /// The application's address.
    pub client: Option<IpAddr>,
    /// The listener's session group; listeners without one have each their own.
    pub session_group: i64,
    /// NEWNYM signals before it.
    pub nym_epoch: u64,
}

impl Fields {
    /// The fields in which two streams differ; never STREAM, by which all do.
    fn differences(&self, other: &Fields) -> Isolation {
        let pairs = [
            (Isolation::DEST_PORT, self.port == other.port),
            (Isolation::DEST_ADDR, self.host == other.host),
            (Isolation::AUTH, self.credentials == other.credentials),
            (Isolation::PROTOCOL, self.protocol == other.protocol),
            (Isolation::CLIENT_ADDR, self.client == other.client),
            (
                Isolation::SESSION_GROUP,
                self.session_group == other.session_group,
            ),
            (Isolation::NYM_EPOCH, self.nym_epoch == other.nym_epoch),
        ];
        let mut differ = Isolation::NONE;
        for (field, same) in pairs {
            if !same {
                differ |= field;
            }
        }
        differ
    }
}

/// A circuit's record of the isolation fields of its streams.
#[derive(Clone, Debug, Default)]
pub(crate) struct CircuitIsolation {
    /// The first stream's fields and those in which later streams differed.
    used: Option<(Fields, Isolation)>,
}

impl CircuitIsolation {
    /// Returns true if a stream that is isolated by `by` may use the circuit.
    pub(crate) fn allows(&self, by: Isolation, fields: &Fields) -> bool {
        let Some((first, mixed)) = &self.used else {
            return true;
        };
        if !(by & *mixed).is_empty() {
            return false;
        }
        if by.has(Isolation::STREAM) && first.stream != fields.stream {
            return false;
        }
        (first.differences(fields) & by).is_empty() || planted(Fault::IsolationIgnored)
    }

    /// Notes a stream that uses the circuit.
    pub(crate) fn note(&mut self, fields: &Fields) {
        match &mut self.used {
            None => self.used = Some((fields.clone(), Isolation::NONE)),
            Some((first, mixed)) => *mixed |= first.differences(fields),
        }
    }

    /// Forgets all streams.
    pub(crate) fn clear(&mut self) {
        self.used = None;
    }

    /// Returns true once a stream was noted.
    pub(crate) fn is_used(&self) -> bool {
        self.used.is_some()
    }

    /// The first stream's fields, and those in which later ones differed.
    pub(crate) fn first(&self) -> Option<(&Fields, Isolation)> {
        self.used.as_ref().map(|(first, mixed)| (first, *mixed))
    }

    /// Returns true if this circuit is the better one for a stream that both allow. A circuit that
    /// no stream has used is kept for others; else the circuit is better that loses fewer fields to
    /// the stream.
    pub(crate) fn is_better_than(&self, other: &CircuitIsolation, fields: &Fields) -> bool {
        match (&self.used, &other.used) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some((a, a_mixed)), Some((b, b_mixed))) => {
                let a_loses = a.differences(fields) & !(*a_mixed | *b_mixed);
                a_loses.len() < b.differences(fields).len()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(stream: u64) -> Fields {
        Fields {
            stream: ConnectionId(stream),
            port: 80,
            host: "example.com".into(),
            credentials: None,
            protocol: AppProtocol::Socks5,
            client: Some(IpAddr::from([127, 0, 0, 1])),
            session_group: 0,
            nym_epoch: 0,
        }
    }

    fn login(user: &str) -> Option<Arc<AppCredentials>> {
        Some(Arc::new(AppCredentials {
            user: user.as_bytes().to_vec(),
            password: Vec::new(),
        }))
    }

    #[test]
    fn an_unused_circuit_takes_any_stream() {
        let circuit = CircuitIsolation::default();
        let all = !Isolation::NONE;
        assert!(circuit.allows(all, &fields(1)));
        assert!(!circuit.is_used());
    }

    #[test]
    fn each_field_keeps_apart_only_where_it_is_asked_for() {
        let mut other_port = fields(2);
        other_port.port = 443;
        let mut other_host = fields(2);
        other_host.host = "example.org".into();
        let mut other_login = fields(2);
        other_login.credentials = login("a");
        let mut other_protocol = fields(2);
        other_protocol.protocol = AppProtocol::HttpConnect;
        let mut other_client = fields(2);
        other_client.client = Some(IpAddr::from([127, 0, 0, 2]));
        let mut other_group = fields(2);
        other_group.session_group = 7;
        let mut other_epoch = fields(2);
        other_epoch.nym_epoch = 1;
        let cases = [
            (Isolation::DEST_PORT, other_port),
            (Isolation::DEST_ADDR, other_host),
            (Isolation::AUTH, other_login),
            (Isolation::PROTOCOL, other_protocol),
            (Isolation::CLIENT_ADDR, other_client),
            (Isolation::SESSION_GROUP, other_group),
            (Isolation::NYM_EPOCH, other_epoch),
            (Isolation::STREAM, fields(2)),
        ];
        for (field, stream) in cases {
            let mut circuit = CircuitIsolation::default();
            circuit.note(&fields(1));
            assert!(!circuit.allows(field, &stream), "{field:?}");
            assert!(circuit.allows(field, &fields(1)), "{field:?}");
            let others = !(field | Isolation::STREAM);
            assert!(circuit.allows(others, &stream), "{field:?}");
        }
    }

    /// A stream that differs from `fields(1)` in these fields.
    fn differing(by: Isolation) -> Fields {
        type Change = fn(&mut Fields);
        let mut other = fields(if by.has(Isolation::STREAM) { 2 } else { 1 });
        let changes: [(Isolation, Change); 7] = [
            (Isolation::DEST_PORT, |other| other.port = 443),
            (Isolation::DEST_ADDR, |other| other.host = "else".into()),
            (Isolation::AUTH, |other| other.credentials = login("a")),
            (Isolation::PROTOCOL, |other| {
                other.protocol = AppProtocol::HttpConnect
            }),
            (Isolation::CLIENT_ADDR, |other| other.client = None),
            (Isolation::SESSION_GROUP, |other| other.session_group = 7),
            (Isolation::NYM_EPOCH, |other| other.nym_epoch = 1),
        ];
        for (field, change) in changes {
            if by.has(field) {
                change(&mut other);
            }
        }
        other
    }

    #[test]
    fn any_fields_keep_apart_the_streams_that_differ_in_one_of_them_at_least() {
        let all = || (0..=u8::MAX).map(Isolation);
        for differs in all() {
            let stream = differing(differs);
            let mut circuit = CircuitIsolation::default();
            circuit.note(&fields(1));
            for by in all() {
                let apart = by.0 & differs.0 != 0;
                assert_eq!(circuit.allows(by, &stream), !apart, "{by:?}, {differs:?}");
            }
            // A circuit with both allows no stream isolated by a field in which they differ.
            circuit.note(&stream);
            let mixed = differs & !Isolation::STREAM;
            for by in all() {
                let lost = by.0 & mixed.0 != 0;
                assert_eq!(circuit.allows(by, &fields(1)), !lost, "{by:?}, {differs:?}");
            }
            assert_eq!(circuit.first(), Some((&fields(1), mixed)));
        }
    }

    #[test]
    fn fields_have_the_names_of_the_control_port() {
        assert!(Isolation::NONE.names().is_empty() && Isolation::STREAM.names().is_empty());
        let names = (Isolation::DEST_PORT | Isolation::NYM_EPOCH).names();
        assert_eq!(names, ["DESTPORT", "NYM_EPOCH"]);
        let all = (!Isolation::NONE).names();
        assert_eq!(all.len(), 7);
        assert_eq!(
            format!("{:?}", Isolation::DEST_ADDR),
            "Isolation(0b00000010)"
        );
    }

    #[test]
    fn a_circuit_that_mixed_a_field_is_lost_for_those_who_are_kept_apart_by_it() {
        let mut circuit = CircuitIsolation::default();
        circuit.note(&fields(1));
        let mut other = fields(2);
        other.credentials = login("a");
        circuit.note(&other);
        // Not even the stream that was first may come back with that wish.
        assert!(!circuit.allows(Isolation::AUTH, &fields(1)));
        assert!(circuit.allows(Isolation::DEST_PORT, &fields(1)));
        circuit.clear();
        assert!(circuit.allows(Isolation::AUTH, &fields(1)));
    }

    #[test]
    fn the_circuit_that_loses_less_is_better_and_a_clean_one_is_spared() {
        let clean = CircuitIsolation::default();
        let mut same = CircuitIsolation::default();
        same.note(&fields(1));
        let mut different = CircuitIsolation::default();
        let mut other = fields(2);
        other.port = 1;
        other.host = "else".into();
        different.note(&other);
        let stream = fields(3);
        assert!(same.is_better_than(&clean, &stream));
        assert!(!clean.is_better_than(&same, &stream));
        assert!(same.is_better_than(&different, &stream));
        assert!(!different.is_better_than(&same, &stream));
        assert!(!same.is_better_than(&same, &stream));
        assert!(!clean.is_better_than(&clean, &stream));
    }

    #[test]
    fn a_field_that_is_mixed_on_either_circuit_is_no_loss_of_the_first() {
        let on = |fields: &[Isolation]| {
            let mut circuit = CircuitIsolation::default();
            for differs in fields {
                circuit.note(&differing(*differs));
            }
            circuit
        };
        let (port, host) = (Isolation::DEST_PORT, Isolation::DEST_ADDR);
        let stream = fields(3);
        // Both circuits began with another port; on one it is mixed already.
        let (mixed, one) = (on(&[port, host]), on(&[port]));
        assert!(mixed.is_better_than(&one, &stream));
        let both = on(&[port | host]);
        assert!(!both.is_better_than(&both, &stream));
        assert!(both.is_better_than(&on(&[port | host, host]), &stream));
        // What is mixed on one of them only.
        assert!(on(&[port | host, host]).is_better_than(&both, &stream));
        assert!(!on(&[port | host]).is_better_than(&one, &stream));
    }
}
