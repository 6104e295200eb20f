//! Installs what the machine needs besides rustup's Rust. Missing packages are installed with apt;
//! each is announced.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// A program that is needed, and Debian's and Ubuntu's package of it.
struct Need {
    program: &'static str,
    package: &'static str,
    what_for: &'static str,
}

const TOR: Need = Need {
    program: "tor",
    package: "tor",
    what_for: "the Tor relays and clients that Weft is tested against",
};
const TOR_GENCERT: Need = Need {
    program: "tor-gencert",
    package: "tor",
    what_for: "the keys of a private network's authorities",
};
const C_COMPILER: Need = Need {
    program: "cc",
    package: "gcc",
    what_for: "the cryptography of TLS (aws-lc) and linking",
};
const CPP_COMPILER: Need = Need {
    program: "c++",
    package: "g++",
    what_for: "libFuzzer",
};
const VALGRIND: Need = Need {
    program: "valgrind",
    package: "valgrind",
    what_for: "counting the instructions for each cell",
};
const CHROMIUM: Need = Need {
    program: "chromium",
    package: "chromium",
    what_for: "a page in a real browser",
};
const PYTHON: Need = Need {
    program: "python3",
    package: "python3",
    what_for: "the simulator's Python package, and Stem",
};
const TMUX: Need = Need {
    program: "tmux",
    package: "tmux",
    what_for: "the terminal that nyx is tested in",
};
const IP: Need = Need {
    program: "ip",
    package: "iproute2",
    what_for: "a network namespace's loopback device",
};
const STRIP: Need = Need {
    program: "strip",
    package: "binutils",
    what_for: "a program without the names of its functions",
};
/// Programs that use what Weft installs: its examples, manual pages and completions.
const AROUND: [Need; 6] = [
    Need {
        program: "curl",
        package: "curl",
        what_for: "the examples of `weft lab up`",
    },
    Need {
        program: "torsocks",
        package: "torsocks",
        what_for: "the examples of `weft lab up`",
    },
    Need {
        program: "mandoc",
        package: "mandoc",
        what_for: "faults of manual pages",
    },
    Need {
        program: "zsh",
        package: "zsh",
        what_for: "its completions",
    },
    Need {
        program: "fish",
        package: "fish",
        what_for: "its completions",
    },
    STRIP,
];
/// Programs that make and inspect a Debian package.
const PACKAGING: [Need; 5] = [
    Need {
        program: "dpkg-buildpackage",
        package: "dpkg-dev",
        what_for: "Debian packages",
    },
    Need {
        program: "dh",
        package: "debhelper",
        what_for: "what Debian's policy asks of them",
    },
    Need {
        program: "dh_apparmor",
        package: "dh-apparmor",
        what_for: "their AppArmor profiles",
    },
    Need {
        program: "apparmor_parser",
        package: "apparmor",
        what_for: "the syntax of these",
    },
    Need {
        program: "lintian",
        package: "lintian",
        what_for: "mistakes in packages",
    },
];
/// Without it Debian's and Ubuntu's Python makes no virtual environment.
const PYTHON_VENV: &str = "python3-venv";

/// Installs what building, testing and the demo need and the machine lacks.
///
/// # Errors
///
/// Something is missing and cannot be installed; the message has the command to do it by hand.
pub(crate) fn prepare() -> Result<()> {
    have(&[&C_COMPILER, &CPP_COMPILER, &TOR, &TOR_GENCERT])
}

/// Installs what all tests need and the machine lacks; with `steps` also what the other steps of `cargo xtask test`
/// need, since each call of apt-get takes seconds.
///
/// # Errors
///
/// As of [`prepare`].
pub(crate) fn prepare_testing(steps: bool) -> Result<()> {
    have(&testing(steps))
}

/// Fails at once where [`prepare_testing`] would have something to install and could not.
///
/// # Errors
///
/// What is missing, with the command to install it by hand.
pub(crate) fn can_prepare_testing(steps: bool) -> Result<()> {
    let missing = missing(&testing(steps));
    if missing.is_empty() {
        return Ok(());
    }
    ways_to_install(&packages(&missing)).map(drop)
}

fn testing(steps: bool) -> Vec<&'static Need> {
    let mut needs = vec![&C_COMPILER, &CPP_COMPILER, &TOR, &TOR_GENCERT];
    needs.extend(&AROUND);
    if steps {
        needs.extend([&VALGRIND, &PYTHON, &TMUX]);
        needs.extend(&PACKAGING);
    }
    needs
}

/// Installs what building Weft needs and the machine lacks.
///
/// # Errors
///
/// As of [`prepare`].
pub(crate) fn prepare_building() -> Result<()> {
    have(&[&C_COMPILER])
}

/// Installs what counting instructions needs and the machine lacks.
///
/// # Errors
///
/// As of [`prepare`].
pub(crate) fn prepare_counting() -> Result<()> {
    have(&[&C_COMPILER, &VALGRIND])
}

/// Installs the browser of the end-to-end test if the machine lacks it. Ubuntu has no such package.
///
/// # Errors
///
/// As of [`prepare`].
pub(crate) fn prepare_browser() -> Result<()> {
    have(&[&C_COMPILER, &CHROMIUM])
}

/// Installs what makes a pack, if the machine lacks it.
///
/// # Errors
///
/// As of [`prepare`].
pub(crate) fn prepare_pack() -> Result<()> {
    have(&[&C_COMPILER, &TOR, &TOR_GENCERT, &STRIP, &IP])
}

/// Installs what makes Debian packages, if the machine lacks it.
///
/// # Errors
///
/// As of [`prepare`].
pub(crate) fn prepare_packaging() -> Result<()> {
    have(&[&C_COMPILER])?;
    have(&PACKAGING.each_ref())
}

