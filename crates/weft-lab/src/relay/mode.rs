//! Measured quantities, and the direction of cells.

use clap::ValueEnum;

/// Measured quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Cells on circuits that are there.
    Cells,
    /// The making of circuits.
    Onionskins,
    /// The opening of links.
    Links,
    /// Memory of links on which nothing happens.
    IdleLinks,
    /// Memory of circuits on which nothing happens.
    IdleCircuits,
}

impl Mode {
    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Cells => "cells",
            Mode::Onionskins => "onionskins",
            Mode::Links => "links",
            Mode::IdleLinks => "idle-links",
            Mode::IdleCircuits => "idle-circuits",
        }
    }
}

/// Direction of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Direction {
    /// From the origin to the next hop: the target removes a layer.
    #[value(alias = "up")]
    Upload,
    /// From the next hop to the origin: the target adds a layer.
    #[value(alias = "down")]
    Download,
    /// Both at once.
    Both,
}

impl Direction {
    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Direction::Upload => "upload",
            Direction::Download => "download",
            Direction::Both => "both",
        }
    }
}
