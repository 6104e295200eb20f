//! The extended ORPort's protocol (ext-orport-spec), on our side: a program of transports proves that it can read our
//! cookie, sends whose bytes follow, and the connection is an ordinary one of the ORPort from there on.

use std::fmt;
use std::net::SocketAddr;

use hmac::{Hmac, Mac};
use sha2::Sha256;
use weft_trust::{Limit, Payer, Role, Sender, Trust};

use crate::transports::line::LONGEST_NAME;
use crate::transports::text::is_identifier;

/// The first bytes of the cookie's file.
pub const COOKIE_HEADER: &[u8; 32] = b"! Extended ORPort Auth Cookie !\n";
const SERVER_CONST: &[u8] = b"ExtORPort authentication server-to-client hash";
const CLIENT_CONST: &[u8] = b"ExtORPort authentication client-to-server hash";
/// The one way to authenticate that there is (SAFE_COOKIE), and the end of the list.
const AUTH_TYPES: [u8; 2] = [1, 0];
/// Longer bodies of messages that we understand hold no address and no name of a transport. C tor takes 65,535 bytes.
const LONGEST_BODY: usize = 1024;
/// More messages than this before DONE are a flood: there are two that make sense.
const MOST_MESSAGES: u32 = 64;

const DONE: u16 = 0x0000;
const USERADDR: u16 = 0x0001;
const TRANSPORT: u16 = 0x0002;
const OKAY: u16 = 0x1000;

/// A message that a program may send (ext-orport-spec 3.1, 3.2), from its first byte on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtOrMessage {
    /// The way to authenticate, the program's nonce and its proof.
    Authentication,
    /// The client's bytes follow.
    Done,
    /// The client's address.
    UserAddr,
    /// The transport's name.
    Transport,
    /// Any other command: skipped.
    Unknown,
}

impl ExtOrMessage {
    /// All of them.
    pub const ALL: [ExtOrMessage; 5] = [
        Self::Authentication,
        Self::Done,
        Self::UserAddr,
        Self::Transport,
        Self::Unknown,
    ];

    /// The message of a command.
    fn of(command: u16) -> Self {
        match command {
            DONE => Self::Done,
            USERADDR => Self::UserAddr,
            TRANSPORT => Self::Transport,
            _ => Self::Unknown,
        }
    }

    /// Its name in the specification.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Authentication => "SAFE_COOKIE authentication",
            Self::Done => "DONE",
            Self::UserAddr => "USERADDR",
            Self::Transport => "TRANSPORT",
            Self::Unknown => "other commands",
        }
    }

    /// Who may send it, and what bounds it.
    #[must_use]
    pub const fn trust(self) -> Trust {
        let (sender, limit) = match self {
            Self::Authentication => (Sender::Anybody, STRANGER),
            Self::Done => (Sender::CookieHolder, LAST),
            Self::UserAddr | Self::Transport => (Sender::CookieHolder, TEXT),
            Self::Unknown => (Sender::CookieHolder, SKIPPED),
        };
        Trust::new(sender, Role::ExtOrPort, limit)
    }
}

