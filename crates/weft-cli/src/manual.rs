//! Manual pages: those of clap's commands, and how pages are printed and written.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::Command;
use clap_mangen::Man;

use crate::print::print;

/// Page to print, or folder to write pages to.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The page, such as weft-lab-up [default: the first of all].
    #[arg(conflicts_with = "dir")]
    page: Option<String>,
    /// Write every page into this folder, which is made if need be.
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

impl Args {
    /// The page that is asked for by name.
    #[must_use]
    pub fn page(&self) -> Option<&str> {
        self.page.as_deref()
    }
}

/// A manual page.
#[derive(Clone, Debug)]
pub struct Page {
    /// As `man` takes it.
    pub name: String,
    /// In the language of roff.
    pub text: String,
}

/// The book that pages belong to.
pub const MANUAL: &str = "Weft";
/// When this version was made: not when the page is, so that the page is the same each time.
pub const DATE: &str = "2026-11-25";
/// Source of the pages, for their footer.
pub const SOURCE: &str = concat!("weft ", env!("CARGO_PKG_VERSION"));

/// Prints the page that was asked for, the first of these by default, or writes all of them.
///
/// # Errors
///
/// There is no such page, or it cannot be written.
pub fn man(args: &Args, pages: &[Page]) -> Result<ExitCode> {
    if let Some(folder) = &args.dir {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("creating {}", folder.display()))?;
        for page in pages {
            let path = folder.join(format!("{}.1", page.name));
            std::fs::write(&path, &page.text)
                .with_context(|| format!("writing {}", path.display()))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let asked = match &args.page {
        Some(name) => pages.iter().find(|page| page.name == *name),
        None => pages.first(),
    };
    let Some(page) = asked else {
        let names: Vec<&str> = pages.iter().map(|page| page.name.as_str()).collect();
        bail!(
            "there is no page {}; there are {}",
            args.page.as_deref().unwrap_or_default(),
            names.join(", ")
        );
    };
    print(&page.text)?;
    Ok(ExitCode::SUCCESS)
}

/// The page of a command of `weft`, and those of the commands below it.
///
/// # Errors
///
/// A page is not valid UTF-8.
pub fn pages(command: Command) -> Result<Vec<Page>> {
    let name = command.get_name();
    let (page, words) = (format!("weft-{name}"), format!("weft {name}"));
    let mut command = command.bin_name(words).disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    pages_of(command, page, &mut pages)?;
    Ok(pages)
}

fn pages_of(command: Command, name: String, pages: &mut Vec<Page>) -> Result<()> {
    let below: Vec<Command> = command.get_subcommands().cloned().collect();
    let mut text = Vec::new();
    Man::new(command.display_name(name.clone()))
        .title(name.clone())
        .date(DATE)
        .source(SOURCE)
        .manual(MANUAL)
        .render(&mut text)?;
    // An empty line between two breaks is what mandoc warns of.
    let text = String::from_utf8(text)?.replace("\n.br\n\n.br\n", "\n.sp\n");
    pages.push(Page {
        name: name.clone(),
        text,
    });
    for command in below {
        let name = format!("{name}-{}", command.get_name());
        pages_of(command, name, pages)?;
    }
    Ok(())
}
