//! What `--help` prints.

pub(crate) const HELP: &str = "\
Usage: weft [-f TORRC] [FLAG]... [--OPTION VALUE]...

Runs a Tor relay or client as `tor -f TORRC` does, on every core.

  -f, --torrc-file FILE      read this torrc (- is standard input); without it
                             /etc/tor/torrc, or else ~/.torrc
      --defaults-torrc FILE  read these settings before torrc
      --ignore-missing-torrc continue where the file of -f is missing
      --allow-missing-torrc  continue where it cannot be read
      --OPTION VALUE         set a torrc option, in place of what torrc sets
      --+OPTION VALUE        add to a list that torrc sets
      --/OPTION              forget what torrc sets
      --hush                 log warnings and errors only, unless torrc has Log lines
      --quiet                log nothing, unless torrc has Log lines

Instead of running:
      --verify-config        check whether the configuration can be used
      --dump-config short|full
                             print the configuration: what differs from the
                             defaults, or all of it
      --list-fingerprint [rsa|ed25519]
                             print the relay's nickname and fingerprint,
                             making its keys where it has none
      --hash-password WORD   print what HashedControlPassword wants
      --list-torrc-options   print the name of every option
      --list-deprecated-options
      --list-modules         print which parts of Tor this program has
      --version
  -h, --help

       weft lab COMMAND [FLAG]...
Private networks and measurements on this machine; see weft lab --help.

       weft sim links|idle|compromise|figures|synth [FLAG]...
Simulates paths through consensus documents; see weft sim --help.

Options are those of tor(1), and ConnectionThreads N: how many threads own
connections (without it, one for each core that the process may use; 0 does
everything on one thread). An option of tor that Weft does not support is
refused where safety rests on it; else a warning names what will not happen.
";
