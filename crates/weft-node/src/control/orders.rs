//! Commands about circuits, streams and addresses (control-spec 3.10 to 3.17).

use super::backend::{Backend, Done, Order};
use super::reply::Reply;
use super::session::{arguments, unparsable, wrong_number};
use super::words::{flag, key_values, value, words};

/// Names that stand for anything, until one is chosen (control-spec 3.8).
const CHOOSE: [&str; 3] = [".", "0.0.0.0", "::"];

/// Carries out an order.
pub(super) async fn order<B: Backend>(backend: &B, order: Order) -> Reply {
    match backend.order(order).await {
        Ok(Done::Done | Done::Name(_)) => Reply::ok(),
        Ok(Done::Circuit(circuit)) => Reply::line(250, format!("EXTENDED {circuit}")),
        Err(failed) => Reply::line(failed.code, failed.text),
    }
}

fn circuit(text: &str) -> Result<u64, Reply> {
    text.parse()
        .map_err(|_| Reply::line(552, format!("Unknown circuit \"{text}\"")))
}

fn stream(text: &str) -> Result<u64, Reply> {
    text.parse()
        .map_err(|_| Reply::line(552, format!("Unknown stream \"{text}\"")))
}

/// Whether a purpose is the controller's; `None`: there is no such purpose.
fn purpose(text: &str) -> Option<bool> {
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

async fn carry_out<B: Backend>(backend: &B, parsed: Result<Order, Reply>) -> Reply {
    match parsed {
        Ok(parsed) => order(backend, parsed).await,
        Err(reply) => reply,
    }
}

/// EXTENDCIRCUIT.
pub(super) async fn extend_circuit<B: Backend>(backend: &B, rest: &str) -> Reply {
    carry_out(backend, parse_extend(rest)).await
}

fn parse_extend(rest: &str) -> Result<Order, Reply> {
    let (words, args) = arguments("EXTENDCIRCUIT", rest, 1)?;
    let id = words.first().copied().unwrap_or_default();
    // The path may hold an equals sign, of an old form of names.
    let path = args.first().and_then(|first| match &first.value {
        None => Some(first.key.clone()),
        Some(value) if first.key.starts_with('$') => Some(format!("{}={value}", first.key)),
        Some(_) => None,
    });
    let controller = match value(&args, "purpose") {
        Some(text) => purpose(text).ok_or_else(|| unknown_purpose(text))?,
        None => false,
    };
    let path: Option<Vec<String>> = path.map(|path| path.split(',').map(str::to_owned).collect());
    if id == "0" {
        let path = path.unwrap_or_default();
        return Ok(Order::NewCircuit { path, controller });
    }
    let circuit = circuit(id)?;
    match path {
        Some(path) => Ok(Order::ExtendCircuit { circuit, path }),
        None => Err(Reply::line(512, "syntax error: path required.")),
    }
}

/// SETCIRCUITPURPOSE.
pub(super) async fn set_purpose<B: Backend>(backend: &B, rest: &str) -> Reply {
    let parse = || {
        let (words, args) = arguments("SETCIRCUITPURPOSE", rest, 1)?;
        let circuit = circuit(words.first().copied().unwrap_or_default())?;
        let Some(text) = value(&args, "purpose") else {
            return Err(Reply::line(552, "No purpose given"));
        };
        let controller = purpose(text).ok_or_else(|| unknown_purpose(text))?;
        Ok(Order::SetPurpose {
            circuit,
            controller,
        })
    };
    carry_out(backend, parse()).await
}

/// CLOSECIRCUIT.
pub(super) async fn close_circuit<B: Backend>(backend: &B, rest: &str) -> Reply {
    let parse = || {
        let (words, args) = arguments("CLOSECIRCUIT", rest, 1)?;
        Ok(Order::CloseCircuit {
            circuit: circuit(words.first().copied().unwrap_or_default())?,
            if_unused: flag(&args, "IfUnused"),
        })
    };
    carry_out(backend, parse()).await
}

/// ATTACHSTREAM.
pub(super) async fn attach_stream<B: Backend>(backend: &B, rest: &str) -> Reply {
    let parse = || {
        let (words, args) = arguments("ATTACHSTREAM", rest, 2)?;
        let word = |index: usize| words.get(index).copied().unwrap_or_default();
        if let Some(other) = args.iter().find(|arg| !arg.key.eq_ignore_ascii_case("HOP")) {
            let text = format!(
                "Bad arguments to ATTACHSTREAM: Unrecognized keyword argument \"{}\"",
                other.key
            );
            return Err(Reply::line(512, text));
        }
        let stream = stream(word(0))?;
        let circuit = match word(1) {
            "0" => None,
            id => Some(circuit(id)?),
        };
        let hop = match value(&args, "HOP").filter(|_| circuit.is_some()) {
            None => None,
            Some(text) => match text.parse() {
                Ok(0) => None,
                Ok(hop) => Some(hop),
                Err(_) => return Err(Reply::line(552, format!("Bad value hop={text}"))),
            },
        };
        Ok(Order::AttachStream {
            stream,
            circuit,
            hop,
        })
    };
    carry_out(backend, parse()).await
}

/// REDIRECTSTREAM.
pub(super) async fn redirect_stream<B: Backend>(backend: &B, rest: &str) -> Reply {
    let parse = || {
        let words = words(rest);
        let [id, host, more @ ..] = &words[..] else {
            return Err(wrong_number("REDIRECTSTREAM", words.len(), 2, 3));
        };
        let stream = stream(id)?;
        let port = match more.first() {
            None => None,
            Some(text) => match text.parse() {
                Ok(port) if port != 0 => Some(port),
                _ => return Err(Reply::line(512, format!("Cannot parse port \"{text}\""))),
            },
        };
        Ok(Order::RedirectStream {
            stream,
            host: (*host).to_owned(),
            port,
        })
    };
    carry_out(backend, parse()).await
}

/// CLOSESTREAM.
pub(super) async fn close_stream<B: Backend>(backend: &B, rest: &str) -> Reply {
    let parse = || {
        let words = words(rest);
        let [id, reason, ..] = &words[..] else {
            return Err(wrong_number("CLOSESTREAM", words.len(), 2, 2));
        };
        let stream = stream(id)?;
        match reason.parse() {
            Ok(reason) => Ok(Order::CloseStream { stream, reason }),
            Err(_) => Err(Reply::line(
                552,
                format!("Unrecognized reason \"{reason}\""),
            )),
        }
    };
    carry_out(backend, parse()).await
}

/// MAPADDRESS.
pub(super) async fn map_addresses<B: Backend>(backend: &B, rest: &str) -> Reply {
    let Some(args) = key_values(rest) else {
        return unparsable("MAPADDRESS");
    };
    let mut reply = Reply::default();
    for arg in args {
        let Some(to) = arg.value else {
            return unparsable("MAPADDRESS");
        };
        let host = to.strip_prefix("*.").unwrap_or(&to);
        if crate::apps::destination::clean_host(host).is_none() {
            reply.add(512, format!("syntax error: invalid address '{to}'"));
            continue;
        }
        let wanted = Order::MapAddress {
            from: arg.key.clone(),
            to: to.clone(),
        };
        match backend.order(wanted).await {
            Ok(Done::Name(from)) => reply.add(250, format!("{from}={to}")),
            Ok(_) => reply.add(250, format!("{}={to}", arg.key)),
            Err(_) if CHOOSE.contains(&arg.key.as_str()) => reply.add(
                451,
                format!("resource exhausted: skipping '{}={to}'", arg.key),
            ),
            Err(failed) => reply.add(
                512,
                format!(
                    "syntax error: invalid address mapping '{}={to}': {}",
                    arg.key, failed.text
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