const STRANGER: Limit = Limit::new(
    "{weft-node/src/ext_or.rs:MOST_STRANGERS} connections, {weft-node/src/ext_or.rs:MOST_IF_FULL} where the files are used \
            up, {weft-node/src/ext_or.rs:PROVE_WITHIN}; the oldest gives way",
    Payer::Connection,
    &[
        "who_does_not_know_the_cookie_learns_that_and_nothing_else",
        "of_those_that_have_proved_nothing_the_oldest_gives_way_and_no_other",
        "what_proves_nothing_in_time_is_closed",
        "where_the_node_has_all_its_files_few_are_open_and_the_oldest_gives_way",
    ],
);
const TEXT: Limit = Limit::new(
    "{weft-proxy/src/transports/ext_or.rs:MOST_MESSAGES} messages, {weft-proxy/src/transports/ext_or.rs:LONGEST_BODY} bytes \
            each; the last one counts; no address exempts from a limit",
    Payer::Connection,
    &[
        "what_does_not_parse_closes_the_connection",
        "the_last_address_and_name_count",
        "an_address_that_a_program_of_transports_states_exempts_from_nothing",
        "fuzz/ext_or_port",
    ],
);
const LAST: Limit = Limit::new(
    "one, with nothing behind it before our answer; {weft-node/src/ext_or.rs:MOST} connections that are no links yet, \
            {weft-node/src/ext_or.rs:PATIENCE}",
    Payer::Connection,
    &[
        "what_does_not_parse_closes_the_connection",
        "connections_count_as_files_until_they_are_taken",
    ],
);
const SKIPPED: Limit = Limit::new(
    "{weft-proxy/src/transports/ext_or.rs:MOST_MESSAGES} messages, of which nothing is kept",
    Payer::Connection,
    &["messages_that_we_do_not_know_are_skipped_up_to_a_number"],
);

/// The content of the cookie's file.
#[must_use]
pub fn cookie_file(cookie: &[u8; 32]) -> [u8; 64] {
    let mut file = [0; 64];
    let (header, rest) = file.split_at_mut(32);
    header.copy_from_slice(COOKIE_HEADER);
    rest.copy_from_slice(cookie);
    file
}

/// Whose bytes follow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Client {
    /// The client's address, where the program sent it.
    pub address: Option<SocketAddr>,
    /// The transport's name, where the program sent it.
    pub transport: Option<String>,
}

impl Client {
    /// The name by which statistics count the transport (C tor's word for one that is not known).
    #[must_use]
    pub fn transport_name(&self) -> &str {
        self.transport.as_deref().unwrap_or("<??>")
    }
}

/// Progress of the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More bytes are needed.
    More,
    /// Send the answer; whatever arrives afterwards is for the ORPort.
    Done(Client),
}

/// Why the connection is closed, once the answer was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It wants to authenticate in another way.
    AuthType(u8),
    /// It does not know the cookie.
    WrongHash,
    /// The address is none.
    BadAddress,
    /// The transport's name is none.
    BadTransport,
    /// The body of a message is too long.
    TooLong,
    /// There are too many messages.
    TooMany,
    /// It sent more before it had our answer.
    Early,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::AuthType(kind) => write!(f, "authentication type {kind} is not spoken"),
            Refused::WrongHash => f.write_str("Incorrect client hash. Authentication failed."),
            Refused::BadAddress => f.write_str("USERADDR has no address and port"),
            Refused::BadTransport => f.write_str("TRANSPORT has no name of a transport"),
            Refused::TooLong => write!(f, "a message has more than {LONGEST_BODY} bytes"),
            Refused::TooMany => write!(f, "more than {MOST_MESSAGES} messages"),
            Refused::Early => f.write_str("bytes before our answer to DONE"),
        }
    }
}

/// One connection to the extended ORPort.
pub struct ExtOr {
    cookie: [u8; 32],
    nonce: [u8; 32],
    state: State,
    begun: Vec<u8>,
    messages: u32,
    client: Client,
}

impl fmt::Debug for ExtOr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the cookie.
        let mut shown = f.debug_struct("ExtOr");
        shown.field("client", &self.client).finish_non_exhaustive()
    }
}

enum State {
    AuthType,
    ClientNonce,
    /// The hash that proves knowledge of the cookie.
    ClientHash(Hmac<Sha256>),
    Open,
    /// Remaining bytes of a message that we do not understand.
    Skip(usize),
    Over,
}

impl ExtOr {
    /// A connection that was just accepted. `nonce` is random.
    #[must_use]
    pub fn new(cookie: [u8; 32], nonce: [u8; 32]) -> Self {
        ExtOr {
            cookie,
            nonce,
            state: State::AuthType,
            begun: Vec::new(),
            messages: 0,
            client: Client::default(),
        }
    }

    /// The first bytes that we send: the authentication types.
    #[must_use]
    pub fn greeting(&self) -> [u8; 2] {
        AUTH_TYPES
    }

