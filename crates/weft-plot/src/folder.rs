//! A folder for the results of one experiment or simulation.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::figure::Drawn;
use crate::flame::FlameGraph;
use crate::model::Figure;
use crate::render::{pdf, png};
use crate::style::Style;
use crate::write::write_whole;

/// Suffix of the file with a plot's data: all that is needed to draw it again, as JSON.
pub const KEPT: &str = ".figure.json";
/// Suffix of the file with the caption of a plot for a paper.
pub const CAPTION: &str = ".caption.txt";

/// All that a plot is drawn of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlotData {
    /// Axes.
    Figure(Figure),
    /// Stacks.
    FlameGraph(FlameGraph),
}

impl PlotData {
    /// Reads what [`Folder::plot`] kept.
    ///
    /// # Errors
    ///
    /// It is something else.
    pub fn parse(json: &[u8]) -> Result<PlotData> {
        serde_json::from_slice(json).context("it is no plot's data")
    }

    /// The plot, as [`Figure::draw`] and [`FlameGraph::draw`] draw it.
    ///
    /// # Errors
    ///
    /// As these.
    pub fn draw(&self, style: Style) -> Result<Drawn> {
        match self {
            PlotData::Figure(figure) => figure.draw(style),
            PlotData::FlameGraph(graph) => graph.draw(style),
        }
    }
}

/// A folder with results. A new one that is still empty when this is dropped is removed.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    is_new: bool,
    style: Style,
}

/// Folders that begin in one second, at most.
const NAMES: u32 = 100;

impl Folder {
    /// Makes a new one. To be called before the work, which would otherwise be done for nothing.
    ///
    /// # Errors
    ///
    /// It is there already (results are never overwritten), or cannot be made.
    pub fn create(path: &Path) -> Result<Folder> {
        fs::create_dir(path).with_context(|| {
            format!(
                "cannot make a new folder {} for the results (nothing is overwritten: name another by --out)",
                path.display()
            )
        })?;
        Ok(Folder::at(path, true))
    }

    /// Makes a new folder with this name or, where another run of the same second has taken it,
    /// with `NAME-2`, `NAME-3` and so on.
    ///
    /// # Errors
    ///
    /// It cannot be made.
    pub fn create_free(parent: &Path, name: &str) -> Result<Folder> {
        let names = (2..=NAMES).map(|number| format!("{name}-{number}"));
        for name in [name.to_owned()].into_iter().chain(names) {
            let path = parent.join(name);
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Folder::at(&path, true)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(_) => break,
            }
        }
        Folder::create(&parent.join(name))
    }

    /// One that is there, to be added to.
    ///
    /// # Errors
    ///
    /// It is not there.
    pub fn existing(path: &Path) -> Result<Folder> {
        ensure!(path.is_dir(), "there is no folder {}", path.display());
        Ok(Folder::at(path, false))
    }

    fn at(path: &Path, is_new: bool) -> Folder {
        Folder {
            path: path.to_owned(),
            is_new,
            style: Style::default(),
        }
    }

    /// Sets the style of the plots.
    #[must_use]
    pub fn with_style(mut self, style: Style) -> Folder {
        self.style = style;
        self
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the content of a file. The file is complete at every moment.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> Result<()> {
        write_whole(&self.path.join(name), content)
    }

    /// Draws a plot as SVG and PNG, and keeps its data; for a paper also as PDF and with its caption. The result is the SVG's
    /// path.
    ///
    /// # Errors
    ///
    /// It cannot be drawn, or the system refuses.
    pub fn plot(&self, name: &str, figure: &Figure) -> Result<PathBuf> {
        self.draw(name, &PlotData::Figure(figure.clone()))
    }

    /// Draws a flame graph.
    ///
    /// # Errors
    ///
    /// As [`Folder::plot`].
    pub fn flame_graph(&self, name: &str, graph: &FlameGraph) -> Result<PathBuf> {
        self.draw(name, &PlotData::FlameGraph(graph.clone()))
    }

    /// Draws a plot again from the data of an earlier one, which may come from anywhere.
    ///
    /// # Errors
    ///
    /// They are not data of a plot, or as [`Folder::plot`].
    pub fn plot_again(&self, name: &str, data: &[u8]) -> Result<PathBuf> {
        self.draw(name, &PlotData::parse(data)?)
    }

    fn draw(&self, name: &str, data: &PlotData) -> Result<PathBuf> {
        let drawing = || format!("drawing {}", self.path.join(name).display());
        let style = self.style;
        let Drawn { svg, caption } = data.draw(style).with_context(drawing)?;
        let path = self.path.join(format!("{name}.svg"));
        write_whole(&path, &svg)?;
        self.write(
            &format!("{name}.png"),
            png(&svg, style).with_context(drawing)?,
        )?;
        let (print, words) = (format!("{name}.pdf"), format!("{name}{CAPTION}"));
        if style.is_paper() {
            self.write(&print, pdf(&svg).with_context(drawing)?)?;
            self.write(&words, caption)?;
        } else {
            // Files of an earlier drawing for a paper do not belong to this one.
            self.remove(&print)?;
            self.remove(&words)?;
        }
        let json = serde_json::to_string(data).context("writing JSON")? + "\n";
        self.write(&format!("{name}{KEPT}"), json)?;
        Ok(path)
    }

    fn remove(&self, name: &str) -> Result<()> {
        let path = self.path.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).with_context(|| format!("removing {}", path.display()))
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.is_new {
            // Fails if anything is in it.
            let _ = fs::remove_dir(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_folder_stays_only_with_something_in_it() {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join("results");
        drop(Folder::create(&path).expect("a new one"));
        assert!(!path.exists());
        let folder = Folder::create(&path).expect("a new one");
        folder.write("a.csv", "1\n").expect("written");
        folder.write("a.csv", "2\n").expect("written again");
        drop(folder);
        let names: Vec<_> = fs::read_dir(&path)
            .expect("it is there")
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        assert_eq!(names, ["a.csv"]);
        assert_eq!(fs::read_to_string(path.join("a.csv")).expect("text"), "2\n");
    }

    #[test]
    fn runs_of_one_second_have_folders_of_their_own() {
        let place = tempfile::tempdir().expect("a folder");
        let folders = ["run", "run-2", "run-3"].map(|name| {
            let folder = Folder::create_free(place.path(), "run").expect("a new one");
            assert_eq!(folder.path(), place.path().join(name));
            folder
        });
        drop(folders);
        let error = Folder::create_free(&place.path().join("none"), "run").expect_err("no place");
        assert!(format!("{error:#}").contains("cannot make"), "{error:#}");
    }

    #[test]
    fn what_is_there_is_left_alone() {
        let place = tempfile::tempdir().expect("a folder");
        let error = Folder::create(place.path()).expect_err("it is there");
        assert!(
            format!("{error:#}").contains("nothing is overwritten"),
            "{error:#}"
        );
        drop(Folder::existing(place.path()).expect("it is there"));
        assert!(place.path().exists());
        assert!(Folder::existing(&place.path().join("none")).is_err());
    }
}
