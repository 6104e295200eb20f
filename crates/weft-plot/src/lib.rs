//! Plots of measurements: bars and lines with whiskers, curves, pies and flame graphs, as SVG, PNG and PDF, for screens and for
//! papers ([`Style`]). Nothing needs to be installed for any of them.
//!
//! A [`Figure`] has panels. Most have groups along their horizontal axis and one value of each
//! series in each group, also as pies; some have curves over numbers instead. Colours are those of
//! Okabe and Ito, which people with any colour vision can distinguish. Series of lines also have
//! different markers.

mod axis;
mod canvas;
mod check;
mod figure;
mod flame;
mod folder;
mod legend;
mod model;
mod panel;
mod pie;
mod place;
mod render;
mod sheet;
mod style;
#[cfg(test)]
mod tests;
mod text;
mod write;

pub use figure::Drawn;
pub use flame::FlameGraph;
pub use folder::{CAPTION, Folder, KEPT, PlotData};
pub use model::{Curve, Figure, Group, Kind, Look, Panel, Scale, Series, Value, Whiskers};
pub use style::Style;
pub use write::write_whole;