/// Installs the terminal that nyx is tested in if the machine lacks it.
///
/// # Errors
///
/// As of [`prepare`].
pub(crate) fn prepare_terminal() -> Result<()> {
    have(&[&TMUX])
}

/// Installs what making virtual environments with this Python needs and the machine lacks.
///
/// # Errors
///
/// As of [`prepare`].
pub(crate) fn prepare_python(python: &str) -> Result<()> {
    if python == PYTHON.program {
        have(&[&PYTHON])?;
    }
    if makes_environments(python) {
        return Ok(());
    }
    println!("venv is missing (virtual environments of Python)");
    install(&[PYTHON_VENV])?;
    ensure!(
        makes_environments(python),
        "{python} makes no virtual environments even with the package {PYTHON_VENV}"
    );
    Ok(())
}

/// True if this Python makes virtual environments, which Debian packages separately.
fn makes_environments(python: &str) -> bool {
    let tried = Command::new(python)
        .args(["-c", "import ensurepip, venv"])
        .output();
    tried.is_ok_and(|output| output.status.success())
}

/// Installs what is missing of these.
fn have(needs: &[&Need]) -> Result<()> {
    let missing = missing(needs);
    if missing.is_empty() {
        return Ok(());
    }
    for need in &missing {
        println!("{} is missing ({})", need.program, need.what_for);
    }
    install(&packages(&missing))?;
    for need in missing {
        ensure!(
            find(need.program).is_some(),
            "{} is still missing after installing the package {}",
            need.program,
            need.package
        );
    }
    Ok(())
}

/// The programs of `needs` that the machine lacks.
fn missing<'a>(needs: &[&'a Need]) -> Vec<&'a Need> {
    let missing = needs.iter().filter(|need| find(need.program).is_none());
    missing.copied().collect()
}

/// Their packages.
fn packages<'a>(needs: &[&'a Need]) -> Vec<&'a str> {
    let mut packages: Vec<&str> = needs.iter().map(|need| need.package).collect();
    packages.dedup();
    packages
}

/// True if this user is root and needs no sudo, and the command to install these packages by hand.
/// Fails if there is no way to install them from here.
fn ways_to_install(packages: &[&str]) -> Result<(bool, String)> {
    let by_hand = format!("apt-get install {}", packages.join(" "));
    if find("apt-get").is_none() {
        bail!(
            "there is no apt-get here: install what this machine calls `{by_hand}`, then try again"
        );
    }
    let root = nix::unistd::geteuid().is_root();
    if !root && find("sudo").is_none() {
        bail!("run `{by_hand}` as root, then try again");
    }
    Ok((root, by_hand))
}

/// Installs packages with apt-get, as root or by sudo.
fn install(packages: &[&str]) -> Result<()> {
    let (root, by_hand) = ways_to_install(packages)?;
    let apt = |args: &[&str]| -> Result<bool> {
        let mut command = match root {
            true => Command::new("apt-get"),
            false => {
                let mut sudo = Command::new("sudo");
                sudo.arg("apt-get");
                sudo
            }
        };
        println!(
            "$ {}apt-get {}",
            if root { "" } else { "sudo " },
            args.join(" ")
        );
        let status = command
            .args(args)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .status()
            .context("running apt-get")?;
        Ok(status.success())
    };
    // A list of packages that is out of date still often serves.
    apt(&["-qq", "update"])?;
    let mut install = vec!["-qq", "install", "-y", "--no-install-recommends"];
    install.extend(packages);
    ensure!(
        apt(&install)?,
        "apt-get failed (see above): run `{by_hand}` as root, then try again"
    );
    stop_system_tor(packages);
    Ok(())
}

/// Debian's package starts a Tor service, which is not needed here.
fn stop_system_tor(packages: &[&str]) {
    if packages.contains(&"tor") && Path::new("/run/systemd/system").exists() {
        println!(
            "The package tor has started a Tor client of its own; `systemctl disable --now tor` stops it."
        );
    }
}

/// Where a program is, by PATH.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// The top of the checkout.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map_or_else(PathBuf::new, Path::to_path_buf)
}

/// cargo, in the checkout.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// The folder that cargo builds in.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root().join("target"), |folder| root().join(folder))
}

/// Prints a command.
pub(crate) fn print(command: &Command) {
    let words: Vec<String> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    println!("$ {}", words.join(" "));
}

/// Prints a command, runs it, and fails unless it succeeds.
pub(crate) fn succeed(command: &mut Command) -> Result<()> {
    print(command);
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command
        .status()
        .with_context(|| format!("running {program}"))?;
    ensure!(status.success(), "{program}: {status} (see above)");
    Ok(())
}

/// Runs a command that must succeed; the result is its output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .with_context(|| format!("running {program}"))?;
    ensure!(
        output.status.success(),
        "{program}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim_end()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Output of git in the checkout, without the end of its last line.
pub(crate) fn git(words: &[&str]) -> Result<String> {
    let text = output(Command::new("git").current_dir(root()).args(words))?;
    Ok(text.trim().to_owned())
}

/// Removes a folder with all that is in it, if there is one.
pub(crate) fn remove(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// The Rust files in a folder and below, or the one file.
#[cfg(test)]
pub(crate) fn sources(place: &Path) -> Vec<PathBuf> {
    if place.is_file() {
        let is_source = place.extension().is_some_and(|end| end == "rs");
        return is_source.then(|| place.to_owned()).into_iter().collect();
    }
    let entries = std::fs::read_dir(place).unwrap();
    entries
        .flat_map(|entry| sources(&entry.unwrap().path()))
        .collect()
}
