//! The tables of `weft lab hops`: one line for each role, and the paper's Tables 1 and 2 of the functions of a group.

use std::fmt;

use super::group::Group;
use super::results::{Bar, Results, Role, many};
use crate::report::{Metric, Table, Values};

/// Functions of a group that a table shows.
const FUNCTIONS: usize = 8;

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:>4} {:>8} {:>3} {:<7} {:>8} {:>9} {:>8} {:>10} {:>6} {:>7} {:>8}",
            "hops",
            "circuits",
            "cc",
            "role",
            "Mbit/s",
            "CPU s/GB",
            "crypto",
            "networking",
            "other",
            "kernel",
            "samples"
        )?;
        for role in &self.roles {
            writeln!(
                f,
                "{:>4} {:>8} {:>3} {:<7} {:>8.0} {:>9.2} {:>6.0} % {:>8.0} % {:>4.0} % {:>5.0} % {:>8}",
                role.hops,
                role.circuits,
                control(role.congestion_control),
                role.role,
                role.mbit,
                role.cpu_s_per_gb,
                role.crypto * 100.0,
                role.networking * 100.0,
                role.other * 100.0,
                role.kernel * 100.0,
                role.samples
            )?;
        }
        for group in [Group::Crypto, Group::Networking] {
            functions(f, group, &self.columns())?;
        }
        self.stages(f)?;
        if let Some(tunnels) = &self.tunnels {
            writeln!(f, "\n{}", tunnels.versions)?;
            for one in &tunnels.roles {
                writeln!(
                    f,
                    "{:>4} {:>8} {:>3} {:<7} {:>8.0} {:>9.2}",
                    one.hops, one.circuits, "", one.role, one.mbit, one.cpu_s_per_gb
                )?;
            }
        }
        if let Some(why) = &self.tunnels_missing {
            writeln!(f, "\npy-ipv8 was not measured: {why}")?;
        }
        writeln!(f)?;
        for bar in &self.bars {
            writeln!(f, "{}", in_words(bar))?;
        }
        if !self.finished {
            writeln!(f, "partial: it ended before everything was measured")?;
        }
        Ok(())
    }
}

fn in_words(bar: &Bar) -> String {
    format!(
        "{}: {:.2}, bar {}: {}",
        bar.what,
        bar.found,
        bar.at_least,
        if bar.met { "met" } else { "missed" }
    )
}

/// Congestion control of circuits, as tables show it.
fn control(on: Option<bool>) -> &'static str {
    match on {
        Some(true) => "on",
        Some(false) => "off",
        None => "-",
    }
}

impl Results {
    /// Table of the cells that each step of the nodes' threads handles at once.
    fn stages(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.roles.iter().all(|one| one.stages.is_none()) {
            return Ok(());
        }
        writeln!(
            f,
            "\n{:>4} {:>8} {:>3} {:<7} {:>15} {:>14} {:>16} {:>15}",
            "hops",
            "circuits",
            "cc",
            "role",
            "cells per read",
            "scheduler run",
            "write to a link",
            "thread's turn"
        )?;
        for role in &self.roles {
            let Some(stages) = role.stages else {
                continue;
            };
            let number = |number: Option<f64>| {
                number.map_or_else(|| "-".to_owned(), |number| format!("{number:.1}"))
            };
            writeln!(
                f,
                "{:>4} {:>8} {:>3} {:<7} {:>15} {:>14} {:>16} {:>15}",
                role.hops,
                role.circuits,
                control(role.congestion_control),
                role.role,
                number(stages.cells_per_read),
                number(stages.cells_per_run),
                number(stages.cells_per_write),
                number(stages.cells_per_turn),
            )?;
        }
        Ok(())
    }

    /// A row for each role, and for each of the tunnels'.
    pub(super) fn report_tables(&self) -> Vec<Table> {
        let metrics = [
            Metric::more("throughput", "Mbit/s"),
            Metric::less("CPU time", "s/GB"),
            Metric::plain("crypto", "%"),
            Metric::plain("networking", "%"),
            Metric::plain("other", "%"),
        ];
        let note = "The role lab is the experiment itself: seeder, sink and load generators.";
        let keys = ["hops", "circuits", "congestion control", "role"];
        let mut roles = Table::new("Roles", keys, metrics).note(note);
        for role in &self.roles {
            let share = |group| Values::samples([role.share(group) * 100.0]);
            roles.push(
                [
                    role.hops.to_string(),
                    role.circuits.to_string(),
                    control(role.congestion_control).to_owned(),
                    role.role.to_owned(),
                ],
                [
                    Values::samples(role.measured.iter().map(|one| one.1)),
                    Values::samples(role.measured.iter().map(|one| one.0)),
                    share(Group::Crypto),
                    share(Group::Networking),
                    share(Group::Other),
                ],
            );
        }
        [Some(roles), self.stages_table(), self.tunnels_table()]
            .into_iter()
            .flatten()
            .collect()
    }

