//! Commands about circuits, streams and addresses (control-spec 3.10 to 3.17).

use super::args::{
    has_keyword, keyword_args, keyword_value, parse_args, positional_args, unparsable, wrong_number,
};
use super::backend::{Backend, ClientCommand, CommandOutput};
use super::reply::Reply;

/// Names in MAPADDRESS for which the client chooses a virtual address (control-spec 3.8).
const ANY_ADDRESS: [&str; 3] = [".", "0.0.0.0", "::"];

/// Runs a command and makes its reply.
pub(super) async fn run<B: Backend>(backend: &B, command: ClientCommand) -> Reply {
    match backend.run_command(command).await {
        Ok(CommandOutput::None | CommandOutput::MappedName(_)) => Reply::ok(),
        Ok(CommandOutput::Circuit(circuit)) => Reply::line(250, format!("EXTENDED {circuit}")),
        Err(failed) => Reply::line(failed.code, failed.text),
    }
}

fn circuit_id(text: &str) -> Result<u64, Reply> {
    text.parse()
        .map_err(|_| Reply::line(552, format!("Unknown circuit \"{text}\"")))
}

fn stream_id(text: &str) -> Result<u64, Reply> {
    text.parse()
        .map_err(|_| Reply::line(552, format!("Unknown stream \"{text}\"")))
}

/// True if the purpose is `controller`; `None`: the purpose is unknown.
fn is_controller_purpose(text: &str) -> Option<bool> {
    let text = text.to_ascii_lowercase();
    match text.strip_prefix("purpose=").unwrap_or(&text) {
        "general" => Some(false),
        "controller" => Some(true),
        _ => None,
    }
}

fn unknown_purpose(text: &str) -> Reply {
    Reply::line(552, format!("Unknown purpose \"{text}\""))
}

async fn run_parsed<B: Backend>(backend: &B, parsed: Result<ClientCommand, Reply>) -> Reply {
    match parsed {
        Ok(command) => run(backend, command).await,
        Err(reply) => reply,
    }
}

/// Handles EXTENDCIRCUIT.
pub(super) async fn extend_circuit<B: Backend>(backend: &B, rest: &str) -> Reply {
    run_parsed(backend, parse_extend(rest)).await
}

fn parse_extend(rest: &str) -> Result<ClientCommand, Reply> {
    let (words, args) = parse_args("EXTENDCIRCUIT", rest, 1)?;
    let id = words.first().copied().unwrap_or_default();
    // A path that begins with `$` may contain `=`: the separator of the old form of LongName.
    let path = args.first().and_then(|first| match &first.value {
        None => Some(first.key.clone()),
        Some(value) if first.key.starts_with('$') => Some(format!("{}={value}", first.key)),
        Some(_) => None,
    });
    let controller = match keyword_value(&args, "purpose") {
        Some(text) => is_controller_purpose(text).ok_or_else(|| unknown_purpose(text))?,
        None => false,
    };
    let path: Option<Vec<String>> = path.map(|path| path.split(',').map(str::to_owned).collect());
    if id == "0" {
        let path = path.unwrap_or_default();
        return Ok(ClientCommand::NewCircuit { path, controller });
    }
    let circuit = circuit_id(id)?;
    match path {
        Some(path) => Ok(ClientCommand::ExtendCircuit { circuit, path }),
        None => Err(Reply::line(512, "syntax error: path required.")),
    }
}

/// Handles SETCIRCUITPURPOSE.
pub(super) async fn set_purpose<B: Backend>(backend: &B, rest: &str) -> Reply {
    let parse = || {
        let (words, args) = parse_args("SETCIRCUITPURPOSE", rest, 1)?;
        let circuit = circuit_id(words.first().copied().unwrap_or_default())?;
        let Some(text) = keyword_value(&args, "purpose") else {
            return Err(Reply::line(552, "No purpose given"));
        };
        let controller = is_controller_purpose(text).ok_or_else(|| unknown_purpose(text))?;
        Ok(ClientCommand::SetPurpose {
            circuit,
            controller,
        })
    };
    run_parsed(backend, parse()).await
}

/// Handles CLOSECIRCUIT.
pub(super) async fn close_circuit<B: Backend>(backend: &B, rest: &str) -> Reply {
    let parse = || {
        let (words, args) = parse_args("CLOSECIRCUIT", rest, 1)?;
        Ok(ClientCommand::CloseCircuit {
            circuit: circuit_id(words.first().copied().unwrap_or_default())?,
            if_unused: has_keyword(&args, "IfUnused"),
        })
    };
    run_parsed(backend, parse()).await
}

