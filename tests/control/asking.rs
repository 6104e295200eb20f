//! A controller that sees replies as they are, errors too: those of Weft and of C tor are compared.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use base64ct::{Base64Unpadded, Encoding as _};
use weft_testnet::network::Node;

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(30);

/// The lines of a reply after their codes, data too, and the code of the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) code: u16,
    pub(crate) lines: Vec<String>,
}

/// A connection to a node's ControlPort.
pub(crate) struct Asker {
    stream: BufReader<TcpStream>,
    events: VecDeque<String>,
}

/// Where a node listens, by its log. `kind` is the log's name of the port.
pub(crate) fn listener(node: &Node, kind: &str) -> Result<SocketAddr> {
    let logs = node.logs()?;
    let opened = format!("Opened {kind} listener");
    let lines = logs.iter().flat_map(|(_, log)| log.lines());
    let line = lines.rev().find(|line| line.contains(&opened));
    let line = line.with_context(|| format!("{} has no {kind} port", node.nickname()))?;
    let address = line.rsplit(' ').next().unwrap_or_default();
    address.parse().with_context(|| format!("{line:?}"))
}

impl Asker {
    /// Connects to a node with CookieAuthentication.
    pub(crate) fn connect(node: &Node) -> Result<Self> {
        let stream = TcpStream::connect(listener(node, "Control")?)?;
        stream.set_read_timeout(Some(ANSWER))?;
        let mut asker = Self {
            stream: BufReader::new(stream),
            events: VecDeque::new(),
        };
        let cookie = node.folder().join("data/control_auth_cookie");
        let cookie = std::fs::read(&cookie).with_context(|| cookie.display().to_string())?;
        let reply = asker.ask(&format!("AUTHENTICATE {}", hex::encode(cookie)))?;
        ensure!(reply.code == 250, "{}: {reply:?}", node.nickname());
        Ok(asker)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        ensure!(
            self.stream.read_line(&mut line)? > 0,
            "the node closed its ControlPort"
        );
        Ok(line.trim_end_matches(['\r', '\n']).to_owned())
    }

    /// The lines of one reply or event, each with its code.
    fn message(&mut self) -> Result<Reply> {
        let mut lines = Vec::new();
        loop {
            let line = self.line()?;
            let (Some(code), Some(mark), Some(text)) =
                (line.get(..3), line.get(3..4), line.get(4..))
            else {
                bail!("{line:?} is no reply");
            };
            let code = code.parse().with_context(|| format!("{line:?}"))?;
            lines.push(text.to_owned());
            match mark {
                " " => return Ok(Reply { code, lines }),
                "+" => loop {
                    match self.line()?.as_str() {
                        "." => break,
                        data => lines.push(data.strip_prefix('.').unwrap_or(data).to_owned()),
                    }
                },
                _ => {}
            }
        }
    }

    /// Sends a command; its reply.
    pub(crate) fn ask(&mut self, command: &str) -> Result<Reply> {
        let stream = self.stream.get_mut();
        stream.write_all(format!("{command}\r\n").as_bytes())?;
        loop {
            let message = self.message().with_context(|| command.to_owned())?;
            match message.code {
                650 => self
                    .events
                    .push_back(format!("650 {}", message.lines.join("\n"))),
                _ => return Ok(message),
            }
        }
    }

    /// `GETINFO key`: the lines of the value.
    pub(crate) fn value(&mut self, key: &str) -> Result<Vec<String>> {
        let mut reply = self.ask(&format!("GETINFO {key}"))?;
        ensure!(reply.code == 250, "GETINFO {key}: {reply:?}");
        reply.lines.pop();
        let first = reply.lines.first_mut().context("an empty reply")?;
        let rest = first
            .strip_prefix(key)
            .and_then(|rest| rest.strip_prefix('='));
        *first = rest
            .with_context(|| format!("GETINFO {key}: {first:?}"))?
            .to_owned();
        reply.lines.retain(|line| !line.is_empty());
        Ok(reply.lines)
    }

    /// Waits for an event of which `found` makes something.
    pub(crate) fn event<T>(
        &mut self,
        within: Duration,
        found: impl Fn(&str) -> Option<T>,
    ) -> Result<T> {
        let deadline = Instant::now() + within;
        loop {
            let event = match self.events.pop_front() {
                Some(event) => event,
                None => format!("650 {}", self.message()?.lines.join("\n")),
            };
            if let Some(found) = found(&event) {
                return Ok(found);
            }
            ensure!(Instant::now() < deadline, "the last event is {event:?}");
        }
    }

    /// The nicknames of the relays that the consensus lists, by fingerprint.
    pub(crate) fn relays(&mut self) -> Result<BTreeMap<String, String>> {
        let mut relays = BTreeMap::new();
        for line in self
            .value("ns/all")?
            .iter()
            .filter_map(|line| line.strip_prefix("r "))
        {
            let mut words = line.split(' ');
            let (nickname, id) = (words.next().unwrap_or_default(), words.next());
            let id = Base64Unpadded::decode_vec(id.unwrap_or_default());
            let id = id.map_err(|error| anyhow::anyhow!("{line}: {error}"))?;
            relays.insert(hex::encode_upper(id), nickname.to_owned());
        }
        Ok(relays)
    }
}
