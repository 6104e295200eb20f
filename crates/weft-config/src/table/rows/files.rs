//! Where files are, and which of them the group may read.

options! {
    from super::identity::END;

    /// The directory of state, keys and cached documents; `~/.tor` unless set.
    DataDirectory: Path, immutable;

    /// The group may read the DataDirectory.
    DataDirectoryGroupReadable: Bool = "0";

    /// The directory of the relay's keys; `keys` in the DataDirectory unless set.
    KeyDirectory: Path, immutable;

    /// The group may read the KeyDirectory; `auto`: as the DataDirectory, where they are the same.
    KeyDirectoryGroupReadable: AutoBool = "auto";

    /// The directory of cached documents; the DataDirectory unless set.
    CacheDirectory: Path, immutable;

    /// The group may read the CacheDirectory; `auto`: as the DataDirectory, where they are the same.
    CacheDirectoryGroupReadable: AutoBool = "auto";

    /// A file that holds the process's number while it runs.
    PidFile: Path, immutable, of_process;

    /// Write to the disk less often.
    AvoidDiskWrites: Bool = "0";
}