    /// The program has proved that it knows the cookie.
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        matches!(self.state, State::Open | State::Skip(_) | State::Over)
    }

    /// Takes bytes of the program, and appends what is to be sent to it to `answer`, also where it fails.
    ///
    /// # Errors
    ///
    /// The connection is to be closed.
    pub fn receive(&mut self, bytes: &[u8], answer: &mut Vec<u8>) -> Result<Progress, Refused> {
        let mut begun = std::mem::take(&mut self.begun);
        begun.extend_from_slice(bytes);
        let mut input = begun.as_slice();
        loop {
            let before = input.len();
            if let Some(client) = self.step(&mut input, answer)? {
                self.state = State::Over;
                return Ok(Progress::Done(client));
            }
            if input.len() == before {
                break;
            }
        }
        // No state waits for more than a header and a body.
        self.begun = input.to_vec();
        Ok(Progress::More)
    }

    /// Takes the next thing off `input`, if it is whole.
    fn step(&mut self, input: &mut &[u8], answer: &mut Vec<u8>) -> Result<Option<Client>, Refused> {
        match &self.state {
            State::AuthType => match take::<1>(input) {
                Some([1]) => self.state = State::ClientNonce,
                Some([other]) => return Err(Refused::AuthType(other)),
                None => {}
            },
            State::ClientNonce => {
                if let Some(theirs) = take::<32>(input) {
                    let hash = self.mac(SERVER_CONST, &theirs);
                    answer.extend_from_slice(&hash.finalize().into_bytes());
                    answer.extend_from_slice(&self.nonce);
                    self.state = State::ClientHash(self.mac(CLIENT_CONST, &theirs));
                }
            }
            State::ClientHash(expected) => {
                if let Some(hash) = take::<32>(input) {
                    // Compared in constant time.
                    if expected.clone().verify_slice(&hash).is_err() {
                        answer.push(0);
                        return Err(Refused::WrongHash);
                    }
                    answer.push(1);
                    self.state = State::Open;
                }
            }
            State::Open => return self.message(input, answer),
            State::Skip(left) => {
                let skipped = input.len().min(*left);
                let left = left - skipped;
                *input = input.get(skipped..).unwrap_or_default();
                self.state = match left {
                    0 => State::Open,
                    left => State::Skip(left),
                };
            }
            State::Over => return Err(Refused::Early),
        }
        Ok(None)
    }

    fn message(
        &mut self,
        input: &mut &[u8],
        answer: &mut Vec<u8>,
    ) -> Result<Option<Client>, Refused> {
        let mut rest = *input;
        let Some([c0, c1, l0, l1]) = take::<4>(&mut rest) else {
            return Ok(None);
        };
        let command = ExtOrMessage::of(u16::from_be_bytes([c0, c1]));
        let length = usize::from(u16::from_be_bytes([l0, l1]));
        if command == ExtOrMessage::Unknown {
            self.count()?;
            *input = rest;
            if length > 0 {
                self.state = State::Skip(length);
            }
            return Ok(None);
        }
        if length > LONGEST_BODY {
            return Err(Refused::TooLong);
        }
        let Some((body, rest)) = rest.split_at_checked(length) else {
            return Ok(None);
        };
        self.count()?;
        *input = rest;
        match command {
            ExtOrMessage::Done if rest.is_empty() => {
                answer.extend_from_slice(&OKAY.to_be_bytes());
                answer.extend_from_slice(&[0, 0]);
                return Ok(Some(std::mem::take(&mut self.client)));
            }
            ExtOrMessage::Done => return Err(Refused::Early),
            ExtOrMessage::UserAddr => {
                let address = std::str::from_utf8(body)
                    .ok()
                    .and_then(|text| text.parse().ok());
                self.client.address = Some(address.ok_or(Refused::BadAddress)?);
            }
            ExtOrMessage::Transport => {
                let name = std::str::from_utf8(body)
                    .ok()
                    .filter(|name| name.len() <= LONGEST_NAME && is_identifier(name));
                self.client.transport = Some(name.ok_or(Refused::BadTransport)?.to_owned());
            }
            // No command stands for it; skipped above.
            ExtOrMessage::Authentication | ExtOrMessage::Unknown => {}
        }
        Ok(None)
    }

    fn count(&mut self) -> Result<(), Refused> {
        self.messages += 1;
        if self.messages > MOST_MESSAGES {
            return Err(Refused::TooMany);
        }
        Ok(())
    }

    fn mac(&self, text: &[u8], theirs: &[u8; 32]) -> Hmac<Sha256> {
        let mut key = [0; 64];
        // HMAC's key is padded with zeros to a block.
        key.iter_mut().zip(&self.cookie).for_each(|(k, c)| *k = *c);
        Hmac::<Sha256>::new(&key.into())
            .chain_update(text)
            .chain_update(theirs)
            .chain_update(self.nonce)
    }
}

