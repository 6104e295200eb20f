//! Where files are, and which of them the group may read.

options! {
    from super::identity::END;

    /// The directory of state, keys and cached documents; `~/.tor` unless set.
    names DataDirectory: Path, immutable;

    /// The group may read the DataDirectory.
    opens DataDirectoryGroupReadable: Bool = "0";

    /// The directory of the relay's keys; `keys` in the DataDirectory unless set.
    names KeyDirectory: Path, immutable;

    /// The group may read the KeyDirectory; `auto`: as the DataDirectory, where they are the same.
    opens KeyDirectoryGroupReadable: AutoBool = "auto";

    /// The directory of cached documents; the DataDirectory unless set.
    names CacheDirectory: Path, immutable;

    /// The group may read the CacheDirectory; `auto`: as the DataDirectory, where they are the same.
    opens CacheDirectoryGroupReadable: AutoBool = "auto";

    /// A file that holds the process's number while it runs.
    names PidFile: Path, immutable, of_process;

    /// Write to the disk less often.
    tunes AvoidDiskWrites: Bool = "0";
}
