//! The same stories told to a client of C tor and to one of Weft in one network, and what controllers hear of streams and
//! circuits: the same, but for numbers and for what docs/control.md says.

/// The module's name marks the tests that need `tor` and some minutes, for `cargo xtask test`.
mod private_network {
    use std::collections::HashMap;
    use std::io::{ErrorKind, Read as _, Write as _};
    use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
    use std::path::PathBuf;
    use std::time::{Duration, Instant};

    use anyhow::{Context as _, Result, bail, ensure};
    use weft_testnet::control::Control;
    use weft_testnet::traffic::NameServer;
    use weft_testnet::up::{Client, Kind, More, Plan, Up};

    /// Ends what would otherwise hang; nothing is measured by it.
    const PATIENCE: Duration = Duration::from_secs(120);

    /// What the exits' name server knows.
    const NAMES: [(&str, IpAddr); 2] = [
        ("here.example", IpAddr::V4(Ipv4Addr::LOCALHOST)),
        ("known.example", IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7))),
    ];

    /// SOCKS commands; RESOLVE and RESOLVE_PTR are Tor's own (socks-extensions).
    const CONNECT: u8 = 1;
    const BIND: u8 = 2;
    const RESOLVE: u8 = 0xf0;
    const RESOLVE_PTR: u8 = 0xf1;

    /// A network of Weft with two clients.
    struct Net {
        up: Up,
        _names: NameServer,
        _folder: tempfile::TempDir,
    }

    impl Net {
        fn start() -> Result<Net> {
            let folder = tempfile::tempdir()?;
            let names = NameServer::start(&NAMES)?;
            let resolv_conf = folder.path().join("resolv.conf");
            std::fs::write(&resolv_conf, names.resolv_conf())?;
            let named = std::env::var_os("WEFT_BIN").map(PathBuf::from);
            let lines = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
            let plan = Plan {
                clients: 2,
                clients_run: Kind::Mixed,
                more: More {
                    exits: vec![
                        format!("ServerDNSResolvConfFile {}", resolv_conf.display()),
                        "ServerDNSDetectHijacking 0".to_owned(),
                    ],
                    // Circuits are those that a story asks for, and all of one kind.
                    clients: lines(&[
                        "HTTPTunnelPort auto",
                        "ConfluxEnabled 0",
                        "__DisablePredictedCircuits 1",
                        "LearnCircuitBuildTimeout 0",
                        "CircuitBuildTimeout 60",
                    ]),
                    ..More::default()
                },
                verbose: std::env::var_os("WEFT_LAB_VERBOSE").is_some(),
                progress: |line| eprintln!("{line}"),
                ..Plan::of_weft(named.unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_weft"))))
            };
            Ok(Net {
                up: Up::start(&plan)?,
                _names: names,
                _folder: folder,
            })
        }
    }

    /// Tells a story to one client.
    struct Teller<'a> {
        client: &'a Client,
        control: Control,
        watch: Control,
        /// What marks the story's streams.
        user: String,
        /// Events, in order.
        heard: Vec<String>,
        /// The story's circuits and streams.
        streams: Vec<String>,
        circuits: Vec<String>,
        /// Where streams go.
        destination: TcpListener,
        /// The far ends of streams, open until the story is over: whoever closes first must not depend on who has time.
        far: Vec<TcpStream>,
        /// A port that refuses.
        refused: String,
        /// What the story saw besides events.
        seen: Vec<String>,
    }

    impl Teller<'_> {
        fn new<'a>(client: &'a Client, user: &str) -> Result<Teller<'a>> {
            let mut watch = client.controller()?;
            watch.command("SETEVENTS STREAM CIRC")?;
            Ok(Teller {
                client,
                control: client.controller()?,
                watch,
                user: user.to_owned(),
                heard: Vec::new(),
                streams: Vec::new(),
                circuits: Vec::new(),
                destination: TcpListener::bind("127.0.0.1:0")?,
                far: Vec::new(),
                refused: "-".to_owned(),
                seen: Vec::new(),
            })
        }

        fn port(&self) -> Result<u16> {
            Ok(self.destination.local_addr()?.port())
        }

        /// A SOCKS5 request, which is not waited for.
        fn begin(&self, command: u8, host: &str, port: u16) -> Result<TcpStream> {
            let mut stream = TcpStream::connect(self.client.socks())?;
            stream.set_read_timeout(Some(PATIENCE))?;
            // C tor loses an answer where more than one message comes at once.
            let mut say = |message: &[u8], expected: [u8; 2]| -> Result<()> {
                stream.write_all(message)?;
                let mut answer = [0; 2];
                stream.read_exact(&mut answer)?;
                ensure!(answer == expected, "SOCKS: {answer:?}");
                Ok(())
            };
            say(&[5, 1, 2], [5, 2])?;
            let user = self.user.as_bytes();
            let mut login = vec![1, u8::try_from(user.len())?];
            login.extend(user);
            login.extend([1, b'x']);
            say(&login, [1, 0])?;
            let mut request = vec![5, command, 0];
            match host.parse() {
                Ok(IpAddr::V4(address)) => {
                    request.push(1);
                    request.extend(address.octets());
                }
                _ => {
                    request.extend([3, u8::try_from(host.len())?]);
                    request.extend(host.bytes());
                }
            }
            request.extend(port.to_be_bytes());
            stream.write_all(&request)?;
            Ok(stream)
        }

        /// The answer to a SOCKS5 request; closed without one is none.
        fn answer(&mut self, stream: &mut TcpStream) -> Result<()> {
            let mut answer = [0; 4];
            match stream.read_exact(&mut answer) {
                Ok(()) => {
                    let [_, code, _, kind] = answer;
                    let mut rest = vec![0; if kind == 1 { 6 } else { 0 }];
                    if kind == 3 {
                        let mut length = [0];
                        stream.read_exact(&mut length)?;
                        rest.resize(usize::from(length[0]) + 2, 0);
                    }
                    stream.read_exact(&mut rest)?;
                    // A connection's own port is a number.
                    let shown = match (code, kind) {
                        (0, 3) => String::from_utf8_lossy(&rest[..rest.len() - 2]).into_owned(),
                        (0, 1) if rest[4..] == [0, 0] => format!("{:?}", &rest[..4]),
                        _ => String::new(),
                    };
                    self.seen.push(format!("SOCKS {code} {shown}"));
                }
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    self.seen.push("SOCKS closed".to_owned());
                }
                Err(error) => return Err(error).context("the answer of SOCKS"),
            }
            Ok(())
        }

        fn ask(&mut self, command: u8, host: &str, port: u16) -> Result<TcpStream> {
            let mut stream = self.begin(command, host, port)?;
            self.answer(&mut stream)?;
            Ok(stream)
        }

        /// A connection to the destination.
        fn connected(&mut self, host: &str) -> Result<TcpStream> {
            let port = self.port()?;
            let stream = self.ask(CONNECT, host, port)?;
            self.accept()?;
            Ok(stream)
        }

        fn accept(&mut self) -> Result<()> {
            self.far.push(self.destination.accept()?.0);
            Ok(())
        }

        /// A command whose answer may be an error, which the story has seen.
        fn command(&mut self, command: &str) {
            let answer = match self.control.command(command) {
                Ok(lines) => lines.join(" "),
                Err(error) => {
                    let text = error.to_string();
                    let code = text.rsplit(": ").next().unwrap_or_default();
                    code.get(..3).unwrap_or_default().to_owned()
                }
            };
            let word = command.split(' ').next().unwrap_or_default();
            let answer: String = answer.chars().filter(|c| !c.is_ascii_digit()).collect();
            self.seen.push(format!("{word} {answer}"));
        }

        /// Reads events until one of the story's streams has this status; returns its number.
        fn until(&mut self, status: &str) -> Result<String> {
            let deadline = Instant::now() + PATIENCE;
            loop {
                let event = self.watch.event(deadline)?;
                let Some(event) = event else {
                    bail!("no {status}; heard {:#?}", self.heard)
                };
                if let Some((id, found)) = self.hear(event)
                    && found == status
                {
                    return Ok(id);
                }
            }
        }

        /// Keeps an event; the stream and its status if it is of one of the story's.
        fn hear(&mut self, event: String) -> Option<(String, String)> {
            let words: Vec<&str> = event.split(' ').collect();
            let mark = format!("\"{}\"", self.user);
            let found = match words[..] {
                ["STREAM", id, status, circuit, target, ..] => {
                    let id = id.to_owned();
                    let ours = event.contains(&mark) || target.starts_with(&self.user);
                    if ours && !self.streams.contains(&id) {
                        self.streams.push(id.clone());
                    }
                    let circuit = circuit.to_owned();
                    let ours = self.streams.contains(&id);
                    if ours && circuit != "0" && !self.circuits.contains(&circuit) {
                        self.circuits.push(circuit);
                    }
                    ours.then(|| (id, status.to_owned()))
                }
                _ => None,
            };
            self.heard.push(event);
            found
        }

        /// A circuit of the client's choice; its number once it is built.
        fn circuit(&mut self, path: &str) -> Result<String> {
            let answer = self.control.command(&format!("EXTENDCIRCUIT 0 {path}"))?;
            let id = answer
                .first()
                .and_then(|line| line.strip_prefix("EXTENDED "));
            let id = id.context("no EXTENDED")?.to_owned();
            self.circuits.push(id.clone());
            let deadline = Instant::now() + PATIENCE;
            let built = format!("CIRC {id} BUILT");
            loop {
                let event = self.watch.event(deadline)?.context("it is not built")?;
                let is_built = event.starts_with(&built);
                self.hear(event);
                if is_built {
                    return Ok(id);
                }
            }
        }

        /// Waits until all streams of the story have ended, and what happened to streams and circuits of it.
        fn end(mut self) -> Result<Vec<String>> {
            let deadline = Instant::now() + PATIENCE;
            let ended = |heard: &[String], id: &String| {
                heard
                    .iter()
                    .any(|event| event.starts_with(&format!("STREAM {id} CLOSED ")))
            };
            loop {
                self.control.info("version")?;
                self.watch.info("version")?;
                while let Some(event) = self.watch.event(Instant::now())? {
                    self.hear(event);
                }
                if self.streams.iter().all(|id| ended(&self.heard, id)) {
                    break;
                }
                ensure!(Instant::now() < deadline, "no end; heard {:#?}", self.heard);
                std::thread::sleep(Duration::from_millis(20));
            }
            // A client's circuits stay, and end when the next story does not need them: what is their end is not told.
            let mut names = Names::default();
            let ports = [self.port()?.to_string(), self.refused];
            let of_story = |event: &&String| {
                let mut words = event.split(' ');
                let (kind, id) = (words.next(), words.next().unwrap_or_default().to_owned());
                match kind {
                    Some("STREAM") => self.streams.contains(&id),
                    _ => self.circuits.contains(&id),
                }
            };
            let events = self.heard.iter().filter(of_story);
            let mut told: Vec<String> = events.map(|event| names.plain(event, &ports)).collect();
            told.extend(self.seen);
            Ok(told)
        }
    }

    /// Names in place of numbers, in the order in which they come.
    #[derive(Default)]
    struct Names {
        known: HashMap<String, String>,
    }

    impl Names {
        fn of(&mut self, kind: char, id: &str) -> String {
            if id == "0" {
                return "0".to_owned();
            }
            let count = self
                .known
                .keys()
                .filter(|key| key.starts_with(kind))
                .count();
            let name = self.known.entry(format!("{kind}{id}"));
            name.or_insert_with(|| format!("{kind}{}", count + 1))
                .clone()
        }

        /// An event without what is another each time.
        fn plain(&mut self, event: &str, ports: &[String; 2]) -> String {
            let target = |text: &str| {
                let text = text.replace(&format!(":{}", ports[0]), ":PORT");
                text.replace(&format!(":{}", ports[1]), ":REFUSED")
            };
            let words: Vec<&str> = event.split(' ').collect();
            let field = |word: &str| -> String {
                let Some((key, value)) = word.split_once('=') else {
                    return target(word);
                };
                match key {
                    "TIME_CREATED" | "SOURCE_ADDR" | "NYM_EPOCH" | "SESSION_GROUP"
                    | "SOCKS_USERNAME" | "SOCKS_PASSWORD" => format!("{key}=*"),
                    _ => format!("{key}={value}"),
                }
            };
            let mut plain = Vec::new();
            match &words[..] {
                ["STREAM", id, status, circuit, to, rest @ ..] => {
                    plain.push(format!("STREAM {}", self.of('s', id)));
                    plain.push((*status).to_owned());
                    plain.push(self.of('c', circuit));
                    plain.push(target(to));
                    plain.extend(rest.iter().map(|word| field(word)));
                }
                ["CIRC", id, status, rest @ ..] => {
                    plain.push(format!("CIRC {}", self.of('c', id)));
                    plain.push((*status).to_owned());
                    for word in rest {
                        plain.push(match word.starts_with('$') {
                            true => format!("{} hops", word.split(',').count()),
                            false => field(word),
                        });
                    }
                }
                _ => plain.push(event.to_owned()),
            }
            plain.join(" ")
        }
    }

    /// A story, and why the two tell it in different ways, if they do (docs/control.md).
    struct Story {
        name: &'static str,
        differs: Option<&'static str>,
        tell: fn(&mut Teller<'_>) -> Result<()>,
    }

    const STORIES: &[Story] = &[
        Story {
            name: "the application closes",
            differs: None,
            tell: |teller| {
                teller.connected("127.0.0.1")?;
                Ok(())
            },
        },
        Story {
            name: "the destination closes",
            differs: None,
            tell: |teller| {
                let mut stream = teller.connected("127.0.0.1")?;
                teller.far.clear();
                ensure!(stream.read(&mut [0])? == 0);
                Ok(())
            },
        },
        Story {
            name: "a name",
            differs: None,
            tell: |teller| {
                teller.connected("here.example")?;
                Ok(())
            },
        },
        Story {
            name: "a name that is not known",
            differs: None,
            tell: |teller| {
                teller.ask(CONNECT, "nowhere.example", 80)?;
                Ok(())
            },
        },
        Story {
            name: "a port that refuses",
            differs: None,
            tell: |teller| {
                let refused = TcpListener::bind("127.0.0.1:0")?;
                let port = refused.local_addr()?.port();
                drop(refused);
                teller.refused = port.to_string();
                teller.ask(CONNECT, "127.0.0.1", port)?;
                Ok(())
            },
        },
        Story {
            name: "a look-up",
            differs: None,
            tell: |teller| {
                teller.ask(RESOLVE, "known.example", 0)?;
                Ok(())
            },
        },
        Story {
            name: "a look-up of an unknown name",
            differs: None,
            tell: |teller| {
                teller.ask(RESOLVE, "nowhere.example", 0)?;
                Ok(())
            },
        },
        Story {
            name: "a look-up of an address",
            differs: None,
            tell: |teller| {
                teller.ask(RESOLVE, "192.0.2.7", 0)?;
                Ok(())
            },
        },
        Story {
            name: "the name of an address",
            differs: None,
            tell: |teller| {
                teller.ask(RESOLVE_PTR, "192.0.2.7", 0)?;
                Ok(())
            },
        },
        Story {
            name: "an application that leaves while a controller holds its stream",
            differs: None,
            tell: |teller| {
                teller.command("SETCONF __LeaveStreamsUnattached=1");
                let stream = teller.begin(CONNECT, "127.0.0.1", teller.port()?)?;
                teller.until("CONTROLLER_WAIT")?;
                drop(stream);
                teller.until("CLOSED")?;
                teller.command("SETCONF __LeaveStreamsUnattached=0");
                Ok(())
            },
        },
        Story {
            name: "a controller attaches",
            differs: None,
            tell: |teller| {
                let circuit = teller.circuit("")?;
                teller.command("SETCONF __LeaveStreamsUnattached=1");
                let mut stream = teller.begin(CONNECT, "127.0.0.1", teller.port()?)?;
                let id = teller.until("CONTROLLER_WAIT")?;
                teller.command(&format!("ATTACHSTREAM {id} {circuit}"));
                teller.answer(&mut stream)?;
                teller.command("SETCONF __LeaveStreamsUnattached=0");
                Ok(())
            },
        },
        Story {
            name: "a controller lets the client attach",
            differs: None,
            tell: |teller| {
                teller.command("SETCONF __LeaveStreamsUnattached=1");
                let mut stream = teller.begin(CONNECT, "127.0.0.1", teller.port()?)?;
                let id = teller.until("CONTROLLER_WAIT")?;
                teller.command(&format!("ATTACHSTREAM {id} 0"));
                teller.answer(&mut stream)?;
                teller.command("SETCONF __LeaveStreamsUnattached=0");
                Ok(())
            },
        },
        Story {
            name: "a controller redirects",
            differs: None,
            tell: |teller| {
                teller.command("SETCONF __LeaveStreamsUnattached=1");
                let mut stream = teller.begin(CONNECT, "nowhere.example", teller.port()?)?;
                let id = teller.until("CONTROLLER_WAIT")?;
                teller.command(&format!("REDIRECTSTREAM {id} 127.0.0.1"));
                teller.command(&format!("ATTACHSTREAM {id} 0"));
                teller.answer(&mut stream)?;
                teller.command("SETCONF __LeaveStreamsUnattached=0");
                Ok(())
            },
        },
        Story {
            name: "a controller closes the stream",
            differs: None,
            tell: |teller| {
                let mut stream = teller.connected("127.0.0.1")?;
                let id = teller.until("SUCCEEDED")?;
                teller.command(&format!("CLOSESTREAM {id} 1"));
                let _ = stream.read(&mut [0]);
                Ok(())
            },
        },
        Story {
            name: "a controller closes a stream that it holds",
            differs: None,
            tell: |teller| {
                teller.command("SETCONF __LeaveStreamsUnattached=1");
                let mut stream = teller.begin(CONNECT, "127.0.0.1", teller.port()?)?;
                let id = teller.until("CONTROLLER_WAIT")?;
                teller.command(&format!("CLOSESTREAM {id} 1"));
                teller.answer(&mut stream)?;
                teller.command("SETCONF __LeaveStreamsUnattached=0");
                Ok(())
            },
        },
        Story {
            name: "a controller closes the circuit",
            differs: None,
            tell: |teller| {
                let mut stream = teller.connected("127.0.0.1")?;
                teller.until("SUCCEEDED")?;
                let circuit = teller.circuits.last().context("no circuit")?.clone();
                teller.command(&format!("CLOSECIRCUIT {circuit}"));
                let _ = stream.read(&mut [0]);
                Ok(())
            },
        },
        Story {
            name: "a map to an address",
            differs: None,
            tell: |teller| {
                let name = format!("{}.example", teller.user);
                teller.command(&format!("MAPADDRESS {name}=127.0.0.1"));
                teller.connected(&name)?;
                teller.command(&format!("MAPADDRESS {name}={name}"));
                Ok(())
            },
        },
        Story {
            name: "a map to a name",
            differs: None,
            tell: |teller| {
                let name = format!("{}.example", teller.user);
                teller.command(&format!("MAPADDRESS {name}=here.example"));
                teller.connected(&name)?;
                teller.command(&format!("MAPADDRESS {name}={name}"));
                Ok(())
            },
        },
        Story {
            name: "a look-up of a name with a map",
            differs: None,
            tell: |teller| {
                let name = format!("{}.example", teller.user);
                teller.command(&format!("MAPADDRESS {name}=known.example"));
                teller.ask(RESOLVE, &name, 0)?;
                teller.command(&format!("MAPADDRESS {name}={name}"));
                Ok(())
            },
        },
        Story {
            name: "a look-up of an address with a map",
            differs: None,
            tell: |teller| {
                teller.command("MAPADDRESS 192.0.2.8=192.0.2.9");
                teller.ask(RESOLVE, "192.0.2.8", 0)?;
                teller.command("MAPADDRESS 192.0.2.8=192.0.2.8");
                Ok(())
            },
        },
        Story {
            name: "an onion service that is none",
            differs: Some("refused before it is a stream"),
            tell: |teller| {
                teller.ask(CONNECT, "abc.onion", 80)?;
                Ok(())
            },
        },
        Story {
            name: "two streams of one user",
            differs: None,
            tell: |teller| {
                let first = teller.connected("127.0.0.1")?;
                let second = teller.connected("127.0.0.1")?;
                drop(first);
                teller.until("CLOSED")?;
                drop(second);
                Ok(())
            },
        },
        Story {
            name: "another identity",
            differs: None,
            tell: |teller| {
                teller.connected("127.0.0.1")?;
                teller.until("CLOSED")?;
                teller.command("SIGNAL NEWNYM");
                teller.connected("127.0.0.1")?;
                Ok(())
            },
        },
        Story {
            name: "a port that is none",
            differs: Some("refused before it is a stream"),
            tell: |teller| {
                teller.ask(CONNECT, "127.0.0.1", 0)?;
                Ok(())
            },
        },
        Story {
            name: "a request that Tor does not know",
            differs: Some("refused before it is a stream"),
            tell: |teller| {
                teller.ask(BIND, "127.0.0.1", 80)?;
                Ok(())
            },
        },
        Story {
            name: "SOCKS4a",
            differs: None,
            tell: |teller| {
                let mut stream = TcpStream::connect(teller.client.socks())?;
                stream.set_read_timeout(Some(PATIENCE))?;
                let mut request = vec![4, CONNECT];
                request.extend(teller.port()?.to_be_bytes());
                request.extend([0, 0, 0, 1]);
                request.extend(teller.user.bytes());
                request.push(0);
                request.extend(b"here.example\0");
                stream.write_all(&request)?;
                let mut answer = [0; 8];
                stream.read_exact(&mut answer)?;
                teller.seen.push(format!("SOCKS4 {}", answer[1]));
                teller.accept()?;
                Ok(())
            },
        },
        Story {
            name: "HTTP CONNECT",
            differs: None,
            tell: |teller| {
                let listeners = teller.control.info("net/listeners/httptunnel")?;
                let at: SocketAddr = listeners.trim_matches('"').parse()?;
                let mut stream = TcpStream::connect(at)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                // The basic credentials are the story's.
                let user = format!("{}:x", teller.user);
                let request = format!(
                    "CONNECT here.example:{} HTTP/1.0\r\nProxy-Authorization: Basic {}\r\n\r\n",
                    teller.port()?,
                    base64(user.as_bytes())
                );
                stream.write_all(request.as_bytes())?;
                let mut answer = [0; 12];
                stream.read_exact(&mut answer)?;
                teller
                    .seen
                    .push(String::from_utf8_lossy(&answer).into_owned());
                teller.accept()?;
                Ok(())
            },
        },
        Story {
            name: "a controller looks up",
            differs: Some("no SOURCE_ADDR: it has no socket"),
            tell: |teller| {
                let name = format!("{}.example", teller.user);
                teller.command(&format!("RESOLVE {name}"));
                teller.until("CLOSED")?;
                Ok(())
            },
        },
        Story {
            name: "a circuit of a controller, closed again",
            differs: None,
            tell: |teller| {
                let circuit = teller.circuit("")?;
                teller.command(&format!("CLOSECIRCUIT {circuit}"));
                let deadline = Instant::now() + PATIENCE;
                loop {
                    let event = teller.watch.event(deadline)?.context("it stays")?;
                    let is_closed = event.starts_with(&format!("CIRC {circuit} CLOSED"));
                    teller.hear(event);
                    if is_closed {
                        return Ok(());
                    }
                }
            },
        },
    ];

    fn base64(bytes: &[u8]) -> String {
        use base64ct::Encoding as _;
        base64ct::Base64::encode_string(bytes)
    }

    #[test]
    fn controllers_hear_the_same_of_c_tor_and_weft() {
        let told = || -> Result<Vec<String>> {
            let net = Net::start()?;
            let mut differences = Vec::new();
            for (number, story) in STORIES.iter().enumerate() {
                // Weft first, C tor second.
                let mut versions = Vec::new();
                for client in ["client0", "client1"] {
                    let mut teller =
                        Teller::new(net.up.client(client)?, &format!("story{number}"))?;
                    let told = (story.tell)(&mut teller).and_then(|()| teller.end());
                    versions.push(told.with_context(|| format!("{}: {client}", story.name))?);
                }
                let [weft, tor] = &versions[..] else {
                    bail!("two clients");
                };
                if (weft != tor) != story.differs.is_some() {
                    differences.push(format!(
                        "--- {}\nC tor:\n  {}\nWeft:\n  {}",
                        story.name,
                        tor.join("\n  "),
                        weft.join("\n  ")
                    ));
                }
            }
            Ok(differences)
        };
        let differences = told().unwrap_or_else(|error| panic!("{error:#}"));
        assert!(
            differences.is_empty(),
            "{} of {} differ:\n{}",
            differences.len(),
            STORIES.len(),
            differences.join("\n")
        );
    }
}
