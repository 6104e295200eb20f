//! `weft doctor`: what works and what does not, for people, scripts and containers.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::Result;
use clap::{Parser, ValueEnum};
use weft_config::CommandLine;
use weft_node::doctor::{Finding, Scope, Verdict, examine};
use weft_node::process::host::SystemHost;
use weft_node::process::user;

use weft_cli::args::{self, Asked};
use weft_cli::print::print;

/// Says what works of a node and what does not: its torrc, files, ports, clock, place in the consensus, guards.
///
/// It changes nothing and runs beside the node, as the node's user or as root; root becomes the node's user first, or the
/// owner of DataDirectory where torrc has no User. Authorities are asked for the time, guards, bridges and the relay's own
/// address whether they answer; with UseBridges and on a bridge no authority is asked, and with DisableNetwork nothing is. A
/// ControlPort or ControlSocket with CookieAuthentication lets it ask the running node, too. The exit status is 1 if something is
/// bad, and 0 if all is good, unknown or worth a look.
#[derive(Debug, Parser)]
#[command(name = "weft doctor", bin_name = "weft doctor")]
pub(crate) struct DoctorArgs {
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Ask this machine alone, and look up no host name of Address.
    #[arg(long)]
    offline: bool,
    /// The words with which the node is started: -f FILE, --defaults-torrc FILE, --OPTION VALUE.
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "NODE'S WORDS"
    )]
    words: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Lines for people.
    Text,
    /// One object, for programs.
    Json,
}

/// Does what the words after `weft` ask for, `doctor` being the first.
pub(crate) fn main(words: impl Iterator<Item = OsString>) -> Result<ExitCode> {
    let args = match args::read::<DoctorArgs>(args::own_first::<DoctorArgs>(words))? {
        Ok(Asked { args, .. }) => args,
        Err(status) => return Ok(status),
    };
    let scope = Scope {
        network: !args.offline,
    };
    let nodes = examined(args.words, scope);
    let worst = nodes.iter().flat_map(|node| &node.findings);
    let worst = worst.map(|finding| finding.verdict).max();
    print(match args.format {
        Format::Text => text(&nodes),
        Format::Json => json(&nodes, worst)?,
    })?;
    Ok(match worst {
        Some(Verdict::Bad) => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    })
}

/// One identity, and the findings about it.
struct Node {
    torrc: String,
    findings: Vec<Finding>,
}

fn finding(verdict: Verdict, text: String, advice: Option<&str>) -> Finding {
    Finding {
        about: "torrc",
        verdict,
        text,
        advice: advice.map(str::to_owned),
    }
}

/// Examines each identity that these words start.
fn examined(words: Vec<OsString>, scope: Scope) -> Vec<Node> {
    let unread = |torrc: String, why: String| {
        let advice = Some("correct it; `weft --verify-config` reads it as a start does");
        vec![Node {
            torrc,
            findings: vec![finding(Verdict::Bad, why, advice)],
        }]
    };
    let command_line = match CommandLine::parse(words) {
        Ok(command_line) => command_line,
        Err(report) => return unread("command line".to_owned(), report.to_string()),
    };
    let all = match weft_config::load_all(&command_line, &SystemHost::new()) {
        Ok(all) => all,
        Err(report) => return unread(command_line.torrc_name(), report.to_string()),
    };
    let lines = command_line.identities();
    let names = lines.iter().map(CommandLine::torrc_name);
    names
        .zip(all)
        .map(|(torrc, loaded)| {
            let warnings: Vec<String> = loaded.report.warnings().collect();
            let read = match warnings.as_slice() {
                [] => finding(
                    Verdict::Good,
                    format!("{torrc} is read, without a complaint"),
                    None,
                ),
                all => finding(
                    Verdict::Warning,
                    format!("{torrc}: {}", all.join("; ")),
                    None,
                ),
            };
            let mut findings = vec![read];
            // Only files that the node's user may read count.
            match user::become_configured(&loaded.options) {
                Ok(()) => findings.extend(examine(&loaded.options, scope, SystemTime::now())),
                Err(why) => findings.push(finding(Verdict::Bad, why.to_string(), None)),
            }
            Node { torrc, findings }
        })
        .collect()
}

/// A line for each finding, with its advice below.
fn text(nodes: &[Node]) -> String {
    let mut out = String::new();
    for node in nodes {
        if nodes.len() > 1 {
            out += &format!("{}:\n", node.torrc);
        }
        for finding in &node.findings {
            let mark = match finding.verdict {
                Verdict::Good => "ok     ",
                Verdict::Unknown => "?      ",
                Verdict::Warning => "look   ",
                Verdict::Bad => "BAD    ",
            };
            let text = finding.text.replace('\n', "\n                      ");
            out += &format!("{mark} {:<13} {text}\n", finding.about);
            if let Some(advice) = &finding.advice {
                out += &format!("                      -> {advice}\n");
            }
        }
    }
    out
}

fn json(nodes: &[Node], worst: Option<Verdict>) -> Result<String> {
    let finding = |finding: &Finding| {
        serde_json::json!({
            "about": finding.about,
            "verdict": finding.verdict.to_string(),
            "text": finding.text,
            "advice": finding.advice,
        })
    };
    let nodes = nodes.iter().map(|node| {
        serde_json::json!({
            "torrc": node.torrc,
            "findings": node.findings.iter().map(finding).collect::<Vec<_>>(),
        })
    });
    let all = serde_json::json!({
        "verdict": worst.unwrap_or(Verdict::Unknown).to_string(),
        "nodes": nodes.collect::<Vec<_>>(),
    });
    Ok(serde_json::to_string_pretty(&all)? + "\n")
}
