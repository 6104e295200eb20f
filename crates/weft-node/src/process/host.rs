//! The system as the configuration reader sees it: home directories, names, files.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _};
use std::net::{IpAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};

use nix::unistd::{Uid, User};
use weft_config::{FileKind, Host};

/// This machine, with C tor's default paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemHost {
    home: Option<PathBuf>,
}

impl SystemHost {
    /// This machine. Use the same value for the start and for every reload: the home directory is that of the
    /// user who started the process, also after it has become another (`User`).
    #[must_use]
    pub fn new() -> Self {
        let of_id = || User::from_uid(Uid::current()).ok().flatten();
        let home = std::env::var_os("HOME")
            .map(PathBuf::from)
            .or_else(|| Some(of_id()?.dir));
        Self { home }
    }
}

impl Default for SystemHost {
    fn default() -> Self {
        Self::new()
    }
}

impl Host for SystemHost {
    fn home(&self) -> Option<PathBuf> {
        self.home.clone()
    }

    fn home_of(&self, user: &str) -> Option<PathBuf> {
        Some(User::from_name(user).ok().flatten()?.dir)
    }

    fn resolve(&self, name: &str) -> Option<IpAddr> {
        Some((name, 0).to_socket_addrs().ok()?.next()?.ip())
    }

    fn torrc(&self) -> PathBuf {
        PathBuf::from("/etc/tor/torrc")
    }

    fn defaults_torrc(&self) -> PathBuf {
        PathBuf::from("/etc/tor/torrc-defaults")
    }

    fn absolute(&self, path: &Path) -> PathBuf {
        std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
    }

    fn kind(&self, path: &Path) -> io::Result<FileKind> {
        let found = fs::metadata(path)?;
        Ok(if found.is_file() {
            FileKind::File
        } else if found.is_dir() {
            FileKind::Folder
        } else {
            FileKind::Other
        })
    }

    fn exists(&self, path: &Path) -> bool {
        fs::symlink_metadata(path).is_ok()
    }

    fn read(&self, path: &Path, at_most: u64) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        fs::File::open(path)?
            .take(at_most)
            .read_to_end(&mut content)?;
        Ok(content)
    }

    fn read_stdin(&self, at_most: u64) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        io::stdin().lock().take(at_most).read_to_end(&mut content)?;
        Ok(content)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        fs::read_dir(folder)?
            .map(|entry| Ok(entry?.file_name()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_home_directory_stays_that_of_the_start() {
        let host = SystemHost {
            home: Some(PathBuf::from("/home/of-the-start")),
        };
        let loaded = weft_config::load_text("DataDirectory ~/data\n", &host).unwrap();
        let directory = loaded.options.files.data_directory;
        assert_eq!(directory, Path::new("/home/of-the-start/data"));
    }

    #[test]
    fn kinds_of_files_are_distinguished() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("a"), "0123").unwrap();
        fs::create_dir(at("b")).unwrap();
        std::os::unix::fs::symlink("a", at("c")).unwrap();
        std::os::unix::fs::symlink("none", at("d")).unwrap();
        let host = SystemHost::new();
        let kind = |name| host.kind(&at(name)).ok();
        assert_eq!(kind("a"), Some(FileKind::File));
        assert_eq!(kind("b"), Some(FileKind::Folder));
        assert_eq!(kind("c"), Some(FileKind::File));
        assert_eq!(kind("d"), None);
        assert!(host.exists(&at("d")) && !host.exists(&at("e")));
        assert_eq!(host.read(&at("c"), 3).unwrap(), b"012");
        let mut names = host.list(folder.path()).unwrap();
        names.sort();
        assert_eq!(names, ["a", "b", "c", "d"]);
    }
}