/// Handles ATTACHSTREAM.
pub(super) async fn attach_stream<B: Backend>(backend: &B, rest: &str) -> Reply {
    let parse = || {
        let (words, args) = parse_args("ATTACHSTREAM", rest, 2)?;
        let word = |index: usize| words.get(index).copied().unwrap_or_default();
        if let Some(other) = args.iter().find(|arg| !arg.key.eq_ignore_ascii_case("HOP")) {
            let text = format!(
                "Bad arguments to ATTACHSTREAM: Unrecognized keyword argument \"{}\"",
                other.key
            );
            return Err(Reply::line(512, text));
        }
        let stream = stream_id(word(0))?;
        let circuit = match word(1) {
            "0" => None,
            id => Some(circuit_id(id)?),
        };
        let hop = match keyword_value(&args, "HOP").filter(|_| circuit.is_some()) {
            None => None,
            Some(text) => match text.parse() {
                Ok(0) => None,
                Ok(hop) => Some(hop),
                Err(_) => return Err(Reply::line(552, format!("Bad value hop={text}"))),
            },
        };
        Ok(ClientCommand::AttachStream {
            stream,
            circuit,
            hop,
        })
    };
    run_parsed(backend, parse()).await
}

/// Handles REDIRECTSTREAM.
pub(super) async fn redirect_stream<B: Backend>(backend: &B, rest: &str) -> Reply {
    let parse = || {
        let words = positional_args(rest);
        let [id, host, more @ ..] = &words[..] else {
            return Err(wrong_number("REDIRECTSTREAM", words.len(), 2, 3));
        };
        let stream = stream_id(id)?;
        let port = match more.first() {
            None => None,
            Some(text) => match text.parse() {
                Ok(port) if port != 0 => Some(port),
                _ => return Err(Reply::line(512, format!("Cannot parse port \"{text}\""))),
            },
        };
        Ok(ClientCommand::RedirectStream {
            stream,
            host: (*host).to_owned(),
            port,
        })
    };
    run_parsed(backend, parse()).await
}

/// Handles CLOSESTREAM.
pub(super) async fn close_stream<B: Backend>(backend: &B, rest: &str) -> Reply {
    let parse = || {
        let words = positional_args(rest);
        let [id, reason, ..] = &words[..] else {
            return Err(wrong_number("CLOSESTREAM", words.len(), 2, 2));
        };
        let stream = stream_id(id)?;
        match reason.parse() {
            Ok(reason) => Ok(ClientCommand::CloseStream { stream, reason }),
            Err(_) => Err(Reply::line(
                552,
                format!("Unrecognized reason \"{reason}\""),
            )),
        }
    };
    run_parsed(backend, parse()).await
}

/// Handles MAPADDRESS.
pub(super) async fn map_addresses<B: Backend>(backend: &B, rest: &str) -> Reply {
    let Some(args) = keyword_args(rest) else {
        return unparsable("MAPADDRESS");
    };
    // A line that cannot be read maps nothing.
    let all: Option<Vec<_>> = args
        .into_iter()
        .map(|arg| Some((arg.key, arg.value?)))
        .collect();
    let Some(all) = all else {
        return unparsable("MAPADDRESS");
    };
    let mut reply = Reply::default();
    for (key, to) in all {
        let host = to.strip_prefix("*.").unwrap_or(&to);
        if weft_apps::clean_host(host).is_none() {
            reply.add(512, format!("syntax error: invalid address '{to}'"));
            continue;
        }
        let wanted = ClientCommand::MapAddress {
            from: key.clone(),
            to: to.clone(),
        };
        match backend.run_command(wanted).await {
            Ok(CommandOutput::MappedName(from)) => reply.add(250, format!("{from}={to}")),
            Ok(_) => reply.add(250, format!("{key}={to}")),
            Err(_) if ANY_ADDRESS.contains(&key.as_str()) => {
                reply.add(451, format!("resource exhausted: skipping '{key}={to}'"))
            }
            Err(failed) => reply.add(
                512,
                format!(
                    "syntax error: invalid address mapping '{key}={to}': {}",
                    failed.text
                ),
            ),
        }
    }
    if reply.is_empty() {
        let text = "syntax error: not enough arguments to mapaddress.";
        return Reply::line(512, text);
    }
    reply
}
