//! Checks that a figure can be drawn.

use anyhow::{Result, ensure};

use crate::model::{Figure, Panel, Value};

/// The most panels of a figure that is drawn.
const PANELS: usize = 400;
/// The most series and curves of a figure that is drawn.
const SERIES: usize = 5000;
/// The most letters of each text of a figure that is drawn.
const LETTERS: usize = 10_000;

impl Figure {
    pub(crate) fn check(&self) -> Result<()> {
        ensure!(!self.panels.is_empty(), "it has no panels");
        ensure!(
            self.panels.len() <= PANELS,
            "it has {} panels; {PANELS} at most are drawn",
            self.panels.len()
        );
        let drawn = self.panels.iter();
        let drawn: usize = drawn.map(|one| one.series.len() + one.curves.len()).sum();
        ensure!(
            drawn <= SERIES,
            "it has {drawn} series and curves; {SERIES} at most are drawn"
        );
        let texts = self.footer.iter().chain([&self.title, &self.subtitle]);
        check_texts(texts)?;
        for panel in &self.panels {
            panel.check()?;
        }
        let values = self.panels.iter().flat_map(|panel| &panel.series);
        let mut values = values.flat_map(|one| one.values.iter().flatten());
        ensure!(
            self.whiskers.is_some() || values.all(|value| value.whisker.is_none()),
            "values have whiskers, and nothing states what these are"
        );
        Ok(())
    }
}

impl Panel {
    fn check(&self) -> Result<()> {
        let groups = self.groups.len();
        let title = &self.title;
        ensure!(
            self.series.iter().all(|one| one.values.len() == groups),
            "panel {title:?}: a value for each group, or none, is wanted"
        );
        let values = self.series.iter().flat_map(|one| &one.values);
        let values = values.flatten().flat_map(Value::numbers);
        let points = self.curves.iter().flat_map(|one| &one.points);
        let points = points.flat_map(|(x, y)| [*x, *y]);
        let mut numbers = values
            .chain(points)
            .chain(self.groups.iter().map(|group| group.at));
        ensure!(
            numbers.all(f64::is_finite),
            "panel {title:?}: a number is infinite or none"
        );
        let names = self.series.iter().map(|one| &one.name);
        let names = names.chain(self.curves.iter().map(|one| &one.name));
        let labels = self.groups.iter().map(|group| &group.label);
        check_texts([title, &self.x_label, &self.y_label])?;
        check_texts(names.chain(labels))
    }
}

fn check_texts<'a>(texts: impl IntoIterator<Item = &'a String>) -> Result<()> {
    let mut texts = texts.into_iter();
    ensure!(
        texts.all(|text| text.len() <= LETTERS),
        "a text has more than {LETTERS} bytes"
    );
    Ok(())
}
