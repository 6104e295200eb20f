//! `cargo xtask deb`: Weft as a package of Debian's.
//!
//! `packages/debian` says what is in it. Here that, and what goes into it, is put into one folder, in which Debian's own
//! tools make the package.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::{linted, machine};

/// Build the Debian package: `target/deb/weft_VERSION_ARCHITECTURE.deb`.
#[derive(clap::Args, Debug)]
pub(crate) struct DebArgs {
    /// Compile as tests do: soon done, slow to run
    #[arg(long)]
    dev: bool,
}

/// What the unit of `examples/systemd` starts Weft with, and what the package's does.
const UNIT: [(&str, &str); 3] = [
    ("/usr/local/bin/", "/usr/bin/"),
    (
        "-f /etc/weft/torrc --DataDirectory /var/lib/weft --RunAsDaemon 0",
        "--defaults-torrc /usr/share/weft/weft-service-defaults-torrc -f /etc/weft/torrc --RunAsDaemon 0",
    ),
    (
        "# Ports below 1024, without root.",
        "AppArmorProfile=-system_weft\n\n# Ports below 1024, without root.",
    ),
];

/// `cargo xtask deb`.
pub(crate) fn run(args: &DebArgs) -> Result<()> {
    machine::prepare_packaging()?;
    let package = build(args.dev)?;
    println!("{}", package.display());
    Ok(())
}

/// Builds it from the program that tests use, and looks into it.
pub(crate) fn check() -> Result<()> {
    machine::prepare_packaging()?;
    let package = build(true)?;
    machine::succeed(
        Command::new("lintian")
            .args([
                "--fail-on",
                "error",
                "--allow-root",
                "--no-tag-display-limit",
            ])
            .arg(&package),
    )?;
    let root = folder().join("root");
    machine::remove(&root)?;
    machine::succeed(Command::new("dpkg-deb").arg("-x").args([&package, &root]))?;
    for file in [
        "usr/bin/weft",
        "etc/weft/torrc",
        "usr/share/man/man1/weft.1.gz",
        "usr/share/man/man1/weft-lab.1.gz",
        "usr/share/bash-completion/completions/weft",
        "usr/lib/sysusers.d/weft.conf",
    ] {
        ensure!(root.join(file).is_file(), "the package has no {file}");
    }
    let units = ["usr/lib/systemd/system", "lib/systemd/system"];
    let mut units = units
        .map(|folder| root.join(folder).join("weft.service"))
        .into_iter();
    let unit = units.find(|unit| unit.is_file());
    let text = fs::read_to_string(unit.context("the package has no unit")?)?;
    for (_, new) in UNIT {
        ensure!(text.contains(new), "the unit has no {new:?}: {text}");
    }
    machine::succeed(
        Command::new("apparmor_parser")
            .args(["--skip-kernel-load", "--skip-cache", "--quiet"])
            .arg(root.join("etc/apparmor.d/system_weft")),
    )?;
    // As the unit does before each start.
    let data = root.join("var/lib/weft");
    fs::create_dir_all(&data)?;
    fs::set_permissions(&data, fs::Permissions::from_mode(0o700))?;
    machine::succeed(
        Command::new(root.join("usr/bin/weft"))
            .arg("--defaults-torrc")
            .arg(root.join("usr/share/weft/weft-service-defaults-torrc"))
            .arg("-f")
            .arg(root.join("etc/weft/torrc"))
            .arg("--DataDirectory")
            .arg(&data)
            .arg("--verify-config"),
    )
}

fn folder() -> PathBuf {
    machine::target().join("deb")
}

/// Builds the package; the result is where it is.
fn build(dev: bool) -> Result<PathBuf> {
    let mut cargo = linted::cargo_as(dev)?;
    match dev {
        // The program that the tests run: nothing is compiled for this alone.
        true => cargo.args(["build", "--locked", "--workspace", "--bin", "weft"]),
        false => cargo.args(["build", "--locked", "--release", "--package", "weft"]),
    };
    machine::succeed(&mut cargo)?;
    let program = machine::target().join(if dev { "debug" } else { "release" });
    let source = folder().join("weft");
    machine::remove(&folder())?;
    fs::create_dir_all(&source)?;
    gather(&program.join("weft"), &source)?;
    machine::succeed(
        Command::new("dpkg-buildpackage")
            .current_dir(&source)
            .args(["--build=binary", "--no-sign", "--no-check-builddeps"])
            .env(
                "SOURCE_DATE_EPOCH",
                &machine::git(&["log", "-1", "--format=%ct"])?,
            ),
    )?;
    let built = fs::read_dir(folder())?;
    let is_package = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("weft_") && name.ends_with(".deb")
    };
    let mut paths = built.flatten().map(|entry| entry.path());
    paths.find(is_package).context("no package was built")
}

/// Puts everything that the package has into the folder in which it is made.
fn gather(program: &Path, source: &Path) -> Result<()> {
    let root = machine::root();
    let packages = root.join("packages");
    machine::succeed(
        Command::new("cp")
            .arg("-r")
            .args([&packages.join("debian"), &source.to_owned()]),
    )?;
    let copy = |from: PathBuf, to: &str| -> Result<()> {
        let to = source.join(to);
        fs::copy(&from, &to)
            .with_context(|| format!("copying {} to {}", from.display(), to.display()))?;
        Ok(())
    };
    copy(program.to_owned(), "weft")?;
    for name in ["torrc", "weft-service-defaults-torrc", "system_weft"] {
        copy(packages.join(name), name)?;
    }
    copy(root.join("CHANGELOG.md"), "CHANGELOG.md")?;
    copy(root.join("docs/operator.md"), "operator.md")?;
    let systemd = root.join("examples/systemd");
    copy(systemd.join("weft.sysusers"), "debian/weft.sysusers")?;
    let unit = fs::read_to_string(systemd.join("weft.service"))?;
    fs::write(source.join("debian/weft.service"), unit_of_package(&unit)?)?;
    let version = env!("CARGO_PKG_VERSION");
    let date = machine::git(&["log", "-1", "--format=%cD"])?;
    fs::write(
        source.join("debian/changelog"),
        format!(
            "weft ({version}) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n -- Weft maintainers \
             <maintainers@weft.invalid>  {date}\n"
        ),
    )?;
    machine::succeed(
        Command::new(program)
            .args(["man", "--dir"])
            .arg(source.join("man")),
    )?;
    for (shell, name) in [("bash", "weft"), ("zsh", "_weft"), ("fish", "weft.fish")] {
        let folder = source.join("completions").join(shell);
        fs::create_dir_all(&folder)?;
        let output = Command::new(program)
            .args(["completions", shell])
            .output()
            .with_context(|| format!("running {}", program.display()))?;
        ensure!(output.status.success(), "no completions for {shell}");
        fs::write(folder.join(name), output.stdout)?;
    }
    Ok(())
}

/// The unit of `examples/systemd`, where the package has its files.
fn unit_of_package(unit: &str) -> Result<String> {
    // Its first lines are about an installation by hand.
    let begin = unit.find("[Unit]").context("the unit has no [Unit]")?;
    let mut unit = unit[begin..].to_owned();
    for (old, new) in UNIT {
        ensure!(unit.contains(old), "the unit has no {old:?}");
        unit = unit.replace(old, new);
    }
    Ok(unit)
}
