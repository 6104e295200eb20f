//! The sizes of a figure's parts, by its style.

use crate::style::Style;

/// Sizes of a figure's parts, in units of the layout.
pub(crate) struct Sheet {
    pub(crate) style: Style,
    pub(crate) width: f64,
    pub(crate) margin: f64,
    /// Margin of panels.
    pub(crate) edge: f64,
    /// Of panels.
    pub(crate) height: f64,
    /// Panels in a row at most.
    pub(crate) columns: usize,
    /// Letters of the legend.
    pub(crate) legend: f64,
    /// Letters of a panel's title.
    pub(crate) title: f64,
    /// Letters on bars.
    pub(crate) number: f64,
    /// Lines of series.
    pub(crate) stroke: f64,
    /// A marker's radius.
    pub(crate) marker: f64,
}

/// Least width of a panel: room for its axis and its numbers.
const NARROWEST: f64 = 300.0;

impl Sheet {
    pub(crate) fn of(style: Style, columns: usize) -> Sheet {
        let width = style.width();
        match style {
            Style::Screen => Sheet {
                style,
                width,
                margin: 24.0,
                edge: 16.0,
                height: 300.0,
                columns,
                legend: 13.0,
                title: 14.0,
                number: 11.0,
                stroke: 2.0,
                marker: 5.0,
            },
            Style::Paper { .. } => {
                let columns = columns.clamp(1, ((width / NARROWEST) as usize).max(1));
                Sheet {
                    style,
                    width,
                    margin: 2.0,
                    edge: 0.0,
                    height: (width / columns as f64 * 0.62).clamp(170.0, 300.0),
                    columns,
                    legend: 12.0,
                    title: 12.0,
                    number: 10.0,
                    stroke: 1.5,
                    marker: 3.5,
                }
            }
        }
    }

    pub(crate) fn panel_width(&self) -> f64 {
        (self.width - 2.0 * self.edge) / self.columns as f64
    }
}