fn take<const N: usize>(input: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = input.split_first_chunk::<N>()?;
    *input = rest;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COOKIE: [u8; 32] = [7; 32];
    const OURS: [u8; 32] = [8; 32];
    const THEIRS: [u8; 32] = [9; 32];

    fn message(command: u16, body: &[u8]) -> Vec<u8> {
        let length = u16::try_from(body.len()).unwrap();
        [&command.to_be_bytes(), &length.to_be_bytes(), body].concat()
    }

    /// The authentication message of a program that knows `cookie`.
    fn login(cookie: &[u8]) -> Vec<u8> {
        let mut mac = Hmac::<Sha256>::new_from_slice(cookie).unwrap();
        mac.update(b"ExtORPort authentication client-to-server hash");
        mac.update(&THEIRS);
        mac.update(&OURS);
        [&[1][..], &THEIRS, &mac.finalize().into_bytes()].concat()
    }

    fn all(parts: &[&[u8]]) -> (Result<Progress, Refused>, Vec<u8>) {
        let mut connection = ExtOr::new(COOKIE, OURS);
        assert_eq!(connection.greeting(), [1, 0]);
        let mut answer = Vec::new();
        let mut last = Ok(Progress::More);
        for part in parts {
            assert_eq!(last, Ok(Progress::More));
            last = connection.receive(part, &mut answer);
            assert!(connection.begun.len() <= 4 + LONGEST_BODY);
        }
        (last, answer)
    }

    fn logged_in(messages: &[Vec<u8>]) -> Result<Progress, Refused> {
        all(&[&login(&COOKIE), &messages.concat()]).0
    }

    #[test]
    fn a_program_that_knows_the_cookie_hands_over_a_client() {
        let messages = [
            message(USERADDR, b"[2001:db8::1]:4711"),
            message(TRANSPORT, b"obfs4"),
            message(DONE, b""),
        ];
        let (last, answer) = all(&[&login(&COOKIE), &messages.concat()]);
        assert_eq!(
            last,
            Ok(Progress::Done(Client {
                address: Some("[2001:db8::1]:4711".parse().unwrap()),
                transport: Some("obfs4".to_owned())
            }))
        );
        let mut mac = Hmac::<Sha256>::new_from_slice(&COOKIE).unwrap();
        mac.update(b"ExtORPort authentication server-to-client hash");
        mac.update(&THEIRS);
        mac.update(&OURS);
        let hash = mac.finalize().into_bytes();
        assert_eq!(answer, [&hash[..], &OURS, &[1, 0x10, 0, 0, 0]].concat());
    }

    #[test]
    fn a_program_has_authenticated_with_the_last_byte_of_its_hash() {
        let mut connection = ExtOr::new(COOKIE, OURS);
        let mut answer = Vec::new();
        for byte in login(&COOKIE) {
            assert!(!connection.is_authenticated());
            connection.receive(&[byte], &mut answer).unwrap();
        }
        assert!(connection.is_authenticated());
        let mut stranger = ExtOr::new(COOKIE, OURS);
        stranger.receive(&login(&[6; 32]), &mut answer).unwrap_err();
        assert!(!stranger.is_authenticated());
    }

    #[test]
    fn who_does_not_know_the_cookie_learns_that_and_nothing_else() {
        let (last, answer) = all(&[&login(&[6; 32])]);
        assert_eq!(last, Err(Refused::WrongHash));
        assert_eq!(answer.len(), 65);
        assert_eq!(answer[64], 0);
        for kind in [0, 2, 22, 255] {
            assert_eq!(all(&[&[kind]]), (Err(Refused::AuthType(kind)), Vec::new()));
        }
    }

    #[test]
    fn a_client_without_address_and_transport_is_taken_too() {
        let progress = logged_in(&[message(DONE, b"ignored")]);
        let Ok(Progress::Done(client)) = progress else {
            panic!("{progress:?}");
        };
        assert_eq!(client, Client::default());
        assert_eq!(client.transport_name(), "<??>");
    }

    #[test]
    fn what_does_not_parse_closes_the_connection() {
        for address in ["", "1.2.3.4", "host:1", "1.2.3.4:66000", "1.2.3.4:1\0"] {
            let sent = [message(USERADDR, address.as_bytes())];
            assert_eq!(logged_in(&sent), Err(Refused::BadAddress), "{address}");
        }
        let long = "a".repeat(65);
        for name in ["", "4obfs", "ob-fs", "obfs4\0", "\u{e4}", long.as_str()] {
            let sent = [message(TRANSPORT, name.as_bytes())];
            assert_eq!(logged_in(&sent), Err(Refused::BadTransport), "{name}");
        }
        let long = message(TRANSPORT, &[b'a'; 1025])[..4].to_vec();
        assert_eq!(logged_in(&[long]), Err(Refused::TooLong));
        let early = [message(DONE, b""), b"x".to_vec()];
        assert_eq!(logged_in(&early), Err(Refused::Early));
    }

    #[test]
    fn messages_that_we_do_not_know_are_skipped_up_to_a_number() {
        let unknown = message(0x77, &[0; 65_535]);
        let mut sent = vec![unknown.clone(); 63];
        sent.push(message(DONE, b""));
        assert!(matches!(logged_in(&sent), Ok(Progress::Done(_))));
        let sent = vec![unknown; 65];
        assert_eq!(logged_in(&sent), Err(Refused::TooMany));
    }

    #[test]
    fn the_last_address_and_name_count() {
        let sent = [
            message(USERADDR, b"1.2.3.4:5"),
            message(TRANSPORT, b"a"),
            message(USERADDR, b"1.2.3.4:0"),
            message(TRANSPORT, b"b"),
            message(DONE, b""),
        ];
        let client = Client {
            address: Some("1.2.3.4:0".parse().unwrap()),
            transport: Some("b".to_owned()),
        };
        assert_eq!(logged_in(&sent), Ok(Progress::Done(client)));
    }

    #[test]
    fn the_cookie_s_file_is_as_the_specification_has_it() {
        let file = cookie_file(&COOKIE);
        assert_eq!(&file[..32], b"! Extended ORPort Auth Cookie !\x0a");
        assert_eq!(&file[32..], COOKIE);
    }

    proptest! {
        #[test]
        fn it_does_not_matter_how_bytes_are_cut(cuts in prop::collection::vec(0_usize..200, 0..8)) {
            let sent = [
                login(&COOKIE),
                message(0x99, b"what?"),
                message(USERADDR, b"1.2.3.4:5"),
                message(DONE, b""),
            ].concat();
            let mut cuts = cuts;
            cuts.push(0);
            cuts.push(sent.len());
            cuts.retain(|cut| *cut <= sent.len());
            cuts.sort_unstable();
            let parts = cuts.windows(2).map(|w| &sent[w[0]..w[1]]);
            let parts: Vec<&[u8]> = parts.filter(|part| !part.is_empty()).collect();
            prop_assert_eq!(all(&parts), all(&[&sent]));
        }
    }
}
