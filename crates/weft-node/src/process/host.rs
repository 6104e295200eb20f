//! The system as the configuration reader sees it: home directories, names, files.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _};
use std::net::{IpAddr, ToSocketAddrs as _};
use std::os::unix::fs::FileTypeExt as _;
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
        Self::with_home(std::env::var_os("HOME"))
    }

    /// This machine, with this HOME. An empty one counts as none: it would be the working folder.
    fn with_home(home: Option<OsString>) -> Self {
        let of_id = || User::from_uid(Uid::current()).ok().flatten();
        let home = home
            .filter(|home| !home.is_empty())
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
        } else if found.file_type().is_fifo() {
            FileKind::Pipe
        } else {
            FileKind::Other
        })
    }

    fn look(&self, path: &Path) -> io::Result<()> {
        fs::symlink_metadata(path).map(drop)
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
    fn an_empty_home_is_that_of_the_user() {
        let of_user = SystemHost::with_home(None);
        assert_eq!(SystemHost::with_home(Some(OsString::new())), of_user);
        let set = SystemHost::with_home(Some("/home/set".into()));
        assert_eq!(set.home(), Some(PathBuf::from("/home/set")));
    }

    #[test]
    fn a_pipe_is_read_to_its_end_and_no_further_than_asked() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let host = SystemHost::new();
        assert_eq!(host.kind(&pipe).unwrap(), FileKind::Pipe);
        for (at_most, read) in [(9, &b"Nickname "[..]), (99, b"Nickname a\n")] {
            let written = pipe.clone();
            let writer = std::thread::spawn(move || fs::write(written, "Nickname a\n"));
            assert_eq!(host.read(&pipe, at_most).unwrap(), read);
            writer.join().unwrap().unwrap();
        }
    }

    #[test]
    fn a_pattern_passes_by_files_beside_the_folders_that_it_means() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("b")).unwrap();
        fs::write(at("b/relay.conf"), "Nickname b\n").unwrap();
        fs::write(at("README"), "").unwrap();
        let torrc = format!("%include {}/*/relay.conf\n", folder.path().display());
        let loaded = weft_config::load_text(&torrc, &SystemHost::new()).unwrap();
        assert_eq!(loaded.options.identity.nickname, "b");
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
        assert_eq!(
            host.kind(Path::new("/dev/null")).ok(),
            Some(FileKind::Other)
        );
        assert!(host.look(&at("d")).is_ok() && host.look(&at("e")).is_err());
        assert_eq!(host.read(&at("c"), 3).unwrap(), b"012");
        let mut names = host.list(folder.path()).unwrap();
        names.sort();
        assert_eq!(names, ["a", "b", "c", "d"]);
    }
}
