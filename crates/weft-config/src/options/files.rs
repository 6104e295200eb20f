//! Where files are.

use std::path::{Path, PathBuf};

use crate::host::Host;
use crate::options::logs::LogOptions;
use crate::report::Report;
use crate::settings::Settings;
use crate::table::key::Key;
use crate::table::keys;
use crate::text::log_options::Destination;

/// The longest path of a data directory (config.c, `validate_data_directories`): Unix sockets and
/// file names below it have to fit too.
const MAX_DATA_DIRECTORY: usize = 512 - 128;

/// Where files are. Directories are not created or checked here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOptions {
    /// `DataDirectory`.
    pub data_directory: PathBuf,
    /// `KeyDirectory`; `keys` in the data directory unless set.
    pub key_directory: PathBuf,
    /// `FamilyKeyDirectory`; the key directory unless set.
    pub family_key_directory: PathBuf,
    /// `CacheDirectory`; the data directory unless set.
    pub cache_directory: PathBuf,
    /// `DataDirectoryGroupReadable`.
    pub data_directory_group_readable: bool,
    /// `KeyDirectoryGroupReadable`, with `auto` resolved.
    pub key_directory_group_readable: bool,
    /// `CacheDirectoryGroupReadable`, with `auto` resolved.
    pub cache_directory_group_readable: bool,
    /// `PidFile`.
    pub pid_file: Option<PathBuf>,
}

/// Reads them.
pub(crate) fn read(settings: &Settings, host: &dyn Host, report: &mut Report) -> FileOptions {
    let data_directory = directory_of(
        keys::DataDirectory,
        host.default_data_directory(),
        settings,
        host,
        report,
    );
    if data_directory.as_os_str().len() > MAX_DATA_DIRECTORY {
        report.error(
            settings.origin(keys::DataDirectory),
            format!("DataDirectory is longer than {MAX_DATA_DIRECTORY} bytes"),
        );
    }
    let key_directory = directory_of(
        keys::KeyDirectory,
        Some(data_directory.join("keys")),
        settings,
        host,
        report,
    );
    let family_key_directory = directory_of(
        keys::FamilyKeyDirectory,
        Some(key_directory.clone()),
        settings,
        host,
        report,
    );
    let cache_directory = directory_of(
        keys::CacheDirectory,
        Some(data_directory.clone()),
        settings,
        host,
        report,
    );
    let data_readable = settings.flag(keys::DataDirectoryGroupReadable);
    let readable = |key, directory: &Path| {
        settings
            .auto_flag(key)
            .unwrap_or(directory == data_directory && data_readable)
    };
    FileOptions {
        key_directory_group_readable: readable(keys::KeyDirectoryGroupReadable, &key_directory),
        cache_directory_group_readable: readable(
            keys::CacheDirectoryGroupReadable,
            &cache_directory,
        ),
        data_directory_group_readable: data_readable,
        pid_file: settings.text(keys::PidFile).map(PathBuf::from),
        data_directory,
        key_directory,
        family_key_directory,
        cache_directory,
    }
}

fn directory_of(
    key: Key<String>,
    default: Option<PathBuf>,
    settings: &Settings,
    host: &dyn Host,
    report: &mut Report,
) -> PathBuf {
    let path = match settings.text(key) {
        Some(text) if text.starts_with("~/") => host.expand(text),
        Some(text) => Some(PathBuf::from(text)),
        None => default,
    };
    path.unwrap_or_else(|| {
        report.error(
            settings.origin(key),
            format!("{key} is in the home directory, and that is not known: set {key}"),
        );
        PathBuf::new()
    })
}

/// Relative paths mean something else once the working directory changes.
pub(crate) fn check_relative(
    files: &FileOptions,
    log: &LogOptions,
    settings: &Settings,
    report: &mut Report,
) {
    let mut paths = vec![
        (
            keys::DataDirectory.untyped(),
            files.data_directory.as_path(),
        ),
        (keys::KeyDirectory.untyped(), files.key_directory.as_path()),
        (
            keys::FamilyKeyDirectory.untyped(),
            files.family_key_directory.as_path(),
        ),
        (
            keys::CacheDirectory.untyped(),
            files.cache_directory.as_path(),
        ),
    ];
    paths.extend(
        files
            .pid_file
            .as_deref()
            .map(|path| (keys::PidFile.untyped(), path)),
    );
    for line in &log.lines {
        if let Destination::File(path) = &line.to {
            paths.push((keys::Log.untyped(), path));
        }
    }
    for (key, path) in paths {
        let set = settings.origin(key).is_some();
        if !set || path.is_absolute() {
            continue;
        }
        if settings.flag(keys::RunAsDaemon) {
            report.error(
                settings.origin(key),
                format!("{key} is a relative path, which does not go with RunAsDaemon"),
            );
        } else {
            let text = format!("{key} is a relative path: it depends on where Weft is started");
            report.warn(settings.origin(key), text);
        }
    }
}
