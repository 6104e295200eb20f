//! A folder for the results of one experiment or simulation.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::{Figure, png};

/// A folder with results. A new one that is still empty when this is dropped is removed.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    is_new: bool,
    /// No PNG could be made, and standard error has the reason: once is enough.
    has_reported_png: Cell<bool>,
}

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
            has_reported_png: Cell::new(false),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file, in place of what it had. At every moment it is whole.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        let (beside, path) = (self.path.join(format!("{name}.new")), self.path.join(name));
        fs::write(&beside, text)
            .and_then(|()| fs::rename(&beside, &path))
            .with_context(|| format!("writing {}", path.display()))
    }

    /// Writes a plot as SVG, and as PNG where that can be made; where it cannot, standard error has the
    /// reason. The result is the SVG's path.
    ///
    /// # Errors
    ///
    /// There is nothing to be drawn, or the system refuses.
    pub fn plot(&self, name: &str, figure: &Figure) -> Result<PathBuf> {
        let svg = self.path.join(format!("{name}.svg"));
        self.write(&format!("{name}.svg"), &figure.svg()?)?;
        if !self.has_reported_png.get()
            && let Err(why) = png(&svg, &svg.with_extension("png"))
        {
            self.has_reported_png.set(true);
            eprintln!("weft: plots are SVG alone: {why:#}");
        }
        Ok(svg)
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
