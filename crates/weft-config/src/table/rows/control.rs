//! Ports for controllers, and how they authenticate.

options! {
    from super::applications::END;

    /// A port, or an address and port, where controllers connect.
    opens ControlPort: LinesOf(ControlPortLines);

    /// As ControlPort, left out of dumps.
    opens __ControlPort: LinesOf(ControlPortLines), hidden;

    /// The lines of ControlPort.
    list ControlPortLines: LinesVirtual;

    /// The path of a socket where controllers connect, with flags.
    opens ControlSocket: Lines;

    /// The group may use control sockets.
    opens ControlSocketsGroupWritable: Bool = "0";

    /// A file that gets the addresses of the control ports.
    names ControlPortWriteToFile: Path;

    /// The group may read that file.
    opens ControlPortFileGroupReadable: Bool = "0";

    /// Controllers may authenticate by the content of a file.
    protects CookieAuthentication: Bool = "0";

    /// That file; `control_auth_cookie` in the DataDirectory unless set.
    names CookieAuthFile: Path;

    /// The group may read that file.
    opens CookieAuthFileGroupReadable: Bool = "0";

    /// The hash of a password that controllers may authenticate by; `weft --hash-password` makes it.
    protects HashedControlPassword: Lines;

    /// As HashedControlPassword, left out of dumps.
    protects __HashedControlSessionPassword: Lines, hidden;

    /// End when the process with this number ends.
    opens __OwningControllerProcess: Text, hidden, of_process;

    /// A connection to a controller, as a file descriptor: end when it closes.
    opens __OwningControllerFD: U64 = "18446744073709551615",
        immutable, hidden;

    /// Streams wait until a controller attaches them.
    opens __LeaveStreamsUnattached: Bool = "0", hidden;

    /// Build no circuits before they are needed.
    tunes __DisablePredictedCircuits: Bool = "0", hidden;

    /// Read torrc again at SIGHUP.
    tunes __ReloadTorrcOnSIGHUP: Bool = "1", hidden, of_process;

    /// Handle no signals.
    tunes __DisableSignalHandlers: Bool = "0", immutable, hidden, of_process;
}
