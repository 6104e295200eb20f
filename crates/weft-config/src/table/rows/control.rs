//! Ports for controllers, and how they authenticate.

options! {
    from super::applications::END;

    /// A port, or an address and port, where controllers connect.
    ControlPort: LinesOf(ControlPortLines);

    /// As ControlPort, left out of dumps.
    __ControlPort: LinesOf(ControlPortLines), hidden;

    /// The lines of ControlPort.
    ControlPortLines: LinesVirtual;

    /// The path of a socket where controllers connect, with flags.
    ControlSocket: Lines;

    /// The group may use control sockets.
    ControlSocketsGroupWritable: Bool = "0";

    /// A file that gets the addresses of the control ports.
    ControlPortWriteToFile: Path;

    /// The group may read that file.
    ControlPortFileGroupReadable: Bool = "0";

    /// Controllers may authenticate by the content of a file.
    CookieAuthentication: Bool = "0";

    /// That file; `control_auth_cookie` in the DataDirectory unless set.
    CookieAuthFile: Path;

    /// The group may read that file.
    CookieAuthFileGroupReadable: Bool = "0";

    /// The hash of a password that controllers may authenticate by; `weft --hash-password` makes it.
    HashedControlPassword: Lines;

    /// As HashedControlPassword, left out of dumps.
    __HashedControlSessionPassword: Lines, hidden;

    /// End when the process with this number ends.
    __OwningControllerProcess: Text, hidden, of_process;

    /// A connection to a controller, as a file descriptor: end when it closes.
    __OwningControllerFD: U64 = "18446744073709551615",
        immutable, hidden;

    /// Streams wait until a controller attaches them.
    __LeaveStreamsUnattached: Bool = "0", hidden;

    /// Build no circuits before they are needed.
    __DisablePredictedCircuits: Bool = "0", hidden;

    /// Read torrc again at SIGHUP.
    __ReloadTorrcOnSIGHUP: Bool = "1", hidden, of_process;

    /// Handle no signals.
    __DisableSignalHandlers: Bool = "0", immutable, hidden, of_process;
}