    fn stages_table(&self) -> Option<Table> {
        let metrics = [
            Metric::plain("one read", "cells"),
            Metric::plain("one scheduler run", "cells"),
            Metric::plain("one write to a link", "cells"),
            Metric::plain("one turn", "cells"),
        ];
        let keys = ["hops", "circuits", "congestion control", "role"];
        let note =
            "By counters of the MetricsPort: how many cells a node's thread handles at once.";
        let mut table = Table::new("Stages", keys, metrics).note(note);
        for role in &self.roles {
            let Some(stages) = role.stages else {
                continue;
            };
            table.push(
                [
                    role.hops.to_string(),
                    role.circuits.to_string(),
                    control(role.congestion_control).to_owned(),
                    role.role.to_owned(),
                ],
                [
                    Values::samples(stages.cells_per_read),
                    Values::samples(stages.cells_per_run),
                    Values::samples(stages.cells_per_write),
                    Values::samples(stages.cells_per_turn),
                ],
            );
        }
        (!table.rows.is_empty()).then_some(table)
    }

    fn tunnels_table(&self) -> Option<Table> {
        let tunnels = self.tunnels.as_ref()?;
        let metrics = [
            Metric::more("throughput", "Mbit/s"),
            Metric::less("CPU time", "s/GB"),
        ];
        let title = "Tunnels of py-ipv8";
        let mut table =
            Table::new(title, ["hops", "circuits", "role"], metrics).note(&tunnels.versions);
        for one in &tunnels.roles {
            table.push(
                [
                    one.hops.to_string(),
                    one.circuits.to_string(),
                    one.role.clone(),
                ],
                [
                    Values::samples(one.measured.iter().map(|one| one.1)),
                    Values::samples(one.measured.iter().map(|one| one.0)),
                ],
            );
        }
        Some(table)
    }

    /// The bars, and what was not measured.
    pub(super) fn notes_in_words(&self) -> Vec<String> {
        let missing = self.tunnels_missing.iter();
        let missing = missing.map(|why| format!("py-ipv8 was not measured: {why}"));
        self.bars.iter().map(in_words).chain(missing).collect()
    }

    /// The columns of the paper's tables: the nodes at the most hops, with the most circuits.
    fn columns(&self) -> Vec<&Role> {
        let nodes = || self.roles.iter().filter(|one| one.is_node());
        let key = |one: &Role| (one.hops, one.circuits, one.congestion_control);
        let most = nodes().map(key).max();
        nodes().filter(|one| Some(key(one)) == most).collect()
    }
}

/// A table of one group: the share of each function in each column.
fn functions(f: &mut fmt::Formatter<'_>, group: Group, columns: &[&Role]) -> fmt::Result {
    let Some(first) = columns.first() else {
        return Ok(());
    };
    write!(
        f,
        "\n{:<44}",
        format!(
            "{}, {}, {}",
            group.name(),
            many(first.hops, "hop"),
            many(first.circuits, "circuit")
        )
    )?;
    for column in columns {
        write!(f, " {:>8}", column.role)?;
    }
    writeln!(f)?;
    let mut names: Vec<(&str, f64)> = Vec::new();
    for column in columns {
        for one in column.top_functions.iter().filter(|one| one.group == group) {
            match names.iter_mut().find(|(name, _)| *name == one.name) {
                Some((_, most)) => *most = most.max(one.percent),
                None => names.push((&one.name, one.percent)),
            }
        }
    }
    names.sort_by(|one, other| other.1.total_cmp(&one.1));
    for (name, _) in names.iter().take(FUNCTIONS) {
        let tail: Vec<char> = name.chars().rev().take(42).collect();
        write!(f, "  {:<42}", tail.into_iter().rev().collect::<String>())?;
        for column in columns {
            let found = column.top_functions.iter().find(|one| one.name == *name);
            write!(f, " {:>8.2}", found.map_or(0.0, |one| one.percent / 100.0))?;
        }
        writeln!(f)?;
    }
    write!(f, "  {:<42}", "all of the group")?;
    for column in columns {
        write!(f, " {:>8.2}", column.share(group))?;
    }
    writeln!(f)
}
